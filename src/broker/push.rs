//! Pushing: what is checked, where it goes, and what is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{Broker, check_count};
use crate::error::{Error, Result};
use crate::limits::CALL_BYTES_MAX;
use crate::message::{Message, MessageId, NewMessage, TopicName};
use crate::metrics::TopicMetrics;
use crate::partition::Partition;
use crate::store::Pushed;
use crate::time::Timestamp;
use crate::topic::Descriptor;

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// The id, given or made.
    pub id: MessageId,
    /// Where it went.
    pub partition: Partition,
    /// When it is due. For a duplicate: what this push asked for, not what the existing message has.
    pub due_at: Timestamp,
    /// Where it is kept, or that it was there already.
    pub pushed: Pushed,
}

/// A message on its way, and its place in the batch.
struct OnTheWay {
    index: usize,
    /// The id was made here, so that a duplicate can only be our own repeat.
    fresh: bool,
    message: Message,
}

impl Broker {
    /// Pushes one message.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, and the store's.
    pub async fn push(&self, topic: &TopicName, message: NewMessage) -> Result<PushOutcome> {
        let mut outcomes = self.push_batch(topic, vec![message]).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::bug("a push without an outcome")))
    }

    /// Pushes up to 1,000 messages; each is answered for itself.
    ///
    /// # Errors
    /// `Invalid` when there are none or too many or one is wrong, `TooLarge`, `NotFound` (no auto-create): then nothing
    /// was stored.
    pub async fn push_batch(&self, topic: &TopicName, messages: Vec<NewMessage>) -> Result<Vec<Result<PushOutcome>>> {
        check_count("messages", messages.len())?;
        let now = self.topics.accept_time(topic);
        let single = messages.len() == 1;
        let mut accepted = Vec::with_capacity(messages.len());
        for (index, message) in messages.into_iter().enumerate() {
            let fresh = message.is_fresh();
            let at = |error: Error| match single {
                true => error,
                false => Error::new(error.kind(), format!("messages[{index}]: {}", error.detail())),
            };
            accepted.push(OnTheWay { index, fresh, message: message.accept(now).map_err(at)? });
        }
        let descriptor = self.topics.get_or_create(topic).await?;
        let metrics = self.topic_metrics(topic);
        let mut partitions: BTreeMap<Partition, Vec<OnTheWay>> = BTreeMap::new();
        let mut outcomes: Vec<Option<Result<PushOutcome>>> = accepted.iter().map(|_| None).collect();
        for on_the_way in accepted {
            let partition = descriptor.partition_of(on_the_way.message.routing_key());
            partitions.entry(partition).or_default().push(on_the_way);
        }
        let pushes = partitions
            .into_iter()
            .map(|(partition, messages)| self.push_partition(descriptor.clone(), partition, messages));
        for (index, outcome) in join_all(pushes).await.into_iter().flatten() {
            count(&metrics, &outcome);
            outcomes[index] = Some(outcome);
        }
        let missing = || Err(Error::bug("a push without an outcome"));
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect())
    }

    /// Pushes messages of one partition, as many in a call as fit.
    async fn push_partition(
        &self,
        descriptor: Arc<Descriptor>,
        partition: Partition,
        messages: Vec<OnTheWay>,
    ) -> Vec<(usize, Result<PushOutcome>)> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for call in calls(messages) {
            let (places, messages): (Vec<_>, Vec<_>) =
                call.into_iter().map(|on_the_way| ((on_the_way.index, on_the_way.fresh), on_the_way.message)).unzip();
            match self.lanes.push(&descriptor, partition, messages).await {
                Ok(arrived) => outcomes.extend(places.into_iter().zip(arrived).map(|((index, fresh), arrived)| {
                    let (id, due_at, pushed) = arrived;
                    let pushed = if fresh && pushed == Pushed::Duplicate { Pushed::Stored } else { pushed };
                    (index, Ok(PushOutcome { id, partition, due_at, pushed }))
                })),
                Err(error) => outcomes.extend(places.into_iter().map(|(index, _)| (index, Err(error.clone())))),
            }
        }
        outcomes
    }
}

/// Cuts messages into calls by count and bytes. The batch limit of a request is that of a call, so only bytes count.
fn calls(messages: Vec<OnTheWay>) -> Vec<Vec<OnTheWay>> {
    let mut calls: Vec<Vec<OnTheWay>> = Vec::new();
    let mut bytes = usize::MAX;
    for on_the_way in messages {
        let size = on_the_way.message.envelope.payload.len();
        match calls.last_mut() {
            Some(call) if bytes.saturating_add(size) <= CALL_BYTES_MAX => {
                bytes += size;
                call.push(on_the_way);
            }
            _ => {
                bytes = size;
                calls.push(vec![on_the_way]);
            }
        }
    }
    calls
}

fn count(metrics: &TopicMetrics, outcome: &Result<PushOutcome>) {
    match outcome.as_ref().map(|outcome| outcome.pushed) {
        Ok(Pushed::Stored) => metrics.stored.inc(),
        Ok(Pushed::Journaled) => metrics.journaled.inc(),
        Ok(Pushed::Buffered) => metrics.buffered.inc(),
        Ok(Pushed::Duplicate) => metrics.duplicate.inc(),
        Err(_) => metrics.failed.inc(),
    }
}
