//! Calls from processes to the store, and what their answers do.

use std::sync::Arc;

use dwell::coordination::membership::Event;
use dwell::model::partition::Partition;
use dwell::store::LiveMember;

use super::process::{CallId, Owned, Phase, Purpose};
use super::store::{Found, Line, Ms, Who};
use super::time::span;
use super::world::{What, World};

pub(super) enum Request {
    /// With whether somebody wants messages there.
    Heartbeat(bool),
    Depart,
    Look(Partition),
    Take(Partition, Line),
    Release(Partition, Line),
    Renew(Vec<(Partition, Line)>),
}

pub(super) enum Answer {
    HeartbeatAnswered(Arc<[LiveMember]>),
    Departed,
    Seen(Partition, Line),
    Taken(Partition, Line),
    Held(Partition, Who, Ms),
    Refused,
    Released(Partition),
    Renewed(Vec<(Partition, Line, bool)>),
    /// The connection is to another run of the store.
    Broken,
}

impl World {
    pub(super) fn call(&mut self, who: Who, purpose: Purpose, request: Request) {
        let call = self.fresh();
        self.processes[who].pending.insert(call, purpose);
        let (run, sent, timeout) = (self.processes[who].run, self.now, self.network.timeout);
        if let Some(delay) = self.network.request(&mut self.random) {
            self.after(delay, What::Arrive { who, call, run, sent, request });
        }
        self.after(timeout, What::Timeout(who, call));
    }

    pub(super) fn acquire(&mut self, who: Who, partition: Partition) {
        let process = &self.processes[who];
        assert!(!process.owned.contains_key(&partition), "member {who} acquires {partition}, which it owns");
        self.record.acquires += 1;
        self.call(who, Purpose::Acquire(partition), Request::Look(partition));
    }

    pub(super) fn renew(&mut self, who: Who) {
        let owned = self.processes[who].owned.iter().filter(|(_, owned)| owned.phase != Phase::GivenUp);
        let claims: Vec<(Partition, Line)> = owned.map(|(partition, owned)| (*partition, owned.line)).collect();
        if !claims.is_empty() {
            self.call(who, Purpose::Renew, Request::Renew(claims));
        }
    }

    /// What is drained is given up; from now on it is not valid.
    pub(super) fn drained(&mut self, who: Who, partition: Partition, token: u64) {
        let owned = self.processes[who].owned.get_mut(&partition);
        if let Some(owned) = owned.filter(|owned| owned.line.token == token) {
            (owned.valid_until, owned.phase) = (0, Phase::GivenUp);
            let line = owned.line;
            self.call(who, Purpose::Release(partition), Request::Release(partition, line));
        }
    }

    /// A request reaches the store, perhaps after its sender gave up or died.
    pub(super) fn arrive(&mut self, who: Who, call: CallId, run: u64, sent: Ms, request: Request) {
        if self.now < self.away_until {
            return;
        }
        let answer = if run == self.store.run { self.serve(who, request) } else { Answer::Broken };
        if let Some(delay) = self.network.answer(&mut self.random) {
            self.after(delay, What::Answer { who, call, sent, answer });
        }
    }

    fn serve(&mut self, who: Who, request: Request) -> Answer {
        let now = self.now;
        let refuses = self.processes[who].is_broken;
        match request {
            Request::Heartbeat(has_demand) => {
                let (is_news, members) = self.store.beat(now, who, has_demand);
                if is_news {
                    self.announce(&Event::MembersChanged);
                }
                Answer::HeartbeatAnswered(self.list_of(members))
            }
            Request::Depart => {
                if self.store.depart(who) {
                    self.announce(&Event::MembersChanged);
                }
                Answer::Departed
            }
            Request::Look(_) | Request::Take(..) if refuses => Answer::Refused,
            Request::Look(partition) => Answer::Seen(partition, self.store.line(partition)),
            Request::Take(partition, expected) => {
                let token = self.fresh();
                match self.store.take(now, who, partition, expected, token) {
                    Ok(line) => {
                        self.record.taken(self.store.run, who, partition, line);
                        Answer::Taken(partition, line)
                    }
                    Err(Found::Held { by, expires_in }) => Answer::Held(partition, by, expires_in),
                    // Given up since the look: look again.
                    Err(Found::Free(line)) => Answer::Seen(partition, line),
                }
            }
            Request::Release(partition, line) => {
                if self.store.release(partition, line) {
                    self.announce(&Event::Freed(partition));
                }
                Answer::Released(partition)
            }
            Request::Renew(claims) => {
                let mut renewed = Vec::with_capacity(claims.len());
                for (partition, line) in claims {
                    renewed.push((partition, line, self.store.renew(now, who, partition, line)));
                }
                Answer::Renewed(renewed)
            }
        }
    }

    pub(super) fn time_out(&mut self, who: Who, call: CallId) {
        if let Some(purpose) = self.processes[who].pending.remove(&call)
            && let Some(event) = self.processes[who].failure(purpose)
        {
            self.tell(who, event);
        }
    }

    /// An answer reaches its process, unless it gave up waiting.
    pub(super) fn answer(&mut self, who: Who, call: CallId, sent: Ms, answer: Answer) {
        let Some(purpose) = self.processes[who].pending.remove(&call) else { return };
        // Validity counts from the send time and ends before the ttl does.
        let valid_until = sent + self.ttl() - self.ttl() / 10;
        match answer {
            Answer::HeartbeatAnswered(list) => self.tell(who, Event::HeartbeatAnswered(list)),
            Answer::Departed => self.tell(who, Event::Departed),
            Answer::Seen(partition, line) => self.call(who, purpose, Request::Take(partition, line)),
            Answer::Held(partition, by, expires_in) => {
                let by = self.ids[by].clone();
                self.tell(who, Event::Held { partition, by, expires_in: span(expires_in) });
            }
            Answer::Taken(partition, line) => {
                let owned = Owned { line, valid_until: 0, phase: Phase::Serving };
                self.processes[who].owned.insert(partition, owned);
                self.grant(who, partition, valid_until);
                self.record.owned(self.now, who, partition);
                self.tell(who, Event::Acquired(partition));
            }
            Answer::Released(partition) => {
                self.processes[who].owned.remove(&partition);
                self.record.touch(self.now);
                self.tell(who, Event::Released(partition));
            }
            Answer::Renewed(renewed) => self.renewed(who, valid_until, renewed),
            Answer::Refused => {
                let event = self.processes[who].failure(purpose);
                event.into_iter().for_each(|event| self.tell(who, event));
            }
            Answer::Broken => {
                self.processes[who].pending.insert(call, purpose);
                let ttl = self.ttl();
                let events = self.processes[who].notice_loss(self.now, self.store.run, ttl);
                events.into_iter().for_each(|event| self.tell(who, event));
            }
        }
    }

    fn renewed(&mut self, who: Who, valid_until: Ms, renewed: Vec<(Partition, Line, bool)>) {
        for (partition, line, is_kept) in renewed {
            let owned = self.processes[who].owned.get(&partition);
            if owned.is_none_or(|owned| owned.line != line || owned.phase == Phase::GivenUp) {
                continue;
            }
            if is_kept {
                self.grant(who, partition, valid_until);
            } else {
                self.processes[who].owned.remove(&partition);
                self.record.touch(self.now);
                self.tell(who, Event::Lost(partition));
            }
        }
    }

    /// The lease is valid until then, unless it is over already. Nobody else's may be.
    fn grant(&mut self, who: Who, partition: Partition, valid_until: Ms) {
        if valid_until > self.now {
            let (processes, now) = (&self.processes, self.now);
            let claims = self.record.claims(partition);
            claims.retain(|other| *other != who && processes[*other].is_valid(partition, now));
            assert!(claims.is_empty(), "{partition} has two valid owners: {who} and {claims:?}");
            claims.push(who);
        }
        if let Some(owned) = self.processes[who].owned.get_mut(&partition) {
            owned.valid_until = owned.valid_until.max(valid_until);
        }
    }
}
