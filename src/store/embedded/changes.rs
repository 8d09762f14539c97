//! Cancelling and rescheduling a message, what a partition remembers of cancelled ones, and purging a group.

use std::ops::Bound;
use std::time::Duration;

use sled::{Batch, Tree};

use super::Inner;
use super::commit::broken;
use super::group_partition::{Counts, Lease, Stored};
use super::keys::{KeyPrefix, Kind, Score, scored_of};
use super::owner::{remember, schedule, unschedule};
use super::topics::{PartitionState, Topic, Topics, locked};
use crate::codec::{body_due_at, body_version, decode_body, set_body_due_at, take_apart};
use crate::model::error::{Error, Kind as ErrorKind, Result};
use crate::model::limits::{
    CALL_IDS_MAX, CANCELLED_IDS_MAX, CANCELLED_KEPT, PAUSED_KEYS_MAX, RECENT_DECISIONS_MAX, RECOVER_IDS_MAX,
};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{
    Cancelled, Channel, Epoch, Fate, Fates, KeyPause, LateFate, LateSettlement, MemberId, Purge, Purged, Reschedule,
    Rescheduled, too_many_paused,
};

const FORGOTTEN_MAX: usize = 17;

/// The holder of the lease while a partition is purged; no broker has this name.
const HOLDER: &str = "purge";

/// How long it holds the lease from each page on.
const HELD_FOR: Duration = Duration::from_secs(10);

impl Inner {
    pub(super) fn cancel_now(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let topics = self.topics();
        let (topic, places) = current(&topics, descriptor, partition)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let Some((_, first)) = places.first() else { return Err(Error::bug("a topic without groups")) };
        let ids = CancelledIds::new(&self.tree, *first);
        let before = ids.get(id)?;
        let (mut batch, mut changed, mut fates) = (Batch::default(), Vec::new(), Vec::new());
        let at = self.now();
        for (group, place) in &places {
            let stored = Stored::new(&self.tree, *place);
            let fate = match stored.hash().get(id)? {
                Some(_) => match stored.zset().score(id)? {
                    Some(score) => {
                        let mut counts = counts_of(&state, *place);
                        take(&stored, &mut batch, &mut counts, id, score)?;
                        changed.push((place.group, counts));
                        Fate::Done
                    }
                    None => Fate::InFlight,
                },
                None if stored.dead_hash().has(id)? => Fate::Dead,
                None if before.as_ref().is_some_and(|before| !before.spared.contains(group)) => Fate::Done,
                None => Fate::Absent,
            };
            fates.push((group.clone(), fate));
        }
        let fates = Fates(fates);
        if changed.is_empty() {
            return Ok(Cancelled { fates, version: before.map(|before| version_at(before.at)), buffered: false });
        }
        let at = before.as_ref().map_or(at, |before| at.max(before.at));
        let spared = fates.0.iter().filter(|(_, fate)| *fate != Fate::Done).map(|(group, _)| group.clone()).collect();
        let mut remembered = state.cancelled + u64::from(before.is_none());
        self.forget_old(&ids, &mut batch, &mut remembered, id)?;
        ids.set(&mut batch, id, before.as_ref(), &Memory { at, spared });
        self.apply(batch)?;
        state.cancelled = remembered;
        for (group, counts) in changed {
            state.groups.entry(group).or_default().put(counts);
        }
        Ok(Cancelled { fates, version: Some(version_at(at)), buffered: false })
    }

    /// Forgets what was cancelled too long ago, and the oldest ones past the limit; not `id`, which is being cancelled.
    fn forget_old(
        &self,
        ids: &CancelledIds<'_>,
        batch: &mut Batch,
        remembered: &mut u64,
        id: &MessageId,
    ) -> Result<()> {
        let now = self.now();
        for entry in ids.iter().take(FORGOTTEN_MAX) {
            let (at, old) = entry?;
            if *remembered <= CANCELLED_IDS_MAX as u64 && now.since(at) <= CANCELLED_KEPT {
                break;
            }
            if old != *id {
                ids.forget(batch, &old, at);
                *remembered = remembered.saturating_sub(1);
            }
        }
        Ok(())
    }

    pub(super) fn reschedule_now(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        version: Version,
        reschedule: &Reschedule,
    ) -> Result<(Rescheduled, bool)> {
        let topics = self.topics();
        let (topic, places) = current(&topics, descriptor, partition)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let (id, due_at, expected) = (&reschedule.id, reschedule.due_at, reschedule.expected);
        let (mut batch, mut changed, mut fates) = (Batch::default(), Vec::new(), Vec::new());
        let mut wake = false;
        for (group, place) in &places {
            let stored = Stored::new(&self.tree, *place);
            let Some(body) = stored.hash().get(id)? else {
                let fate = if stored.dead_hash().has(id)? { Fate::Dead } else { Fate::Absent };
                fates.push((group.clone(), fate));
                continue;
            };
            let Some(score) = stored.zset().score(id)? else {
                fates.push((group.clone(), Fate::InFlight));
                continue;
            };
            let (due, attempts) = (body_due_at(&body).unwrap_or_default(), stored.attempts(id)?.unwrap_or(0));
            let as_expected = expected.due_at.is_none_or(|expected| expected == due)
                && expected.attempts.is_none_or(|expected| expected == attempts);
            if !as_expected && (score.at, due) != (due_at, due_at) {
                return Ok((Rescheduled::Changed(group.clone()), false));
            }
            let message = decode_body(id.clone(), body.clone());
            if message.is_ok_and(|message| message.envelope.expires_at.is_some_and(|expires_at| expires_at <= due_at)) {
                return Ok((Rescheduled::Expires, false));
            }
            wake |= stored.zset().head()?.is_none_or(|head| due_at < head);
            let mut counts = counts_of(&state, *place);
            stored.unschedule(&mut batch, &mut counts, id, score)?;
            stored.zset().add(&mut batch, id, due_at);
            counts.scheduled(due_at);
            stored.postpone_attempt(&mut batch, id, due_at)?;
            stored.hash().remove(&mut batch, id.as_str().as_bytes())?;
            let mut body = body.to_vec();
            set_body_due_at(&mut body, due_at, version);
            stored.hash().add(&mut batch, id.as_str().as_bytes(), &ChunkedValue::cut(&body)?);
            changed.push((place.group, counts));
            fates.push((group.clone(), Fate::Done));
        }
        self.apply(batch)?;
        for (group, counts) in changed {
            state.groups.entry(group).or_default().put(counts);
        }
        Ok((Rescheduled::Done(Fates(fates)), wake))
    }
}

impl Inner {
    /// One after the other, so that equal ids meet. Answers also whether one is due before all that wait.
    pub(super) fn settle_late_now(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        settlements: &[LateSettlement],
    ) -> Result<(Vec<LateFate>, bool)> {
        if settlements.len() > CALL_IDS_MAX {
            let detail = format!("{} late settlements in one call, at most {CALL_IDS_MAX}", settlements.len());
            return Err(Error::new(ErrorKind::TooLarge, detail));
        }
        let topics = self.topics();
        let (topic, places) = current(&topics, descriptor, partition)?;
        let place = places.iter().find(|(name, _)| name == group).map(|(_, place)| *place);
        let place = place.ok_or_else(|| Error::not_found(format!("there is no group {group}")))?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let (mut fates, mut wake) = (Vec::with_capacity(settlements.len()), false);
        for late in settlements {
            let (fate, earlier) = self.settle_one_late(descriptor, place, &mut state, late)?;
            fates.push(fate);
            wake |= earlier;
        }
        Ok((fates, wake))
    }

    fn settle_one_late(
        &self,
        descriptor: &Descriptor,
        place: KeyPrefix,
        state: &mut PartitionState,
        late: &LateSettlement,
    ) -> Result<(LateFate, bool)> {
        let stored = Stored::new(&self.tree, place);
        let PartitionState { groups, seen, .. } = state;
        let partition = groups.entry(place.group).or_default();
        let Some(body) = stored.hash().get(&late.id)? else {
            let is_acked = |(id, version): &(MessageId, Version)| *id == late.id && *version == late.version;
            let is_gone = late.redelivered && !stored.dead_hash().has(&late.id)?;
            let fate = match late.next_at {
                None if partition.acked_late.iter().any(is_acked) => LateFate::Repeated,
                None if is_gone => LateFate::Gone,
                _ => LateFate::Over,
            };
            return Ok((fate, false));
        };
        if body_version(&body) != late.version {
            return Ok((LateFate::Over, false));
        }
        let score = stored.zset().score(&late.id)?;
        // After a release nobody owns what a reservation holds; with ordering its place is known only there.
        let is_left = partition.lease.is_none() && (late.next_at.is_none() || !descriptor.is_ordered());
        if score.is_none() && !is_left {
            return Ok((LateFate::InFlight, false));
        }
        let charged = stored.attempts(&late.id)?.unwrap_or(0).max(u32::from(score.is_none()));
        if !late.is_for(charged) {
            return Ok((LateFate::Over, false));
        }
        let (mut batch, mut counts, mut remembered, now) = (Batch::default(), partition.counts(), *seen, self.now());
        let mut wake = false;
        match late.next_at {
            None => {
                unschedule(&stored, &mut batch, &mut counts, &late.id)?;
                (_, wake) = stored.end(&mut batch, &mut counts, &late.id)?;
                let window = descriptor.settings.dedup_window;
                if !window.is_zero() {
                    remember(&stored, &mut batch, &mut remembered, &[&late.id], now, now.plus(window))?;
                }
            }
            Some(next_at) if descriptor.is_ordered() => {
                stored.charge_until(&mut batch, &late.id, late.attempt, next_at, late.failure.as_ref())?;
            }
            Some(next_at) => {
                wake = stored.zset().head()?.is_none_or(|head| next_at < head);
                schedule(&stored, &mut batch, &mut counts, &late.id, next_at)?;
                stored.charge(&mut batch, &late.id, late.attempt, late.failure.as_ref())?;
            }
        }
        let key = if late.pauses_key { decode_body(late.id.clone(), body)?.envelope.key } else { None };
        let paused = key.zip(late.next_at).map(|(key, until)| (partition.pause_at_least(&key, until), key));
        paused.iter().for_each(|(until, key)| stored.pause(&mut batch, key, Some(*until)));
        self.apply(batch)?;
        partition.put(counts);
        paused.into_iter().for_each(|(until, key)| partition.found_paused(key, until));
        *seen = remembered;
        if late.next_at.is_none() {
            partition.acked_late.truncate(RECENT_DECISIONS_MAX - 1);
            partition.acked_late.push_front((late.id.clone(), late.version));
        }
        Ok((LateFate::Done, wake))
    }
}

/// The topic and the places of its groups in a partition. Errors: `Stale` when the topic has changed.
pub(super) fn current<'a>(
    topics: &'a Topics,
    descriptor: &Descriptor,
    partition: Partition,
) -> Result<(&'a Topic, Vec<(GroupName, KeyPrefix)>)> {
    let topic = topics.live(&descriptor.topic).filter(|topic| topic.descriptor().generation == descriptor.generation);
    let stale = || Error::stale(format!("topic {} has changed or is deleted: read it again", descriptor.topic));
    let topic = topic.ok_or_else(stale)?;
    let groups = descriptor.groups.iter();
    let places = groups.filter_map(|group| Some((group.clone(), topic.place(partition, group)?)));
    Ok((topic, places.collect()))
}

fn version_at(at: Timestamp) -> Version {
    Version::from_us(at.as_ms().saturating_mul(1_000))
}

pub(super) fn counts_of(state: &PartitionState, place: KeyPrefix) -> Counts {
    state.groups.get(&place.group).map_or(Counts::default(), |partition| partition.counts())
}

fn take(stored: &Stored<'_>, batch: &mut Batch, counts: &mut Counts, id: &MessageId, score: Score) -> Result<()> {
    stored.unschedule(batch, counts, id, score)?;
    stored.hash().remove(batch, id.as_str().as_bytes())?;
    counts.hash = counts.hash.saturating_sub(1);
    stored.uncharge(batch, id)?;
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    /// When it was cancelled: what was pushed before stays away.
    pub(super) at: Timestamp,
    pub(super) spared: Vec<GroupName>,
}

#[derive(Clone, Copy)]
pub(super) struct CancelledIds<'a> {
    tree: &'a Tree,
    place: KeyPrefix,
}

impl<'a> CancelledIds<'a> {
    pub(super) fn new(tree: &'a Tree, place: KeyPrefix) -> CancelledIds<'a> {
        CancelledIds { tree, place: place.shared() }
    }

    pub(super) fn get(&self, id: &MessageId) -> Result<Option<Memory>> {
        let Some(value) = self.tree.get(self.key(id)).map_err(broken)? else { return Ok(None) };
        let wrong = || Error::corrupt("the store holds an unreadable note of a cancelled message");
        let (at, spared) = value.split_first_chunk::<8>().ok_or_else(wrong)?;
        let spared = std::str::from_utf8(spared).map_err(|_| wrong())?;
        let spared = spared.split_whitespace().map(GroupName::new).collect::<Result<_>>().map_err(|_| wrong())?;
        Ok(Some(Memory { at: Timestamp::from_ms(u64::from_be_bytes(*at)), spared }))
    }

    pub(super) fn set(&self, batch: &mut Batch, id: &MessageId, before: Option<&Memory>, memory: &Memory) {
        if let Some(before) = before {
            batch.remove(self.place.scored(Kind::CancelledByScore, before.at, id.as_str()));
        }
        batch.insert(self.place.scored(Kind::CancelledByScore, memory.at, id.as_str()), b"");
        let mut value = memory.at.as_ms().to_be_bytes().to_vec();
        for group in &memory.spared {
            value.push(b' ');
            value.extend_from_slice(group.as_str().as_bytes());
        }
        batch.insert(self.key(id), value);
    }

    pub(super) fn forget(&self, batch: &mut Batch, id: &MessageId, at: Timestamp) {
        batch.remove(self.place.scored(Kind::CancelledByScore, at, id.as_str()));
        batch.remove(self.key(id));
    }

    /// A push makes a cancelled id a message again, so it is not cancelled any more. Answers how many ids are forgotten.
    pub(super) fn uncancel(&self, batch: &mut Batch, id: &MessageId) -> Result<u64> {
        let Some(memory) = self.get(id)? else { return Ok(0) };
        self.forget(batch, id, memory.at);
        Ok(1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Result<(Timestamp, MessageId)>> + use<> {
        let from = Bound::Included(self.place.of(Kind::CancelledByScore));
        let to = Bound::Excluded(self.place.behind(Kind::CancelledByScore));
        self.tree.range((from, to)).keys().map(|key| {
            let (score, id) = scored_of(&key.map_err(broken)?)?;
            Ok((score.at, id))
        })
    }

    fn key(&self, id: &MessageId) -> Vec<u8> {
        self.place.named(Kind::CancelledById, id.as_str().as_bytes())
    }
}

struct Page {
    deleted: u64,
    last: Option<MessageId>,
}

/// A purge goes page by page, so that pushes to the partition go on meanwhile. It holds the lease of the partition, so nothing
/// is handed out until it is over; one that is given up leaves a lease that lapses.
impl Inner {
    /// Deletes the messages that are there when it begins; those pushed meanwhile stay, since they have later versions.
    pub(super) fn pause_now(&self, descriptor: &Descriptor, partition: Partition, pause: &KeyPause) -> Result<()> {
        let KeyPause { group, key, until } = pause;
        let topics = self.topics();
        let (topic, _) = current(&topics, descriptor, partition)?;
        let no_group = || Error::not_found(format!("topic {} has no group {group}", descriptor.topic));
        let place = topic.place(partition, group).ok_or_else(no_group)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let (state, now) = (state.groups.entry(place.group).or_default(), self.now());
        let (stored, mut batch, over) = (Stored::new(&self.tree, place), Batch::default(), state.no_longer_paused(now));
        if until.is_some()
            && state.paused_until(key, now).is_none()
            && state.count_paused() - over.len() >= PAUSED_KEYS_MAX
        {
            return Err(too_many_paused());
        }
        over.iter().for_each(|key| stored.pause(&mut batch, key, None));
        stored.pause(&mut batch, key, *until);
        self.apply(batch)?;
        state.forget_paused(&over);
        state.forget_paused(std::slice::from_ref(key));
        until.iter().for_each(|until| state.found_paused(key.clone(), *until));
        Ok(())
    }

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
        let epoch = Epoch::after(stored.last_epoch()?.number());
        let now = self.clock.local().instant();
        group_partition.lease = Some(Lease::new(MemberId::from_store(HOLDER), epoch, now, HELD_FOR));
        let (mut batch, mut counts) = (Batch::default(), group_partition.counts());
        let mut page = Page { deleted: 0, last: None };
        for id in stored.hash().ids_after(after) {
            let id = id?;
            let mut successor = None;
            if let Some(most) = most
                && let Some(body) = stored.hash().get(&id)?
            {
                if body_version(&body) > most {
                    continue;
                }
                successor = take_apart(&body).map(|followed| followed.successor);
                successor = successor.filter(|successor| body_version(successor) > most);
            }
            unschedule(&stored, &mut batch, &mut counts, &id)?;
            stored.hash().remove(&mut batch, id.as_str().as_bytes())?;
            stored.uncharge(&mut batch, &id)?;
            match successor {
                // It was pushed since.
                Some(successor) => stored.succeed(&mut batch, &mut counts, &id, &successor)?,
                None => counts.hash = counts.hash.saturating_sub(1),
            }
            page.deleted += 1;
            if page.deleted == CALL_IDS_MAX as u64 {
                page.last = Some(id);
                break;
            }
        }
        self.apply(batch)?;
        group_partition.put(counts);
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
