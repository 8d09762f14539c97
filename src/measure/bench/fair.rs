//! A burst of one key beside many keys that have one message each: how long these wait, in a group that is fair and in one that is not.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU16;
use std::time::Duration;

use super::latency::{Seen, in_time, instant_of, ratio, usage};
use super::target::{Load, Target, Wanted, per_second};
use super::{BATCH, Bench, LANES, latency, scale};
use crate::broker::GroupRequest;
use crate::cli::failure::Failure;
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::Fairness;
use crate::platform::clock::{Clock, Instant};

/// Keys with one message each, which are due behind the burst.
const QUIET_KEYS: usize = 1_000;
const QUIET_BY: Duration = Duration::from_millis(1);

/// One more key, which becomes due while the burst is being delivered.
const LATER_BY: Duration = Duration::from_secs(1);

pub(super) async fn fair(bench: &Bench) -> Result<(), Failure> {
    let target = Target::Library(Box::new(bench.library.broker().clone()));
    for (fairness, way) in [(Fairness::None, "plain"), (Fairness::Key, "fair")] {
        bench.progress.step(&format!("{way} group"));
        let topic = bench.topic_of(&target, way, NonZeroU16::MIN).await?;
        let wish = GroupRequest { fair: Some(fairness), ..GroupRequest::default() };
        bench.library.broker().create_group(&topic, &GroupName::standard(), wish).await?;
        burst(bench, &target, topic.clone(), way).await?;
        target.delete(&topic).await?;
    }
    Ok(())
}

async fn burst(bench: &Bench, target: &Target, topic: TopicName, way: &str) -> Result<(), Failure> {
    let busy = bench.plan.pending;
    let messages = busy + QUIET_KEYS + 1;
    let due_at = if bench.plan.in_redis { scale::start(messages) } else { latency::start(messages) };
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
    let name = |what: &str| ("fair", format!("{way}, {what}"));
    let plain = |what: &str| Some(("fair", format!("plain, {what}")));
    let ms = |at: Instant, after: Duration| at.since(due.plus(after)).as_secs_f64() * 1e3;
    let waits = [
        ("first quiet key", ms(first.get().unwrap_or(due), QUIET_BY)),
        ("last quiet key", ms(last.get(), QUIET_BY)),
        ("a key due 1 s later", ms(later.get(), LATER_BY)),
    ];
    for (what, ms) in waits {
        bench.note(name(what), "ms", ms, plain(what));
    }
    bench.note(name("all"), "messages/s", per_second(messages, ended.since(due)), plain("all"));
    if let (Some(after), Some(before)) = (usage(bench).await?, before) {
        let (_, micros) = after.of(&["evalsha"], &before);
        bench.note(name("Redis"), "µs/message", ratio(micros, messages), plain("Redis"));
    }
    Ok(())
}
