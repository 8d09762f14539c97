use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::delivery::receipt::{Decision, Delivery};
use crate::delivery::table::testing::{policy, table};
use crate::delivery::table::{Gather, Policy, Want};
use crate::model::error::Result;
use crate::model::limits::DUE_LOOKED_AT_MAX;
use crate::model::message::{MessageId, NewMessage};
use crate::model::retry::OnFailure;
use crate::model::topic::{KeyException, KeyLimits, KeyPatterns, KeyRate, Weight};
use crate::model::version::Version;
use crate::store::{Reservation, Reserved};

/// A store with one partition, and its owner's memory: what is due and not sorted, and what is sorted, by key and due time.
struct World {
    table: Table,
    now: Now,
    due: VecDeque<(u64, String)>,
    sorted: BTreeMap<String, VecDeque<u64>>,
    reservations: u64,
    ids: HashMap<MessageId, (u64, String)>,
    delivered: Vec<(u64, String)>,
}

fn start() -> Now {
    let store = Timestamp::from_ms(1_000_000_000);
    Now { store, elapsed: Instant::default(), instant: Instant::default(), chance: 0.0 }
}

fn want(max: usize) -> Want {
    let (min_age, on_failure, gather) = (Duration::ZERO, OnFailure::default(), Gather::default());
    let visibility_timeout = Duration::from_secs(30);
    Want { max, visibility_timeout, min_age, per_key: 1, on_failure, gather }
}

fn text_of(key: &MessageKey) -> String {
    key.as_ref().map(Key::to_string).unwrap_or_default()
}

impl World {
    fn new(due: impl IntoIterator<Item = String>) -> Result<World> {
        let (ids, delivered, sorted) = (HashMap::new(), Vec::new(), BTreeMap::new());
        let due = (1..).zip(due).collect();
        let table = table(Policy { fair: Some(Box::default()), in_flight: 10_000, ..policy() })?;
        Ok(World { table, now: start(), due, sorted, reservations: 0, ids, delivered })
    }

    fn limit(&mut self, in_flight: Option<u32>, rate: Option<KeyRate>) {
        let limits = KeyLimits { in_flight: in_flight.and_then(NonZeroU32::new), rate };
        self.set(KeySettings { limits, ..KeySettings::default() });
    }

    fn set(&mut self, settings: KeySettings) {
        self.table.set_policy(Policy { fair: Some(Box::new(settings)), ..self.table.policy.clone() });
    }

    fn weigh(&mut self, weights: &[(&str, u32)]) -> Result<()> {
        let weights = weights.iter().map(|(pattern, weight)| Ok(((*pattern).to_owned(), Weight::new(*weight)?)));
        let weights = KeyPatterns::new("weights", weights.collect::<Result<_>>()?)?;
        self.set(KeySettings { weights, ..KeySettings::default() });
        Ok(())
    }

    fn pass(&mut self, ms: u64) {
        let span = Duration::from_millis(ms);
        let Now { store, instant, elapsed, chance } = self.now;
        self.now = Now { store: store.plus(span), instant: instant.plus(span), elapsed: elapsed.plus(span), chance };
    }

    /// One turn of the loop of the owner: settles, and reserves if the memory wants anything.
    fn turn(&mut self) -> Result<()> {
        while let Some((settlement, _)) = self.table.draft() {
            for sorted in settlement.sorted {
                let (due, key) = self.ids.remove(&sorted.id).unwrap_or_default();
                let line = self.sorted.entry(key).or_default();
                line.insert(line.partition_point(|before| *before < due), due);
            }
            self.table.settled(self.now);
        }
        self.table.resume(self.now);
        if self.table.room().is_none() || self.due.is_empty() && !self.table.wants_sorted() {
            return Ok(());
        }
        let limit = self.table.room().unwrap_or_default();
        let by_key = self.table.ask_by_key(limit, self.now);
        let ByKey { limit, keys, share } = by_key.unwrap_or(ByKey { limit, keys: Vec::new(), share: None });
        let (mut messages, mut sorted_left) = (Vec::new(), Vec::new());
        for KeyCount { key, messages: wanted } in &keys {
            let (key, wanted) = (text_of(key), *wanted);
            let line = self.sorted.entry(key.clone()).or_default();
            let count = line.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
            messages.extend(line.drain(..count).map(|due| (due, key.clone())));
            sorted_left.push(line.len() as u64);
        }
        let (taken, sorted) = self.look_at_due(limit.messages, share);
        messages.extend(taken);
        let is_other = |sorted: &KeyCount| keys.iter().all(|asked| asked.key != sorted.key);
        let sorted = sorted.into_iter().filter(is_other).collect();
        let messages = messages.into_iter().map(|(due, key)| self.reserved(due, key)).collect::<Result<_>>()?;
        self.reservations += 1;
        let reservation = Reservation(self.reservations);
        let (paused, head) = (Vec::new(), None);
        let reserved = Reserved { reservation, messages, head, sorted_left, sorted, paused, dropped: 0, unsettled: 0 };
        self.table.reserved(reserved, self.now);
        Ok(())
    }

    /// Takes of the due messages those that the memory has room for, and sorts others: which, and how many of each key are sorted then.
    fn look_at_due(&mut self, room: usize, share: Option<usize>) -> (Vec<(u64, String)>, Vec<KeyCount>) {
        let looks = share.map_or(room, |_| DUE_LOOKED_AT_MAX).min(self.due.len());
        let (mut taken, mut counts, mut sorted) = (Vec::new(), HashMap::<String, usize>::new(), BTreeSet::new());
        for (due, key) in self.due.drain(..looks) {
            let line = self.sorted.get(&key).map_or(0, VecDeque::len);
            let count = counts.entry(key.clone()).or_default();
            if share.is_none_or(|share| line == 0 && *count < share && taken.len() < room) {
                *count += 1;
                taken.push((due, key));
            } else {
                let line = self.sorted.entry(key.clone()).or_default();
                line.insert(line.partition_point(|before| *before < due), due);
                sorted.insert(key);
            }
        }
        let count = |key: String| {
            let messages = self.sorted[&key].len() as u64;
            KeyCount { key: Key::new(key).ok(), messages }
        };
        (taken, sorted.into_iter().map(count).collect())
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
        self.take_as(want(max))
    }

    fn take_as(&mut self, want: Want) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        self.table.take(None, want, self.now, &mut deliveries);
        deliveries
    }

    /// A consumer takes one message and acknowledges it. False if there is none.
    fn deliver(&mut self) -> Result<bool> {
        let Some(delivery) = self.take(1).pop() else { return Ok(false) };
        let serial = self.delivered.len() as u64;
        assert!(self.table.decide(serial, Decision::Ack, self.now).is_ok());
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

/// While all have messages, each has its share of any span, and a round of the memory more or less.
#[test]
fn shares_are_by_weight() -> Result<()> {
    let weights = [("gold-1", 3), ("gold-2", 3), ("silver", 2), ("plain", 1)];
    let due = (0..24_000).map(|n| weights[n % weights.len()].0.to_owned());
    let mut world = World::new(due)?;
    world.weigh(&[("gold-*", 3), ("silver", 2)])?;
    world.drain()?;
    let keys = world.keys();
    assert_eq!(keys.len(), 24_000);
    let end = keys.iter().rposition(|key| *key == "gold-1").unwrap_or(0);
    for window in [90, 900, 9_000] {
        for at in (2_000..end.saturating_sub(window)).step_by(window) {
            for (key, weight) in weights {
                let count = keys[at..at + window].iter().filter(|each| **each == key).count();
                let share = window * weight as usize / 9;
                assert!(count.abs_diff(share) <= 6 + window / 100, "{key}: {count} of {share} at {at} of {window}");
            }
        }
    }
    Ok(())
}

/// The memory of a slow consumer is smaller than the share of a heavy key: it gets that in parts.
#[test]
fn a_heavy_key_beside_many_has_its_share() -> Result<()> {
    for (weight, others) in [(100, 300), (10, 50), (50, 1_000)] {
        let heavy = std::iter::repeat_n("heavy".to_owned(), 20 * KEY_AHEAD_MIN * weight as usize);
        let light = (0..40 * others).map(|n| format!("light-{}", n % others));
        let mut world = World::new(heavy.chain(light))?;
        world.weigh(&[("heavy", weight)])?;
        for _ in 0..200 {
            world.turn()?;
        }
        world.drain()?;
        let keys = world.keys();
        // Ten of the twenty rounds in which all have messages.
        let round = KEY_AHEAD_MIN * (weight as usize + others);
        let ten = &keys[5 * round..15 * round];
        let (count, share) = (ten.iter().filter(|key| **key == "heavy").count(), 10 * KEY_AHEAD_MIN * weight as usize);
        assert!(count.abs_diff(share) <= share / 10 + 2, "{count} of {share} by {weight} beside {others}");
        assert_eq!(keys.len(), 20 * KEY_AHEAD_MIN * weight as usize + 40 * others);
    }
    Ok(())
}

/// The messages in memory take their turns by the new weights.
#[test]
fn a_weight_counts_at_once_for_what_waits() -> Result<()> {
    let due = (0..8_000).map(|n| ["a", "b"][n % 2].to_owned());
    let mut world = World::new(due)?;
    for (weights, share) in [(vec![], 50), (vec![("a", 4)], 80), (vec![("b", 9)], 10), (vec![("*", 7)], 50)] {
        world.weigh(&weights)?;
        let before = world.delivered.len();
        for _ in 0..1_000 {
            world.turn()?;
            world.deliver()?;
        }
        let count = world.keys()[before..].iter().filter(|key| **key == "a").count();
        assert!(count.abs_diff(share * 10) <= 40, "{count} of {} with {weights:?}", share * 10);
    }
    world.drain()?;
    assert_eq!(world.keys().len(), 8_000);
    Ok(())
}

/// Exceptions are limits as those of the group are: never exceeded, and everything is delivered.
#[test]
fn some_keys_have_other_limits() -> Result<()> {
    let due = (0..900).map(|n| ["gold-1", "gold-2", "free", "plain"][n % 4].to_owned());
    let mut world = World::new(due)?;
    let exceptions = [
        ("gold-*", KeyException::new(Some(5), None, None)?),
        ("gold-2", KeyException::new(None, Some(0.0), None)?),
        ("free", KeyException::new(Some(0), Some(0.0), None)?),
    ];
    let exceptions = exceptions.map(|(pattern, exception)| (pattern.to_owned(), exception));
    let exceptions = KeyPatterns::new("key_limits", BTreeMap::from(exceptions))?;
    let limits = KeyLimits { in_flight: NonZeroU32::new(2), rate: Some(KeyRate::new(10.0, 3)?) };
    world.set(KeySettings { limits, exceptions, ..KeySettings::default() });
    let count = |deliveries: &[Delivery]| {
        let mut counts = BTreeMap::<String, usize>::new();
        for delivery in deliveries {
            *counts
                .entry(delivery.message.envelope.key.as_ref().map(Key::to_string).unwrap_or_default())
                .or_default() += 1;
        }
        counts.into_iter().collect::<Vec<_>>()
    };
    let mut taken = Vec::new();
    for _ in 0..50 {
        world.turn()?;
        taken.extend(world.take(100));
    }
    let of = |key: &str, count: usize| (key.to_owned(), count);
    // The rate of the group holds for `gold-1`; the exception of `gold-2` leaves it the limit of the group in flight.
    assert_eq!(count(&taken), [of("free", 225), of("gold-1", 3), of("gold-2", 2), of("plain", 2)]);
    for serial in 0..taken.len() as u64 {
        assert!(world.table.decide(serial, Decision::Ack, world.now).is_ok());
    }
    world.pass(100);
    let mut more = Vec::new();
    for _ in 0..5 {
        world.turn()?;
        more.extend(world.take(100));
    }
    assert_eq!(count(&more), [of("gold-1", 1), of("gold-2", 2), of("plain", 2)]);
    Ok(())
}

/// A change of the rate of one key gives no other key another burst.
#[test]
fn another_rate_of_a_key_is_none_of_others() -> Result<()> {
    let mut world = World::new((0..100).map(|n| ["a", "b"][n % 2].to_owned()))?;
    let limits = KeyLimits { in_flight: None, rate: Some(KeyRate::new(1.0, 2)?) };
    let with = |exceptions: &[(&str, KeyException)]| {
        let exceptions = exceptions.iter().map(|(pattern, exception)| ((*pattern).to_owned(), *exception));
        let exceptions = KeyPatterns::new("key_limits", exceptions.collect())?;
        Ok::<_, crate::model::error::Error>(KeySettings { limits, exceptions, ..KeySettings::default() })
    };
    let mut taken_of = |settings: KeySettings| -> Result<Vec<String>> {
        world.set(settings);
        let mut keys = Vec::new();
        for _ in 0..5 {
            world.turn()?;
            keys.extend(world.take(100).into_iter().filter_map(|delivery| delivery.message.envelope.key));
        }
        let mut keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        keys.sort();
        Ok(keys)
    };
    assert_eq!(taken_of(with(&[])?)?, ["a", "a", "b", "b"]);
    assert_eq!(taken_of(with(&[("a", KeyException::new(None, Some(2.0), Some(3))?)])?)?, ["a", "a", "a"]);
    assert_eq!(taken_of(with(&[("b", KeyException::new(Some(4), None, None)?)])?)?, ["a", "a"]);
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
        world.limit(Some(limit), None);
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
                assert!(world.table.decide(serial, Decision::Ack, world.now).is_ok());
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
        let rate =
            if random.bool() { Some(KeyRate::new(f64::from(random.u32(1..20)), random.u32(1..4))?) } else { None };
        world.limit(Some(limit).filter(|_| random.bool()), rate);
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
    world.limit(Some(3), None);
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

/// At any order of settlements, and however time passes, no key is faster than its rate, and everything is delivered in time.
#[test]
fn no_key_is_delivered_faster_than_its_rate() -> Result<()> {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (keys, count) = (random.usize(1..30), random.usize(1..600));
        let due: Vec<String> = (0..count).map(|_| format!("k{}", random.usize(0..keys))).collect();
        let most_of_one = (0..keys).map(|key| due.iter().filter(|due| **due == format!("k{key}")).count()).max();
        let (per_second, burst) = (f64::from(random.u32(1..40)) / 2.0, random.u32(1..5));
        let mut world = World::new(due)?;
        let limit = random.bool().then(|| random.u32(1..6));
        world.limit(limit, Some(KeyRate::new(per_second, burst)?));
        let (mut made, mut serial, mut ms) = (BTreeMap::<String, Vec<u64>>::new(), 0, 0);
        let needed_ms = (most_of_one.unwrap_or(0) as f64 * 1_000.0 / per_second) as u64;
        while serial < count as u64 {
            for _ in 0..3 {
                world.turn()?;
                for delivery in world.take(random.usize(1..20)) {
                    let key = delivery.message.envelope.key.map(|key| key.to_string()).unwrap_or_default();
                    made.entry(key).or_default().push(ms);
                    assert!(world.table.decide(serial, Decision::Ack, world.now).is_ok());
                    serial += 1;
                }
            }
            let passes = random.u64(1..30);
            // Each message that is left may be delivered now, or the loop looks again for it.
            let may = world.table.ripe_at(want(1), world.now).is_some()
                || world.table.wants_sorted()
                || !world.due.is_empty();
            let is_left = serial < count as u64;
            assert!(!is_left || may || world.table.opens_at(world.now) < Instant::FAR, "seed {seed} at {ms} ms");
            world.pass(passes);
            ms += passes;
            assert!(ms < needed_ms + 2_000 + count as u64 * 30, "seed {seed}: {serial} of {count} after {ms} ms");
        }
        for (key, made) in &made {
            for (first, from) in made.iter().enumerate() {
                for (last, to) in made.iter().enumerate().skip(first) {
                    let most = f64::from(burst) + per_second * (to - from) as f64 / 1_000.0;
                    assert!((last - first + 1) as f64 <= most, "seed {seed}, {key}: {made:?}");
                }
            }
        }
    }
    Ok(())
}

/// A key that waits for its rate holds up no other one, and is in memory again when it may be delivered.
#[test]
fn keys_that_wait_for_their_rate_hold_up_no_other() -> Result<()> {
    let mut world = World::new(std::iter::repeat_n("slow".to_owned(), 2_000))?;
    world.limit(None, Some(KeyRate::new(10.0, 1)?));
    for _ in 0..20 {
        world.turn()?;
    }
    assert_eq!(world.take(10).len(), 1);
    assert_eq!(world.table.ripe_at(want(10), world.now), None, "nothing may be delivered now");
    world.due.extend((3_000..3_050).map(|at| (at, format!("other-{at}"))));
    for _ in 0..3 {
        world.turn()?;
    }
    assert_eq!(world.take(100).len(), 50);
    // The loop sleeps until the key opens, and has the message already.
    assert_eq!(world.table.opens_at(world.now), world.now.instant.plus(Duration::from_millis(100)));
    world.pass(99);
    assert_eq!(world.take(10).len(), 0);
    world.pass(1);
    assert_eq!(world.take(10).len(), 1);
    Ok(())
}

/// A batch is of a key that may have deliveries, though another one waits for longer.
#[test]
fn batches_are_of_keys_that_may_have_deliveries() -> Result<()> {
    let mut world = World::new(["a", "a", "b", "b"].map(str::to_owned))?;
    world.limit(Some(1), None);
    world.turn()?;
    assert_eq!(world.take(1).len(), 1);
    world.turn()?;
    let gather = Gather { min: 1, linger: Duration::ZERO, same_key: true };
    let batch = world.take_as(Want { gather, ..want(10) });
    let keys: Vec<_> = batch.iter().filter_map(|delivery| delivery.message.envelope.key.as_ref()).collect();
    assert_eq!(keys, [&Key::new("b")?]);
    Ok(())
}

/// The next owner knows when the last delivery was, and not of which key.
#[test]
fn another_owner_begins_without_a_burst() -> Result<()> {
    let mut world = World::new(std::iter::repeat_n("a".to_owned(), 20))?;
    let rate = KeyRate::new(10.0, 5)?;
    world.limit(None, Some(rate));
    world.pass(5_000);
    let last = world.now.store.minus(Duration::from_millis(30));
    world.table.found_last_delivery(last, world.now);
    assert_eq!(world.table.last_delivery(), last);
    let mut made = Vec::new();
    for ms in 0..300 {
        world.turn()?;
        made.extend(world.take(10).iter().map(|_| ms));
        world.pass(1);
    }
    assert_eq!(made, [70, 170, 270]);
    assert_eq!(world.now.store.since(world.table.last_delivery()), Duration::from_millis(30));
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
    let policy = Policy { fair: None, ..world.table.policy.clone() };
    world.table.set_policy(policy);
    world.drain()?;
    assert_eq!((world.delivered.len(), world.table.fair.is_none()), (3_000, true));
    Ok(())
}
