//! The ledger: the answers that clients got, and the facts that no part of the world knows. The promises are about it.

use super::breach::Breach;
use super::state::{Body, IDS, Kind, Message, Name, Redis, Stamp, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// The client waits, or its broker died.
    Open,
    /// The client was told that nobody knows.
    Unknown,
    /// 409, 404, `duplicate`; or taken out of the WAL by a cancel.
    Refused,
    Done,
    /// 202: it waits in a WAL.
    Accepted,
    /// It was accepted, and its message was there already when its turn came.
    GaveWay,
}

/// Of the payload of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Settlement {
    None,
    /// Applied, and never answered.
    Unanswered,
    Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) id: usize,
    pub(super) version: Version,
    /// Of the payload that a reschedule moved.
    pub(super) payload: Version,
    /// The broker that knows of it.
    pub(super) broker: Name,
    pub(super) answer: Answer,
    pub(super) settlement: Settlement,
    /// It was applied live after the settlement of a version above its own, of which Redis remembers nothing: the one order
    /// that versions do not have.
    pub(super) is_overtaken: bool,
}

impl Operation {
    /// The version of the payload that it is about.
    fn about(&self) -> Version {
        if self.kind == Kind::Reschedule { self.payload } else { self.version }
    }
}

/// An end of a message that was acknowledged, and the broker that knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct End {
    pub(super) version: Version,
    pub(super) broker: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    pub(super) operations: Vec<Operation>,
    /// The last settlement of each id.
    pub(super) settled: [Option<End>; IDS],
    /// The last deletion of the topic, or purge of its messages.
    pub(super) deleted: Option<End>,
    /// The last settlement of each id that left a tombstone, because the message was changed after its push.
    pub(super) settled_changed: [Version; IDS],
    /// Settlements that may have happened.
    pub(super) perhaps_settled: [Version; IDS],
    pub(super) perhaps_deleted: Version,
    /// Nobody waited for a broker that was silent after a loss: the first push of the dedup key may have been in its journal.
    /// Or its message was over before any journal had it.
    pub(super) key_is_excused: bool,
}

impl Ledger {
    pub(super) fn operation(&mut self, stamp: Stamp) -> &mut Operation {
        &mut self.operations[stamp.op]
    }

    /// A settlement was answered.
    pub(super) fn settle(&mut self, id: usize, body: Body, broker: Name) {
        let version = body.payload.version;
        self.operation(body.payload).settlement = Settlement::Answered;
        if body.changed {
            self.settled_changed[id] = self.settled_changed[id].max(version);
        }
        if self.settled[id].is_none_or(|before| before.version <= version) {
            self.settled[id] = Some(End { version, broker });
        }
    }

    /// A settlement was applied and not answered.
    pub(super) fn perhaps_settle(&mut self, id: usize, body: Body) {
        self.operation(body.payload).settlement = Settlement::Unanswered;
        self.perhaps_settled[id] = self.perhaps_settled[id].max(body.payload.version);
    }

    /// Redis lost data, perhaps settlements that nobody knows of.
    pub(super) fn lose(&mut self) {
        let unknown = self.operations.iter_mut().filter(|asked| asked.settlement == Settlement::Unanswered);
        unknown.for_each(|asked| asked.settlement = Settlement::None);
    }

    /// A client was told that this is there.
    pub(super) fn vouch(&mut self, body: Body, broker: Name) {
        for stamp in [body.payload, body.due] {
            let operation = &mut self.operations[stamp.op];
            if operation.answer != Answer::Done {
                operation.answer = Answer::Done;
                operation.broker = broker;
                operation.version = stamp.version;
            }
        }
    }

    fn acknowledged(&self, id: usize) -> impl Iterator<Item = &Operation> {
        let is_promised = |answer| matches!(answer, Answer::Done | Answer::Accepted);
        self.operations.iter().filter(move |operation| operation.id == id && is_promised(operation.answer))
    }

    /// The highest acknowledged version of an id below that of a request: the request covers it, whatever Redis answered.
    pub(super) fn acknowledged_before(&self, stamp: Stamp) -> Version {
        let versions = self.acknowledged(self.operations[stamp.op].id).map(|done| done.version);
        versions.filter(|&version| version < stamp.version).max().unwrap_or(0)
    }

    /// Whether it may be there although a newer version of its id was settled: it was applied after that; or it is another
    /// push of the id, which nobody had yet, and whose producer was told that it would be delivered.
    fn may_follow_settlement(&self, id: usize, body: Body) -> bool {
        let push = self.operations[body.payload.op];
        let replaces_nothing = push.kind.leaves_existing_alone() || self.settled_changed[id] < body.payload.version;
        let is_first_delivery = replaces_nothing && push.settlement == Settlement::None;
        is_first_delivery || push.is_overtaken
    }

    /// Whether an operation has a version above all that were acknowledged before it. Nothing corrects one that waits in a log.
    pub(super) fn check_order(&self, stamp: Stamp) -> Result<(), Breach> {
        let id = self.operations[stamp.op].id;
        let is_behind = self.acknowledged(id).any(|done| done.version >= stamp.version);
        if is_behind { Err(Breach::Undone(id)) } else { Ok(()) }
    }

    /// The highest version of an id that may have been settled.
    pub(super) fn settled_perhaps(&self, id: usize) -> Version {
        self.settled[id].map_or(0, |end| end.version).max(self.perhaps_settled[id])
    }

    /// Whether it may be handed out. `excused` are the brokers that were silent after a loss.
    pub(super) fn check_hand_out(
        &self,
        id: usize,
        body: Body,
        lost_data: bool,
        excused: [bool; 2],
    ) -> Result<(), Breach> {
        self.check_not_refused(id, body)?;
        self.check_key(id, body)?;
        let knows = |broker: Name| !excused[broker as usize];
        let repeated = if lost_data { Breach::OlderThanKnown(id) } else { Breach::Repeated(id) };
        let settled = self.settled[id].filter(|end| knows(end.broker)).map_or(0, |end| end.version);
        let deleted = self.deleted.filter(|end| knows(end.broker)).map_or(0, |end| end.version);
        if body.payload.version <= deleted || body.payload.version <= settled && !self.may_follow_settlement(id, body) {
            return Err(repeated);
        }
        let follows = if self.may_follow_settlement(id, body) { self.settled_perhaps(id) } else { 0 };
        let done = self.acknowledged(id).filter(|done| done.answer == Answer::Done && knows(done.broker));
        for done in done.filter(|done| done.about() > settled.max(follows)) {
            let is_moved = done.kind == Kind::Reschedule && done.about() > deleted.max(self.perhaps_cancelled(id));
            match done.kind {
                Kind::Push | Kind::Deduped | Kind::Replace if done.version > body.payload.version => {
                    return Err(repeated);
                }
                Kind::Cancel if done.version >= body.payload.version => return Err(repeated),
                Kind::Reschedule if is_moved && done.version > body.due.version => return Err(Breach::Early(id)),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_not_refused(&self, id: usize, body: Body) -> Result<(), Breach> {
        let is_refused = |stamp: Stamp| self.operations[stamp.op].answer == Answer::Refused;
        if is_refused(body.payload) || is_refused(body.due) { Err(Breach::RefusedHappened(id)) } else { Ok(()) }
    }

    /// Of the pushes with the dedup key that were acknowledged as stored, no other one may have a message.
    fn check_key(&self, id: usize, body: Body) -> Result<(), Breach> {
        let is_deduped = |operation: &Operation| operation.kind == Kind::Deduped;
        let is_done = |operation: &Operation| is_deduped(operation) && operation.answer == Answer::Done;
        let mut others = self.operations.iter().enumerate().filter(|(op, _)| *op != body.payload.op);
        let has_other = others.any(|(_, other)| is_done(other));
        let is_second = is_deduped(&self.operations[body.payload.op]) && has_other && !self.key_is_excused;
        if is_second { Err(Breach::SecondOfKey(id)) } else { Ok(()) }
    }

    /// Whether an id is as the last acknowledged operation left it, once nothing is under way any more.
    pub(super) fn check_final(&self, redis: &Redis, id: usize) -> Result<(), Breach> {
        let cancelled = self.acknowledged(id).filter(|done| done.kind == Kind::Cancel).map(|done| done.version).max();
        let settled = self.settled[id].map_or(0, |end| end.version);
        let deleted = self.deleted.map_or(0, |end| end.version);
        let revoked = cancelled.unwrap_or(0).max(deleted);
        let ended = revoked.max(settled);
        let promised = self.acknowledged(id).filter(|done| done.about() > ended && !done.is_overtaken);
        let promised: Vec<&Operation> = promised.filter(|done| done.kind != Kind::Cancel).collect();
        let payload = promised.iter().map(|done| done.about()).max().unwrap_or(0);
        let rescheduled = promised.iter().filter(|done| done.kind == Kind::Reschedule).max_by_key(|done| done.version);
        match redis.messages[id] {
            Some(Message { body, .. }) => {
                self.check_not_refused(id, body)?;
                self.check_key(id, body)?;
                let follows = self.may_follow_settlement(id, body);
                let is_overtaken = self.operations[body.payload.op].is_overtaken && revoked <= self.settled_perhaps(id);
                let is_ended =
                    body.payload.version <= revoked && !is_overtaken || body.payload.version <= settled && !follows;
                if is_ended {
                    return Err(Breach::Returned(id));
                }
                let perhaps = if follows { self.perhaps_settled[id] } else { 0 };
                if body.payload.version < payload && payload > perhaps {
                    return Err(Breach::Undone(id));
                }
                let is_early = rescheduled.is_some_and(|done| {
                    body.due.version < done.version && done.about() > perhaps.max(self.perhaps_cancelled(id))
                });
                if is_early { Err(Breach::Early(id)) } else { Ok(()) }
            }
            None if self.perhaps_ended(id) >= payload => Ok(()),
            None => Err(Breach::Lost(id)),
        }
    }

    /// The last end of an id that may have happened.
    fn perhaps_ended(&self, id: usize) -> Version {
        self.perhaps_cancelled(id).max(self.perhaps_settled[id])
    }

    /// The last cancel of an id, or deletion of its topic, that happened or may have.
    fn perhaps_cancelled(&self, id: usize) -> Version {
        let cancels = self.operations.iter().filter(|asked| asked.kind == Kind::Cancel && asked.id == id);
        let cancelled = cancels.filter(|asked| asked.answer != Answer::Refused).map(|asked| asked.version).max();
        cancelled.unwrap_or(0).max(self.perhaps_deleted)
    }
}
