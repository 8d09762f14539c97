//! Batches that a consumer waits for: a number of messages, or of messages of one key, unless the oldest has waited for long enough.
//!
//! Only ready messages count, so a partition that is asked for batches reads as far ahead as it may, and charges the attempts of all
//! retries that it holds. Messages without a key are those of one key of their partition.

use std::collections::HashMap;
use std::time::Duration;

use super::{DeliveryEnd, Held, Now, Table, Want, lane_of};
use crate::codec::DeadLetterReason;
use crate::model::limits::PREFETCH_MESSAGES_MAX;
use crate::model::message::{Envelope, Key};
use crate::model::time::Timestamp;
use crate::model::topic::Expiry;

/// The batch that a consumer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// It takes nothing while fewer are ready, ...
    pub min: usize,
    /// ... until the oldest of them has been ready for so long.
    pub linger: Duration,
    /// Whether all have to be of one key.
    pub same_key: bool,
}

impl Default for Gather {
    fn default() -> Gather {
        Gather { min: 1, linger: Duration::ZERO, same_key: false }
    }
}

impl Gather {
    /// Whether messages may be ready that the consumer does not take.
    pub fn waits(self) -> bool {
        self.min > 1
    }
}

/// Ready messages that may become one batch: how many, and since when the oldest is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathered {
    count: usize,
    oldest: Timestamp,
}

impl Gathered {
    fn one(ready_at: Timestamp) -> Gathered {
        Gathered { count: 1, oldest: ready_at }
    }

    pub fn and(self, other: Gathered) -> Gathered {
        Gathered { count: self.count + other.count, oldest: self.oldest.min(other.oldest) }
    }

    /// When it may be taken; in the past if it may be now.
    pub fn complete_at(self, gather: Gather) -> Timestamp {
        if self.count >= gather.min { self.oldest } else { self.oldest.plus(gather.linger) }
    }
}

/// The key of which a batch is; the batch may be of no key.
pub(super) type BatchKey = Option<Key>;

impl Table {
    /// The ready messages that a consumer may take, as one batch. None if there are none.
    pub fn gathered(&self, want: Want, now: Now) -> Option<Gathered> {
        self.ripe(want, now).map(|(_, ready_at)| Gathered::one(ready_at)).reduce(Gathered::and)
    }

    /// The same for each key.
    fn gathered_by_key(&self, want: Want, now: Now) -> HashMap<Option<&Key>, Gathered> {
        let mut by_key: HashMap<_, Gathered> = HashMap::new();
        for (key, ready_at) in self.ripe(want, now) {
            let one = Gathered::one(ready_at);
            by_key.entry(key).and_modify(|gathered| *gathered = gathered.and(one)).or_insert(one);
        }
        by_key
    }

    fn ripe(&self, want: Want, now: Now) -> impl Iterator<Item = (Option<&Key>, Timestamp)> {
        let is_ripe = move |envelope: &Envelope| envelope.pushed_at.plus(want.min_age) <= now.store;
        let may = move |held: &&Held| is_ripe(&held.message.envelope) && self.is_open(&held.message.envelope, now);
        let ready = self.ready.iter().filter(may);
        ready.map(|held| (held.message.envelope.key.as_ref(), held.ready_at))
    }

    /// The key whose batch may be taken now; of several, the one whose oldest message is ready for longest.
    pub(super) fn complete_key(&self, want: Want, now: Now) -> Option<BatchKey> {
        let by_key = self.gathered_by_key(want, now).into_iter();
        let complete = by_key.filter(|(_, gathered)| gathered.complete_at(want.gather) <= now.store);
        complete.min_by_key(|(key, gathered)| (gathered.oldest, *key)).map(|(key, _)| key.cloned())
    }

    /// When the next batch may be taken although nothing more arrives; in the past if one may be now.
    pub(super) fn batch_at(&self, want: Want, now: Now) -> Option<Timestamp> {
        if want.gather.same_key {
            return self.gathered_by_key(want, now).values().map(|gathered| gathered.complete_at(want.gather)).min();
        }
        self.gathered(want, now).map(|gathered| gathered.complete_at(want.gather))
    }

    /// Reads further ahead for a consumer that waits for a batch, until one comes that does not.
    pub fn read_ahead_for(&mut self, gather: Gather) {
        self.gathers = gather.waits();
        if gather.waits() || gather.same_key {
            self.appetite = PREFETCH_MESSAGES_MAX;
        }
    }

    /// Ends the ready messages that have expired, so that none counts for a batch. Answers how many.
    pub fn expire(&mut self, now: Now) -> usize {
        let mut expired = 0;
        while let Some(at) = self.ready.iter().position(|held| held.is_expired(now)) {
            let Some(held) = self.ready.remove(at) else { break };
            self.end_expired(held);
            expired += 1;
        }
        expired
    }

    pub(super) fn end_expired(&mut self, held: Held) {
        self.fair.iter_mut().for_each(|fair| fair.open_all());
        let lane = self.order.as_ref().map(|_| lane_of(&held.message));
        match self.policy.on_expiry {
            Expiry::Drop => self.decide_end(held.message.id, held.slot, lane, DeliveryEnd::Gone),
            Expiry::Bury => self.bury(held.message.id, held.slot, lane, DeadLetterReason::Expired, held.charged, None),
        }
    }
}
