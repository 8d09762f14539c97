//! Purging a group: page by page, so that pushes to the partition go on meanwhile. The purge holds the lease of the partition, so
//! nothing is handed out until it is over; one that is given up leaves a lease that lapses.

use std::time::Duration;

use sled::Batch;

use super::Inner;
use super::changes::current;
use super::group_partition::{Lease, Stored};
use super::owner::unschedule;
use super::topics::locked;
use crate::codec::body_version;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_IDS_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::store::{Channel, Epoch, MemberId, Purge, Purged};

const HELD_FOR: Duration = Duration::from_secs(10);

/// The holder of the lease while a partition is purged; no broker has this name.
const HOLDER: &str = "purge";

struct Page {
    deleted: u64,
    last: Option<MessageId>,
}

impl Inner {
    /// Deletes the messages that are there when it begins; those pushed meanwhile stay, since they have later versions.
    pub(super) async fn purge_now(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        version: Version,
        purge: &Purge,
    ) -> Result<Purged> {
        let mut purged = Purged { version, ..Purged::default() };
        // All of the first page was there before.
        let (mut after, mut most) = (None, None);
        loop {
            let page = self.purge_page(descriptor, partition, purge, most, after.as_ref())?;
            purged.messages += page.deleted;
            (after, most) = (page.last, Some(version));
            if after.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if purge.dead_letters {
            purged.dead_letters = self.purge_dead(descriptor, partition, purge).await?;
        }
        self.end_purge(descriptor, partition, purge);
        Ok(purged)
    }

    fn purge_page(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        purge: &Purge,
        most: Option<Version>,
        after: Option<&MessageId>,
    ) -> Result<Page> {
        let topics = self.topics();
        let (topic, _) = current(&topics, descriptor, partition)?;
        let no_group = || Error::not_found(format!("topic {} has no group {}", descriptor.topic, purge.group));
        let place = topic.place(partition, &purge.group).ok_or_else(no_group)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let group_partition = state.groups.entry(place.group).or_default();
        let stored = Stored::new(&self.tree, place);
        let epoch = Epoch::after(stored.last_epoch()?);
        let now = self.clock.local().instant();
        group_partition.lease = Some(Lease::new(MemberId::from_store(HOLDER), epoch, now, HELD_FOR));
        let (mut batch, mut counts) = (Batch::default(), group_partition.counts);
        let mut page = Page { deleted: 0, last: None };
        for id in stored.hash().ids_after(after) {
            let id = id?;
            if let Some(most) = most
                && stored.hash().get(&id)?.is_some_and(|body| body_version(&body) > most)
            {
                continue;
            }
            unschedule(&stored, &mut batch, &mut counts, &id)?;
            stored.hash().remove(&mut batch, id.as_str().as_bytes())?;
            stored.uncharge(&mut batch, &id);
            counts.hash = counts.hash.saturating_sub(1);
            page.deleted += 1;
            if page.deleted == CALL_IDS_MAX as u64 {
                page.last = Some(id);
                break;
            }
        }
        self.apply(batch)?;
        group_partition.counts = counts;
        Ok(page)
    }

    async fn purge_dead(&self, descriptor: &Descriptor, partition: Partition, purge: &Purge) -> Result<u64> {
        let (group_partition, mut deleted) = (descriptor.group_partition(partition, &purge.group), 0);
        loop {
            let ids = self.dead_ids(&group_partition, RECOVER_IDS_MAX)?;
            if ids.is_empty() {
                return Ok(deleted);
            }
            let answers = self.change_dead(&group_partition, &ids, |_, _, _, _| Ok(()))?;
            deleted += answers.into_iter().filter(|was_dead| *was_dead).count() as u64;
            tokio::task::yield_now().await;
        }
    }

    /// The partition may be acquired again.
    fn end_purge(&self, descriptor: &Descriptor, partition: Partition, purge: &Purge) {
        let group_partition = descriptor.group_partition(partition, &purge.group);
        if let Some((topic, place)) = self.topics().group_partition(&group_partition) {
            let state = topic.partition(partition);
            locked(&state).groups.entry(place.group).or_default().lease = None;
        }
        self.wakes.wake(&Channel::release(&group_partition));
    }
}
