//! Changes of waiting messages by producers: cancel and reschedule; and pushes with a policy about ids that are there.

use std::sync::Arc;

use futures_util::future::join_all;

use super::Broker;
use super::list::Location;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Conflict, Due, Key, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{Call, Cancelled, Expected, Fate, Pushed, Put, Reschedule, Rescheduled, restoring};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescheduleOutcome {
    pub partition: Partition,
    pub due_at: Timestamp,
    pub rescheduled: Rescheduled,
}

impl Broker {
    /// Cancels a message in every group in which it waits; one that is reserved is left alone. Errors: `NotFound`, also
    /// for another key; `Ambiguous`; and the store's. `OutcomeUnknown`: cancel it again, which is answered the same.
    pub async fn cancel(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> Result<(Partition, Cancelled)> {
        self.store.backend.clock().check()?;
        let cancel = |descriptor: Arc<Descriptor>| async move {
            match self.locate(&descriptor, id, key).await? {
                Location::In(partition) => Ok((partition, self.cancel_in(&descriptor, partition, id).await?)),
                Location::Nowhere => self.cancel_anywhere(&descriptor, id).await,
            }
        };
        self.topics.with_descriptor(topic, cancel).await
    }

    /// Reschedules a message in every group in which it waits as expected; attempts stay. Errors: `Invalid` too far
    /// ahead, or not before it expires; `NotFound`, also for another key; `Ambiguous`; and the store's.
    pub async fn reschedule(
        &self,
        topic: &TopicName,
        id: &MessageId,
        key: Option<&Key>,
        due: Due,
        expected: Expected,
    ) -> Result<RescheduleOutcome> {
        self.store.backend.clock().check()?;
        let due_at = due.fix(self.store.backend.clock().now())?;
        let reschedule = &Reschedule { id: id.clone(), due_at, expected };
        let reschedule = |descriptor: Arc<Descriptor>| async move {
            let partition = self.locate(&descriptor, id, key).await?.or_home(&descriptor, id);
            match self.reschedule_at(&descriptor, partition, reschedule).await? {
                Rescheduled::Expires => Err(Error::invalid("due_at", format!("message {id} expires before {due_at}"))),
                rescheduled => Ok(RescheduleOutcome { partition, due_at, rescheduled }),
            }
        };
        self.topics.with_descriptor(topic, reschedule).await
    }

    /// Cancels a message that no partition has: the one that it was cancelled in answers a repeat. While a loss is being
    /// restored this changes nothing, since any partition may still get the message.
    async fn cancel_anywhere(&self, descriptor: &Descriptor, id: &MessageId) -> Result<(Partition, Cancelled)> {
        if self.store.backend.losses().borrow().is_giving_back() {
            return Err(restoring());
        }
        let cancels = descriptor
            .partitions()
            .map(|partition| async move { Ok((partition, self.cancel_in(descriptor, partition, id).await?)) });
        let home = descriptor.partition_of(id.as_str());
        // A call that is out is never dropped: it may be applied.
        let (mut cancelled, mut failed): (Vec<(Partition, Cancelled)>, Vec<Error>) = Default::default();
        for answer in join_all(cancels).await {
            match answer {
                Ok(answer) => cancelled.push(answer),
                Err(error) => failed.push(error),
            }
        }
        let is_known =
            |(_, cancelled): &&(Partition, Cancelled)| cancelled.fates.0.iter().any(|(_, fate)| *fate != Fate::Absent);
        let known = cancelled.iter().find(is_known);
        match failed.into_iter().max_by_key(|error| error.kind() == Kind::OutcomeUnknown) {
            Some(error) if known.is_some() => Err(Error::outcome_unknown(error.detail().to_owned())),
            Some(error) => Err(error),
            None => known
                .or_else(|| cancelled.iter().find(|(partition, _)| *partition == home))
                .cloned()
                .ok_or_else(|| Error::bug("a topic without partitions")),
        }
    }

    pub(super) async fn cancel_in(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let make = async |call: &Call| self.store.messages.cancel(descriptor, partition, call, id).await;
        self.topics.call(&descriptor.topic, partition, 1, make, |cancelled| !cancelled.buffered).await
    }

    pub(super) async fn reschedule_at(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let make = async |call: &Call| self.store.messages.reschedule(descriptor, partition, call, reschedule).await;
        self.topics.call(&descriptor.topic, partition, 1, make, |_| true).await
    }

    pub(super) async fn put(
        &self,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        let put = |descriptor: Arc<Descriptor>| async move {
            let make =
                async |call: &Call| self.store.messages.put(&descriptor, partition, call, conflict, messages).await;
            let is_applied = |puts: &Vec<Put>| !puts.contains(&Put::Pushed(Pushed::Buffered));
            self.topics.call(&descriptor.topic, partition, messages.len(), make, is_applied).await
        };
        self.topics.push(descriptor.clone(), put).await
    }
}
