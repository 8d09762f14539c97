//! `dwell forecast`: how many messages become due, as a plot of bars.

use std::time::Duration;

use clap::Args;

use super::api::Forecast;
use super::client::GroupOf;
use super::failure::Failure;
use super::{ServerArgs, output, parse};
use crate::model::limits::FORECAST_SPANS_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::parse_span;

/// Characters of the longest bar.
const BAR: u64 = 50;

const EXAMPLES: &str = "\
Examples:
  dwell forecast orders
  dwell forecast orders --step 1h --spans 24
  dwell forecast orders --group audit --json";

/// Show how many messages become due, minute by minute or in other spans
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ForecastArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// How long each span is
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_span)]
    step: Duration,
    /// How many spans
    #[arg(long, value_name = "N", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=FORECAST_SPANS_MAX as i64))]
    spans: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &ForecastArgs) -> Result<(), Failure> {
    let of = GroupOf { topic: args.topic.clone(), group: args.group.clone() };
    let forecast = args.server.client()?.forecast(&of, args.step, args.spans).await?;
    if args.json { output::json(&forecast) } else { output::line(plot(&forecast)) }
}

/// A line for what is due, for each span, and for what comes later.
fn plot(forecast: &Forecast) -> String {
    let most = forecast.spans.iter().map(|span| span.due).max().unwrap_or(0).max(1);
    // A single message is seen, too.
    let bar = |due: u64| "#".repeat(usize::try_from((due * BAR).div_ceil(most)).unwrap_or(0));
    let row = |what: String, due: u64, bar: String| vec![what, output::thousands(due), bar];
    let mut rows = vec![row(format!("due at {}", forecast.from), forecast.ready, String::new())];
    rows.extend(forecast.spans.iter().map(|span| row(format!("until {}", span.until), span.due, bar(span.due))));
    rows.push(row("later".to_owned(), forecast.later, String::new()));
    output::columns(&rows, &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_is_a_plot() -> serde_json::Result<()> {
        let forecast: Forecast = serde_json::from_str(
            r#"{"from": "1970-01-01T00:00:00Z", "step_ms": 60000, "ready": 3, "later": 1234,
                "spans": [{"until": "1970-01-01T00:01:00Z", "due": 200}, {"until": "1970-01-01T00:02:00Z", "due": 0},
                          {"until": "1970-01-01T00:03:00Z", "due": 1}]}"#,
        )?;
        let expected = "\
due at 1970-01-01T00:00:00.000Z      3
until 1970-01-01T00:01:00.000Z     200  ##################################################
until 1970-01-01T00:02:00.000Z       0
until 1970-01-01T00:03:00.000Z       1  #
later                            1,234";
        assert_eq!(plot(&forecast), expected);
        Ok(())
    }
}
