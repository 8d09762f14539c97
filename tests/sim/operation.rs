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
    ReceiveFromQueue(Consume),
    /// For so long, ms.
    Pause(usize, usize, u64),
    Limit(Limit),
    Window(WindowChange),
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
    /// Its id is the header `Idempotency-Key`. No other push has its payload, so it is refused while a message of the id is held; one that
    /// is only remembered makes it a duplicate. In a batch it is `Keep`.
    Idempotent,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Push {
    pub(crate) target: Target,
    pub(crate) policy: Policy,
    pub(crate) delay_ms: u64,
    /// Says the time, not the delay.
    pub(crate) is_absolute: bool,
    /// Of a whole second, as people say times: many are due in the same millisecond, some in the past.
    #[serde(default)]
    pub(crate) is_rounded: bool,
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

impl Plan {
    pub(crate) fn operation(&self, random: &mut fastrand::Rng, ids: &mut usize) -> Operation {
        let topic = random.usize(0..self.sources());
        let group = random.usize(0..self.topics[topic].groups.len());
        let from = if random.bool() { topic } else { random.usize(0..self.topics.len()) };
        match random.u32(0..1_000) {
            0..350 => Operation::Push(self.push(random, topic, ids)),
            350..380 if self.topics[topic].is_queue() => {
                Operation::SendToQueue(topic, if random.bool() { 0 } else { random.u64(0..20) })
            }
            350..380 => Operation::Push(self.push(random, topic, ids)),
            380..430 => {
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
            }),
            560..922 => Operation::Consume(Consume {
                topic: from,
                group: random.usize(0..self.topics[from].groups.len()),
                max: random.usize(1..=10),
                wait_ms: wait(random),
                per_key: if self.topics[from].is_ordered && random.bool() { random.usize(1..=10) } else { 1 },
                is_stream: random.u8(0..8) == 0,
                seed: random.u64(..),
            }),
            922..925 => Operation::Cron(CronChange {
                topic,
                job: random.usize(0..2),
                every_ms: (random.u8(0..3) > 0).then(|| random.u64(1..6) * 1_000),
                missed: [Missed::Last, Missed::Skip, Missed::All][random.usize(0..3)],
            }),
            925..927 => self.delete(random, topic, group),
            927 => self.move_topic(random).unwrap_or(Operation::PurgeDead(topic, group)),
            928..932 => Operation::Pause(topic, group, random.u64(200..10_000)),
            932..935 => Operation::Limit(Limit {
                topic,
                group,
                rate: if random.bool() { 0 } else { random.u32(2..60) },
                max_in_flight: if random.bool() { 0 } else { random.u32(1..10) },
            }),
            935..937 => Operation::Window(WindowChange {
                topic,
                group,
                closed: (random.u8(0..4) > 0).then(|| random.u64(0..2)),
                is_elsewhere: random.bool(),
            }),
            937..941 => Operation::Bulk(bulk(random, topic, group)),
            941..947 => Operation::PurgeGroup(topic, group),
            947..960 => Operation::Redrive(topic, group),
            960..965 => Operation::PurgeDead(topic, group),
            965..985 => Operation::Get(self.target(random, topic, ids)),
            _ => {
                let looks = [
                    Look::Explain,
                    Look::List,
                    Look::ListByDue,
                    Look::ListDeadByAge,
                    Look::Forecast,
                    Look::Verify,
                    Look::Topic,
                ];
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
        let key = self.topics[topic].key_of(&id);
        Target { topic, id, key }
    }

    fn push(&self, random: &mut fastrand::Rng, topic: usize, ids: &mut usize) -> Push {
        let policy = match random.u8(0..10) {
            0 => Policy::Reject,
            1 => Policy::Replace,
            2 => Policy::Debounce,
            3 => Policy::Idempotent,
            _ => Policy::Keep,
        };
        let (mut is_absolute, mut is_rounded, mut delay_ms) = (random.u8(0..3) == 0, random.bool(), delay(random));
        // Several of a key at a time that has come, one behind the other.
        if self.topics[topic].is_ordered && random.u8(0..4) == 0 {
            (is_absolute, is_rounded, delay_ms) = (true, true, 0);
        }
        Push {
            target: self.target(random, topic, ids),
            policy,
            delay_ms,
            is_absolute,
            is_rounded,
            ttl_ms: (random.u8(0..20) == 0).then(|| random.u64(100..10_000)),
            priority: if random.u8(0..5) == 0 { random.u8(0..10) } else { 0 },
        }
    }

    /// How many topics are pushed to.
    pub(crate) fn sources(&self) -> usize {
        self.topics.iter().filter(|topic| topic.takes_from.is_none()).count()
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
