//! Looking at messages without taking them, and counting them. sled has no ranks, so a count goes through every entry: a
//! million take about a second, in which other tasks go on.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::collections::{Entry, Zset, reservation_entries};
use super::dead_letters::read_dead;
use super::group_partition::Stored;
use super::keys::Score;
use super::topics::locked;
use super::{Embedded, Inner};
use crate::codec::{body_version, decode_body};
use crate::model::error::Result;
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Key, MessageId};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{
    self, Forecast, InFlightCursor, Listed, MessageState, Outline, OutlinePage, Page, PartitionDepth, PartitionStats,
    PausedKey, Peeked, Spans, WaitingCursor, WaitingRange, Window, WindowPage,
};

/// Where a page continues: behind a message, or with its millisecond again if it is gone and had a place in that.
fn place_of(zset: &Zset<'_>, after: &WaitingCursor) -> Result<Score> {
    let score = zset.score(&after.id)?.filter(|score| score.at == after.next_at);
    Ok(score.unwrap_or(after.next_at.into()))
}

const TURN: usize = 1_000;

/// Reads a page of waiting messages, each with its id, time and body, and gives the position behind it if there is more.
fn visit_waiting<T>(
    stored: &Stored<'_>,
    window: Window,
    after: Option<&WaitingCursor>,
    limit: usize,
    mut read: impl FnMut(MessageId, Timestamp, Bytes) -> Result<T>,
) -> Result<(Vec<T>, Option<WaitingCursor>)> {
    let zset = stored.zset();
    let entries: Box<dyn Iterator<Item = _>> = match after {
        Some(after) => Box::new(zset.after(place_of(&zset, after)?, &after.id)),
        None => Box::new(zset.from(window.from)),
    };
    let (mut found, mut bytes, mut last) = (Vec::new(), 0, None);
    for entry in entries {
        let (Score { at: next_at, .. }, id) = entry?;
        if next_at >= window.to {
            break;
        }
        if found.len() >= limit.clamp(1, CALL_IDS_MAX) || bytes >= CALL_BYTES_MAX {
            return Ok((found, last));
        }
        if let Some(body) = stored.hash().get(&id)? {
            bytes += body.len();
            found.push(read(id.clone(), next_at, body)?);
        }
        last = Some(WaitingCursor { next_at, id });
    }
    Ok((found, None))
}

#[async_trait]
impl store::Reads for Embedded {
    async fn peek(&self, partition: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(None) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let lease = state.groups.get(&place.group).and_then(|partition| partition.lease.as_ref());
        let owner = lease.and_then(|lease| lease.member(this.clock.local().instant())).cloned();
        let stored = Stored::new(&this.tree, place);
        if let Some(body) = stored.hash().get(id)? {
            let next_at = stored.zset().score(id)?.map(|score| score.at);
            let state = match next_at {
                Some(at) if at > this.now() => MessageState::Scheduled,
                Some(_) => MessageState::Ready,
                None => MessageState::InFlight,
            };
            let attempts = stored.attempts(id)?.unwrap_or(0);
            let history = stored.failures(id)?;
            return Ok(Some(Peeked {
                version: body_version(&body),
                message: decode_body(id.clone(), body)?,
                state,
                next_at,
                attempts,
                owner,
                history,
                moving_to: None,
            }));
        }
        let (Some(died_at), Some(value)) = (stored.dead_zset().score(id)?, stored.dead_hash().get(id)?) else {
            return Ok(None);
        };
        let (record, body) = read_dead(&value)?;
        let version = body_version(&body);
        let (message, attempts) = (decode_body(id.clone(), body)?, record.attempts);
        Ok(Some(Peeked {
            message,
            version,
            state: MessageState::Dead { died_at: died_at.at, record },
            next_at: None,
            attempts,
            owner,
            history: Vec::new(),
            moving_to: None,
        }))
    }

    async fn check_kept(&self, _: &GroupPartition) -> Result<()> {
        Ok(())
    }

    async fn waiting(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(Page::default()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&this.tree, place);
        let (messages, next) =
            visit_waiting(&stored, window, after, limit, |id, next_at, body| listed(&stored, id, Some(next_at), body))?;
        Ok(Page { messages, next })
    }

    async fn outlines(&self, ranges: &[WaitingRange]) -> Result<Vec<OutlinePage>> {
        let this = self.opened()?;
        let page = |range: &WaitingRange| {
            let topics = this.topics();
            let Some((topic, place)) = topics.group_partition(&range.partition) else {
                return Ok(OutlinePage::default());
            };
            let state = topic.partition(place.partition);
            let _state = locked(&state);
            let outline = |id, next_at, body: Bytes| Ok(Outline { next_at, id, bytes: body.len() });
            let stored = Stored::new(&this.tree, place);
            let (messages, next) = visit_waiting(&stored, range.window, range.after.as_ref(), range.limit, outline)?;
            Ok(OutlinePage { messages, next })
        };
        ranges.iter().map(page).collect()
    }

    async fn in_flight(
        &self,
        partition: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(Page::default()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&this.tree, place);
        let after = after.and_then(|after| after.after.as_ref());
        let mut ids = BTreeSet::new();
        for entry in stored.reservations().below(&[u8::MAX; 9]) {
            for Entry { id, .. } in reservation_entries(&entry?.1)? {
                if after.is_none_or(|after| id > *after) {
                    ids.insert(id);
                }
            }
        }
        let (mut page, mut bytes, mut last) = (Page::default(), 0, None);
        for id in ids {
            let Some(body) = stored.hash().get(&id)? else { continue };
            if stored.zset().score(&id)?.is_some() {
                continue;
            }
            if page.messages.len() >= limit.clamp(1, CALL_IDS_MAX) || bytes >= CALL_BYTES_MAX {
                page.next = Some(InFlightCursor { step: "0".to_owned(), after: last });
                break;
            }
            bytes += body.len();
            page.messages.push(listed(&stored, id.clone(), None, body)?);
            last = Some(id);
        }
        Ok(page)
    }

    async fn paused_keys(&self, partition: &GroupPartition, limit: usize) -> Result<(u64, Vec<PausedKey>)> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok((0, Vec::new())) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let mut paused = state.groups.get(&place.group).map(|group| group.paused(this.now())).unwrap_or_default();
        let count = paused.len() as u64;
        paused.truncate(limit);
        Ok((count, paused))
    }

    async fn paused_until(&self, partition: &GroupPartition, key: &Key) -> Result<Option<Timestamp>> {
        let this = self.opened()?;
        let topics = this.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(None) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        Ok(state.groups.get(&place.group).and_then(|group| group.paused_until(key, this.now())))
    }

    async fn stats(&self, partitions: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        let this = self.opened()?;
        partitions.iter().map(|partition| this.stats_of(partition)).collect()
    }

    async fn depth(&self, partitions: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        let this = self.opened()?;
        let mut depths = Vec::with_capacity(partitions.len());
        for partition in partitions {
            depths.push(this.depth_of(partition, within).await?);
        }
        Ok(depths)
    }

    async fn forecast(&self, partitions: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        let this = self.opened()?;
        let mut forecasts = Vec::with_capacity(partitions.len());
        for partition in partitions {
            forecasts.push(this.forecast_of(partition, spans).await?);
        }
        Ok(forecasts)
    }

    async fn window(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        let this = self.opened()?;
        let mut page = WindowPage::default();
        let Some(place) = this.topics().group_partition(partition).map(|(_, place)| place) else { return Ok(page) };
        let zset = Stored::new(&this.tree, place).zset();
        let last = after.map(|(_, last)| zset.score(last)).transpose()?.flatten();
        let is_behind = |score: Score, id: &MessageId| match (after, last) {
            (None, _) => true,
            (Some((at, after)), Some(last)) if last.at == *at => (score.unsorted(), id) > (last.unsorted(), after),
            // It is gone. In a topic with ordering the page begins with its millisecond again.
            (Some((at, _)), _) if score.tie > 0 => score.at >= *at,
            (Some((at, after)), _) => (score.at, id) > (*at, after),
        };
        for (number, entry) in zset.from(window.from).enumerate() {
            let (score, id) = entry?;
            if score.at >= window.to {
                break;
            }
            page.count += 1;
            if page.messages.len() < limit && is_behind(score, &id) {
                page.messages.push((score.at, id));
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(page)
    }
}

impl Inner {
    fn stats_of(&self, partition: &GroupPartition) -> Result<PartitionStats> {
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(PartitionStats::default()) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let Some(state) = state.groups.get_mut(&place.group) else { return Ok(PartitionStats::default()) };
        let zset = Stored::new(&self.tree, place).zset();
        let (now, head) = (self.now(), zset.earliest()?);
        let ready = state.ready(zset, now)?;
        let counts = state.counts();
        Ok(PartitionStats {
            scheduled: counts.zset.saturating_sub(ready),
            ready,
            in_flight: counts.hash.saturating_sub(counts.zset),
            blocked: 0,
            backoff: 0,
            dead: counts.dead,
            head,
            oldest_ready_age: head.filter(|head| *head <= now).map(|head| now.since(head)),
            owner: state.lease.as_ref().and_then(|lease| lease.member(self.clock.local().instant())).cloned(),
        })
    }

    async fn forecast_of(&self, partition: &GroupPartition, spans: Spans) -> Result<Forecast> {
        let mut forecast = Forecast { spans: vec![0; spans.count], ..Forecast::default() };
        let Some(place) = self.topics().group_partition(partition).map(|(_, place)| place) else { return Ok(forecast) };
        let step = u64::try_from(spans.step.as_millis()).unwrap_or(u64::MAX).max(1);
        for (number, entry) in Stored::new(&self.tree, place).zset().iter().enumerate() {
            let (due, _) = entry?;
            let ahead = due.at.as_ms().saturating_sub(spans.from.as_ms());
            let span = usize::try_from(ahead.div_ceil(step)).unwrap_or(usize::MAX);
            match span.checked_sub(1).map(|index| forecast.spans.get_mut(index)) {
                None => forecast.ready += 1,
                Some(Some(count)) => *count += 1,
                Some(None) => forecast.later += 1,
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(forecast)
    }

    /// Messages that are due later than the longest span are not visited.
    async fn depth_of(&self, partition: &GroupPartition, within: &[Duration]) -> Result<PartitionDepth> {
        let mut depth = PartitionDepth { stats: self.stats_of(partition)?, due: vec![0; within.len()] };
        let Some(place) = self.topics().group_partition(partition).map(|(_, place)| place) else { return Ok(depth) };
        let (now, farthest) = (self.now(), within.iter().max().copied().unwrap_or_default());
        let scheduled = Stored::new(&self.tree, place).zset().from(now.plus(Duration::from_millis(1)));
        for (number, entry) in scheduled.enumerate() {
            let ahead = entry?.0.at.since(now);
            if ahead > farthest {
                break;
            }
            depth.due.iter_mut().zip(within).filter(|(_, span)| ahead <= **span).for_each(|(count, _)| *count += 1);
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(depth)
    }
}

fn listed(stored: &Stored<'_>, id: MessageId, next_at: Option<Timestamp>, body: Bytes) -> Result<Listed> {
    let attempts = stored.attempts(&id)?.unwrap_or(0);
    let history = stored.failures(&id)?;
    let message = decode_body(id.clone(), body);
    Ok(Listed { id, next_at, attempts, history, message })
}
