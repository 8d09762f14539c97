//! The world: processes, a network, a store, and what happens next. No clock, no sockets; chance comes from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell::coordination::membership::{Action, Event, Member, Timing};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, TopicName};
use dwell::model::partition::Partition;
use dwell::store::{LiveMember, MemberId};
use fastrand::Rng;

use super::calls::{Answer, Request};
use super::incidents::Fate;
use super::network::Network;
use super::process::{CallId, Phase, Process};
use super::record::Record;
use super::store::{Live, Ms, Store, Who};
use super::time::span;

pub(super) struct World {
    pub(super) now: Ms,
    pub(super) random: Rng,
    pub(super) partitions: u16,
    pub(super) timing: Timing,
    pub(super) store: Store,
    /// Nothing reaches the store until then.
    pub(super) away_until: Ms,
    pub(super) network: Network,
    pub(super) processes: Vec<Process>,
    pub(super) ids: Vec<MemberId>,
    pub(super) record: Record,
    pub(super) saved: Option<Store>,
    queue: BTreeMap<(Ms, u64), What>,
    serial: u64,
    topic: TopicName,
    group: GroupName,
    /// The newest list of members: many heartbeats bring the same.
    list: (Arc<[Live]>, Arc<[LiveMember]>),
}

/// What happens at some time.
pub(super) enum What {
    Tick(Who),
    Renew(Who),
    Arrive { who: Who, call: CallId, run: u64, sent: Ms, request: Request },
    Answer { who: Who, call: CallId, sent: Ms, answer: Answer },
    Timeout(Who, CallId),
    Hear(Who, Event),
    Drained(Who, Partition, u64),
    Fate(Fate),
}

impl World {
    /// Nobody is there yet.
    pub(super) fn new(seed: u64, partitions: u16, (ttl, heartbeat): (Ms, Ms), network: Network) -> Result<World> {
        let timing = Timing::new(span(ttl), span(heartbeat));
        let absent_after = Ms::try_from(timing.absent_after().as_millis()).unwrap_or(Ms::MAX);
        Ok(World {
            now: 1_000_000,
            random: Rng::with_seed(seed),
            partitions,
            timing,
            store: Store::new(partitions, ttl, absent_after),
            away_until: 0,
            network,
            processes: Vec::new(),
            ids: Vec::new(),
            record: Record::new(partitions),
            saved: None,
            queue: BTreeMap::new(),
            serial: 0,
            topic: TopicName::new("orders")?,
            group: GroupName::standard(),
            list: (Arc::new([]), Arc::new([])),
        })
    }

    pub(super) fn ttl(&self) -> Ms {
        self.store.ttl
    }

    /// A number that never comes again.
    pub(super) fn fresh(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn after(&mut self, delay: Ms, what: What) {
        let key = (self.now.saturating_add(delay), self.fresh());
        self.queue.insert(key, what);
    }

    /// A new process, with a clock of its own.
    pub(super) fn join(&mut self) -> Who {
        let who = self.processes.len();
        let id = MemberId::from_store(&format!("member-{who}-{}", self.random.u32(..)));
        let member = Member::new(self.topic.clone(), self.group.clone(), self.partitions, id.clone(), self.timing);
        let offset = self.random.u64(0..1_000_000_000);
        self.processes.push(Process::new(member, offset, self.store.run, self.now));
        self.ids.push(id);
        // A run of the store that is younger than a ttl may have lost what others still believe to own.
        let hold = self.store.lost_at.map(|at| at + self.ttl()).filter(|until| *until > self.now);
        if let Some(until) = hold {
            let until = self.processes[who].local(until);
            self.tell(who, Event::Hold { until, valid: Default::default() });
        }
        let renews_in = self.random.u64(0..self.ttl() / 3);
        self.after(renews_in, What::Renew(who));
        self.tell(who, Event::Tick);
        who
    }

    /// Lets happen what happens until then.
    pub(super) fn run_until(&mut self, until: Ms) {
        while self.next_at() <= until {
            self.happen();
        }
        self.now = until;
    }

    pub(super) fn next_at(&self) -> Ms {
        self.queue.first_key_value().map_or(Ms::MAX, |((at, _), _)| *at)
    }

    /// Lets the next thing happen.
    pub(super) fn happen(&mut self) {
        let Some(((at, _), what)) = self.queue.pop_first() else { return };
        self.now = at;
        if let Some(who) = what.whose() {
            let process = &self.processes[who];
            if !process.is_alive {
                return;
            }
            if process.asleep_until > at {
                let delay = process.asleep_until - at;
                return self.after(delay, what);
            }
        }
        match what {
            What::Tick(who) => {
                if self.processes[who].tick_at <= at {
                    self.processes[who].tick_at = Ms::MAX;
                    self.tell(who, Event::Tick);
                }
            }
            What::Renew(who) => {
                self.renew(who);
                let third = self.ttl() / 3;
                self.after(third, What::Renew(who));
            }
            What::Arrive { who, call, run, sent, request } => self.arrive(who, call, run, sent, request),
            What::Answer { who, call, sent, answer } => self.answer(who, call, sent, answer),
            What::Timeout(who, call) => self.time_out(who, call),
            What::Hear(who, event) => self.tell(who, event),
            What::Drained(who, partition, token) => self.drained(who, partition, token),
            What::Fate(fate) => self.suffer(fate),
        }
    }

    /// Tells a member what happened and does what it asks for.
    pub(super) fn tell(&mut self, who: Who, event: Event) {
        let is_staying = event == Event::Stay;
        let quota = self.processes[who].member.standing().quota;
        let actions = self.processes[who].step(self.now, event);
        if self.processes[who].member.standing().quota != quota {
            self.record.touch(self.now);
        }
        self.processes[who].has_left &= !is_staying;
        for action in actions {
            match action {
                Action::Heartbeat => {
                    let has_demand = self.processes[who].member.standing().has_demand;
                    self.call(who, super::process::Purpose::Heartbeat, Request::Heartbeat(has_demand));
                }
                Action::Depart => self.call(who, super::process::Purpose::Depart, Request::Depart),
                Action::Acquire(partition) => self.acquire(who, partition),
                Action::Release(partition) => self.drain(who, partition),
                Action::Gone => {
                    let process = &mut self.processes[who];
                    assert!(process.owned.is_empty(), "member {who} is gone and owns something");
                    process.is_alive = false;
                }
            }
        }
        let wake = self.processes[who].wake();
        if wake < self.processes[who].tick_at && wake < Ms::MAX / 2 {
            self.processes[who].tick_at = wake;
            self.after(wake.saturating_sub(self.now), What::Tick(who));
        }
    }

    fn drain(&mut self, who: Who, partition: Partition) {
        let drain = self.random.u64(0..=self.network.drain);
        let Some(owned) = self.processes[who].owned.get_mut(&partition) else {
            unreachable!("member {who} releases {partition}, which it does not own")
        };
        owned.phase = Phase::Draining;
        let token = owned.line.token;
        self.record.touch(self.now);
        self.after(drain, What::Drained(who, partition, token));
    }

    /// Announces something to every process, each of which may miss it.
    pub(super) fn announce(&mut self, event: &Event) {
        for who in 0..self.processes.len() {
            if self.processes[who].is_alive
                && let Some(delay) = self.network.announcement(&mut self.random)
            {
                self.after(delay, What::Hear(who, event.clone()));
            }
        }
    }

    pub(super) fn list_of(&mut self, members: Arc<[Live]>) -> Arc<[LiveMember]> {
        if self.list.0 != members {
            let live = |(who, has_demand): &Live| LiveMember { id: self.ids[*who].clone(), has_demand: *has_demand };
            let list = members.iter().map(live).collect();
            self.list = (members, list);
        }
        self.list.1.clone()
    }
}

impl What {
    /// The process that has to be awake for it.
    fn whose(&self) -> Option<Who> {
        match self {
            What::Tick(who) | What::Renew(who) | What::Timeout(who, _) | What::Hear(who, _) => Some(*who),
            What::Answer { who, .. } | What::Drained(who, _, _) => Some(*who),
            What::Arrive { .. } | What::Fate(_) => None,
        }
    }
}
