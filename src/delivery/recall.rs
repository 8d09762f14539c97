//! Changes of messages that an owner holds and no consumer has: the owner gives them back to the store, and reserves nothing
//! until the store has changed them.
//!
//! A recall changes no message. So one that comes late, twice, or from somebody who is gone costs a moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::GroupDelivery;
use super::ownership::Owned;
use super::table::{Blocker, BlockerState, HeldCounts, HeldKeys, MessageLocation, Recalled};
use crate::model::message::MessageId;
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;

/// The owner reserves nothing until it is dropped, or its time is over.
#[derive(Debug)]
pub struct RecallGuard {
    owned: Arc<Owned>,
    hold: u64,
}

impl Drop for RecallGuard {
    fn drop(&mut self) {
        self.owned.table().end_recall(self.hold);
        self.owned.signal.notify_one();
    }
}

/// The answer of an owner to a recall.
#[derive(Debug)]
pub struct RecallAnswer {
    /// Messages that a consumer has. The store has all others, or they are gone.
    pub out: Vec<MessageId>,
    pub guard: Option<RecallGuard>,
}

/// Where a message is at the owner of its partition. Times are on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Located {
    /// A consumer has it.
    InFlight { attempt: u32, until: Timestamp },
    /// A consumer has decided about it, and the store has not answered yet.
    Decided,
    /// The next consumer may have it, unless something holds up its partition.
    Ready,
    /// The first of its key, until its next attempt.
    Backoff { next_at: Timestamp, attempts: u32 },
    /// Behind an earlier message of its key.
    Blocked { blocker: MessageId, waits: Waits },
}

/// The reason why the first message of a key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Waits {
    /// A consumer has it until then.
    Consumer {
        until: Timestamp,
    },
    Attempt {
        at: Timestamp,
    },
    /// A consumer to take it, or the store to answer that it is settled.
    Turn,
}

impl GroupDelivery {
    /// Gives messages back to the store, or without ids all that no consumer has, and answers once the store has them.
    /// `None` if this process does not own the partition, or the store does not answer until then.
    pub async fn recall(&self, partition: Partition, ids: &[MessageId], until: Instant) -> Option<RecallAnswer> {
        let owned = self.owned(partition)?;
        let clock = self.store.backend.clock().local();
        let recall = async {
            loop {
                let mut turn = std::pin::pin!(owned.progressed());
                turn.as_mut().enable();
                let now = self.now();
                let (answers, hold, ticket) = {
                    let mut table = owned.table();
                    let (answers, hold) = match ids.is_empty() {
                        true => (Vec::new(), table.recall_all(now)),
                        false => table.recall_held(ids, now),
                    };
                    (answers, hold, table.last_ticket())
                };
                owned.signal.notify_one();
                let guard = hold.map(|hold| RecallGuard { owned: owned.clone(), hold });
                let is_busy = answers.contains(&Recalled::Busy) || (ids.is_empty() && guard.is_none());
                if is_busy {
                    turn.await;
                    if owned.progress().over {
                        return None;
                    }
                    continue;
                }
                let is_out = |(_, answer): &(&MessageId, &Recalled)| **answer == Recalled::Out;
                let out: Vec<MessageId> = ids.iter().zip(&answers).filter(is_out).map(|(id, _)| id.clone()).collect();
                if guard.is_some() && !owned.settled(ticket).await {
                    return None;
                }
                return Some(RecallAnswer { out, guard });
            }
        };
        tokio::select! {
            answer = recall => answer,
            () = clock.sleep_until(until) => None,
        }
    }

    /// Gives back all that no consumer has, and asks the store anew. Answers true once nothing is handed out that was reserved before;
    /// false if this process does not own the partition. `None` if its call to the store takes longer than until then.
    pub async fn refresh(&self, partition: Partition, until: Instant) -> Option<bool> {
        let Some(owned) = self.owned(partition) else { return Some(false) };
        let number = owned.table().wish_refresh();
        owned.signal.notify_one();
        let refreshed = async {
            loop {
                let mut turn = std::pin::pin!(owned.progressed());
                turn.as_mut().enable();
                if owned.table().is_refreshed(number) || owned.progress().over {
                    return true;
                }
                turn.await;
            }
        };
        tokio::select! {
            done = refreshed => Some(done),
            () = self.store.backend.clock().local().sleep_until(until) => None,
        }
    }

    /// Where messages are in the memory of this process; `None` for one that is not there. None at all if this process does not
    /// own the partition.
    pub fn locate(&self, partition: Partition, ids: &[MessageId]) -> Option<Vec<Option<Located>>> {
        let owned = self.owned(partition)?;
        let locations = owned.table().locate(ids);
        Some(locations.into_iter().map(|location| Some(self.located(location?))).collect())
    }

    fn located(&self, location: MessageLocation) -> Located {
        let clock = self.store.backend.clock();
        let time_of = |deadline: Instant| clock.now().plus(deadline.since(clock.local().elapsed()));
        match location {
            MessageLocation::Out { attempt, deadline } => Located::InFlight { attempt, until: time_of(deadline) },
            MessageLocation::Decided => Located::Decided,
            MessageLocation::Held => Located::Ready,
            MessageLocation::Backoff { next_at, attempts } => Located::Backoff { next_at, attempts },
            MessageLocation::Behind(Blocker { id, state }) => Located::Blocked {
                blocker: id,
                waits: match state {
                    BlockerState::Out { deadline } => Waits::Consumer { until: time_of(deadline) },
                    BlockerState::Backoff { next_at } => Waits::Attempt { at: next_at },
                    BlockerState::Passing => Waits::Turn,
                },
            },
        }
    }

    /// The keys that have messages due or in flight in the partitions that this process owns, and which these are.
    pub fn held_keys(&self) -> (HeldKeys, Vec<Partition>) {
        let (mut keys, mut partitions, now) = (HeldKeys::default(), Vec::new(), self.now());
        for (partition, owned) in self.owned_partitions() {
            keys.add(owned.table().keys(now));
            partitions.push(partition);
        }
        (keys, partitions)
    }

    /// Counts the messages that this process holds, for each partition that it owns.
    pub fn held_counts(&self) -> BTreeMap<Partition, HeldCounts> {
        let now = self.now();
        let counts = |(partition, owned): (Partition, Arc<Owned>)| (partition, owned.table().counts(now));
        self.owned_partitions().into_iter().map(counts).collect()
    }
}
