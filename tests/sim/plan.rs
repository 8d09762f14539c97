//! What is done in a simulation, and when: data that is made from a seed before anything runs.

use std::collections::BTreeSet;

use dwell_simulated_redis::{Config, Fsync, Layout};
use serde::{Deserialize, Serialize};

/// A kind of world: what Redis is made of, and which faults there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scenario {
    /// A Redis that loses nothing of what it answered. Every promise holds without exception.
    Durable,
    /// A Redis that is restarted without its data; brokers have journals.
    Forgetful,
    /// A Redis that is emptied under open connections. Not among all: promises are broken there.
    Emptied,
    /// A primary with a replica behind three sentinels.
    Sentinels,
    /// A cluster of three shards with a replica each.
    Cluster,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 4] =
        [Scenario::Durable, Scenario::Forgetful, Scenario::Sentinels, Scenario::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Durable => "durable",
            Scenario::Forgetful => "forgetful",
            Scenario::Emptied => "emptied",
            Scenario::Sentinels => "sentinels",
            Scenario::Cluster => "cluster",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Scenario> {
        Scenario::ALL.into_iter().chain([Scenario::Emptied]).find(|scenario| scenario.name() == name)
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Scenario::Durable | Scenario::Forgetful | Scenario::Emptied => Layout::Primary { replicas: 0 },
            Scenario::Sentinels => Layout::Sentinels { replicas: 1, sentinels: 3 },
            Scenario::Cluster => Layout::Cluster { shards: 3, replicas: 1 },
        }
    }

    pub(crate) fn redis(self) -> Config {
        let aof = match self {
            Scenario::Durable => Some(Fsync::Always),
            _ => Some(Fsync::EverySecond),
        };
        Config { aof, ..Config::default() }
    }

    pub(crate) fn has_journal(self) -> bool {
        self != Scenario::Durable
    }

    /// Whether Redis may lose what it has answered.
    pub(crate) fn may_forget(self) -> bool {
        self != Scenario::Durable
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) brokers: usize,
    pub(crate) topics: Vec<Topic>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) partitions: u16,
    pub(crate) groups: Vec<String>,
    pub(crate) is_ordered: bool,
    pub(crate) visibility_ms: u64,
    pub(crate) max_attempts: u32,
    /// 0: none.
    pub(crate) dedup_window_ms: u64,
    pub(crate) buries_expired: bool,
}

/// Something that happens so long after the start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Its place in the whole plan, also when others are left out.
    pub(crate) number: usize,
    pub(crate) at_ms: u64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Action {
    /// Asked of a broker.
    Operation(usize, Operation),
    Fault(Fault),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Operation {
    Push(Push),
    PushBatch(usize, Vec<Push>),
    Cancel(Target),
    Reschedule(Target, u64),
    /// Takes messages and settles them, as its seed says.
    Consume(Consume),
    PurgeGroup(usize, usize),
    Redrive(usize, usize),
    PurgeDead(usize, usize),
    Get(Target),
    /// By SQS, seconds of delay.
    SendToQueue(usize, u64),
    ReceiveFromQueue(Consume),
    /// For so long, ms.
    Pause(usize, usize, u64),
    Limit(Limit),
    Postpone(Postpone),
    Look(Look, Target, usize),
}

/// New limits of a group; 0 is none.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    /// Hand-overs in a second.
    pub(crate) rate: u32,
    pub(crate) max_in_flight: u32,
}

/// A bulk operation on what is due from so long from now, for so long: later by so much.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Postpone {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) from_ms: u64,
    pub(crate) length_ms: u64,
    pub(crate) by_ms: u64,
}

/// A read, of which only a failure is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Look {
    Explain,
    List,
    ListByDue,
    Forecast,
    Verify,
    Topic,
}

impl Operation {
    /// How many requests of a client it stands for, at least.
    pub(crate) fn count(&self) -> usize {
        match self {
            Operation::PushBatch(_, pushes) => pushes.len(),
            _ => 1,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) topic: usize,
    pub(crate) id: String,
    pub(crate) key: Option<String>,
}

impl Target {
    /// As logs name it.
    pub(crate) fn name(&self) -> String {
        format!("t{}/{}", self.topic, self.id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Policy {
    Keep,
    Reject,
    Replace,
    Debounce,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Push {
    pub(crate) target: Target,
    pub(crate) policy: Policy,
    pub(crate) delay_ms: u64,
    /// Says the time, not the delay.
    pub(crate) is_absolute: bool,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) priority: u8,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Consume {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) max: usize,
    pub(crate) wait_ms: u64,
    pub(crate) per_key: usize,
    pub(crate) is_stream: bool,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// SIGKILL, and how long it is down, ms.
    KillBroker(usize, u64),
    /// SIGTERM, and how long it is down afterwards.
    StopBroker(usize, u64),
    FreezeBroker(usize, u64),
    /// Its clock jumps by so many ms, and stays there.
    SkewBroker(usize, i64),
    CutLink {
        broker: usize,
        node: usize,
        way: u8,
        for_ms: u64,
    },
    SlowLinks(usize, u64, u64),
    ResetLinks(usize, bool),
    KillRedis {
        node: usize,
        power: bool,
        down_ms: u64,
        loading_ms: u64,
    },
    FreezeRedis(usize, u64),
    FlushScripts,
    Full(u64),
    /// FLUSHALL.
    Empty,
    /// Starts without its files.
    Replace {
        node: usize,
        down_ms: u64,
    },
    FailOver {
        node: usize,
        is_graceful: bool,
    },
    Lag {
        node: usize,
        us: u64,
        for_ms: u64,
    },
    Isolate {
        node: usize,
        for_ms: u64,
    },
}

impl Fault {
    /// The broker that neither hears nor is heard meanwhile, and for how long at least, ms.
    pub(crate) fn silences(self) -> Option<(usize, u64)> {
        match self {
            Fault::KillBroker(broker, ms)
            | Fault::FreezeBroker(broker, ms)
            | Fault::CutLink { broker, for_ms: ms, .. } => Some((broker, ms)),
            Fault::StopBroker(broker, ms) => Some((broker, ms + 20_000)),
            // So slow that its calls are given up.
            Fault::SlowLinks(broker, us, ms) if us > 100_000 => Some((broker, ms)),
            _ => None,
        }
    }

    /// Whether Redis may lose by it what it has answered.
    pub(crate) fn forgets(self) -> bool {
        matches!(
            self,
            Fault::Empty
                | Fault::Replace { .. }
                | Fault::FailOver { .. }
                | Fault::Isolate { .. }
                | Fault::KillRedis { .. }
        )
    }
}

pub(crate) const BROKERS_MAX: usize = 3;

/// How busy clients are: what breaks when nobody calls, or when many do, needs such times.
struct Tide {
    /// When each span ends, ms, and the share of all operations through its end.
    spans: Vec<(u64, f64)>,
}

impl Tide {
    fn new(random: &mut fastrand::Rng, length: u64) -> Tide {
        let (mut spans, mut at, mut sum) = (Vec::new(), 0, 0.0);
        while at < length {
            let span = random.u64(500..8_000).min(length - at);
            at += span;
            sum += span as f64 * [0.0, 0.1, 1.0, 3.0][random.usize(0..4)];
            spans.push((at, sum));
        }
        Tide { spans }
    }

    /// When an operation is sent.
    fn time(&self, random: &mut fastrand::Rng) -> u64 {
        let (length, all) = self.spans.last().copied().unwrap_or_default();
        let wanted = random.f64() * all;
        let (mut begin, mut before) = (0, 0.0);
        for (end, sum) in &self.spans {
            if *sum > wanted {
                let share = (wanted - before) / (sum - before);
                return begin + ((end - begin) as f64 * share) as u64;
            }
            (begin, before) = (*end, *sum);
        }
        random.u64(0..length)
    }
}

/// From the first step to the last, ms, for so many operations.
fn length_ms(operations: usize) -> u64 {
    (operations as u64 * 1_000 / 60).clamp(10_000, 600_000)
}

impl Plan {
    pub(crate) fn new(seed: u64, scenario: Scenario, operations: usize) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed);
        let brokers = random.usize(1..=BROKERS_MAX);
        let topics: Vec<Topic> = (0..random.usize(1..=3)).map(|number| Topic::new(&mut random, number)).collect();
        let length = length_ms(operations);
        let mut plan = Plan { seed, scenario, brokers, topics, steps: Vec::new() };
        let mut ids = 0;
        let tide = Tide::new(&mut random, length);
        for _ in 0..operations {
            let operation = plan.operation(&mut random, &mut ids);
            let broker = random.usize(0..brokers);
            plan.add(tide.time(&mut random), Action::Operation(broker, operation));
        }
        let is_calm = random.u8(0..10) == 0;
        let mut at = random.u64(1_000..8_000);
        while !is_calm && at < length {
            let fault = plan.fault(&mut random);
            plan.add(at, Action::Fault(fault));
            // Some come together.
            at += if random.u8(0..4) == 0 { random.u64(0..500) } else { random.u64(500..12_000) };
        }
        plan.steps.sort_by_key(|step| step.at_ms);
        plan
    }

    fn add(&mut self, at_ms: u64, action: Action) {
        self.steps.push(Step { number: self.steps.len(), at_ms, action });
    }

    /// Leaves out all other steps.
    pub(crate) fn keep(&mut self, numbers: &BTreeSet<usize>) {
        self.steps.retain(|step| numbers.contains(&step.number));
    }

    pub(crate) fn operations(&self) -> usize {
        let counts = self.steps.iter().map(|step| match &step.action {
            Action::Operation(_, operation) => operation.count(),
            Action::Fault(_) => 0,
        });
        counts.sum()
    }

    fn operation(&self, random: &mut fastrand::Rng, ids: &mut usize) -> Operation {
        let topic = random.usize(0..self.topics.len());
        let group = random.usize(0..self.topics[topic].groups.len());
        match random.u32(0..1_000) {
            0..350 => Operation::Push(self.push(random, topic, ids)),
            // A queue without groups of messages.
            350..380 if !self.topics[topic].is_ordered => {
                Operation::SendToQueue(topic, if random.bool() { 0 } else { random.u64(0..20) })
            }
            350..380 => Operation::Push(self.push(random, topic, ids)),
            380..430 => {
                let count = random.usize(2..20);
                Operation::PushBatch(topic, (0..count).map(|_| self.push(random, topic, ids)).collect())
            }
            430..500 => Operation::Cancel(self.target(random, topic, ids)),
            500..560 => Operation::Reschedule(self.target(random, topic, ids), delay(random)),
            560..600 if !self.topics[topic].is_ordered => Operation::ReceiveFromQueue(Consume {
                topic,
                group,
                max: random.usize(1..=10),
                wait_ms: if random.bool() { 0 } else { random.u64(0..3_000) },
                per_key: 1,
                is_stream: false,
                seed: random.u64(..),
            }),
            560..925 => Operation::Consume(Consume {
                topic,
                group,
                max: random.usize(1..=10),
                wait_ms: if random.bool() { 0 } else { random.u64(0..3_000) },
                per_key: if self.topics[topic].is_ordered && random.bool() { random.usize(1..=10) } else { 1 },
                is_stream: random.u8(0..8) == 0,
                seed: random.u64(..),
            }),
            925..930 => Operation::Pause(topic, group, random.u64(200..10_000)),
            930..935 => Operation::Limit(Limit {
                topic,
                group,
                rate: if random.bool() { 0 } else { random.u32(2..60) },
                max_in_flight: if random.bool() { 0 } else { random.u32(1..10) },
            }),
            935..940 => {
                let length_ms = random.u64(1..3_000);
                let (from_ms, by_ms) = (random.u64(0..5_000), length_ms + random.u64(0..3_000));
                Operation::Postpone(Postpone { topic, group, from_ms, length_ms, by_ms })
            }
            940..944 => Operation::PurgeGroup(topic, group),
            944..960 => Operation::Redrive(topic, group),
            960..965 => Operation::PurgeDead(topic, group),
            965..985 => Operation::Get(self.target(random, topic, ids)),
            _ => {
                let looks = [Look::Explain, Look::List, Look::ListByDue, Look::Forecast, Look::Verify, Look::Topic];
                Operation::Look(looks[random.usize(0..looks.len())], self.target(random, topic, ids), group)
            }
        }
    }

    fn target(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut usize) -> Target {
        // A few ids that meet often; the others are used once, but for what cancels them.
        let id = match random.u8(0..3) {
            0 => format!("m{}", random.u8(0..12)),
            1 => format!("o{}", *ids - random.usize(0..(*ids).clamp(1, 40)).min(*ids)),
            _ => {
                *ids += 1;
                format!("o{ids}")
            }
        };
        // The key is a part of the id's meaning: one id has one key.
        let number = id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let key = (number % 3 != 0 || self.topics[topic].is_ordered).then(|| format!("k{}", number % 7));
        Target { topic, id, key }
    }

    fn push(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut usize) -> Push {
        let policy = match random.u8(0..10) {
            0 => Policy::Reject,
            1 => Policy::Replace,
            2 => Policy::Debounce,
            _ => Policy::Keep,
        };
        Push {
            target: self.target(random, topic, ids),
            policy,
            delay_ms: delay(random),
            is_absolute: random.u8(0..3) == 0,
            ttl_ms: (random.u8(0..20) == 0).then(|| random.u64(100..10_000)),
            priority: if random.u8(0..5) == 0 { random.u8(0..10) } else { 0 },
        }
    }

    fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let broker = random.usize(0..self.brokers);
        let nodes = match self.scenario {
            Scenario::Durable | Scenario::Forgetful | Scenario::Emptied => 1,
            Scenario::Sentinels => 2,
            Scenario::Cluster => 6,
        };
        let node = random.usize(0..nodes);
        let down_ms = if random.bool() { random.u64(10..1_000) } else { random.u64(1_000..12_000) };
        if self.scenario.may_forget() && random.u8(0..3) == 0 {
            return match (self.scenario, random.u8(0..4)) {
                (Scenario::Emptied, _) => Fault::Empty,
                (Scenario::Forgetful, _) => Fault::Replace { node, down_ms },
                (_, 0) => Fault::Lag { node, us: random.u64(1_000..3_000_000), for_ms: down_ms },
                (_, 1) => Fault::Isolate { node, for_ms: down_ms * 2 },
                (_, _) => Fault::FailOver { node, is_graceful: random.bool() },
            };
        }
        match random.u8(0..20) {
            0..3 => Fault::KillBroker(broker, down_ms),
            3..5 => Fault::StopBroker(broker, down_ms),
            5..7 => Fault::FreezeBroker(broker, down_ms),
            7 => Fault::SkewBroker(broker, random.i64(-3_000..3_000)),
            8 => Fault::SlowLinks(broker, random.u64(1_000..400_000), down_ms),
            9..11 => Fault::ResetLinks(broker, random.bool()),
            11..14 => Fault::CutLink { broker, node, way: random.u8(0..3), for_ms: down_ms },
            14..17 => Fault::KillRedis {
                node,
                power: random.bool(),
                down_ms,
                loading_ms: if random.bool() { 0 } else { random.u64(1..3_000) },
            },
            17 => Fault::FreezeRedis(node, down_ms),
            18 => Fault::FlushScripts,
            _ => Fault::Full(down_ms),
        }
    }
}

impl Topic {
    fn new(random: &mut fastrand::Rng, number: usize) -> Topic {
        let groups = (0..random.usize(1..=2)).map(|group| match group {
            0 => "default".to_owned(),
            _ => format!("g{group}"),
        });
        Topic {
            name: format!("t{number}"),
            partitions: random.u16(1..=4),
            groups: groups.collect(),
            is_ordered: random.u8(0..3) == 0,
            visibility_ms: random.u64(500..5_000),
            max_attempts: random.u32(3..12),
            dedup_window_ms: if random.u8(0..3) == 0 { random.u64(1_000..20_000) } else { 0 },
            buries_expired: random.bool(),
        }
    }
}

fn delay(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..4) {
        0 => 0,
        1 => random.u64(1..300),
        2 => random.u64(1..3_000),
        _ => random.u64(1..20_000),
    }
}
