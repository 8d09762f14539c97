use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::delivery::receipt::{Decision, Delivery};
use crate::delivery::table::testing::{policy, table};
use crate::delivery::table::{Gather, Policy, Want};
use crate::model::error::Result;
use crate::model::message::{MessageId, NewMessage};
use crate::model::retry::OnFailure;
use crate::model::time::Timestamp;
use crate::model::version::Version;
use crate::platform::clock::Instant;
use crate::store::{Reservation, Reserved};

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
        let (ids, delivered, sorted) = (HashMap::new(), Vec::new(), BTreeMap::new());
        let due = (1..).zip(due).collect();
        let table = table(Policy { fair: true, in_flight: 10_000, ..policy() })?;
        Ok(World { table, due, sorted, reservations: 0, ids, delivered })
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

    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let (min_age, on_failure, gather) = (Duration::ZERO, OnFailure::default(), Gather::default());
        let visibility_timeout = Duration::from_secs(30);
        let want = Want { max, visibility_timeout, min_age, per_key: 1, on_failure, gather };
        let mut deliveries = Vec::new();
        self.table.take(None, want, now(), &mut deliveries);
        deliveries
    }

    /// A consumer takes one message and acknowledges it. False if there is none.
    fn deliver(&mut self) -> Result<bool> {
        let Some(delivery) = self.take(1).pop() else { return Ok(false) };
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
        assert!(missing.is_none() && found.len() == expected.len(), "seed {seed}: {:?}", missing.map(|(key, _)| key));
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

/// At any order of settlements no key has more in flight than it may, and everything is delivered.
#[test]
fn no_key_has_more_in_flight_than_its_limit() -> Result<()> {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (keys, limit) = (random.usize(1..40), random.u32(1..6));
        let count = random.usize(1..2_000);
        let due: Vec<String> = (0..count).map(|_| format!("k{}", random.usize(0..keys))).collect();
        let mut world = World::new(due)?;
        world.table.set_policy(Policy { key_in_flight: NonZeroU32::new(limit), ..world.table.policy.clone() });
        let (mut out, mut serial, mut delivered) = (Vec::<(u64, Delivery)>::new(), 0, 0);
        let mut idle = 0;
        while delivered < count && idle < 100 {
            world.turn()?;
            let taken = world.take(random.usize(1..20));
            idle = if taken.is_empty() { idle + 1 } else { 0 };
            for delivery in taken {
                out.push((serial, delivery));
                serial += 1;
            }
            let mut by_key = HashMap::<_, usize>::new();
            out.iter().for_each(|(_, out)| *by_key.entry(out.message.envelope.key.clone()).or_default() += 1);
            assert!(by_key.values().all(|out| *out <= limit as usize), "seed {seed}: {by_key:?}");
            while !out.is_empty() && random.u8(0..4) > 0 {
                let (serial, _) = out.swap_remove(random.usize(0..out.len()));
                assert!(world.table.decide(serial, Decision::Ack, now()).is_ok());
                delivered += 1;
            }
        }
        assert_eq!(delivered, count, "seed {seed}");
    }
    Ok(())
}

/// An owner whose memory has no room for more of the keys that wait asks the store no more until something changes.
#[test]
fn nothing_is_asked_for_again_and_again() -> Result<()> {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (keys, limit) = (random.usize(1..40), random.u32(1..6));
        let mut due: Vec<String> = (0..random.usize(1..500)).map(|_| format!("k{}", random.usize(0..keys))).collect();
        due.extend(std::iter::repeat_n("noisy".to_owned(), random.usize(0..300)));
        let mut world = World::new(due)?;
        let key_in_flight = NonZeroU32::new(limit).filter(|_| random.bool());
        world.table.set_policy(Policy { key_in_flight, ..world.table.policy.clone() });
        while !world.due.is_empty() {
            world.turn()?;
        }
        for _ in 0..30 {
            world.take(random.usize(0..10));
            for _ in 0..5 {
                world.turn()?;
            }
            let before = world.reservations;
            world.turn()?;
            assert_eq!(world.reservations, before, "seed {seed}");
        }
    }
    Ok(())
}

/// Keys at their limit leave room to the one that is not.
#[test]
fn keys_at_their_limit_take_no_share_of_the_memory() -> Result<()> {
    let mut world = World::new((0..2_400).map(|n| format!("k{}", n % 600)))?;
    world.table.set_policy(Policy { key_in_flight: NonZeroU32::new(3), ..world.table.policy.clone() });
    let mut idle = 0;
    while idle < 10 {
        world.turn()?;
        idle = if world.take(10).is_empty() { idle + 1 } else { 0 };
    }
    world.due.extend((3_000..3_050).map(|at| (at, "late".to_owned())));
    for _ in 0..20 {
        world.turn()?;
    }
    let before = world.reservations;
    world.turn()?;
    assert_eq!(world.reservations, before);
    assert_eq!(world.take(10).len(), 3);
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
