//! `dwell cron`: creates, updates, gets, lists, pauses, resumes and deletes cron jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use dwell_client::wire::cron::{CronJob, NewCronJob};
use dwell_client::wire::messages::Meta;
use serde::Serialize;
use serde_json::{Value, json};

use super::contents::Payload;
use super::failure::Failure;
use super::remote::{At as _, Remote};
use super::{ServerArgs, output, parse};
use crate::model::limits::ATTEMPTS_MAX;
use crate::model::message::{CronJobName, TopicName};
use crate::model::schedule::Timing;
use crate::model::time::{Timestamp, parse_span, show_span};

const NEXT_TIMES: usize = 5;

const EXAMPLES: &str = "\
Examples:
  dwell cron create orders nightly --cron '0 3 * * *' --time-zone Europe/Berlin 'close the books'
  dwell cron create orders pulse --every 15m --missed skip 'look for unpaid orders'
  dwell cron get orders nightly                        with the next times
  dwell cron update orders nightly --cron '0 4 * * *'  everything else stays as it is
  dwell cron list orders
  dwell cron pause orders nightly
  dwell cron resume orders nightly
  dwell cron delete orders nightly

Creating a cron job that exists replaces it. Occurrences during a pause are not pushed later.";

/// Create, update, get, list, pause, resume and delete cron jobs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CronArgs {
    #[command(subcommand)]
    command: CronCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum CronCommand {
    /// Create a cron job, or replace it
    Create(Box<CreateArgs>),
    /// Change a cron job that exists
    Update(Box<UpdateArgs>),
    /// Print a cron job and the next times at which it pushes its message
    Get(OneArgs),
    /// Print the cron jobs of a topic
    List {
        /// The topic
        #[arg(value_parser = parse::topic)]
        topic: TopicName,
    },
    /// Pause a cron job: nothing is pushed until it is resumed
    Pause(OneArgs),
    /// Resume a cron job; occurrences during the pause are not pushed
    Resume(OneArgs),
    /// Delete a cron job; its pushed messages stay
    Delete(OneArgs),
}

#[derive(Debug, Args)]
struct OneArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The name of the cron job
    #[arg(value_parser = parse::cron_name)]
    name: CronJobName,
}

impl OneArgs {
    fn names(&self) -> (&str, &str) {
        (self.topic.as_str(), self.name.as_str())
    }
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("timing").args(["cron", "every"]).required(true)))]
struct CreateArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The payload
    payload: String,
    #[command(flatten)]
    definition: DefinitionArgs,
}

#[derive(Debug, Args)]
struct UpdateArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The payload
    payload: Option<String>,
    #[command(flatten)]
    definition: DefinitionArgs,
}

#[derive(Debug, Default, Args)]
struct DefinitionArgs {
    /// A cron expression: minute, hour, day of month, month, day of week
    #[arg(long, conflicts_with_all = ["every", "from"])]
    cron: Option<String>,
    /// Time zone of the cron expression, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "NAME", requires = "cron")]
    time_zone: Option<String>,
    /// Time from one occurrence to the next
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    every: Option<Duration>,
    /// Occurrences are whole multiples of --every after this time
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// Missed occurrences to push later: skip (none), last or all
    #[arg(long, value_parser = ["skip", "last", "all"])]
    missed: Option<String>,
    /// How long after its occurrence a message may still be delivered
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    ttl: Option<Duration>,
    /// Attempts before a message is dead; 0 is without a limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u32>,
    /// Media type of the payload
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A name and value to send with the payload; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::meta)]
    meta: Vec<(String, String)>,
}

impl DefinitionArgs {
    fn request(&self, payload: Option<&str>) -> NewCronJob {
        // Of a name that comes twice the last value counts.
        let meta: BTreeMap<_, _> = self.meta.iter().cloned().collect();
        NewCronJob {
            cron: self.cron.clone(),
            time_zone: self.time_zone.clone(),
            every: self.every,
            from: self.from,
            missed: self.missed.clone(),
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            payload: payload.map(str::to_owned),
            content_type: self.content_type.clone(),
            meta: (!meta.is_empty()).then(|| Meta(meta.into_iter().collect())),
            ..NewCronJob::default()
        }
    }
}

pub(crate) async fn run(args: &CronArgs) -> Result<(), Failure> {
    let (Remote { client, place }, print) = (args.server.remote()?, &args.server.print);
    match &args.command {
        CronCommand::Create(args) => {
            let CreateArgs { one, payload, definition } = &**args;
            let (topic, name) = one.names();
            let put = client.put_cron(topic, name, definition.request(Some(payload))).await.at(&place)?;
            let what = if put.created { "created" } else { "replaced" };
            print.value(&put.value, |cron| format!("{} {what}; {}", cron.name, next_is(cron)))
        }
        CronCommand::Update(args) => {
            let UpdateArgs { one, payload, definition } = &**args;
            let (topic, name) = one.names();
            let before = client.cron(topic, name).await.at(&place)?;
            let new = changed(&before, &definition.request(payload.as_deref()))?;
            let put = client.put_cron(topic, name, new).await.at(&place)?;
            print.value(&put.value, |cron| format!("{} updated; {}", cron.name, next_is(cron)))
        }
        CronCommand::Get(one) => {
            let (topic, name) = one.names();
            print.value(&client.cron(topic, name).await.at(&place)?, described)
        }
        CronCommand::List { topic } => {
            let create = format!("`dwell cron create {topic} pulse --every 1h hello` creates one");
            let all = client.crons(topic.as_str()).all().await.at(&place)?;
            print.list(&all, || format!("no cron jobs in {topic}; {create}"), table)
        }
        CronCommand::Pause(one) => {
            let (topic, name) = one.names();
            let cron = client.pause_cron(topic, name).await.at(&place)?;
            print.value(&cron, |cron| format!("{} {}", cron.name, next_is(cron)))
        }
        CronCommand::Resume(one) => {
            let (topic, name) = one.names();
            let cron = client.resume_cron(topic, name).await.at(&place)?;
            print.value(&cron, |cron| format!("{} {}", cron.name, next_is(cron)))
        }
        CronCommand::Delete(one) => {
            let (topic, name) = one.names();
            client.delete_cron(topic, name).await.at(&place)?;
            let deleted = json!({"topic": topic, "name": name, "deleted": true});
            print.value(&deleted, |_| format!("{name} deleted"))
        }
    }
}

/// The definition with the changes; what a change replaces under another name goes with it.
fn changed(before: &impl Serialize, changes: &NewCronJob) -> Result<NewCronJob, Failure> {
    const REPLACED: [(&str, &[&str]); 4] = [
        ("cron", &["every_ms", "from"]),
        ("every", &["every_ms", "cron", "time_zone"]),
        ("ttl", &["ttl_ms"]),
        ("payload", &["payload_base64"]),
    ];
    let garbled = || Failure::new("the broker's answer is not a cron job");
    let Ok(Value::Object(mut fields)) = serde_json::to_value(before) else { return Err(garbled()) };
    let Ok(Value::Object(changes)) = serde_json::to_value(changes) else { return Err(garbled()) };
    for answered in ["name", "paused", "state", "failure", "next_at"] {
        fields.remove(answered);
    }
    for (_, replaced) in REPLACED.iter().filter(|(name, _)| changes.contains_key(*name)) {
        fields.retain(|name, _| !replaced.contains(&name.as_str()));
    }
    fields.extend(changes);
    serde_json::from_value(Value::Object(fields)).map_err(|_| garbled())
}

fn next_is(cron: &CronJob) -> String {
    match (&cron.failure, cron.next_at) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(at)) => format!("next at {at}"),
        (None, None) => "paused".to_owned(),
    }
}

fn next(cron: &CronJob) -> String {
    cron.next_at.map_or_else(|| cron.state.to_string(), |at| at.to_string())
}

/// When it occurs: `0 3 * * * UTC`, `every 15m`.
fn occurs(cron: &CronJob) -> String {
    match timing(cron) {
        Some(Timing::Cron { cron, time_zone }) => format!("{cron} {time_zone}"),
        Some(Timing::Every { every, .. }) => format!("every {}", show_span(every)),
        _ => "never".to_owned(),
    }
}

/// `None` when the broker cannot read it.
fn timing(cron: &CronJob) -> Option<Timing> {
    match (&cron.cron, cron.every_ms) {
        (Some(expression), _) => {
            let time_zone = cron.time_zone.clone().unwrap_or_default();
            Some(Timing::Cron { cron: expression.clone(), time_zone })
        }
        (None, Some(every)) => Some(Timing::Every { every, from: cron.from.unwrap_or_default() }),
        (None, None) => None,
    }
}

fn table(cron_jobs: &[CronJob]) -> String {
    let payload = |cron: &CronJob| Payload::from(cron).shown();
    let row = |cron: &CronJob| [cron.name.clone(), occurs(cron), next(cron), payload(cron)];
    output::table(["name", "occurs", "next", "payload"], cron_jobs.iter().map(row), &[])
}

fn described(cron: &CronJob) -> String {
    let timing = timing(cron);
    let times = timing.and_then(|timing| timing.occurrences().ok());
    let times = std::iter::successors(cron.next_at, |at| times.as_ref()?.next(*at)).take(NEXT_TIMES);
    let mut rows = vec![
        ("  occurs", occurs(cron)),
        ("  state", cron.state.to_string()),
        ("  missed", cron.missed.to_string()),
        ("  payload", Payload::from(cron).shown()),
    ];
    rows.extend(cron.failure.iter().map(|why| ("  failure", why.clone())));
    rows.extend(times.enumerate().map(|(n, at)| (if n == 0 { "  next" } else { "" }, at.to_string())));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    format!("{}\n{}", cron.name, output::columns(&rows, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_jobs_are_printed_as_a_table() -> serde_json::Result<()> {
        let all: Vec<CronJob> = serde_json::from_str(
            r#"[{"name": "nightly", "cron": "0 3 * * *", "time_zone": "UTC", "missed": "last", "paused": false, "state": "active",
                 "next_at": "1970-01-01T00:00:00Z", "meta": {}, "payload": "close\nbooks"},
                {"name": "pulse", "every_ms": 900000, "from": "1970-01-01T00:00:00Z", "missed": "skip", "paused": true,
                 "state": "paused", "meta": {}, "payload_base64": "/wA="},
                {"name": "later", "missed": "last", "paused": false, "state": "failed", "failure": "unreadable", "meta": {}, "payload": ""}]"#,
        )?;
        let expected = "\
name     occurs         next                      payload
nightly  0 3 * * * UTC  1970-01-01T00:00:00.000Z  close·books
pulse    every 15m      paused                    (2 bytes)
later    never          failed";
        assert_eq!(table(&all), expected);
        Ok(())
    }

    fn nightly() -> serde_json::Result<Value> {
        serde_json::from_str(
            r#"{"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last", "paused": false, "state": "active",
                "next_at": "2026-03-28T02:00:00Z", "ttl_ms": 1000, "meta": {}, "payload_base64": "/wA="}"#,
        )
    }

    #[test]
    fn cron_job_details_show_next_times() -> serde_json::Result<()> {
        let cron: CronJob = serde_json::from_value(nightly()?)?;
        let expected = "\
nightly
  occurs   0 3 * * * Europe/Berlin
  state    active
  missed   last
  payload  (2 bytes)
  next     2026-03-28T02:00:00.000Z
           2026-03-29T01:00:00.000Z
           2026-03-30T01:00:00.000Z
           2026-03-31T01:00:00.000Z
           2026-04-01T01:00:00.000Z";
        assert_eq!(described(&cron), expected);
        let failure = Some("\"0 3\" has 2 fields".to_owned());
        let failed = CronJob { failure, next_at: None, ..cron.clone() };
        assert!(described(&failed).ends_with("  failure  \"0 3\" has 2 fields"), "{}", described(&failed));
        assert!(!described(&CronJob { paused: true, next_at: None, ..cron }).contains("next"));
        Ok(())
    }

    #[test]
    fn update_keeps_unnamed_fields() -> Result<(), Failure> {
        let before = nightly().unwrap_or_default();
        let definition = DefinitionArgs { every: Some(Duration::from_secs(60)), ..DefinitionArgs::default() };
        let changes = definition.request(Some("x"));
        let expected = serde_json::json!({"every": "1m", "missed": "last", "ttl_ms": 1000, "meta": {}, "payload": "x"});
        let as_json = |new: NewCronJob| serde_json::to_value(new).unwrap_or_default();
        assert_eq!(as_json(changed(&before, &changes)?), expected);
        let definition = DefinitionArgs { ttl: Some(Duration::from_secs(2)), ..DefinitionArgs::default() };
        let changes = definition.request(None);
        let expected = serde_json::json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last", "ttl": "2s",
            "meta": {}, "payload_base64": "/wA="});
        assert_eq!(as_json(changed(&before, &changes)?), expected);
        Ok(())
    }
}
