//! Pushes on their way: one call to a partition at a time, and whatever arrives meanwhile goes with the next one.
//!
//! The slower the store, the larger its calls; nobody waits for a timer. A producer that goes away takes nothing back:
//! what it pushed is in a call, or in the next one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::duplicates::{self, There};
use super::topics::Topics;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::tasks::Tasks;
use crate::store::{Call, Pushed, Store};

/// Where messages go together: a partition of one incarnation of a topic.
type Lane = (TopicName, u64, Partition);

/// What became of one message.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) id: MessageId,
    pub(super) due_at: Timestamp,
    pub(super) pushed: Pushed,
    /// Of a duplicate, the message that is there.
    pub(super) there: Option<There>,
}

/// Messages of one producer, which share an answer.
struct Waiting {
    descriptor: Arc<Descriptor>,
    messages: Vec<Message>,
    fresh: bool,
    bytes: usize,
    answer: oneshot::Sender<Result<Vec<Arrived>>>,
}

/// All lanes on which something is on its way.
pub(super) struct PushBatcher {
    store: Store,
    topics: Arc<Topics>,
    tasks: Tasks,
    /// What waits for the call that is out. A lane without an entry has none out.
    waiting: Mutex<HashMap<Lane, VecDeque<Waiting>>>,
}

impl PushBatcher {
    pub(super) fn new(store: Store, topics: Arc<Topics>, tasks: Tasks) -> PushBatcher {
        PushBatcher { store, topics, tasks, waiting: Mutex::default() }
    }

    /// Pushes messages of one partition, at most what one call may have.
    pub(super) async fn push(
        self: &Arc<Self>,
        descriptor: &Arc<Descriptor>,
        partition: Partition,
        fresh: bool,
        messages: Vec<Message>,
    ) -> Result<Vec<Arrived>> {
        let (answer, answered) = oneshot::channel();
        let bytes = messages.iter().map(|message| message.envelope.payload.len()).sum();
        let waiting = Waiting { descriptor: descriptor.clone(), messages, fresh, bytes, answer };
        let lane = (descriptor.topic.clone(), descriptor.incarnation, partition);
        match self.waiting().entry(lane.clone()) {
            Entry::Occupied(mut line) => line.get_mut().push_back(waiting),
            Entry::Vacant(lane_of) => {
                lane_of.insert(VecDeque::from([waiting]));
                let driver = Driver { lanes: self.clone(), lane, done: false };
                self.tasks.start(driver.drive());
            }
        }
        answered.await.unwrap_or_else(|_| Err(Error::outcome_unknown("the push was given up on its way")))
    }

    /// As many of those who wait as one call may have, in order; none when nobody waits, and then the lane is free.
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

    /// One call for all of them, and an answer to each.
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
        let found = match &pushed {
            Ok(pushed) if !is_fresh => duplicates::look(&self.store, &descriptor, partition, &messages, pushed).await,
            _ => Vec::new(),
        };
        let mut arrived = messages.into_iter().enumerate().map(|(n, Message { id, due_at, .. })| {
            let pushed = pushed.as_ref().ok().and_then(|pushed| pushed.get(n)).copied().unwrap_or(Pushed::Stored);
            Arrived { id, due_at, pushed, there: found.get(n).copied().flatten() }
        });
        for (count, answer) in answers {
            let arrived: Vec<Arrived> = arrived.by_ref().take(count).collect();
            // Who does not wait any more does not want to know.
            let _ = answer.send(pushed.as_ref().map_err(Clone::clone).map(|_| arrived));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Lane, VecDeque<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drives a lane until nobody waits on it.
struct Driver {
    lanes: Arc<PushBatcher>,
    lane: Lane,
    done: bool,
}

impl Driver {
    async fn drive(mut self) {
        loop {
            let call = self.lanes.next(&self.lane);
            if call.is_empty() {
                self.done = true;
                return;
            }
            self.lanes.call(self.lane.2, call).await;
        }
    }
}

impl Drop for Driver {
    /// A driver that is cut off leaves a lane that is free: who waited on it is told that the outcome is unknown.
    fn drop(&mut self) {
        if !self.done {
            self.lanes.waiting().remove(&self.lane);
        }
    }
}
