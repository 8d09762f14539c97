//! Moving messages to another topic: out of one pair and into another in one batch, under the locks of both partitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sled::Batch;

use super::Inner;
use super::dead::read_dead;
use super::keys::{Place, Score};
use super::pair::{Counts, Stored};
use super::topics::{PartitionState, Topic, locked};
use crate::codec::decode_body;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::partition::Partition;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::disk::ChunkedValue;
use crate::store::{Channel, MovedPage};

/// One end of a move.
struct End<'a> {
    place: Place,
    stored: Stored<'a>,
    state: Arc<Mutex<PartitionState>>,
}

impl<'a> End<'a> {
    fn new(inner: &'a Inner, topic: &Topic, place: Place) -> End<'a> {
        End { place, stored: Stored::new(&inner.tree, place), state: topic.partition(place.partition) }
    }
}

/// A message to be moved: its id, its score, and whether it is dead.
type Mover = (MessageId, Score, bool);

impl Inner {
    pub(super) async fn move_page(&self, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage> {
        self.check_storable()?;
        let mut moved = MovedPage::default();
        for (partition, movers) in self.movers(pair, to)? {
            let wake = self.move_all(pair, &to.pair(partition, &pair.group), &movers, &mut moved)?;
            moved.more = true;
            if wake {
                self.wakes.wake(&Channel::Head(to.topic.clone(), partition));
            }
        }
        self.commit().await?;
        Ok(moved)
    }

    /// A page of what is to be moved, by the partition that it belongs to.
    fn movers(&self, pair: &GroupPartition, to: &Descriptor) -> Result<BTreeMap<Partition, Vec<Mover>>> {
        let topics = self.topics();
        let mut movers: BTreeMap<Partition, Vec<Mover>> = BTreeMap::new();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(movers) };
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
            movers.entry(to.partition_of(&key)).or_default().push((id, score, is_dead));
            if count == RECOVER_IDS_MAX || bytes >= CALL_BYTES_MAX {
                break;
            }
        }
        Ok(movers)
    }

    /// Moves those that are still there, and answers whether the head of the other pair is earlier now.
    fn move_all(
        &self,
        from: &GroupPartition,
        to: &GroupPartition,
        movers: &[Mover],
        moved: &mut MovedPage,
    ) -> Result<bool> {
        let topics = self.topics();
        let gone = |pair: &GroupPartition| Error::stale(format!("{pair} is gone; load its topic again"));
        let (from_topic, from_place) = topics.pair(from).ok_or_else(|| gone(from))?;
        let (to_topic, to_place) = topics.pair(to).ok_or_else(|| gone(to))?;
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
        let from_counts = &mut from_state.pairs.entry(from.place.group).or_default().counts;
        let to_counts = &mut to_state.pairs.entry(to.place.group).or_default().counts;
        let (mut batch, mut after) = (Batch::default(), (*from_counts, *to_counts));
        let head = to.stored.zset().head()?;
        for mover in movers {
            move_one(&mut batch, &from.stored, &to.stored, &mut after, mover, moved)?;
        }
        self.apply(batch)?;
        (*from_counts, *to_counts) = after;
        let earliest = movers.iter().filter(|(_, _, is_dead)| !is_dead).map(|(_, score, _)| *score).min();
        Ok(earliest.is_some_and(|earliest| head.is_none_or(|head| earliest.at < head)))
    }
}

fn move_one(
    batch: &mut Batch,
    from: &Stored<'_>,
    to: &Stored<'_>,
    (left, arrived): &mut (Counts, Counts),
    (id, score, is_dead): &Mover,
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
    from.zset().remove(batch, id, *score);
    from.hash().remove(batch, name)?;
    left.unscheduled(score.at);
    left.hash = left.hash.saturating_sub(1);
    moved.waiting += 1;
    if !there_already {
        to.zset().add(batch, id, *score);
        to.hash().add(batch, name, &ChunkedValue::cut(&body)?);
        to.bring_charge(batch, from, id)?;
        arrived.scheduled(score.at);
        arrived.hash += 1;
    }
    from.uncharge(batch, id);
    Ok(())
}
