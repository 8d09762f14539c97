//! Following the topic: what a dispatch takes over from a descriptor that is newer than its own.

use std::sync::{Arc, PoisonError};

use super::{GroupDelivery, Policy};
use crate::model::error::Result;
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, Rest};
use crate::platform::clock::Instant;

impl GroupDelivery {
    /// What the topic says about failures, and about a partition of the group.
    pub(super) fn policy(&self, partition: Partition) -> Policy {
        let descriptor = self.descriptor();
        Policy {
            backoff: descriptor.settings.backoff.clone(),
            max_attempts: descriptor.settings.max_attempts,
            dedup_window: descriptor.settings.dedup_window,
            ordered: descriptor.is_ordered(),
            on_expiry: descriptor.settings.on_expiry,
            in_flight: descriptor.in_flight_share(&self.group, partition),
        }
    }

    /// Why nothing is handed out now, if nothing is.
    pub(super) fn rest(&self, now: Timestamp) -> Option<Rest> {
        self.descriptor().subscription(&self.group).rest(now)
    }

    /// When the rest ends by itself, if nothing is handed out now.
    pub(super) fn rests_until(&self, now: Timestamp) -> Option<Instant> {
        let rest = self.rest(now)?;
        Some(rest.until().map_or(Instant::FAR, |until| self.store.backend.clock().reaches(until)))
    }

    /// Loads the descriptor again. False when the topic or the group is gone.
    pub(super) async fn reload(&self) -> Result<bool> {
        let topic = self.descriptor().topic.clone();
        let Some(descriptor) = self.store.topics.topic(&topic).await? else { return Ok(false) };
        Ok(self.follow(&Arc::new(descriptor)))
    }

    /// The same when it was announced that the topic changed. Failing only delays it to the next renewal.
    pub(super) async fn look_again(&self) {
        match self.reload().await {
            Ok(true) => {}
            Ok(false) => self.abandon(),
            Err(error) => tracing::debug!(%error, "a changed topic was not loaded"),
        }
    }

    /// Takes a newer descriptor over; every owned pair is told. False when it has another topic or group under the name, or
    /// the group no more.
    pub fn follow(&self, newer: &Arc<Descriptor>) -> bool {
        let mut descriptor = self.descriptor.write().unwrap_or_else(PoisonError::into_inner);
        if newer.generation < descriptor.generation {
            // Two looks at the store came back in the other order.
            return true;
        }
        if !newer.has_same(&descriptor, &self.group) {
            return false;
        }
        *descriptor = newer.clone();
        drop(descriptor);
        for (partition, owned) in self.pairs() {
            owned.table().set_policy(self.policy(partition));
            owned.kick.notify_one();
        }
        true
    }
}
