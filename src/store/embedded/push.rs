//! Pushing messages into the pairs of all groups of a partition.

use std::collections::HashSet;

use sled::Batch;

use super::Inner;
use super::cancelled::CancelledIds;
use super::keys::Score;
use super::pair::{Counts, Stored};
use super::topics::{PartitionState, Topic, locked};
use crate::codec::encode_body;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::CALL_IDS_MAX;
use crate::model::message::{Message, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{Call, Channel, Pushed};

impl Inner {
    pub(super) async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        if messages.len() > CALL_IDS_MAX {
            let detail = format!("{} messages in one call, at most {CALL_IDS_MAX}", messages.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.check_storable()?;
        let values = self.values(messages, call.version)?;
        let (answers, wake) = self.insert(descriptor, partition, messages, &values)?;
        if wake {
            self.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        // Duplicates wait too: what they repeat may itself still be on its way to the disk.
        self.commit().await?;
        Ok(answers)
    }

    /// The bodies of messages whose versions count up from this one.
    pub(super) fn values(&self, messages: &[Message], version: Version) -> Result<Vec<ChunkedValue>> {
        messages
            .iter()
            .enumerate()
            .map(|(n, message)| ChunkedValue::cut(&encode_body(message, version.plus(n))?))
            .collect()
    }

    /// Puts what is new into all pairs of the partition, and answers whether the head of one of them is earlier now.
    fn insert(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        messages: &[Message],
        values: &[ChunkedValue],
    ) -> Result<(Vec<Pushed>, bool)> {
        let inserted = self.insert_with((descriptor, partition), messages, values, |_, _| Ok(true))?;
        Ok(inserted.unwrap_or_default())
    }

    /// The same together with something else that changes in the partition: `also` adds to the batch, or says that nothing
    /// is to happen.
    pub(super) fn insert_with(
        &self,
        (descriptor, partition): (&Descriptor, Partition),
        messages: &[Message],
        values: &[ChunkedValue],
        also: impl FnOnce(&mut Batch, &Topic) -> Result<bool>,
    ) -> Result<Option<(Vec<Pushed>, bool)>> {
        let topics = self.topics();
        let topic =
            topics.live(&descriptor.topic).filter(|topic| topic.descriptor().generation == descriptor.generation);
        let topic = topic.ok_or_else(|| {
            Error::stale(format!("topic {} has changed or is deleted: read it again", descriptor.topic))
        })?;
        if partition.0 >= descriptor.settings.partitions.get() {
            return Err(Error::invalid(
                "partition",
                format!("topic {} has no partition {partition}", descriptor.topic),
            ));
        }
        let state = topic.partition(partition);
        let mut state = locked(&state);
        let answers = self.judge(topic, partition, &state, messages)?;
        let (mut batch, mut changed, mut wake) = (Batch::default(), Vec::new(), false);
        let mut forgotten = 0;
        if state.cancelled > 0
            && let Some(place) = topic.places(partition).next()
        {
            let ids = CancelledIds::new(&self.tree, place);
            forgotten = uncancel(ids, messages, &answers, &mut batch)?;
        }
        if !also(&mut batch, topic)? {
            return Ok(None);
        }
        let scores = self.scores(topic, partition, &mut state, messages, &answers)?;
        let new = || messages.iter().zip(values).zip(&scores).filter_map(|(message, score)| Some((message, (*score)?)));
        let Some(earliest) = new().map(|((message, _), _)| message.due_at).min() else {
            self.apply(batch)?;
            return Ok(Some((answers, false)));
        };
        for place in topic.places(partition) {
            let stored = Stored::new(&self.tree, place);
            let mut counts = state.pairs.get(&place.group).map_or(Counts::default(), |pair| pair.counts);
            wake |= stored.zset().head()?.is_none_or(|head| earliest < head);
            for ((message, value), score) in new() {
                stored.zset().add(&mut batch, &message.id, score);
                stored.hash().add(&mut batch, message.id.as_str().as_bytes(), value);
                counts.scheduled(score.at);
                counts.hash += 1;
            }
            changed.push((place.group, counts));
        }
        self.apply(batch)?;
        state.cancelled = state.cancelled.saturating_sub(forgotten);
        for (group, counts) in changed {
            state.pairs.entry(group).or_default().counts = counts;
        }
        Ok(Some((answers, wake)))
    }

    /// The score of each message that is new: its due time, and with an ordering its place in it.
    fn scores(
        &self,
        topic: &Topic,
        partition: Partition,
        state: &mut PartitionState,
        messages: &[Message],
        answers: &[Pushed],
    ) -> Result<Vec<Option<Score>>> {
        let new = |answer: &Pushed| *answer == Pushed::Stored;
        let due = messages.iter().zip(answers).map(|(message, answer)| new(answer).then_some(message.due_at));
        if !topic.descriptor().is_ordered() {
            return Ok(due.map(|due| due.map(Score::from)).collect());
        }
        let zsets: Vec<_> = topic.places(partition).map(|place| Stored::new(&self.tree, place).zset()).collect();
        state.order.give(&zsets, self.now(), due)
    }

    /// Says which messages are new. Nothing is looked up where nothing can be found.
    fn judge(
        &self,
        topic: &Topic,
        partition: Partition,
        state: &PartitionState,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        let now = self.now();
        let pairs: Vec<(Stored<'_>, Counts)> = topic
            .places(partition)
            .filter_map(|place| Some((Stored::new(&self.tree, place), state.pairs.get(&place.group)?.counts)))
            .collect();
        let is_held = |id: &MessageId| -> Result<bool> {
            for (stored, counts) in &pairs {
                if (counts.hash > 0 && stored.hash().has(id)?) || (counts.dead > 0 && stored.dead_hash().has(id)?) {
                    return Ok(true);
                }
            }
            match pairs.first() {
                Some((stored, _)) if state.seen > 0 => Ok(stored.seen().score(id)?.is_some_and(|until| until.at > now)),
                _ => Ok(false),
            }
        };
        let mut here = HashSet::with_capacity(messages.len());
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let known = !here.insert(&message.id) || is_held(&message.id)?;
            answers.push(if known { Pushed::Duplicate } else { Pushed::Stored });
        }
        Ok(answers)
    }
}

/// Who pushes an id that was cancelled makes it a message again, and it is not cancelled any more. Answers how many ids are
/// forgotten.
fn uncancel(ids: CancelledIds<'_>, messages: &[Message], answers: &[Pushed], batch: &mut Batch) -> Result<u64> {
    let mut forgotten = 0;
    for (message, _) in messages.iter().zip(answers).filter(|(_, answer)| **answer == Pushed::Stored) {
        if let Some(memory) = ids.get(&message.id)? {
            ids.forget(batch, &message.id, memory.at);
            forgotten += 1;
        }
    }
    Ok(forgotten)
}
