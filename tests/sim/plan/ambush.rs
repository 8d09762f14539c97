//! A fault with what clients do around it, where by chance alone the two would hardly meet.

use super::{Action, DiskFault, Fault, Plan, Scenario};
use crate::operation::{Consume, Gather, NAME, Operation, Policy, Push, Target};

/// Messages of each.
const COUNT: u64 = 6;

impl Plan {
    /// At some time behind the first seconds.
    pub(super) fn ambush(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        match random.u8(0..8) {
            0 => self.cancel_across(random, at_ms),
            1 if self.nodes() == 1 => self.cancel_in_log(random, at_ms),
            2 => self.take_over(random, at_ms),
            3 if self.scenario == Scenario::Disks => {
                let broker = random.usize(0..self.brokers);
                let fault = Fault::Disk(broker, DiskFault::Syncs { count: 1, only_barriers: true, for_ms: 2_000 });
                self.add(at_ms, Action::Fault(fault));
                let topic = random.usize(0..self.sources());
                for number in 0..COUNT {
                    let push = plain(self.fresh(topic, |_| true), random.u64(0..20_000));
                    self.operate(at_ms - 20 + number * 20, broker, Operation::Push(push));
                }
                self.lose_what_was_not_synced(random, at_ms, broker);
            }
            5 => self.same_time_again(random, at_ms),
            6 => self.lose_answers(random, at_ms),
            7 => self.pause_held_key(random, at_ms),
            _ if self.scenario.may_forget() && self.nodes() == 1 => self.push_while_restored(random, at_ms),
            _ => {}
        }
    }

    fn operate(&mut self, at_ms: u64, broker: usize, operation: Operation) {
        self.add(at_ms, Action::Operation(broker, operation));
    }

    fn take(
        &mut self,
        random: &mut fastrand::Rng,
        at_ms: u64,
        broker: usize,
        (topic, group, max): (usize, usize, usize),
    ) {
        let seed = random.u64(..);
        let gather = Gather::default();
        let consume = Consume { topic, group, max, wait_ms: 300, per_key: 1, is_stream: false, seed, gather };
        self.operate(at_ms, broker, Operation::Consume(consume));
    }

    /// The first call of a cancel takes a message out of one group, and finds it in the memory of an owner in another one; the
    /// second call meets a full Redis.
    fn cancel_across(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        let has_both = |topic: &usize| self.topics[*topic].groups.len() > 1;
        let Some(topic) = (0..self.sources()).find(has_both) else { return };
        let [owner, other] = [(); 2].map(|()| random.usize(0..self.brokers));
        self.add(at_ms, Action::Fault(Fault::Full(random.u64(500..2_000))));
        self.add(at_ms - 400, Action::Fault(Fault::SlowLinks(other, 80_000, 1_000)));
        let group = random.usize(0..2);
        self.take(random, at_ms - 1_500, owner, (topic, group, 1));
        for number in 0..COUNT {
            let target = self.fresh(topic, |_| true);
            self.operate(at_ms - 1_400 - number, owner, Operation::Push(plain(target.clone(), 0)));
            self.operate(at_ms - random.u64(0..350), other, Operation::Cancel(target));
        }
    }

    /// A cancel that a broker buffers counts for a message of its id in Redis, too: one that is due long after all faults.
    fn cancel_in_log(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        let (broker, for_ms) = (random.usize(0..self.brokers), random.u64(2_000..4_000));
        let fault = match random.bool() {
            true => Fault::CutLink { broker, node: 0, way: 0, for_ms },
            false => Fault::KillRedis { node: 0, power: false, down_ms: for_ms, loading_ms: 0 },
        };
        self.add(at_ms, Action::Fault(fault));
        for number in 0..COUNT {
            let target = self.fresh(random.usize(0..self.sources()), |_| true);
            let push = |delay_ms| Operation::Push(plain(target.clone(), delay_ms));
            let (first, second) = (push(random.u64(25_000..28_000)), push(random.u64(10_000..28_000)));
            self.operate(at_ms - 500 - number, random.usize(0..self.brokers), first);
            self.operate(at_ms + 700 + number, broker, second);
            self.operate(at_ms + 1_300 + number, broker, Operation::Cancel(target));
        }
    }

    /// A key is paused of which an owner has messages in memory; perhaps that one is killed then.
    fn pause_held_key(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        const KEY: &str = "k1";
        let Some(topic) = (0..self.sources()).find(|topic| self.topics[*topic].is_fair) else { return };
        let (owner, other) = (random.usize(0..self.brokers), random.usize(0..self.brokers));
        let group = random.usize(0..self.topics[topic].groups.len());
        self.operate(at_ms, other, Operation::PauseKey(topic, group, KEY.to_owned(), random.u64(3_000..9_000)));
        if random.bool() {
            self.add(at_ms + 500, Action::Fault(Fault::KillBroker(owner, random.u64(100..2_000))));
        }
        for number in 0..COUNT {
            let target = self.fresh(topic, |key| key == Some(KEY));
            self.operate(at_ms - 900 + number, other, Operation::Push(plain(target, 0)));
            self.take(random, at_ms - 600 + number * 90, owner, (topic, group, 1));
            let broker = if random.bool() { owner } else { other };
            self.take(random, at_ms + 100 + number * 300, broker, (topic, group, 4));
        }
    }

    /// Messages of a key whose time has come, of which the owner has the first ones when it is killed. The later ids are the lower ones.
    fn take_over(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        let Some(topic) = (0..self.sources()).find(|topic| self.topics[*topic].is_ordered) else { return };
        let (owner, broker) = (random.usize(0..self.brokers), random.usize(0..self.brokers));
        self.add(at_ms, Action::Fault(Fault::KillBroker(owner, random.u64(100..2_000))));
        let groups = self.topics[topic].groups.len();
        for number in 0..COUNT {
            let target = self.fresh(topic, |key| key == Some("k1"));
            let push = Push { is_absolute: true, is_rounded: true, ..plain(target, 0) };
            self.operate(at_ms - 900 + number * 130, broker, Operation::Push(push));
            let group = random.usize(0..groups);
            self.take(random, at_ms - 880 + number * 130, owner, (topic, group, 1));
        }
    }

    /// What one broker pushed another one acked, which is frozen when Redis loses both: what it acked comes back before it is told.
    fn push_while_restored(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        let is_plain =
            |topic: &usize| self.topics[*topic].dedup_window_ms == 0 && self.topics[*topic].forwards_to.is_none();
        let Some(topic) = (0..self.sources()).find(is_plain) else { return };
        let (broker, other) = (random.usize(0..self.brokers), random.usize(0..self.brokers));
        let loss = match random.u8(0..3) {
            0 => Fault::Empty,
            1 => Fault::Replace { node: 0, down_ms: 50 },
            _ => Fault::KillRedis { node: 0, power: true, down_ms: 50, loading_ms: 0 },
        };
        self.add(at_ms, Action::Fault(loss));
        if broker != other {
            self.add(at_ms - 20, Action::Fault(Fault::FreezeBroker(other, random.u64(500..2_000))));
        }
        let groups = self.topics[topic].groups.len();
        for number in 0..COUNT {
            let target = self.fresh(topic, |_| true);
            let push = |delay_ms| Operation::Push(plain(target.clone(), delay_ms));
            self.operate(at_ms - 2_000 + number, broker, push(0));
            let group = random.usize(0..groups);
            self.take(random, at_ms - 1_800 + number * 250, other, (topic, group, 4));
            self.operate(at_ms + random.u64(50..2_000), broker, push(1_000));
        }
    }

    /// A broker makes ids in each millisecond of a span, and another one does. Then its clock goes back, perhaps while it starts again, or it
    /// is frozen, and it makes ids for the same times.
    fn same_time_again(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        const SPAN: u64 = 24;
        let (broker, other, topic) =
            (random.usize(0..self.brokers), random.usize(0..self.brokers), random.usize(0..self.sources()));
        let down_ms = random.u64(50..600);
        let (fault, again_ms) = match random.u8(0..4) {
            0 => (Fault::FreezeBroker(broker, down_ms), at_ms + down_ms + 5),
            1 => (Fault::KillBroker(broker, down_ms), at_ms + down_ms + 400),
            _ => (Fault::FlushScripts, at_ms + 5),
        };
        self.add(at_ms + 1, Action::Fault(fault));
        let back_ms = again_ms - at_ms + SPAN;
        self.add(again_ms - 2, Action::Fault(Fault::SkewBroker(broker, -back_ms.cast_signed())));
        for ms in 0..SPAN {
            for (at_ms, broker) in [(at_ms - SPAN + ms, broker), (at_ms - SPAN + ms, other), (again_ms + ms, broker)] {
                let push = self.without_id(random, topic);
                let is_batch = random.u8(0..6) == 0;
                let operation = match is_batch {
                    true => Operation::PushBatch(topic, vec![push, self.without_id(random, topic)]),
                    false => Operation::Push(push),
                };
                self.operate(at_ms, broker, operation);
            }
        }
    }

    /// Pushes without ids reach Redis, and their answers do not come back: the broker is killed behind slow links, or hears nothing for a while.
    /// Others take the messages.
    fn lose_answers(&mut self, random: &mut fastrand::Rng, at_ms: u64) {
        let (broker, other) = (random.usize(0..self.brokers), random.usize(0..self.brokers));
        let topic = random.usize(0..self.sources());
        if random.bool() {
            self.add(at_ms - 400, Action::Fault(Fault::SlowLinks(broker, random.u64(10_000..60_000), 1_000)));
            self.add(at_ms, Action::Fault(Fault::KillBroker(broker, random.u64(100..3_000))));
        } else {
            let for_ms = random.u64(500..6_000);
            for node in 0..self.nodes() {
                self.add(at_ms - 120, Action::Fault(Fault::CutLink { broker, node, way: 1, for_ms }));
            }
        }
        let groups = self.topics[topic].groups.len();
        for number in 0..COUNT {
            let push = Push { delay_ms: random.u64(0..1_500), ..self.without_id(random, topic) };
            let operation = match random.u8(0..3) {
                0 => Operation::PushBatch(topic, vec![push, self.without_id(random, topic)]),
                _ => Operation::Push(push),
            };
            self.operate(at_ms - 115 + number * 20, broker, operation);
            let group = random.usize(0..groups);
            self.take(random, at_ms + number * 300, other, (topic, group, 4));
        }
    }

    fn without_id(&self, random: &mut fastrand::Rng, topic: usize) -> Push {
        let id = format!("{NAME}z{}-{}", self.steps.len(), random.u32(..));
        let key = self.topics[topic].key_of(&id).filter(|_| self.topics[topic].is_ordered);
        Push { is_nameless: true, ..plain(Target { topic, id, key }, random.u64(0..2_000)) }
    }

    /// A message that no other operation means, with such a key.
    fn fresh(&self, topic: usize, has_key: impl Fn(Option<&str>) -> bool) -> Target {
        let number = 10 * (100_000 - self.steps.len());
        let ids = (number..number + 10).map(|number| format!("z{number}"));
        let keys = ids.map(|id| (self.topics[topic].key_of(&id), id));
        let (key, id) = keys.into_iter().find(|(key, _)| has_key(key.as_deref())).unwrap_or_default();
        Target { topic, id, key }
    }
}

fn plain(target: Target, delay_ms: u64) -> Push {
    Push { delay_ms, ..Push::of(target, Policy::Keep) }
}
