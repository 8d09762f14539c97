//! Dead messages of all partitions of a group: listing them, making them ready again, deleting them.

use std::time::Duration;

use super::Broker;
use super::dead_scan::{DeadFilter, DeadPlace, DeadScan};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{
    CALL_BYTES_MAX, CALL_IDS_MAX, DEAD_LOOKED_AT_MAX, DEAD_REQUEST_MAX, RECOVER_IDS_MAX, REDRIVE_RATE_MAX,
};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::GroupPartition;
use crate::store::Dead;

/// How often in a second a rate is kept to: after so many pages there is a rest.
const PAGES_PER_SECOND: u32 = 10;

/// A page of dead messages over all partitions, and the cursor of the next.
#[derive(Debug, Clone)]
pub struct DeadList {
    /// The messages with their partitions.
    pub dead: Vec<(Partition, Dead)>,
    /// Opaque; `None` at the end.
    pub next: Option<String>,
}

/// What is to be done with many dead messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadSweep {
    /// With which.
    pub filter: DeadFilter,
    /// With so many at most.
    pub limit: Option<u64>,
    /// With so many a second, 1 to 100,000.
    pub rate: Option<u32>,
    /// Where the sweep before has ended.
    pub cursor: Option<String>,
}

/// How far a sweep came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadSwept {
    /// With how many it was done.
    pub count: u64,
    /// Where to go on; `None` once every partition was gone through.
    pub next: Option<String>,
}

/// What to do with a page of dead messages.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Redrive,
    Purge,
    Count,
}

impl Broker {
    /// Lists dead messages, partition by partition, oldest death first.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor or limit, `Full`.
    pub async fn dead(
        &self,
        topic: &TopicName,
        group: &GroupName,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadList> {
        self.dead_matching(topic, group, &DeadFilter::default(), cursor, limit).await
    }

    /// Lists those that are meant. A page may be short, or empty, and not be the last.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor, limit or filter, `Full`.
    pub async fn dead_matching(
        &self,
        topic: &TopicName,
        group: &GroupName,
        filter: &DeadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadList> {
        super::check_count("limit", limit)?;
        let mut scan = self.scan(topic, group, filter, cursor).await?;
        let read = self.reads.begin().await?;
        let began = self.clock().instant();
        let (mut dead, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        // A page of a few large messages is a full page, and so is one that many were looked through for.
        while !scan.is_over()
            && dead.len() < limit
            && bytes < CALL_BYTES_MAX
            && looked_at < DEAD_LOOKED_AT_MAX
            && self.clock().instant().since(began) < DEAD_REQUEST_MAX
        {
            let most = limit - dead.len();
            let look = if *filter == DeadFilter::default() { most } else { CALL_IDS_MAX };
            let found = read.call(scan.page(&self.store, look, most)).await?;
            let payload = |dead: &Dead| dead.message.as_ref().map_or(0, |message| message.envelope.payload.len());
            bytes += found.dead.iter().map(payload).sum::<usize>();
            looked_at += found.looked_at;
            dead.extend(found.dead.into_iter().map(|dead| (found.partition, dead)));
        }
        Ok(DeadList { dead, next: (!scan.is_over()).then(|| scan.place.cursor()) })
    }

    /// Makes dead messages ready again: these ids, or all that are dead now. Answers how many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn redrive(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<u64> {
        self.deed(topic, group, ids, Deed::Redrive).await
    }

    /// Deletes dead messages: these ids, or all that are dead now. Answers how many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn purge(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<u64> {
        self.deed(topic, group, ids, Deed::Purge).await
    }

    /// Makes many dead messages ready again, for a few seconds, and answers where to go on. Dropping the future ends it.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor, rate or filter.
    pub async fn redrive_many(&self, topic: &TopicName, group: &GroupName, sweep: &DeadSweep) -> Result<DeadSwept> {
        self.sweep(topic, group, sweep, Deed::Redrive).await
    }

    /// Deletes many dead messages, for a few seconds, and answers where to go on. Dropping the future ends it.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor, rate or filter.
    pub async fn purge_many(&self, topic: &TopicName, group: &GroupName, sweep: &DeadSweep) -> Result<DeadSwept> {
        self.sweep(topic, group, sweep, Deed::Purge).await
    }

    /// Counts many dead messages, for a few seconds, and answers where to go on. Nothing changes.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor, rate or filter, `Full`.
    pub async fn count_dead(&self, topic: &TopicName, group: &GroupName, sweep: &DeadSweep) -> Result<DeadSwept> {
        let _read = self.reads.begin().await?;
        self.sweep(topic, group, sweep, Deed::Count).await
    }

    async fn scan(
        &self,
        topic: &TopicName,
        group: &GroupName,
        filter: &DeadFilter,
        cursor: Option<&str>,
    ) -> Result<DeadScan> {
        filter.check()?;
        let descriptor = self.topics.look_at_group(topic, group).await?;
        let place = match cursor {
            None => DeadPlace::first(self.store.backend.clock().now()),
            Some(cursor) => DeadPlace::read(cursor)?,
        };
        Ok(DeadScan { descriptor, group: group.clone(), filter: filter.clone(), place })
    }

    async fn deed(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>, deed: Deed) -> Result<u64> {
        if let Some(ids) = ids {
            super::check_count("ids", ids.len())?;
            return self.deed_ids(topic, group, ids, deed).await;
        }
        let (mut sweep, mut count) = (DeadSweep::default(), 0);
        loop {
            let swept = self.sweep(topic, group, &sweep, deed).await?;
            count += swept.count;
            sweep.cursor = swept.next;
            if sweep.cursor.is_none() {
                return Ok(count);
            }
        }
    }

    /// The key of a dead message is not known from its id, so every partition is asked.
    async fn deed_ids(&self, topic: &TopicName, group: &GroupName, ids: &[MessageId], deed: Deed) -> Result<u64> {
        let descriptor = self.topics.group(topic, group).await?;
        let mut done = 0;
        for partition in descriptor.partitions() {
            let pair = descriptor.pair(partition, group);
            for page in ids.chunks(RECOVER_IDS_MAX) {
                done += self.deed_page(&pair, page, deed).await?;
            }
        }
        Ok(done)
    }

    /// What dies after the sweep began is left alone, so that a message that fails at once does not go round and round.
    async fn sweep(&self, topic: &TopicName, group: &GroupName, sweep: &DeadSweep, deed: Deed) -> Result<DeadSwept> {
        if sweep.rate.is_some_and(|rate| !(1..=REDRIVE_RATE_MAX).contains(&rate)) {
            return Err(Error::wrong(Fault::Range, "rate", format!("is not in 1 to {REDRIVE_RATE_MAX}")));
        }
        let mut scan = self.scan(topic, group, &sweep.filter, sweep.cursor.as_deref()).await?;
        let began = self.clock().instant();
        let (mut count, mut looked_at) = (0, 0);
        let page = sweep.rate.map_or(RECOVER_IDS_MAX, |rate| (rate / PAGES_PER_SECOND).max(1) as usize);
        while !scan.is_over()
            && looked_at < DEAD_LOOKED_AT_MAX
            && sweep.limit.is_none_or(|limit| count < limit)
            && self.clock().instant().since(began) < DEAD_REQUEST_MAX
            && !self.is_stopping()
        {
            let left = sweep.limit.map_or(u64::MAX, |limit| limit - count);
            let most = page.min(RECOVER_IDS_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
            let found = scan.page(&self.store, RECOVER_IDS_MAX, most).await?;
            looked_at += found.looked_at;
            if found.dead.is_empty() {
                continue;
            }
            let ids: Vec<MessageId> = found.dead.into_iter().map(|dead| dead.id).collect();
            let pair = scan.descriptor.pair(found.partition, group);
            let done = self.deed_page(&pair, &ids, deed).await?;
            count += done;
            if let Some(rate) = sweep.rate {
                self.clock().sleep(Duration::from_secs(done) / rate).await;
            }
        }
        Ok(DeadSwept { count, next: (!scan.is_over()).then(|| scan.place.cursor()) })
    }

    async fn deed_page(&self, pair: &GroupPartition, ids: &[MessageId], deed: Deed) -> Result<u64> {
        let answers = match deed {
            Deed::Redrive => self.store.dead_letters.redrive(pair, ids).await?,
            Deed::Purge => self.store.dead_letters.purge(pair, ids).await?,
            Deed::Count => return Ok(ids.len() as u64),
        };
        Ok(answers.into_iter().filter(|was_dead| *was_dead).count() as u64)
    }
}
