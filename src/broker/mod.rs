//! The verbs of dwell, for every way in: HTTP, command line, library.
//!
//! The broker checks what comes in, finds the topic and the partition, and asks the store or dispatch. It keeps no
//! message itself.

mod verify;
mod stats_collector;
mod group_copy;
mod control;
mod dead;
mod dead_scan;
mod scheduler;
mod duplicates;
mod explain;
mod forecast;
mod groups;
mod hand_over;
mod push_batcher;
mod topic_retry;
mod list;
mod locate;
mod topic_move;
mod options;
mod precondition;
mod push;
mod read_limiter;
mod reserve;
mod schedules;
mod metrics_refresh;
mod settle;
mod settle_anywhere;
mod default_partitioner;
mod subscriptions;
mod topics;
mod bulk;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use bulk::{BulkAction, BulkOutcome};
pub use control::RescheduleOutcome;
pub use dead::{DeadList, DeadSweep, DeadSwept};
pub use dead_scan::DeadFilter;
pub use list::{ListEntry, MessageList, Which};
pub use options::Options;
pub use precondition::Precondition;
pub use push::{Offer, PushOutcome};
pub use reserve::ReserveRequest;
pub use schedules::ScheduleList;
pub use subscriptions::{GroupWish, PauseFor, Subscribed};
pub use topic_move::TopicMoved;
pub use topics::Declared;
pub use verify::Audit;

use self::default_partitioner::DefaultPartitioner;
use self::group_copy::Filling;
use self::groups::Groups;
use self::locate::Location;
use self::metrics_refresh::Looks;
use self::push_batcher::PushBatcher;
use self::read_limiter::ReadLimiter;
use self::topics::Topics;
use crate::coordination::lease::LeaseKeeper;
use crate::delivery::remote::Remote;
use crate::delivery::{Delivery, GroupDelivery, Session, Want};
use crate::model::error::{Error, Fault, Missing, Result};
use crate::model::limits::{BATCH_MESSAGES_MAX, STREAM_IN_FLIGHT_MAX};
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, check_visibility_timeout};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::store::{Description, MemberId, Peeked, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Tracer;

/// A broker over one store. Clones share it.
#[derive(Clone)]
pub struct Broker {
    store: Store,
    metrics: Arc<Metrics>,
    keeper: Arc<LeaseKeeper>,
    topics: Arc<Topics>,
    lanes: Arc<PushBatcher>,
    spread: Arc<DefaultPartitioner>,
    groups: Arc<Groups>,
    remote: Arc<Remote>,
    filling: Filling,
    looks: Arc<Looks>,
    reads: Arc<ReadLimiter>,
    tasks: Tasks,
    options: Arc<Options>,
}

/// What a consumer that stays asks for.
#[derive(Debug, Clone, Copy)]
pub struct StreamRequest {
    /// 1 to 1,000 deliveries that are not settled.
    pub max_in_flight: usize,
    /// Overrides the topic's visibility timeout.
    pub visibility_timeout: Option<std::time::Duration>,
}

impl StreamRequest {
    fn check(self) -> Result<()> {
        if !(1..=STREAM_IN_FLIGHT_MAX).contains(&self.max_in_flight) {
            let why = format!("{} is not in 1 to {STREAM_IN_FLIGHT_MAX}", self.max_in_flight);
            return Err(Error::wrong(Fault::Range, "max_in_flight", why));
        }
        self.visibility_timeout.map(check_visibility_timeout).transpose().map(drop)
    }
}

/// Whether the broker can do its work.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether pushes are accepted durably.
    pub ready: bool,
    /// Why not, or what is degraded.
    pub detail: Option<String>,
    /// The store.
    pub store: Description,
}

impl Broker {
    /// A broker over `store`. The loops of its pairs run in `tasks`; [`Broker::run`] has to run beside them, and longer.
    pub fn new(store: Store, metrics: Arc<Metrics>, tasks: Tasks, options: Options) -> Broker {
        let member = MemberId::fresh(&host_name());
        let remote = Arc::new(Remote::new(store.clone(), member.clone(), metrics.clone()));
        let keeper = Arc::new(LeaseKeeper::new(store.clone(), member, options.lease_ttl));
        let options = Arc::new(options);
        let topics = Arc::new(Topics::new(store.clone(), metrics.clone(), options.clone()));
        let lanes = Arc::new(PushBatcher::new(store.clone(), topics.clone(), tasks.clone()));
        let groups = Arc::new(Groups::new(store.clone(), keeper.clone(), metrics.clone(), tasks.clone(), &options));
        let (spread, filling, looks) = (Arc::default(), Filling::default(), Arc::default());
        // It paces what the store really does, whatever clock messages go by.
        let reads = Arc::new(ReadLimiter::new(Clock::System));
        Broker { store, metrics, keeper, topics, lanes, spread, groups, remote, filling, looks, reads, tasks, options }
    }

    /// Keeps leases, answers other brokers, fires schedules, counts for the metrics and listens to the store until `stop`,
    /// which has to come after the loops of the pairs have ended.
    pub async fn run(&self, stop: CancellationToken) {
        let schedules = scheduler::Schedules::new(self.clone());
        let census = stats_collector::Census::new(self.clone());
        let watched = futures_util::future::join(census.run(stop.clone()), self.watch_store(stop.clone()));
        let kept = futures_util::future::join(self.keeper.run(stop.clone()), self.answer_others(stop.clone()));
        tokio::join!(kept, schedules.run(stop.clone()), watched, self.store.backend.run(stop));
    }

    /// The metrics of this process.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Makes spans of what happens to messages.
    pub fn tracer(&self) -> &Tracer {
        &self.options.tracer
    }

    /// Whether it has been told to stop.
    pub fn is_stopping(&self) -> bool {
        self.groups.is_stopping()
    }

    /// Who this process is to other members.
    pub fn member(&self) -> &MemberId {
        self.keeper.member()
    }

    /// This machine's clock, as the store's loops read it.
    pub fn clock(&self) -> &Clock {
        self.store.backend.clock().local()
    }

    /// The time on the store's clock, as far as this process knows it.
    pub fn now(&self) -> Timestamp {
        self.store.backend.clock().now()
    }

    /// How long a stop waits for deliveries that are out.
    pub fn drain_timeout(&self) -> std::time::Duration {
        self.options.drain_timeout
    }

    /// Waits for deliveries. Empty when `wait` ends or the broker stops.
    ///
    /// # Errors
    /// `Invalid` out of range, `NotFound`, `Full` with too many consumers waiting.
    pub async fn reserve(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: ReserveRequest,
    ) -> Result<Vec<Delivery>> {
        self.reserve_aged(topic, group, request, std::time::Duration::ZERO).await
    }

    /// The same for messages that were pushed at least `min_age` ago; younger ones are left to others.
    ///
    /// # Errors
    /// As [`Broker::reserve`].
    pub async fn reserve_aged(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: ReserveRequest,
        min_age: std::time::Duration,
    ) -> Result<Vec<Delivery>> {
        request.check(min_age)?;
        let clock = self.store.backend.clock().local();
        let until = clock.instant().plus(request.wait);
        let mut descriptor = self.topics.group_or_create(topic, group).await?;
        loop {
            let visibility_timeout = request.visibility_timeout.unwrap_or(descriptor.settings.visibility_timeout);
            check_visibility_timeout(visibility_timeout)?;
            let dispatch = self.join(&descriptor, group)?;
            let wait = until.since(clock.instant());
            let want = Want { max: request.max, visibility_timeout, min_age };
            let deliveries = dispatch.reserve(want, wait).await?;
            if !deliveries.is_empty() || !dispatch.is_closed() || self.groups.is_stopping() {
                return Ok(deliveries);
            }
            // The topic is gone, or another one has its name now: what was known of it is not true any more. Only one
            // that is deleted and made again and again keeps a consumer here, and no longer than it wants to wait.
            self.topics.forget(topic);
            if wait.is_zero() {
                return Ok(deliveries);
            }
            // A topic that was deleted while its consumers waited is not created again for them.
            descriptor = self.topics.group(topic, group).await?;
        }
    }

    /// Opens a stream of deliveries. Dropping it returns what it was handed and has not settled.
    ///
    /// # Errors
    /// `Invalid` out of range, `NotFound`, `Full` with too many consumers waiting.
    pub async fn stream(&self, topic: &TopicName, group: &GroupName, request: StreamRequest) -> Result<Session> {
        request.check()?;
        let descriptor = self.topics.group_or_create(topic, group).await?;
        self.open_stream(&descriptor, group, request)
    }

    /// The same for a topic that exists; it is never created.
    ///
    /// # Errors
    /// As [`Broker::stream`].
    pub async fn stream_existing(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: StreamRequest,
    ) -> Result<Session> {
        request.check()?;
        let descriptor = self.topics.group(topic, group).await?;
        self.open_stream(&descriptor, group, request)
    }

    fn open_stream(&self, descriptor: &Arc<Descriptor>, group: &GroupName, request: StreamRequest) -> Result<Session> {
        let dispatch = self.join(descriptor, group)?;
        Session::open(dispatch, request.max_in_flight, request.visibility_timeout)
    }

    /// The dispatch of a group. One whose copy was cut short goes on being filled.
    fn join(&self, descriptor: &Arc<Descriptor>, group: &GroupName) -> Result<Arc<GroupDelivery>> {
        let dispatch = self.groups.join(descriptor, group)?;
        drop(self.copy_group(descriptor, group));
        Ok(dispatch)
    }

    /// Looks at one message; `key` if it was pushed with one.
    ///
    /// # Errors
    /// `NotFound`, `Ambiguous`.
    pub async fn peek(
        &self,
        topic: &TopicName,
        group: &GroupName,
        id: &MessageId,
        key: Option<&Key>,
    ) -> Result<(Partition, Peeked)> {
        let descriptor = self.topics.look_at_group(topic, group).await?;
        let absent = || {
            let why = "it was never pushed, it is settled, or it was pushed with another `key`";
            Error::not_found(format!("group {group} of topic {topic} has no message {id}; {why}"))
        };
        let Location::In(partition) = self.locate(&descriptor, id, key).await? else { return Err(absent()) };
        let peeked = self.store.reads.peek(&descriptor.pair(partition, group), id).await?;
        Ok((partition, peeked.ok_or_else(absent)?))
    }

    /// Whether pushes can be accepted.
    pub async fn health(&self) -> Health {
        let ready = self.store.backend.ready().await;
        self.metrics.store.clock_offset.set(self.store.backend.clock().local_ahead_seconds());
        let (ready, detail) = match (ready, self.groups.is_stopping()) {
            (Err(error), _) => (false, Some(error.to_string())),
            (Ok(_), true) => (false, Some("stopping".to_owned())),
            (Ok(degraded), false) => (true, degraded),
        };
        Health { ready, detail, store: self.store.backend.describe() }
    }
}

fn check_count(field: &str, count: usize) -> Result<()> {
    match count {
        1..=BATCH_MESSAGES_MAX => Ok(()),
        _ => Err(Error::wrong(Fault::Range, field, format!("{count} is not in 1 to {BATCH_MESSAGES_MAX}"))),
    }
}

/// Refuses a group that the topic does not have.
fn no_group(topic: &TopicName, group: &GroupName) -> Error {
    Error::missing(Missing::group(topic, group))
}

/// For people who look at leases: which machine a member runs on.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
