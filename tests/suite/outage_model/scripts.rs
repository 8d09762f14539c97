//! The scripts: what Redis does with a call, as one step.

use super::ledger::{Answer, Ledger, Settlement};
use super::rules::{Rule, Rules};
use super::state::{
    Answered, Body, Buffered, Call, CallId, IDS, Kind, Memory, Message, Page, Redis, Request, Stamp, Verdict, Version,
};

/// The answer to a live call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// With the version under which it was applied.
    Done(Verdict, Version),
    /// A repeat of a call that was answered before.
    Remembered(Verdict),
    /// Not applied: Redis lost what was before it.
    Gap,
}

/// The outcome of a record of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) record: Buffered,
    /// By this very call; not by an earlier one whose reply was lost.
    pub(super) is_first: bool,
    /// The first push with its dedup key, if that is another one.
    pub(super) first: Option<Request>,
    /// The message of its id after the call, or of the id of that push.
    pub(super) there: Option<Body>,
    pub(super) ended: Version,
    pub(super) deleted_at: Version,
}

pub(super) struct Script<'a> {
    pub(super) redis: &'a mut Redis,
    pub(super) ledger: &'a mut Ledger,
    pub(super) rules: Rules,
}

impl Script<'_> {
    /// A push, a replace, a reschedule or a cancel of a client that waits.
    pub(super) fn live(&mut self, call: Call) -> Reply {
        let Call { call: CallId { stream, sequence }, request } = call;
        if request.kind == Kind::Cancel && !self.rules.has(Rule::CancelsAreNumbered) {
            let (verdict, version) = self.cancel(request);
            return Reply::Done(verdict, version);
        }
        let memory = self.redis.remembered(stream);
        let last = memory.map_or(0, |memory| memory.sequence);
        if memory.is_some_and(|memory| memory.is_closed) {
            return Reply::Gap;
        }
        if let Some(memory) = memory.filter(|_| sequence == last && self.rules.has(Rule::RepeatIsAnsweredFromMemory)) {
            return Reply::Remembered(memory.verdict);
        }
        if sequence < last && self.rules.has(Rule::LateCopyDoesNothing) {
            return Reply::Gap;
        }
        if sequence > last + 1 && self.rules.has(Rule::GapsAreRefused) {
            // Nor is it applied later, when a journal has brought back the calls before it.
            let verdict = memory.map_or(Verdict::Absent, |memory| memory.verdict);
            self.redis.remember(Memory { stream, sequence: last, verdict, is_closed: true });
            return Reply::Gap;
        }
        let (verdict, version) = self.execute(request);
        self.redis.remember(Memory { stream, sequence: sequence.max(last), verdict, is_closed: false });
        Reply::Done(verdict, version)
    }

    fn execute(&mut self, request: Request) -> (Verdict, Version) {
        let Request { kind, id, stamp } = request;
        let there = self.redis.version_of(id);
        let message = self.redis.messages[id];
        match kind {
            Kind::Reschedule => return self.reschedule(request, there),
            Kind::Cancel => return self.cancel(request),
            Kind::Push | Kind::Deduped | Kind::Replace => {}
        }
        if stamp.version <= there && self.rules.has(Rule::LivePushesAreAboveWhatIsThere) {
            return (Verdict::Outdated, there);
        }
        let verdict = match (kind, message) {
            (Kind::Deduped, None) if self.first_of(Rule::DedupKeyIsRemembered).is_some() => Verdict::DuplicateOf,
            (_, None) => Verdict::Stored,
            (Kind::Push | Kind::Deduped, Some(_)) => Verdict::Duplicate,
            (_, Some(message)) if message.delivery.is_some() => Verdict::InFlight,
            _ => Verdict::Replaced,
        };
        if verdict.changed() {
            let settled = self.ledger.settled_perhaps(id);
            let operation = self.ledger.operation(stamp);
            operation.version = stamp.version;
            operation.is_overtaken = settled >= stamp.version && operation.settlement == Settlement::None;
            self.create_topic(stamp.version);
            self.redis.messages[id] = Some(Message { body: request.body(), delivery: None });
            self.remember_key(request);
            if !self.rules.has(Rule::PushKeepsTombstone) {
                self.redis.ended[id] = 0;
            }
        }
        (verdict, stamp.version)
    }

    fn first_of(&self, rule: Rule) -> Option<Request> {
        self.redis.first_of_key.filter(|_| self.rules.has(rule))
    }

    fn remember_key(&mut self, request: Request) {
        if request.kind == Kind::Deduped {
            self.redis.first_of_key.get_or_insert(request);
        }
    }

    fn reschedule(&mut self, request: Request, there: Version) -> (Verdict, Version) {
        let version = self.above(request.stamp.version, there);
        let Some(message) = &mut self.redis.messages[request.id] else { return (Verdict::Absent, 0) };
        if message.delivery.is_some() {
            return (Verdict::InFlight, 0);
        }
        message.body.due = Stamp { version, ..request.stamp };
        message.body.changed = true;
        let payload = message.body.payload.version;
        let operation = self.ledger.operation(request.stamp);
        operation.version = version;
        operation.payload = payload;
        (Verdict::Rescheduled, version)
    }

    fn cancel(&mut self, request: Request) -> (Verdict, Version) {
        let Request { id, stamp, .. } = request;
        let version = self.above(stamp.version, self.redis.version_of(id));
        match self.redis.messages[id] {
            Some(message) if message.delivery.is_some() => (Verdict::InFlight, 0),
            Some(_) => {
                self.redis.messages[id] = None;
                self.leave_tombstone(id, version);
                self.ledger.operation(stamp).version = version;
                (Verdict::Cancelled, version)
            }
            None if self.redis.cancelled[id] => (Verdict::Cancelled, self.cancel_again(request, version)),
            None => (Verdict::Absent, 0),
        }
    }

    fn cancel_again(&mut self, request: Request, version: Version) -> Version {
        if !self.rules.has(Rule::RepeatedCancelGoesAbove) {
            return self.redis.ended[request.id];
        }
        self.leave_tombstone(request.id, version);
        self.ledger.operation(request.stamp).version = version;
        version
    }

    fn above(&self, version: Version, there: Version) -> Version {
        if self.rules.has(Rule::LiveChangesGoAboveWhatIsThere) { version.max(there + 1) } else { version }
    }

    fn leave_tombstone(&mut self, id: usize, version: Version) {
        self.redis.cancelled[id] = true;
        if self.rules.has(Rule::CancelLeavesTombstone) {
            self.redis.ended[id] = self.redis.ended[id].max(version);
        }
    }

    fn create_topic(&mut self, version: Version) {
        if self.redis.topic.is_none() {
            self.redis.topic = Some(version);
            if !self.rules.has(Rule::DeletionIsInherited) {
                self.redis.deleted_at = 0;
            }
        }
    }

    /// Deletes the topic with everything that belongs to it.
    pub(super) fn delete_topic(&mut self, version: Version) {
        let deleted_at = self.redis.deleted_at.max(version);
        *self.redis = Redis { deleted_at, registered: self.redis.registered, ..Redis::default() };
    }

    /// Deletes every message, also those in flight.
    pub(super) fn purge(&mut self, version: Version) {
        self.redis.messages = [None; IDS];
        if self.rules.has(Rule::PurgeLeavesVersion) {
            self.redis.purged = self.redis.purged.max(version);
        }
    }

    /// Whether a call was applied; it never will be from now on.
    pub(super) fn fence(&mut self, call: CallId) -> bool {
        let CallId { stream, sequence } = call;
        let unknown = Memory { stream, sequence: 0, verdict: Verdict::Absent, is_closed: false };
        let memory = self.redis.remembered(stream).unwrap_or(unknown);
        if memory.sequence < sequence && self.rules.has(Rule::FenceClosesStream) {
            self.redis.remember(Memory { is_closed: true, ..memory });
        }
        let is_set = match memory.verdict {
            Verdict::DuplicateOf => !self.rules.has(Rule::FenceKnowsDuplicates),
            verdict => verdict.changed(),
        };
        memory.sequence == sequence && is_set
    }

    /// A page of the WAL.
    pub(super) fn page(&mut self, page: &Page) -> Vec<Outcome> {
        let applied = self.redis.sequence(page.stream);
        let mut outcomes = Vec::new();
        if self.redis.remembered(page.stream).is_some_and(|memory| memory.is_closed) {
            return outcomes;
        }
        for &record in &page.records {
            let is_new = record.number > applied || !self.rules.has(Rule::AppliedNumberIsRemembered);
            let is_first = is_new && !self.is_done_elsewhere(record);
            if is_first {
                self.record(record.request);
            }
            self.note_origin(record);
            let (id, deleted_at) = (record.request.id, self.redis.deleted_at);
            let first = self.redis.first_of_key.filter(|first| self.gave_way_to(record.request, *first, is_first));
            let there = self.redis.messages[first.map_or(id, |first| first.id)].map(|message| message.body);
            outcomes.push(Outcome { record, is_first, first, there, ended: self.redis.ended(id), deleted_at });
        }
        let sequence = page.records.iter().map(|record| record.number).max().unwrap_or(0).max(applied);
        self.redis.remember(Memory { stream: page.stream, sequence, verdict: Verdict::Stored, is_closed: false });
        outcomes
    }

    /// Whether a record was dropped for the first push with its dedup key.
    fn gave_way_to(&self, request: Request, first: Request, is_first: bool) -> bool {
        let is_known = is_first || self.rules.has(Rule::RepeatedPageKnowsDuplicates);
        let is_looked_for = self.rules.has(Rule::ReplayLooksForDedupKey);
        request.kind == Kind::Deduped && first.stamp.op != request.stamp.op && is_known && is_looked_for
    }

    fn is_done_elsewhere(&self, record: Buffered) -> bool {
        let is_done = |origin: CallId| {
            self.redis.sequence(origin.stream) >= origin.sequence || self.redis.origins.contains(&origin)
        };
        self.rules.has(Rule::HandedOverIsReplayedOnce) && record.origin.is_some_and(is_done)
    }

    fn note_origin(&mut self, record: Buffered) {
        let Some(origin) = record.origin else { return };
        self.redis.origins.insert(origin);
        if self.rules.has(Rule::HandedOverLogIsClosed) {
            let unknown = Memory { stream: origin.stream, sequence: 0, verdict: Verdict::Stored, is_closed: true };
            let memory = self.redis.remembered(origin.stream).unwrap_or(unknown);
            self.redis.remember(Memory { is_closed: true, ..memory });
        }
    }

    fn record(&mut self, request: Request) {
        let Request { kind, id, stamp } = request;
        if !self.has_topic(stamp.version) {
            return;
        }
        let by_version = self.rules.has(Rule::LogsApplyByVersion);
        if stamp.version <= self.redis.ended(id) && by_version {
            if self.rules.has(Rule::EndedRecordLeavesDedupKey) {
                self.remember_key(request);
            }
            self.give_way_to_first(request);
            return;
        }
        let body = request.body();
        match (kind, self.redis.messages[id]) {
            (Kind::Cancel, Some(message)) => {
                let is_newer = message.body.payload.version > stamp.version && by_version;
                if message.delivery.is_some() || is_newer {
                    self.give_way(stamp);
                } else {
                    self.redis.messages[id] = None;
                    self.leave_tombstone(id, stamp.version);
                }
            }
            (Kind::Cancel, None) => self.leave_tombstone(id, stamp.version),
            (Kind::Deduped, None) if self.first_of(Rule::ReplayLooksForDedupKey).is_some() => {
                self.give_way_to_first(request);
            }
            (_, None) => {
                self.redis.messages[id] = Some(Message { body, delivery: None });
                self.remember_key(request);
            }
            (Kind::Push | Kind::Deduped, Some(_)) => self.give_way(stamp),
            (_, Some(_)) if by_version => self.merge(id, body),
            (_, Some(message)) => self.redis.messages[id] = Some(Message { body, ..message }),
        }
    }

    fn give_way(&mut self, stamp: Stamp) {
        let operation = self.ledger.operation(stamp);
        if operation.answer == Answer::Accepted {
            operation.answer = Answer::GaveWay;
        }
    }

    fn give_way_to_first(&mut self, Request { kind, stamp, .. }: Request) {
        let is_other = self.redis.first_of_key.is_some_and(|first| first.stamp.op != stamp.op);
        if kind == Kind::Deduped && is_other {
            self.give_way(stamp);
        }
    }

    /// Sets what is newer, also of a message that is in flight: its delivery ends an older version.
    fn merge(&mut self, id: usize, newer: Body) {
        let Some(Message { body, .. }) = &mut self.redis.messages[id] else { return };
        let is_whole = !self.rules.has(Rule::PayloadAndDueTimeAreVersionedApart);
        if is_whole {
            if newer.version() > body.version() {
                *body = newer;
            }
            return;
        }
        if newer.payload.version > body.payload.version {
            body.payload = newer.payload;
        }
        if newer.due.version > body.due.version {
            body.due = newer.due;
        }
        body.changed = true;
    }

    /// Whether a record from a log has a topic to go to; creates it unless a deletion came after the record.
    fn has_topic(&mut self, version: Version) -> bool {
        let is_deleted = version <= self.redis.deleted_at && self.rules.has(Rule::DeletionDrops);
        let is_dropped = self.redis.topic.is_none() && !self.rules.has(Rule::OnlyDeletionDrops);
        if is_deleted || is_dropped {
            return false;
        }
        self.create_topic(version);
        true
    }

    /// A record of a journal.
    pub(super) fn restore(&mut self, answered: Answered) {
        match answered {
            Answered::Set { id, body, call } => self.restore_set(id, body, call),
            Answered::End { id, version } => self.restore_end(id, version),
            Answered::Purged { version } => {
                self.redis.purged = self.redis.purged.max(version);
                for message in &mut self.redis.messages {
                    *message = message.filter(|message| message.body.payload.version > version);
                }
            }
            Answered::Deleted { version } => {
                if self.redis.topic.is_some_and(|created| created <= version) {
                    self.redis.topic = None;
                }
                self.redis.deleted_at = self.redis.deleted_at.max(version);
                for message in &mut self.redis.messages {
                    *message = message.filter(|message| message.body.payload.version > version);
                }
            }
        }
    }

    fn restore_set(&mut self, id: usize, body: Body, call: CallId) {
        let was_kept = self.redis.sequence(call.stream) >= call.sequence;
        if was_kept && self.rules.has(Rule::KeptCallsAreNotRestored) || !self.has_topic(body.payload.version) {
            return;
        }
        let kind = self.ledger.operation(body.payload).kind;
        if self.rules.has(Rule::DedupKeyIsRestored) {
            self.remember_key(Request { kind, id, stamp: body.payload });
        }
        let by_version = self.rules.has(Rule::LogsApplyByVersion);
        let changed = body.changed || self.rules.has(Rule::SettlementOfRestoredLeavesTombstone);
        let body = Body { changed, ..body };
        // As the call would have been: offered again it was kept.
        let CallId { stream, sequence } = call;
        let is_closed = self.redis.remembered(stream).is_some_and(|memory| memory.is_closed);
        self.redis.remember(Memory { stream, sequence, verdict: Verdict::Stored, is_closed });
        if self.redis.messages[id].is_some() && by_version {
            self.merge(id, body);
        } else if body.payload.version > self.redis.ended(id) || !by_version {
            self.redis.messages[id] = Some(Message { body, delivery: None });
        }
    }

    fn restore_end(&mut self, id: usize, version: Version) {
        let by_version = self.rules.has(Rule::LogsApplyByVersion);
        self.redis.messages[id] =
            self.redis.messages[id].filter(|message| message.body.payload.version > version && by_version);
        if self.rules.has(Rule::RestoredEndLeavesTombstone) {
            self.redis.ended[id] = self.redis.ended[id].max(version);
        }
    }

    /// Ends the message of a delivery that is over, if it waits as that delivery left it.
    pub(super) fn settle_late(&mut self, id: usize, delivered: Body) -> bool {
        let Some(Message { body, delivery: None }) = self.redis.messages[id] else { return false };
        if body.version() != delivered.version() && self.rules.has(Rule::LateAckNeedsItsVersion) {
            return false;
        }
        self.redis.messages[id] = None;
        if self.rules.has(Rule::LateAckLeavesTombstone) {
            self.redis.ended[id] = self.redis.ended[id].max(delivered.version());
        }
        true
    }

    /// Ends the payload that was delivered.
    pub(super) fn settle(&mut self, id: usize, delivered: Body, is_restoring: bool) {
        let Some(message) = self.redis.messages[id] else { return };
        if message.body.payload.version > delivered.payload.version && self.rules.has(Rule::SettlementEndsItsVersion) {
            self.redis.messages[id] = Some(Message { delivery: None, ..message });
            return;
        }
        self.redis.messages[id] = None;
        let was_changed = message.body.changed && self.rules.has(Rule::SettlementOfChangedLeavesTombstone);
        if was_changed || is_restoring && self.rules.has(Rule::SettlementWhileRestoringLeavesTombstone) {
            self.redis.ended[id] = self.redis.ended[id].max(delivered.payload.version);
        }
    }
}
