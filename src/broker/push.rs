//! Pushing: checks, new ids, and the outcome.
//!
//! A message without a key and an id gets an id from dwell, and the id decides the partition. A batch that stays
//! together is one call to the store, a batch spread over all partitions is one for each. So ids are made in runs, each
//! of one partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use ulid::Ulid;

use super::held::{Out, ROUNDS_MAX};
use super::push_batcher::Arrived;
use super::{Broker, check_count};
use crate::model::error::{self, Error, Kind, Result};
use crate::model::limits::CALL_BYTES_MAX;
use crate::model::message::{Conflict, Due, Message, MessageId, NewMessage, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{PushVerdict, Pushed, Refused, StoredDuplicate};
use crate::telemetry::metrics::TopicMetrics;
use crate::telemetry::spans::{Fault, Operation, Span, about};

/// Outcome of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// The id, given or made.
    pub id: MessageId,
    /// The partition that stores the message. None of a topic that is only promised: the store may have it with another number of
    /// partitions.
    pub partition: Option<Partition>,
    /// When it is due. For a duplicate: when the message that is there is due, if it has not been settled yet.
    pub due_at: Timestamp,
    /// The message of which this is a duplicate by its dedup key, if that has another id.
    pub duplicate_of: Option<MessageId>,
    /// Whether the message that is there, of which this is a duplicate, has another payload, attachment or due time.
    pub differs: bool,
    /// Whether the message that is there has another payload or attachment: a part of `differs`.
    pub other_content: bool,
    /// Where it is kept, or that it was there already.
    pub pushed: Pushed,
    /// Whether the topic did not exist, and was created for this push.
    pub topic_created: bool,
    /// How many replicas of the store have it; 0 where none is waited for, and while it is only on the local disk.
    pub replicas: u32,
}

impl PushOutcome {
    pub(super) fn new(id: MessageId, partition: Option<Partition>, due_at: Timestamp, pushed: Pushed) -> PushOutcome {
        let duplicate_of = match &pushed {
            Pushed::DuplicateOf(first) if *first != id => Some(first.clone()),
            _ => None,
        };
        let (differs, other_content) = (false, false);
        PushOutcome {
            id,
            partition,
            due_at,
            pushed,
            duplicate_of,
            differs,
            other_content,
            topic_created: false,
            replicas: 0,
        }
    }
}

/// A message with its id, to be pushed once. It is not to be cloned: an id that dwell has just created is in no
/// partition yet, and no search is made for it.
#[derive(Debug)]
pub struct Offer {
    id: MessageId,
    fresh: bool,
    message: NewMessage,
}

impl Offer {
    fn new(mut message: NewMessage, ids: &mut impl Iterator<Item = Ulid>) -> Offer {
        let fresh = message.id.is_none();
        let id = message.id.take().unwrap_or_else(|| ids.next().map_or_else(MessageId::fresh, MessageId::of));
        Offer { id, fresh, message }
    }

    pub fn id(&self) -> &MessageId {
        &self.id
    }
}

struct OnTheWay {
    offered: Offered,
    message: Message,
}

/// The place of a message in its request, and how it is to be pushed.
struct Offered {
    /// Its place in the request.
    index: usize,
    /// The id was created here, so that a duplicate can only be our own repeat.
    fresh: bool,
    conflict: Conflict,
    due: Option<Timestamp>,
}

impl Broker {
    pub fn offer(&self, message: NewMessage) -> Offer {
        Offer::new(message, &mut self.ids.take(1))
    }

    pub fn offers(&self, messages: Vec<NewMessage>) -> Vec<Offer> {
        let mut ids = self.ids.take(messages.len());
        messages.into_iter().map(|message| Offer::new(message, &mut ids)).collect()
    }

    /// Pushes one message. Errors: `Invalid`, `TooLarge`, `NotFound` (no auto-create), `Full`, and the store's.
    pub async fn push(&self, topic: &TopicName, message: NewMessage) -> Result<PushOutcome> {
        self.push_offer(topic, self.offer(message)).await
    }

    /// Errors: as [`Broker::push`].
    pub async fn push_offer(&self, topic: &TopicName, offer: Offer) -> Result<PushOutcome> {
        let mut outcomes = self.push_offers(topic, vec![offer]).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::bug("a push without an outcome")))
    }

    /// Pushes up to 1,000 messages, each answered for itself. Errors: `Invalid`, `TooLarge`, `NotFound` (no
    /// auto-create): then nothing was stored.
    pub async fn push_batch(&self, topic: &TopicName, messages: Vec<NewMessage>) -> Result<Vec<Result<PushOutcome>>> {
        self.push_offers(topic, self.offers(messages)).await
    }

    /// Errors: as [`Broker::push_batch`].
    pub async fn push_offers(&self, topic: &TopicName, offers: Vec<Offer>) -> Result<Vec<Result<PushOutcome>>> {
        check_count("messages", offers.len())?;
        let now = self.topics.accept_time(topic)?;
        let single = offers.len() == 1;
        let (mut accepted, mut spans) = (Vec::with_capacity(offers.len()), Vec::new());
        for (index, Offer { id, fresh, mut message }) in offers.into_iter().enumerate() {
            let (conflict, due) = (message.conflict, time_of(message.due_of(&id)));
            let span = self.options.tracer.begin(Operation::Send, topic, message.trace.as_ref());
            if let Some(span) = span {
                message.trace = Some(span.context().clone());
                spans.push((index, span));
            }
            let at = |error: Error| match single {
                true => error,
                false => Error::new(error.kind(), format!("messages[{index}]: {}", error.detail())),
            };
            let message = message.id(id).accept(now).map_err(at)?;
            accepted.push(OnTheWay { offered: Offered { index, fresh, conflict, due }, message });
        }
        let (descriptor, topic_created) = self.topics.get_or_create(topic).await?;
        let metrics = self.topic_metrics(topic);
        let mut partitions: BTreeMap<Partition, Vec<OnTheWay>> = BTreeMap::new();
        let mut outcomes: Vec<Option<Result<PushOutcome>>> = accepted.iter().map(|_| None).collect();
        for mut on_the_way in accepted {
            let Offered { index, conflict, .. } = on_the_way.offered;
            if conflict == Conflict::After && descriptor.is_ordered() {
                outcomes[index] = Some(Err(no_successors_in(topic)));
                continue;
            }
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
            end(span, &outcomes[index]);
        }
        Ok(outcomes)
    }

    async fn push_partition(
        &self,
        descriptor: Arc<Descriptor>,
        partition: Partition,
        messages: Vec<OnTheWay>,
    ) -> Vec<(usize, Result<PushOutcome>)> {
        let mut outcomes = Vec::with_capacity(messages.len());
        let known = (!descriptor.is_promised()).then_some(partition);
        for call in calls(messages) {
            let (offered, messages): (Vec<Offered>, Vec<Message>) =
                call.into_iter().map(|OnTheWay { offered, message }| (offered, message)).unzip();
            let arrived = self.push_call(&descriptor, partition, &offered, messages).await;
            match arrived {
                Ok(arrived) => outcomes.extend(
                    offered
                        .into_iter()
                        .zip(arrived)
                        .map(|(offered, arrived)| (offered.index, outcome(known, &offered, arrived))),
                ),
                Err(error) => outcomes.extend(offered.iter().map(|offered| (offered.index, Err(error.clone())))),
            }
        }
        outcomes
    }

    async fn push_call(
        &self,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        offered: &[Offered],
        messages: Vec<Message>,
    ) -> Result<Vec<Arrived>> {
        let conflict = offered.first().map_or(Conflict::Keep, |offered| offered.conflict);
        let fresh = offered.iter().all(|offered| offered.fresh);
        let mut arrived = self.batcher.push(descriptor, partition, conflict, fresh, messages).await?;
        if arrived.iter().any(is_in_flight) {
            Box::pin(self.push_held(descriptor, partition, conflict, &mut arrived)).await;
        }
        Ok(arrived)
    }

    /// Pushes the messages again whose stored ones are reserved and with no consumer, once their owners have given these back.
    /// A message whose owner does not answer stays in flight.
    async fn push_held(
        &self,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        conflict: Conflict,
        arrived: &mut [Arrived],
    ) {
        let until = self.clock().instant().plus(self.settle_timeout());
        let mut out = Out::new();
        for _ in 0..ROUNDS_MAX {
            let open = still_open(arrived, &out);
            let ids: Vec<MessageId> = open.iter().map(|at| arrived[*at].message.id.clone()).collect();
            if open.is_empty() {
                return;
            }
            let Ok(reserved) = self.reserved_in(descriptor, partition, &ids).await else { return };
            let Ok(recalls) = self.recall(descriptor, partition, &reserved, &mut out, until).await else { return };
            let open = still_open(arrived, &out);
            let some: Vec<Message> = open.iter().map(|at| arrived[*at].message.clone()).collect();
            let again = match some.is_empty() {
                true => Ok(Vec::new()),
                false => self.batcher.push(descriptor, partition, conflict, false, some).await,
            };
            self.end_recalls(descriptor, recalls).await;
            let Ok(again) = again else { return };
            open.into_iter().zip(again).for_each(|(at, again)| arrived[at] = again);
        }
    }
}

/// In the order of a key nothing comes behind what waits there already.
fn no_successors_in(topic: &TopicName) -> Error {
    let why = format!("\"after\" is not for topic {topic}, which has an ordering: push the message with another id");
    Error::wrong(error::Fault::Exclusive, "conflict", why)
}

fn is_in_flight(arrived: &Arrived) -> bool {
    arrived.verdict.pushed == Err(Refused::InFlight)
}

/// The messages that are refused as in flight, but for those that consumers have.
fn still_open(arrived: &[Arrived], out: &Out) -> Vec<usize> {
    let is_out = |arrived: &Arrived| out.iter().any(|(_, id)| *id == arrived.message.id);
    let open = arrived.iter().enumerate().filter(|(_, arrived)| is_in_flight(arrived) && !is_out(arrived));
    open.map(|(at, _)| at).collect()
}

/// Cuts messages into calls by bytes, by count, and where their policy changes.
fn calls(messages: Vec<OnTheWay>) -> Vec<Vec<OnTheWay>> {
    let mut calls: Vec<Vec<OnTheWay>> = Vec::new();
    let mut bytes = usize::MAX;
    for on_the_way in messages {
        let size = on_the_way.message.envelope.size();
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
    let conflict = next.offered.conflict;
    call.first().is_some_and(|first| first.offered.conflict == conflict) && call.len() < conflict.call_ids_max()
}

fn end(span: Span, outcome: &Result<PushOutcome>) {
    match outcome {
        Ok(done) => about(span, &done.id, done.partition).text("dwell.outcome", done.pushed.name()).end(None),
        Err(error) => span.end(Some(Fault { kind: error.kind().name().to_owned(), detail: error.detail().to_owned() })),
    }
}

/// Errors of the producer, also with `conflict=reject`, are not counted as failed: an alert is on those.
fn is_of_the_producer(kind: Kind) -> bool {
    matches!(kind, Kind::Invalid | Kind::Forbidden | Kind::NotFound | Kind::Conflict | Kind::Ambiguous | Kind::TooLarge)
}

fn count(metrics: &TopicMetrics, outcome: &Result<PushOutcome>) {
    match outcome.as_ref().map(|outcome| &outcome.pushed) {
        Ok(Pushed::Stored | Pushed::Behind) => metrics.stored.inc(),
        Ok(Pushed::Journaled) => metrics.journaled.inc(),
        Ok(Pushed::Buffered) => metrics.buffered.inc(),
        Ok(Pushed::Duplicate | Pushed::DuplicateOf(_)) => metrics.duplicate.inc(),
        Ok(Pushed::Replaced) => metrics.replaced.inc(),
        Ok(Pushed::Debounced) => metrics.debounced.inc(),
        Err(error) if is_of_the_producer(error.kind()) => {}
        Err(_) => metrics.failed.inc(),
    }
}

fn outcome(partition: Option<Partition>, offered: &Offered, arrived: Arrived) -> Result<PushOutcome> {
    let Arrived { message: Message { id, due_at, .. }, verdict: PushVerdict { pushed, there, bounded } } = arrived;
    let due_at = bounded.unwrap_or(due_at);
    let pushed = pushed.map_err(|refused| refusal(&id, refused))?;
    if offered.fresh && (pushed == Pushed::Duplicate || pushed == Pushed::DuplicateOf(id.clone())) {
        return Ok(PushOutcome::new(id, partition, due_at, Pushed::Stored));
    }
    if offered.conflict == Conflict::Reject && pushed == Pushed::Duplicate {
        return Err(Error::new(Kind::Conflict, format!("message {id} is there already; nothing changed")));
    }
    let outcome = PushOutcome::new(id, partition, due_at, pushed);
    match there {
        Some(there) => duplicate(there, offered.due, outcome),
        None => Ok(outcome),
    }
}

fn refusal(id: &MessageId, refused: Refused) -> Error {
    let why = match refused {
        Refused::InFlight => "is in flight, and stays as it is; push it again once it is settled",
        Refused::Dead => "is dead, and stays as it is; redrive or purge it, or take another id",
        Refused::OtherKey => return other_key(id),
        Refused::Expires => "expires before the new due time, and stays as it is; replace it",
    };
    Error::new(Kind::Conflict, format!("message {id} {why}"))
}

/// The outcome of a duplicate, which says what is there. `due` is the time at which the push wants its message, if
/// it gives one: with a delay, a repeat is due later by the time between the two. Errors: `Conflict`: what is there
/// has another key, so it is another message.
fn duplicate(there: StoredDuplicate, due: Option<Timestamp>, outcome: PushOutcome) -> Result<PushOutcome> {
    if !there.is_same_key {
        return Err(other_key(&outcome.id));
    }
    let differs = !there.is_same_content || due.is_some_and(|due| due != there.due_at);
    Ok(PushOutcome { due_at: there.due_at, differs, other_content: !there.is_same_content, ..outcome })
}

pub(super) fn other_key(id: &MessageId) -> Error {
    let why =
        format!("message {id} is there with another key, in the same partition; nothing changed: choose another id");
    Error::new(Kind::Conflict, why)
}

fn time_of(due: Due) -> Option<Timestamp> {
    match due {
        Due::At(at) | Due::Ahead(at) => Some(at),
        Due::In(_) => None,
    }
}
