//! `dwell topic list`: all topics, and how much each holds. The API has no request that counts all of them, so that each
//! is asked for, and only so many.

use clap::Args;
use dwell_client::wire::topics::TopicDescription;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::failure::{CallResult, Failure};
use super::remote::{At as _, Remote};
use super::{PrintArgs, output};

/// Requests under way.
const AT_ONCE: usize = 8;

const COLUMNS: usize = 8;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print only the names, one a line, with a single request
    #[arg(long)]
    names: bool,
    /// Count the messages of the first N topics, with a request for each
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "names")]
    counted: usize,
}

pub(super) async fn run(remote: &Remote, args: &ListArgs, print: &PrintArgs) -> Result<(), Failure> {
    let names = remote.client.topics().await.at(&remote.place)?;
    if names.is_empty() || args.names || print.json {
        let none = || "no topics yet; `dwell push orders hello` creates the first one";
        return print.list(&names, none, |names| names.join("\n"));
    }
    let row = async |(at, name): (usize, &String)| match at < args.counted {
        true => counted(remote, name).await,
        false => Ok(Some(row(name, None))),
    };
    let rows: Vec<_> = stream::iter(names.iter().enumerate()).map(row).buffered(AT_ONCE).try_collect().await?;
    let labels = ["topic", "partitions", "groups", "scheduled", "ready", "blocked", "in flight", "dead"];
    output::line(output::table(labels, rows.into_iter().flatten(), &[1, 2, 3, 4, 5, 6, 7]))?;
    if names.len() > args.counted {
        let (counted, all) = (args.counted, names.len());
        let how = format_args!("with a request for each; --counted {all} counts all");
        output::note(format_args!("counted {counted} of {all} topics, {how}"));
    }
    Ok(())
}

/// The line of a topic; none if it was deleted meanwhile.
async fn counted(Remote { client, place }: &Remote, name: &str) -> CallResult<Option<[String; COLUMNS]>> {
    match client.topic(name).await.at(place) {
        Ok(found) => Ok(Some(row(name, Some(&found)))),
        Err(error) if error.is_topic_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

fn row(name: &str, found: Option<&TopicDescription>) -> [String; COLUMNS] {
    let Some(TopicDescription { topic, totals, .. }) = found else {
        return std::array::from_fn(|column| if column == 0 { name.to_owned() } else { "-".to_owned() });
    };
    let partitions = topic.settings.partitions.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let [mut scheduled, mut ready, mut held, mut in_flight, mut dead] = [0; 5];
    for counts in totals.iter().map(|group| &group.counts) {
        scheduled += counts.scheduled;
        ready += counts.ready;
        held += counts.held();
        in_flight += counts.in_flight;
        dead += counts.dead;
    }
    let [scheduled, ready, held, in_flight, dead] =
        [scheduled, ready, held, in_flight, dead].map(|count: u64| count.to_string());
    [name.to_owned(), partitions, totals.len().to_string(), scheduled, ready, held, in_flight, dead]
}
