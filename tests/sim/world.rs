//! Brokers, Redis and clients in one thread, and the hand that moves time and plays faults.

mod disks;
mod stranger;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell::api::http::{App, Guard, router};
use dwell::app::engine::{Engine, OutageOptions, RedisOptions, StoreOptions};
use dwell::broker::Options;
use dwell::model::error::Kind;
use dwell::outage::hand_over::HandOverOptions;
use dwell::platform::clock::Clock;
use dwell::platform::tasks::Tasks;
use dwell::sqs::{Sqs, SqsOptions};
use dwell::telemetry::metrics::Metrics;
use dwell_simulated_machine::Disk;
use dwell_simulated_redis::{Crash, Deployment, LineCounts, NodeId, Time};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::broker_log;
use crate::client::{Clients, Left, SETS_UP, Seat};
use crate::courier::ToOthers;
use crate::host::Host;
use crate::ledger::{AFTERMATH, End, Ledger, Life, Played};
use crate::lock;
use crate::network::{Network, Way};
use crate::plan::{Action, Fault, Plan, Scenario};
use crate::run::Failure;
use stranger::Stranger;

/// When every simulation begins, microseconds since 1970.
pub(crate) const START: Time = Time(1_700_000_000_000_000);
const LEASE_TTL: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_millis(300);
/// The longest span in which brokers and Redis do not see each other.
const SPAN_MAX: u64 = 10_000;
const SPAN_MIN: u64 = 1_000;
const SECOND: u64 = 1_000_000;

struct Broker {
    host: Host,
    disk: Arc<Disk>,
    dir: TempDir,
    /// The process that runs: what stops it, and whether it has stopped.
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    has_ended: Arc<AtomicBool>,
    /// With a damaged disk it took its Redis for one of others, and did not start: its operator knows better.
    is_to_adopt: Arc<AtomicBool>,
    /// What the process that runs counts, once it is there, and whether it is the first one.
    counts: Arc<Mutex<Option<Arc<Metrics>>>>,
    is_first: bool,
    frozen_until: Option<Time>,
    /// How long it is down after it lost power.
    down_us: u64,
}

impl Broker {
    fn new(seed: u64, now: Time) -> Result<Broker, Failure> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        Ok(Broker {
            host: Host::new(seed, now),
            disk: Arc::new(Disk::new(dir.path(), seed)?),
            dir,
            stop: None,
            has_ended: Arc::default(),
            is_to_adopt: Arc::default(),
            counts: Arc::default(),
            is_first: true,
            frozen_until: None,
            down_us: 0,
        })
    }
}

/// What a fault leaves to be done later.
#[derive(Debug, Clone, Copy)]
enum Later {
    Start(usize),
    HealLink(usize, NodeId),
    Fast(usize),
    StartRedis(NodeId, u64),
    NotFull(NodeId),
    Lag(NodeId),
    Join(NodeId),
    /// The power goes now at the latest.
    PowerCut(usize),
    Room(usize),
    Syncs(usize),
    Writes(usize),
    StrangerComes {
        down_ms: u64,
        for_ms: u64,
    },
    StrangerLeaves {
        down_ms: u64,
    },
}

pub(crate) struct World {
    plan: Plan,
    deployment: Deployment,
    network: Network,
    brokers: Vec<Broker>,
    clients_host: Host,
    clients: Clients,
    now: Time,
    later: Vec<(Time, Later)>,
    stranger: Option<Stranger>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Result<World, Failure> {
        let deployment = Deployment::new(plan.scenario.layout(), &plan.scenario.redis(), plan.seed, START);
        let clients_host = Host::new(plan.seed, START);
        let seed = |number: usize| plan.seed.wrapping_mul(31).wrapping_add(number as u64);
        let brokers = (0..plan.brokers).map(|number| Broker::new(seed(number), START));
        let brokers = brokers.collect::<Result<Vec<_>, _>>()?;
        let places = brokers.iter().map(|broker| broker.dir.path().display().to_string()).collect();
        let clients = Clients {
            seats: Arc::new(Mutex::new(vec![None; plan.brokers])),
            ledger: Arc::new(Mutex::new(Ledger::new(places, plan.hands_over))),
            clocks: clients_host.clocks(),
            topics: Arc::new(plan.topics.clone()),
        };
        let network = Network::new(plan.seed.wrapping_add(1));
        Ok(World {
            plan,
            deployment,
            network,
            brokers,
            clients_host,
            clients,
            now: START,
            later: Vec::new(),
            stranger: None,
        })
    }

    /// Counts which lines of scripts run, on all nodes of Redis.
    pub(crate) fn count_lines(&mut self) -> LineCounts {
        self.deployment.count_lines()
    }

    /// Plays the plan, ends all faults, and lets consumers take what is left.
    pub(crate) fn play(mut self) -> (Arc<Mutex<Ledger>>, End) {
        let ledger = self.clients.ledger.clone();
        let end = self.run().unwrap_or_else(|failure| {
            lock(&ledger).failures.push(failure.to_string());
            End::default()
        });
        (ledger, end)
    }

    fn run(&mut self) -> Result<End, Failure> {
        self.clients_host.start(self.now, async {})?;
        if self.plan.scenario == Scenario::Foreign {
            self.make_stranger()?;
        }
        for number in 0..self.brokers.len() {
            self.start(number)?;
        }
        let clients = self.clients.clone();
        let is_bound = self.stranger.is_some();
        self.wait_for("the topics", 60, async move {
            clients.set_up().await;
            if is_bound {
                clients.bind(SETS_UP).await;
            }
        })?;
        let begun = self.now;
        for step in self.plan.steps.clone() {
            self.pass(begun + step.at_ms * 1_000)?;
            match step.action {
                Action::Operation(broker, operation) => {
                    let clients = self.clients.clone();
                    self.spawn(async move { clients.operate(step.number, broker, operation).await });
                }
                Action::Fault(fault) => self.inject(fault)?,
            }
        }
        self.heal()?;
        self.end()
    }

    fn note(&self, line: &str) {
        lock(&self.clients.ledger).note(self.now, line);
    }

    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(handle) = self.clients_host.handle() {
            handle.spawn(work);
        }
    }

    /// Lets a client work, and everything else, until it is done.
    fn wait_for(
        &mut self,
        what: &str,
        seconds: u64,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Failure> {
        let done = Arc::new(AtomicBool::new(false));
        let set = done.clone();
        self.spawn(async move {
            work.await;
            set.store(true, Relaxed);
        });
        let limit = self.now + seconds * SECOND;
        while !done.load(Relaxed) {
            if self.now > limit {
                return Err(format!("{what}: not done within {seconds} s").into());
            }
            self.step(self.now + SPAN_MAX)?;
        }
        Ok(())
    }

    fn pass(&mut self, until: Time) -> Result<(), Failure> {
        while self.now < until {
            self.step(until)?;
        }
        Ok(())
    }

    /// Lets everybody work for a span: as long as nobody waits for another.
    fn step(&mut self, until: Time) -> Result<(), Failure> {
        self.do_later()?;
        self.network.step(&mut self.deployment, self.now);
        let later = self.later.iter().map(|(at, _)| *at).min();
        let next = [self.network.next_event(), self.deployment.next_event(), later, Some(until)];
        let next = next.into_iter().flatten().min().unwrap_or(until);
        let span = next.since(self.now).clamp(SPAN_MIN, SPAN_MAX);
        let end = self.now + span;
        self.clients_host.run_until(end);
        for (number, broker) in self.brokers.iter_mut().enumerate() {
            broker_log::turn(number, self.now);
            match broker.frozen_until {
                Some(thaw) if thaw > end => {}
                Some(thaw) => {
                    broker.host.suspend_until(thaw.max(self.now));
                    broker.frozen_until = None;
                    broker.host.run_until(end);
                }
                None => broker.host.run_until(end),
            }
        }
        self.now = end;
        self.lose_power(end)?;
        self.network.collect(end);
        self.reap();
        Ok(())
    }

    // Brokers.

    fn start(&mut self, number: usize) -> Result<(), Failure> {
        let broker = &mut self.brokers[number];
        if broker.host.is_running() {
            return Ok(());
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        broker.has_ended = Arc::default();
        let counts = broker.counts.clone();
        let redis = RedisOptions {
            timeout: TIMEOUT,
            dialer: Some(self.network.dials().dialer(number)),
            ..RedisOptions::new(self.deployment.url())
        };
        let mut outage = OutageOptions::new(broker.dir.path());
        (outage.silence, outage.in_place) = (LEASE_TTL, true);
        outage.adopt = broker.is_to_adopt.swap(false, Relaxed);
        if self.plan.hands_over {
            let (from, clients) = (number, self.clients.clone());
            let seed = self.plan.seed.wrapping_add(number as u64) ^ self.now.0;
            let random = Mutex::new(fastrand::Rng::with_seed(seed));
            outage.courier = Some(Arc::new(ToOthers { from, clients, random }));
            let (url, limit) = ("http://others".to_owned(), Duration::from_secs(8));
            outage.hand_over = Some(HandOverOptions { url, token_file: None, ca_file: None, limit });
        }
        outage.journal_window = self.plan.scenario.has_journal().then_some(Duration::from_secs(3_600));
        let options = Options {
            lease_ttl: LEASE_TTL,
            heartbeat: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(20),
            // Shorter than a delivery: only a stop may end one, and not a partition that moves.
            drain_timeout: Duration::from_secs(1),
            settle_timeout: Duration::from_secs(2),
            ..Options::default()
        };
        let (seats, ledger, ended) =
            (self.clients.seats.clone(), self.clients.ledger.clone(), broker.has_ended.clone());
        let (clocks, disk) = (self.clients.clocks.clone(), broker.disk.clone());
        let (is_to_adopt, has_bad_disks) = (broker.is_to_adopt.clone(), self.plan.scenario == Scenario::Disks);
        let main = async move {
            let engine = match Engine::start(StoreOptions::Redis { redis, outage }, options, Clock::System).await {
                Ok(engine) => engine,
                Err(error) => {
                    lock(&ledger).note(clocks.now(), &format!("broker {number} does not start: {error}"));
                    is_to_adopt.store(has_bad_disks && error.kind() == Kind::Conflict, Relaxed);
                    ended.store(true, Relaxed);
                    return;
                }
            };
            let (broker, loops) = (engine.broker().clone(), engine.groups().clone());
            *lock(&counts) = Some(broker.metrics());
            let sqs = Sqs::new(broker.clone(), Clock::System, SqsOptions::default(), false, loops);
            let app = App::new(broker, Clock::System, Guard::Unix, Tasks::new()).with_gateway(sqs);
            let stopping = app.stopping();
            lock(&seats)[number] = Some(Seat { handle: Handle::current(), router: router(app), disk });
            let _ = stopped.await;
            stopping.cancel();
            engine.drain().await;
            lock(&seats)[number] = None;
            if let Err(error) = engine.close().await {
                lock(&ledger).note(clocks.now(), &format!("broker {number} stops: {error}"));
            }
            ended.store(true, Relaxed);
        };
        broker.host.start(self.now, main)?;
        broker.stop = Some(stop);
        self.note(&format!("! broker {number} starts"));
        Ok(())
    }

    /// Ends its process without a word.
    fn kill(&mut self, number: usize) {
        lock(&self.clients.seats)[number] = None;
        let broker = &mut self.brokers[number];
        broker.frozen_until = None;
        broker.host.kill();
        broker.stop = None;
        if let Some(text) = lock(&broker.counts).take().and_then(|counts| counts.text().ok()) {
            let life = Life { broker: number, is_first: broker.is_first, text };
            lock(&self.clients.ledger).lives.push(life);
            broker.is_first = false;
        }
    }

    /// Ends the processes that have stopped by themselves.
    fn reap(&mut self) {
        for number in 0..self.brokers.len() {
            let broker = &self.brokers[number];
            if broker.host.is_running() && broker.has_ended.load(Relaxed) {
                self.kill(number);
                self.note(&format!("! broker {number} has ended"));
                if !self.later.iter().any(|(_, later)| matches!(later, Later::Start(of) if *of == number)) {
                    self.later.push((self.now + SECOND, Later::Start(number)));
                }
            }
        }
    }

    // Faults.

    fn inject(&mut self, fault: Fault) -> Result<(), Failure> {
        self.note(&format!("! {fault:?}"));
        let now = self.now;
        let mut lasts = 0;
        match fault {
            Fault::Disk(broker, fault) => lasts = self.damage(broker, fault)?,
            Fault::KillBroker(broker, down_ms) => {
                self.kill(broker);
                lasts = down_ms;
                self.later.push((now + down_ms * 1_000, Later::Start(broker)));
            }
            Fault::StopBroker(broker, down_ms) => {
                self.brokers[broker].stop = None;
                lasts = down_ms + 20_000;
                self.later.push((now + lasts * 1_000, Later::Start(broker)));
            }
            Fault::FreezeBroker(broker, for_ms) => {
                self.brokers[broker].frozen_until = Some(now + for_ms * 1_000);
                lasts = for_ms;
            }
            Fault::SkewBroker(broker, by_ms) => self.brokers[broker].host.set_skew(by_ms * 1_000),
            Fault::CutLink { broker, node, way, for_ms } => {
                let way = [Way::Both, Way::Replies, Way::Requests][usize::from(way % 3)];
                let node = NodeId(node);
                self.network.cut(broker, node, way);
                lasts = for_ms;
                self.later.push((now + for_ms * 1_000, Later::HealLink(broker, node)));
            }
            Fault::SlowLinks(broker, us, for_ms) => {
                self.network.slow(broker, us);
                lasts = for_ms;
                self.later.push((now + for_ms * 1_000, Later::Fast(broker)));
            }
            Fault::ResetLinks(broker, with_requests) => self.network.reset(broker, with_requests, now),
            Fault::KillRedis { node, power, down_ms, loading_ms } => {
                let crash = if power { Crash::Power } else { Crash::Process };
                self.deployment.crash(NodeId(node), crash, now);
                lasts = down_ms + loading_ms;
                self.later.push((now + down_ms * 1_000, Later::StartRedis(NodeId(node), loading_ms * 1_000)));
            }
            Fault::Replace { node, down_ms } => {
                self.deployment.crash(NodeId(node), Crash::Disk, now);
                lasts = down_ms;
                self.later.push((now + down_ms * 1_000, Later::StartRedis(NodeId(node), 0)));
            }
            Fault::Stranger { down_ms, for_ms } => {
                self.deployment.crash(NodeId(0), Crash::Process, now);
                lasts = 2 * down_ms + for_ms;
                self.later.push((now + down_ms * 1_000, Later::StrangerComes { down_ms, for_ms }));
            }
            Fault::FreezeRedis(node, for_ms) => {
                self.deployment.freeze(NodeId(node), now + for_ms * 1_000);
                lasts = for_ms;
            }
            Fault::FlushScripts => self.on_servers(|server, _| server.forget_scripts()),
            Fault::Empty => self.on_servers(|server, now| server.flush(now)),
            Fault::Full(for_ms) => {
                self.on_servers(|server, _| server.set_maxmemory(1));
                lasts = for_ms;
                for node in self.deployment.nodes() {
                    self.later.push((now + for_ms * 1_000, Later::NotFull(node)));
                }
            }
            Fault::FailOver { node, is_graceful } => {
                let replicas = self.deployment.replicas_of(NodeId(node));
                if let Some(replica) = replicas.first() {
                    self.deployment.fail_over(*replica, is_graceful, now);
                }
            }
            Fault::Lag { node, us, for_ms } => {
                self.deployment.set_lag(NodeId(node), us);
                lasts = for_ms;
                self.later.push((now + for_ms * 1_000, Later::Lag(NodeId(node))));
            }
            Fault::Isolate { node, for_ms } => {
                self.deployment.set_cut_off(NodeId(node), true, now);
                lasts = for_ms;
                self.later.push((now + for_ms * 1_000, Later::Join(NodeId(node))));
            }
        }
        let until = now + lasts * 1_000 + AFTERMATH;
        lock(&self.clients.ledger).faults.push(Played { fault, at: now, until });
        Ok(())
    }

    fn on_servers(&mut self, change: impl Fn(&mut dwell_simulated_redis::Server, Time)) {
        let now = self.now;
        for node in self.deployment.nodes() {
            if let Some(server) = self.deployment.server_mut(node).filter(|server| server.is_primary()) {
                change(server, now);
            }
        }
    }

    fn do_later(&mut self) -> Result<(), Failure> {
        let now = self.now;
        while let Some(place) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, later) = self.later.remove(place);
            self.undo(later)?;
        }
        Ok(())
    }

    fn undo(&mut self, later: Later) -> Result<(), Failure> {
        let now = self.now;
        match later {
            Later::Start(broker) => self.start(broker)?,
            Later::HealLink(broker, node) => self.network.heal_link(broker, node),
            Later::Fast(broker) => self.network.slow(broker, 0),
            Later::StartRedis(node, loading_us) if !self.deployment.is_up(node) => {
                self.deployment.restart(node, loading_us, now);
            }
            Later::StartRedis(..) => {}
            Later::NotFull(node) => {
                if let Some(server) = self.deployment.server_mut(node) {
                    server.set_maxmemory(0);
                }
            }
            Later::Lag(node) => self.deployment.set_lag(node, 500),
            Later::Join(node) => self.deployment.set_cut_off(node, false, now),
            Later::PowerCut(broker) => {
                self.brokers[broker].disk.lose_power_now();
                self.lose_power(now)?;
            }
            Later::Room(broker) => self.brokers[broker].disk.set_free(None, true),
            Later::Writes(broker) => self.brokers[broker].disk.set_broken(false),
            Later::StrangerComes { down_ms, for_ms } => self.stranger_comes(down_ms, for_ms),
            Later::StrangerLeaves { down_ms } => self.stranger_leaves(down_ms),
            Later::Syncs(broker) => self.brokers[broker].disk.fail_syncs(0, false),
        }
        self.note(&format!("! {later:?} is over"));
        Ok(())
    }

    /// Ends every fault.
    fn heal(&mut self) -> Result<(), Failure> {
        self.note("! all faults end");
        let mut later = std::mem::take(&mut self.later);
        later.sort_by_key(|(at, _)| *at);
        for (_, later) in later {
            // A broker that is stopping stops first.
            match later {
                Later::Start(broker) if self.brokers[broker].host.is_running() => {
                    self.later.push((self.now + SECOND, later));
                }
                Later::StrangerComes { .. } => self.undo(Later::StartRedis(NodeId(0), 0))?,
                Later::StrangerLeaves { .. } => self.undo(Later::StrangerLeaves { down_ms: 0 })?,
                later => self.undo(later)?,
            }
        }
        self.network.heal();
        for broker in &mut self.brokers {
            broker.frozen_until = broker.frozen_until.map(|until| until.min(self.now));
        }
        self.pass(self.now + 30 * SECOND)
    }

    /// Lets consumers take everything, and looks what is left.
    fn end(&mut self) -> Result<End, Failure> {
        let clients = self.clients.clone();
        self.wait_for("groups without limits", 60, async move { clients.release().await })?;
        let topics = self.plan.topics.iter().enumerate();
        let groups = topics.flat_map(|(topic, settings)| (0..settings.groups.len()).map(move |group| (topic, group)));
        let groups: Vec<_> = groups.collect();
        let drains: Vec<_> = (0..self.brokers.len())
            .flat_map(|broker| groups.iter().map(move |(topic, group)| (broker, *topic, *group)))
            .map(|(broker, topic, group)| {
                let clients = self.clients.clone();
                async move { clients.drain(broker, topic, group, 10_000).await }
            })
            .collect();
        self.wait_for("the drain", 300, async move { drop(futures_util::future::join_all(drains).await) })?;
        let found = Arc::new(Mutex::new(End::default()));
        let (clients, noted) = (self.clients.clone(), found.clone());
        let look = async move {
            for (topic, group) in groups {
                let source = clients.topics[topic].takes_from.unwrap_or(topic);
                match clients.dead(topic, group).await {
                    Ok(dead) => lock(&noted).dead.extend(dead.into_iter().map(|tag| (source, group, tag))),
                    Err(failure) => clients.failed(failure),
                }
                match clients.left(topic, group).await {
                    Ok(Left::Nothing) => {}
                    Ok(Left::Messages(left)) => lock(&noted).left.push((topic, group, left)),
                    Ok(Left::NoGroup) => lock(&noted).missing.push((topic, group)),
                    Err(failure) => clients.failed(failure),
                }
            }
        };
        self.wait_for("the last look", 60, look)?;
        for number in 0..self.brokers.len() {
            self.kill(number);
        }
        Ok(std::mem::take(&mut *lock(&found)))
    }
}
