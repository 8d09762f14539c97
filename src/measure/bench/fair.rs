//! A burst of one key beside many keys that have one message each: how long these wait, in a group that is fair and in one that is not.
//! The cost of a fair group with few and with many keys. And how far shares are from the weights of their keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use super::latency::{Seen, in_time, instant_of, ratio, usage};
use super::results::Name;
use super::target::{Load, Taken, Target, Wanted, per_second};
use super::{BATCH, Bench, LANES, latency, scale};
use crate::broker::GroupRequest;
use crate::cli::failure::Failure;
use crate::measure::baseline::RedisUsage;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::{Fairness, KeyPatterns, Weight};
use crate::platform::clock::{Clock, Instant};

/// Keys with one message each, which are due behind the burst.
const QUIET_KEYS: usize = 1_000;
const QUIET_BY: Duration = Duration::from_millis(1);

/// One more key, which becomes due while the burst is being delivered.
const LATER_BY: Duration = Duration::from_secs(1);

/// Keys of weight 1, 2 and so on, with equally many messages.
const WEIGHTS: u32 = 10;

/// Over how many keys the messages of `keys` are spread.
const SPREADS: [usize; 4] = [1, 100, 10_000, 1_000_000];
const SAMPLED_EVERY: Duration = Duration::from_millis(50);

const WAYS: [(Fairness, &str); 2] = [(Fairness::None, "plain"), (Fairness::Key, "fair")];

pub(super) async fn fair(bench: &Bench) -> Result<(), Failure> {
    let target = Target::Library(Box::new(bench.library.broker().clone()));
    for (fairness, way) in WAYS {
        bench.progress.step(&format!("{way} group"));
        let topic = partition(bench, &target, way, wish(fairness)).await?;
        burst(bench, &target, topic.clone(), way).await?;
        target.delete(&topic).await?;
    }
    Ok(())
}

fn wish(fairness: Fairness) -> GroupRequest {
    GroupRequest { fair: Some(fairness), ..GroupRequest::default() }
}

/// A topic of one partition whose group has these settings.
async fn partition(bench: &Bench, target: &Target, way: &str, wish: GroupRequest) -> Result<TopicName, Failure> {
    let topic = bench.topic_of(target, way, NonZeroU16::MIN).await?;
    bench.library.broker().create_group(&topic, &GroupName::standard(), wish).await?;
    Ok(topic)
}

/// How many keys a bench of so many messages is measured with.
pub(super) fn spreads(messages: usize) -> impl Iterator<Item = usize> {
    SPREADS.into_iter().filter(move |keys| *keys <= messages)
}

/// The same number of messages of few and of many keys, all due at the same instant.
pub(super) async fn keys(bench: &Bench) -> Result<(), Failure> {
    let target = Target::Library(Box::new(bench.library.broker().clone()));
    for keys in spreads(bench.plan.pending) {
        bench.progress.step(&format!("{keys} keys"));
        for (fairness, way) in WAYS {
            let topic = partition(bench, &target, way, wish(fairness)).await?;
            spread(bench, &target, topic.clone(), keys, way).await?;
            target.delete(&topic).await?;
        }
    }
    Ok(())
}

async fn spread(bench: &Bench, target: &Target, topic: TopicName, keys: usize, way: &str) -> Result<(), Failure> {
    let messages = bench.plan.pending;
    let empty = usage(bench).await?;
    let due_at = start(bench, messages);
    let load = Load { target, topic, payload: &bench.payload, batch: BATCH, lanes: LANES };
    let names: Vec<String> = (0..keys).map(|n| format!("key-{n}")).collect();
    load.push(messages, |n| Wanted { due_at: Some(due_at), key: Some(&names[n % keys]) }).await?;
    in_time(due_at)?;

    let due = instant_of(bench, due_at);
    let (before, seen, most) = (usage(bench).await?, RefCell::new(Seen::default()), Cell::new(0));
    let sampling = async {
        loop {
            let bytes = usage(bench).await?.map_or(0, |usage| usage.memory_bytes);
            most.set(most.get().max(bytes));
            Clock::System.sleep(SAMPLED_EVERY).await;
        }
    };
    let consuming = load.consume(messages, |taken| seen.borrow_mut().note(taken, bench.store_ahead_us));
    let ended = tokio::select! {
        ended = consuming => ended?,
        sampled = sampling => return sampled,
    };
    seen.borrow().check()?;
    let name = |what: &str| named("keys", way, &format!("{keys} keys, {what}"));
    note_cost(bench, messages, ended.since(due), before, name).await?;
    if let Some(empty) = empty {
        let (name, plain) = name("Redis at most");
        let bytes = most.get().saturating_sub(empty.memory_bytes);
        bench.note(name, "bytes/message", ratio(bytes, messages), plain);
    }
    Ok(())
}

/// When so many messages are due: there is time to push them before.
fn start(bench: &Bench, messages: usize) -> Timestamp {
    if bench.plan.in_redis { scale::start(messages) } else { latency::start(messages) }
}

/// The name of a figure, and of that which it is compared with: the same in a group that is not fair.
fn named(measure: &'static str, way: &str, what: &str) -> (Name, Option<Name>) {
    ((measure, format!("{way}, {what}")), Some((measure, format!("plain, {what}"))))
}

/// How fast all messages were consumed, and the time of Redis for each.
async fn note_cost(
    bench: &Bench,
    messages: usize,
    took: Duration,
    before: Option<RedisUsage>,
    named: impl Fn(&str) -> (Name, Option<Name>),
) -> Result<(), Failure> {
    let (name, plain) = named("all");
    bench.note(name, "messages/s", per_second(messages, took), plain);
    if let (Some(after), Some(before)) = (usage(bench).await?, before) {
        let ((_, micros), (name, plain)) = (after.of(&["evalsha"], &before), named("Redis"));
        bench.note(name, "µs/message", ratio(micros, messages), plain);
    }
    Ok(())
}

/// How far the shares of keys are from their weights, of which each has messages to the end: over the first half of all deliveries.
pub(super) async fn weights(bench: &Bench) -> Result<(), Failure> {
    bench.progress.step("weights");
    let target = Target::Library(Box::new(bench.library.broker().clone()));
    let keys: Vec<String> = (1..=WEIGHTS).map(|weight| format!("weight-{weight}")).collect();
    let weights: BTreeMap<String, Weight> = keys
        .iter()
        .zip(1..)
        .map(|(key, weight)| Ok((key.clone(), Weight::new(weight)?)))
        .collect::<Result<_, Failure>>()?;
    let wish = GroupRequest { weights: Some(KeyPatterns::new("weights", weights)?), ..wish(Fairness::Key) };
    let topic = partition(bench, &target, "weights", wish).await?;

    let messages = bench.plan.pending;
    let due_at = start(bench, messages);
    let load = Load { target: &target, topic: topic.clone(), payload: &bench.payload, batch: BATCH, lanes: LANES };
    // The millisecond in which a message is due says which key it has.
    let due_of = |at: usize| due_at.plus(QUIET_BY * u32::try_from(at).unwrap_or(0));
    let key_of = |n: usize| n % keys.len();
    load.push(messages, |n| Wanted { due_at: Some(due_of(key_of(n))), key: Some(&keys[key_of(n)]) }).await?;
    in_time(due_at)?;

    Clock::System.sleep_until(instant_of(bench, due_of(keys.len()))).await;
    let (left, delivered) = (Cell::new(messages / 2), RefCell::new(vec![0_usize; keys.len()]));
    let seen = |taken: &Taken| {
        let at = usize::try_from(taken.due_at.since(due_at).as_millis()).unwrap_or(usize::MAX);
        if let (Some(of_key), Some(less)) = (delivered.borrow_mut().get_mut(at), left.get().checked_sub(1)) {
            *of_key += 1;
            left.set(less);
        }
    };
    load.consume(messages, seen).await?;
    let of_one = (messages / 2) as f64 / f64::from(WEIGHTS * (WEIGHTS + 1) / 2);
    let off = |(count, weight): (&usize, u32)| 100.0 * (*count as f64 / (of_one * f64::from(weight)) - 1.0).abs();
    let most = delivered.borrow().iter().zip(1..).map(off).fold(0.0, f64::max);
    bench.note(("weights", format!("keys of weight 1 to {WEIGHTS}")), "% off at most", most, None);
    target.delete(&topic).await
}

async fn burst(bench: &Bench, target: &Target, topic: TopicName, way: &str) -> Result<(), Failure> {
    let busy = bench.plan.pending;
    let messages = busy + QUIET_KEYS + 1;
    let due_at = start(bench, messages);
    let (quiet_at, later_at) = (due_at.plus(QUIET_BY), due_at.plus(LATER_BY));
    let load = Load { target, topic, payload: &bench.payload, batch: BATCH, lanes: LANES };
    let keys: Vec<String> = (0..=QUIET_KEYS).map(|n| format!("quiet-{n}")).collect();
    let wanted = |n: usize| {
        let key = n.checked_sub(busy).map(|quiet| keys[quiet].as_str());
        let due_at = if key.is_none() {
            due_at
        } else if n + 1 == messages {
            later_at
        } else {
            quiet_at
        };
        Wanted { due_at: Some(due_at), key: key.or(Some("busy")) }
    };
    load.push(messages, wanted).await?;
    in_time(due_at)?;

    let before = usage(bench).await?;
    let due = instant_of(bench, due_at);
    let (all, first, last, later) = (RefCell::new(Seen::default()), Cell::new(None), Cell::new(due), Cell::new(due));
    let seen = |taken: &_| {
        all.borrow_mut().note(taken, bench.store_ahead_us);
        let now = Clock::System.instant();
        if taken.due_at == quiet_at {
            first.set(first.get().or(Some(now)));
            last.set(now);
        } else if taken.due_at == later_at {
            later.set(now);
        }
    };
    let ended = load.consume(messages, seen).await?;
    all.borrow().check()?;
    let name = |what: &str| named("fair", way, what);
    let ms = |at: Instant, after: Duration| at.since(due.plus(after)).as_secs_f64() * 1e3;
    let waits = [
        ("first quiet key", ms(first.get().unwrap_or(due), QUIET_BY)),
        ("last quiet key", ms(last.get(), QUIET_BY)),
        ("a key due 1 s later", ms(later.get(), LATER_BY)),
    ];
    for (what, ms) in waits {
        let (name, plain) = name(what);
        bench.note(name, "ms", ms, plain);
    }
    note_cost(bench, messages, ended.since(due), before, name).await
}
