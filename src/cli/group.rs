//! `dwell group`: creates, updates, gets, lists, deletes, purges, pauses and resumes groups.

use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::Client;
use dwell_client::wire::groups::{
    DeliveryWindow, Group, GroupDescription, GroupKeys, KeyPause, KeyState, Member, NewGroup, NewKeyLimit, PurgeOf,
};
use dwell_client::wire::items::{Named, Object};
use serde_json::json;

use super::failure::Failure;
use super::output::{self, YesArgs};
use super::place::Place;
use super::remote::{At as _, Remote};
use super::topic::{Row, messages, state, table};
use super::{ServerArgs, parse};
use crate::model::message::{GroupName, Key, TopicName};
use crate::model::spelling::{counted, thousands};
use crate::model::time::{Timestamp, parse_span};
use crate::model::topic::Fairness;

const EXAMPLES: &str = "\
Examples:
  dwell group create orders audit                    gets every message that is pushed from now on
  dwell group create orders audit --copy-of default  and a copy of what default holds now
  dwell group create orders audit --rate 10 --max-in-flight 100
  dwell group update orders audit --rate 20
  dwell group update orders audit --window 'mon-fri 09:00-17:30 Europe/Berlin'
  dwell group update orders audit --fair key         no key delays another one, however many it has
  dwell group update orders audit --fair key --key-max-in-flight 5
  dwell group list orders
  dwell group get orders audit
  dwell group pause orders audit --for 10m
  dwell group resume orders audit
  dwell group pause orders audit --key customer-7 --for 10m
  dwell group purge orders audit
  dwell group delete orders audit";

/// Create, update, get, list, delete, purge, pause and resume groups
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GroupArgs {
    #[command(subcommand)]
    command: GroupCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// Create a group, which gets every message of the topic, or change the limits of one
    Create(CreateArgs),
    /// Change the limits of a group that exists
    Update(UpdateArgs),
    /// Print the state, the counts and the members of a group
    Get(PlaceArgs),
    /// Print the groups of a topic and their states
    List {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
    },
    /// Delete a group with all its messages
    Delete {
        #[command(flatten)]
        of: PlaceArgs,
        #[command(flatten)]
        yes: YesArgs,
    },
    /// Delete all messages of a group, also those in flight; messages that are pushed afterwards stay
    Purge {
        #[command(flatten)]
        of: PlaceArgs,
        #[command(flatten)]
        purge: PurgeArgs,
        #[command(flatten)]
        yes: YesArgs,
    },
    /// Pause a group, until it is resumed or for a time; or a key of a fair group for a time
    Pause(PauseArgs),
    /// Resume a group, or a key of it
    Resume(ResumeArgs),
}

#[derive(Debug, Args)]
struct PlaceArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group
    #[arg(value_parser = parse::group)]
    group: GroupName,
}

impl PlaceArgs {
    fn names(&self) -> (&str, &str) {
        (self.topic.as_str(), self.group.as_str())
    }
}

#[derive(Debug, Args)]
struct CreateArgs {
    #[command(flatten)]
    of: PlaceArgs,
    /// Start with a copy of the messages that wait or are in flight in this group
    #[arg(long, value_name = "GROUP", value_parser = parse::group)]
    copy_of: Option<GroupName>,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Args)]
struct UpdateArgs {
    #[command(flatten)]
    of: PlaceArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Clone, Args)]
struct LimitArgs {
    /// Messages a second, at most, by all brokers together; 0 removes the limit
    #[arg(long, value_name = "N", value_parser = parse::rate)]
    rate: Option<f64>,
    /// Deliveries in flight, at most, in all partitions together; 0 removes the limit
    #[arg(long, value_name = "N")]
    max_in_flight: Option<u32>,
    /// Days, times and time zone outside of which nothing is handed out, such as `mon-fri 09:00-17:30 Europe/Berlin`; `none`
    /// removes the window
    #[arg(long, value_name = "WINDOW", value_parser = parse::window)]
    window: Option<DeliveryWindow>,
    /// Keys that have due messages take turns, so that none delays another (key), or do not (none)
    #[arg(long, value_name = "none|key", value_parser = parse::fairness)]
    fair: Option<Fairness>,
    /// Deliveries of one key in flight, at most, in a fair group; 0 removes the limit
    #[arg(long, value_name = "N")]
    key_max_in_flight: Option<u32>,
    /// Deliveries of one key in a second, at most, in a fair group; 0 removes the limit
    #[arg(long, value_name = "N", value_parser = parse::rate)]
    key_rate: Option<f64>,
    /// Deliveries of one key that may be made at once, where keys have a rate
    #[arg(long, value_name = "N")]
    key_burst: Option<u32>,
    /// Shares of keys, where others have 1, as JSON, such as `{"customer-7": 3, "gold-*": 2}`; `{}` removes them
    #[arg(long, value_name = "JSON", value_parser = parse::json::<Named<u32>>)]
    weights: Option<Named<u32>>,
    /// Other limits of keys, as JSON, such as `{"gold-*": {"max_in_flight": 20, "rate": 50}}`; `{}` removes them
    #[arg(long, value_name = "JSON", value_parser = parse::json::<Named<Object<NewKeyLimit>>>)]
    key_limits: Option<Named<Object<NewKeyLimit>>>,
}

impl LimitArgs {
    fn with(&self, copy_of: Option<&GroupName>) -> NewGroup {
        NewGroup {
            copy_of: copy_of.map(GroupName::to_string),
            rate: self.rate,
            max_in_flight: self.max_in_flight,
            window: self.window.clone().map(Object),
            fair: self.fair.map(|fair| fair.name().into()),
            key_max_in_flight: self.key_max_in_flight,
            key_rate: self.key_rate,
            key_burst: self.key_burst,
            weights: self.weights.clone(),
            key_limits: self.key_limits.clone(),
        }
    }
}

#[derive(Debug, Args)]
struct ResumeArgs {
    #[command(flatten)]
    of: PlaceArgs,
    /// Only this key of a fair group
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
}

#[derive(Debug, Args)]
struct PauseArgs {
    #[command(flatten)]
    of: PlaceArgs,
    /// Only this key of a fair group, for a time
    #[arg(long, value_parser = parse::key)]
    key: Option<Key>,
    /// For this long from now on
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_span)]
    span: Option<Duration>,
    /// Until this time
    #[arg(long, value_name = "TIME", conflicts_with = "span", value_parser = parse::time, allow_hyphen_values = true)]
    until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Args)]
struct PurgeArgs {
    /// Its dead letters too
    #[arg(long)]
    dead_letters: bool,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: &GroupArgs) -> Result<(), Failure> {
    let (Remote { client, place }, print) = (args.server.remote()?, &args.server.print);
    match &args.command {
        GroupCommand::Create(args) => {
            let (topic, group) = args.of.names();
            let put = client.put_group(topic, group, args.limits.with(args.copy_of.as_ref())).await.at(&place)?;
            let what = if put.created { "created" } else { "existed" };
            print.value(&put.value, |group| format!("{} {what}; {}", group.group, state(group)))
        }
        GroupCommand::Update(args) => {
            let (topic, group) = args.of.names();
            client.group(topic, group).await.at(&place)?;
            let put = client.put_group(topic, group, args.limits.with(None)).await.at(&place)?;
            print.value(&put.value, |group| format!("{} updated; {}", group.group, state(group)))
        }
        GroupCommand::List { topic } => {
            let row = |group: &Group| [group.group.clone(), state(group)];
            // A topic has one group at least.
            print.page(&client.groups(topic.as_str()).await.at(&place)?, |groups| {
                output::table(["group", "state"], groups.iter().map(row), &[])
            })
        }
        GroupCommand::Get(of) => {
            let (topic, group) = of.names();
            print.value(&client.group(topic, group).await.at(&place)?, described)
        }
        GroupCommand::Delete { of, yes } => {
            let (topic, group) = of.names();
            let messages: u64 = messages(&client.group(topic, group).await.at(&place)?.totals);
            let count = counted(messages, "message");
            yes.ask(format_args!("Delete the group {group} of {topic} with {count}"), &place)?;
            client.delete_group(topic, group).await.at(&place)?;
            let deleted = json!({"topic": topic, "group": group, "deleted": true, "messages": messages});
            print.value(&deleted, |_| format!("{group} deleted, with {count}"))
        }
        GroupCommand::Purge { of, purge, yes } => {
            let (topic, group) = of.names();
            let purge = PurgeOf { all: true, dead_letters: purge.dead_letters, dry_run: purge.dry_run };
            let purged = async |purge: PurgeOf| client.purge(topic, group, purge).await.at(&place);
            if purge.dry_run {
                let matching = purged(purge).await?.matching.unwrap_or_default();
                return print.value(&json!({"matching": matching}), |_| format!("{matching} would be purged"));
            }
            if !yes.is_given() {
                let count = purged(purge.dry_run()).await?.matching.unwrap_or_default();
                let count = counted(count, "message");
                yes.ask(format_args!("Delete {count} of the group {group} of {topic}"), &place)?;
            }
            let purged = purged(purge).await?.purged;
            print.value(&json!({"purged": purged}), |_| format!("{purged} purged"))
        }
        GroupCommand::Pause(args @ PauseArgs { key: Some(key), .. }) => {
            print.value(&pause_key(&client, args, key, &place).await?, key_state)
        }
        GroupCommand::Pause(args) => {
            print.value(&pause(&client, args, &place).await?, |group| format!("{} is {}", group.group, state(group)))
        }
        GroupCommand::Resume(args) => {
            let (topic, group) = args.of.names();
            if let Some(key) = &args.key {
                return print.value(&client.resume_key(topic, group, key.as_str()).await.at(&place)?, key_state);
            }
            print.value(&client.resume(topic, group).await.at(&place)?, |group| {
                format!("{} is {}", group.group, state(group))
            })
        }
    }
}

async fn pause(client: &Client, args: &PauseArgs, place: &Place) -> Result<Group, Failure> {
    let (topic, group) = args.of.names();
    let paused = match (args.span, args.until) {
        (Some(span), _) => client.pause_for(topic, group, span).await,
        (None, Some(until)) => client.pause_until(topic, group, until).await,
        (None, None) => client.pause(topic, group).await,
    };
    Ok(paused.at(place)?)
}

async fn pause_key(client: &Client, args: &PauseArgs, key: &Key, place: &Place) -> Result<KeyPause, Failure> {
    let ((topic, group), key) = (args.of.names(), key.as_str());
    let paused = match (args.span, args.until) {
        (Some(span), _) => client.pause_key_for(topic, group, key, span).await,
        (None, Some(until)) => client.pause_key_until(topic, group, key, until).await,
        (None, None) => {
            let why = format!("the pause of a key has an end: add `--for 10m` or `--until TIME` for {key}");
            return Err(Failure::usage(why));
        }
    };
    Ok(paused.at(place)?)
}

fn key_state(KeyPause { key, paused_until }: &KeyPause) -> String {
    paused_until.map_or_else(|| format!("{key} is not paused"), |until| format!("{key} is paused until {until}"))
}

fn described(described: &GroupDescription) -> String {
    let GroupDescription { group, partitions, members: all, keys: of_keys, .. } = described;
    let partitions = table(partitions.iter().map(Row::from));
    let members = if all.is_empty() { String::new() } else { format!("\n\n{}", members(all)) };
    let keys = of_keys
        .as_ref()
        .filter(|keys| keys.count + keys.paused_count > 0)
        .map_or(String::new(), |of_keys| format!("\n\n{}", keys(of_keys)));
    format!("{}: {}\n\n{partitions}{members}{keys}", group.group, state(group))
}

/// A key, what it has ready and in flight, and the limit for which its next message waits.
pub(super) fn key_cells(KeyState { key, ready, in_flight, reason, until }: &KeyState) -> [String; 4] {
    let until = until.map_or(String::new(), |until| format!(" until {until}"));
    let waits = reason.as_ref().map_or("-".to_owned(), |reason| format!("{}{until}", reason.replace('_', " ")));
    let key = key.clone().unwrap_or_else(|| "(none)".to_owned());
    [key, thousands(*ready), thousands(*in_flight), waits]
}

fn keys(keys: &GroupKeys) -> String {
    let known = if keys.complete { "" } else { "; not all partitions have an owner that answered" };
    let shown = keys.busiest.len() as u64;
    let more = if keys.count > shown { format!(", the busiest {shown}") } else { String::new() };
    let busiest =
        output::table(["key", "ready", "in flight", "waits for"], keys.busiest.iter().map(key_cells), &[1, 2]);
    let busiest = if keys.busiest.is_empty() { String::new() } else { format!("\n{busiest}") };
    let count = counted(keys.count, "key");
    format!("{count} with messages due or in flight{more}{known}{busiest}{}", paused(keys))
}

fn paused(keys: &GroupKeys) -> String {
    if keys.paused.is_empty() {
        return String::new();
    }
    let shown = keys.paused.len() as u64;
    let more = if keys.paused_count > shown { format!(", {shown} of which are free first") } else { String::new() };
    let until = |of: &KeyPause| of.paused_until.map_or(String::new(), |until| until.to_string());
    let table = output::table(["key", "paused until"], keys.paused.iter().map(|of| [of.key.clone(), until(of)]), &[]);
    format!("\n\n{} paused{more}\n{table}", counted(keys.paused_count, "key"))
}

fn members(members: &[Member]) -> String {
    let row = |member: &Member| {
        let demand = if member.demand { "yes" } else { "no" };
        let (waiting, owned) = (member.waiting.to_string(), member.owned.to_string());
        [member.member.clone(), member.version.clone(), demand.to_owned(), waiting, owned]
    };
    output::table(["member", "version", "demand", "waiting", "owned"], members.iter().map(row), &[3, 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_details_are_printed() -> serde_json::Result<()> {
        let group: GroupDescription = serde_json::from_str(
            r#"{"group": "audit", "state": "paused", "paused_until": "2026-01-02T03:04:05Z",
                "totals": {"scheduled": 12, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1},
                "partitions": [{"partition": 0, "group": "audit", "scheduled": 12, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1}],
                "members": [{"member": "web-1", "version": "0.1.0", "demand": true, "waiting": 2, "owned": 8},
                            {"member": "web-22", "version": "0.1.0", "demand": false, "waiting": 0, "owned": 0}],
                "keys": {"count": 1001, "complete": false, "busiest": [
                            {"key": "customer-7", "ready": 12000, "in_flight": 5, "reason": "key_at_max_in_flight"},
                            {"ready": 2, "in_flight": 0}]}}"#,
        )?;
        let expected = "\
audit: paused until 2026-01-02T03:04:05.000Z

partition  group  scheduled  ready  blocked  in flight  dead  next due  oldest ready  owner
        0  audit         12      3        0          2     1  -         -             -

member  version  demand  waiting  owned
web-1   0.1.0    yes           2      8
web-22  0.1.0    no            0      0

1,001 keys with messages due or in flight, the busiest 2; not all partitions have an owner that answered
key          ready  in flight  waits for
customer-7  12,000          5  key at max in flight
(none)           2          0  -";
        assert_eq!(described(&group), expected);
        Ok(())
    }

    #[test]
    fn window_is_printed_as_it_is_written() -> serde_json::Result<()> {
        let window = r#"{"days": ["mon", "tue", "wed"], "from": "22:00", "to": "06:00", "time_zone": "UTC"}"#;
        let open: Group = serde_json::from_str(&format!(r#"{{"group": "a", "state": "active", "window": {window}}}"#))?;
        assert_eq!(state(&open), "active, window mon-wed 22:00-06:00 UTC");
        let opens_at = serde_json::from_str(r#""2026-01-02T22:00:00Z""#)?;
        let closed = Group { state: "closed".into(), opens_at, rate: Some(2.0), ..open };
        let expected = "closed until 2026-01-02T22:00:00.000Z, at most 2 a second, window mon-wed 22:00-06:00 UTC";
        assert_eq!(state(&closed), expected);
        Ok(())
    }
}
