//! Dead messages: listing, redriving, purging and dropping them.
//!
//! The value of a dead message is `length of the record (4 bytes) | record | body`.

use std::collections::HashSet;

use async_trait::async_trait;
use bytes::Bytes;
use sled::Batch;

use super::pair::{Counts, Stored};
use super::topics::locked;
use super::{Embedded, Inner};
use crate::codec::{DeadRecord, body_version, decode_body, decode_dead, encode_dead};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::platform::disk::ChunkedValue;
use crate::store::{self, Buried, Channel, Dead, DeadBounds, DeadCursor, DeadDropped, DeadPage};

const LENGTH_BYTES: usize = 4;

#[async_trait]
impl store::DeadLetters for Embedded {
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(DeadPage::default()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&self.tree, place);
        let (mut page, mut bytes) = (DeadPage::default(), 0);
        let zset = stored.dead_zset();
        let entries: Box<dyn Iterator<Item = _>> = match after {
            Some(cursor) => Box::new(zset.after(cursor.died_at.into(), &cursor.id)),
            None => Box::new(zset.iter()),
        };
        for entry in entries {
            let (died_at, id) = entry?;
            let died_at = died_at.at;
            if page.dead.len() >= limit.clamp(1, CALL_IDS_MAX) || bytes >= CALL_BYTES_MAX {
                page.next = page.dead.last().map(|last| DeadCursor { died_at: last.died_at, id: last.id.clone() });
                break;
            }
            let value = stored.dead_hash().get(&id)?.ok_or_else(|| lost(&id))?;
            bytes += value.len();
            let (record, body) = read_dead(&value)?;
            let version = body_version(&body);
            page.dead.push(Dead { message: decode_body(id.clone(), body), id, died_at, record, version });
        }
        Ok(page)
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        let now = self.now();
        let mut wake = false;
        let answers = self.change_dead(pair, ids, |stored, batch, counts, id| {
            let (_, body) = read_dead(&stored.dead_hash().get(id)?.ok_or_else(|| lost(id))?)?;
            wake |= stored.zset().head()?.is_none_or(|head| now < head);
            stored.hash().add(batch, id.as_str().as_bytes(), &ChunkedValue::cut(&body)?);
            stored.zset().add(batch, id, now);
            counts.scheduled(now);
            counts.hash += 1;
            Ok(())
        })?;
        if wake {
            self.wakes.wake(&Channel::head(pair));
        }
        self.commit().await?;
        Ok(answers)
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        let answers = self.change_dead(pair, ids, |_, _, _, _| Ok(()))?;
        self.commit().await?;
        Ok(answers)
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        let (dropped, ids) = self.past_bounds(pair, bounds)?;
        if !ids.is_empty() {
            self.purge(pair, &ids).await?;
        }
        Ok(dropped)
    }
}

impl Inner {
    fn past_bounds(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<(DeadDropped, Vec<MessageId>)> {
        let (mut dropped, mut ids) = (DeadDropped::default(), Vec::new());
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok((dropped, ids)) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let Some(state) = state.pairs.get(&place.group) else { return Ok((dropped, ids)) };
        let mut left = state.counts.dead;
        for entry in Stored::new(&self.tree, place).dead_zset().iter() {
            let (died_at, id) = entry?;
            let died_at = died_at.at;
            let aged = bounds.died_before.is_some_and(|before| died_at < before);
            let past = aged || bounds.count.is_some_and(|count| left > count);
            if !past || ids.len() == RECOVER_IDS_MAX {
                (dropped.oldest, dropped.more) = (Some(died_at), past);
                break;
            }
            *(if aged { &mut dropped.aged } else { &mut dropped.surplus }) += 1;
            left = left.saturating_sub(1);
            ids.push(id);
        }
        Ok((dropped, ids))
    }

    /// Takes dead messages out of the dead zset and hash, and does `also` with each in the same batch.
    fn change_dead(
        &self,
        pair: &GroupPartition,
        ids: &[MessageId],
        mut also: impl FnMut(&Stored<'_>, &mut Batch, &mut Counts, &MessageId) -> Result<()>,
    ) -> Result<Vec<bool>> {
        if ids.len() > RECOVER_IDS_MAX {
            let detail = format!("{} dead messages in one call, at most {RECOVER_IDS_MAX}", ids.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(vec![false; ids.len()]) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let state = state.pairs.entry(place.group).or_default();
        let stored = Stored::new(&self.tree, place);
        let (mut batch, mut counts, mut done) = (Batch::default(), state.counts, HashSet::new());
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let died_at = if done.insert(id) { stored.dead_zset().score(id)? } else { None };
            if let Some(died_at) = died_at {
                also(&stored, &mut batch, &mut counts, id)?;
                stored.dead_zset().remove(&mut batch, id, died_at);
                stored.dead_hash().remove(&mut batch, id.as_str().as_bytes())?;
                counts.dead = counts.dead.saturating_sub(1);
            }
            answers.push(died_at.is_some());
        }
        self.apply(batch)?;
        state.counts = counts;
        Ok(answers)
    }
}

/// Moves a message from the hash to the dead zset and hash. The caller has made sure that it is not in the zset.
pub(super) fn bury(stored: &Stored<'_>, batch: &mut Batch, buried: &Buried, body: &[u8], now: Timestamp) -> Result<()> {
    let Buried { id, record, failure } = buried;
    let record = [encode_dead(record)?, stored.history(id, failure.as_ref())?].concat();
    let length = u32::try_from(record.len()).map_err(|_| Error::bug("a dead record of more than 4 GiB"))?;
    let value = [&length.to_be_bytes()[..], &record, body].concat();
    stored.dead_zset().add(batch, id, now);
    stored.dead_hash().add(batch, id.as_str().as_bytes(), &ChunkedValue::cut(&value)?);
    stored.hash().remove(batch, id.as_str().as_bytes())?;
    stored.uncharge(batch, id);
    Ok(())
}

pub(super) fn read_dead(value: &Bytes) -> Result<(DeadRecord, Bytes)> {
    let cut = || Error::corrupt("the value of a dead message is cut short");
    let length = value.first_chunk::<LENGTH_BYTES>().ok_or_else(cut)?;
    let end = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?.saturating_add(LENGTH_BYTES);
    let record = decode_dead(value.get(LENGTH_BYTES..end).ok_or_else(cut)?)?;
    Ok((record, value.slice(end..)))
}

fn lost(id: &MessageId) -> Error {
    Error::corrupt(format!("the dead message {id} has no body"))
}
