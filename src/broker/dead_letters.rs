//! Dead messages of all partitions of a group: listing them, making them ready again, deleting them.

use std::sync::Arc;
use std::time::Duration;

use super::Broker;
use crate::codec::DeadLetterReason;
use crate::model::error::{Error, Result};
use crate::model::limits::{
    CALL_BYTES_MAX, CALL_IDS_MAX, DEAD_LOOKED_AT_MAX, DEAD_REQUEST_MAX, DEAD_TEXT_BYTES_MAX, ID_BYTES_MAX,
    RECOVER_IDS_MAX, REDRIVE_RATE_MAX,
};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{Dead, DeadLetterCursor, Store};

const PAGES_PER_SECOND: u32 = 10;

#[derive(Debug, Clone)]
pub struct DeadLetterList {
    pub dead: Vec<(Partition, Dead)>,
    pub next: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterSweep {
    pub filter: DeadLetterFilter,
    pub limit: Option<u64>,
    /// Messages per second, 1 to 100,000.
    pub rate: Option<u32>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterSweepResult {
    pub count: u64,
    pub next: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum DeadLetterAction {
    Redrive,
    Purge,
    Count,
}

impl Broker {
    /// Partition by partition, oldest death first. Errors: `NotFound`, `Invalid` cursor or limit, `Full`.
    pub async fn dead(
        &self,
        topic: &TopicName,
        group: &GroupName,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadLetterList> {
        self.dead_matching(topic, group, &DeadLetterFilter::default(), cursor, limit).await
    }

    /// A page may be short or empty without being the last. Errors: `NotFound`, `Invalid` cursor, limit or filter,
    /// `Full`.
    pub async fn dead_matching(
        &self,
        topic: &TopicName,
        group: &GroupName,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadLetterList> {
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
            let look = if *filter == DeadLetterFilter::default() { most } else { CALL_IDS_MAX };
            let found = read.call(scan.page(&self.store, look, most)).await?;
            let payload = |dead: &Dead| dead.message.as_ref().map_or(0, |message| message.envelope.size());
            bytes += found.dead.iter().map(payload).sum::<usize>();
            looked_at += found.looked_at;
            dead.extend(found.dead.into_iter().map(|dead| (found.partition, dead)));
        }
        Ok(DeadLetterList { dead, next: (!scan.is_over()).then(|| scan.place.cursor()) })
    }

    pub async fn redrive(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<u64> {
        self.change_dead(topic, group, ids, DeadLetterAction::Redrive).await
    }

    pub async fn purge(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<u64> {
        self.change_dead(topic, group, ids, DeadLetterAction::Purge).await
    }

    /// For a few seconds; answers the next cursor. Errors: `NotFound`, `Invalid` cursor, rate or filter.
    pub async fn redrive_many(
        &self,
        topic: &TopicName,
        group: &GroupName,
        sweep: &DeadLetterSweep,
    ) -> Result<DeadLetterSweepResult> {
        self.sweep(topic, group, sweep, DeadLetterAction::Redrive).await
    }

    /// For a few seconds; answers the next cursor. Errors: `NotFound`, `Invalid` cursor, rate or filter.
    pub async fn purge_many(
        &self,
        topic: &TopicName,
        group: &GroupName,
        sweep: &DeadLetterSweep,
    ) -> Result<DeadLetterSweepResult> {
        self.sweep(topic, group, sweep, DeadLetterAction::Purge).await
    }

    /// For a few seconds; answers the next cursor. Errors: `NotFound`, `Invalid` cursor, rate or filter, `Full`.
    pub async fn count_dead(
        &self,
        topic: &TopicName,
        group: &GroupName,
        sweep: &DeadLetterSweep,
    ) -> Result<DeadLetterSweepResult> {
        let _read = self.reads.begin().await?;
        self.sweep(topic, group, sweep, DeadLetterAction::Count).await
    }

    async fn scan(
        &self,
        topic: &TopicName,
        group: &GroupName,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
    ) -> Result<DeadLetterScan> {
        filter.check()?;
        let descriptor = self.topics.peek_group(topic, group).await?;
        let place = match cursor {
            None => DeadLetterPosition::first(self.store.backend.clock().now()),
            Some(cursor) => DeadLetterPosition::read(cursor)?,
        };
        Ok(DeadLetterScan { descriptor, group: group.clone(), filter: filter.clone(), place })
    }

    async fn change_dead(
        &self,
        topic: &TopicName,
        group: &GroupName,
        ids: Option<&[MessageId]>,
        change: DeadLetterAction,
    ) -> Result<u64> {
        if let Some(ids) = ids {
            super::check_count("ids", ids.len())?;
            return self.change_ids(topic, group, ids, change).await;
        }
        let (mut sweep, mut count) = (DeadLetterSweep::default(), 0);
        loop {
            let swept = self.sweep(topic, group, &sweep, change).await?;
            count += swept.count;
            sweep.cursor = swept.next;
            if sweep.cursor.is_none() {
                return Ok(count);
            }
        }
    }

    /// The key of a dead message is not known from its id, so every partition is asked.
    async fn change_ids(
        &self,
        topic: &TopicName,
        group: &GroupName,
        ids: &[MessageId],
        change: DeadLetterAction,
    ) -> Result<u64> {
        let descriptor = self.topics.group(topic, group).await?;
        let mut done = 0;
        for partition in descriptor.partitions() {
            let group_partition = descriptor.group_partition(partition, group);
            for page in ids.chunks(RECOVER_IDS_MAX) {
                done += self.change_page(&group_partition, page, change).await?;
            }
        }
        Ok(done)
    }

    /// A message that dies after the sweep began is left alone, so that a message that fails at once does not go round and round.
    async fn sweep(
        &self,
        topic: &TopicName,
        group: &GroupName,
        sweep: &DeadLetterSweep,
        change: DeadLetterAction,
    ) -> Result<DeadLetterSweepResult> {
        if sweep.rate.is_some_and(|rate| !(1..=REDRIVE_RATE_MAX).contains(&rate)) {
            return Err(Error::range("rate", format!("is not in 1 to {REDRIVE_RATE_MAX}")));
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
            let partition = scan.descriptor.group_partition(found.partition, group);
            let done = self.change_page(&partition, &ids, change).await?;
            count += done;
            if let Some(rate) = sweep.rate {
                self.clock().sleep(Duration::from_secs(done) / rate).await;
            }
        }
        Ok(DeadLetterSweepResult { count, next: (!scan.is_over()).then(|| scan.place.cursor()) })
    }

    async fn change_page(
        &self,
        partition: &GroupPartition,
        ids: &[MessageId],
        change: DeadLetterAction,
    ) -> Result<u64> {
        let dead_letters = &self.store.dead_letters;
        Ok(match change {
            DeadLetterAction::Count => ids.len() as u64,
            DeadLetterAction::Redrive => {
                dead_letters.redrive(partition, ids).await?.into_iter().filter(|was_dead| *was_dead).count() as u64
            }
            DeadLetterAction::Purge => {
                let purged = dead_letters.purge(partition, ids).await?.into_iter().flatten().count() as u64;
                self.metrics.group(&partition.topic, &partition.group).purged_dead.inc_by(purged);
                purged
            }
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    pub reason: Option<DeadLetterReason>,
    pub older_than: Option<Duration>,
    pub younger_than: Option<Duration>,
    /// These bytes are in the last error or in the payload, as they are; 1 to 256 bytes.
    pub text: Option<String>,
}

impl DeadLetterFilter {
    pub fn check(&self) -> Result<()> {
        let range = 1..=DEAD_TEXT_BYTES_MAX;
        match &self.text {
            Some(text) if !range.contains(&text.len()) => {
                Err(Error::range("text", format!("has {} bytes, not 1 to {DEAD_TEXT_BYTES_MAX}", text.len())))
            }
            _ => Ok(()),
        }
    }

    /// Whether it narrows by what is in a dead letter, so that each is looked at.
    pub(super) fn looks_inside(&self) -> bool {
        self.reason.is_some() || self.text.is_some()
    }

    /// Whether a dead letter has the reason and the text; its age is for the caller.
    pub(super) fn matches(&self, dead: &Dead) -> bool {
        let has_text = |text: &String| {
            let error = dead.record.last_error.as_ref().is_some_and(|error| error.contains(text));
            let payload = |payload: &[u8]| payload.windows(text.len()).any(|part| part == text.as_bytes());
            error || dead.message.as_ref().is_ok_and(|message| payload(&message.envelope.payload))
        };
        self.reason.is_none_or(|reason| reason == dead.record.reason) && self.text.as_ref().is_none_or(has_text)
    }
}

/// Where a walk through the dead messages of all partitions stands. Messages that die after it began are not included.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeadLetterPosition {
    began: Timestamp,
    partition: Partition,
    after: Option<DeadLetterCursor>,
}

impl DeadLetterPosition {
    fn first(began: Timestamp) -> DeadLetterPosition {
        DeadLetterPosition { began, partition: Partition(0), after: None }
    }

    /// `<began ms>.<partition>` or `<began ms>.<partition>.<died at ms>.<id>`. Opaque to callers.
    fn cursor(&self) -> String {
        let place = format!("{}.{}", self.began.as_ms(), self.partition);
        match &self.after {
            Some(after) => format!("{place}.{}.{}", after.died_at.as_ms(), after.id),
            None => place,
        }
    }

    fn read(cursor: &str) -> Result<DeadLetterPosition> {
        let wrong = super::wrong_cursor;
        let time = |text: &str| text.parse().map(Timestamp::from_ms).map_err(|_| wrong());
        let mut parts = cursor.splitn(4, '.');
        let began = time(parts.next().ok_or_else(wrong)?)?;
        let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
        let after = match (parts.next(), parts.next()) {
            (None, _) => None,
            (Some(died_at), Some(id)) => {
                Some(DeadLetterCursor { died_at: time(died_at)?, id: MessageId::new(id).map_err(|_| wrong())? })
            }
            (Some(_), None) => return Err(wrong()),
        };
        Ok(DeadLetterPosition { began, partition, after })
    }
}

struct DeadLetterScan {
    descriptor: Arc<Descriptor>,
    group: GroupName,
    filter: DeadLetterFilter,
    place: DeadLetterPosition,
}

struct DeadLetterMatch {
    partition: Partition,
    looked_at: usize,
    dead: Vec<Dead>,
}

impl DeadLetterScan {
    fn is_over(&self) -> bool {
        self.place.partition.0 >= self.descriptor.settings.partitions.get()
    }

    async fn page(&mut self, store: &Store, look: usize, most: usize) -> Result<DeadLetterMatch> {
        let partition = self.place.partition;
        let group_partition = self.descriptor.group_partition(partition, &self.group);
        let after = match self.place.after.take() {
            None => self.before_the_youngest()?,
            after => after,
        };
        let page = store.dead_letters.dead(&group_partition, after.as_ref(), look).await?;
        let until = self.filter.older_than.map_or(self.place.began, |age| self.place.began.minus(age));
        let looked_at = page.dead.len();
        let in_time = |dead: &Dead| dead.died_at <= until;
        let past = page.dead.last().is_some_and(|last| !in_time(last));
        let mut found = page.dead.into_iter().filter(|dead| in_time(dead) && self.filter.matches(dead));
        let dead: Vec<Dead> = found.by_ref().take(most).collect();
        let left_out = found.next().is_some();
        self.place.after = match dead.last() {
            Some(last) if left_out => Some(DeadLetterCursor { died_at: last.died_at, id: last.id.clone() }),
            _ => page.next.filter(|_| !past),
        };
        if self.place.after.is_none() {
            self.place.partition = Partition(partition.0 + 1);
        }
        Ok(DeadLetterMatch { partition, looked_at, dead })
    }

    /// The place in front of the first message that is young enough: behind every id of the millisecond before.
    fn before_the_youngest(&self) -> Result<Option<DeadLetterCursor>> {
        let Some(age) = self.filter.younger_than else { return Ok(None) };
        let died_at = self.place.began.minus(age).minus(Duration::from_millis(1));
        Ok(Some(DeadLetterCursor { died_at, id: MessageId::new("~".repeat(ID_BYTES_MAX))? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_and_garbage_is_refused() -> Result<()> {
        let after = DeadLetterCursor { died_at: Timestamp::from_ms(5), id: MessageId::new("a.b.c")? };
        for after in [None, Some(after)] {
            let place = DeadLetterPosition { began: Timestamp::from_ms(7), partition: Partition(3), after };
            assert_eq!(DeadLetterPosition::read(&place.cursor())?, place);
        }
        for bad in ["", "x", "7", "7.x", "7.1.2", "7.1.x.y", "7.1.2.a b", "7.70000"] {
            assert!(DeadLetterPosition::read(bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
