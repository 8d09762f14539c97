//! StartMessageMoveTask: the messages of a dead-letter queue go back to where they came from, or to another queue.
//!
//! A message is pushed there and then acked here. Its new id follows from the old one, by a key that only the brokers of the
//! store have, so a move that was cut short and is begun again makes no second message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::errors::{Failure, NO_QUEUE, NO_RESOURCE, Result, UNSUPPORTED};
use super::model::{Answer, MoveResult, Request, in_range, required};
use super::queue::{Queue, name_of_arn};
use super::{Sqs, ids};
use crate::broker::{Broker, ReserveRequest};
use crate::delivery::{Decision, Delivery, Verdict};
use crate::model::error::Error;
use crate::model::message::{MessageId, NewMessage, TopicName};
use crate::platform::clock::Clock;

/// Runs that are remembered; the oldest that ended are forgotten first.
const RUNS_MAX: usize = 1_000;
/// How long a run waits for a message before it takes the queue for empty: others may hold some that come back.
const WAIT: Duration = Duration::from_secs(5);
const VISIBILITY: Duration = Duration::from_secs(60);

/// The runs that this broker began.
#[derive(Default)]
pub(crate) struct Moves(Mutex<Vec<Arc<Run>>>);

struct Run {
    id: String,
    source: Queue,
    destination: Option<TopicName>,
    /// As it is shown, but for what changes.
    shown: MoveResult,
    moved: AtomicU64,
    cancelled: CancellationToken,
    /// `None` while it runs; then the status and why it failed.
    end: Mutex<Option<(&'static str, Option<String>)>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    task_id: String,
    source_arn: String,
}

impl Moves {
    fn runs(&self) -> MutexGuard<'_, Vec<Arc<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Errors: another run is moving messages of this queue.
    fn begin(&self, run: Arc<Run>) -> Result<()> {
        let mut runs = self.runs();
        let is_same = |other: &Run| other.source.topic == run.source.topic && other.source.group == run.source.group;
        if runs.iter().any(|other| is_same(other) && other.is_running()) {
            return Err(Failure::invalid(
                "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
            ));
        }
        if runs.len() >= RUNS_MAX
            && let Some(ended) = runs.iter().position(|run| !run.is_running())
        {
            runs.remove(ended);
        }
        runs.push(run);
        Ok(())
    }
}

impl Run {
    fn is_running(&self) -> bool {
        self.end().is_none()
    }

    fn end(&self) -> MutexGuard<'_, Option<(&'static str, Option<String>)>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn result(&self) -> MoveResult {
        let end = self.end().clone();
        let running = if self.cancelled.is_cancelled() { "CANCELLING" } else { "RUNNING" };
        let task_handle = end.is_none().then(|| self.shown.task_handle.clone()).flatten();
        let (status, failure_reason) = end.unwrap_or((running, None));
        let approximate_number_of_messages_moved = self.moved.load(Ordering::Relaxed);
        MoveResult { task_handle, status, failure_reason, approximate_number_of_messages_moved, ..self.shown.clone() }
    }

    async fn run(self: Arc<Run>, broker: Broker, clock: Clock, stop: CancellationToken) {
        let moving = self.cancelled.run_until_cancelled(self.move_all(&broker, &clock));
        let ended = match stop.run_until_cancelled(moving).await {
            None | Some(None) => ("CANCELLED", None),
            Some(Some(Ok(()))) => ("COMPLETED", None),
            Some(Some(Err(why))) => ("FAILED", Some(why)),
        };
        *self.end() = Some(ended);
    }

    /// Errors: the reason that AWS gives.
    async fn move_all(&self, broker: &Broker, clock: &Clock) -> std::result::Result<(), String> {
        let all = self.shown.approximate_number_of_messages_to_move.unwrap_or_default();
        while self.moved.load(Ordering::Relaxed) < all {
            let request = ReserveRequest { max: 1, wait: WAIT, visibility_timeout: Some(VISIBILITY) };
            let reserved = broker.reserve(&self.source.topic, &self.source.group, request).await;
            let Some(delivery) = reserved.map_err(|error| error.to_string())?.pop() else { return Ok(()) };
            if self.move_one(broker, delivery).await? {
                self.moved.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(rate) = self.shown.max_number_of_messages_per_second.and_then(|rate| u32::try_from(rate).ok()) {
                clock.sleep(Duration::from_secs(1) / rate.max(1)).await;
            }
        }
        Ok(())
    }

    /// Whether it is gone from the source.
    async fn move_one(&self, broker: &Broker, delivery: Delivery) -> std::result::Result<bool, String> {
        let (queue, receipt) = (&self.source, delivery.receipt.clone());
        let outcome = self.push(broker, &delivery).await;
        let decision = match outcome {
            Ok(()) => Decision::Ack,
            Err(_) => Decision::Nack { delay: Some(Duration::ZERO), reason: None },
        };
        let settled = broker.settle(&queue.topic, &queue.group, vec![(receipt, decision)]).await;
        let verdict = settled.map_err(|error| error.to_string()).map(|verdicts| verdicts.first().copied());
        // Another one has it, and a message that is moved twice is stored once: it is counted when it is gone.
        outcome.and(verdict.map(|verdict| verdict == Some(Verdict::Acked)))
    }

    async fn push(&self, broker: &Broker, delivery: &Delivery) -> std::result::Result<(), String> {
        let envelope = &delivery.message.envelope;
        let source = self.destination.clone().or_else(|| Some(envelope.dead_letter_source.as_ref()?.topic.clone()));
        let to = source.ok_or_else(|| "CouldNotDetermineMessageSource".to_owned())?;
        let (id, pushed_at) = (delivery.message.id.as_str(), envelope.pushed_at.as_ms().to_be_bytes());
        let missing = |error: Error| error.to_string();
        let id = ids::of_parts(&[b"move", self.source.name.as_bytes(), id.as_bytes(), &pushed_at]);
        // A client that guesses the id could push a message with it first, and the move would take that one for the moved one.
        let id = ids::of_parts(&[b"move", &broker.receipt_keys().code(&id).await.map_err(missing)?]);
        broker.cached_topic(&to).await.map_err(|_| "AWS.SimpleQueueService.NonExistentQueue".to_owned())?;
        let message = NewMessage {
            id: Some(MessageId::new(id).map_err(missing)?),
            key: envelope.key.clone(),
            priority: envelope.priority,
            content_type: envelope.content_type.clone(),
            meta: envelope.meta.clone(),
            trace: envelope.trace.clone(),
            attachment: envelope.attachment.clone(),
            ..NewMessage::new(envelope.payload.clone())
        };
        broker.push(&to, message).await.map(drop).map_err(missing)
    }
}

impl Sqs {
    /// The queue of an ARN. Errors: `ResourceNotFoundException`, naming the parameter.
    async fn queue_of_arn(&self, arn: &str, parameter: &str) -> Result<Queue> {
        let missing = || {
            let why = format!("The resource that you specified for the {parameter} parameter doesn't exist.");
            Failure::new(NO_RESOURCE, why)
        };
        let name = name_of_arn(arn).ok_or_else(missing)?;
        let found = self.queue(name).await;
        found.map_err(|failure| if failure.class == NO_QUEUE { missing() } else { failure })
    }

    pub(crate) async fn start_move(&self, request: &Request) -> Result<Answer> {
        let source_arn = required(&request.source_arn, "SourceArn")?;
        let source = self.queue_of_arn(source_arn, "SourceArn").await?;
        if self.sources(&source).await?.is_empty() {
            return Err(Failure::invalid("Source queue must be configured as a Dead Letter Queue."));
        }
        let destination = match &request.destination_arn {
            Some(arn) => match self.queue_of_arn(arn, "DestinationArn").await? {
                queue if queue.is_group() => {
                    let why = "Messages are moved to a queue, not to one of its groups.";
                    return Err(Failure::new(UNSUPPORTED, why));
                }
                queue if queue.topic == source.topic => {
                    return Err(Failure::invalid("Source queue arn and destination queue arn cannot be the same."));
                }
                queue => Some(queue.topic),
            },
            None => None,
        };
        let why = "Must be between 1 and 500, if provided.";
        in_range("MaxNumberOfMessagesPerSecond", request.max_number_of_messages_per_second, 1..=500, why)?;
        let (_, stats) = self.broker.group(&source.topic, &source.group).await?;
        let id = ids::unguessable()?;
        let handle = Handle { task_id: id.clone(), source_arn: source_arn.clone() };
        let handle = STANDARD.encode(serde_json::to_vec(&handle).unwrap_or_default());
        let shown = MoveResult {
            task_handle: Some(handle.clone()),
            source_arn: source_arn.clone(),
            destination_arn: request.destination_arn.clone(),
            max_number_of_messages_per_second: request.max_number_of_messages_per_second,
            approximate_number_of_messages_to_move: Some(stats.iter().map(|(_, stats)| stats.ready).sum()),
            started_timestamp: self.clock.now().as_ms(),
            ..MoveResult::default()
        };
        let (moved, cancelled, end) = (AtomicU64::new(0), CancellationToken::new(), Mutex::new(None));
        let run = Arc::new(Run { id, source, destination, shown, moved, cancelled, end });
        self.moves.begin(run.clone())?;
        self.tasks.start(run.run(self.broker.clone(), self.clock.clone(), self.tasks.stopping()));
        Ok(Answer { task_handle: Some(handle), ..Answer::default() })
    }

    pub(crate) async fn list_moves(&self, request: &Request) -> Result<Answer> {
        let source = self.queue_of_arn(required(&request.source_arn, "SourceArn")?, "SourceArn").await?;
        let why = "Must be between 1 and 10, if provided.";
        let max = in_range("MaxResults", request.max_results, 1..=10, why)?.unwrap_or(1);
        let runs = self.moves.runs();
        let is_of_source = |run: &&Arc<Run>| run.source.topic == source.topic && run.source.group == source.group;
        let of_source = runs.iter().rev().filter(is_of_source);
        let results = of_source.take(usize::try_from(max).unwrap_or(1)).map(|run| run.result()).collect();
        Ok(Answer { results: Some(results), ..Answer::default() })
    }

    pub(crate) async fn cancel_move(&self, request: &Request) -> Result<Answer> {
        let handle = required(&request.task_handle, "TaskHandle")?;
        let read = STANDARD.decode(handle).ok().and_then(|bytes| serde_json::from_slice::<Handle>(&bytes).ok());
        let handle = read.ok_or_else(|| Failure::invalid("Value for parameter TaskHandle is invalid."))?;
        let source = self.queue_of_arn(&handle.source_arn, "SourceArn").await?;
        let runs = self.moves.runs();
        let is_meant = |run: &&Arc<Run>| run.id == handle.task_id && run.source.topic == source.topic;
        let run = runs.iter().find(is_meant).filter(|run| run.is_running());
        let run = run.ok_or_else(|| Failure::new(NO_RESOURCE, "Task does not exist."))?;
        run.cancelled.cancel();
        let moved = Some(run.moved.load(Ordering::Relaxed));
        Ok(Answer { approximate_number_of_messages_moved: moved, ..Answer::default() })
    }
}
