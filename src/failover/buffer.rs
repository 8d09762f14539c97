//! The way of a push: to the store, or to the WAL.

use std::sync::atomic::Ordering;

use super::{Failover, is_outage};
use crate::error::{Error, Kind, Result};
use crate::limits::PUT_IDS_MAX;
use crate::message::{Conflict, Message, TopicName};
use crate::partition::Partition;
use crate::store::{PushKind, Pushed, Put, Store};
use crate::topic::Descriptor;
use crate::wal::Record;

/// Records of the log that are replayed in the time of a call.
const LITTLE_RECORDS: u64 = 2_000;

impl<S: Store> Failover<S> {
    /// Gives messages to the store, or to the WAL if the store does not take them. A call that was not answered goes to
    /// the WAL as well: under the same ids the replay cannot store it twice.
    pub(super) async fn accept(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        let why = match self.breaker.reason() {
            // Whatever happened to another push, this one was not sent.
            Some(reason) => Error::unavailable(reason.detail().to_owned()),
            // The topic was made while the store was away; the store is told before its messages come.
            None if descriptor.generation == 0 => Error::unavailable("the topic is on its way to the store"),
            None if descriptor.is_ordered() && self.is_behind(&descriptor.topic).await => Error::unavailable(
                "earlier messages of the topic, which has an ordering, are on their way to the store",
            ),
            None => match self.pass(descriptor, partition, kind, conflict, messages).await {
                Err(error) if is_outage(&error) => {
                    self.breaker.open(&error);
                    error
                }
                answered => return answered,
            },
        };
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        let records = records(descriptor, messages, why.kind() == Kind::OutcomeUnknown, conflict);
        let appended = self.wal.append(records).await;
        if descriptor.is_ordered() {
            self.behind.appended(&descriptor.topic, self.wal.depth().end);
        }
        appended.map_err(|error| both_failed(&why, &error))?;
        self.buffered.notify_one();
        Ok(vec![Put::Pushed(Pushed::Buffered); messages.len()])
    }

    /// Whether a push to a topic with ordering has to go behind what is buffered. First it waits for that, or the log would
    /// never be empty under a load that never rests: for as long as a call may take when little is left, and for a quarter
    /// of it otherwise, so that producers that wait for answers do not add faster than the replay takes.
    async fn is_behind(&self, topic: &TopicName) -> bool {
        if self.is_lossy() {
            return true;
        }
        let is_little = self.wal.depth().records <= LITTLE_RECORDS;
        let limit = if is_little { self.timeout } else { self.timeout / 4 };
        self.behind.has(topic) && !self.behind.passed(topic, limit).await
    }

    /// Whether the journal has yet to give back what the store may have lost, which is older than what is pushed now.
    pub(super) fn is_lossy(&self) -> bool {
        self.journal.is_some() && self.made_up.load(Ordering::Relaxed) != self.losses() + 1
    }

    /// Notes what was appended of topics with ordering.
    pub(super) fn note_behind(&self, records: &[Record]) {
        let end = self.wal.depth().end;
        for record in records.iter().filter(|record| self.has_order(record)) {
            self.behind.appended(record.topic(), end);
        }
    }

    /// Whether a record may not be overtaken. One of a topic that nobody remembers may not.
    pub(super) fn has_order(&self, record: &Record) -> bool {
        self.known.last(record.topic()).is_none_or(|descriptor| descriptor.is_ordered())
    }

    /// Gives messages to the store, and to the journal beside.
    async fn pass(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        let Some(journal) = &self.journal else {
            return self.limited(self.give(descriptor, partition, kind, conflict, messages)).await;
        };
        // What is in the journal may be offered to the store before this call comes there.
        let kind = if kind == PushKind::Fresh { PushKind::Live } else { kind };
        let push = self.limited(self.give(descriptor, partition, kind, conflict, messages));
        let losses = self.losses();
        let (pushed, journaled) = tokio::join!(push, journal.keep(records(descriptor, messages, false, conflict)));
        if self.losses() != losses {
            // The journal may have been offered before these were in it, to a store that does not have them.
            return Err(Error::outcome_unknown("the store became another one meanwhile"));
        }
        let kept = |pushed| match pushed {
            Put::Pushed(Pushed::Stored) if journaled => Put::Pushed(Pushed::Journaled),
            pushed => pushed,
        };
        pushed.map(|pushed| pushed.into_iter().map(kept).collect())
    }

    /// Gives messages to the store, by the verb of their policy.
    pub(super) async fn give(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        kind: PushKind,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        if conflict == Conflict::Keep {
            let pushed = self.store.push(descriptor, partition, kind, messages).await?;
            return Ok(pushed.into_iter().map(Put::Pushed).collect());
        }
        let mut puts = Vec::with_capacity(messages.len());
        for page in messages.chunks(PUT_IDS_MAX) {
            puts.extend(self.store.put(descriptor, partition, kind, conflict, page).await?);
        }
        Ok(puts)
    }

    /// What a push may know of a topic while the store is away.
    pub(super) async fn find(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        match self.reach(self.store.topic(topic)).await {
            Ok(Some(descriptor)) => Ok(Some(self.covered(descriptor).await)),
            Ok(None) => {
                self.known.miss(topic);
                Ok(None)
            }
            Err(error) if is_outage(&error) => self.known.get(topic).map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Makes a topic; one that the store may have lost is made again as it was last seen. While the store is away one that
    /// is not known is promised: it is made, as it was wanted, before its messages are replayed, unless the store has one of
    /// that name.
    pub(super) async fn make(&self, wanted: &Descriptor) -> Result<Descriptor> {
        match self.reach(self.create_again(wanted)).await {
            Ok(descriptor) => Ok(self.covered(descriptor).await),
            Err(error) if is_outage(&error) => {
                if let Some(known) = self.known.get(&wanted.topic) {
                    return Ok(known);
                }
                let promise = vec![Record::Create(wanted.clone())];
                self.wal.append(promise).await.map_err(|full| both_failed(&error, &full))?;
                self.known.learn(wanted);
                self.buffered.notify_one();
                Ok(wanted.clone())
            }
            Err(error) => Err(error),
        }
    }

    /// Changes a topic, but for what the journal needs of it.
    pub(super) async fn change(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let lasting = self.lasting(wanted);
        if lasting != *wanted && self.known.get(&wanted.topic).as_ref() == Some(&lasting) {
            // A declaration that is repeated asks for less each time, and nothing changes.
            return Ok(lasting);
        }
        let updated = self.store.update(&lasting).await?;
        self.known.learn(&updated);
        Ok(updated)
    }

    /// A topic whose ids are remembered for as long as the journal may offer them again.
    fn lasting(&self, descriptor: &Descriptor) -> Descriptor {
        let mut lasting = descriptor.clone();
        if let Some(journal) = &self.journal {
            lasting.settings.dedup_window = lasting.settings.dedup_window.max(journal.repeats_for());
        }
        lasting
    }

    async fn create_again(&self, wanted: &Descriptor) -> Result<Descriptor> {
        if let Some(last) = self.known.last(&wanted.topic).filter(|last| last.incarnation > 0) {
            match self.store.create(&last).await {
                Err(error) if error.kind() == Kind::NotFound => self.known.forget(&wanted.topic),
                created => return created,
            }
        }
        self.store.create(wanted).await
    }

    /// Asks the store something that a push waits for.
    pub(super) async fn reach<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        if let Some(reason) = self.breaker.reason() {
            return Err(Error::unavailable(reason.detail().to_owned()));
        }
        let answer = self.limited(call).await;
        if let Err(error) = &answer
            && is_outage(error)
        {
            self.breaker.open(error);
        }
        answer
    }

    /// Notes a topic, and sees to it that what the journal may offer again is known as a duplicate long enough.
    async fn covered(&self, descriptor: Descriptor) -> Descriptor {
        let mut found = descriptor;
        let wanted = self.lasting(&found);
        if wanted != found {
            match self.reach(self.store.update(&wanted)).await {
                Ok(updated) => found = updated,
                // Someone else changes it: the next look finds it covered, or tries again.
                Err(error) => tracing::debug!(topic = %found.topic, %error, "the dedup window was not raised"),
            }
        }
        self.known.learn(&found);
        found
    }
}

/// What the logs keep of a push, which the store was sent or not.
fn records(descriptor: &Descriptor, messages: &[Message], sent: bool, conflict: Conflict) -> Vec<Record> {
    let (topic, incarnation) = (&descriptor.topic, descriptor.incarnation);
    messages
        .iter()
        .map(|message| Record::Push { topic: topic.clone(), incarnation, message: message.clone(), sent, conflict })
        .collect()
}

/// Neither the store nor the WAL took it: what is certain of both.
fn both_failed(store: &Error, wal: &Error) -> Error {
    let perhaps = [store, wal].iter().any(|error| error.kind() == Kind::OutcomeUnknown);
    let kind = if perhaps { Kind::OutcomeUnknown } else { wal.kind() };
    Error::new(
        kind,
        format!("the store is away ({}), and the local disk does not help: {}", store.detail(), wal.detail()),
    )
}
