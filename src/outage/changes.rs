//! Cancelling and rescheduling, also of what is still in the WAL.
//!
//! Nothing here says that a message is cancelled while the store may have it and was not asked.

use super::{BufferedStore, PAGE_BYTES, PAGE_RECORDS, PAUSE};
use crate::model::error::{Error, Result};
use crate::model::message::{Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::clock::Clock;
use crate::store::{Call, Cancelled, Fate, Fates, LogTarget, Reschedule, Rescheduled};
use crate::wal::{self, Record};

impl<S: LogTarget> BufferedStore<S> {
    /// Cancels a message in the store and in the WAL.
    ///
    /// # Errors
    /// While the store is unavailable: `Unavailable` for what is not in the WAL, or was on its way to the store when it
    /// became unavailable; `OutcomeUnknown` for what was in the WAL, and is not any more, but was sent to the store before
    /// without an answer.
    pub(super) async fn withdraw(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        if descriptor.generation == 0 || self.breaker.reason().is_some() {
            return self.cancel_buffered(descriptor, partition, id).await;
        }
        // No page is on its way to the store meanwhile, so what is in the WAL is not, and the rest was answered for.
        let _still = self.still(id).await?;
        let is_buffered = !self.buffered_keys(&descriptor.topic, id).await?.is_empty();
        let losses = self.losses();
        let mut cancelled = self.limited(self.store.cancel(descriptor, partition, call, id)).await?;
        let has_it = cancelled.fates.has(Fate::InFlight) || cancelled.fates.has(Fate::Dead);
        if is_buffered && !has_it {
            // Its record comes out of the log later, and finds that it was cancelled.
            let version = cancelled.version.unwrap_or_default().max(self.store.clock().versions(1));
            self.limited(self.store.withdraw(descriptor, partition, id, version)).await?;
            cancelled.fates.0.iter_mut().for_each(|(_, fate)| *fate = Fate::Done);
            (cancelled.version, cancelled.buffered) = (Some(version), true);
        } else if self.is_giving_back() && cancelled.fates.0.iter().all(|(_, fate)| *fate == Fate::Absent) {
            return Err(Error::unavailable("the store lost data, and the brokers are giving it back"));
        }
        if let Some(version) = cancelled.version {
            self.keep_cancel(descriptor, partition, id, (&cancelled.fates, version), losses).await?;
        }
        Ok(cancelled)
    }

    /// Cancels what is in the WAL while the store cannot be asked. It will be told, in case that it has the message from an
    /// earlier push of the same id.
    async fn cancel_buffered(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let unbuffered = self.unbuffer(&descriptor.topic, id).await?;
        if unbuffered == wal::Cancelled::Absent {
            let away = self.breaker.reason();
            return Err(away.unwrap_or_else(|| Error::unavailable("the topic is on its way to the store")));
        }
        let (topic, version) = (descriptor.topic.clone(), self.store.clock().versions(1));
        let told = self.wal.append(vec![Record::Cancel { topic, partition, id: id.clone(), version }]).await;
        self.buffered.notify_one();
        if unbuffered == wal::Cancelled::RemovedSent {
            return Err(perhaps_sent());
        }
        told.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))?;
        Ok(Cancelled { fates: Fates::all(&descriptor.groups, Fate::Done), version: Some(version), buffered: true })
    }

    /// Takes a message out of the WAL.
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

    /// The keys of the messages of this id that are in the WAL. Reads all of it, if there is anything in it.
    pub(super) async fn buffered_keys(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<Option<Key>>> {
        let (mut keys, mut after) = (Vec::new(), None);
        while self.wal.depth().records > 0 {
            let page = self.wal.peek(after, PAGE_RECORDS, PAGE_BYTES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.position);
            keys.extend(page.into_iter().filter_map(|entry| match entry.record {
                Record::Push { topic: of, message, .. } if of == *topic && message.id == *id => {
                    Some(message.envelope.key)
                }
                _ => None,
            }));
        }
        Ok(keys)
    }

    /// Reschedules a message in the store.
    ///
    /// # Errors
    /// `Unavailable` while the store is unavailable, and for a message that the store does not have while others are
    /// buffered.
    pub(super) async fn postpone(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        if self.is_giving_back() {
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
