//! What clients ask, as data, and how often they ask for what.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

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
    /// By SQS, in one request: seconds of delay of each.
    SendManyToQueue(usize, Vec<u64>),
    ReceiveFromQueue(Consume),
    /// For so long, ms.
    Pause(usize, usize, u64),
    /// A key, for so long, ms; 0 ends its pause.
    PauseKey(usize, usize, String, u64),
    Limit(Limit),
    Window(WindowChange),
    Fair(usize, usize, Fair),
    Bulk(Bulk),
    Look(Look, Target, usize),
    Cron(CronChange),
    /// The topic, or one of its groups: it is made again at once.
    Delete(usize, Option<usize>),
    /// A group is deleted, and is a copy of the first one at once.
    Copy(usize, usize),
    /// All messages of the first topic, to the second one.
    Move(usize, usize),
}

/// New limits of a group; 0 is none.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    /// Hand-overs in a second.
    pub(crate) rate: u32,
    pub(crate) max_in_flight: u32,
    /// Of one key; only in a fair group.
    #[serde(default)]
    pub(crate) key_max_in_flight: u32,
    /// Deliveries of one key in a second; only in a fair group.
    #[serde(default)]
    pub(crate) key_rate: u32,
    #[serde(default)]
    pub(crate) key_burst: u32,
    /// Only in a fair group.
    #[serde(default)]
    pub(crate) other: Option<OtherLimit>,
}

/// The limits and the weight of a key that are not those of its group.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OtherLimit {
    key: u32,
    /// Nothing is as the group has it, and 0 no limit.
    pub(crate) max_in_flight: Option<u32>,
    /// Without a burst.
    pub(crate) rate: Option<u32>,
    pub(crate) weight: u32,
}

impl OtherLimit {
    /// By what was drawn already, so that a seed is the plan that it was.
    fn by(limit: Limit) -> Option<OtherLimit> {
        let Limit { topic, group, rate, max_in_flight, key_max_in_flight, key_rate, key_burst, .. } = limit;
        let drawn = [topic as u32, group as u32, rate, max_in_flight, key_max_in_flight, key_rate, key_burst];
        let seed = drawn.into_iter().fold(0_u64, |seed, drawn| seed * 61 + u64::from(drawn));
        let mut random = fastrand::Rng::with_seed(seed);
        random.bool().then(|| OtherLimit {
            key: random.u32(0..7),
            max_in_flight: random.bool().then(|| random.u32(0..4)),
            rate: random.bool().then(|| random.u32(0..20)),
            weight: random.u32(1..=100),
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("k{}", self.key)
    }
}

impl Limit {
    pub(crate) fn none(topic: usize, group: usize) -> Limit {
        Limit { topic, group, rate: 0, max_in_flight: 0, key_max_in_flight: 0, key_rate: 0, key_burst: 0, other: None }
    }

    /// In a fair group one key perhaps has other limits.
    pub(crate) fn with_other(self, is_fair: bool) -> Limit {
        Limit { other: OtherLimit::by(self).filter(|_| is_fair), ..self }
    }

    fn other_of(&self, key: &str) -> Option<&OtherLimit> {
        self.other.as_ref().filter(|other| other.name() == key)
    }

    /// Deliveries of a key in flight; 0 is without a limit.
    pub(crate) fn max_in_flight_of(&self, key: &str) -> u32 {
        self.other_of(key).and_then(|other| other.max_in_flight).unwrap_or(self.key_max_in_flight)
    }

    /// Deliveries of a key in a second, and at once; 0 is without a limit.
    pub(crate) fn rate_of(&self, key: &str) -> (u32, u32) {
        match self.other_of(key).and_then(|other| other.rate) {
            Some(rate) => (rate, 1),
            None => (self.key_rate, self.key_burst),
        }
    }

    pub(crate) fn is_any(self) -> bool {
        self.rate + self.max_in_flight + self.key_max_in_flight + self.key_rate > 0 || self.other.is_some()
    }
}

/// What takes turns in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fair {
    Nothing,
    Key,
}

/// A new window of a group: it is closed for a minute of each day, and open otherwise.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct WindowChange {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    /// The minute, counted from the one in which it is asked for; nothing: it is always open.
    pub(crate) closed: Option<u64>,
    /// In a time zone whose hours are not those of UTC.
    pub(crate) is_elsewhere: bool,
}

/// A bulk operation on what is due from so long from now, for so long.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Bulk {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) action: BulkAction,
    pub(crate) from_ms: u64,
    pub(crate) length_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BulkAction {
    Cancel,
    /// By so many ms.
    Postpone(u64),
    Advance(u64),
    Park,
    /// The window is of the times before they were parked.
    Unpark,
}

impl BulkAction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            BulkAction::Cancel => "cancel",
            BulkAction::Postpone(_) => "postpone",
            BulkAction::Advance(_) => "advance",
            BulkAction::Park => "park",
            BulkAction::Unpark => "unpark",
        }
    }

    pub(crate) fn by_ms(self) -> Option<u64> {
        match self {
            BulkAction::Postpone(by) | BulkAction::Advance(by) => Some(by),
            BulkAction::Cancel | BulkAction::Park | BulkAction::Unpark => None,
        }
    }
}

/// A cron job of a topic, by its number.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CronChange {
    pub(crate) topic: usize,
    pub(crate) job: usize,
    /// From one message to the next; nothing: it is deleted.
    pub(crate) every_ms: Option<u64>,
    pub(crate) missed: Missed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Missed {
    Last,
    Skip,
    All,
}

/// A read, of which only a failure is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Look {
    Explain,
    List,
    ListByDue,
    ListDeadByAge,
    Forecast,
    Verify,
    Topic,
    Group,
}

impl Operation {
    /// How many requests of a client it stands for, at least.
    pub(crate) fn count(&self) -> usize {
        match self {
            Operation::PushBatch(_, pushes) => pushes.len(),
            Operation::SendManyToQueue(_, delays) => delays.len(),
            _ => 1,
        }
    }

    /// The messages that it pushes without an id, by their names in the plan.
    fn nameless(&self) -> impl Iterator<Item = &Target> {
        let pushes = match self {
            Operation::Push(push) => std::slice::from_ref(push),
            Operation::PushBatch(_, pushes) => &pushes[..],
            _ => &[],
        };
        pushes.iter().filter(|push| push.is_nameless).map(|push| &push.target)
    }

    /// The messages that it means, where it may mean one that was pushed without an id.
    pub(crate) fn meant(&mut self) -> Option<&mut Target> {
        match self {
            Operation::Push(push) if !push.is_nameless => Some(&mut push.target),
            Operation::Cancel(target)
            | Operation::Reschedule(target, _)
            | Operation::Get(target)
            | Operation::Look(_, target, _) => Some(target),
            _ => None,
        }
    }
}

/// With it the names begin that a plan has for messages which are pushed without an id. No id does.
pub(crate) const NAME: char = '?';

/// What a plan calls the message that a step sends by SQS.
pub(crate) fn name_of_sent(step: usize) -> String {
    format!("{NAME}s{step}")
}

/// The ids and names that a plan has used.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    last: usize,
    /// Messages without an id, and when they are pushed, ms.
    nameless: Vec<(Target, u64)>,
}

/// The longest time until somebody means a message that was pushed without an id, ms.
const MEANT_WITHIN: u64 = 4_000;

impl Ids {
    fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// One of the last messages of a topic that were pushed without an id.
    fn some_nameless(&self, random: &mut fastrand::Rng, topic: usize) -> Option<Target> {
        let all: Vec<_> = self.nameless.iter().rev().filter(|(target, _)| target.topic == topic).take(20).collect();
        random.choice(all).map(|(target, _)| target.clone())
    }

    /// When an operation is sent that was to be sent at this time: not before the push of the message that it means.
    pub(crate) fn time(
        &mut self,
        random: &mut fastrand::Rng,
        step: usize,
        operation: &mut Operation,
        at_ms: u64,
    ) -> u64 {
        self.nameless.extend(operation.nameless().map(|target| (target.clone(), at_ms)));
        if let Operation::SendToQueue(topic, _) = operation {
            let target = Target { topic: *topic, id: name_of_sent(step), key: None };
            self.nameless.push((target, at_ms));
        }
        let Some(target) = operation.meant() else { return at_ms };
        match self.nameless.iter().find(|(pushed, _)| pushed.id == target.id) {
            Some((_, pushed_ms)) if *pushed_ms + 20 > at_ms => pushed_ms + random.u64(20..MEANT_WITHIN),
            _ => at_ms,
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
    After,
    /// Its id is the header `Idempotency-Key`. No other push has its payload, so it is refused while a message of the id is held; one that
    /// is only remembered makes it a duplicate. In a batch it is `Keep`.
    Idempotent,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Push {
    /// Of a message without an id: its name in the plan.
    pub(crate) target: Target,
    /// The broker makes the id.
    #[serde(default)]
    pub(crate) is_nameless: bool,
    pub(crate) policy: Policy,
    pub(crate) delay_ms: u64,
    /// Says the time, not the delay.
    pub(crate) is_absolute: bool,
    /// Of a whole second, as people say times: many are due in the same millisecond, some in the past.
    #[serde(default)]
    pub(crate) is_rounded: bool,
    /// Its id moves the due time by less than this.
    #[serde(default)]
    pub(crate) spread_ms: Option<u64>,
    /// Of a debounce: how long after the first push the message may be due.
    #[serde(default)]
    pub(crate) debounce_max_ms: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) priority: u8,
}

impl Push {
    /// One that is due at once.
    pub(crate) fn of(target: Target, policy: Policy) -> Push {
        let (is_nameless, is_absolute, is_rounded, priority) = (false, false, false, 0);
        let (delay_ms, spread_ms, debounce_max_ms, ttl_ms) = (0, None, None, None);
        Push {
            target,
            is_nameless,
            policy,
            delay_ms,
            is_absolute,
            is_rounded,
            spread_ms,
            debounce_max_ms,
            ttl_ms,
            priority,
        }
    }
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
    #[serde(default)]
    pub(crate) gather: Gather,
}

/// The batch that a consumer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gather {
    pub(crate) min: usize,
    pub(crate) linger_ms: u64,
    pub(crate) same_key: bool,
}

impl Default for Gather {
    fn default() -> Gather {
        Gather { min: 1, linger_ms: 0, same_key: false }
    }
}

impl Plan {
    fn consume(&self, random: &mut fastrand::Rng, topic: usize) -> Consume {
        let (is_ordered, max) = (self.topics[topic].is_ordered, random.usize(1..=10));
        let is_stream = random.u8(0..8) == 0;
        let mut gather = Gather::default();
        if !is_ordered && !is_stream && random.u8(0..5) == 0 {
            gather.same_key = random.bool();
            gather.min = random.usize(1..=max);
            gather.linger_ms = if gather.min > 1 { random.u64(1..3_000) } else { 0 };
        }
        Consume {
            topic,
            group: random.usize(0..self.topics[topic].groups.len()),
            max,
            wait_ms: wait(random),
            per_key: if is_ordered && random.bool() { random.usize(1..=10) } else { 1 },
            is_stream,
            seed: random.u64(..),
            gather,
        }
    }

    pub(crate) fn operation(&self, random: &mut fastrand::Rng, ids: &mut Ids) -> Operation {
        let topic = random.usize(0..self.sources());
        let group = random.usize(0..self.topics[topic].groups.len());
        let from = if random.bool() { topic } else { random.usize(0..self.topics.len()) };
        match random.u32(0..1_000) {
            0..20 => {
                let push = self.push(random, topic, ids);
                match ids.some_nameless(random, topic) {
                    Some(target) => Operation::Push(Push { target, is_nameless: false, ..push }),
                    None => Operation::Push(push),
                }
            }
            20..350 => Operation::Push(self.push(random, topic, ids)),
            350..360 if self.topics[topic].is_queue() => {
                let delay = |random: &mut fastrand::Rng| if random.bool() { 0 } else { random.u64(0..20) };
                Operation::SendManyToQueue(topic, (0..random.usize(1..=10)).map(|_| delay(random)).collect())
            }
            360..380 if self.topics[topic].is_queue() => {
                Operation::SendToQueue(topic, if random.bool() { 0 } else { random.u64(0..20) })
            }
            350..380 => Operation::Push(self.push(random, topic, ids)),
            380..392 => Operation::PushBatch(topic, self.nameless_batch(random, topic, ids)),
            392..430 => {
                let count = random.usize(2..20);
                Operation::PushBatch(topic, (0..count).map(|_| self.push(random, topic, ids)).collect())
            }
            430..500 => Operation::Cancel(self.target(random, topic, ids)),
            500..560 => Operation::Reschedule(self.target(random, topic, ids), delay(random)),
            560..640 if self.topics[from].is_queue() => Operation::ReceiveFromQueue(Consume {
                topic: from,
                group: random.usize(0..self.topics[from].groups.len()),
                max: random.usize(1..=10),
                wait_ms: wait(random),
                per_key: 1,
                is_stream: false,
                seed: random.u64(..),
                gather: Gather::default(),
            }),
            560..922 => Operation::Consume(self.consume(random, from)),
            922..925 => Operation::Cron(CronChange {
                topic,
                job: random.usize(0..2),
                every_ms: (random.u8(0..3) > 0).then(|| random.u64(1..6) * 1_000),
                missed: [Missed::Last, Missed::Skip, Missed::All][random.usize(0..3)],
            }),
            925..927 => self.delete(random, topic, group),
            927 => self.move_topic(random).unwrap_or(Operation::PurgeDead(topic, group)),
            928..932 => Operation::Pause(topic, group, random.u64(200..10_000)),
            932..935 => Operation::Limit(self.limit(random, (topic, group))),
            935..937 => Operation::Window(WindowChange {
                topic,
                group,
                closed: (random.u8(0..4) > 0).then(|| random.u64(0..2)),
                is_elsewhere: random.bool(),
            }),
            // In a topic with an order it is refused.
            937 => Operation::Fair(topic, group, if random.u8(0..3) == 0 { Fair::Nothing } else { Fair::Key }),
            938..941 => Operation::Bulk(bulk(random, topic, group)),
            941..947 => Operation::PurgeGroup(topic, group),
            947..960 => Operation::Redrive(topic, group),
            960..965 => Operation::PurgeDead(topic, group),
            965..975 => Operation::Get(self.target(random, topic, ids)),
            975..985 => {
                let key =
                    self.topics[topic].key_of(&format!("m{}", random.u8(0..12))).unwrap_or_else(|| "k0".to_owned());
                let for_ms = if random.u8(0..4) == 0 { 0 } else { random.u64(200..10_000) };
                Operation::PauseKey(topic, group, key, for_ms)
            }
            _ => {
                let looks = [
                    Look::Explain,
                    Look::List,
                    Look::ListByDue,
                    Look::ListDeadByAge,
                    Look::Forecast,
                    Look::Verify,
                    Look::Topic,
                    Look::Group,
                ];
                Operation::Look(looks[random.usize(0..looks.len())], self.target(random, topic, ids), group)
            }
        }
    }

    fn target(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut Ids) -> Target {
        if let Some(target) = ids.some_nameless(random, topic).filter(|_| random.u8(0..4) == 0) {
            return target;
        }
        self.target_by_id(random, topic, ids)
    }

    fn target_by_id(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut Ids) -> Target {
        // A few ids that meet often; the others are used once, but for what cancels them.
        let id = match random.u8(0..3) {
            0 => format!("m{}", random.u8(0..12)),
            1 => format!("o{}", ids.last - random.usize(0..ids.last.clamp(1, 40)).min(ids.last)),
            _ => format!("o{}", ids.next()),
        };
        let key = self.topics[topic].key_of(&id);
        Target { topic, id, key }
    }

    /// Without an id: where no order needs a key, the id often decides the partition.
    fn nameless(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut Ids) -> Target {
        let id = format!("{NAME}{}", ids.next());
        let is_keyless = !self.topics[topic].is_ordered && random.bool();
        let key = self.topics[topic].key_of(&id).filter(|_| !is_keyless);
        Target { topic, id, key }
    }

    /// All without ids, and often without keys; a few are as large as a run of ids.
    fn nameless_batch(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut Ids) -> Vec<Push> {
        let count = if random.u8(0..12) == 0 { random.usize(100..=250) } else { random.usize(2..20) };
        let is_keyless = !self.topics[topic].is_ordered && random.u8(0..4) > 0;
        let push = |_| {
            let Target { id, key, .. } = self.nameless(random, topic, ids);
            let target = Target { topic, id, key: key.filter(|_| !is_keyless) };
            let (is_nameless, policy, spread_ms, debounce_max_ms) = (true, Policy::Keep, None, None);
            Push { target, is_nameless, policy, spread_ms, debounce_max_ms, ..self.push(random, topic, ids) }
        };
        (0..count).map(push).collect()
    }

    fn push(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut Ids) -> Push {
        let policy = match random.u8(0..10) {
            0 => Policy::Reject,
            1 => Policy::Replace,
            2 => Policy::Debounce,
            3 => Policy::Idempotent,
            4 => Policy::After,
            _ => Policy::Keep,
        };
        let (mut is_absolute, mut is_rounded, mut delay_ms) = (random.u8(0..3) == 0, random.bool(), delay(random));
        // Several of a key at a time that has come, one behind the other.
        if self.topics[topic].is_ordered && random.u8(0..4) == 0 {
            (is_absolute, is_rounded, delay_ms) = (true, true, 0);
        }
        let is_nameless = policy != Policy::Idempotent && random.u8(0..4) == 0;
        let target = match is_nameless {
            true => self.nameless(random, topic, ids),
            false => self.target_by_id(random, topic, ids),
        };
        Push {
            target,
            is_nameless,
            policy,
            delay_ms,
            is_absolute,
            is_rounded,
            // Of a message without an id the client does not know it before the answer.
            spread_ms: (!is_nameless && random.u8(0..6) == 0).then(|| random.u64(1..5_000)),
            debounce_max_ms: (policy == Policy::Debounce && random.u8(0..4) > 0).then(|| random.u64(1..6_000)),
            ttl_ms: (random.u8(0..20) == 0).then(|| random.u64(100..10_000)),
            priority: if random.u8(0..5) == 0 { random.u8(0..10) } else { 0 },
        }
    }

    /// How many topics are pushed to.
    pub(crate) fn sources(&self) -> usize {
        self.topics.iter().filter(|topic| topic.takes_from.is_none()).count()
    }

    fn limit(&self, random: &mut fastrand::Rng, (topic, group): (usize, usize)) -> Limit {
        let is_fair = self.topics[topic].is_fair;
        let limit = Limit {
            rate: if random.bool() { 0 } else { random.u32(2..60) },
            max_in_flight: if random.bool() { 0 } else { random.u32(1..10) },
            key_max_in_flight: if is_fair && random.u8(0..4) > 0 { random.u32(1..4) } else { 0 },
            key_rate: if is_fair && random.bool() { random.u32(1..20) } else { 0 },
            key_burst: random.u32(1..4),
            ..Limit::none(topic, group)
        };
        limit.with_other(is_fair)
    }

    /// What is moved is deleted in neither place.
    fn delete(&self, random: &mut fastrand::Rng, topic: usize, group: usize) -> Operation {
        let is_moved = self.topics.iter().any(|other| other.takes_from == Some(topic));
        match group > 0 && random.bool() {
            _ if is_moved => Operation::Redrive(topic, group),
            true if random.bool() => Operation::Copy(topic, group),
            true => Operation::Delete(topic, Some(group)),
            false => Operation::Delete(topic, None),
        }
    }

    fn move_topic(&self, random: &mut fastrand::Rng) -> Option<Operation> {
        let to = self.topics.iter().position(|topic| topic.takes_from.is_some() && random.bool())?;
        Some(Operation::Move(self.topics[to].takes_from?, to))
    }
}

fn bulk(random: &mut fastrand::Rng, topic: usize, group: usize) -> Bulk {
    let (from_ms, length_ms) = (random.u64(0..8_000), random.u64(1..5_000));
    let by_ms = length_ms + random.u64(0..3_000);
    let action = match random.u8(0..8) {
        0..2 => BulkAction::Cancel,
        2..4 => BulkAction::Postpone(by_ms),
        4 => BulkAction::Advance(by_ms),
        5..7 => BulkAction::Park,
        _ => BulkAction::Unpark,
    };
    Bulk { topic, group, action, from_ms, length_ms }
}

/// How long a consumer waits, ms: some for so long that nothing but a due message wakes their owner.
fn wait(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..16) {
        0..8 => 0,
        8..15 => random.u64(0..3_000),
        _ => random.u64(3_000..15_000),
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
