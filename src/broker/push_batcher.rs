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
        let (store, topics, batch) = (&self.store, &self.topics, messages.as_slice());
        let push = |descriptor: Arc<Descriptor>| async move {
            let make = async |call: &Call| {
                store.messages.push(&descriptor, partition, &Call { is_fresh, ..call.clone() }, batch).await
            };
            let is_applied = |pushed: &Vec<Pushed>| !pushed.contains(&Pushed::Buffered);
            topics.call(&descriptor.topic, partition, batch.len(), make, is_applied).await
        };
        let pushed = self.topics.push(descriptor.clone(), push).await;
        let is_of_another = |pushed: &Pushed| matches!(pushed, Pushed::DuplicateOf(_));
        let found = match &pushed {
            Ok(pushed) if !is_fresh || pushed.iter().any(is_of_another) => {
                look(&self.store, &descriptor, partition, &messages, pushed).await
            }
            _ => Vec::new(),
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

/// `None` for a message that was settled, is dead or cannot be read now.
async fn look(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    messages: &[Message],
    pushed: &[Pushed],
) -> Vec<Option<StoredDuplicate>> {
    let mut there = vec![None; messages.len()];
    let first_of = |(n, message): (usize, &Message)| match pushed.get(n) {
        Some(Pushed::Duplicate) => Some((n, message.id.clone())),
        Some(Pushed::DuplicateOf(first)) => Some((n, first.clone())),
        _ => None,
    };
    let mut left: Vec<(usize, MessageId)> = messages.iter().enumerate().filter_map(first_of).collect();
    for group in &descriptor.groups {
        left = look_in(store, descriptor, partition, group, (messages, left), &mut there).await;
    }
    there
}

/// Answers which ones the group does not have.
async fn look_in(
    store: &Store,
    descriptor: &Descriptor,
    partition: Partition,
    group: &GroupName,
    (messages, wanted): (&[Message], Vec<(usize, MessageId)>),
    there: &mut [Option<StoredDuplicate>],
) -> Vec<(usize, MessageId)> {
    let (group_partition, mut absent) = (descriptor.group_partition(partition, group), Vec::new());
    for some in wanted.chunks(BODIES_AT_ONCE) {
        let ids: Vec<_> = some.iter().map(|(_, id)| id.clone()).collect();
        let found = store.reads.bodies(&group_partition, &ids).await.unwrap_or_default();
        for (at, (n, id)) in some.iter().enumerate() {
            match found.get(at).and_then(Option::as_ref) {
                Some(stored) => there[*n] = Some(StoredDuplicate::new(stored, &messages[*n])),
                None => absent.push((*n, id.clone())),
            }
        }
    }
    absent
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
