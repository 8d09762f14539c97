//! How the life of messages changes with the number of partitions, groups, consumers, members and topics, and with the size of
//! a payload, each size of an axis compared with the first; and many messages that are due at the same instant, shared by two
//! brokers, each of which is a process.

use std::cell::RefCell;
use std::num::NonZeroU16;
use std::time::Duration;

use futures_util::future::{try_join, try_join_all};

use super::latency::{FAR, Seen, in_time, instant_of, ratio, usage};
use super::store::{Sidecar, resident};
use super::target::{Load, Tally, Target, Wanted, per_second};
use super::{BATCH, Bench, LANES};
use crate::broker::GroupRequest;
use crate::cli::failure::Failure;
use crate::model::message::{GroupName, TopicName};
use crate::model::spelling::thousands;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;

struct Axis<'a> {
    bench: &'a Bench,
    of: &'static str,
    sizes: &'static [usize],
}

pub(super) const AXES: usize = 6;

/// Partitions of a topic that several members share.
const SHARED: u16 = 16;

/// How many messages one of many consumers takes at a time.
const SHARE: usize = 10;

/// Bytes of the payloads of one batch, and in the mean of each message, at most.
const BATCH_BYTES: usize = 1_000_000;
const MEAN_BYTES: usize = 5_000;

/// Measures every size once. Several members need a store that they share.
pub(super) async fn scale(bench: &Bench) -> Result<(), Failure> {
    let axis = |of, sizes| Axis { bench, of, sizes };
    let one = Target::Library(Box::new(bench.library.broker().clone()));
    axis("partitions", &[1, 8, 64, 256, 1_024]).partitions(&one).await?;
    axis("groups", &[1, 2, 4, 8, 16]).groups(&one).await?;
    axis("consumers", &[1, 10, 100, 1_000, 5_000]).consumers(&one).await?;
    axis("bytes", &[1, 100, 1_000, 32_000, 1_000_000]).payloads(&one).await?;
    if bench.stores.bare.is_some() {
        axis("members", &[1, 2, 4, 8]).members().await?;
    }
    axis("topics", &[1, 10, 100, 1_000, 10_000]).topics(&one).await
}

impl Axis<'_> {
    /// A short bench leaves out the sizes that are larger than all that it pushes.
    fn sizes(&self) -> impl Iterator<Item = usize> + use<> {
        self.bench.progress.step(self.of);
        let most = self.bench.plan.messages;
        self.sizes.iter().copied().filter(move |size| *size <= most)
    }

    /// Notes how many messages a second have a life, and how long Redis works for each.
    async fn note(
        &self,
        size: usize,
        messages: usize,
        rate: impl Future<Output = Result<f64, Failure>>,
    ) -> Result<(), Failure> {
        let count = |size: usize| thousands(u64::try_from(size).unwrap_or(u64::MAX));
        let of = |what: &str, size: usize| ("scale", format!("{what}{} {}", count(size), self.of));
        let first = |what: &str| self.sizes.first().map(|first| of(what, *first));
        let before = usage(self.bench).await?;
        self.bench.note(of("", size), "messages/s", rate.await?, first(""));
        if let (Some(after), Some(before)) = (usage(self.bench).await?, before) {
            let (_, micros) = after.of(&["evalsha"], &before);
            self.bench.note(of("Redis, ", size), "µs/message", ratio(micros, messages), first("Redis, "));
        }
        Ok(())
    }

    /// A topic whose partitions are leased.
    async fn topic(&self, one: &Target, partitions: u16) -> Result<TopicName, Failure> {
        let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
        let topic = self.bench.topic_of(one, self.of, partitions).await?;
        one.reserve(&topic, 1, self.bench.plan.joining).await?;
        Ok(topic)
    }

    fn load<'a>(&'a self, target: &'a Target, topic: &TopicName) -> Load<'a> {
        Load { target, topic: topic.clone(), payload: &self.bench.payload, batch: BATCH, lanes: LANES }
    }

    async fn partitions(&self, one: &Target) -> Result<(), Failure> {
        for size in self.sizes() {
            let topic = self.topic(one, u16::try_from(size).unwrap_or(u16::MAX)).await?;
            let messages = self.bench.plan.messages;
            self.note(size, messages, self.load(one, &topic).life(messages)).await?;
            one.delete(&topic).await?;
        }
        Ok(())
    }

    /// Each group gets a copy of each message; one of them consumes.
    async fn groups(&self, one: &Target) -> Result<(), Failure> {
        for size in self.sizes() {
            let topic = self.topic(one, self.bench.plan.partitions.get()).await?;
            for n in 1..size {
                let group = GroupName::new(format!("group-{n}"))?;
                self.bench.library.broker().create_group(&topic, &group, GroupRequest::default()).await?;
            }
            let messages = self.bench.plan.messages;
            self.note(size, messages, self.load(one, &topic).life(messages)).await?;
            one.delete(&topic).await?;
        }
        Ok(())
    }

    /// All wait for messages at the same time.
    async fn consumers(&self, one: &Target) -> Result<(), Failure> {
        for size in self.sizes() {
            let topic = self.topic(one, self.bench.plan.partitions.get()).await?;
            let messages = self.bench.plan.messages;
            let producers = [self.load(one, &topic)];
            let consumers = [Load { lanes: size, batch: SHARE, ..self.load(one, &topic) }];
            self.note(size, messages, both(&producers, &consumers, messages)).await?;
            one.delete(&topic).await?;
        }
        Ok(())
    }

    /// Large payloads go in small batches, and fewer of them.
    async fn payloads(&self, one: &Target) -> Result<(), Failure> {
        self.bench.progress.step(self.of);
        for size in self.sizes {
            let topic = self.topic(one, self.bench.plan.partitions.get()).await?;
            let payload = "x".repeat(*size);
            let messages = self.bench.plan.messages.min((self.bench.plan.messages * MEAN_BYTES / size).max(1));
            let load = Load { payload: &payload, batch: (BATCH_BYTES / size).min(BATCH), ..self.load(one, &topic) };
            self.note(*size, messages, load.life(messages)).await?;
            one.delete(&topic).await?;
        }
        Ok(())
    }

    async fn members(&self) -> Result<(), Failure> {
        for size in self.sizes() {
            let mut fleet = Vec::new();
            for n in 0..size {
                fleet.push(self.bench.stores.library("scale", &format!("member-{n}")).await?);
            }
            let targets: Vec<Target> =
                fleet.iter().map(|member| Target::Library(Box::new(member.broker().clone()))).collect();
            self.shared(&targets).await?;
            for member in fleet {
                member.close().await?;
            }
        }
        Ok(())
    }

    async fn shared(&self, targets: &[Target]) -> Result<(), Failure> {
        let Some(first) = targets.first() else { return Ok(()) };
        let topic = self.topic(first, SHARED).await?;
        try_join_all(targets.iter().map(|target| target.reserve(&topic, 1, self.bench.plan.joining))).await?;
        let messages = self.bench.plan.messages;
        let lanes = LANES.div_ceil(targets.len());
        let loads: Vec<Load> = targets.iter().map(|target| Load { lanes, ..self.load(target, &topic) }).collect();
        self.note(targets.len(), messages, both(&loads, &loads, messages)).await?;
        first.delete(&topic).await
    }

    /// One is used. Each of the others has a message that is not due.
    async fn topics(&self, one: &Target) -> Result<(), Failure> {
        let mut others = Vec::new();
        for size in self.sizes() {
            while others.len() + 1 < size {
                let wave = LANES.min(size - 1 - others.len());
                others.extend(try_join_all((0..wave).map(|_| self.waiting(one))).await?);
            }
            let topic = self.topic(one, self.bench.plan.partitions.get()).await?;
            let messages = self.bench.plan.messages;
            self.note(size, messages, self.load(one, &topic).life(messages)).await?;
            one.delete(&topic).await?;
        }
        for wave in others.chunks(LANES) {
            try_join_all(wave.iter().map(|topic| one.delete(topic))).await?;
        }
        Ok(())
    }

    async fn waiting(&self, one: &Target) -> Result<TopicName, Failure> {
        let topic = self.bench.topic(one, "waiting").await?;
        let due_at = Clock::System.now().plus(FAR);
        one.push(&topic, &self.bench.payload, Wanted { due_at: Some(due_at), key: None }).await?;
        Ok(topic)
    }
}

/// Producers and consumers at the same time; answers how many messages a second.
async fn both(producers: &[Load<'_>], consumers: &[Load<'_>], messages: usize) -> Result<f64, Failure> {
    let each = messages / producers.len().max(1);
    let messages = each * producers.len();
    let tally = Tally::new(messages);
    let began = Clock::System.instant();
    let pushing = try_join_all(producers.iter().map(|load| load.push(each, |_| Wanted::default())));
    let consuming = try_join_all(consumers.iter().map(|load| load.consuming(&tally, |_| ())));
    try_join(pushing, consuming).await?;
    Ok(per_second(messages, Clock::System.instant().since(began)))
}

const BROKERS: usize = 2;
const FLEET_BATCH: usize = 1_000;

/// Time to push everything before it is due: 40,000 messages a second, and a moment.
const PUSH_TIME: Duration = Duration::from_micros(25);
const LEAD: Duration = Duration::from_secs(2);

pub(super) fn start(messages: usize) -> Timestamp {
    Clock::System.now().plus(LEAD + PUSH_TIME * u32::try_from(messages).unwrap_or(u32::MAX))
}

pub(super) async fn fleet(bench: &Bench) -> Result<(), Failure> {
    let (mut brokers, place) = (Vec::new(), bench.stores.place("fleet"));
    for n in 1..=BROKERS {
        brokers.push(Sidecar::start(&bench.stores.scratch.path().join(format!("fleet-{n}")), &place).await?);
    }
    let targets: Vec<_> = brokers.iter().map(|broker| Target::Http(broker.remote.clone())).collect();
    at_once(bench, &brokers, &targets).await?;
    for broker in brokers {
        broker.stop().await?;
    }
    Ok(())
}

async fn at_once(bench: &Bench, brokers: &[Sidecar], targets: &[Target]) -> Result<(), Failure> {
    let Some(first) = targets.first() else { return Ok(()) };
    let (topic, messages) = (bench.topic(first, "fleet").await?, bench.plan.pending);
    try_join_all(targets.iter().map(|target| target.reserve(&topic, 1, bench.plan.joining))).await?;
    let loads: Vec<_> = targets
        .iter()
        .map(|target| Load { target, topic: topic.clone(), payload: &bench.payload, batch: FLEET_BATCH, lanes: LANES })
        .collect();
    let due_at = start(messages);
    for load in loads.iter().take(1) {
        load.push(messages, |_| Wanted { due_at: Some(due_at), key: None }).await?;
    }
    in_time(due_at)?;
    let due = instant_of(bench, due_at);
    let (seen, tally) = (RefCell::new(Seen::default()), Tally::new(messages));
    let see = |taken: &_| seen.borrow_mut().note(taken, bench.store_ahead_us);
    try_join_all(loads.iter().map(|load| load.consuming(&tally, see))).await?;
    seen.borrow().check()?;
    let way = |what: &str| ("fleet", format!("{BROKERS} brokers, {messages} at once, {what}"));
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    bench.note(way("first delivery"), "ms", millis(tally.first().since(due)), None);
    bench.note(way("last ack"), "ms", millis(tally.last().since(due)), None);
    bench.note(way("rate"), "messages/s", per_second(messages, tally.last().since(due)), None);
    for broker in brokers {
        bench.note(way("resident"), "MiB a broker", ratio(resident(broker.pid)?, 1 << 20), None);
    }
    first.delete(&topic).await
}
