//! Storing messages for all groups of a partition, and the policies about ids and dedup keys that are there.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use sled::Batch;

use super::changes::{CancelledIds, counts_of};
use super::dead_letters::read_dead;
use super::dedup_windows::DedupWindows;
use super::group_partition::{Counts, Stored};
use super::keys::Score;
use super::push_over::PushTerms;
use super::topics::{PartitionState, Topic, locked};
use super::{Embedded, Inner};
use crate::codec::{decode_body, encode_body};
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Conflict, GroupName, Message, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::disk::ChunkedValue;
use crate::store::{
    self, Call, Cancelled, Channel, KeyPause, LateFate, LateSettlement, Purge, Purged, PushVerdict, Pushed, Reschedule,
    Rescheduled, StoredDuplicate,
};

#[async_trait]
impl store::Messages for Embedded {
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let this = self.opened()?;
        let most = conflict.call_ids_max();
        if messages.len() > most {
            let detail = format!("{} messages in one call, at most {most}", messages.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        this.check_storable()?;
        let (verdicts, wake) = match conflict {
            Conflict::Keep => this.insert(descriptor, partition, messages, &this.values(messages, call.version)?)?,
            Conflict::Reject | Conflict::Replace | Conflict::Debounce | Conflict::After => {
                this.push_over(PushTerms { descriptor, partition, version: call.version, conflict }, messages)?
            }
        };
        if wake {
            this.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        // Duplicates wait too: what they repeat may itself still be on its way to the disk.
        this.commit().await?;
        Ok(verdicts)
    }

    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        _call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let this = self.opened()?;
        this.committer.check()?;
        let cancelled = this.cancel_now(descriptor, partition, id)?;
        this.commit().await?;
        Ok(cancelled)
    }

    async fn purge_group(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        purge: &Purge,
    ) -> Result<Purged> {
        let this = self.opened()?;
        this.committer.check()?;
        let purged = this.purge_now(descriptor, partition, call.version, purge).await?;
        this.commit().await?;
        Ok(purged)
    }

    async fn pause_key(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        _call: &Call,
        pause: &KeyPause,
    ) -> Result<()> {
        let this = self.opened()?;
        this.committer.check()?;
        this.pause_now(descriptor, partition, pause)?;
        this.commit().await
    }

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let this = self.opened()?;
        this.committer.check()?;
        let (rescheduled, wake) = this.reschedule_now(descriptor, partition, call.version, reschedule)?;
        if wake {
            this.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        this.commit().await?;
        Ok(rescheduled)
    }

    async fn settle_late(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        _call: &Call,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>> {
        let this = self.opened()?;
        this.committer.check()?;
        let (fates, wake) = this.settle_late_now(descriptor, partition, group, settlements)?;
        if wake {
            this.wakes.wake(&Channel::Head(descriptor.topic.clone(), partition));
        }
        this.commit().await?;
        Ok(fates)
    }
}

impl Inner {
    pub(super) fn values(&self, messages: &[Message], version: Version) -> Result<Vec<ChunkedValue>> {
        messages
            .iter()
            .enumerate()
            .map(|(n, message)| ChunkedValue::cut(&encode_body(message, version.plus(n))?))
            .collect()
    }

    fn insert(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        messages: &[Message],
        values: &[ChunkedValue],
    ) -> Result<(Vec<PushVerdict>, bool)> {
        let inserted = self.insert_with((descriptor, partition), messages, values, |_, _| Ok(true))?;
        Ok(inserted.unwrap_or_default())
    }

    /// Inserts messages in one batch with something else, which `also` adds. `None`, with nothing changed, if `also` answers false;
    /// else the verdicts, and whether a message is due before all others (then owners are woken).
    pub(super) fn insert_with(
        &self,
        (descriptor, partition): (&Descriptor, Partition),
        messages: &[Message],
        values: &[ChunkedValue],
        also: impl FnOnce(&mut Batch, &Topic) -> Result<bool>,
    ) -> Result<Option<(Vec<PushVerdict>, bool)>> {
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
        let mut batch = Batch::default();
        let verdicts = self.judge(topic, partition, &state, messages, &mut batch)?;
        let new = (messages, values, &*verdicts);
        let wake = self.insert_new((topic, partition), &mut state, new, batch, |batch| also(batch, topic))?;
        Ok(wake.map(|wake| (verdicts, wake)))
    }

    /// Stores those that are answered as stored, and answers whether the head of a group is earlier now.
    pub(super) fn insert_new(
        &self,
        (topic, partition): (&Topic, Partition),
        state: &mut PartitionState,
        (messages, values, verdicts): (&[Message], &[ChunkedValue], &[PushVerdict]),
        mut batch: Batch,
        also: impl FnOnce(&mut Batch) -> Result<bool>,
    ) -> Result<Option<bool>> {
        let (mut changed, mut wake) = (Vec::new(), false);
        let mut forgotten = 0;
        if state.cancelled > 0
            && let Some(place) = topic.places(partition).next()
        {
            let ids = CancelledIds::new(&self.tree, place);
            forgotten = uncancel(ids, messages, verdicts, &mut batch)?;
        }
        if !also(&mut batch)? {
            return Ok(None);
        }
        let scores = self.scores(topic, partition, state, messages, verdicts)?;
        let new = || messages.iter().zip(values).zip(&scores).filter_map(|(message, score)| Some((message, (*score)?)));
        let Some(earliest) = new().map(|((message, _), _)| message.due_at).min() else {
            self.apply(batch)?;
            return Ok(Some(false));
        };
        for place in topic.places(partition) {
            let stored = Stored::new(&self.tree, place);
            let mut counts = counts_of(state, place);
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
            state.groups.entry(group).or_default().put(counts);
        }
        Ok(Some(wake))
    }

    /// The score of each message that is new: its due time, and with an ordering its place in it.
    fn scores(
        &self,
        topic: &Topic,
        partition: Partition,
        state: &mut PartitionState,
        messages: &[Message],
        verdicts: &[PushVerdict],
    ) -> Result<Vec<Option<Score>>> {
        let due = messages.iter().zip(verdicts).map(|(message, verdict)| verdict.is_new().then_some(message.due_at));
        if !topic.descriptor().is_ordered() {
            return Ok(due.map(|due| due.map(Score::from)).collect());
        }
        let zsets: Vec<_> = topic.places(partition).map(|place| Stored::new(&self.tree, place).zset()).collect();
        state.order.give(&zsets, self.now(), due)
    }

    /// Says which messages are new, and remembers their dedup keys; of a duplicate, what is there. Nothing is looked up where
    /// nothing can be found.
    fn judge(
        &self,
        topic: &Topic,
        partition: Partition,
        state: &PartitionState,
        messages: &[Message],
        batch: &mut Batch,
    ) -> Result<Vec<PushVerdict>> {
        let now = self.now();
        let group_partitions: Vec<(Stored<'_>, Counts)> = topic
            .places(partition)
            .filter_map(|place| Some((Stored::new(&self.tree, place), state.groups.get(&place.group)?.counts())))
            .collect();
        let body_of = |id: &MessageId| -> Result<Option<Bytes>> {
            for (stored, counts) in &group_partitions {
                if counts.hash > 0
                    && let Some(body) = stored.hash().get(id)?
                {
                    return Ok(Some(body));
                }
                if counts.dead > 0
                    && let Some(value) = stored.dead_hash().get(id)?
                {
                    // Of one that cannot be read nothing is said.
                    return Ok(Some(read_dead(&value).map_or_else(|_| Bytes::new(), |(_, body)| body)));
                }
            }
            Ok(None)
        };
        let is_seen = |id: &MessageId| -> Result<bool> {
            match group_partitions.first() {
                Some((stored, _)) if state.seen > 0 => Ok(stored.seen().score(id)?.is_some_and(|until| until.at > now)),
                _ => Ok(false),
            }
        };
        let Some(place) = topic.places(partition).next() else { return Err(Error::bug("a topic without groups")) };
        let mut here: HashMap<&MessageId, &Message> = HashMap::with_capacity(messages.len());
        let mut windows = DedupWindows::new(&self.tree, place);
        let mut verdicts = Vec::with_capacity(messages.len());
        for message in messages {
            let id = &message.id;
            verdicts.push(if let Some(earlier) = here.get(id) {
                PushVerdict {
                    pushed: Ok(Pushed::Duplicate),
                    there: Some(StoredDuplicate::new(earlier, message)),
                    bounded: None,
                }
            } else if let Some(body) = body_of(id)? {
                PushVerdict { pushed: Ok(Pushed::Duplicate), there: compared(id, body, message), bounded: None }
            } else if is_seen(id)? {
                Pushed::Duplicate.into()
            } else if let Some(first) = windows.first_of(message)? {
                let there = match here.get(&first) {
                    Some(earlier) => Some(StoredDuplicate::new(earlier, message)),
                    None => body_of(&first)?.and_then(|body| compared(&first, body, message)),
                };
                PushVerdict { pushed: Ok(Pushed::DuplicateOf(first)), there, bounded: None }
            } else {
                here.insert(id, message);
                windows.add(batch, message, now)?;
                Pushed::Stored.into()
            });
        }
        Ok(verdicts)
    }
}

/// Compares a pushed message with the stored one of this id and body; `None` if that cannot be read.
fn compared(id: &MessageId, body: Bytes, pushed: &Message) -> Option<StoredDuplicate> {
    decode_body(id.clone(), body).ok().map(|stored| StoredDuplicate::new(&stored, pushed))
}

/// Forgets the cancels of the messages that are new. Answers how many ids are forgotten.
fn uncancel(ids: CancelledIds<'_>, messages: &[Message], verdicts: &[PushVerdict], batch: &mut Batch) -> Result<u64> {
    let mut forgotten = 0;
    for (message, _) in messages.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_new()) {
        forgotten += ids.uncancel(batch, &message.id)?;
    }
    Ok(forgotten)
}
