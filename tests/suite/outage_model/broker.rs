//! A broker and its clients: it stamps, calls, buffers and journals. Also how it starts, connects and dies.

use super::breach::Breach;
use super::ledger::{Answer, End, Operation, Settlement};
use super::rules::{Rule, Rules};
use super::scripts::{Reply, Script};
use super::state::{Answered, Body, Buffered, Call, CallId, Copy, Kind, Name, Request, Stamp, Verdict, Version, World};

/// Time between two operations.
const STEP: Version = 2;

/// A broker's part of one step of the world.
pub(super) struct Act<'a> {
    pub(super) world: &'a mut World,
    pub(super) name: Name,
    pub(super) rules: Rules,
}

impl Act<'_> {
    pub(super) fn script(&mut self) -> Script<'_> {
        Script { redis: &mut self.world.redis, ledger: &mut self.world.ledger, rules: self.rules }
    }

    fn stamp(&mut self) -> Version {
        self.world.now += STEP;
        let behind = if self.name == Name::B { self.world.left.lag } else { 0 };
        let broker = &self.world.brokers[self.name as usize];
        let wall = if broker.clock_is_wrong { 0 } else { self.world.now.saturating_sub(behind) };
        let version = wall.max(broker.clock + 1);
        self.world.broker_mut(self.name).clock = version;
        version
    }

    /// Stores a message before anything else happens.
    pub(super) fn push_before(&mut self, id: usize) {
        self.world.left.operations += 1;
        if self.ask(Kind::Push, id).is_ok() {
            self.answered();
        }
    }

    /// A client asks; Redis is called, or the WAL takes it.
    pub(super) fn ask(&mut self, kind: Kind, id: usize) -> Result<(), Breach> {
        self.world.left.operations -= 1;
        let version = self.stamp();
        let stamp = Stamp { version, op: self.world.ledger.operations.len() };
        let operation = Operation {
            kind,
            id,
            version,
            broker: self.name,
            answer: Answer::Open,
            payload: 0,
            settlement: Settlement::None,
            is_overtaken: false,
        };
        self.world.ledger.operations.push(operation);
        let request = Request { kind, id, stamp };
        if !self.world.broker(self.name).is_served() || self.world.holds_back(self.name, kind, self.rules) {
            return self.buffer_first(request);
        }
        if kind == Kind::Cancel {
            self.unbuffer(id);
        }
        let call = self.send(request);
        if !self.rules.has(Rule::JournalKeepsAnswers) && kind.is_push() {
            self.keep(Answered::Set { id, body: request.body(), call });
        }
        Ok(())
    }

    /// Under the next number of the stream.
    fn send(&mut self, request: Request) -> CallId {
        let broker = self.world.broker_mut(self.name);
        broker.sequence += 1;
        let call = CallId { stream: broker.stream, sequence: broker.sequence };
        broker.pending = Some(Call { call, request });
        call
    }

    /// Redis is not there: what can be promised goes to the WAL.
    fn buffer_first(&mut self, request: Request) -> Result<(), Breach> {
        self.world.ledger.check_order(request.stamp)?;
        if request.kind == Kind::Cancel && self.is_on_its_way(request.id) {
            self.refuse_cancel(request);
            return Ok(());
        }
        let was_removed = request.kind == Kind::Cancel && self.unbuffer(request.id);
        let is_promised = request.kind.is_push() || was_removed;
        self.buffer(request, None);
        self.answer(request.stamp, if is_promised { Answer::Accepted } else { Answer::Unknown });
        Ok(())
    }

    /// Whether Redis may have a push of this id that is in the WAL.
    fn is_on_its_way(&self, id: usize) -> bool {
        let broker = self.world.broker(self.name);
        let mut pushes = broker.wal.iter().filter(|record| record.request.id == id && record.request.kind.is_push());
        pushes.any(|record| record.number <= broker.sent)
    }

    fn refuse_cancel(&mut self, request: Request) {
        if !self.rules.has(Rule::RefusedCancelRemovesNothing) {
            let broker = self.world.broker_mut(self.name);
            let sent = broker.sent;
            broker.wal.retain(|record| record.request.id != request.id || record.number <= sent);
        }
        self.answer(request.stamp, Answer::Refused);
    }

    pub(super) fn answer(&mut self, stamp: Stamp, answer: Answer) {
        let name = self.name;
        let operation = self.world.ledger.operation(stamp);
        operation.answer = answer;
        operation.broker = name;
    }

    pub(super) fn buffer(&mut self, request: Request, call: Option<CallId>) {
        let broker = self.world.broker_mut(self.name);
        broker.wal_number += 1;
        let number = broker.wal_number;
        broker.wal.push(Buffered { number, request, call, origin: None });
    }

    /// Takes the pushes of an id out of the WAL that were certainly never sent; whether none is left.
    fn unbuffer(&mut self, id: usize) -> bool {
        let broker = self.world.broker_mut(self.name);
        let sent = broker.sent;
        let is_push = |record: &Buffered| record.request.id == id && record.request.kind.is_push();
        let was_sent = |record: &Buffered| record.is_elsewhere() || record.number <= sent;
        let removed: Vec<Buffered> =
            broker.wal.iter().copied().filter(|record| is_push(record) && !was_sent(record)).collect();
        broker.wal.retain(|record| !is_push(record) || was_sent(record));
        let is_clean = !broker.wal.iter().any(is_push);
        for record in &removed {
            self.answer(record.request.stamp, Answer::Refused);
        }
        is_clean && !removed.is_empty()
    }

    pub(super) fn keep(&mut self, answered: Answered) {
        let is_durable = self.rules.has(Rule::JournalBeforeAnswer);
        let broker = self.world.broker_mut(self.name);
        if !is_durable {
            broker.durable = broker.journal.len();
        }
        broker.journal.push(answered);
        if is_durable {
            broker.durable = broker.journal.len();
        }
    }

    /// Executes the pending call.
    pub(super) fn execute(&mut self) -> Option<(Call, Reply)> {
        let call = self.world.broker(self.name).pending.filter(|call| !self.is_held_back(*call))?;
        let reply = self.script().live(call);
        Some((call, reply))
    }

    /// A call is not sent to a Redis that lost data since it was made.
    fn is_held_back(&self, call: Call) -> bool {
        self.world.holds_back(self.name, call.request.kind, self.rules)
    }

    /// The pending call is executed and answered.
    pub(super) fn answered(&mut self) {
        if self.world.broker(self.name).pending.is_some_and(|call| self.is_held_back(call)) {
            return self.give_up();
        }
        let Some((call, reply)) = self.execute() else { return };
        match reply {
            Reply::Gap => {
                self.world.new_stream(self.name);
                self.send(call.request);
            }
            Reply::Done(Verdict::Outdated, _) | Reply::Remembered(Verdict::Outdated) => self.stamp_anew(call.request),
            Reply::Done(verdict, version) => self.finish(call, verdict, version, true),
            Reply::Remembered(verdict) => {
                let version = self.world.ledger.operation(call.request.stamp).version;
                self.finish(call, verdict, version, false);
            }
        }
    }

    /// Something newer is there.
    fn stamp_anew(&mut self, request: Request) {
        let there = self.world.redis.version_of(request.id);
        let broker = self.world.broker_mut(self.name);
        broker.clock = broker.clock.max(there);
        let version = self.stamp();
        if self.world.lost_data {
            // Perhaps it was applied and settled, and Redis forgot the call: it is delivered once more.
            self.world.ledger.operation(request.stamp).settlement = Settlement::None;
        }
        self.send(Request { stamp: Stamp { version, ..request.stamp }, ..request });
    }

    fn finish(&mut self, Call { call, request }: Call, verdict: Verdict, version: Version, is_first: bool) {
        let broker = self.world.broker_mut(self.name);
        broker.pending = None;
        broker.clock = broker.clock.max(version);
        let Request { id, stamp, .. } = request;
        let there = self.world.redis.messages[id].map(|message| message.body);
        match verdict {
            Verdict::Stored | Verdict::Replaced => {
                if self.rules.has(Rule::JournalKeepsAnswers) {
                    self.keep(Answered::Set { id, body: request.body(), call });
                }
            }
            Verdict::Rescheduled => {
                // A repeat finds it, or what came after it, of which perhaps no journal knows.
                let version = self.world.redis.ended[id];
                if self.rules.has(Rule::ReschedulesAreJournaled) {
                    self.keep(there.map_or(Answered::End { id, version }, |body| Answered::Set { id, body, call }));
                }
            }
            Verdict::Cancelled => {
                let before = self.world.ledger.acknowledged_before(stamp);
                self.world.ledger.operation(stamp).version = version.max(before);
                if self.rules.has(Rule::CancelsAreJournaled) {
                    self.keep(Answered::End { id, version });
                }
            }
            Verdict::Duplicate if is_first => {
                if let Some(body) = there {
                    self.vouch(id, body, call, Rule::DuplicatesAreJournaled);
                }
            }
            Verdict::DuplicateOf if is_first => self.vouch_for_first(call),
            Verdict::Duplicate | Verdict::DuplicateOf | Verdict::InFlight | Verdict::Absent | Verdict::Outdated => {}
        }
        // After a loss a call may find what it brought itself.
        let is_first_of_key = self.world.redis.first_of_key.is_some_and(|first| first.stamp.op == stamp.op);
        let is_own = verdict == Verdict::Duplicate && there.is_some_and(|body| body.payload.op == stamp.op)
            || verdict == Verdict::DuplicateOf && is_first_of_key;
        // Nobody knows what is there until all journals were offered.
        let is_unknown = verdict == Verdict::Absent && self.world.restored.contains(&false);
        let answer = match verdict {
            _ if verdict.changed() || is_own => Answer::Done,
            _ if is_unknown => Answer::Unknown,
            _ => Answer::Refused,
        };
        if answer == Answer::Done || self.world.ledger.operation(stamp).answer != Answer::Done {
            self.answer(stamp, answer);
        }
    }

    /// The first message of the dedup key, if it is still there.
    fn vouch_for_first(&mut self, call: CallId) {
        let Some(Request { id, stamp, .. }) = self.world.redis.first_of_key else { return };
        let there = self.world.redis.messages[id].map(|message| message.body);
        if let Some(body) = there.filter(|body| body.payload.op == stamp.op) {
            self.vouch(id, body, call, Rule::DuplicatesAreJournaled);
        }
    }

    /// Something else is there, and somebody relies on it.
    pub(super) fn vouch(&mut self, id: usize, body: Body, call: CallId, rule: Rule) {
        let name = self.name;
        if self.rules.has(rule) {
            self.keep(Answered::Set { id, body, call });
        }
        self.world.ledger.vouch(body, name);
    }

    /// The broker stops waiting: a push goes to the WAL.
    pub(super) fn give_up(&mut self) {
        let Some(Call { call, request }) = self.world.broker_mut(self.name).pending.take() else { return };
        self.world.new_stream(self.name);
        if request.kind.is_push() {
            self.buffer(request, Some(call));
            self.answer(request.stamp, Answer::Accepted);
        } else {
            self.answer(request.stamp, Answer::Unknown);
            self.expire(request.stamp.op);
        }
    }

    fn expire(&mut self, op: usize) {
        if self.rules.has(Rule::ChangesExpire) {
            let is_of = |copy: &Copy| matches!(copy, Copy::Call(call) if call.request.stamp.op == op);
            self.world.copies.retain(|copy| !is_of(copy));
        }
    }

    pub(super) fn delete_topic(&mut self, is_answered: bool) {
        self.world.left.deletions -= 1;
        let name = self.name;
        let version = self.stamp();
        self.script().delete_topic(version);
        // Calls name the generation of the topic.
        self.world.copies.clear();
        if !is_answered {
            self.world.ledger.perhaps_deleted = version;
            return;
        }
        self.world.ledger.deleted = Some(End { version, broker: name });
        if self.rules.has(Rule::DeletionsAreJournaled) {
            self.keep(Answered::Deleted { version });
        }
    }

    pub(super) fn purge(&mut self, is_answered: bool) {
        self.world.left.purges -= 1;
        let name = self.name;
        // Not below the clock of Redis.
        let version = self.stamp().max(self.world.now);
        let broker = self.world.broker_mut(name);
        broker.clock = broker.clock.max(version);
        self.script().purge(version);
        if !is_answered {
            self.world.ledger.perhaps_deleted = version;
            return;
        }
        self.world.ledger.deleted = Some(End { version, broker: name });
        if self.rules.has(Rule::PurgesAreJournaled) {
            self.keep(Answered::Purged { version });
        }
    }

    pub(super) fn kill(&mut self) {
        let name = self.name;
        let keeps_clock = self.rules.has(Rule::ClockIsKept);
        // Nobody waits for the answer any more.
        let _ = self.lose_partition();
        let broker = self.world.broker_mut(name);
        broker.pending = None;
        broker.fenced = 0;
        broker.up = false;
        broker.connected = false;
        broker.restoring = None;
        broker.knows_other = false;
        let durable = broker.durable;
        broker.journal.truncate(durable);
        if !keeps_clock {
            broker.clock = 0;
            broker.clock_is_wrong = true;
        }
    }

    pub(super) fn start(&mut self) {
        self.world.new_stream(self.name);
        let broker = self.world.broker_mut(self.name);
        broker.up = true;
        broker.must_offer = true;
        // An earlier process may have sent any of them.
        broker.sent = broker.wal_number;
    }

    /// Looks which Redis it reached.
    pub(super) fn connect(&mut self) {
        let name = self.name;
        let redis = &mut self.world.redis;
        redis.registered[name as usize] = true;
        self.world.silent[name as usize] = false;
        let sees_other = redis.registered[name.other() as usize];
        let now = self.world.now;
        let broker = self.world.broker_mut(name);
        broker.reachable = true;
        broker.connected = true;
        broker.knows_other |= sees_other;
        if broker.clock_is_wrong {
            broker.clock_is_wrong = false;
            broker.clock = broker.clock.max(now);
        }
        if broker.must_offer {
            broker.restoring = Some(0);
        }
    }

    /// Without its lapse, a copy of a page or a call stays in the network.
    pub(super) fn leave_copy(&mut self, copy: Copy) {
        self.world.left.late_copies -= 1;
        if !self.world.copies.contains(&copy) {
            self.world.copies.push(copy);
            self.world.copies.sort();
        }
    }
}
