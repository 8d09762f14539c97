//! Asks a broker for what is shown, and for no more.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::snapshot::Snapshot;
use crate::cli::api::Topic;
use crate::cli::client::{Client, Readiness};
use crate::cli::exposition;
use crate::cli::failure::Failure;
use crate::cli::problem::CallError;
use crate::model::message::TopicName;
use crate::platform::clock::{Clock, Instant};

/// How long everything that is asked at once may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Topics that are asked for at the same time.
const AT_ONCE: usize = 8;

/// What is asked for besides the broker itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The names of all topics.
    pub(super) list: bool,
    /// Topics to be described.
    pub(super) topics: Vec<String>,
}

/// What a broker answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// What it says of its store; or why it is not ready.
    pub(super) readiness: Result<Readiness, String>,
    pub(super) reading: Snapshot,
    /// The names of all topics, if they were asked for.
    pub(super) topics: Option<Vec<String>>,
    /// Topics as they are described; those that are gone are `None`.
    pub(super) described: Vec<(String, Option<Topic>)>,
    /// Why something is missing here.
    pub(super) trouble: Option<String>,
}

/// What came of asking, and when; an error says why nobody answers.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) answer: Result<Answer, String>,
}

/// Whether watching makes sense. A broker that is away comes back; one that refuses the token does so for ever.
pub(super) async fn check(client: &Client) -> Result<(), Failure> {
    let metrics = tokio::select! {
        metrics = client.metrics() => metrics,
        () = Clock::System.sleep(PATIENCE) => return Ok(()),
    };
    match metrics {
        Err(error) if !error.is_passing() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Asks once. It never fails: a broker that is away is something to show.
pub(super) async fn ask(client: Client, wanted: Wanted) -> Seen {
    let answer = tokio::select! {
        answer = answer(&client, wanted) => answer,
        () = Clock::System.sleep(PATIENCE) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    Seen { at: Clock::System.instant(), answer }
}

async fn answer(client: &Client, wanted: Wanted) -> Result<Answer, String> {
    let readiness = match client.readiness().await {
        Ok(readiness) => Ok(readiness),
        Err(error @ (CallError::Unreachable(_) | CallError::NoAnswer(_))) => return Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let metrics = client.metrics().await.map_err(|error| error.to_string())?;
    let reading = Snapshot::new(Clock::System.instant(), &exposition::read(&metrics));
    let mut trouble = None;
    let mut topics = None;
    if wanted.list {
        match client.topics().await {
            Ok(names) => topics = Some(names),
            Err(error) => trouble = Some(error.to_string()),
        }
    }
    let one = async |name: String| {
        let Ok(topic) = TopicName::new(&name) else { return Ok((name, None)) };
        match client.topic(&topic).await {
            Ok(topic) => Ok((name, Some(topic))),
            Err(CallError::Problem(problem)) if problem.name() == "not-found" => Ok((name, None)),
            Err(error) => Err(error.to_string()),
        }
    };
    let answers: Vec<Result<_, String>> =
        stream::iter(wanted.topics).map(one).buffer_unordered(AT_ONCE).collect().await;
    let mut described = Vec::with_capacity(answers.len());
    for answer in answers {
        match answer {
            Ok(topic) => described.push(topic),
            Err(error) => trouble = Some(error),
        }
    }
    Ok(Answer { readiness, reading, topics, described, trouble })
}
