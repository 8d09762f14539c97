//! `dwell reserve`, and `dwell ack`, `dwell nack`, `dwell release` and `dwell extend`, which settle what it took.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::time::Duration;

use clap::Args;
use dwell_client::wire::Word;
use dwell_client::{Ack, Error, Extend, Nack, Release, Reserve, Settled};

use super::contents::shown;
use super::failure::Failure;
use super::remote::{At as _, Remote};
use super::{ServerArgs, output, parse};
use crate::delivery::Verdict;
use crate::model::limits::{BATCH_MESSAGES_MAX, PER_KEY_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::OnFailure;
use crate::model::spelling::thousands;
use crate::model::time::parse_span;

const ACK_EXAMPLES: &str = "\
Examples:
  dwell ack orders AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q
  dwell reserve orders --max 10 --json | jq -r .receipt | dwell ack orders -
  dwell ack orders --late - < receipts.txt     also after the visibility timeout

Exit code 0 if every receipt was applied; 1 if one was not, which is printed with its reason.
Repeating an ack is harmless.";

const NACK_EXAMPLES: &str = "\
Examples:
  dwell nack orders AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q --delay 10s --reason 'smtp: 451'
  dwell nack orders AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q --bury --reason 'smtp: 550'
  dwell nack orders - < receipts.txt

Exit code 0 if every receipt was applied; 1 if one was not, which is printed with its reason.";

const RELEASE_EXAMPLES: &str = "\
Examples:
  dwell release orders AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q
  dwell release orders - < receipts.txt

The messages are due again at once, and these deliveries count as no attempts. Exit code 0 if every
receipt was applied; 1 if one was not, which is printed with its reason.";

const EXTEND_EXAMPLES: &str = "\
Examples:
  dwell extend orders AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q --visibility-timeout 5m

The new deadline counts from now. Exit code 0 if every receipt was applied; 1 if one was not, which
is printed with its reason.";

/// The receipts to settle.
#[derive(Debug, Args)]
struct ReceiptArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// Receipts of deliveries; - reads them from stdin, one a line
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<String>,
    /// The group that the deliveries are for
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
}

#[derive(Debug, Args)]
struct LateArg {
    /// Also settle deliveries that have ended, if no consumer has had the message since
    #[arg(long)]
    late: bool,
}

/// Acknowledge deliveries: their messages are done
#[derive(Debug, Args)]
#[command(after_help = ACK_EXAMPLES)]
pub(crate) struct AckArgs {
    #[command(flatten)]
    which: ReceiptArgs,
    #[command(flatten)]
    late: LateArg,
    #[command(flatten)]
    server: ServerArgs,
}

/// Report failed deliveries: their messages are delivered again, or become dead letters
#[derive(Debug, Args)]
#[command(after_help = NACK_EXAMPLES)]
pub(crate) struct NackArgs {
    #[command(flatten)]
    which: ReceiptArgs,
    #[command(flatten)]
    late: LateArg,
    /// Until the next attempt, as in 10s [default: the topic's backoff]
    #[arg(long, value_name = "DURATION", value_parser = parse_span, conflicts_with = "bury")]
    delay: Option<Duration>,
    /// Reason of the failure, kept as the last error
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Make the messages dead letters at once: they can never succeed
    #[arg(long)]
    bury: bool,
    /// All messages of their keys wait as long as they do; in a fair group
    #[arg(long, conflicts_with = "bury")]
    pause_key: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Give deliveries back unhandled: their messages are due again, and no attempt is counted
#[derive(Debug, Args)]
#[command(after_help = RELEASE_EXAMPLES)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: ReceiptArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Extend the deadlines of deliveries
#[derive(Debug, Args)]
#[command(after_help = EXTEND_EXAMPLES)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    which: ReceiptArgs,
    #[command(flatten)]
    late: LateArg,
    /// Time to settle each from now on, as in 5m
    #[arg(long, value_name = "DURATION", value_parser = parse::visibility_timeout)]
    visibility_timeout: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn ack(args: &AckArgs) -> Result<(), Failure> {
    let (topic, group) = args.which.names();
    settle(&args.which, &args.server, async |Remote { client, .. }, receipts| {
        client.ack(topic, group, Ack { late: args.late.late, ..Ack::of(receipts) }).await
    })
    .await
}

pub(crate) async fn nack(args: &NackArgs) -> Result<(), Failure> {
    let (topic, group) = args.which.names();
    let NackArgs { delay, bury, pause_key, .. } = *args;
    settle(&args.which, &args.server, async |Remote { client, .. }, receipts| {
        let all =
            Nack { delay, bury, pause_key, late: args.late.late, ..Nack::of(receipts.iter().map(String::as_str)) };
        client.nack(topic, group, args.reason.as_deref().into_iter().fold(all, Nack::reason)).await
    })
    .await
}

pub(crate) async fn release(args: &ReleaseArgs) -> Result<(), Failure> {
    let (topic, group) = args.which.names();
    settle(&args.which, &args.server, async |Remote { client, .. }, receipts| {
        client.release(topic, group, Release::of(receipts)).await
    })
    .await
}

pub(crate) async fn extend(args: &ExtendArgs) -> Result<(), Failure> {
    let (topic, group) = args.which.names();
    settle(&args.which, &args.server, async |Remote { client, .. }, receipts| {
        let extend = Extend { late: args.late.late, ..Extend::of(receipts, args.visibility_timeout) };
        client.extend(topic, group, extend).await
    })
    .await
}

async fn settle<F>(which: &ReceiptArgs, server: &ServerArgs, call: F) -> Result<(), Failure>
where
    F: AsyncFn(&Remote, &[String]) -> Result<Vec<Settled>, Error>,
{
    let remote = server.remote()?;
    let (mut failed, mut counts) = (0, BTreeMap::<Word, u64>::new());
    let receipts = which.receipts()?;
    for receipts in receipts.chunks(BATCH_MESSAGES_MAX) {
        for verdict in call(&remote, receipts).await.at(&remote.place)? {
            if server.print.json {
                output::json(&verdict)?;
            }
            if verdict.is_applied() {
                *counts.entry(verdict.status).or_default() += 1;
            } else {
                failed += 1;
                output::note(refusal(&verdict));
            }
        }
    }
    if !server.print.json && !counts.is_empty() {
        let counts = counts.iter().map(|(status, count)| format!("{} {status}", thousands(*count)));
        output::line(counts.collect::<Vec<_>>().join(", "))?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of {} receipts not applied", receipts.len()))),
    }
}

/// `3.17.k3Zq….152…: stale, deadline_passed: the visibility timeout passed …`.
pub(super) fn refusal(verdict: &Settled) -> String {
    let Settled { receipt, status, owner, reason, .. } = verdict;
    let detail = Verdict::named(status, reason.as_deref(), None).map_or("", Verdict::detail);
    let owner = owner.as_ref().map_or(String::new(), |owner| format!(" (owner {owner})"));
    let reason = reason.as_ref().filter(|reason| *reason != status);
    let reason = reason.map_or(String::new(), |reason| format!(", {reason}"));
    format!("{receipt}: {status}{reason}: {detail}{owner}")
}

impl ReceiptArgs {
    fn names(&self) -> (&str, &str) {
        (self.topic.as_str(), self.group.as_str())
    }

    fn receipts(&self) -> Result<Vec<String>, Failure> {
        let mut receipts = Vec::new();
        for receipt in &self.receipts {
            if receipt == "-" {
                receipts.extend(read_stdin()?);
            } else {
                receipts.push(receipt.clone());
            }
        }
        Ok(receipts)
    }
}

fn read_stdin() -> Result<Vec<String>, Failure> {
    let lines: std::io::Result<Vec<String>> = std::io::stdin().lock().lines().collect();
    let lines = lines.map_err(|error| Failure::new(format!("cannot read stdin: {error}")))?;
    Ok(lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

const RESERVE_EXAMPLES: &str = "\
Examples:
  dwell reserve orders                         one delivery that is due now, if there is one
  dwell reserve orders --max 10 --wait 20s --json
  dwell reserve orders --json | jq -r .receipt | dwell ack orders -
  dwell reserve views --max 100 --min 50 --linger 5s --wait 20s --same-key

A line begins with the receipt; with --json it is an object. Without `ack`, `nack`, `release` or
`extend` a delivery is nacked after the visibility timeout. If nothing is due, nothing is printed,
with exit code 0.";

/// Reserve messages and print them with their receipts, for a script to settle
#[derive(Debug, Args)]
#[command(after_help = RESERVE_EXAMPLES)]
pub(crate) struct ReserveArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group to consume for
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// Deliveries to reserve at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=BATCH_MESSAGES_MAX as i64))]
    max: u16,
    /// How long to wait for the first one, at most 1m
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_span)]
    wait: Duration,
    /// How long a delivery may take before it is nacked [default: the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse::visibility_timeout)]
    visibility_timeout: Option<Duration>,
    /// Only messages that were pushed at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    min_age: Option<Duration>,
    /// Successive messages of one key in the batch, 1 to 10; for topics with ordering [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PER_KEY_MAX as i64))]
    per_key: Option<u16>,
    /// When a message of a key fails: return_rest, the later ones of the batch return with it; keep_rest, they stay
    /// [default: return_rest]
    #[arg(long, value_name = "POLICY", value_parser = parse::on_failure)]
    on_failure: Option<OnFailure>,
    /// Messages to wait for, 1 to --max; not for topics with ordering [default: 1]
    #[arg(long, value_name = "N", requires = "linger")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=BATCH_MESSAGES_MAX as i64))]
    min: Option<u16>,
    /// With --min: how long the oldest message waits for others after it became due, at most 1m
    #[arg(long, value_name = "DURATION", requires = "min", value_parser = parse_span)]
    linger: Option<Duration>,
    /// Only messages of one key; not for topics with ordering
    #[arg(long)]
    same_key: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn reserve(args: &ReserveArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let request = Reserve {
        max: Some(args.max.into()),
        wait: Some(args.wait),
        visibility_timeout: args.visibility_timeout,
        min_age: args.min_age,
        per_key: args.per_key.map(usize::from),
        on_failure: args.on_failure.map(|policy| policy.name().into()),
        min: args.min.map(usize::from),
        linger: args.linger,
        same_key: args.same_key,
        ..Reserve::default()
    };
    for delivery in &client.reserve(args.topic.as_str(), args.group.as_str(), request).await.at(&place)?.deliveries {
        args.server.print.value(delivery, |delivery| format!("{} {}", delivery.receipt, shown(delivery)))?;
    }
    Ok(())
}
