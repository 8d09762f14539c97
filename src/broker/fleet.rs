//! The brokers that share the store: each records a heartbeat as a process, also one that only takes pushes; and the heartbeats of
//! groups say what each has of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Broker;
use super::topics::TOPICS_SEEN_MAX;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;
use crate::store::{Doing, Heartbeat, MemberId, MemberReport, MemberState, ProcessState, WalDepth, of_processes};

/// How often a process records a heartbeat. Each one reads all of them, so a fleet of a thousand has a few dozen a second.
const BEAT: Duration = Duration::from_secs(15);

/// A process whose heartbeat is older is not there.
const ABSENT_AFTER: Duration = Duration::from_secs(50);

/// A broker: this one, another process of the fleet, or a member of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetBroker {
    pub version: String,
    pub is_here: bool,
    /// Groups that it is a member of, and those of them with demand.
    pub groups: usize,
    pub demanded: usize,
    /// Consumers that wait there.
    pub waiting: usize,
    pub owned: usize,
    pub wal: WalDepth,
    /// `None` of one whose heartbeat as a process is missing.
    pub process: Option<ProcessState>,
    /// When the latest of its heartbeats was sent; of this broker, now.
    pub heard_at: Timestamp,
}

impl Broker {
    /// This broker, all processes of the fleet, and all members of groups. Of more than 500 topics the members of the first are
    /// read. Errors: `Full`, the store's.
    pub async fn brokers(&self) -> Result<BTreeMap<MemberId, FleetBroker>> {
        let mut brokers = BTreeMap::<MemberId, FleetBroker>::new();
        let read = self.reads.begin().await?;
        let (topic, group) = of_processes();
        for MemberReport { id, state, version, heard_at } in
            read.call(self.store.groups.members(&topic, &group, ABSENT_AFTER)).await?
        {
            let MemberState { wal, process, .. } = state;
            brokers.insert(id, FleetBroker { version, wal, process, heard_at, ..FleetBroker::default() });
        }
        for topic in self.topics().await?.iter().take(TOPICS_SEEN_MAX) {
            let Some(descriptor) = self.existing(topic).await? else { continue };
            for group in &descriptor.groups {
                for MemberReport { id, state, version, heard_at } in read.call(self.members(topic, group)).await? {
                    let MemberState { has_demand, waiting, owned, wal, .. } = state;
                    let broker = brokers.entry(id).or_default();
                    broker.version = version;
                    broker.groups += 1;
                    broker.demanded += usize::from(has_demand);
                    broker.waiting += waiting;
                    broker.owned += owned;
                    broker.wal = wal;
                    broker.heard_at = broker.heard_at.max(heard_at);
                }
            }
        }
        // Its own heartbeats are older than what it knows.
        let heard_at = self.now();
        let here = brokers.entry(self.member().clone()).or_default();
        let MemberState { wal, process, .. } = self.as_process();
        (here.is_here, here.wal, here.process, here.heard_at) = (true, wal, process, heard_at);
        here.version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(brokers)
    }

    fn as_process(&self) -> MemberState {
        let backend = &self.store.backend;
        let wal = backend.wal_depth();
        let doing = match () {
            () if self.is_stopping() => Doing::Draining,
            () if self.metrics.store.restoring.get() > 0 => Doing::Restoring,
            () if backend.health_snapshot().is_away => Doing::Buffering,
            () if wal.records > 0 => Doing::Replaying,
            () => Doing::Serving,
        };
        let process = ProcessState {
            started_at: self.started_at,
            doing,
            journal: backend.journal_depth(),
            clock_ahead_ms: (self.metrics.store.clock_offset.get() * 1_000.0).round() as i64,
        };
        MemberState { wal, process: Some(process), ..MemberState::default() }
    }

    /// Says until `stop` that this process is there, and once more when it begins to drain.
    pub(super) async fn tell_fleet(&self, stop: CancellationToken) {
        let (topic, group) = of_processes();
        let draining = self.tasks.stopping();
        loop {
            let heartbeat = Heartbeat { topic: topic.clone(), group: group.clone(), state: self.as_process() };
            let answers = self.store.groups.heartbeat(self.member(), &[heartbeat], ABSENT_AFTER).await;
            if let Some(Ok(members)) = answers.first() {
                self.metrics.process.brokers.set(i64::try_from(members.len()).unwrap_or(i64::MAX));
            }
            let is_draining = draining.is_cancelled();
            tokio::select! {
                () = stop.cancelled() => break,
                () = draining.cancelled(), if !is_draining => {}
                () = self.clock().sleep(BEAT) => {}
            }
        }
        // A store that is not there forgets it by itself.
        let left = self.store.groups.leave(&topic, &group, self.member());
        tokio::select! {
            _ = left => {}
            () = Clock::System.sleep(LEAVE_PATIENCE) => {}
        }
    }
}

/// How long a stop waits until the store knows that this process is gone.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);
