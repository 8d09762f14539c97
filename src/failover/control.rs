//! Cancelling and rescheduling, also of what is still in the WAL.
//!
//! Nothing here says that a message is cancelled while the store may have it and was not asked.

use std::sync::atomic::Ordering;

use super::{Failover, PAGE_BYTES, PAGE_RECORDS, PAUSE, is_outage};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::message::{MessageId, TopicName};
use crate::partition::Partition;
use crate::store::{Cancelled, Fate, Fates, Reschedule, Rescheduled, Store};
use crate::time::Timestamp;
use crate::topic::Descriptor;
use crate::wal::{self, Record};

impl<S: Store> Failover<S> {
    /// Cancels a message in the WAL and in the store.
    ///
    /// # Errors
    /// While the store is away: `Unavailable` for what is not in the WAL, or was on its way to the store when it went away;
    /// `OutcomeUnknown` for what was in the WAL, and is not any more, but was sent to the store before without an answer.
    pub(super) async fn withdraw(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        replayed: Option<Timestamp>,
    ) -> Result<Cancelled> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        let unbuffered = self.unbuffer(&descriptor.topic, id).await?;
        let losses = self.losses();
        let answered = match descriptor.generation {
            0 => Err(Error::unavailable("the topic is on its way to the store")),
            _ => self.reach(self.store.cancel(descriptor, partition, id, replayed)).await,
        };
        let mut cancelled = match answered {
            Ok(cancelled) => cancelled,
            Err(error) if is_outage(&error) && unbuffered != wal::Cancelled::Absent => {
                return self.cancelled_here(descriptor, partition, id, unbuffered, &error).await;
            }
            Err(error) => return Err(error),
        };
        let is_nowhere = cancelled.fates.0.iter().all(|(_, fate)| *fate == Fate::Absent);
        match unbuffered {
            wal::Cancelled::Removed => {
                // The store never got it, so what the groups have not is what was taken on its way to them.
                for (_, fate) in cancelled.fates.0.iter_mut().filter(|(_, fate)| *fate == Fate::Absent) {
                    *fate = Fate::Done;
                }
                cancelled.buffered = true;
            }
            wal::Cancelled::RemovedSent if is_nowhere => return Err(perhaps_sent()),
            _ if is_nowhere && self.restoring.load(Ordering::Relaxed) => {
                return Err(Error::unavailable("the store lost what it had lately, and the journal is giving it back"));
            }
            _ => {}
        }
        self.note(descriptor, partition, id, losses, cancelled).await
    }

    /// Keeps a cancel in the journal, so that what the store loses and gets back stays cancelled.
    async fn note(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        losses: u64,
        cancelled: Cancelled,
    ) -> Result<Cancelled> {
        let (Some(journal), Some(at)) = (&self.journal, cancelled.at) else { return Ok(cancelled) };
        if cancelled.fates.has(Fate::Done) {
            journal.keep(vec![cancel(descriptor, partition, id, at)]).await;
        }
        if self.losses() != losses {
            return Err(Error::outcome_unknown("the store became another one meanwhile"));
        }
        Ok(cancelled)
    }

    /// It was in the WAL and is not any more, and the store cannot be asked. It will be told, in case that it has the
    /// message from an earlier push of the same id.
    async fn cancelled_here(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        unbuffered: wal::Cancelled,
        away: &Error,
    ) -> Result<Cancelled> {
        let at = self.store.clock().now();
        let told = self.wal.append(vec![cancel(descriptor, partition, id, at)]).await;
        self.buffered.notify_one();
        if unbuffered == wal::Cancelled::RemovedSent {
            return Err(perhaps_sent());
        }
        told.map_err(|error| Error::outcome_unknown(format!("{}; {}", away.detail(), error.detail())))?;
        let fates = Fates::all(&descriptor.groups, Fate::Done);
        Ok(Cancelled { fates, at: Some(at), buffered: true })
    }

    /// Takes a message out of the WAL. No page is on its way to the store meanwhile, so what is there is not, and what is
    /// not there was answered for.
    async fn unbuffer(&self, topic: &TopicName, id: &MessageId) -> Result<wal::Cancelled> {
        let until = Clock::System.instant().plus(self.timeout);
        loop {
            if self.wal.depth().records == 0 {
                return Ok(wal::Cancelled::Absent);
            }
            let outcome = {
                let _still = tokio::select! {
                    still = self.offering.lock() => still,
                    () = Clock::System.sleep(until.since(Clock::System.instant())) => return Err(on_its_way(id)),
                };
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

    /// Whether a message is in the WAL. Reads it, if there is anything in it.
    pub(super) async fn has_buffered(&self, topic: &TopicName, id: &MessageId) -> Result<bool> {
        let is = |record: &Record| matches!(record, Record::Push { topic: of, message, .. } if of == topic && message.id == *id);
        let mut after = None;
        while self.wal.depth().records > 0 {
            let page = self.wal.peek(after, PAGE_RECORDS, PAGE_BYTES).await?;
            if page.iter().any(|entry| is(&entry.record)) {
                return Ok(true);
            }
            let Some(last) = page.last() else { break };
            after = Some(last.position);
        }
        Ok(false)
    }

    /// Reschedules a message in the store.
    ///
    /// # Errors
    /// `Unavailable` while the store is away, and for a message that the store does not have while others are buffered.
    pub(super) async fn postpone(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let losses = self.losses();
        let rescheduled = self.reach(self.store.reschedule(descriptor, partition, reschedule)).await?;
        let Rescheduled::Done { fates, was } = &rescheduled else { return Ok(rescheduled) };
        if fates.0.iter().all(|(_, fate)| *fate == Fate::Absent)
            && (self.wal.depth().records > 0 || self.restoring.load(Ordering::Relaxed))
        {
            let why = "the store does not have it, but messages are on their way there: reschedule it once they are";
            return Err(Error::unavailable(why));
        }
        if let (Some(journal), Some(was)) = (&self.journal, *was) {
            let (topic, incarnation) = (descriptor.topic.clone(), descriptor.incarnation);
            let (id, due_at) = (reschedule.id.clone(), reschedule.due_at);
            journal.keep(vec![Record::Reschedule { topic, incarnation, partition, id, was, due_at }]).await;
            if self.losses() != losses {
                return Err(Error::outcome_unknown("the store became another one meanwhile"));
            }
        }
        Ok(rescheduled)
    }
}

fn cancel(descriptor: &Descriptor, partition: Partition, id: &MessageId, at: Timestamp) -> Record {
    let (topic, incarnation) = (descriptor.topic.clone(), descriptor.incarnation);
    Record::Cancel { topic, incarnation, partition, id: id.clone(), at }
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
