//! The faults of a history. Each begins, a few operations pass, and it is over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use rustix::process::Signal;

use super::CALM;
use super::deployment::{Deployment, Failure, Kind};
use super::run::{NOTICED, Run};
use crate::support::{Mode, RedisServer, Strike, eventually_within, signal, signal_to};

/// How long a failover may take before a history fails.
const FAILOVER: Duration = Duration::from_secs(60);

/// How long a primary answers what its replica never gets, at most: seven seconds are too long for Sentinel.
const DIVERGED: Duration = Duration::from_secs(2);

/// How long a broker is frozen, in ms: longer than its leases.
const FROZEN_BROKER: std::ops::Range<u64> = 1_200..2_500;

/// How long Redis is frozen, in ms: shorter and longer than the leases.
const FROZEN_REDIS: std::ops::Range<u64> = 100..2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A broker cannot reach Redis.
    Cut,
    /// No broker can reach Redis, and perhaps one of them is killed meanwhile.
    AllCut,
    ReplyLost,
    RequestLost,
    BrokerKilled,
    BrokerFrozen,
    /// A broker starts again without its data directory, perhaps together with an emptied Redis.
    DiskLost,
    /// While no broker can reach Redis, one of them is stopped, hands over what it has, and starts again on a fresh disk.
    HandedOver,
    RedisKilled,
    RedisFrozen,
    Emptied,
    /// Redis goes back to what it was a few operations ago.
    Rewound,
    /// A copy of Redis takes over, and the brokers come to it one after the other.
    SplitBrain,
    /// A replica takes over from a primary, perhaps one that answered what the replica never got.
    Failover,
    /// A primary of a cluster starts again without data before its replica is promoted.
    NodeRestarted,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Cut => "cut off",
            Fault::AllCut => "all cut off",
            Fault::ReplyLost => "reply lost",
            Fault::RequestLost => "request lost",
            Fault::BrokerKilled => "broker killed",
            Fault::BrokerFrozen => "broker frozen",
            Fault::DiskLost => "data directory lost",
            Fault::HandedOver => "handed over",
            Fault::RedisKilled => "Redis killed",
            Fault::RedisFrozen => "Redis frozen",
            Fault::Emptied => "Redis emptied",
            Fault::Rewound => "Redis rewound",
            Fault::SplitBrain => "split brain",
            Fault::Failover => "failover",
            Fault::NodeRestarted => "node restarted empty",
        }
    }

    /// Those that every history begins with, so that also a short one has them.
    fn first(kind: Kind, loses_disks: bool) -> Vec<Fault> {
        let mut faults = match kind {
            Kind::Durable => vec![Fault::BrokerFrozen, Fault::RedisFrozen],
            Kind::Forgetful => vec![Fault::SplitBrain, Fault::BrokerFrozen, Fault::Emptied],
            Kind::Sentinel | Kind::Replicated => vec![Fault::Failover, Fault::BrokerFrozen],
            Kind::Cluster => vec![Fault::Failover, Fault::NodeRestarted, Fault::BrokerFrozen],
        };
        if loses_disks {
            faults.extend([Fault::HandedOver, Fault::DiskLost]);
        }
        faults
    }

    fn of(kind: Kind, loses_disks: bool) -> Vec<Fault> {
        const CONNECTIONS: [Fault; 4] = [Fault::Cut, Fault::AllCut, Fault::ReplyLost, Fault::RequestLost];
        let mut faults = vec![Fault::BrokerKilled, Fault::BrokerFrozen];
        match kind {
            Kind::Durable => {
                faults.extend(CONNECTIONS);
                faults.extend([Fault::RedisKilled, Fault::RedisFrozen]);
            }
            Kind::Forgetful => {
                faults.extend(CONNECTIONS);
                faults.extend([Fault::Emptied, Fault::Rewound, Fault::SplitBrain, Fault::RedisFrozen]);
            }
            Kind::Sentinel | Kind::Replicated => faults.extend([Fault::Failover; 4]),
            Kind::Cluster => {
                faults.extend([Fault::Failover; 4]);
                faults.extend([Fault::NodeRestarted; 2]);
            }
        }
        if loses_disks {
            faults.extend([Fault::DiskLost, Fault::DiskLost, Fault::HandedOver, Fault::HandedOver]);
        }
        faults
    }
}

impl Run {
    /// Brings about a random fault, and ends it.
    pub(super) async fn fault(&mut self) -> Result<()> {
        let faults = Fault::of(self.plan.kind, self.plan.loses_disks);
        let first = Fault::first(self.plan.kind, self.plan.loses_disks);
        let random = faults[self.rng.usize(0..faults.len())];
        let fault = first.get(self.begun).copied().unwrap_or(random);
        self.begun += 1;
        self.read_logs();
        *self.faults.entry(fault.name()).or_default() += 1;
        let (at, calm) = (self.rng.usize(0..self.brokers.len()), self.rng.usize(CALM));
        match fault {
            Fault::Cut => {
                self.before_a_silence(at).await?;
                self.connect(&[at], Mode::Refuse);
                self.pass(calm).await?;
                self.connect(&[at], Mode::Pass);
                Ok(())
            }
            Fault::AllCut => self.all_cut(at, calm).await,
            Fault::ReplyLost => self.strike(at, Strike::Reply, calm).await,
            Fault::RequestLost => self.strike(at, Strike::Request, calm).await,
            Fault::BrokerKilled => {
                self.before_a_silence(at).await?;
                self.kill(at)?;
                self.start(at).await
            }
            Fault::BrokerFrozen => self.freeze(at).await,
            Fault::DiskLost => self.lose_disk(at, calm).await,
            Fault::HandedOver => self.hand_over(at, calm).await,
            Fault::RedisKilled => {
                self.redis.single()?.kill()?;
                self.pass(calm).await?;
                self.redis.single()?.restart().await
            }
            Fault::RedisFrozen => {
                let time = Duration::from_millis(self.rng.u64(FROZEN_REDIS));
                signal(self.redis.single()?, Signal::STOP)?;
                self.pass_for(time).await?;
                signal(self.redis.single()?, Signal::CONT)
            }
            Fault::Emptied => {
                self.settled().await?;
                self.pass(calm).await?;
                self.empty().await
            }
            Fault::Rewound => self.rewind(calm).await,
            Fault::SplitBrain => self.split(calm).await,
            Fault::Failover => self.fail_over(calm).await,
            Fault::NodeRestarted => self.restart_node(calm).await,
        }
    }

    fn connect(&self, brokers: &[usize], mode: Mode) {
        brokers.iter().filter_map(|at| self.brokers[*at].proxy.as_ref()).for_each(|proxy| proxy.set(mode));
    }

    fn connect_all(&self, mode: Mode) {
        self.brokers.iter().filter_map(|broker| broker.proxy.as_ref()).for_each(|proxy| proxy.set(mode));
    }

    async fn strike(&mut self, at: usize, strike: Strike, calm: usize) -> Result<()> {
        self.brokers[at].proxy.iter().for_each(|proxy| proxy.next(strike));
        self.pass(calm).await
    }

    async fn all_cut(&mut self, at: usize, calm: usize) -> Result<()> {
        self.connect_all(Mode::Refuse);
        self.pass(calm).await?;
        if self.rng.bool() {
            self.kill(at)?;
            self.start(at).await?;
            self.pass(calm).await?;
        }
        self.connect_all(Mode::Pass);
        Ok(())
    }

    /// A broker is about to be silent for a while. After a loss, the others wait for its journal no longer than a lease ttl:
    /// so either everything is restored before, or what it acked may be delivered again.
    async fn before_a_silence(&mut self, at: usize) -> Result<()> {
        if self.plan.kind == Kind::Durable || self.brokers.len() == 1 {
            return Ok(());
        }
        if self.rng.bool() {
            self.restored().await
        } else {
            self.exempt.silent(self.brokers[at].identity, &self.by);
            Ok(())
        }
    }

    /// Waits until every broker noticed the last loss and gave back what it has.
    async fn restored(&mut self) -> Result<()> {
        self.redis.whole().await?;
        self.settled().await?;
        self.pass_for(NOTICED).await?;
        self.settled().await
    }

    /// A broker stands still for longer than its leases, with deliveries that its consumer acks the moment it resumes.
    async fn freeze(&mut self, at: usize) -> Result<()> {
        self.before_a_silence(at).await?;
        let held = self.reserve(at, "0s").await?;
        let process = self.brokers[at].process.as_ref().map(|process| process.id());
        let process = process.ok_or_else(|| Error::bug("a broker that does not run is frozen"))?;
        let time = Duration::from_millis(self.rng.u64(FROZEN_BROKER));
        signal_to(process, Signal::STOP)?;
        self.brokers[at].is_frozen = true;
        self.pass_for(time).await?;
        self.brokers[at].is_frozen = false;
        signal_to(process, Signal::CONT)?;
        self.ack(at, &held).await
    }

    /// A broker loses its disk. What was only in its WAL or its journal would be gone, so it has nothing buffered, and gave
    /// back what an earlier loss took.
    async fn lose_disk(&mut self, at: usize, calm: usize) -> Result<()> {
        self.restored().await?;
        self.kill(at)?;
        self.wipe(at)?;
        if self.plan.kind == Kind::Forgetful && self.rng.bool() {
            self.brokers[at].is_frozen = true;
            self.pass(calm).await?;
            self.empty().await?;
            self.brokers[at].is_frozen = false;
        }
        self.start(at).await
    }

    async fn hand_over(&mut self, at: usize, calm: usize) -> Result<()> {
        self.before_a_silence(at).await?;
        self.connect_all(Mode::Refuse);
        self.pass(calm).await?;
        self.stop(at).await?;
        self.start(at).await?;
        self.pass(calm).await?;
        self.connect_all(Mode::Pass);
        Ok(())
    }

    /// Redis comes back without data.
    async fn empty(&mut self) -> Result<()> {
        self.connect_all(Mode::Refuse);
        self.exempt.emptied(&self.by);
        let redis = self.redis.single()?;
        redis.kill()?;
        redis.restart().await?;
        self.connect_all(Mode::Pass);
        self.lost_at = Some(Instant::now());
        Ok(())
    }

    async fn rewind(&mut self, calm: usize) -> Result<()> {
        self.settled().await?;
        let snapshot = self.redis.single()?.snapshot().await?;
        self.pass(calm).await?;
        self.connect_all(Mode::Refuse);
        let redis = self.redis.single()?;
        redis.kill()?;
        redis.restart().await?;
        redis.rewind(&snapshot).await?;
        self.connect_all(Mode::Pass);
        self.lost_at = Some(Instant::now());
        Ok(())
    }

    async fn split(&mut self, calm: usize) -> Result<()> {
        self.settled().await?;
        let other = RedisServer::start().await?;
        self.redis.single()?.copy_to(&other).await?;
        let mut order: Vec<usize> = (0..self.brokers.len()).collect();
        self.rng.shuffle(&mut order);
        // The first one leaves with what it knows; what the others ack from now on, it may deliver.
        self.apart = Some(order[1..].iter().copied().collect());
        self.later.clear();
        self.exempt.split();
        for at in order {
            self.pass(calm).await?;
            self.brokers[at].proxy.iter().for_each(|proxy| proxy.lead_to(&other));
            if let Some(apart) = &mut self.apart {
                apart.remove(&at);
            }
        }
        self.apart = Some(BTreeSet::new());
        self.lost_at = Some(Instant::now());
        self.pass(calm).await?;
        self.settled().await?;
        self.apart = None;
        self.redis = Deployment::Single(other);
        Ok(())
    }

    async fn fail_over(&mut self, calm: usize) -> Result<()> {
        self.redis.whole().await?;
        self.settled().await?;
        let shard = self.rng.usize(0..self.redis.shards());
        let failure = if self.rng.bool() { Failure::Killed } else { Failure::Frozen };
        if self.rng.usize(0..3) > 0 {
            let since = Instant::now();
            self.redis.diverge(shard).await?;
            self.pass_within(calm, DIVERGED).await?;
            if since.elapsed() < 2 * DIVERGED {
                *self.faults.entry("with unreplicated writes").or_default() += 1;
            } else {
                // An operation took long. Nobody promotes a replica that lost its primary so long before others did.
                self.redis.converge(shard).await?;
            }
        }
        if self.plan.kind == Kind::Replicated {
            self.exempt.unreplicated();
        }
        let failed = self.redis.fail(shard, failure).await?;
        let failed_at = Instant::now();
        self.lost_at = Some(failed_at);
        eventually_within(FAILOVER, "a replica is promoted", async || {
            // An operation may take as long as many questions.
            if failed_at.elapsed() > 2 * FAILOVER {
                return Err(Error::unavailable("no replica is promoted"));
            }
            self.pass(1).await?;
            Ok(self.redis.is_promoted(shard, failed).await?.then_some(()))
        })
        .await?;
        self.lost_at = Some(Instant::now());
        if self.rng.bool() {
            self.pass(calm).await?;
        }
        self.redis.come_back(shard, failed, failure).await?;
        self.pass(calm).await
    }

    async fn restart_node(&mut self, calm: usize) -> Result<()> {
        self.redis.whole().await?;
        self.settled().await?;
        let shard = self.rng.usize(0..self.redis.shards());
        let failed = self.redis.fail(shard, Failure::Killed).await?;
        self.redis.come_back(shard, failed, Failure::Killed).await?;
        self.lost_at = Some(Instant::now());
        self.pass(calm).await
    }
}
