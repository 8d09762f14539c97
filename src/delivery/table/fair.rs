//! Fair groups: whose turn it is among the keys that have due messages.
//!
//! Each message in memory has a *turn*, the start tag of start-time fair queueing (Goyal, Vin and Cheng, 1996): one more than that of
//! the message of its key before it, and not below the turn that is served now. The message of the lowest turn is next. So each
//! key has its share however many messages another one has, and one that had none for a while saves nothing up.
//!
//! The memory holds a few messages of each key. What a key has beyond these is *sorted*: it goes back to the store, to the
//! other due messages of its key, and comes from there when the key has room again. So a key with a million due messages
//! does not stand before those of another one for longer than it takes to sort them.

use std::collections::{HashMap, VecDeque};

use super::{DeliveryEnd, Held, Now, Slot, Table};
use crate::model::limits::{KEY_AHEAD_MIN, PREFETCH_MESSAGES_MAX, SORTED_KEYS_MAX, SORTED_MESSAGES_MAX};
use crate::model::message::{Envelope, Key};
use crate::store::{KeyCount, ReservedMessage, Sorted};

/// The messages without a key are those of one key.
type MessageKey = Option<Key>;

#[derive(Debug, Default)]
pub(super) struct Fair {
    /// The turn of the message that was handed out last.
    now: u64,
    /// For each key that had a message lately, the turn of its next one.
    next: HashMap<MessageKey, u64>,
    /// How many turns are remembered before those that are over are forgotten.
    remembered: usize,
    sorted: HashMap<MessageKey, SortedCount>,
    /// The keys of which the store has sorted messages, in the order in which it is asked for them.
    line: VecDeque<MessageKey>,
    /// What the reservation that is out asks for.
    asked: Vec<KeyCount>,
    /// Keys of the messages that the draft which is out sorts.
    leaving: Vec<MessageKey>,
}

/// Sorted messages of a key.
#[derive(Debug, Default)]
struct SortedCount {
    /// Those that the store has.
    stored: u64,
    /// Those that were decided, and the store has not answered yet.
    coming: u64,
}

const REMEMBERED_MIN: usize = 1_024;

impl Fair {
    /// The turn of one more message of a key.
    fn turn(&mut self, key: &MessageKey) -> u64 {
        if self.next.len() >= self.remembered.max(REMEMBERED_MIN) {
            let now = self.now;
            self.next.retain(|_, next| *next > now);
            self.remembered = 2 * self.next.len();
        }
        let turn = self.next.get(key).map_or(self.now, |next| self.now.max(*next));
        self.next.insert(key.clone(), turn + 1);
        turn
    }

    pub(super) fn draft(&mut self, sorted: &Sorted) {
        self.leaving.push(sorted.key.clone());
    }

    fn found(&mut self, KeyCount { key, messages }: KeyCount) {
        self.line.push_back(key.clone());
        self.sorted.insert(key, SortedCount { stored: messages, coming: 0 });
    }

    /// A message of this key is to be sorted.
    fn coming(&mut self, key: MessageKey) {
        self.sorted.entry(key).or_default().coming += 1;
    }

    /// The store has answered the draft.
    pub(super) fn settled(&mut self) {
        for key in std::mem::take(&mut self.leaving) {
            let Some(count) = self.sorted.get_mut(&key) else { continue };
            count.coming = count.coming.saturating_sub(1);
            count.stored += 1;
            if count.stored == 1 {
                self.line.push_back(key);
            }
        }
    }

    /// The store has answered how many are left of the keys that it was asked for. Gives what was asked for.
    fn answered(&mut self, left: &[u64]) -> HashMap<MessageKey, u64> {
        let asked = std::mem::take(&mut self.asked);
        for (KeyCount { key, .. }, left) in asked.iter().zip(left) {
            let Some(count) = self.sorted.get_mut(key) else { continue };
            count.stored = *left;
            if count.stored > 0 {
                self.line.push_back(key.clone());
            } else if count.coming == 0 {
                self.sorted.remove(key);
            }
        }
        asked.into_iter().map(|KeyCount { key, messages }| (key, messages)).collect()
    }
}

/// How many messages of each key are in memory, while more come.
struct Shares {
    held: HashMap<MessageKey, usize>,
    all: usize,
    most: usize,
}

impl Shares {
    fn add(&mut self, key: &MessageKey) {
        *self.held.entry(key.clone()).or_default() += 1;
        self.all += 1;
    }

    /// Whether the memory takes one more message of a key.
    fn take(&mut self, key: &MessageKey) -> bool {
        let held = self.held.get(key).copied().unwrap_or_default();
        if held >= self.most || self.all >= PREFETCH_MESSAGES_MAX {
            return false;
        }
        self.add(key);
        true
    }
}

impl Table {
    /// After a change of the policy, or of what is sorted: what is sorted is reserved by key also in a group that was fair.
    pub(super) fn follow_fairness(&mut self) {
        if self.policy.fair && self.order.is_none() {
            self.fair.get_or_insert_default();
        } else if self.fair.as_ref().is_some_and(|fair| fair.sorted.is_empty()) {
            self.fair = None;
        }
    }

    /// What an earlier epoch sorted.
    pub fn found_sorted(&mut self, keys: Vec<KeyCount>) {
        if !keys.is_empty() {
            let fair = self.fair.get_or_insert_default();
            keys.into_iter().for_each(|key| fair.found(key));
        }
    }

    /// Whether the store has sorted messages that the memory has room for.
    pub fn wants_sorted(&self) -> bool {
        let is_hungry = self.prefetched() <= self.appetite / 2;
        is_hungry && self.fair.as_ref().is_some_and(|fair| !fair.line.is_empty())
    }

    /// The sorted messages to reserve now, by key, beside those that are due; `None` in a group without sorted ones that is not
    /// fair.
    pub fn ask_for_sorted(&mut self) -> Option<Vec<KeyCount>> {
        if !self.wants_sorted() {
            return self.fair.as_ref().map(|_| Vec::new());
        }
        let Shares { mut held, all, most } = self.shares();
        let mut room = self.appetite.saturating_sub(all).min(SORTED_MESSAGES_MAX);
        let fair = self.fair.as_mut()?;
        for _ in 0..fair.line.len().min(SORTED_KEYS_MAX) {
            if room == 0 {
                break;
            }
            let Some(key) = fair.line.pop_front() else { break };
            let (stored, held) = (fair.sorted.get(&key).map_or(0, |count| count.stored), held.remove(&key));
            let messages = most.saturating_sub(held.unwrap_or_default()).min(room);
            let messages = usize::try_from(stored).unwrap_or(usize::MAX).min(messages);
            if messages == 0 {
                fair.line.push_back(key);
                continue;
            }
            room -= messages;
            fair.asked.push(KeyCount { key, messages: messages as u64 });
        }
        Some(fair.asked.clone())
    }

    fn shares(&self) -> Shares {
        let mut held = HashMap::<MessageKey, usize>::new();
        for message in self.offered().map(|held| &held.message.envelope.key) {
            match held.get_mut(message) {
                Some(count) => *count += 1,
                None => drop(held.insert(message.clone(), 1)),
            }
        }
        let sorted = self.fair.as_ref().map_or(0, |fair| fair.sorted.len());
        let most = (self.appetite / held.len().max(sorted).max(1)).max(KEY_AHEAD_MIN);
        Shares { held, all: self.prefetched(), most }
    }

    /// Takes in a reservation: holds what the memory has room for, and sorts the rest. A message that is due waits behind the
    /// sorted ones of its key.
    pub(super) fn hold_fairly(&mut self, messages: Vec<(Slot, ReservedMessage)>, sorted_left: &[u64], now: Now) {
        let mut asked = self.fair.as_mut().map(|fair| fair.answered(sorted_left)).unwrap_or_default();
        let mut shares = self.shares();
        for (slot, reserved) in messages {
            let key = reserved.message.as_ref().ok().map(|message| message.envelope.key.clone());
            match key.filter(|_| self.policy.fair) {
                Some(key) if was_sorted(&mut asked, &key) => shares.add(&key),
                Some(key) if self.has_sorted(&key) || !shares.take(&key) => {
                    self.sort(slot, reserved, key);
                    continue;
                }
                _ => {}
            }
            self.hold(slot, reserved, now);
        }
        self.follow_fairness();
    }

    fn has_sorted(&self, key: &MessageKey) -> bool {
        self.fair.as_ref().is_some_and(|fair| fair.sorted.contains_key(key))
    }

    fn sort(&mut self, slot: Slot, reserved: ReservedMessage, key: MessageKey) {
        let ReservedMessage { id, ready_at, .. } = reserved;
        if let Some(fair) = &mut self.fair {
            fair.coming(key.clone());
        }
        self.decide_end(id.clone(), slot, None, DeliveryEnd::Sorted(Sorted { id, key, ready_at }));
    }

    /// The turn of one more message of a key; the same for all without fairness.
    pub(super) fn turn_of(&mut self, key: &MessageKey) -> u64 {
        self.fair.as_mut().map_or(0, |fair| fair.turn(key))
    }

    /// The position of the next of the ready messages that `may` be handed out: of the key whose turn it is, the first by priority.
    pub(super) fn choose_fairly(&mut self, may: impl Fn(&Envelope) -> bool) -> Option<usize> {
        let ready = self.ready.iter().enumerate().filter(|(_, held)| may(&held.message.envelope));
        let (first, turn) = ready.map(|(at, held)| (at, held.turn)).min_by_key(|(at, turn)| (*turn, *at))?;
        let key = &self.ready.get(first)?.message.envelope.key;
        let priority = |held: &Held| {
            let envelope = &held.message.envelope;
            (envelope.key == *key && may(envelope)).then_some(envelope.priority)
        };
        let next = if self.chooser.choosy { self.chooser.choose(self.ready.iter().map(priority))? } else { first };
        if next != first {
            let later = self.ready.get(next)?.turn;
            self.ready.get_mut(first)?.turn = later;
        }
        if let Some(fair) = &mut self.fair {
            fair.now = fair.now.max(turn);
        }
        Some(next)
    }

    /// Takes the messages whose attempt is to be charged now, though others are ready: those whose turn is not later.
    pub(super) fn next_uncharged(&mut self, most: usize) -> Vec<Held> {
        let Some(next) = self.ready.iter().map(|held| held.turn).min() else { return Vec::new() };
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for held in self.uncharged.drain(..) {
            match held.turn <= next && taken.len() < most {
                true => taken.push(held),
                false => left.push_back(held),
            }
        }
        self.uncharged = left;
        taken
    }
}

/// Whether a message is one of those that were asked for.
fn was_sorted(asked: &mut HashMap<MessageKey, u64>, key: &MessageKey) -> bool {
    asked.get_mut(key).filter(|left| **left > 0).map(|left| *left -= 1).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::delivery::receipt::{Decision, ReceiptMaker};
    use crate::delivery::table::{Gather, Policy, Want};
    use crate::model::error::Result;
    use crate::model::message::{GroupName, MessageId, NewMessage, TopicName};
    use crate::model::partition::Partition;
    use crate::model::retry::{Backoff, OnFailure};
    use crate::model::time::Timestamp;
    use crate::model::topic::{Expiry, GroupPartition};
    use crate::model::version::Version;
    use crate::platform::clock::Instant;
    use crate::platform::signing_key::SigningKey;
    use crate::store::{Claim, Epoch, MemberId, Reservation, Reserved};

    /// A store with one partition, and its owner's memory: what is due and not sorted, and what is sorted, by key and due time.
    struct World {
        table: Table,
        due: VecDeque<(u64, String)>,
        sorted: BTreeMap<String, VecDeque<u64>>,
        reservations: u64,
        ids: HashMap<MessageId, (u64, String)>,
        delivered: Vec<(u64, String)>,
    }

    fn now() -> Now {
        let store = Timestamp::from_ms(1_000_000_000);
        Now { store, elapsed: Instant::default(), instant: Instant::default(), chance: 0.0 }
    }

    impl World {
        fn new(due: impl IntoIterator<Item = String>) -> Result<World> {
            let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
            let group_partition = GroupPartition { topic, partition: Partition(0), group };
            let policy = Policy {
                backoff: Backoff::default(),
                max_attempts: 5,
                dedup_window: Duration::ZERO,
                ordered: false,
                on_expiry: Expiry::Drop,
                in_flight: 10_000,
                fair: true,
            };
            let claim = Claim { group_partition, epoch: Epoch::after(0) };
            let receipts = ReceiptMaker::new(&claim, 1, MemberId::fresh("host"), SigningKey::fresh()?);
            let (ids, delivered, sorted) = (HashMap::new(), Vec::new(), BTreeMap::new());
            let due = (1..).zip(due).collect();
            Ok(World { table: Table::new(receipts, policy), due, sorted, reservations: 0, ids, delivered })
        }

        /// One turn of the loop of the owner: settles, and reserves if the memory wants anything.
        fn turn(&mut self) -> Result<()> {
            while let Some((settlement, _)) = self.table.draft() {
                for sorted in settlement.sorted {
                    let (due, key) = self.ids.remove(&sorted.id).unwrap_or_default();
                    let line = self.sorted.entry(key).or_default();
                    line.insert(line.partition_point(|before| *before < due), due);
                }
                self.table.settled(now());
            }
            if self.table.room().is_none() || self.due.is_empty() && !self.table.wants_sorted() {
                return Ok(());
            }
            let limit = self.table.room().map_or(0, |limit| limit.messages);
            let asked = self.table.ask_for_sorted().unwrap_or_default();
            let (mut messages, mut sorted_left) = (Vec::new(), Vec::new());
            for KeyCount { key, messages: wanted } in asked {
                let key = key.map(|key| key.to_string()).unwrap_or_default();
                let line = self.sorted.entry(key.clone()).or_default();
                let count = line.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
                messages.extend(line.drain(..count).map(|due| (due, key.clone())));
                sorted_left.push(line.len() as u64);
            }
            messages.extend(self.due.drain(..limit.min(self.due.len())));
            let messages = messages.into_iter().map(|(due, key)| self.reserved(due, key)).collect::<Result<_>>()?;
            self.reservations += 1;
            let reservation = Reservation(self.reservations);
            let reserved = Reserved { reservation, messages, head: None, sorted_left, dropped: 0, unsettled: 0 };
            self.table.reserved(reserved, now());
            Ok(())
        }

        fn reserved(&mut self, due: u64, key: String) -> Result<ReservedMessage> {
            let at = Timestamp::from_ms(due);
            let id = MessageId::new(format!("{key}-{due}"))?;
            let mut message = NewMessage::new("x").id(id.clone());
            message.key = (!key.is_empty()).then(|| Key::new(&key)).transpose()?;
            self.ids.insert(id.clone(), (due, key));
            let message = Ok(message.accept(at)?);
            let (bytes, version) = (100, Version::from_us(1));
            Ok(ReservedMessage { id, ready_at: at, position: at, attempts: 0, bytes, version, message })
        }

        /// A consumer takes one message and acknowledges it. False if there is none.
        fn deliver(&mut self) -> Result<bool> {
            let (min_age, on_failure, gather) = (Duration::ZERO, OnFailure::default(), Gather::default());
            let visibility_timeout = Duration::from_secs(30);
            let want = Want { max: 1, visibility_timeout, min_age, per_key: 1, on_failure, gather };
            let mut deliveries = Vec::new();
            self.table.take(None, want, now(), &mut deliveries);
            let Some(delivery) = deliveries.pop() else { return Ok(false) };
            let serial = self.delivered.len() as u64;
            assert!(self.table.decide(serial, Decision::Ack, now()).is_ok());
            self.delivered.extend(self.ids.remove(&delivery.message.id));
            Ok(true)
        }

        fn drain(&mut self) -> Result<()> {
            let mut idle = 0;
            while idle < 3 {
                self.turn()?;
                idle = if self.deliver()? { 0 } else { idle + 1 };
            }
            Ok(())
        }

        fn keys(&self) -> Vec<&str> {
            self.delivered.iter().map(|(_, key)| key.as_str()).collect()
        }
    }

    #[test]
    fn everything_is_delivered_once_and_each_key_in_order() -> Result<()> {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let keys = random.usize(1..60);
            let due: Vec<String> = (0..random.usize(1..4_000))
                .map(|_| {
                    let most = random.usize(0..keys);
                    random.usize(0..=most)
                })
                .map(|key| if key == 0 { String::new() } else { format!("k{key}") })
                .collect();
            let mut expected = BTreeMap::<String, Vec<u64>>::new();
            for (at, key) in (1..).zip(&due) {
                expected.entry(key.clone()).or_default().push(at);
            }
            let mut world = World::new(due)?;
            world.drain()?;
            let mut found = BTreeMap::<String, Vec<u64>>::new();
            for (at, key) in &world.delivered {
                found.entry(key.clone()).or_default().push(*at);
            }
            let missing = expected.iter().find(|(key, due)| found.get(*key) != Some(*due));
            assert!(
                missing.is_none() && found.len() == expected.len(),
                "seed {seed}: {:?}",
                missing.map(|(key, _)| key)
            );
        }
        Ok(())
    }

    /// While both have messages, two keys are never further apart than start-time fair queueing allows, and a round of the memory.
    #[test]
    fn keys_that_have_messages_have_equal_shares() -> Result<()> {
        let due = (0..30_000).map(|n| if n < 20_000 { "noisy" } else { ["a", "b"][n % 2] });
        let mut world = World::new(due.map(str::to_owned))?;
        world.drain()?;
        let keys = world.keys();
        let first = keys.iter().position(|key| *key == "a").unwrap_or(usize::MAX);
        let last = keys.iter().rposition(|key| *key == "a").unwrap_or(0);
        for window in [30, 300, 3_000] {
            for at in (first + 2_000..last.saturating_sub(window)).step_by(window) {
                let count = |key| keys[at..at + window].iter().filter(|each| **each == key).count();
                let (noisy, a, b) = (count("noisy"), count("a"), count("b"));
                let slack = 2 + window / 100;
                assert!(noisy.abs_diff(a) <= slack && a.abs_diff(b) <= slack, "{noisy} {a} {b} at {at} of {window}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_quiet_key_has_its_turn_before_what_another_one_has_left() -> Result<()> {
        let quiet = (0..100).map(|n| format!("quiet-{n}"));
        let mut world = World::new(std::iter::repeat_n("noisy".to_owned(), 5_000).chain(quiet))?;
        // The burst is sorted before anybody asks.
        for _ in 0..20 {
            world.turn()?;
        }
        world.drain()?;
        let keys = world.keys();
        let last = keys.iter().rposition(|key| key.starts_with("quiet")).unwrap_or(usize::MAX);
        assert!(last < 2 * (100 + KEY_AHEAD_MIN), "the last quiet message is number {last}");
        assert_eq!(keys.len(), 5_100);
        Ok(())
    }

    #[test]
    fn what_an_earlier_epoch_sorted_is_asked_for() -> Result<()> {
        let mut world = World::new(["b".to_owned()])?;
        world.sorted.insert("a".to_owned(), (1..100).collect());
        world.table.found_sorted(vec![KeyCount { key: Some(Key::new("a")?), messages: 99 }]);
        world.drain()?;
        assert_eq!(
            (world.delivered.len(), world.keys().iter().position(|key| *key == "b").is_some_and(|at| at < 3)),
            (100, true)
        );
        Ok(())
    }

    #[test]
    fn sorted_messages_are_delivered_after_the_group_is_fair_no_more() -> Result<()> {
        let mut world = World::new(std::iter::repeat_n("noisy".to_owned(), 3_000))?;
        world.turn()?;
        world.turn()?;
        assert!(!world.sorted.is_empty());
        let policy = Policy { fair: false, ..world.table.policy.clone() };
        world.table.set_policy(policy);
        world.drain()?;
        assert_eq!((world.delivered.len(), world.table.fair.is_none()), (3_000, true));
        Ok(())
    }
}
