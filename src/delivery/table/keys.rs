//! The keys of a fair group, as the owner of a partition knows them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::{Deserialize, Serialize};

use super::fair::KeyLimit;
use super::{Now, Table};
use crate::model::limits::KEYS_SHOWN_MAX;
use crate::model::message::Key;
use crate::model::time::Timestamp;

/// A key that has messages due or in flight. Times are on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldKey {
    /// None for the messages without a key.
    pub key: Option<Key>,
    /// Messages in memory and sorted ones, at most.
    pub ready: u64,
    /// With consumers.
    pub in_flight: u64,
    /// The reason why its next message waits.
    pub limit: Option<KeyLimit>,
    /// When it may have its next delivery, if it waits for a time.
    pub opens_at: Option<Timestamp>,
}

/// How many keys there are, and those with the most messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldKeys {
    pub count: u64,
    /// The most messages first; at most [`KEYS_SHOWN_MAX`].
    pub busiest: Vec<HeldKey>,
}

/// The key with the most messages comes first; of equals, the first name.
type Rank<'a> = (Reverse<u64>, Option<&'a Key>);

fn rank(key: Option<&Key>, ready: u64, in_flight: u64) -> Rank<'_> {
    (Reverse(ready + in_flight), key)
}

impl HeldKey {
    fn rank(&self) -> Rank<'_> {
        rank(self.key.as_ref(), self.ready, self.in_flight)
    }
}

impl HeldKeys {
    /// Adds those of other partitions, which have other keys; messages without a key are in all of them.
    pub fn add(&mut self, other: HeldKeys) {
        self.count += other.count;
        for held in other.busiest {
            match self.busiest.iter_mut().find(|known| known.key == held.key) {
                Some(known) => {
                    known.ready += held.ready;
                    known.in_flight += held.in_flight;
                    self.count -= 1;
                }
                None => self.busiest.push(held),
            }
        }
        self.busiest.sort_by(|one, other| one.rank().cmp(&other.rank()));
        self.busiest.truncate(KEYS_SHOWN_MAX);
    }
}

/// The keys with the most messages, in a heap: there may be a million keys, of which most have only sorted messages.
#[derive(Debug, Default)]
struct Busiest<'a> {
    count: u64,
    /// With the messages that are ready and in flight. The last by its rank comes first.
    kept: BinaryHeap<(Rank<'a>, u64, u64)>,
}

impl<'a> Busiest<'a> {
    fn add(&mut self, key: Option<&'a Key>, ready: u64, in_flight: u64) {
        if ready + in_flight == 0 {
            return;
        }
        self.count += 1;
        let busy = (rank(key, ready, in_flight), ready, in_flight);
        if self.kept.len() < KEYS_SHOWN_MAX {
            self.kept.push(busy);
        } else if let Some(mut last) = self.kept.peek_mut()
            && busy < *last
        {
            *last = busy;
        }
    }
}

impl Table {
    /// The keys that have messages due or in flight, in a fair group.
    pub fn keys(&self, now: Now) -> HeldKeys {
        let Some(fair) = &self.fair else { return HeldKeys::default() };
        // Of the messages that are not in the store alone.
        let mut held: HashMap<Option<&Key>, (u64, u64)> = HashMap::new();
        for message in self.offered() {
            held.entry(message.message.envelope.key.as_ref()).or_default().0 += 1;
        }
        for out in self.out.values() {
            held.entry(out.key.as_ref()).or_default().1 += 1;
        }
        let mut busiest = Busiest::default();
        for (key, sorted) in fair.sorted_counts() {
            match held.get_mut(&key) {
                Some((ready, _)) => *ready += sorted,
                None => busiest.add(key, sorted, 0),
            }
        }
        held.into_iter().for_each(|(key, (ready, in_flight))| busiest.add(key, ready, in_flight));
        let shown = busiest.kept.into_sorted_vec().into_iter().map(|((_, key), ready, in_flight)| {
            let limit = self.key_limit(key, now).filter(|_| ready > 0);
            let waits_for_a_time = limit.is_some_and(|limit| limit != KeyLimit::InFlight);
            let opens_at = self.key_opens_at(key, now).filter(|_| waits_for_a_time);
            HeldKey { key: key.cloned(), ready, in_flight, limit, opens_at }
        });
        HeldKeys { count: busiest.count, busiest: shown.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    /// A key of each number of messages, in any order, and some without a message.
    #[test]
    fn those_with_the_most_messages_are_kept() -> Result<()> {
        for (keys, seed) in [(1, 1), (KEYS_SHOWN_MAX, 2), (KEYS_SHOWN_MAX + 1, 3), (5 * KEYS_SHOWN_MAX, 4)] {
            let names = (0..keys).map(|n| Key::new(format!("k{n:04}"))).collect::<Result<Vec<_>>>()?;
            // Pairs have the same number.
            let mut all: Vec<(u64, &Key)> = names.iter().enumerate().map(|(n, key)| (1 + n as u64 / 2, key)).collect();
            let mut expected = all.clone();
            expected.sort_by_key(|(messages, key)| (Reverse(*messages), *key));
            expected.truncate(KEYS_SHOWN_MAX);
            fastrand::Rng::with_seed(seed).shuffle(&mut all);
            let mut busiest = Busiest::default();
            for (messages, key) in &all {
                busiest.add(Some(key), messages - messages / 3, messages / 3);
            }
            busiest.add(None, 0, 0);
            let kept = busiest.kept.into_sorted_vec();
            let kept: Vec<_> = kept.iter().filter_map(|((messages, key), ..)| Some((messages.0, (*key)?))).collect();
            assert_eq!((busiest.count, kept), (keys as u64, expected));
        }
        Ok(())
    }
}
