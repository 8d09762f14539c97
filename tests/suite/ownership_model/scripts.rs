//! What Redis does with a call: one function for each script, each atomic.

use super::breach::Breach;
use super::rules::{Rule, Rules};
use super::state::{Call, Decision, Epoch, Ids, Line, Member, Redis, Reservation, Settled, Verb};

/// The body of a reserved message, as far as the model goes: its id and count.
pub(super) type Body = (usize, u8);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Acquired(Line),
    Refused,
    Released,
    Recovered {
        more: bool,
    },
    /// `in_flight` is HLEN - ZCARD.
    Applied {
        line: Line,
        bodies: Vec<Body>,
        in_flight: usize,
    },
    Stale,
    Rewound,
    Late,
}

/// Where a call of the chain meets the owner line.
enum Link {
    Next,
    Repeat,
    Rewound,
    Late,
    Stale,
}

pub(super) fn same_epoch(rules: Rules, one: Epoch, other: Epoch) -> bool {
    one.number == other.number && (one.token == other.token || !rules.has(Rule::TokenIsCompared))
}

pub(super) fn same_member(rules: Rules, one: Member, other: Member) -> bool {
    one == other || !rules.has(Rule::MemberIdsDiffer)
}

/// One execution of one call.
pub(super) struct Script<'a> {
    pub(super) redis: &'a mut Redis,
    pub(super) call: &'a Call,
    pub(super) rules: Rules,
    /// The microsecond of this execution.
    pub(super) stamp: u8,
    pub(super) reserve_limit: usize,
}

impl Script<'_> {
    pub(super) fn run(&mut self) -> Result<Answer, Breach> {
        match &self.call.verb {
            Verb::Acquire { token, .. } => Ok(self.acquire(*token)),
            Verb::Release => Ok(self.release()),
            Verb::Recover => Ok(self.recover()),
            Verb::Reserve | Verb::Settle { .. } | Verb::Start { .. } => self.chained(),
        }
    }

    fn acquire(&mut self, token: u8) -> Answer {
        let holder = self.redis.lease;
        let taken = holder.is_some_and(|holder| !same_member(self.rules, holder, self.call.member));
        if taken && self.rules.has(Rule::LeaseExcludesOthers) {
            return Answer::Refused;
        }
        let line = self.redis.line;
        let repeated = line.epoch.token == token;
        if repeated && self.rules.has(Rule::RepeatedAcquireKeepsLine) {
            self.redis.lease = Some(self.call.member);
            return Answer::Acquired(line);
        }
        let expected = same_epoch(self.rules, line.epoch, self.call.prev.epoch);
        if !expected && !repeated && self.rules.has(Rule::AcquireComparesEpoch) {
            return Answer::Refused;
        }
        let step = u8::from(self.rules.has(Rule::EveryAcquireIsNewEpoch));
        self.redis.lease = Some(self.call.member);
        self.write_line(Epoch { number: line.epoch.number + step, token });
        Answer::Acquired(self.redis.line)
    }

    fn release(&mut self) -> Answer {
        let mine = self.redis.lease.is_some_and(|holder| same_member(self.rules, holder, self.call.member));
        let current = same_epoch(self.rules, self.redis.line.epoch, self.call.prev.epoch);
        if current || !self.rules.has(Rule::ReleaseComparesEpoch) {
            if mine {
                self.redis.lease = None;
            }
            if self.rules.has(Rule::ReleaseEndsEpoch) {
                self.write_line(Epoch { number: self.redis.line.epoch.number + 1, token: 0 });
            }
            self.redis.in_office = Epoch::default();
        }
        Answer::Released
    }

    fn write_line(&mut self, epoch: Epoch) {
        self.redis.line = Line { epoch, seq: 0, stamp: self.stamp };
        self.redis.in_office = epoch;
    }

    /// One page is one id, so that every boundary between pages is explored.
    fn recover(&mut self) -> Answer {
        let epoch = self.call.prev.epoch;
        if !same_epoch(self.rules, self.redis.line.epoch, epoch) && self.rules.has(Rule::RecoverComparesEpoch) {
            return Answer::Stale;
        }
        let foreign = |reservation: &Reservation| reservation.epoch != epoch.number;
        if let Some(found) = self.redis.reservations.iter().position(foreign) {
            let first = self.redis.reservations[found].ids.iter().next();
            if let Some(id) = first {
                self.recover_id(id);
                self.redis.reservations[found].ids.remove(id);
            }
            if self.redis.reservations[found].ids.is_empty() || !self.rules.has(Rule::RecoverKeepsRest) {
                self.redis.reservations.remove(found);
            }
        }
        Answer::Recovered { more: self.redis.reservations.iter().any(foreign) }
    }

    fn recover_id(&mut self, id: usize) {
        if !self.redis.bodies.has(id) && self.rules.has(Rule::RecoverChecksBody) {
            self.redis.attempts[id] = 0;
            return;
        }
        self.redis.scheduled.add(id);
        let count = &mut self.redis.attempts[id];
        if !self.rules.has(Rule::RecoverChargesOnce) {
            *count += 1;
        } else if self.rules.has(Rule::RecoverCharges) {
            *count = (*count).max(1);
        }
    }

    fn link(&self) -> Link {
        let (line, prev) = (self.redis.line, self.call.prev);
        let on = |rule| self.rules.has(rule);
        if !same_epoch(self.rules, line.epoch, prev.epoch) {
            return if on(Rule::StaleCallsAreRefused) { Link::Stale } else { Link::Next };
        }
        let stamp_differs = line.stamp != prev.stamp && on(Rule::StampIsCompared);
        let rewound = line.seq < prev.seq || (line.seq == prev.seq && stamp_differs);
        let late = line.seq > prev.seq + 1;
        let repeat = line.seq == prev.seq + 1;
        if rewound && on(Rule::RewindIsDetected) {
            Link::Rewound
        } else if late && on(Rule::LateCopyIsIgnored) {
            Link::Late
        } else if repeat && on(Rule::RepeatIsRecognised) {
            Link::Repeat
        } else {
            Link::Next
        }
    }

    fn chained(&mut self) -> Result<Answer, Breach> {
        let mut bodies = Vec::new();
        match self.link() {
            Link::Stale => return Ok(Answer::Stale),
            Link::Rewound => return Ok(Answer::Rewound),
            Link::Late => return Ok(Answer::Late),
            Link::Repeat => {
                if self.call.verb == Verb::Reserve && self.rules.has(Rule::RepeatedReserveReturnsBodies) {
                    bodies = self.reserved_bodies();
                }
            }
            Link::Next => {
                if self.redis.in_office != self.call.prev.epoch {
                    return Err(Breach::StaleOwnerActed);
                }
                self.apply()?;
                self.redis.line = Line { seq: self.call.prev.seq + 1, stamp: self.stamp, ..self.call.prev };
                if self.call.verb == Verb::Reserve {
                    bodies = self.reserved_bodies();
                }
            }
        }
        let in_flight = self.redis.bodies.len().saturating_sub(self.redis.scheduled.len());
        Ok(Answer::Applied { line: self.redis.line, bodies, in_flight })
    }

    fn apply(&mut self) -> Result<(), Breach> {
        match &self.call.verb {
            Verb::Reserve => self.reserve(),
            Verb::Settle { settled, left } => {
                for one in settled {
                    self.settle(*one)?;
                }
                left.iter().for_each(|&(seq, ids)| self.set_reservation(seq, ids));
            }
            Verb::Start { counts } => counts.iter().for_each(|&(id, count)| self.charge(id, count)),
            Verb::Acquire { .. } | Verb::Release | Verb::Recover => {}
        }
        Ok(())
    }

    fn reserve(&mut self) {
        let taken: Ids = self.redis.scheduled.iter().take(self.reserve_limit).collect();
        self.redis.scheduled = self.redis.scheduled.minus(taken);
        self.set_reservation(self.call.prev.seq + 1, taken);
    }

    fn reserved_bodies(&self) -> Vec<Body> {
        let (epoch, seq) = (self.call.prev.epoch.number, self.call.prev.seq + 1);
        let field = self.redis.reservations.iter().find(|field| field.epoch == epoch && field.seq == seq);
        let ids = field.map_or(Ids::NONE, |field| field.ids).and(self.redis.bodies);
        ids.iter().map(|id| (id, self.redis.attempts[id])).collect()
    }

    /// Writes one field, kept in order; without ids it goes.
    fn set_reservation(&mut self, seq: u8, ids: Ids) {
        let epoch = self.call.prev.epoch.number;
        let fields = &mut self.redis.reservations;
        fields.retain(|field| (field.epoch, field.seq) != (epoch, seq));
        if !ids.is_empty() {
            let at = fields.partition_point(|field| (field.epoch, field.seq) < (epoch, seq));
            fields.insert(at, Reservation { epoch, seq, ids });
        }
    }

    fn settle(&mut self, settled: Settled) -> Result<(), Breach> {
        let Settled { id, decision, attempts } = settled;
        let redis = &mut *self.redis;
        match decision {
            Decision::AckOfEarlierEpoch => return Err(Breach::EarlierEpochRemovedBody(id)),
            Decision::Ack => {
                redis.bodies.remove(id);
                redis.seen.add(id);
                redis.acked.add(id);
                redis.attempts[id] = 0;
            }
            Decision::Bury => {
                redis.bodies.remove(id);
                redis.dead.add(id);
                redis.attempts[id] = 0;
            }
            Decision::Nack => {
                redis.scheduled.add(id);
                let adds = !self.rules.has(Rule::NackSetsCount);
                redis.attempts[id] = if adds { redis.attempts[id] + 1 } else { attempts };
            }
            Decision::GiveBack => {
                redis.scheduled.add(id);
                if attempts < redis.attempts[id] {
                    redis.started.remove(id);
                }
                redis.attempts[id] = attempts;
            }
        }
        Ok(())
    }

    fn charge(&mut self, id: usize, count: u8) {
        self.redis.attempts[id] = count;
        if self.redis.started.has(id) {
            self.redis.charges_lost[id] += 1;
        }
        self.redis.started.add(id);
    }
}
