//! Looking at a pair without changing it.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Inner;
use super::dead::read_dead;
use super::keys::Score;
use super::pair::Stored;
use super::reservation::{Entry, reservation_entries};
use super::topics::locked;
use super::zset::Zset;
use crate::codec::{body_version, decode_body, decode_history};
use crate::model::error::Result;
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{InFlightCursor, Listed, Page, PartitionStats, Peeked, State, WaitingCursor, Window};

/// Where a page goes on: behind a message, or with its millisecond again if it is gone and had a place in that.
fn place_of(zset: &Zset<'_>, after: &WaitingCursor) -> Result<Score> {
    let score = zset.score(&after.id)?.filter(|score| score.at == after.next_at);
    Ok(score.unwrap_or(after.next_at.into()))
}

impl Inner {
    pub(super) fn peek(&self, pair: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(None) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let lease = state.pairs.get(&place.group).and_then(|pair| pair.lease.as_ref());
        let owner = lease.and_then(|lease| lease.member(self.clock.local().instant())).cloned();
        let stored = Stored::new(&self.tree, place);
        if let Some(body) = stored.hash().get(id)? {
            let next_at = stored.zset().score(id)?.map(|score| score.at);
            let state = match next_at {
                Some(at) if at > self.now() => State::Scheduled,
                Some(_) => State::Ready,
                None => State::InFlight,
            };
            let attempts = stored.attempts(id)?.unwrap_or(0);
            let history = decode_history(&stored.history(id, None)?)?;
            return Ok(Some(Peeked {
                version: body_version(&body),
                message: decode_body(id.clone(), body)?,
                state,
                next_at,
                attempts,
                owner,
                history,
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
            state: State::Dead { died_at: died_at.at, record },
            next_at: None,
            attempts,
            owner,
            history: Vec::new(),
        }))
    }

    pub(super) fn waiting(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(Page::default()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&self.tree, place);
        let (mut page, mut bytes) = (Page::default(), 0);
        let zset = stored.zset();
        let entries: Box<dyn Iterator<Item = _>> = match after {
            Some(after) => Box::new(zset.after(place_of(&zset, after)?, &after.id)),
            None => Box::new(zset.from(window.from)),
        };
        let mut last = None;
        for entry in entries {
            let (Score { at: next_at, .. }, id) = entry?;
            if next_at >= window.to {
                break;
            }
            if page.messages.len() >= limit.clamp(1, CALL_IDS_MAX) || bytes >= CALL_BYTES_MAX {
                page.next = last;
                break;
            }
            if let Some(body) = stored.hash().get(&id)? {
                bytes += body.len();
                page.messages.push(listed(&stored, id.clone(), Some(next_at), body)?);
            }
            last = Some(WaitingCursor { next_at, id });
        }
        Ok(page)
    }

    pub(super) fn in_flight(
        &self,
        pair: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(Page::default()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&self.tree, place);
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

    pub(super) fn stats(&self, pair: &GroupPartition) -> Result<PartitionStats> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(PartitionStats::default()) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let Some(state) = state.pairs.get_mut(&place.group) else { return Ok(PartitionStats::default()) };
        let zset = Stored::new(&self.tree, place).zset();
        let (now, head) = (self.now(), zset.head()?);
        let ready = state.counts.ready(zset, now)?;
        let counts = state.counts;
        Ok(PartitionStats {
            scheduled: counts.zset.saturating_sub(ready),
            ready,
            in_flight: counts.hash.saturating_sub(counts.zset),
            dead: counts.dead,
            head,
            oldest_ready_age: head.filter(|head| *head <= now).map(|head| now.since(head)),
            owner: state.lease.as_ref().and_then(|lease| lease.member(self.clock.local().instant())).cloned(),
        })
    }
}

fn listed(stored: &Stored<'_>, id: MessageId, next_at: Option<Timestamp>, body: Bytes) -> Result<Listed> {
    let attempts = stored.attempts(&id)?.unwrap_or(0);
    let history = decode_history(&stored.history(&id, None)?)?;
    let message = decode_body(id.clone(), body);
    Ok(Listed { id, next_at, attempts, history, message })
}
