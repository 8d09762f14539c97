//! Pushing: what is checked, where it goes, and what is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::control::outcome;
use super::default_partitioner::Turn;
use super::duplicates;
use super::push_batcher::Arrived;
use super::{Broker, check_count};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, PUT_IDS_MAX};
use crate::model::message::{Conflict, Message, MessageId, NewMessage, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::Pushed;
use crate::telemetry::metrics::TopicMetrics;
use crate::telemetry::spans::{Span, SpanKind, about};

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// The id, given or made.
    pub id: MessageId,
    /// Where it went.
    pub partition: Partition,
    /// When it is due. For a duplicate: when the message that is there is due, if it has not been settled yet.
    pub due_at: Timestamp,
    /// Whether the message that is there, of which this is a duplicate, has another payload or due time.
    pub differs: bool,
    /// Where it is kept, or that it was there already.
    pub pushed: Pushed,
    /// Whether the topic did not exist, and was created for this push.
    pub topic_created: bool,
    /// How many replicas of the store have it; 0 where none is waited for, and while it is only on the local disk.
    pub replicas: u32,
}

impl PushOutcome {
    /// Of a message in a topic that was there.
    pub(super) fn new(id: MessageId, partition: Partition, due_at: Timestamp, pushed: Pushed) -> PushOutcome {
        PushOutcome { id, partition, due_at, pushed, differs: false, topic_created: false, replicas: 0 }
    }
}

/// A message with its id, to be pushed once. It is not to be cloned: what dwell has just made the id of is nowhere yet,
/// and nobody looks whether it is.
#[derive(Debug)]
pub struct Offer {
    id: MessageId,
    /// The id was made for this offer.
    fresh: bool,
    message: NewMessage,
}

impl Offer {
    /// The id, given or made.
    pub fn id(&self) -> &MessageId {
        &self.id
    }
}

/// A message on its way, and its place in the batch.
struct OnTheWay {
    index: usize,
    /// The id was made here, so that a duplicate can only be our own repeat.
    fresh: bool,
    conflict: Conflict,
    /// The due time, if the push gives a time.
    due: Option<Timestamp>,
    message: Message,
}

impl Broker {
    /// Gives a message its id, if it has none.
    pub fn offer(&self, topic: &TopicName, message: NewMessage) -> Offer {
        self.offer_as(message, self.turn(topic, 1))
    }

    /// Gives messages their ids, where they have none.
    pub fn offers(&self, topic: &TopicName, messages: Vec<NewMessage>) -> Vec<Offer> {
        let turn = self.turn(topic, messages.len());
        messages.into_iter().map(|message| self.offer_as(message, turn)).collect()
    }

    /// Whose turn it is among the partitions of a topic that is known here.
    fn turn(&self, topic: &TopicName, messages: usize) -> Option<Turn> {
        let partitions = self.topics.known(topic)?.settings.partitions;
        Some(self.spread.turn(topic, partitions, messages, self.clock().instant()))
    }

    fn offer_as(&self, mut message: NewMessage, turn: Option<Turn>) -> Offer {
        let fresh = message.id.is_none();
        let make = || match turn.filter(|_| message.key.is_none()) {
            Some(turn) => MessageId::fresh_where(|id| turn.has(id)),
            None => MessageId::fresh(),
        };
        let id = message.id.take().unwrap_or_else(make);
        Offer { id, fresh, message }
    }

    /// Pushes one message.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, and the store's.
    pub async fn push(&self, topic: &TopicName, message: NewMessage) -> Result<PushOutcome> {
        self.push_offer(topic, self.offer(topic, message)).await
    }

    /// Pushes one message whose id is known. # Errors: as [`Broker::push`].
    pub async fn push_offer(&self, topic: &TopicName, offer: Offer) -> Result<PushOutcome> {
        let mut outcomes = self.push_offers(topic, vec![offer]).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::bug("a push without an outcome")))
    }

    /// Pushes up to 1,000 messages; each is answered for itself.
    ///
    /// # Errors
    /// `Invalid` when there are none or too many or one is wrong, `TooLarge`, `NotFound` (no auto-create): then nothing
    /// was stored.
    pub async fn push_batch(&self, topic: &TopicName, messages: Vec<NewMessage>) -> Result<Vec<Result<PushOutcome>>> {
        self.push_offers(topic, self.offers(topic, messages)).await
    }

    /// Pushes messages whose ids are known. # Errors: as [`Broker::push_batch`].
    pub async fn push_offers(&self, topic: &TopicName, offers: Vec<Offer>) -> Result<Vec<Result<PushOutcome>>> {
        check_count("messages", offers.len())?;
        let now = self.topics.accept_time(topic)?;
        let single = offers.len() == 1;
        let (mut accepted, mut spans) = (Vec::with_capacity(offers.len()), Vec::new());
        for (index, Offer { id, fresh, mut message }) in offers.into_iter().enumerate() {
            let (conflict, due) = (message.conflict, duplicates::time_of(message.due));
            let span = self.options.tracer.begin("push", SpanKind::Producer, message.trace.as_ref());
            if let Some(span) = span {
                message.trace = Some(span.context().clone());
                spans.push((index, span));
            }
            let at = |error: Error| match single {
                true => error,
                false => Error::new(error.kind(), format!("messages[{index}]: {}", error.detail())),
            };
            let message = message.id(id).accept(now).map_err(at)?;
            accepted.push(OnTheWay { index, fresh, conflict, due, message });
        }
        let (descriptor, topic_created) = self.topics.get_or_create(topic).await?;
        let metrics = self.topic_metrics(topic);
        let mut partitions: BTreeMap<Partition, Vec<OnTheWay>> = BTreeMap::new();
        let mut outcomes: Vec<Option<Result<PushOutcome>>> = accepted.iter().map(|_| None).collect();
        for mut on_the_way in accepted {
            on_the_way.message.expire_after(descriptor.settings.ttl);
            let partition = descriptor.partition_of(on_the_way.message.routing_key());
            partitions.entry(partition).or_default().push(on_the_way);
        }
        let pushes = partitions
            .into_iter()
            .map(|(partition, messages)| self.push_partition(descriptor.clone(), partition, messages));
        let replicas = self.store.backend.replicas();
        for (index, mut outcome) in join_all(pushes).await.into_iter().flatten() {
            count(&metrics, &outcome);
            if let Ok(outcome) = &mut outcome {
                outcome.topic_created = topic_created;
                outcome.replicas = if outcome.pushed == Pushed::Buffered { 0 } else { replicas };
            }
            outcomes[index] = Some(outcome);
        }
        let missing = || Err(Error::bug("a push without an outcome"));
        let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect();
        for (index, span) in spans {
            end(span, topic, &outcomes[index]);
        }
        Ok(outcomes)
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
            let conflict = call.first().map_or(Conflict::Keep, |on_the_way| on_the_way.conflict);
            if conflict != Conflict::Keep {
                outcomes.extend(self.put_call(&descriptor, partition, conflict, call).await);
                continue;
            }
            let (places, messages): (Vec<_>, Vec<_>) = call
                .into_iter()
                .map(|OnTheWay { index, fresh, due, message, .. }| ((index, fresh, due), message))
                .unzip();
            let fresh = places.iter().all(|(_, fresh, _)| *fresh);
            match self.lanes.push(&descriptor, partition, fresh, messages).await {
                Ok(arrived) => {
                    outcomes.extend(places.into_iter().zip(arrived).map(|((index, fresh, due), arrived)| {
                        let Arrived { id, due_at, pushed, there } = arrived;
                        let is_own = fresh && pushed == Pushed::Duplicate;
                        let pushed = if is_own { Pushed::Stored } else { pushed };
                        let outcome = PushOutcome::new(id, partition, due_at, pushed);
                        let outcome = match there.filter(|_| !is_own) {
                            Some(there) => there.outcome(due, outcome),
                            None => Ok(outcome),
                        };
                        (index, outcome)
                    }))
                }
                Err(error) => outcomes.extend(places.into_iter().map(|(index, ..)| (index, Err(error.clone())))),
            }
        }
        outcomes
    }

    /// One call of messages with a policy.
    async fn put_call(
        &self,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        conflict: Conflict,
        call: Vec<OnTheWay>,
    ) -> Vec<(usize, Result<PushOutcome>)> {
        let (indexes, messages): (Vec<usize>, Vec<Message>) =
            call.into_iter().map(|on_the_way| (on_the_way.index, on_the_way.message)).unzip();
        let puts = self.put(descriptor, partition, conflict, &messages).await;
        let missing = || Error::bug("a push without an answer");
        let answered = indexes.into_iter().zip(&messages).enumerate().map(|(n, (index, message))| {
            let put = puts.as_ref().map_err(Clone::clone).and_then(|puts| puts.get(n).copied().ok_or_else(missing));
            (index, put.and_then(|put| outcome(partition, message, conflict, put)))
        });
        answered.collect()
    }
}

/// Cuts messages into calls by bytes, by count, and where their policy changes. The batch limit of a request is that of a
/// call, so messages without a policy need not be counted.
fn calls(messages: Vec<OnTheWay>) -> Vec<Vec<OnTheWay>> {
    let mut calls: Vec<Vec<OnTheWay>> = Vec::new();
    let mut bytes = usize::MAX;
    for on_the_way in messages {
        let size = on_the_way.message.envelope.payload.len();
        match calls.last_mut() {
            Some(call) if bytes.saturating_add(size) <= CALL_BYTES_MAX && fits(call, &on_the_way) => {
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

fn fits(call: &[OnTheWay], next: &OnTheWay) -> bool {
    let same = call.first().is_some_and(|first| first.conflict == next.conflict);
    same && (next.conflict == Conflict::Keep || call.len() < PUT_IDS_MAX)
}

/// The span of a push is over: it says what became of it.
fn end(span: Span, topic: &TopicName, outcome: &Result<PushOutcome>) {
    let span = span.text("messaging.operation.type", "send");
    match outcome {
        Ok(done) => about(span, topic, &done.id, done.partition).text("dwell.outcome", done.pushed.name()).end(None),
        Err(error) => {
            let span = span.text("messaging.system", "dwell").text("messaging.destination.name", topic);
            span.text("error.type", error.kind().name()).end(Some(error.detail().to_owned()));
        }
    }
}

/// What the producer has to mend, or asked for with `conflict=reject`, is no failure of dwell's: an alert is on those.
fn is_of_the_producer(kind: Kind) -> bool {
    matches!(kind, Kind::Invalid | Kind::Forbidden | Kind::NotFound | Kind::Conflict | Kind::Ambiguous | Kind::TooLarge)
}

fn count(metrics: &TopicMetrics, outcome: &Result<PushOutcome>) {
    match outcome.as_ref().map(|outcome| outcome.pushed) {
        Ok(Pushed::Stored) => metrics.stored.inc(),
        Ok(Pushed::Journaled) => metrics.journaled.inc(),
        Ok(Pushed::Buffered) => metrics.buffered.inc(),
        Ok(Pushed::Duplicate) => metrics.duplicate.inc(),
        Ok(Pushed::Replaced) => metrics.replaced.inc(),
        Ok(Pushed::Debounced) => metrics.debounced.inc(),
        Err(error) if is_of_the_producer(error.kind()) => {}
        Err(_) => metrics.failed.inc(),
    }
}
