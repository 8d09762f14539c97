//! What is done in a simulation, and when: data that is made from a seed before anything runs.

mod ambush;
mod follow_up;

use std::collections::BTreeSet;

use dwell_simulated_redis::{Config, Fsync, Layout};
use serde::{Deserialize, Serialize};

use crate::operation::{Ids, Operation};

/// A kind of world: what Redis is made of, and which faults there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scenario {
    /// A Redis that loses nothing of what it answered. Every promise holds without exception.
    Durable,
    /// A Redis that is restarted without its data; brokers have journals.
    Forgetful,
    /// A Redis that is emptied under open connections.
    Emptied,
    /// A Redis whose address another one has for a while, with data and an identity of its own; brokers have journals.
    Foreign,
    /// A primary with a replica behind three sentinels.
    Sentinels,
    /// A cluster of three shards with a replica each.
    Cluster,
    /// A Redis that is restarted, sometimes without its data; brokers have journals, and machines whose disks fail.
    Disks,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 7] = [
        Scenario::Durable,
        Scenario::Forgetful,
        Scenario::Sentinels,
        Scenario::Cluster,
        Scenario::Disks,
        Scenario::Emptied,
        Scenario::Foreign,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Durable => "durable",
            Scenario::Forgetful => "forgetful",
            Scenario::Emptied => "emptied",
            Scenario::Foreign => "foreign",
            Scenario::Sentinels => "sentinels",
            Scenario::Cluster => "cluster",
            Scenario::Disks => "disks",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Scenario> {
        Scenario::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Scenario::Sentinels => Layout::Sentinels { replicas: 1, sentinels: 3 },
            Scenario::Cluster => Layout::Cluster { shards: 3, replicas: 1 },
            _ => Layout::Primary { replicas: 0 },
        }
    }

    pub(crate) fn redis(self) -> Config {
        let aof = match self {
            Scenario::Durable | Scenario::Foreign => Some(Fsync::Always),
            _ => Some(Fsync::EverySecond),
        };
        Config { aof, ..Config::default() }
    }

    pub(crate) fn has_journal(self) -> bool {
        self != Scenario::Durable
    }

    /// Whether Redis may lose what it has answered.
    pub(crate) fn may_forget(self) -> bool {
        !matches!(self, Scenario::Durable | Scenario::Foreign)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) scenario: Scenario,
    pub(crate) brokers: usize,
    pub(crate) topics: Vec<Topic>,
    /// A broker that is stopped gives what it has on its disk to another one.
    #[serde(default)]
    pub(crate) hands_over: bool,
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
    /// The keys take turns in its groups.
    #[serde(default)]
    pub(crate) is_fair: bool,
    /// Of these; 0: none.
    #[serde(default)]
    pub(crate) key_max_in_flight: u32,
    /// As in [`crate::operation::Limit`].
    #[serde(default)]
    pub(crate) key_rate: u32,
    #[serde(default)]
    pub(crate) key_burst: u32,
    /// Nobody pushes to it: it gets what is moved there from this topic.
    #[serde(default)]
    pub(crate) takes_from: Option<usize>,
    /// Where its dead letters go.
    #[serde(default)]
    pub(crate) forwards_to: Option<usize>,
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
    /// Redis ends, another one stands at its address for so long, and Redis comes back; between them nobody is there.
    Stranger {
        down_ms: u64,
        for_ms: u64,
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
    /// Of a broker's machine.
    Disk(usize, DiskFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DiskFault {
    /// The power goes at a call to the disk, behind so many more, and is away for so long.
    Power { behind: u32, rest: Rest, down_ms: u64 },
    /// So many bytes are free, for so long. `is_seen`: who asks is told.
    Full { free: u64, is_seen: bool, for_ms: u64 },
    /// So many syncs fail, within so long. `only_barriers`: not those by which sled begins to write.
    Syncs { count: u32, only_barriers: bool, for_ms: u64 },
    /// Everything is gone.
    Wipe { down_ms: u64 },
    /// No write succeeds, for so long.
    Broken { for_ms: u64 },
    /// So many bits are others when it starts again.
    Flipped { bits: u32, down_ms: u64 },
}

/// What a power cut leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rest {
    Nothing,
    Everything,
    /// So many eighths.
    Sectors(u8),
    Beginning,
}

impl DiskFault {
    /// For how long at most the disk does not take what is written, ms: the log tries again each second.
    pub(crate) fn fails_for(self) -> Option<u64> {
        match self {
            DiskFault::Full { for_ms, .. } | DiskFault::Syncs { for_ms, .. } | DiskFault::Broken { for_ms } => {
                Some(for_ms + 2_000)
            }
            DiskFault::Power { .. } | DiskFault::Wipe { .. } | DiskFault::Flipped { .. } => None,
        }
    }

    fn new(random: &mut fastrand::Rng, down_ms: u64) -> DiskFault {
        match random.u8(0..15) {
            0..6 => DiskFault::Power {
                behind: if random.u8(0..4) == 0 { 0 } else { random.u32(0..60) },
                rest: match random.u8(0..4) {
                    0 => Rest::Nothing,
                    1 => Rest::Everything,
                    2 => Rest::Beginning,
                    _ => Rest::Sectors(random.u8(1..8)),
                },
                down_ms,
            },
            6..8 => DiskFault::Full {
                free: if random.bool() { 0 } else { random.u64(0..200_000) },
                is_seen: random.bool(),
                for_ms: down_ms,
            },
            8..10 => DiskFault::Syncs { count: random.u32(1..6), only_barriers: random.bool(), for_ms: down_ms },
            10..12 => DiskFault::Broken { for_ms: down_ms },
            12..14 => DiskFault::Flipped { bits: random.u32(1..40), down_ms },
            _ => DiskFault::Wipe { down_ms },
        }
    }
}

impl Fault {
    /// The broker that neither hears nor is heard meanwhile, and for how long at least, ms.
    pub(crate) fn silences(self) -> Option<(usize, u64)> {
        match self {
            Fault::KillBroker(broker, ms)
            | Fault::FreezeBroker(broker, ms)
            | Fault::CutLink { broker, for_ms: ms, .. } => Some((broker, ms)),
            Fault::StopBroker(broker, ms) => Some((broker, ms + 20_000)),
            Fault::Disk(
                broker,
                DiskFault::Power { down_ms, .. } | DiskFault::Wipe { down_ms } | DiskFault::Flipped { down_ms, .. },
            ) => Some((broker, down_ms + 2_000)),
            // So slow that its calls are given up.
            Fault::SlowLinks(broker, us, ms) if us > 100_000 => Some((broker, ms)),
            _ => None,
        }
    }

    /// The broker whose disk, or a part of it, is lost.
    pub(crate) fn loses_disk(self) -> Option<usize> {
        match self {
            Fault::Disk(broker, DiskFault::Wipe { .. } | DiskFault::Flipped { .. }) => Some(broker),
            _ => None,
        }
    }

    /// Whether what Redis loses by it is lost at once: nothing that it answers later.
    pub(crate) fn forgets_at_once(self, scenario: Scenario) -> bool {
        let is_alone = matches!(scenario.layout(), Layout::Primary { .. });
        is_alone && matches!(self, Fault::Empty | Fault::Replace { .. } | Fault::KillRedis { .. })
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

impl Fault {
    /// Whether this broker may miss what Redis announces meanwhile.
    pub(crate) fn deafens(self, broker: usize) -> bool {
        match self {
            Fault::FreezeBroker(of, _)
            | Fault::CutLink { broker: of, .. }
            | Fault::SlowLinks(of, ..)
            | Fault::ResetLinks(of, _) => of == broker,
            Fault::KillBroker(..)
            | Fault::StopBroker(..)
            | Fault::SkewBroker(..)
            | Fault::FlushScripts
            | Fault::Full(_)
            | Fault::Disk(..) => false,
            Fault::Empty
            | Fault::Replace { .. }
            | Fault::FailOver { .. }
            | Fault::Isolate { .. }
            | Fault::Lag { .. }
            | Fault::KillRedis { .. }
            | Fault::FreezeRedis(..)
            | Fault::Stranger { .. } => true,
        }
    }

    /// Whether Redis certainly has, afterwards too, all that it answered. Where a replica may be promoted no fault of a node is such.
    pub(crate) fn keeps_redis(self, scenario: Scenario) -> bool {
        let is_alone = matches!(scenario.layout(), Layout::Primary { .. });
        match self {
            Fault::Empty
            | Fault::Replace { .. }
            | Fault::FailOver { .. }
            | Fault::Isolate { .. }
            | Fault::Lag { .. } => false,
            Fault::KillRedis { power, .. } => is_alone && (!power || scenario.redis().aof == Some(Fsync::Always)),
            Fault::FreezeRedis(..) => is_alone,
            Fault::KillBroker(..)
            | Fault::StopBroker(..)
            | Fault::FreezeBroker(..)
            | Fault::SkewBroker(..)
            | Fault::CutLink { .. }
            | Fault::SlowLinks(..)
            | Fault::ResetLinks(..)
            | Fault::FlushScripts
            | Fault::Full(_)
            | Fault::Stranger { .. }
            | Fault::Disk(..) => true,
        }
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
        let mut topics: Vec<Topic> = (0..random.usize(1..=3)).map(|number| Topic::new(&mut random, number)).collect();
        if !topics[0].is_ordered && random.bool() {
            topics.push(topics[0].destination(&mut random));
        }
        // A group of the first topic is the group of its dead letters, too.
        if !topics[0].is_ordered && topics[0].groups.len() == 1 && random.bool() {
            topics[0].forwards_to = Some(topics.len());
            topics.push(Topic { name: "dead".to_owned(), forwards_to: None, ..topics[0].destination(&mut random) });
        }
        let length = length_ms(operations);
        let hands_over = brokers > 1 && scenario != Scenario::Foreign && random.bool();
        let mut plan = Plan { seed, scenario, brokers, topics, hands_over, steps: Vec::new() };
        let mut ids = Ids::default();
        let tide = Tide::new(&mut random, length);
        for _ in 0..operations {
            let mut operation = plan.operation(&mut random, &mut ids);
            let broker = random.usize(0..brokers);
            let at = tide.time(&mut random);
            let at = ids.time(&mut random, plan.steps.len(), &mut operation, at);
            plan.add(at, Action::Operation(broker, operation));
        }
        let is_calm = random.u8(0..10) == 0;
        let mut at = random.u64(1_000..8_000);
        // What a disk loses is missed only while Redis is away, or when it forgets later.
        let pause = if scenario == Scenario::Disks { 3_000 } else { 12_000 };
        while !is_calm && at < length {
            let fault = plan.fault(&mut random);
            plan.strike(&mut random, at, fault);
            // Some come together.
            at += if random.u8(0..4) == 0 { random.u64(0..500) } else { random.u64(500..pause) };
        }
        if !is_calm && random.bool() {
            let at = random.u64(3_000..length);
            plan.ambush(&mut random, at);
        }
        // Few faults are stops, and few stops come while something is buffered.
        if !is_calm && hands_over {
            let (at, stop) =
                (random.u64(3_000..length), Fault::StopBroker(random.usize(0..brokers), random.u64(10..12_000)));
            plan.strike(&mut random, at, stop);
        }
        plan.steps.sort_by_key(|step| step.at_ms);
        plan
    }

    /// Adds a fault, with what has to come together with it.
    fn strike(&mut self, random: &mut fastrand::Rng, at_ms: u64, fault: Fault) {
        self.add(at_ms, Action::Fault(fault));
        self.follow_up(random, at_ms, fault);
    }

    fn add(&mut self, at_ms: u64, action: Action) {
        self.steps.push(Step { number: self.steps.len(), at_ms, action });
    }

    fn nodes(&self) -> usize {
        match self.scenario {
            Scenario::Sentinels => 2,
            Scenario::Cluster => 6,
            _ => 1,
        }
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

    fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let broker = random.usize(0..self.brokers);
        let node = random.usize(0..self.nodes());
        let down_ms = if random.bool() { random.u64(10..1_000) } else { random.u64(1_000..12_000) };
        if self.hands_over && random.u8(0..6) == 0 {
            return Fault::StopBroker(broker, down_ms);
        }
        let bad_disks = match self.scenario {
            Scenario::Disks => 60,
            Scenario::Emptied | Scenario::Foreign => 0,
            _ => 5,
        };
        if random.u8(0..100) < bad_disks {
            return Fault::Disk(broker, DiskFault::new(random, down_ms));
        }
        if self.scenario == Scenario::Foreign && random.u8(0..3) == 0 {
            return Fault::Stranger { down_ms, for_ms: random.u64(1_000..12_000) };
        }
        if self.scenario.may_forget() && random.u8(0..3) == 0 {
            return match (self.scenario, random.u8(0..4)) {
                (Scenario::Emptied, _) => Fault::Empty,
                (Scenario::Forgetful | Scenario::Disks, _) => Fault::Replace { node, down_ms },
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
        let (is_ordered, is_queue) = (random.u8(0..3) == 0, random.bool());
        let is_fair = !is_ordered && random.bool();
        let has_key_rate = is_fair && random.u8(0..3) == 0;
        Topic {
            name: if is_ordered && is_queue { format!("t{number}.fifo") } else { format!("t{number}") },
            partitions: random.u16(1..=4),
            groups: groups.collect(),
            is_ordered,
            visibility_ms: if random.u8(0..4) == 0 { random.u64(500..1_000) } else { random.u64(500..5_000) },
            max_attempts: random.u32(3..12),
            dedup_window_ms: if random.u8(0..3) == 0 { random.u64(1_000..20_000) } else { 0 },
            buries_expired: random.bool(),
            is_fair,
            key_max_in_flight: if is_fair && random.bool() { random.u32(1..4) } else { 0 },
            key_rate: if has_key_rate { random.u32(1..10) } else { 0 },
            key_burst: if has_key_rate { random.u32(1..4) } else { 0 },
            takes_from: None,
            forwards_to: None,
        }
    }

    /// For what is moved from the first topic.
    fn destination(&self, random: &mut fastrand::Rng) -> Topic {
        Topic { name: "moved".to_owned(), partitions: random.u16(1..=4), takes_from: Some(0), ..self.clone() }
    }

    /// The key is a part of the id's meaning: one id has one key.
    pub(crate) fn key_of(&self, id: &str) -> Option<String> {
        let number = id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let keys = if self.is_ordered { 3 } else { 7 };
        (number % 3 != 0 || self.is_ordered).then(|| format!("k{}", number % keys))
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// Whether clients of SQS may use it: a topic with an order and without the name of a FIFO queue has none.
    pub(crate) fn is_queue(&self) -> bool {
        !self.is_ordered || self.is_fifo()
    }
}
