//! `dwell bulk`: counts, cancels, postpones, advances and parks all messages that are due between two times. `dwell
//! forecast`: how many become due when.

use std::time::Duration;

use clap::{Args, Subcommand};
use dwell_client::wire::bulk::{BulkChange, BulkChanged, BulkCount, GroupForecast};

use super::ServerArgs;
use super::failure::{CallResult, Failure};
use super::output::{self, YesArgs};
use super::parse::{self, GroupArgs};
use super::remote::{At as _, Remote};
use crate::model::limits::FORECAST_SPANS_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::spelling::{counted, thousands};
use crate::model::time::{Timestamp, parse_span};

const EXAMPLES: &str = "\
Examples:
  dwell bulk count orders --from now --to +1h
  dwell bulk postpone orders --from now --to +1h --by 2h
  dwell bulk advance orders --from +1d --to +2d --by 1d
  dwell bulk cancel orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z
  dwell bulk park orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z
  dwell bulk unpark orders --from 2026-01-02T03:00:00Z --to 2026-01-02T04:00:00Z

Count first: the other commands change the same messages. An interrupted command continues when it
is repeated with the same absolute times; no message is changed twice. Unpark with the times that
were parked.";

/// Count or change all messages that are due between two times
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BulkArgs {
    #[command(subcommand)]
    command: BulkCommand,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum BulkCommand {
    /// Count the messages that wait
    Count(WhichArgs),
    /// Cancel the messages
    Cancel {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        yes: YesArgs,
    },
    /// Make the messages due later
    Postpone(ByArgs),
    /// Make the messages due sooner, but not before now
    Advance(ByArgs),
    /// Make the messages due five years later
    Park(WhichArgs),
    /// Bring back the messages that were parked and would be due between these times
    Unpark(WhichArgs),
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group whose due times count
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// The earliest due time: RFC 3339, Unix milliseconds, or relative to now: now, +1h, -1h
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    from: Timestamp,
    /// The end: only messages that are due before it
    #[arg(long, value_name = "TIME", value_parser = parse::time, allow_hyphen_values = true)]
    to: Timestamp,
}

#[derive(Debug, Args)]
struct ByArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// By how much: at least the time from --from to --to
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    by: Duration,
}

pub(crate) async fn run(args: &BulkArgs) -> Result<(), Failure> {
    let (remote, print) = (args.server.remote()?, &args.server.print);
    let Remote { client, place } = &remote;
    let (which, action, by, done) = match &args.command {
        BulkCommand::Count(which) => {
            let waiting = which.count(&remote).await?;
            return print.value(&BulkCount { waiting }, |count| format!("{} waiting", count.waiting));
        }
        BulkCommand::Cancel { which, yes } => {
            if !yes.is_given() {
                let count = counted(which.count(&remote).await?, "message");
                yes.ask(format_args!("Cancel {count} of {} due between these times", which.topic), place)?;
            }
            (which, "cancel", None, "cancelled")
        }
        BulkCommand::Postpone(ByArgs { which, by }) => (which, "postpone", Some(*by), "postponed"),
        BulkCommand::Advance(ByArgs { which, by }) => (which, "advance", Some(*by), "advanced"),
        BulkCommand::Park(which) => (which, "park", None, "parked"),
        BulkCommand::Unpark(which) => (which, "unpark", None, "brought back"),
    };
    let text = |all: &BulkChanged| {
        let others = if all.passed_over == 0 { String::new() } else { format!(", {} left alone", all.passed_over) };
        format!("{} {done}{others}", all.changed)
    };
    let change = BulkChange { from: which.from, to: which.to, action: action.into(), by, by_ms: None, cursor: None };
    let mut parts = client.bulk(which.topic.as_str(), which.group.as_str(), change);
    let mut all = BulkChanged::default();
    while let Some(part) = parts.next().await.transpose().at(place)? {
        let (changed, passed_over) = (all.changed + part.changed, all.passed_over + part.passed_over);
        all = BulkChanged { changed, passed_over, next_cursor: None };
        output::progress(format_args!("{} so far", text(&all)));
    }
    print.value(&all, text)
}

impl WhichArgs {
    async fn count(&self, Remote { client, place }: &Remote) -> CallResult<u64> {
        client.bulk_count(self.topic.as_str(), self.group.as_str(), self.from, self.to).await.at(place)
    }
}

const BAR: u64 = 50;

const FORECAST_EXAMPLES: &str = "\
Examples:
  dwell forecast orders
  dwell forecast orders --step 1h --spans 24
  dwell forecast orders --group audit --json";

/// Show how many messages become due, minute by minute or in other spans
#[derive(Debug, Args)]
#[command(after_help = FORECAST_EXAMPLES)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    of: GroupArgs,
    /// How long each span is
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_span)]
    step: Duration,
    /// How many spans
    #[arg(long, value_name = "N", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=FORECAST_SPANS_MAX as i64))]
    spans: u16,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn forecast(args: &ForecastArgs) -> Result<(), Failure> {
    let (Remote { client, place }, (topic, group)) = (args.server.remote()?, args.of.names());
    let forecast = client.forecast(topic, group, args.step, args.spans).await.at(&place)?;
    args.server.print.value(&forecast, plot)
}

fn plot(forecast: &GroupForecast) -> String {
    let most = forecast.spans.iter().map(|span| span.due).max().unwrap_or(0).max(1);
    // A single message is seen, too.
    let bar = |due: u64| "#".repeat(usize::try_from((due * BAR).div_ceil(most)).unwrap_or(0));
    let row = |what: String, due: u64, bar: String| [what, thousands(due), bar];
    let mut rows = vec![row(format!("at {}", forecast.from), forecast.ready, String::new())];
    rows.extend(forecast.spans.iter().map(|span| row(format!("until {}", span.until), span.due, bar(span.due))));
    rows.push(row("later".to_owned(), forecast.later, String::new()));
    if forecast.backoff > 0 {
        rows.push(row("in backoff".to_owned(), forecast.backoff, String::new()));
    }
    output::table(["due", "messages", ""], rows.into_iter(), &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecast_is_printed_as_a_plot() -> serde_json::Result<()> {
        let forecast: GroupForecast = serde_json::from_str(
            r#"{"from": "1970-01-01T00:00:00Z", "step_ms": 60000, "ready": 3, "later": 1234, "backoff": 2,
                "spans": [{"until": "1970-01-01T00:01:00Z", "due": 200}, {"until": "1970-01-01T00:02:00Z", "due": 0},
                          {"until": "1970-01-01T00:03:00Z", "due": 1}]}"#,
        )?;
        let expected = "\
due                             messages
at 1970-01-01T00:00:00.000Z            3
until 1970-01-01T00:01:00.000Z       200  ##################################################
until 1970-01-01T00:02:00.000Z         0
until 1970-01-01T00:03:00.000Z         1  #
later                              1,234
in backoff                             2";
        assert_eq!(plot(&forecast), expected);
        Ok(())
    }
}
