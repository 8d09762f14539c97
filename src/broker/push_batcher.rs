//! Batches pushes: one call to a partition and of a policy at a time; pushes that arrive meanwhile go with the next one.
//!
//! The slower the store, the larger its calls; there is no timer. A producer that disconnects takes nothing back: its
//! messages are in a call, or in the next one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::topics::Topics;
use crate::model::error::{Error, Result};
use crate::model::limits::CALL_BYTES_MAX;
use crate::model::message::{Conflict, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::tasks::Tasks;
use crate::store::{Call, PushVerdict, Pushed, Store};

/// Pushes that may share a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Lane {
    topic: TopicName,
    incarnation: u64,
    partition: Partition,
    conflict: Conflict,
}

#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) message: Message,
    pub(super) verdict: PushVerdict,
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
        conflict: Conflict,
        fresh: bool,
        messages: Vec<Message>,
    ) -> Result<Vec<Arrived>> {
        let (answer, answered) = oneshot::channel();
        let bytes = messages.iter().map(|message| message.envelope.size()).sum();
        let waiting = Waiting { descriptor: descriptor.clone(), messages, fresh, bytes, answer };
        let (topic, incarnation) = (descriptor.topic.clone(), descriptor.incarnation);
        let lane = Lane { topic, incarnation, partition, conflict };
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
            if fitting > 0 && (ids > lane.conflict.call_ids_max() || bytes > CALL_BYTES_MAX) {
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

    async fn call(&self, lane: &Lane, call: Vec<Waiting>) {
        let newest = call.iter().map(|waiting| &waiting.descriptor).max_by_key(|descriptor| descriptor.generation);
        let Some(descriptor) = newest.cloned() else { return };
        let is_fresh = call.iter().all(|waiting| waiting.fresh);
        let mut messages = Vec::with_capacity(call.iter().map(|waiting| waiting.messages.len()).sum());
        let mut answers = Vec::with_capacity(call.len());
        for waiting in call {
            answers.push((waiting.messages.len(), waiting.answer));
            messages.extend(waiting.messages);
        }
        let verdicts = self.push_all(lane, &descriptor, is_fresh, &messages).await;
        let mut arrived = messages.into_iter().enumerate().map(|(n, message)| {
            let verdict = verdicts.as_ref().ok().and_then(|verdicts| verdicts.get(n)).cloned();
            Arrived { message, verdict: verdict.unwrap_or_else(|| Pushed::Stored.into()) }
        });
        for (count, answer) in answers {
            let arrived: Vec<Arrived> = arrived.by_ref().take(count).collect();
            // The receiver may be gone.
            let _ = answer.send(verdicts.as_ref().map_err(Clone::clone).map(|_| arrived));
        }
    }

    async fn push_all(
        &self,
        &Lane { partition, conflict, .. }: &Lane,
        descriptor: &Arc<Descriptor>,
        is_fresh: bool,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let (store, topics) = (&self.store, &self.topics);
        let push = |descriptor: Arc<Descriptor>| async move {
            let make = async |call: &Call| {
                let call = Call { is_fresh, ..call.clone() };
                store.messages.push(&descriptor, partition, &call, conflict, messages).await
            };
            let is_applied = |verdicts: &Vec<PushVerdict>| !verdicts.iter().any(PushVerdict::is_buffered);
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
            self.batcher.call(&self.lane, call).await;
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
