//! Batches pushes: one call to a partition at a time; pushes that arrive meanwhile go with the next one.
//!
//! The slower the store, the larger its calls; there is no timer. A producer that disconnects takes nothing back: its
//! messages are in a call, or in the next one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::topics::Topics;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::tasks::Tasks;
use crate::store::{Call, Pushed, Store};

/// Messages that one call looks at: a payload may have 1 MiB.
const BODIES_AT_ONCE: usize = 16;
/// How often a duplicate is pushed again whose message could not be read: by then the store is known to be unavailable.
const LOOKS_MAX: usize = 2;

type Lane = (TopicName, u64, Partition);

#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) id: MessageId,
    pub(super) due_at: Timestamp,
    pub(super) pushed: Pushed,
    /// The stored message of a duplicate.
    pub(super) there: Option<StoredDuplicate>,
}

struct Waiting {
    descriptor: Arc<Descriptor>,
    messages: Vec<Message>,
    fresh: bool,
    bytes: usize,
    answer: oneshot::Sender<Result<Vec<Arrived>>>,
}

pub(super) struct PushBatcher {
    store: Store,
    topics: Arc<Topics>,
    tasks: Tasks,
    /// Pushes that wait for the call that is out. A lane without an entry has none out.
    waiting: Mutex<HashMap<Lane, VecDeque<Waiting>>>,
}

impl PushBatcher {
    pub(super) fn new(store: Store, topics: Arc<Topics>, tasks: Tasks) -> PushBatcher {
        PushBatcher { store, topics, tasks, waiting: Mutex::default() }
    }

    pub(super) async fn push(
        self: &Arc<Self>,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        fresh: bool,
        messages: Vec<Message>,
    ) -> Result<Vec<Arrived>> {
        let (answer, answered) = oneshot::channel();
        let bytes = messages.iter().map(|message| message.envelope.size()).sum();
        let waiting = Waiting { descriptor: descriptor.clone(), messages, fresh, bytes, answer };
        let lane = (descriptor.topic.clone(), descriptor.incarnation, partition);
        let driver = match self.waiting().entry(lane.clone()) {
            Entry::Occupied(mut line) => {
                line.get_mut().push_back(waiting);
                None
            }
            Entry::Vacant(lane_of) => {
                lane_of.insert(VecDeque::from([waiting]));
                Some(Driver { batcher: self.clone(), lane, done: false })
            }
        };
        let arrived = match driver {
            Some(driver) => self.tasks.drive(Box::pin(driver.drive()), answered).await,
            None => answered.await,
        };
        arrived.unwrap_or_else(|_| Err(Error::outcome_unknown("the push was given up on its way")))
    }

    /// The first pushes in line that fit into one call; none frees the lane.
    fn next(&self, lane: &Lane) -> Vec<Waiting> {
        let mut all = self.waiting();
        let Some(line) = all.get_mut(lane) else { return Vec::new() };
        let (mut ids, mut bytes, mut fitting) = (0, 0, 0);
        for waiting in line.iter() {
            (ids, bytes) = (ids + waiting.messages.len(), bytes + waiting.bytes);
            if fitting > 0 && (ids > CALL_IDS_MAX || bytes > CALL_BYTES_MAX) {
                break;
            }
            fitting += 1;
        }
        let call: Vec<Waiting> = line.drain(..fitting).collect();
        if call.is_empty() {
            all.remove(lane);
        }
        call
    }

    async fn call(&self, partition: Partition, call: Vec<Waiting>) {
        let newest = call.iter().map(|waiting| &waiting.descriptor).max_by_key(|descriptor| descriptor.generation);
        let Some(descriptor) = newest.cloned() else { return };
        let is_fresh = call.iter().all(|waiting| waiting.fresh);
        let mut messages = Vec::with_capacity(call.iter().map(|waiting| waiting.messages.len()).sum());
        let mut answers = Vec::with_capacity(call.len());
        for waiting in call {
            answers.push((waiting.messages.len(), waiting.answer));
            messages.extend(waiting.messages);
        }
        let (pushed, found) = match self.push_all(partition, &descriptor, is_fresh, &messages).await {
            Ok((pushed, found)) => (Ok(pushed), found),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut arrived = messages.into_iter().enumerate().map(|(n, Message { id, due_at, .. })| {
            let pushed = pushed.as_ref().ok().and_then(|pushed| pushed.get(n)).cloned().unwrap_or(Pushed::Stored);
            Arrived { id, due_at, pushed, there: found.get(n).copied().flatten() }
        });
        for (count, answer) in answers {
            let arrived: Vec<Arrived> = arrived.by_ref().take(count).collect();
            // The receiver may be gone.
            let _ = answer.send(pushed.as_ref().map_err(Clone::clone).map(|_| arrived));
        }
    }

    /// Pushes messages, and reads the stored message of each duplicate. A duplicate whose message cannot be read, since the
    /// store has just become unavailable, is pushed again: it is found later, or buffered. Errors: The store's, also if
    /// only that failed.
    async fn push_all(
        &self,
        partition: Partition,
        descriptor: &Arc<Descriptor>,
        is_fresh: bool,
        messages: &[Message],
    ) -> Result<(Vec<Pushed>, Vec<Option<StoredDuplicate>>)> {
        let mut pushed = self.push_once(partition, descriptor, is_fresh, messages).await?;
        let is_of_another = |pushed: &Pushed| matches!(pushed, Pushed::DuplicateOf(_));
        if is_fresh && !pushed.iter().any(is_of_another) {
            return Ok((pushed, Vec::new()));
        }
        for _ in 0..LOOKS_MAX {
            if let Ok(found) = look(&self.store, descriptor, partition, messages, &pushed).await {
                return Ok((pushed, found));
            }
            let is_duplicate = |pushed: &Pushed| matches!(pushed, Pushed::Duplicate | Pushed::DuplicateOf(_));
            let left: Vec<usize> = (0..pushed.len()).filter(|n| is_duplicate(&pushed[*n])).collect();
            let again: Vec<Message> = left.iter().map(|n| messages[*n].clone()).collect();
            for (n, again) in left.into_iter().zip(self.push_once(partition, descriptor, false, &again).await?) {
                pushed[n] = again;
            }
        }
        let found = look(&self.store, descriptor, partition, messages, &pushed).await?;
        Ok((pushed, found))
    }

    async fn push_once(
        &self,
        partition: Partition,
        descriptor: &Arc<Descriptor>,
        is_fresh: bool,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        let (store, topics) = (&self.store, &self.topics);
        let push = |descriptor: Arc<Descriptor>| async move {
            let make = async |call: &Call| {
                store.messages.push(&descriptor, partition, &Call { is_fresh, ..call.clone() }, messages).await
            };
            let is_applied = |pushed: &Vec<Pushed>| !pushed.contains(&Pushed::Buffered);
            topics.call(&descriptor.topic, partition, messages.len(), make, is_applied).await
        };
        self.topics.push(descriptor.clone(), push).await
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Lane, VecDeque<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Driver {
    batcher: Arc<PushBatcher>,
    lane: Lane,
    done: bool,
}

impl Driver {
    async fn drive(mut self) {
        loop {
            let call = self.batcher.next(&self.lane);
            if call.is_empty() {
                self.done = true;
                return;
            }
            self.batcher.call(self.lane.2, call).await;
        }
    }
}

impl Drop for Driver {
    /// A driver that is dropped frees the lane: those waiting on it learn that the outcome is unknown.
    fn drop(&mut self) {
        if !self.done {
            self.batcher.waiting().remove(&self.lane);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredDuplicate {
    pub(super) due_at: Timestamp,
    /// Or what is there has another id, and the same dedup key.
    pub(super) is_same_key: bool,
    pub(super) is_same_payload: bool,
}

/// `None` for a message that was settled, or has an unreadable body. Errors: The store's.
async fn look(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    messages: &[Message],
    pushed: &[Pushed],
) -> Result<Vec<Option<StoredDuplicate>>> {
    let mut there = vec![None; messages.len()];
    let first_of = |(n, message): (usize, &Message)| match pushed.get(n) {
        Some(Pushed::Duplicate) => Some((n, message.id.clone())),
        Some(Pushed::DuplicateOf(first)) => Some((n, first.clone())),
        _ => None,
    };
    let mut left: Vec<(usize, MessageId)> = messages.iter().enumerate().filter_map(first_of).collect();
    for group in &descriptor.groups {
        left = look_in(store, descriptor, partition, group, (messages, left), &mut there).await?;
    }
    Ok(there)
}

/// Answers which ones the group does not have.
async fn look_in(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    group: &GroupName,
    (messages, wanted): (&[Message], Vec<(usize, MessageId)>),
    there: &mut [Option<StoredDuplicate>],
) -> Result<Vec<(usize, MessageId)>> {
    let (group_partition, mut absent) = (descriptor.group_partition(partition, group), Vec::new());
    for some in wanted.chunks(BODIES_AT_ONCE) {
        let ids: Vec<_> = some.iter().map(|(_, id)| id.clone()).collect();
        let found = store.reads.bodies(&group_partition, &ids).await?;
        for (at, (n, id)) in some.iter().enumerate() {
            match found.get(at).and_then(Option::as_ref) {
                Some(stored) => there[*n] = Some(StoredDuplicate::new(stored, &messages[*n])),
                None => absent.push((*n, id.clone())),
            }
        }
    }
    Ok(absent)
}

impl StoredDuplicate {
    fn new(stored: &Message, pushed: &Message) -> StoredDuplicate {
        StoredDuplicate {
            due_at: stored.due_at,
            is_same_key: stored.id != pushed.id || stored.envelope.key == pushed.envelope.key,
            is_same_payload: stored.envelope.payload == pushed.envelope.payload
                && stored.envelope.attachment == pushed.envelope.attachment,
        }
    }
}
