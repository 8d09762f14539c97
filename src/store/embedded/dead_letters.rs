//! Dead messages: listing, redriving, purging, forwarding and dropping them.
//!
//! The value of a dead message is `length of the record (4 bytes) | record | body`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use bytes::Bytes;
use sled::Batch;

use super::group_partition::{Counts, Stored};
use super::topics::{Topic, locked};
use super::{Embedded, Inner};
use crate::codec::{
    DeadLetterRecord, Failure, body_version, decode_body, decode_dead, encode_body, encode_dead, take_apart,
};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX, RECOVER_IDS_MAX};
use crate::model::message::{Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{
    self, AgeOrder, Buried, Channel, Dead, DeadLetterCursor, DeadLetterOutline, DeadLetterOutlinePage, DeadLetterPage,
    DeadLetterRange, DeadLetterRetention, DroppedDeadLetters, Forward, Forwarded, ForwardedMessage, PushVerdict,
    Pushed, other_id,
};

const LENGTH_BYTES: usize = 4;

#[async_trait]
impl store::DeadLetters for Embedded {
    async fn dead_by_age(&self, range: &DeadLetterRange) -> Result<DeadLetterPage> {
        let this = self.opened()?;
        let (dead, next) = this.visit_dead(range, |id, died_at, value| {
            let (record, body) = read_dead(&value)?;
            let version = body_version(&body);
            Ok(Dead { message: decode_body(id.clone(), body), id, died_at, record, version })
        })?;
        Ok(DeadLetterPage { dead, next })
    }

    async fn dead_outlines(&self, ranges: &[DeadLetterRange]) -> Result<Vec<DeadLetterOutlinePage>> {
        let this = self.opened()?;
        let page = |range: &DeadLetterRange| {
            let outline = |id, died_at, value: Bytes| Ok(DeadLetterOutline { died_at, id, bytes: value.len() });
            let (dead, next) = this.visit_dead(range, outline)?;
            Ok(DeadLetterOutlinePage { dead, next })
        };
        ranges.iter().map(page).collect()
    }

    async fn redrive(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        let this = self.opened()?;
        let now = this.now();
        let mut wake = false;
        let answers = this.change_dead(partition, ids, |stored, batch, counts, id| {
            let (_, body) = read_dead(&stored.dead_hash().get(id)?.ok_or_else(|| lost(id))?)?;
            wake |= stored.zset().head()?.is_none_or(|head| now < head);
            stored.hash().add(batch, id.as_str().as_bytes(), &ChunkedValue::cut(&body)?);
            stored.zset().add(batch, id, now);
            counts.scheduled(now);
            counts.hash += 1;
            Ok(())
        })?;
        if wake {
            this.wakes.wake(&Channel::head(partition));
        }
        this.commit().await?;
        Ok(answers)
    }

    async fn purge(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Version>>> {
        let this = self.opened()?;
        let mut versions = Vec::new();
        let were_dead = this.change_dead(partition, ids, |stored, _, _, id| {
            let body = stored.dead_hash().get(id)?.and_then(|value| read_dead(&value).ok());
            versions.push(body.map_or(Version::default(), |(_, body)| body_version(&body)));
            Ok(())
        })?;
        this.commit().await?;
        let mut versions = versions.into_iter();
        Ok(were_dead.into_iter().map(|was_dead| was_dead.then(|| versions.next()).flatten()).collect())
    }

    /// A page is moved in one batch, so that none is ever on its way.
    async fn forward(
        &self,
        group_partition: &GroupPartition,
        to: Option<&Descriptor>,
        ids: &[MessageId],
    ) -> Result<Forward> {
        let this = self.opened()?;
        check_count(ids)?;
        let Some(to) = to.filter(|to| to.topic != group_partition.topic) else { return Ok(Forward::Nothing) };
        this.check_storable()?;
        let mut forwarded = Forwarded::default();
        for (partition, dead) in this.read_forwards(group_partition, to, ids)? {
            let (mut messages, wake) = this.forward_all(group_partition, to, partition, dead)?;
            forwarded.messages.append(&mut messages);
            if wake {
                this.wakes.wake(&Channel::Head(to.topic.clone(), partition));
            }
        }
        if forwarded.messages.is_empty() {
            return Ok(Forward::Nothing);
        }
        this.commit().await?;
        Ok(Forward::Done(forwarded))
    }

    async fn forwarded(&self, _pair: &GroupPartition, _page: &Forwarded) -> Result<()> {
        Ok(())
    }

    async fn drop_dead(&self, partition: &GroupPartition, bounds: DeadLetterRetention) -> Result<DroppedDeadLetters> {
        let this = self.opened()?;
        let (dropped, ids) = this.past_bounds(partition, bounds)?;
        if !ids.is_empty() {
            self.purge(partition, &ids).await?;
        }
        Ok(dropped)
    }
}

impl Inner {
    /// Dead letters as messages of the topic `to`, by the partition that they belong to. The unreadable stay.
    fn read_forwards(
        &self,
        group_partition: &GroupPartition,
        to: &Descriptor,
        ids: &[MessageId],
    ) -> Result<BTreeMap<Partition, Vec<ForwardedMessage>>> {
        let mut partitions: BTreeMap<Partition, Vec<ForwardedMessage>> = BTreeMap::new();
        let (topics, now) = (self.topics(), self.now());
        let Some((topic, place)) = topics.group_partition(group_partition) else { return Ok(partitions) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&self.tree, place);
        let mut bytes = 0;
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let Some(value) = stored.dead_hash().get(id)? else { continue };
            let died_at = stored.dead_zset().score(id)?.map_or(now, |score| score.at);
            bytes += value.len();
            let (record, body) = read_dead(&value)?;
            let version = body_version(&body);
            let dead = Dead { message: decode_body(id.clone(), body), id: id.clone(), died_at, record, version };
            let Ok(message) = dead.forwarded(group_partition, to, now) else { continue };
            let new_version = self.clock.versions(1);
            let partition = to.partition_of(message.routing_key());
            let forwarded = ForwardedMessage { id: id.clone(), version, message, new_version, was_stored: false };
            partitions.entry(partition).or_default().push(forwarded);
            if bytes >= CALL_BYTES_MAX {
                break;
            }
        }
        Ok(partitions)
    }

    /// Moves those that are still dead, and answers whether the head of the other partition is earlier now.
    fn forward_all(
        &self,
        group_partition: &GroupPartition,
        to: &Descriptor,
        partition: Partition,
        mut forwards: Vec<ForwardedMessage>,
    ) -> Result<(Vec<ForwardedMessage>, bool)> {
        let topics = self.topics();
        let gone = |topic: &TopicName| Error::stale(format!("topic {topic} was changed or deleted; load it again"));
        let (from_topic, from) = topics.group_partition(group_partition).ok_or_else(|| gone(&group_partition.topic))?;
        let same = |topic: &&Topic| topic.descriptor().generation == to.generation;
        let to_topic = topics.live(&to.topic).filter(same).ok_or_else(|| gone(&to.topic))?;
        let (from_state, to_state) = (from_topic.partition(from.partition), to_topic.partition(partition));
        // Always in the same order, so that two forwards in opposite directions do not wait for each other.
        let (mut from_guard, mut to_guard);
        if (from.topic, from.partition) < (to_topic.number(), partition) {
            from_guard = locked(&from_state);
            to_guard = locked(&to_state);
        } else {
            to_guard = locked(&to_state);
            from_guard = locked(&from_state);
        }
        let stored = Stored::new(&self.tree, from);
        let mut still = Vec::with_capacity(forwards.len());
        for mut forward in forwards.drain(..) {
            if stored.dead_hash().has(&forward.id)? {
                if self.is_taken(to_topic, partition, &forward.message.id)? {
                    forward.message.id = other_id(&forward.message, to, partition, forward.new_version);
                }
                still.push(forward);
            }
        }
        let mut counts =
            from_guard.groups.get(&from.group).map_or(Counts::default(), |group_partition| group_partition.counts());
        let messages: Vec<Message> = still.iter().map(|forward| forward.message.clone()).collect();
        let encode = |forward: &ForwardedMessage| encode_body(&forward.message, forward.new_version);
        let values: Vec<ChunkedValue> =
            still.iter().map(|forward| ChunkedValue::cut(&encode(forward)?)).collect::<Result<_>>()?;
        let verdicts = vec![PushVerdict::from(Pushed::Stored); messages.len()];
        let take = |batch: &mut Batch| -> Result<bool> {
            for forward in &still {
                let Some(died_at) = stored.dead_zset().score(&forward.id)? else { continue };
                stored.dead_zset().remove(batch, &forward.id, died_at);
                stored.dead_hash().remove(batch, forward.id.as_str().as_bytes())?;
                counts.dead = counts.dead.saturating_sub(1);
            }
            Ok(true)
        };
        let new = (&*messages, &*values, &*verdicts);
        let wake = self.insert_new((to_topic, partition), &mut to_guard, new, Batch::default(), take)?;
        from_guard.groups.entry(from.group).or_default().put(counts);
        Ok((still, wake.unwrap_or_default()))
    }

    fn is_taken(&self, topic: &Topic, partition: Partition, id: &MessageId) -> Result<bool> {
        for place in topic.places(partition) {
            let stored = Stored::new(&self.tree, place);
            if stored.hash().has(id)? || stored.dead_hash().has(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn past_bounds(
        &self,
        partition: &GroupPartition,
        bounds: DeadLetterRetention,
    ) -> Result<(DroppedDeadLetters, Vec<MessageId>)> {
        let (mut dropped, mut ids) = (DroppedDeadLetters::default(), Vec::new());
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok((dropped, ids)) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let Some(state) = state.groups.get(&place.group) else { return Ok((dropped, ids)) };
        let mut left = state.counts().dead;
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

    /// Applies `each` to the dead messages of a range, and says where the next page begins if there is more.
    fn visit_dead<T>(
        &self,
        range: &DeadLetterRange,
        mut each: impl FnMut(MessageId, Timestamp, Bytes) -> Result<T>,
    ) -> Result<(Vec<T>, Option<DeadLetterCursor>)> {
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(&range.partition) else { return Ok((Vec::new(), None)) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let stored = Stored::new(&self.tree, place);
        let (zset, after) = (stored.dead_zset(), range.after.as_ref());
        let entries: Box<dyn Iterator<Item = _>> = match (range.order, after) {
            (AgeOrder::OldestFirst, Some(cursor)) => Box::new(zset.after(cursor.died_at.into(), &cursor.id)),
            (AgeOrder::OldestFirst, None) => Box::new(zset.iter()),
            (AgeOrder::NewestFirst, _) => {
                Box::new(zset.before(after.map(|cursor| (cursor.died_at.into(), &cursor.id))))
            }
        };
        let (mut found, mut bytes, mut last) = (Vec::new(), 0, None);
        for entry in entries {
            let (died_at, id) = entry?;
            if found.len() >= range.limit.clamp(1, CALL_IDS_MAX) || bytes >= CALL_BYTES_MAX {
                return Ok((found, last));
            }
            let value = stored.dead_hash().get(&id)?.ok_or_else(|| lost(&id))?;
            bytes += value.len();
            last = Some(DeadLetterCursor { died_at: died_at.at, id: id.clone() });
            found.push(each(id, died_at.at, value)?);
        }
        Ok((found, None))
    }

    pub(super) fn dead_ids(&self, partition: &GroupPartition, most: usize) -> Result<Vec<MessageId>> {
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(Vec::new()) };
        let state = topic.partition(place.partition);
        let _state = locked(&state);
        let dead = Stored::new(&self.tree, place).dead_zset();
        dead.iter().take(most).map(|entry| Ok(entry?.1)).collect()
    }

    /// Takes dead messages out of the dead zset and hash, and does `also` with each in the same batch.
    pub(super) fn change_dead(
        &self,
        partition: &GroupPartition,
        ids: &[MessageId],
        mut also: impl FnMut(&Stored<'_>, &mut Batch, &mut Counts, &MessageId) -> Result<()>,
    ) -> Result<Vec<bool>> {
        check_count(ids)?;
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(vec![false; ids.len()]) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let state = state.groups.entry(place.group).or_default();
        let stored = Stored::new(&self.tree, place);
        let (mut batch, mut counts, mut done) = (Batch::default(), state.counts(), HashSet::new());
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
        state.put(counts);
        Ok(answers)
    }
}

fn check_count(ids: &[MessageId]) -> Result<()> {
    if ids.len() <= RECOVER_IDS_MAX {
        return Ok(());
    }
    let detail = format!("{} dead messages in one call, at most {RECOVER_IDS_MAX}", ids.len());
    Err(Error::new(Kind::TooLarge, detail))
}

/// Moves a message from the hash to the dead zset and hash. The caller has made sure that it is not in the zset. Answers whether
/// another one takes its place: then the dead letter has another id.
pub(super) fn bury(
    stored: &Stored<'_>,
    batch: &mut Batch,
    counts: &mut Counts,
    buried: &Buried,
    body: &[u8],
    now: Timestamp,
) -> Result<bool> {
    let Buried { id, record, failure } = buried;
    let mut record = record.clone();
    if record.last_error.is_none() && failure.is_none() {
        record.last_error = stored.failures(id)?.last().and_then(Failure::last_error);
    }
    let record = [encode_dead(&record)?, stored.history(id, failure.as_ref())?].concat();
    let length = u32::try_from(record.len()).map_err(|_| Error::bug("a dead record of more than 4 GiB"))?;
    let followed = take_apart(body);
    let (dead_id, body) = followed.as_ref().map_or((id, body), |followed| (&followed.dead_id, &followed.first));
    let value = [&length.to_be_bytes()[..], &record, body].concat();
    stored.dead_zset().add(batch, dead_id, now);
    stored.dead_hash().add(batch, dead_id.as_str().as_bytes(), &ChunkedValue::cut(&value)?);
    counts.dead += 1;
    stored.end(batch, counts, id)?;
    Ok(followed.is_some())
}

pub(super) fn read_dead(value: &Bytes) -> Result<(DeadLetterRecord, Bytes)> {
    let cut = || Error::corrupt("the value of a dead message is cut short");
    let length = value.first_chunk::<LENGTH_BYTES>().ok_or_else(cut)?;
    let end = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?.saturating_add(LENGTH_BYTES);
    let record = decode_dead(value.get(LENGTH_BYTES..end).ok_or_else(cut)?)?;
    Ok((record, value.slice(end..)))
}

fn lost(id: &MessageId) -> Error {
    Error::corrupt(format!("the dead message {id} has no body"))
}
