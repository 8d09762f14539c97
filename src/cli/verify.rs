//! `dwell verify`: verifies that what the store holds of a topic is consistent.

use std::collections::BTreeMap;

use clap::Args;

use super::api::Findings;
use super::client::GroupOf;
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::model::message::{GroupName, TopicName};

/// Findings that are shown one by one.
const SHOWN: usize = 20;

const EXAMPLES: &str = "\
Examples:
  dwell verify orders
  dwell verify orders --repair

Exit code: 0 when nothing was found, or all of it was repaired; 1 otherwise.";

/// Verify that ids and bodies of a topic agree in the store; repair those that do not
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct VerifyArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// Repair what is found: schedule bodies that have no id, drop ids that have no body
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    let mut by_group = BTreeMap::new();
    for group in client.topic(&args.topic).await?.groups {
        let group = GroupName::new(group).map_err(|error| Failure::new(error.to_string()))?;
        let of = GroupOf { topic: args.topic.clone(), group };
        let (mut all, mut cursor) = (Findings::default(), None);
        loop {
            let page = client.verify(&of, cursor.as_deref(), args.repair).await?;
            all.seen += page.seen;
            all.findings.extend(page.findings);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
            output::note(format!("{}: {} entries looked at", of.group, output::thousands(all.seen)));
        }
        by_group.insert(of.group.to_string(), all);
    }
    let found: usize = by_group.values().map(|all| all.findings.len()).sum();
    if args.json {
        output::json(&by_group)?;
    } else {
        output::line(shown(&by_group, args.repair))?;
    }
    match found > 0 && !args.repair {
        true => {
            Err(Failure::new(format!("{found} entries disagree; `dwell verify {} --repair` repairs them", args.topic)))
        }
        false => Ok(()),
    }
}

/// A line for each group, and one for each of the first findings.
fn shown(by_group: &BTreeMap<String, Findings>, repaired: bool) -> String {
    let mut lines = Vec::new();
    for (group, all) in by_group {
        let seen = output::thousands(all.seen);
        lines.push(match all.findings.len() {
            0 => format!("{group}: {seen} entries, all consistent"),
            found if repaired => format!("{group}: {seen} entries, {found} repaired"),
            found => format!("{group}: {seen} entries, {found} disagree"),
        });
        let one =
            |found: &super::api::Found| format!("  {} in partition {}: {}", found.id, found.partition, found.defect);
        lines.extend(all.findings.iter().take(SHOWN).map(one));
        if all.findings.len() > SHOWN {
            lines.push(format!("  and {} more; --json shows all", all.findings.len() - SHOWN));
        }
    }
    lines.join("\n")
}
