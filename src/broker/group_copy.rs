//! Filling a group that begins with a copy of another one.
//!
//! Nothing of it has to be remembered: until the descriptor says that the copy is done nothing is handed out, so whoever
//! begins again, after a crash or beside another broker, finds what was copied and leaves it alone.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;

/// The pause before a copy that failed is tried again.
const TRY_AFTER: Duration = Duration::from_millis(500);

/// The groups that this process is filling.
pub(super) type Filling = Arc<Mutex<HashSet<(TopicName, GroupName)>>>;

/// A group being filled by this process.
struct Filled {
    filling: Filling,
    place: (TopicName, GroupName),
    done: CancellationToken,
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.place);
        self.done.cancel();
    }
}

impl Broker {
    /// Fills a group that is a copy, behind the caller, if this process does not do so already. The future ends when it is
    /// filled, or when nobody fills it here.
    pub(super) fn copy_group(
        &self,
        descriptor: &Arc<Descriptor>,
        group: &GroupName,
    ) -> impl Future<Output = ()> + Send + use<> {
        let done = CancellationToken::new();
        let place = (descriptor.topic.clone(), group.clone());
        let is_copy = descriptor.subscription(group).copy_of.is_some();
        let filling = self.filling.clone();
        if is_copy && filling.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone()) {
            let filled = Filled { filling, place, done: done.clone() };
            let (broker, born) = (self.clone(), descriptor.clone());
            self.tasks.start(async move { broker.fill(&filled, &born).await });
        } else {
            done.cancel();
        }
        async move { done.cancelled().await }
    }

    /// Tries until the group is filled, is gone, or the broker stops.
    async fn fill(&self, filled: &Filled, born: &Descriptor) {
        let (topic, group) = &filled.place;
        let clock = self.store.backend.clock().local();
        loop {
            let error = match self.fill_once(topic, group, born).await {
                Ok(()) => return,
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt | Kind::Bug) => {
                    return tracing::warn!(%topic, %group, %error, "group copy given up");
                }
                Err(error) => error,
            };
            tracing::debug!(%topic, %group, %error, "group copy tried again");
            if self.tasks.stopping().run_until_cancelled(clock.sleep(TRY_AFTER)).await.is_none() {
                return;
            }
        }
    }

    /// Every partition, and then the descriptor says that it is done.
    async fn fill_once(&self, topic: &TopicName, group: &GroupName, born: &Descriptor) -> Result<()> {
        let descriptor = self.topics.load(topic).await?;
        if !descriptor.has_same(born, group) {
            return Err(Error::not_found(format!("group {group} of topic {topic} is gone")));
        }
        if descriptor.subscription(group).copy_of.is_none() {
            return Ok(());
        }
        // A push under an older descriptor would not reach the group, and its message might come behind the scan.
        self.store.topics.publish_settings(&descriptor).await?;
        let mut messages = 0;
        for partition in descriptor.partitions() {
            messages += self.fill_partition(&descriptor, partition, group).await?;
        }
        self.change(topic, |there| {
            if !there.has_same(&descriptor, group) {
                return Err(Error::not_found(format!("group {group} of topic {topic} is gone")));
            }
            let mut wanted = there.clone();
            wanted.subscription_mut(group).copy_of = None;
            Ok((wanted != *there).then_some(wanted))
        })
        .await?;
        tracing::info!(%topic, %group, messages, "group copied");
        Ok(())
    }

    async fn fill_partition(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) -> Result<usize> {
        let clock = self.store.backend.clock().local();
        let (mut from, mut messages) = (None, 0);
        loop {
            let began = clock.instant();
            let page = self.store.maintenance.copy(descriptor, partition, group, from).await?;
            messages += page.messages;
            from = page.next;
            if from.is_none() {
                return Ok(messages);
            }
            // Live traffic keeps half of the store.
            let rest = clock.sleep(clock.instant().since(began));
            if self.tasks.stopping().run_until_cancelled(rest).await.is_none() {
                return Err(Error::unavailable("this dwell is stopping"));
            }
        }
    }
}
