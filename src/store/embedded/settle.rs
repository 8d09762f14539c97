//! Applying an owner's decisions, all or none.

use std::collections::{HashMap, HashSet};

use sled::Batch;

use super::Inner;
use super::dead::bury;
use super::keys::Score;
use super::pair::{Counts, PairState, Stored};
use super::reservation::{Entry, reservation_entries, reservation_name, reservation_value};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::store::{Epoch, Settlement};

/// Expired entries of `seen` that a settlement forgets beyond as many as it adds, so that `seen` shrinks.
const PRUNED_EXTRA: usize = 16;

impl Inner {
    /// Writes a settlement. A message that is not there is passed over: it was settled before.
    pub(super) fn settle(
        &self,
        stored: &Stored<'_>,
        pair: &mut PairState,
        seen: &mut u64,
        epoch: &Epoch,
        settlement: &Settlement,
    ) -> Result<()> {
        if settlement.len() > CALL_IDS_MAX {
            let detail = format!("{} decisions in one call, at most {CALL_IDS_MAX}", settlement.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        let now = self.now();
        let (mut batch, mut counts, mut done) = (Batch::default(), pair.counts, HashSet::new());
        let mut acked = Vec::with_capacity(settlement.acked.len());
        for id in &settlement.acked {
            if done.insert(id) && stored.hash().remove(&mut batch, id.as_str().as_bytes())? {
                stored.uncharge(&mut batch, id);
                counts.hash = counts.hash.saturating_sub(1);
                acked.push(id);
            }
        }
        for retried in &settlement.retried {
            if done.insert(&retried.id) && stored.hash().has(&retried.id)? {
                schedule(stored, &mut batch, &mut counts, &retried.id, retried.next_at)?;
                stored.charge(&mut batch, &retried.id, retried.attempts, retried.failure.as_ref())?;
            }
        }
        let places = places(stored, epoch, settlement)?;
        for returned in &settlement.returned {
            if done.insert(&returned.id) && stored.hash().has(&returned.id)? {
                let place = places.get(&returned.id).copied().unwrap_or(returned.ready_at.into());
                schedule(stored, &mut batch, &mut counts, &returned.id, place)?;
            }
        }
        for kept in &settlement.kept {
            if stored.hash().has(&kept.id)? {
                stored.charge_until(&mut batch, &kept.id, kept.attempts, kept.next_at, kept.failure.as_ref())?;
            }
        }
        for buried in &settlement.buried {
            let body = if done.insert(&buried.id) { stored.hash().get(&buried.id)? } else { None };
            if let Some(body) = body {
                unschedule(stored, &mut batch, &mut counts, &buried.id)?;
                bury(stored, &mut batch, buried, &body, now)?;
                counts.hash = counts.hash.saturating_sub(1);
                counts.dead += 1;
            }
        }
        for (reservation, ids) in &settlement.remaining {
            let name = reservation_name(epoch, *reservation);
            stored.reservations().remove(&mut batch, &name)?;
            if !ids.is_empty() {
                let entry = |id: &MessageId| Entry { id: id.clone(), place: places.get(id).copied() };
                let entries: Vec<Entry> = ids.iter().map(entry).collect();
                stored.reservations().add(&mut batch, &name, &reservation_value(&entries)?);
            }
        }
        let mut remembered = *seen;
        if !settlement.dedup_window.is_zero() {
            let until = now.plus(settlement.dedup_window);
            remember(stored, &mut batch, &mut remembered, &acked, now, until)?;
        }
        self.apply(batch)?;
        pair.counts = counts;
        *seen = remembered;
        Ok(())
    }
}

/// Puts a message into the zset, or moves it there.
fn schedule(
    stored: &Stored<'_>,
    batch: &mut Batch,
    counts: &mut Counts,
    id: &MessageId,
    score: impl Into<Score>,
) -> Result<()> {
    let score = score.into();
    unschedule(stored, batch, counts, id)?;
    stored.zset().add(batch, id, score);
    counts.scheduled(score.at);
    Ok(())
}

/// Takes a message out of the zset, if it is there.
fn unschedule(stored: &Stored<'_>, batch: &mut Batch, counts: &mut Counts, id: &MessageId) -> Result<()> {
    if let Some(score) = stored.zset().score(id)? {
        stored.zset().remove(batch, id, score);
        counts.unscheduled(score.at);
    }
    Ok(())
}

/// Where the messages stood whose reservations a settlement rewrites; none in a topic without ordering.
fn places(stored: &Stored<'_>, epoch: &Epoch, settlement: &Settlement) -> Result<HashMap<MessageId, Score>> {
    let mut places = HashMap::new();
    for (reservation, _) in &settlement.remaining {
        let value = stored.reservations().value(&reservation_name(epoch, *reservation))?;
        let entries = value.map_or(Ok(Vec::new()), |value| reservation_entries(&value))?;
        places.extend(entries.into_iter().filter_map(|entry| Some((entry.id, entry.place?))));
    }
    Ok(places)
}

/// Remembers acked ids until then, and forgets some that have expired.
fn remember(
    stored: &Stored<'_>,
    batch: &mut Batch,
    count: &mut u64,
    acked: &[&MessageId],
    now: Timestamp,
    until: Timestamp,
) -> Result<()> {
    let seen = stored.seen();
    let mut forgotten = HashSet::new();
    for entry in seen.iter().take(acked.len() + PRUNED_EXTRA) {
        let (expired, id) = entry?;
        if expired.at > now {
            break;
        }
        seen.remove(batch, &id, expired);
        *count = count.saturating_sub(1);
        forgotten.insert(id);
    }
    for id in acked {
        let old = if forgotten.contains(*id) { None } else { seen.score(id)? };
        match old {
            Some(old) => seen.remove(batch, id, old),
            None => *count += 1,
        }
        seen.add(batch, id, until.max(old.map_or(until, |old| old.at)));
    }
    Ok(())
}
