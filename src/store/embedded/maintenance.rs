//! Copying a group, moving a topic and verifying a partition, a page at a time. A move changes both partitions in one batch, under the
//! locks of both partitions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sled::Batch;

use super::collections::reservation_entries;
use super::dead_letters::read_dead;
use super::group_partition::{Counts, Stored};
use super::keys::{KeyPrefix, Score};
use super::topics::{PartitionState, Topic, locked};
use super::{Embedded, Inner};
use crate::codec::{body_due_at, body_version, decode_body, follow, take_apart};
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::disk::ChunkedValue;
use crate::store::{self, Channel, Copied, CopyCursor, Defect, Finding, MovedPage, VerifyCursor, VerifyPage, other_id};

#[async_trait]
impl store::Maintenance for Embedded {
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        let this = self.opened()?;
        this.check_storable()?;
        let from = from.map(|CopyCursor(id)| MessageId::new(id)).transpose()?;
        let copied = this.copy_page(descriptor, partition, group, from.as_ref())?;
        this.commit().await?;
        Ok(copied)
    }

    async fn audit(&self, partition: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        let this = self.opened()?;
        let page = this.verify_page(partition, from, repair)?;
        if repair && !page.findings.is_empty() {
            this.commit().await?;
        }
        Ok(page)
    }

    async fn move_page(
        &self,
        _from: &Descriptor,
        group_partition: &GroupPartition,
        to: &Descriptor,
    ) -> Result<MovedPage> {
        let this = self.opened()?;
        this.check_storable()?;
        let mut moved = MovedPage::default();
        for (partition, movers) in this.movers(group_partition, to)? {
            let wake = this.move_all(
                group_partition,
                &to.group_partition(partition, &group_partition.group),
                &movers,
                &mut moved,
            )?;
            moved.more = true;
            if wake {
                this.wakes.wake(&Channel::Head(to.topic.clone(), partition));
            }
        }
        this.commit().await?;
        Ok(moved)
    }
}

impl Inner {
    /// Pages go by id: a body stays under its id until its message is settled, so none is passed over.
    fn copy_page(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<&MessageId>,
    ) -> Result<Copied> {
        let topics = self.topics();
        let stale = || Error::stale(format!("group {group} of topic {} is no copy now", descriptor.topic));
        let topic = topics.live(&descriptor.topic).ok_or_else(stale)?;
        let now = topic.descriptor();
        let source = now.subscription(group).copy_of.filter(|_| now.has_same(descriptor, group)).ok_or_else(stale)?;
        let place = topic.place(partition, group).ok_or_else(stale)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        // A group that is deleted while it is copied leaves nothing to copy.
        let Some(source) = topic.place(partition, &source) else { return Ok(Copied { messages: 0, next: None }) };
        let (source, copy) = (Stored::new(&self.tree, source), Stored::new(&self.tree, place));
        let mut counts =
            state.groups.get(&place.group).map_or(Counts::default(), |group_partition| group_partition.counts());
        let (mut batch, mut messages, mut bytes, mut next) = (Batch::default(), 0, 0, None);
        for (seen, id) in source.hash().ids_after(from).enumerate() {
            let id = id?;
            if !copy.hash().has(&id)? {
                let Some(body) = source.hash().get(&id)? else { continue };
                let due_at = body_due_at(&body).unwrap_or_default();
                // With an ordering it stands where it stands in the source, if that has not tried it.
                let place = if source.attempts(&id)?.is_none() { source.zset().score(&id)? } else { None };
                let place = place.filter(|place| place.tie > 0);
                let score = place.unwrap_or(due_at.into());
                copy.zset().add(&mut batch, &id, score);
                copy.hash().add(&mut batch, id.as_str().as_bytes(), &ChunkedValue::cut(&body)?);
                counts.scheduled(score.at);
                counts.hash += 1;
                (messages, bytes) = (messages + 1, bytes + body.len());
            }
            if seen + 1 == RECOVER_IDS_MAX || bytes >= CALL_BYTES_MAX {
                next = Some(CopyCursor(id.as_str().to_owned()));
                break;
            }
        }
        self.apply(batch)?;
        state.groups.entry(place.group).or_default().put(counts);
        Ok(Copied { messages, next })
    }

    /// A page of what is to be moved, by the partition that it belongs to.
    fn movers(&self, partition: &GroupPartition, to: &Descriptor) -> Result<BTreeMap<Partition, Vec<Mover>>> {
        let topics = self.topics();
        let mut movers: BTreeMap<Partition, Vec<Mover>> = BTreeMap::new();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(movers) };
        let end = End::new(self, topic, place);
        let _state = locked(&end.state);
        let (mut count, mut bytes) = (0, 0);
        let waiting = end.stored.zset().iter().map(|entry| entry.map(|(score, id)| (id, score, false)));
        let dead = end.stored.dead_zset().iter().map(|entry| entry.map(|(score, id)| (id, score, true)));
        for entry in waiting.chain(dead) {
            let (id, score, is_dead) = entry?;
            let body = if is_dead {
                end.stored.dead_hash().get(&id)?.map(|value| read_dead(&value)).transpose()?.map(|(_, body)| body)
            } else {
                end.stored.hash().get(&id)?
            };
            let Some(body) = body else { continue };
            (count, bytes) = (count + 1, bytes + body.len());
            let key = decode_body(id.clone(), body).map_or(id.to_string(), |message| message.routing_key().to_owned());
            movers.entry(to.partition_of(&key)).or_default().push(Mover { id, score, is_dead });
            if count == RECOVER_IDS_MAX || bytes >= CALL_BYTES_MAX {
                break;
            }
        }
        Ok(movers)
    }

    /// Moves those that are still there, and answers whether the head of the other partition is earlier now.
    fn move_all(
        &self,
        from: &GroupPartition,
        to: &GroupPartition,
        movers: &[Mover],
        moved: &mut MovedPage,
    ) -> Result<bool> {
        let topics = self.topics();
        let gone = |partition: &GroupPartition| Error::stale(format!("{partition} is gone; load its topic again"));
        let (from_topic, from_place) = topics.group_partition(from).ok_or_else(|| gone(from))?;
        let (to_topic, to_place) = topics.group_partition(to).ok_or_else(|| gone(to))?;
        let (from, to) = (End::new(self, from_topic, from_place), End::new(self, to_topic, to_place));
        // Always in the same order, so that two moves in opposite directions do not wait for each other.
        let order = |end: &End<'_>| (end.place.topic, end.place.partition);
        let (mut from_state, mut to_state);
        if order(&from) < order(&to) {
            from_state = locked(&from.state);
            to_state = locked(&to.state);
        } else {
            to_state = locked(&to.state);
            from_state = locked(&from.state);
        }
        let from_partition = from_state.groups.entry(from.place.group).or_default();
        let to_partition = to_state.groups.entry(to.place.group).or_default();
        let (mut batch, mut after) = (Batch::default(), (from_partition.counts(), to_partition.counts()));
        let head = to.stored.zset().head()?;
        let to_end = (to_topic.descriptor(), to.place.partition);
        for mover in movers {
            move_one(&mut batch, &from.stored, (&to.stored, to_end), &mut after, mover, moved)?;
        }
        self.apply(batch)?;
        from_partition.put(after.0);
        to_partition.put(after.1);
        let earliest = movers.iter().filter(|mover| !mover.is_dead).map(|mover| mover.score).min();
        Ok(earliest.is_some_and(|earliest| head.is_none_or(|head| earliest.at < head)))
    }

    fn verify_page(&self, partition: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        let (stage, after) = read(from)?;
        let topics = self.topics();
        let Some((topic, place)) = topics.group_partition(partition) else { return Ok(VerifyPage::default()) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let partition = state.groups.entry(place.group).or_default();
        let stored = Stored::new(&self.tree, place);
        let ids = STAGES[stage].page(&stored, after.as_ref())?;
        let (mut batch, mut counts, now) = (Batch::default(), partition.counts(), self.now());
        let mut findings = Vec::new();
        let reserved = if stage == 0 { reserved(&stored)? } else { HashSet::new() };
        for id in &ids {
            if STAGES[stage].is_sound(&stored, id, &reserved)? {
                continue;
            }
            if repair {
                STAGES[stage].repair(&stored, &mut batch, &mut counts, id, now)?;
            }
            findings.push(Finding { id: id.to_string(), defect: STAGES[stage].defect });
        }
        self.apply(batch)?;
        partition.put(counts);
        let next = match ids.last().filter(|_| ids.len() == PAGE) {
            Some(last) => Some(format!("{} {last}", STAGES[stage].name)),
            None => STAGES.get(stage + 1).map(|stage| stage.name.to_owned()),
        };
        Ok(VerifyPage { seen: ids.len() as u64, findings, next: next.map(VerifyCursor) })
    }
}

struct End<'a> {
    place: KeyPrefix,
    stored: Stored<'a>,
    state: Arc<Mutex<PartitionState>>,
}

impl<'a> End<'a> {
    fn new(inner: &'a Inner, topic: &Topic, place: KeyPrefix) -> End<'a> {
        End { place, stored: Stored::new(&inner.tree, place), state: topic.partition(place.partition) }
    }
}

/// A message to be moved.
struct Mover {
    id: MessageId,
    score: Score,
    is_dead: bool,
}

fn move_one(
    batch: &mut Batch,
    from: &Stored<'_>,
    (to, to_end): (&Stored<'_>, (&Descriptor, Partition)),
    (left, arrived): &mut (Counts, Counts),
    Mover { id, score, is_dead }: &Mover,
    moved: &mut MovedPage,
) -> Result<()> {
    let name = id.as_str().as_bytes();
    let there_already = to.hash().has(id)? || to.dead_hash().has(id)?;
    moved.there_already += u64::from(there_already);
    if *is_dead {
        let (Some(score), Some(value)) = (from.dead_zset().score(id)?, from.dead_hash().get(id)?) else {
            return Ok(());
        };
        from.dead_zset().remove(batch, id, score);
        from.dead_hash().remove(batch, name)?;
        left.dead = left.dead.saturating_sub(1);
        moved.dead += 1;
        if !there_already {
            to.dead_zset().add(batch, id, score);
            to.dead_hash().add(batch, name, &ChunkedValue::cut(&value)?);
            arrived.dead += 1;
        }
        return Ok(());
    }
    // Reserved since the page was read: its consumer settles it.
    if from.zset().score(id)? != Some(*score) {
        return Ok(());
    }
    let Some(body) = from.hash().get(id)? else { return Ok(()) };
    from.unschedule(batch, left, id, *score)?;
    from.hash().remove(batch, name)?;
    left.hash = left.hash.saturating_sub(1);
    moved.waiting += 1;
    if !there_already {
        to.zset().add(batch, id, score.unsorted());
        to.hash().add(batch, name, &ChunkedValue::cut(&moved_body(id, &body, to_end))?);
        to.bring_charge(batch, from, id)?;
        arrived.scheduled(score.at);
        arrived.hash += 1;
    }
    from.uncharge(batch, id)?;
    Ok(())
}

/// A body with the id that a message with a successor has as a dead letter in this partition.
fn moved_body<'a>(id: &MessageId, body: &'a [u8], (to, partition): (&Descriptor, Partition)) -> Cow<'a, [u8]> {
    let Some(followed) = take_apart(body) else { return body.into() };
    let dead_id = match decode_body(id.clone(), followed.first.clone().into()) {
        Ok(message) => other_id(&message, to, partition, body_version(&followed.successor)),
        Err(_) => followed.dead_id,
    };
    follow(&followed.first, &followed.successor, &dead_id).into()
}

/// Entries of a page: others wait for as long as it takes.
const PAGE: usize = 250;

const STAGES: [VerifyStage; 5] = [
    VerifyStage { name: "h", defect: Defect::BodyWithoutId },
    VerifyStage { name: "z", defect: Defect::IdWithoutBody },
    VerifyStage { name: "a", defect: Defect::ChargeWithoutBody },
    VerifyStage { name: "d", defect: Defect::DeadIdWithoutBody },
    VerifyStage { name: "g", defect: Defect::DeadBodyWithoutId },
];

struct VerifyStage {
    name: &'static str,
    defect: Defect,
}

fn read(from: Option<&VerifyCursor>) -> Result<(usize, Option<MessageId>)> {
    let Some(VerifyCursor(cursor)) = from else { return Ok((0, None)) };
    let (name, after) = cursor.split_once(' ').map_or((cursor.as_str(), None), |(name, id)| (name, Some(id)));
    let wrong = || Error::invalid("cursor", "is not one that dwell gave; begin without a cursor");
    let stage = STAGES.iter().position(|stage| stage.name == name).ok_or_else(wrong)?;
    Ok((stage, after.map(MessageId::new).transpose().map_err(|_| wrong())?))
}

fn reserved(stored: &Stored<'_>) -> Result<HashSet<MessageId>> {
    let mut ids = HashSet::new();
    for entry in stored.reservations().below(&[u8::MAX; 16]) {
        let (_, value) = entry?;
        ids.extend(reservation_entries(&value)?.into_iter().map(|entry| entry.id));
    }
    Ok(ids)
}

impl VerifyStage {
    fn page(&self, stored: &Stored<'_>, after: Option<&MessageId>) -> Result<Vec<MessageId>> {
        match self.defect {
            Defect::BodyWithoutId => stored.hash().ids_after(after).take(PAGE).collect(),
            Defect::IdWithoutBody => stored.zset().ids_after(after).take(PAGE).collect(),
            Defect::ChargeWithoutBody => stored.charges().ids_after(after).take(PAGE).collect(),
            Defect::DeadIdWithoutBody => stored.dead_zset().ids_after(after).take(PAGE).collect(),
            Defect::DeadBodyWithoutId => stored.dead_hash().ids_after(after).take(PAGE).collect(),
        }
    }

    fn is_sound(&self, stored: &Stored<'_>, id: &MessageId, reserved: &HashSet<MessageId>) -> Result<bool> {
        Ok(match self.defect {
            Defect::BodyWithoutId => stored.zset().score(id)?.is_some() || reserved.contains(id),
            Defect::IdWithoutBody | Defect::ChargeWithoutBody => stored.hash().has(id)?,
            Defect::DeadIdWithoutBody => stored.dead_hash().has(id)?,
            Defect::DeadBodyWithoutId => stored.dead_zset().score(id)?.is_some(),
        })
    }

    fn repair(
        &self,
        stored: &Stored<'_>,
        batch: &mut Batch,
        counts: &mut Counts,
        id: &MessageId,
        now: Timestamp,
    ) -> Result<()> {
        match self.defect {
            Defect::BodyWithoutId => {
                let due_at = stored.hash().get(id)?.and_then(|body| body_due_at(&body)).unwrap_or_default().max(now);
                stored.zset().add(batch, id, due_at);
                counts.scheduled(due_at);
            }
            Defect::IdWithoutBody => {
                let score = stored.zset().score(id)?.unwrap_or(Timestamp::default().into());
                stored.unschedule(batch, counts, id, score)?;
            }
            Defect::ChargeWithoutBody => stored.uncharge(batch, id)?,
            Defect::DeadIdWithoutBody => {
                let score = stored.dead_zset().score(id)?.unwrap_or(Timestamp::default().into());
                stored.dead_zset().remove(batch, id, score);
            }
            Defect::DeadBodyWithoutId => stored.dead_zset().add(batch, id, now),
        }
        Ok(())
    }
}
