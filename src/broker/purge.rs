//! Purging a group: every message that it has, also those in flight.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Broker;
use super::topics::with_group;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::store::{Call, PartitionStats, Purge, Purged};

/// Calls to the store at the same time.
const AT_ONCE: usize = 32;

/// How long a purge waits at most for the store's clock to pass its version.
const SETTLE_WAIT: Duration = Duration::from_secs(1);

impl Broker {
    /// Deletes the messages of a group, scheduled, ready or in flight; other groups keep theirs. Messages that were pushed
    /// before are gone once this has answered, also those in a log; later ones stay. Receipts become stale.
    /// Errors: `NotFound`; `Conflict` for a group that is being copied; `OutcomeUnknown` when some partitions are
    /// purged and others are not: purge it again.
    pub async fn purge_group(&self, topic: &TopicName, purge: &Purge) -> Result<Purged> {
        self.store.backend.clock().check()?;
        let descriptor = with_group(self.topics.load(topic).await?, &purge.group)?;
        if descriptor.subscription(&purge.group).copy_of.is_some() {
            let detail = format!("group {} is being copied; purge it once that is done", purge.group);
            return Err(Error::new(Kind::Conflict, detail));
        }
        let partitions: Vec<Partition> = descriptor.partitions().collect();
        let (mut all, mut done) = (Purged::default(), 0);
        for some in partitions.chunks(AT_ONCE) {
            // A call that is out is never dropped: it may be applied.
            let mut failed = None;
            for purged in join_all(some.iter().map(|partition| self.purge_partition(topic, *partition, purge))).await {
                match purged {
                    Ok(purged) => {
                        done += 1;
                        all.messages += purged.messages;
                        all.dead_letters += purged.dead_letters;
                        let counts = self.metrics.group(topic, &purge.group);
                        counts.purged.inc_by(purged.messages);
                        counts.purged_dead.inc_by(purged.dead_letters);
                        all.version = all.version.max(purged.version);
                    }
                    Err(error) if failed.is_none() || error.kind() == Kind::OutcomeUnknown => failed = Some(error),
                    Err(_) => {}
                }
            }
            match failed {
                Some(error) if done == 0 => return Err(error),
                Some(error) => {
                    let detail =
                        format!("{done} of {} purged: {}", counted(partitions.len(), "partition"), error.detail());
                    return Err(Error::outcome_unknown(detail));
                }
                None => {}
            }
        }
        self.pass(all.version).await;
        let (group, messages, dead_letters) = (&purge.group, all.messages, all.dead_letters);
        tracing::info!(%topic, %group, messages, dead_letters, "group purged");
        Ok(all)
    }

    /// How many messages a purge would delete. Errors: `NotFound`, `Full`.
    pub async fn count_purge(&self, topic: &TopicName, purge: &Purge) -> Result<u64> {
        let (_, partitions) = self.group(topic, &purge.group).await?;
        let count = |stats: &PartitionStats| {
            stats.scheduled + stats.ready + stats.in_flight + if purge.dead_letters { stats.dead } else { 0 }
        };
        Ok(partitions.iter().map(|(_, stats)| count(stats)).sum())
    }

    async fn purge_partition(&self, topic: &TopicName, partition: Partition, purge: &Purge) -> Result<Purged> {
        let ask = |descriptor: Arc<Descriptor>| async move {
            let descriptor = with_group(descriptor, &purge.group)?;
            let make = async |call: &Call| self.store.messages.purge_group(&descriptor, partition, call, purge).await;
            let purged = self.topics.call(topic, partition, 1, make, |_| true).await?;
            // Messages in the memory of this process are not handed out once this has answered.
            self.check_lease(&descriptor, partition, &purge.group).await;
            Ok(purged)
        };
        self.topics.say(topic, ask).await
    }

    async fn check_lease(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) {
        if let Ok(Some(delivery)) = self.groups.find(descriptor, group) {
            delivery.check_lease(partition).await;
        }
    }

    /// Waits until the store's clock has passed a version, so that other brokers buffer later pushes above it. Their clocks are not
    /// behind the store's.
    async fn pass(&self, version: Version) {
        let clock = self.store.backend.clock();
        let passed = clock.reaches(Timestamp::from_ms(version.as_us().div_ceil(1_000)));
        tokio::select! {
            () = clock.local().sleep_until(passed) => {}
            () = Clock::System.sleep(SETTLE_WAIT) => {}
        }
    }
}
