//! The way of a push: to the store, or to the WAL.

use std::sync::atomic::Ordering;

use super::BufferedStore;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Conflict, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::CallPart;
use crate::store::{Call, LogTarget, Pushed, Put, StoredDuplicate, TOMBSTONE_KEPT, restoring};
use crate::wal::Record;

/// The outcome of a message; of a duplicate also the message that was there.
type Outcome = (Put, Option<StoredDuplicate>);

const BUFFERED: Outcome = (Put::Pushed(Pushed::Buffered), None);

/// Records of the log that are replayed in the time of a call.
const LITTLE_RECORDS: u64 = 2_000;

impl<S: LogTarget> BufferedStore<S> {
    /// Gives messages to the store, or to the WAL if the store does not take them. A call that was not answered goes to
    /// the WAL with its id, so that the replay finds out what became of it.
    pub(super) async fn accept(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Outcome>> {
        let why = match self.breaker.reason() {
            // This push was not sent, whether or not another one was.
            Some(reason) => Error::unavailable(reason.detail().to_owned()),
            // The topic was created while the store was unavailable; the store is told before its messages come.
            None if descriptor.generation == 0 => Error::unavailable("the topic is on its way to the store"),
            None if descriptor.is_ordered() && self.is_behind(&descriptor.topic).await => Error::unavailable(
                "earlier messages of the topic, which has an ordering, are on their way to the store",
            ),
            // Another broker may give back the end of an older message of this id.
            None if self.is_giving_back() => restoring(),
            None if self.is_restoring() && messages.iter().any(Message::has_dedup_key) => {
                Error::unavailable("the first message of a dedup key may be among what the brokers restore")
            }
            None => {
                if let Some(held) = self.held.among(&descriptor.topic, messages) {
                    return self.accept_in_order(descriptor, partition, call, conflict, (messages, &held)).await;
                }
                match self.pass(descriptor, partition, call, conflict, messages).await {
                    Err(error) if error.is_outage() => {
                        self.breaker.open(&error);
                        error
                    }
                    answered => return answered,
                }
            }
        };
        let sent = |n| (why.kind() == Kind::OutcomeUnknown).then_some(n);
        self.buffer(descriptor, call, conflict, messages.iter().enumerate().map(|(n, of)| (n, sent(n), of)), &why)
            .await?;
        Ok(vec![BUFFERED; messages.len()])
    }

    /// Messages whose ids the log holds go to its end, so that they meet the records before them in their order; the others go
    /// to the store. If that does not take them, they are buffered too, since the first ones are accepted.
    async fn accept_in_order(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        (messages, held): (&[Message], &[bool]),
    ) -> Result<Vec<Outcome>> {
        let is_held = |n: usize| held.get(n).copied().unwrap_or_default();
        let why = Error::unavailable("an earlier push of the id is on its way to the store");
        let behind = messages.iter().enumerate().filter(|(n, _)| is_held(*n)).map(|(n, of)| (n, None, of));
        self.buffer(descriptor, call, conflict, behind, &why).await?;
        let rest: Vec<Message> =
            messages.iter().enumerate().filter(|(n, _)| !is_held(*n)).map(|(_, of)| of.clone()).collect();
        let mut puts = if rest.is_empty() {
            Vec::new()
        } else {
            match self.pass(descriptor, partition, call, conflict, &rest).await {
                Ok(puts) => puts,
                Err(error) => {
                    if error.is_outage() {
                        self.breaker.open(&error);
                    }
                    let sent = |n| (error.kind() == Kind::OutcomeUnknown).then_some(n);
                    let left = rest.iter().enumerate().map(|(n, of)| (n, sent(n), of));
                    self.buffer(descriptor, call, conflict, left, &error).await?;
                    vec![BUFFERED; rest.len()]
                }
            }
        }
        .into_iter();
        Ok((0..messages.len()).map(|n| if is_held(n) { BUFFERED } else { puts.next().unwrap_or(BUFFERED) }).collect())
    }

    /// Appends messages to the log: each with its place among the versions of its call, and, if it was sent, in the call.
    async fn buffer<'a>(
        &self,
        descriptor: &Descriptor,
        call: &Call,
        conflict: Conflict,
        messages: impl Iterator<Item = (usize, Option<usize>, &'a Message)>,
        why: &Error,
    ) -> Result<()> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        let records: Vec<Record> = messages
            .map(|(n, sent, message)| Record::Push {
                topic: descriptor.topic.clone(),
                message: message.clone(),
                // As it was sent, if it was: then it is told apart from what is there in any case.
                version: call.version.plus(n),
                conflict,
                call: sent.map(|n| CallPart { call: call.id.clone(), at: u32::try_from(n + 1).unwrap_or(u32::MAX) }),
                origin: None,
            })
            .collect();
        let appended = self.wal.append(records.clone()).await;
        let end = self.wal.depth().end;
        self.held.appended(&records, end);
        if descriptor.is_ordered() {
            self.behind.appended(&descriptor.topic, end);
        }
        appended.map_err(|error| both_failed(why, &error))?;
        self.buffered.notify_one();
        Ok(())
    }

    /// Whether a push to a topic with ordering has to go behind what is buffered. First it waits for that, or the log
    /// would never be empty under a load that never rests: for as long as a call may take when little is left, and for
    /// a quarter of it otherwise, so that producers that wait for answers do not add faster than the replay takes.
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
        self.is_lossy_after(self.losses())
    }

    pub(super) fn is_lossy_after(&self, losses: u64) -> bool {
        self.journal.is_some() && self.made_up.load(Ordering::Relaxed) != losses + 1
    }

    /// Notes records that were appended to the log, so that later pushes do not overtake them.
    pub(super) fn note_behind(&self, records: &[Record]) {
        let end = self.wal.depth().end;
        self.held.appended(records, end);
        for record in records.iter().filter(|record| self.has_order(record)) {
            self.behind.appended(record.topic(), end);
        }
    }

    /// Whether a record may not be overtaken. One of a topic that nobody remembers may not.
    pub(super) fn has_order(&self, record: &Record) -> bool {
        self.topic_cache.last(record.topic()).is_none_or(|descriptor| descriptor.is_ordered())
    }

    async fn pass(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Outcome>> {
        let losses = self.losses();
        let (puts, there): (Vec<Put>, Vec<_>) = if conflict == Conflict::Keep {
            let verdicts = self.limited(self.store.push(descriptor, partition, call, messages)).await?;
            verdicts.into_iter().map(|verdict| (Put::Pushed(verdict.pushed), verdict.there)).unzip()
        } else {
            let puts = self.limited(self.store.put(descriptor, partition, call, conflict, messages)).await?;
            puts.into_iter().map(|put| (put, None)).unzip()
        };
        let is_journaled = self.keep_sets(descriptor, partition, call, messages, &puts, losses).await?;
        let kept = |put| match put {
            Put::Pushed(Pushed::Stored) if is_journaled => Put::Pushed(Pushed::Journaled),
            put => put,
        };
        Ok(puts.into_iter().map(kept).zip(there).collect())
    }

    pub(super) async fn find(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let looked = self.reach(self.store.topic(topic)).await;
        if let Ok(Some(descriptor)) = &looked {
            self.topic_cache.learn(descriptor);
        }
        let found = self.or_remembered(topic, looked)?;
        if found.is_none() {
            self.miss(topic).await;
        }
        Ok(found)
    }

    /// A topic as it is remembered, when the store does not answer, or may be given it back: absence is no knowledge then.
    pub(super) fn or_remembered(
        &self,
        topic: &TopicName,
        looked: Result<Option<Descriptor>>,
    ) -> Result<Option<Descriptor>> {
        match looked {
            Ok(None) if self.is_giving_back() => self.topic_cache.get(topic).map(Some).ok_or_else(restoring),
            Err(error) if error.is_outage() => self.topic_cache.get(topic).map(Some).ok_or(error),
            looked => looked,
        }
    }

    /// Notes that a topic was deleted: it has a tombstone, or had time to lose it. One that was there more lately is lost, and
    /// perhaps nobody noticed yet.
    async fn miss(&self, topic: &TopicName) {
        let is_deleted = match self.topic_cache.get(topic) {
            None => false,
            Some(_) if !self.topic_cache.was_there_within(topic, TOMBSTONE_KEPT) => true,
            Some(_) => {
                let found = self.limited(self.store.register(topic)).await;
                found.is_ok_and(|found| found.is_some_and(|there| there.deleted))
            }
        };
        if is_deleted {
            self.topic_cache.miss(topic);
        }
    }

    /// Creates a topic; one that the store may have lost is created again as it was last seen. While the store is
    /// unavailable, or has yet to get back what it lost, a topic that is not known is promised: it is created, as it
    /// was wanted, before its messages are replayed, unless the store has one of that name.
    pub(super) async fn make(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let created = match self.reach(self.create_again(wanted)).await {
            Ok(descriptor) => {
                self.topic_cache.keep(&descriptor).await;
                return Ok(descriptor);
            }
            created => created,
        };
        match created {
            Err(error) if error.is_outage() => {
                if !self.is_giving_back() {
                    self.breaker.open(&error);
                }
                if let Some(known) = self.topic_cache.get(&wanted.topic) {
                    return Ok(known);
                }
                let promise = vec![Record::Create(wanted.clone())];
                self.wal.append(promise).await.map_err(|full| both_failed(&error, &full))?;
                self.topic_cache.learn(wanted);
                self.buffered.notify_one();
                Ok(wanted.clone())
            }
            created => created,
        }
    }

    /// Changes a topic. While a loss is restored nothing is changed: what is there may be older than what is about to come back.
    pub(super) async fn change(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let updated = self.unless_lost(self.store.update(wanted)).await?;
        self.topic_cache.keep(&updated).await;
        Ok(updated)
    }

    async fn create_again(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.check_identified()?;
        if let Some(last) = self.topic_cache.last(&wanted.topic).filter(|last| last.incarnation > 0) {
            match self.store.create(&last).await {
                Err(error) if error.kind() == Kind::NotFound => self.topic_cache.forget(&wanted.topic),
                created => return created,
            }
        }
        self.until_loss_is_known().await;
        if self.is_restoring() && self.store.topic(&wanted.topic).await?.is_none() {
            // Another broker may know it, and is about to create it as it was.
            return Err(restoring());
        }
        self.store.create(wanted).await
    }

    pub(super) async fn reach<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        if let Some(reason) = self.breaker.reason() {
            return Err(Error::unavailable(reason.detail().to_owned()));
        }
        self.limited(call).await
    }
}

fn both_failed(store: &Error, wal: &Error) -> Error {
    let perhaps = [store, wal].iter().any(|error| error.kind() == Kind::OutcomeUnknown);
    let kind = if perhaps { Kind::OutcomeUnknown } else { wal.kind() };
    Error::new(
        kind,
        format!("the store is unavailable ({}), and the local disk does not help: {}", store.detail(), wal.detail()),
    )
}
