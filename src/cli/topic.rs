//! `dwell topic`: creates, updates, gets, lists, moves and deletes topics.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::wire::groups::Group;
use dwell_client::wire::items::Object;
use dwell_client::wire::topics::{
    Annotations, Counts, DeadLetter, GroupTotals, Moved, PartitionState, Topic, TopicDescription, TopicSettings,
};
use serde_json::json;

use super::contents::printable;
use super::failure::Failure;
use super::output::{self, YesArgs};
use super::remote::{At as _, Remote};
use super::{ServerArgs, parse, topic_list};
use crate::model::limits::{ATTEMPTS_MAX, PARTITIONS_MAX};
use crate::model::message::TopicName;
use crate::model::retry::Backoff;
use crate::model::spelling::counted;
use crate::model::time::{parse_span, short_span, show_span};
use crate::model::topic::{Expiry, Ordering, Settings};
use crate::model::window::DeliveryWindow;
use crate::platform::clock::Clock;

const MOVE_PAUSE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  dwell topic create orders --partitions 16 --max-attempts 5 --backoff 1s,10s,1m
  dwell topic create ledger --ordering key             the messages of a key one after the other
  dwell topic update orders --visibility-timeout 2m    everything else stays as it is
  dwell topic list
  dwell topic list --names                             only the names, for scripts
  dwell topic get orders
  dwell topic move orders orders-2 --partitions 32
  dwell topic delete orders";

/// Create, update, get, list, move and delete topics
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopicArgs {
    #[command(subcommand)]
    command: TopicCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum TopicCommand {
    /// Create a topic, or change settings of one that exists
    Create(CreateArgs),
    /// Change settings of a topic that exists
    Update(CreateArgs),
    /// Print settings and counts of a topic
    Get {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
    },
    /// Print all topics, each with its partitions, groups and messages, those of all groups together
    List(topic_list::ListArgs),
    /// Move all messages of a topic to another topic; may be interrupted and repeated
    Move {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
        /// The other topic; created if it does not exist
        #[arg(value_parser = parse::topic)]
        to: TopicName,
        /// Its number of partitions
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PARTITIONS_MAX)))]
        partitions: Option<u16>,
    },
    /// Delete a topic with all its messages
    Delete {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
        #[command(flatten)]
        yes: YesArgs,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    #[command(flatten)]
    settings: Declaration,
}

#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct Declaration {
    /// Number of partitions; cannot be changed later
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PARTITIONS_MAX)))]
    pub(crate) partitions: Option<u16>,
    /// How long a consumer has before its delivery is nacked
    #[arg(long, value_name = "DURATION", value_parser = parse::visibility_timeout)]
    pub(crate) visibility_timeout: Option<Duration>,
    /// Attempts before a message is dead; 0 is without a limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(ATTEMPTS_MAX)))]
    pub(crate) max_attempts: Option<u32>,
    /// 1s,10s,1m (a ladder) or exponential:initial=1s,max=10m,factor=2,jitter=0.2
    #[arg(long, value_parser = parse::backoff)]
    pub(crate) backoff: Option<Backoff>,
    /// How long after a message was acked a push with its id is still a duplicate
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) dedup_window: Option<Duration>,
    /// `key`: the messages of a key one after the other; cannot be changed later
    #[arg(long, value_name = "none|key", value_parser = parse::ordering)]
    pub(crate) ordering: Option<Ordering>,
    /// How long after its due time a message without its own ttl is worth delivering; 0s is indefinitely
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) ttl: Option<Duration>,
    /// Policy for an expired message: drop or bury
    #[arg(long, value_name = "WHAT", value_parser = parse::expiry)]
    pub(crate) on_expiry: Option<Expiry>,
    /// How long dead letters are kept; 0s is indefinitely
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) dead_max_age: Option<Duration>,
    /// How many dead letters a group keeps in each partition, the newest; 0 is all
    #[arg(long, value_name = "N")]
    pub(crate) dead_max_count: Option<u64>,
    /// A text about the topic; NAME= removes it. May be repeated
    #[arg(long = "annotation", value_name = "NAME=TEXT", value_parser = parse::annotation)]
    pub(crate) annotations: Vec<(String, String)>,
    /// The topic to which messages move that used all attempts or were buried; '' for none
    #[arg(long = "dead-letter-topic", value_name = "TOPIC", value_parser = parse::dead_letter)]
    pub(crate) dead_letter: Option<DeadLetter>,
}

impl Declaration {
    /// Errors: usage, for an annotation that is given twice.
    fn check(&self) -> Result<(), Failure> {
        let mut names = BTreeSet::new();
        match self.annotations.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(Failure::usage(format!("--annotation: {name} is given twice"))),
            None => Ok(()),
        }
    }
}

impl From<Declaration> for TopicSettings {
    fn from(declared: Declaration) -> TopicSettings {
        let annotations: BTreeMap<_, _> = declared.annotations.into_iter().collect();
        TopicSettings {
            partitions: declared.partitions.and_then(NonZeroU16::new),
            visibility_timeout: declared.visibility_timeout,
            max_attempts: declared.max_attempts,
            backoff: declared.backoff.map(Into::into),
            dedup_window: declared.dedup_window,
            ordering: declared.ordering.map(|ordering| ordering.name().into()),
            ttl: declared.ttl,
            on_expiry: declared.on_expiry.map(|expiry| expiry.name().into()),
            dead_max_age: declared.dead_max_age,
            dead_max_count: declared.dead_max_count,
            annotations: (!annotations.is_empty()).then_some(Annotations(annotations)),
            dead_letter: declared.dead_letter.map(Object),
            ..TopicSettings::default()
        }
    }
}

pub(crate) async fn run(args: &TopicArgs) -> Result<(), Failure> {
    let (remote, print) = (args.server.remote()?, &args.server.print);
    let Remote { client, place } = &remote;
    match &args.command {
        TopicCommand::Create(args) => {
            args.settings.check()?;
            let put = client.create_topic(args.topic.as_str(), args.settings.clone().into()).await.at(place)?;
            let what = if put.created { "created" } else { "existed; its settings are now as follows" };
            print.value(&put.value, |topic| format!("{} {what}\n{}", topic.topic, settings(topic)))
        }
        TopicCommand::Update(args) => {
            args.settings.check()?;
            if args.settings == Declaration::default() {
                return Err(Failure::usage("name a setting to change, as in `--max-attempts 3`"));
            }
            client.topic(args.topic.as_str()).await.at(place)?;
            let topic = client.update_topic(args.topic.as_str(), args.settings.clone().into()).await.at(place)?;
            print.value(&topic, |topic| format!("{} updated\n{}", topic.topic, settings(topic)))
        }
        TopicCommand::List(args) => topic_list::run(&remote, args, print).await,
        TopicCommand::Get { topic } => {
            let topic = topic.as_str();
            let (found, groups) = (client.topic(topic).await.at(place)?, client.groups(topic).await.at(place)?);
            print.value(&found, |found| described(found, &groups))
        }
        TopicCommand::Move { topic, to, partitions } => {
            let moved = move_all(&remote, topic, to, *partitions).await?;
            print.value(&moved, |moved| format!("{}; {topic} is empty", moved_so_far(moved)))
        }
        TopicCommand::Delete { topic, yes } => {
            let messages: u64 = messages_of(&client.topic(topic.as_str()).await.at(place)?);
            let count = counted(messages, "message");
            yes.ask(format_args!("Delete the topic {topic} with {count}"), place)?;
            client.delete_topic(topic.as_str()).await.at(place)?;
            let deleted = json!({"topic": topic, "deleted": true, "messages": messages});
            print.value(&deleted, |_| format!("{topic} deleted, with {count}"))
        }
    }
}

/// Moves until the topic is empty, and returns what all requests moved.
async fn move_all(
    Remote { client, place }: &Remote,
    topic: &TopicName,
    to: &TopicName,
    partitions: Option<u16>,
) -> Result<Moved, Failure> {
    let (mut all, mut parts) = (Moved::default(), client.move_topic(topic.as_str(), to.as_str(), partitions));
    while let Some(answer) = parts.next().await.transpose().at(place)? {
        let (moved, dead, duplicates) =
            (all.moved + answer.moved, all.dead + answer.dead, all.duplicates + answer.duplicates);
        all = Moved { moved, dead, duplicates, ..answer };
        if all.done {
            break;
        }
        let waits = match all.in_flight {
            0 => String::new(),
            in_flight => format!("; waiting for {in_flight} in flight"),
        };
        output::progress(format_args!("{} so far{waits}", moved_so_far(&all)));
        if answer.moved + answer.dead == 0 {
            Clock::System.sleep(MOVE_PAUSE).await;
        }
    }
    Ok(all)
}

/// `3 messages and 1 dead letter moved, 1 of them a duplicate`, without what is none.
fn moved_so_far(all: &Moved) -> String {
    let mut text = counted(all.moved, "message");
    if all.dead > 0 {
        text.push_str(&format!(" and {}", counted(all.dead, "dead letter")));
    }
    text.push_str(" moved");
    match all.duplicates {
        0 => {}
        1 => text.push_str(", 1 of them a duplicate"),
        duplicates => text.push_str(&format!(", {duplicates} of them duplicates")),
    }
    text
}

fn settings(topic: &Topic) -> String {
    let settings = match Settings::default().changed_by(topic.settings.clone()) {
        Ok(settings) => settings,
        Err(error) => return format!("  settings that this version does not know: {}", error.detail()),
    };
    let backoff = match &settings.backoff {
        Backoff::Exponential { initial, max, factor, jitter } => {
            let (initial, max) = (show_span(*initial), show_span(*max));
            format!("exponential: from {initial}, times {factor}, to {max}, shortened by up to {}%", jitter * 100.0)
        }
        Backoff::Ladder { steps } => {
            format!("ladder: {}", steps.iter().map(|step| show_span(step.0)).collect::<Vec<_>>().join(", "))
        }
    };
    let rows = [
        ("  groups", topic.groups.join(", ")),
        ("  partitions", settings.partitions.to_string()),
        ("  visibility timeout", show_span(settings.visibility_timeout)),
        (
            "  max attempts",
            if settings.max_attempts == 0 { "unlimited".to_owned() } else { settings.max_attempts.to_string() },
        ),
        ("  backoff", backoff),
        ("  dedup window", show_span(settings.dedup_window)),
        ("  ordering", settings.ordering.name().to_owned()),
        ("  ttl", if settings.ttl.is_zero() { "indefinitely".to_owned() } else { show_span(settings.ttl) }),
        ("  on expiry", settings.on_expiry.name().to_owned()),
        ("  dead kept", kept_dead(&settings)),
    ];
    let mut rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).into();
    if let Some(dead_letter) = &settings.dead_letter {
        rows.push(vec!["  dead-letter topic".to_owned(), dead_letter.topic.to_string()]);
    }
    let annotation = |(name, text): (&str, &str)| vec!["  annotation".to_owned(), printable(&format!("{name}={text}"))];
    rows.extend(settings.annotations.iter().map(annotation));
    output::columns(&rows, &[])
}

fn kept_dead(settings: &Settings) -> String {
    let age = (!settings.dead_max_age.is_zero()).then(|| show_span(settings.dead_max_age));
    let count =
        (settings.dead_max_count > 0).then(|| format!("the newest {} of each partition", settings.dead_max_count));
    let bounds: Vec<String> = age.into_iter().chain(count).collect();
    if bounds.is_empty() { "indefinitely".to_owned() } else { bounds.join(", ") }
}

/// Settings, and a table with a line for every partition and group and one for all of a group. Between the two what keeps
/// messages of a group from being handed out, if anything does.
fn described(described: &TopicDescription, groups: &[Group]) -> String {
    let TopicDescription { topic, totals, partitions } = described;
    let rows = partitions.iter().map(Row::from).chain(totals.iter().map(Row::from));
    let held = groups.iter().map(|group| (&group.group, state(group))).filter(|(_, state)| state != "active");
    let held: String = held.map(|(group, state)| format!("\n{group} is {state}")).collect();
    let apart = if held.is_empty() { "" } else { "\n" };
    format!("{}\n{}{apart}{held}\n\n{}", topic.topic, settings(topic), table(rows))
}

fn messages_of(topic: &TopicDescription) -> u64 {
    topic.totals.iter().map(|total| messages(&total.counts)).sum()
}

pub(super) fn messages(counts: &Counts) -> u64 {
    counts.live() + counts.dead
}

pub(super) fn state(group: &Group) -> String {
    let mut words = match (&group.copy_of, group.paused_until.or(group.opens_at)) {
        (Some(source), _) => format!("{} from {source}", group.state),
        (None, Some(until)) => format!("{} until {until}", group.state),
        (None, None) => group.state.to_string(),
    };
    if let Some(rate) = group.rate {
        words.push_str(&format!(", at most {rate} a second"));
    }
    if let Some(limit) = group.max_in_flight {
        words.push_str(&format!(", at most {limit} in flight"));
    }
    if let Some(Ok(Some(window))) = group.window.clone().map(DeliveryWindow::read) {
        words.push_str(&format!(", window {window}"));
    }
    if let Some(fair) = &group.fair {
        words.push_str(&format!(", fair by {fair}"));
    }
    if let Some(limit) = group.key_max_in_flight {
        words.push_str(&format!(", at most {limit} in flight of a key"));
    }
    if let Some(rate) = group.key_rate {
        let burst = group.key_burst.map_or(String::new(), |burst| format!(" and {burst} at once"));
        words.push_str(&format!(", at most {rate} a second of a key{burst}"));
    }
    // As the flags take them.
    if !group.weights.is_empty() {
        words.push_str(&format!(", weights {}", json!(group.weights)));
    }
    if !group.key_limits.is_empty() {
        words.push_str(&format!(", key limits {}", json!(group.key_limits)));
    }
    words
}

/// A partition of a group, or all of them.
pub(super) struct Row<'a> {
    partition: Option<&'a PartitionState>,
    group: &'a str,
    counts: &'a Counts,
}

impl<'a> From<&'a PartitionState> for Row<'a> {
    fn from(partition: &'a PartitionState) -> Row<'a> {
        Row { partition: Some(partition), group: &partition.group, counts: &partition.counts }
    }
}

impl<'a> From<&'a GroupTotals> for Row<'a> {
    fn from(totals: &'a GroupTotals) -> Row<'a> {
        Row { partition: None, group: &totals.group, counts: &totals.counts }
    }
}

pub(super) fn table<'a>(rows: impl Iterator<Item = Row<'a>>) -> String {
    let labels = [
        "partition",
        "group",
        "scheduled",
        "ready",
        "blocked",
        "in flight",
        "dead",
        "next due",
        "oldest ready",
        "owner",
    ];
    let absent = || "-".to_owned();
    let row = |Row { partition, group, counts }: Row<'_>| {
        [
            partition.map_or("all".to_owned(), |partition| partition.partition.to_string()),
            group.to_owned(),
            counts.scheduled.to_string(),
            counts.ready.to_string(),
            counts.held().to_string(),
            counts.in_flight.to_string(),
            counts.dead.to_string(),
            partition.and_then(|partition| partition.next_due_at).map_or_else(absent, |at| at.to_string()),
            counts.oldest_ready_age_ms.map_or_else(absent, short_span),
            partition.and_then(|partition| partition.owner.clone()).unwrap_or_else(absent),
        ]
    };
    output::table(labels, rows.map(row), &[0, 2, 3, 4, 5, 6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_that_is_given_twice_is_refused() {
        let given = |names: [&str; 2]| Declaration {
            annotations: names.map(|name| (name.to_owned(), "x".to_owned())).into(),
            ..Declaration::default()
        };
        assert!(given(["team", "team"]).check().is_err());
        assert!(given(["team", "owner"]).check().is_ok());
    }

    #[test]
    fn topic_details_are_printed_as_a_table() -> serde_json::Result<()> {
        let topic: TopicDescription = serde_json::from_str(
            r#"{"topic": "orders", "groups": ["default"], "settings": {"partitions": 1},
                "totals": [{"group": "default", "state": "active", "scheduled": 12, "ready": 3, "blocked": 0, "backoff": 0, "in_flight": 2, "dead": 1}],
                "partitions": [{"partition": 0, "group": "default", "scheduled": 12, "ready": 3, "blocked": 4, "backoff": 1, "in_flight": 2,
                                "dead": 1, "next_due_at": "2026-01-02T03:04:05Z", "oldest_ready_age_ms": 12, "owner": "a"}]}"#,
        )?;
        let expected = "\
orders
  groups              default
  partitions          1
  visibility timeout  30s
  max attempts        16
  backoff             exponential: from 1s, times 2, to 10m, shortened by up to 20%
  dedup window        0s
  ordering            none
  ttl                 indefinitely
  on expiry           drop
  dead kept           indefinitely

partition  group    scheduled  ready  blocked  in flight  dead  next due                  oldest ready  owner
        0  default         12      3        5          2     1  2026-01-02T03:04:05.000Z  12ms          a
      all  default         12      3        0          2     1  -                         -             -";
        let group = |more: &str| {
            let group = r#"{"group": "default", "state": "STATE"}"#;
            serde_json::from_str::<Group>(&group.replace("STATE", more))
        };
        assert_eq!(described(&topic, &[group("active")?]), expected);
        let paused = described(&topic, &[group("paused")?]);
        assert_eq!(paused, expected.replace("\n\npart", "\n\ndefault is paused\n\npart"));
        Ok(())
    }
}
