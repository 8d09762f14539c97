//! Messages while the store is unavailable: a push goes to the WAL, a cancel also to what is there, and the rest waits for the store.
//!
//! Nothing here says that a message is cancelled while the store may have it and was not asked.

use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::{BufferedStore, PAGE_BYTES, PAGE_RECORDS, PAUSE, both_failed};
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Conflict, GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::CallPart;
use crate::platform::clock::Clock;
use crate::store::{
    self, Buffered, Call, Cancelled, Fate, Fates, HandedOver, KeyPause, LateFate, LateSettlement, LogTarget, Purge,
    Purged, PushVerdict, Pushed, Reschedule, Rescheduled, TakenOver, not_stored_yet, restoring,
};
use crate::wal::{self, Position, Record};

const BUFFERED: PushVerdict = PushVerdict { pushed: Ok(Pushed::Buffered), there: None, bounded: None };

/// Records of the log that are replayed in the time of a call.
const LITTLE_RECORDS: u64 = 2_000;

#[async_trait]
impl<S: LogTarget> store::Messages for BufferedStore<S> {
    async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        self.take_over(handed, is_admin).await
    }

    /// Gives messages to the store, or to the WAL if the store does not take them. A call that was not answered goes to
    /// the WAL with its id, so that the replay finds out what became of it.
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let most = conflict.call_ids_max();
        if messages.len() > most {
            let detail = format!("{} messages in one call, at most {most}", messages.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        let why = match self.breaker.reason() {
            // This push was not sent, whether or not another one was.
            Some(reason) => Error::unavailable(reason.detail().to_owned()),
            // The topic was created while the store was unavailable; the store is told before its messages come.
            None if descriptor.is_promised() => not_stored_yet(),
            None if descriptor.is_ordered() && self.is_behind(&descriptor.topic).await => Error::unavailable(
                "earlier messages of the topic, which has an ordering, are on their way to the store",
            ),
            // Another broker may give back the end of an older message of this id.
            None if self.is_loss_suspected() => restoring(),
            None if self.is_restoring() && messages.iter().any(Message::has_dedup_key) => {
                Error::unavailable("the first message of a dedup key may be among what the brokers restore")
            }
            None => {
                if let Some(held) = self.held.among(&descriptor.topic, messages) {
                    return self.push_in_order(descriptor, partition, call, conflict, (messages, &held)).await;
                }
                match self.push_to_store(descriptor, partition, call, conflict, messages).await {
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

    /// Cancels a message in the store and in the WAL. Errors: While the store is unavailable: `Unavailable` for what is
    /// not in the WAL, or was on its way to the store when it became unavailable; `OutcomeUnknown` for what was in the
    /// WAL, and is not any more, but was sent to the store before without an answer.
    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        if descriptor.is_promised() || self.breaker.reason().is_some() {
            return self.cancel_buffered(descriptor, partition, id).await;
        }
        // No page is on its way to the store meanwhile, so what is in the WAL is not, and the rest was answered for.
        let _still = self.still(id).await?;
        let first = self.buffered_of(&descriptor.topic, id).await?.first().map(|(position, _)| *position);
        let is_perhaps_stored = first.is_some_and(|first| Some(first) <= self.perhaps_sent());
        let losses = self.losses();
        let mut cancelled = self.limited(self.store.cancel(descriptor, partition, call, id)).await?;
        let has_it = cancelled.fates.has(Fate::InFlight) || cancelled.fates.has(Fate::Dead);
        let is_there = cancelled.fates.0.iter().any(|(_, fate)| *fate != Fate::Absent);
        if is_perhaps_stored && !is_there {
            // The store may have taken it, and it may have ended since, or be in another topic.
            return Err(on_its_way(id));
        }
        if first.is_some() && !has_it {
            // Its record comes out of the log later, and finds that it was cancelled.
            let version = cancelled.version.unwrap_or_default().max(self.store.clock().versions(1));
            self.limited(self.store.withdraw(descriptor, partition, id, version)).await?;
            cancelled.version = Some(version);
            if !is_perhaps_stored {
                cancelled.fates.0.iter_mut().for_each(|(_, fate)| *fate = Fate::Done);
                cancelled.buffered = true;
            }
        } else if self.is_loss_suspected() && !is_there {
            return Err(restoring());
        }
        if let Some(version) = cancelled.version {
            self.keep_cancel(descriptor, partition, id, (&cancelled.fates, version), losses).await?;
        }
        Ok(cancelled)
    }

    async fn purge_group(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        purge: &Purge,
    ) -> Result<Purged> {
        self.check_restored()?;
        let losses = self.losses();
        let purged = self.reach(self.store.purge_group(descriptor, partition, call, purge)).await?;
        self.keep_purge(descriptor, partition, purge, purged.version, losses).await?;
        Ok(purged)
    }

    /// Pauses a key in the store. No journal keeps that.
    async fn pause_key(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        pause: &KeyPause,
    ) -> Result<()> {
        self.check_restored()?;
        self.reach(self.store.pause_key(descriptor, partition, call, pause)).await
    }

    /// Reschedules a message in the store. Errors: `Unavailable` while the store is unavailable, and for a message that
    /// the store does not have while others are buffered.
    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        if self.is_loss_suspected() {
            let why = "the store lost data, and the brokers are giving it back: reschedule it once they have";
            return Err(Error::unavailable(why));
        }
        let losses = self.losses();
        let rescheduled = self.reach(self.store.reschedule(descriptor, partition, call, reschedule)).await?;
        let Rescheduled::Done(fates) = &rescheduled else { return Ok(rescheduled) };
        if fates.0.iter().all(|(_, fate)| *fate == Fate::Absent) && self.wal.depth().records > 0 {
            let why = "the store does not have it, but messages are on their way there: reschedule it once they are";
            return Err(Error::unavailable(why));
        }
        if fates.has(Fate::Done) {
            self.keep_reschedule(descriptor, partition, call, &reschedule.id, fates, losses).await?;
        }
        Ok(rescheduled)
    }

    async fn settle_late(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        call: &Call,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>> {
        let losses = self.losses();
        let settled = self.store.settle_late(descriptor, partition, group, call, settlements);
        let fates = self.reach(settled).await?;
        self.keep_late_ends(descriptor, partition, group, settlements.iter().zip(&fates), losses).await?;
        Ok(fates)
    }

    async fn buffered(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<Buffered>> {
        Ok(self.buffered_of(topic, id).await?.into_iter().map(|(_, buffered)| buffered).collect())
    }
}

impl<S: LogTarget> BufferedStore<S> {
    /// Messages whose ids the log holds go to its end, so that they meet the records before them in their order; the others go
    /// to the store. If that does not take them, they are buffered too, since the first ones are accepted.
    async fn push_in_order(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        (messages, held): (&[Message], &[bool]),
    ) -> Result<Vec<PushVerdict>> {
        let is_held = |n: usize| held.get(n).copied().unwrap_or_default();
        let why = Error::unavailable("an earlier push of the id is on its way to the store");
        let behind = messages.iter().enumerate().filter(|(n, _)| is_held(*n)).map(|(n, of)| (n, None, of));
        self.buffer(descriptor, call, conflict, behind, &why).await?;
        let rest: Vec<Message> =
            messages.iter().enumerate().filter(|(n, _)| !is_held(*n)).map(|(_, of)| of.clone()).collect();
        let mut verdicts = if rest.is_empty() {
            Vec::new()
        } else {
            match self.push_to_store(descriptor, partition, call, conflict, &rest).await {
                Ok(verdicts) => verdicts,
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
        let verdict = |n| if is_held(n) { BUFFERED } else { verdicts.next().unwrap_or(BUFFERED) };
        Ok((0..messages.len()).map(verdict).collect())
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

    /// Gives messages to the store, and what it answers to the journal.
    async fn push_to_store(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let losses = self.losses();
        let mut verdicts = self.limited(self.store.push(descriptor, partition, call, conflict, messages)).await?;
        if self.keep_sets(descriptor, partition, call, messages, &verdicts, losses).await? {
            let is_kept = |verdict: &&mut PushVerdict| verdict.is_new() || verdict.pushed == Ok(Pushed::Behind);
            for verdict in verdicts.iter_mut().filter(is_kept) {
                verdict.pushed = Ok(Pushed::Journaled);
            }
        }
        Ok(verdicts)
    }

    /// Cancels what is in the WAL while the store cannot be asked. It will be appended, in case that it has the message
    /// from an earlier push of the same id.
    async fn cancel_buffered(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let unbuffered = self.unbuffer(&descriptor.topic, id).await?;
        if unbuffered == wal::Cancelled::Absent {
            let away = self.breaker.reason();
            return Err(away.unwrap_or_else(not_stored_yet));
        }
        let (topic, version) = (descriptor.topic.clone(), self.store.clock().versions(1));
        let cancel = vec![Record::Cancel { topic, partition, id: id.clone(), version }];
        let appended = self.wal.append(cancel.clone()).await;
        self.held.appended(&cancel, self.wal.depth().end);
        self.buffered.notify_one();
        if unbuffered == wal::Cancelled::RemovedSent {
            return Err(perhaps_sent());
        }
        appended.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))?;
        Ok(Cancelled { fates: Fates::all(&descriptor.groups, Fate::Done), version: Some(version), buffered: true })
    }

    async fn unbuffer(&self, topic: &TopicName, id: &MessageId) -> Result<wal::Cancelled> {
        let until = Clock::System.instant().plus(self.timeout);
        loop {
            if self.wal.depth().records == 0 {
                return Ok(wal::Cancelled::Absent);
            }
            let outcome = {
                let _still = self.still(id).await?;
                self.wal.cancel(topic, id).await?
            };
            if outcome != wal::Cancelled::Replaying {
                return Ok(outcome);
            }
            if self.breaker.reason().is_some() || Clock::System.instant() >= until {
                return Err(on_its_way(id));
            }
            Clock::System.sleep(PAUSE.0).await;
        }
    }

    /// Waits until no page is on its way to the store, and keeps the next one back.
    async fn still(&self, id: &MessageId) -> Result<Option<tokio::sync::MutexGuard<'_, ()>>> {
        if self.wal.depth().records == 0 {
            return Ok(None);
        }
        tokio::select! {
            still = self.offering.lock() => Ok(Some(still)),
            () = Clock::System.sleep(self.timeout) => Err(on_its_way(id)),
        }
    }

    /// The messages of this id that are in the WAL, with their records. Reads all of it, if there is anything in it.
    async fn buffered_of(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<(Position, Buffered)>> {
        let (mut found, mut after) = (Vec::new(), None);
        while self.wal.depth().records > 0 {
            let page = self.wal.peek(after, PAGE_RECORDS, PAGE_BYTES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.position);
            found.extend(page.into_iter().filter_map(|entry| match entry.record {
                Record::Push { topic: of, message, .. } if of == *topic && message.id == *id => {
                    let routing_key = message.routing_key().to_owned();
                    Some((entry.position, Buffered { routing_key, key: message.envelope.key }))
                }
                _ => None,
            }));
        }
        Ok(found)
    }
}

fn on_its_way(id: &MessageId) -> Error {
    Error::unavailable(format!(
        "message {id} is perhaps on its way to the store, which has not answered; cancel it later"
    ))
}

fn perhaps_sent() -> Error {
    Error::outcome_unknown(
        "it was buffered and is not any more, but the store was sent it before and did not answer: cancel it again once the \
         store answers",
    )
}
