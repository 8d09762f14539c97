//! The owner of a partition: the handle of one epoch.
//!
//! Within one process no call is lost and no answer is, so the sequence of numbered calls is trivially kept: a call is
//! applied under the partition's lock if its epoch is still the partition's, and refused otherwise.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sled::Batch;

use super::collections::{Entry, reservation_entries, reservation_name, reservation_value};
use super::dead_letters::bury;
use super::group_partition::{Counts, GroupPartitionState, LastEpoch, Lease, Stored};
use super::keys::Score;
use super::reserve::{Wanted, reserve};
use super::topics::{PartitionState, locked};
use super::{Embedded, Inner};
use crate::codec::body_due_at;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_IDS_MAX, RECOVER_IDS_MAX, SORTED_KEYS_MAX};
use crate::model::message::{Key, MessageId};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{
    self, Acquired, Channel, Charge, Claim, Epoch, HeadState, KeyCount, MemberId, Owner, OwnerRecord, PausedKey,
    Recovered, Renewal, RepairCursor, Repaired, Reservation, ReserveLimit, Reserved, Settlement, Sorted, SortedKeys,
};

struct Handle {
    inner: Arc<Inner>,
    group_partition: GroupPartition,
    epoch: Epoch,
    last_delivery: Timestamp,
    reservations: u64,
    ordered: bool,
    in_doubt: bool,
}

#[async_trait]
impl store::Leases for Embedded {
    /// Takes the lease of a partition, if it is free or this member's. The new epoch's number need not be on disk before the
    /// answer: it lies in sled's log before every reservation that bears it, so none of those can survive without it.
    async fn acquire(
        &self,
        group_partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        let this = self.opened()?;
        let topics = this.topics();
        let topic = topics.live(&group_partition.topic).filter(|topic| topic.descriptor().generation <= generation);
        let stale =
            || Error::stale(format!("topic {} has changed or is deleted: read it again", group_partition.topic));
        let topic = topic.ok_or_else(stale)?;
        let place = topic.place(group_partition.partition, &group_partition.group);
        let place = place.ok_or_else(|| Error::not_found(format!("there is no {group_partition}")))?;
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let state = state.groups.entry(place.group).or_default();
        let now = this.clock.local().instant();
        if let Some(lease) = &state.lease
            && let Some(holder) = lease.member(now)
            && holder != member
        {
            return Ok(Acquired::Held { by: holder.clone(), expires_in: lease.left(now) });
        }
        let stored = Stored::new(&this.tree, place);
        let last = stored.last_epoch()?;
        let last_delivery = match last {
            LastEpoch::Never => Timestamp::ZERO,
            LastEpoch::Begun(_) => this.now(),
            LastEpoch::Released(_, last_delivery) => last_delivery,
        };
        let epoch = Epoch::after(last.number());
        let mut batch = Batch::default();
        stored.begin_epoch(&mut batch, epoch.number());
        this.apply(batch)?;
        state.lease = Some(Lease::new(member.clone(), epoch.clone(), now, ttl));
        Ok(Acquired::Owned(Box::new(Handle {
            inner: this.clone(),
            group_partition: group_partition.clone(),
            epoch,
            last_delivery,
            reservations: 0,
            ordered: false,
            in_doubt: false,
        })))
    }

    /// No other process owns anything here.
    async fn owner_records(&self, partitions: &[GroupPartition]) -> Result<Vec<Option<OwnerRecord>>> {
        Ok(vec![None; partitions.len()])
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        let this = self.opened();
        let renew = |claim| this.as_ref().map_err(Clone::clone).and_then(|this| this.renew_claim(member, claim, ttl));
        claims.iter().map(renew).collect()
    }
}

impl Inner {
    fn renew_claim(&self, member: &MemberId, claim: &Claim, ttl: Duration) -> Result<Renewal> {
        self.committer.check()?;
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(&claim.group_partition) else {
            return Ok(Renewal::Lost { by: None });
        };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let lease = state.groups.get_mut(&place.group).and_then(|partition| partition.lease.as_mut());
        let Some(lease) = lease else { return Ok(Renewal::Lost { by: None }) };
        let now = self.clock.local().instant();
        if !lease.prolong(member, &claim.epoch, now, ttl) {
            return Ok(Renewal::Lost { by: lease.member(now).cloned() });
        }
        let head = Stored::new(&self.tree, place).zset().head()?;
        Ok(Renewal::Kept(HeadState { head, generation: topic.descriptor().generation, is_moving: false }))
    }

    /// Writes a settlement. A message that is not there is passed over: it was settled before. Answers whether one took the place of
    /// another.
    fn settle(
        &self,
        stored: &Stored<'_>,
        partition: &mut GroupPartitionState,
        seen: &mut u64,
        epoch: &Epoch,
        settlement: &Settlement,
    ) -> Result<bool> {
        if settlement.len() > CALL_IDS_MAX {
            let detail = format!("{} decisions in one call, at most {CALL_IDS_MAX}", settlement.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        let now = self.now();
        let (mut batch, mut counts, mut done) = (Batch::default(), partition.counts(), HashSet::new());
        let (mut acked, mut has_successor) = (Vec::with_capacity(settlement.acked.len()), false);
        for id in &settlement.acked {
            if done.insert(id) {
                let (was_there, is_followed) = stored.end(&mut batch, &mut counts, id)?;
                acked.extend(was_there.then_some(id));
                has_successor |= is_followed;
            }
        }
        for retried in &settlement.retried {
            if done.insert(&retried.id) && stored.hash().has(&retried.id)? {
                schedule(stored, &mut batch, &mut counts, &retried.id, retried.next_at)?;
                stored.charge(&mut batch, &retried.id, retried.attempts, retried.failure.as_ref())?;
            }
        }
        let positions = positions(stored, epoch, settlement)?;
        for returned in &settlement.returned {
            if done.insert(&returned.id) && stored.hash().has(&returned.id)? {
                let position = positions.get(&returned.id).copied().unwrap_or(returned.ready_at.into());
                schedule(stored, &mut batch, &mut counts, &returned.id, position)?;
            }
        }
        for Sorted { id, key, ready_at } in &settlement.sorted {
            if done.insert(id) && stored.hash().has(id)? && stored.zset().score(id)?.is_none() {
                stored.sort(&mut batch, &mut counts, id, *ready_at, key.as_ref());
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
                has_successor |= bury(stored, &mut batch, &mut counts, buried, &body, now)?;
            }
        }
        rewrite_reservations(stored, &mut batch, epoch, settlement, &positions)?;
        let (over, paused) = pauses(stored, &mut batch, partition, settlement, now);
        let mut remembered = *seen;
        if !settlement.dedup_window.is_zero() {
            let until = now.plus(settlement.dedup_window);
            remember(stored, &mut batch, &mut remembered, &acked, now, until)?;
        }
        self.apply(batch)?;
        partition.put(counts);
        partition.forget_paused(&over);
        paused.into_iter().for_each(|(key, until)| partition.found_paused(key.clone(), until));
        *seen = remembered;
        Ok(has_successor)
    }
}

impl Handle {
    /// Does something under the partition's lock, if this epoch still owns the partition.
    fn owned<T>(&self, act: impl FnOnce(&Stored<'_>, &mut GroupPartitionState, &mut u64) -> Result<T>) -> Result<T> {
        let stale = || Error::stale(format!("epoch {} does not own {} any more", self.epoch, self.group_partition));
        let topics = self.inner.topics();
        let (topic, place) = topics.group_partition(&self.group_partition).ok_or_else(stale)?;
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let PartitionState { groups, seen, .. } = &mut *state;
        let partition = groups.get_mut(&place.group).ok_or_else(stale)?;
        if !partition.lease.as_ref().is_some_and(|lease| lease.has_epoch(&self.epoch)) {
            return Err(stale());
        }
        act(&Stored::new(&self.inner.tree, place), partition, seen)
    }
}

#[async_trait]
impl Owner for Handle {
    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    fn keep_positions(&mut self) {
        self.ordered = true;
    }

    async fn recover(&mut self) -> Result<Recovered> {
        self.owned(|stored, partition, _| recover(&self.inner, stored, partition, &self.epoch))
    }

    async fn repair(&mut self, _from: Option<RepairCursor>) -> Result<Repaired> {
        self.owned(|stored, partition, _| repair(&self.inner, stored, partition))
    }

    async fn reserve(&mut self, limit: ReserveLimit) -> Result<Reserved> {
        self.reserve_by_key(limit, &[], None).await
    }

    async fn reserve_by_key(
        &mut self,
        limit: ReserveLimit,
        keys: &[KeyCount],
        share: Option<usize>,
    ) -> Result<Reserved> {
        let reservation = Reservation(self.reservations + 1);
        let name = reservation_name(&self.epoch, reservation);
        let wanted = Wanted { limit, keys, share, is_ordered: self.ordered };
        let reserved =
            self.owned(|stored, partition, _| reserve(&self.inner, stored, partition, &wanted, (reservation, &name)))?;
        self.reservations = reservation.0;
        Ok(reserved)
    }

    async fn sorted_keys(&mut self, after: Option<&KeyCount>) -> Result<SortedKeys> {
        self.owned(|_, partition, _| Ok(partition.sorted_keys(after, SORTED_KEYS_MAX)))
    }

    async fn settle(&mut self, settlement: &Settlement) -> Result<()> {
        let applied =
            self.owned(|stored, partition, seen| self.inner.settle(stored, partition, seen, &self.epoch, settlement));
        // A disk that fails may have written it all the same, and so may one whose answer nobody waits for.
        self.in_doubt = !applied.as_ref().is_err_and(|error| error.kind() == Kind::Stale);
        if applied? {
            self.inner.wakes.wake(&Channel::head(&self.group_partition));
        }
        self.inner.committer.commit().await?;
        self.in_doubt = false;
        Ok(())
    }

    async fn start(&mut self, charges: &[Charge]) -> Result<()> {
        self.owned(|stored, _, _| {
            let mut batch = Batch::default();
            for charge in charges {
                if stored.hash().has(&charge.id)? {
                    stored.charge(&mut batch, &charge.id, charge.attempts, None)?;
                }
            }
            self.inner.apply(batch)
        })
    }

    fn last_delivery(&self) -> Timestamp {
        self.last_delivery
    }

    async fn release(self: Box<Self>, last_delivery: Timestamp) -> Result<()> {
        self.owned(|stored, partition, _| {
            // Also if the disk takes nothing more: then the next epoch counts from its beginning.
            partition.lease = None;
            let mut batch = Batch::default();
            stored.release_epoch(&mut batch, self.epoch.number(), last_delivery);
            self.inner.apply(batch)
        })?;
        self.inner.wakes.wake(&Channel::release(&self.group_partition));
        Ok(())
    }
}

fn recover(
    inner: &Inner,
    stored: &Stored<'_>,
    partition: &mut GroupPartitionState,
    epoch: &Epoch,
) -> Result<Recovered> {
    let now = inner.now();
    let (mut batch, mut counts, mut scheduled) = (Batch::default(), partition.counts(), HashSet::new());
    let (mut room, mut more, mut left_behind) = (RECOVER_IDS_MAX, false, false);
    for entry in stored.reservations().below(&epoch.number().to_be_bytes()) {
        let (name, value) = entry?;
        left_behind = true;
        if room == 0 {
            more = true;
            break;
        }
        let entries = reservation_entries(&value)?;
        let (page, rest) = entries.split_at(entries.len().min(room));
        room -= page.len();
        for Entry { id, position } in page {
            let Some(body) = stored.hash().get(id)? else {
                stored.uncharge(&mut batch, id)?;
                continue;
            };
            if position.is_some_and(|position| body_due_at(&body).is_some_and(|due_at| position.at < due_at)) {
                // Of an earlier message of this id, which was acked: this one is in another reservation.
                continue;
            }
            // An id in the zset was acked and then pushed again: it stays where it is.
            if stored.zset().score(id)?.is_none() && scheduled.insert(id.clone()) {
                if stored.attempts(id)?.unwrap_or(0) == 0 {
                    match position {
                        Some(_) => stored.charge_until(&mut batch, id, 1, now, None)?,
                        None => stored.charge(&mut batch, id, 1, None)?,
                    }
                }
                let score = position.unwrap_or(now.into());
                stored.zset().add(&mut batch, id, score);
                counts.scheduled(score.at);
            }
        }
        stored.reservations().remove(&mut batch, &name)?;
        if !rest.is_empty() {
            stored.reservations().add(&mut batch, &name, &reservation_value(rest)?);
            more = true;
            break;
        }
    }
    inner.apply(batch)?;
    let orphans = if more { 0 } else { counts.hash.abs_diff(counts.zset) };
    partition.put(counts);
    Ok(Recovered {
        messages: scheduled.len(),
        left_behind,
        more,
        orphans,
        is_moving: false,
        has_sorted: partition.has_sorted(),
    })
}

/// Schedules again a page of the bodies that are not in the zset, which after a recovery are in no zset, and drops ids
/// that have no body. Repaired entries are not found again, so every page begins at the front.
fn repair(inner: &Inner, stored: &Stored<'_>, partition: &mut GroupPartitionState) -> Result<Repaired> {
    let (now, mut batch, mut counts, mut messages) = (inner.now(), Batch::default(), partition.counts(), 0);
    for id in stored.hash().ids() {
        let id = id?;
        if messages == RECOVER_IDS_MAX {
            break;
        }
        if stored.zset().score(&id)?.is_none() {
            let due_at = stored.hash().get(&id)?.and_then(|body| body_due_at(&body)).unwrap_or_default().max(now);
            stored.zset().add(&mut batch, &id, due_at);
            counts.scheduled(due_at);
            messages += 1;
        }
    }
    for entry in stored.zset().iter() {
        let (score, id) = entry?;
        if messages == RECOVER_IDS_MAX {
            break;
        }
        if !stored.hash().has(&id)? {
            stored.unschedule(&mut batch, &mut counts, &id, score)?;
            messages += 1;
        }
    }
    inner.apply(batch)?;
    partition.put(counts);
    let next = (messages == RECOVER_IDS_MAX).then(|| RepairCursor(String::new()));
    Ok(Repaired { messages, next })
}

/// Expired entries of `seen` that a settlement forgets beyond as many as it adds, so that `seen` shrinks.
const PRUNED_EXTRA: usize = 16;

pub(super) fn schedule(
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

pub(super) fn unschedule(stored: &Stored<'_>, batch: &mut Batch, counts: &mut Counts, id: &MessageId) -> Result<()> {
    if let Some(score) = stored.zset().score(id)? {
        stored.unschedule(batch, counts, id, score)?;
    }
    Ok(())
}

/// Pauses the keys of a settlement, and forgets the pauses that are over: which keys these are, and until when the others wait.
fn pauses<'a>(
    stored: &Stored<'_>,
    batch: &mut Batch,
    partition: &GroupPartitionState,
    settlement: &'a Settlement,
    now: Timestamp,
) -> (Vec<Key>, BTreeMap<&'a Key, Timestamp>) {
    let mut paused = BTreeMap::new();
    if settlement.paused.is_empty() {
        return (Vec::new(), paused);
    }
    for PausedKey { key, until } in &settlement.paused {
        let until = partition.pause_at_least(key, *until);
        let latest = paused.entry(key).or_insert(until);
        *latest = until.max(*latest);
    }
    let over = partition.no_longer_paused(now);
    over.iter().for_each(|key| stored.pause(batch, key, None));
    paused.iter().for_each(|(key, until)| stored.pause(batch, key, Some(*until)));
    (over, paused)
}

/// Where the messages stood whose reservations a settlement rewrites; none in a topic without ordering.
fn positions(stored: &Stored<'_>, epoch: &Epoch, settlement: &Settlement) -> Result<HashMap<MessageId, Score>> {
    let mut positions = HashMap::new();
    for (reservation, _) in &settlement.remaining {
        let value = stored.reservations().value(&reservation_name(epoch, *reservation))?;
        let entries = value.map_or(Ok(Vec::new()), |value| reservation_entries(&value))?;
        positions.extend(entries.into_iter().filter_map(|entry| Some((entry.id, entry.position?))));
    }
    Ok(positions)
}

/// Writes what remains in the reservations of which a settlement says so.
fn rewrite_reservations(
    stored: &Stored<'_>,
    batch: &mut Batch,
    epoch: &Epoch,
    settlement: &Settlement,
    positions: &HashMap<MessageId, Score>,
) -> Result<()> {
    for (reservation, ids) in &settlement.remaining {
        let name = reservation_name(epoch, *reservation);
        stored.reservations().remove(batch, &name)?;
        if !ids.is_empty() {
            let entry = |id: &MessageId| Entry { id: id.clone(), position: positions.get(id).copied() };
            let entries: Vec<Entry> = ids.iter().map(entry).collect();
            stored.reservations().add(batch, &name, &reservation_value(&entries)?);
        }
    }
    Ok(())
}

pub(super) fn remember(
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
