//! The operations of dwell, for HTTP, command line and library.
//!
//! The broker checks a request, finds the topic and the partition, and asks the store or the delivery. It keeps no
//! message itself.

mod stats_collector;
mod held;
mod dead_letters;
mod explain;
mod groups;
mod list;
mod list_by_due;
mod dead_by_age;
mod cron;
mod hand_over;
mod late;
mod reserve;
mod settle;
mod settle_anywhere;
mod topics;
mod key_pauses;
mod control;
mod push_batcher;
mod push;
mod overview;
mod fleet;
mod attention;
mod causes;
mod test_clock;

use std::sync::Arc;
use std::time::Duration;

use dwell_client::wire::ids::Ids;
use tokio_util::sync::CancellationToken;

use self::attention::LatestAttention;
pub use self::attention::{Attention, Concern, ConcernKind};
pub use self::causes::{CAUSES, Cause, SeenBy, Severity, WITHOUT_ALERT};
pub use self::control::{BulkAction, BulkOutcome, RescheduleOutcome};
pub use self::cron::CronJobList;
pub use self::dead_letters::{DeadLetterFilter, DeadLetterList, DeadLetterSweep, DeadLetterSweepResult};
pub use self::explain::{Audit, Explanation, Reason};
pub use self::fleet::FleetBroker;
use self::groups::{Filling, Groups};
pub use self::groups::{GroupRequest, PauseFor, STOPPING, Subscribed};
pub use self::held::GroupKeys;
pub use self::key_pauses::PausedKeys;
use self::list::Location;
pub use self::list::{ListEntry, ListedState, MessageList, without_keys};
use self::overview::TrafficLog;
pub use self::overview::{Point, Sample};
pub use self::push::{Offer, PushOutcome};
use self::push_batcher::PushBatcher;
pub use self::reserve::{ReserveRequest, ReservedDeliveries, Selection};
use self::stats_collector::Scrapes;
pub use self::test_clock::{ClockTarget, Due, FiredCron, Moved};
use self::topics::Topics;
pub use self::topics::{Declared, TopicMoved, is_topic_missing};
use crate::coordination::lease::LeaseKeeper;
use crate::delivery::remote::Remote;
use crate::delivery::{Delivery, GroupDelivery, ReceiptKeys, Session, Want};
use crate::gate::ReadLimiter;
use crate::model::error::{Error, Missing, Result};
use crate::model::limits::{BATCH_MESSAGES_MAX, MEMBER_PARTITIONS_MAX, PREFETCH_LIMIT_BYTES, STREAM_IN_FLIGHT_MAX};
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, Settings, check_visibility_timeout};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::store::{Description, MemberId, MessageState, Peeked, Store};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Tracer;

/// A broker over one store. Clones share it.
#[derive(Clone)]
pub struct Broker {
    store: Store,
    metrics: Arc<Metrics>,
    keeper: Arc<LeaseKeeper>,
    topics: Arc<Topics>,
    batcher: Arc<PushBatcher>,
    ids: Arc<Ids>,
    groups: Arc<Groups>,
    receipt_keys: Arc<ReceiptKeys>,
    remote: Arc<Remote>,
    filling: Filling,
    scrapes: Arc<Scrapes>,
    traffic: Arc<TrafficLog>,
    attention: Arc<LatestAttention>,
    firing: cron::Turns,
    reads: Arc<ReadLimiter>,
    tasks: Tasks,
    /// By the clock of the machine.
    started_at: Timestamp,
    options: Arc<Options>,
}

#[derive(Debug, Clone, Copy)]
pub struct StreamRequest {
    /// 1 to 1,000 unsettled deliveries.
    pub max_in_flight: usize,
    pub visibility_timeout: Option<std::time::Duration>,
}

impl StreamRequest {
    fn check(self) -> Result<()> {
        if !(1..=STREAM_IN_FLIGHT_MAX).contains(&self.max_in_flight) {
            let why = format!("{} is not in 1 to {STREAM_IN_FLIGHT_MAX}", self.max_in_flight);
            return Err(Error::range("max_in_flight", why));
        }
        self.visibility_timeout.map(check_visibility_timeout).transpose().map(drop)
    }
}

#[derive(Debug, Clone)]
pub struct Health {
    pub ready: bool,
    pub detail: Option<String>,
    pub store: Description,
}

impl Broker {
    /// [`Broker::run`] has to run beside the loops of the partitions, which run in `tasks`, and longer.
    pub fn new(store: Store, metrics: Arc<Metrics>, tasks: Tasks, options: Options) -> Broker {
        let member = MemberId::fresh(&host_name());
        let remote = Arc::new(Remote::new(store.clone(), member.clone(), metrics.clone()));
        let keeper = Arc::new(LeaseKeeper::new(store.clone(), member, options.lease_ttl));
        metrics.store.is_of(store.backend.describe().kind);
        let options = Arc::new(options);
        let topics = Arc::new(Topics::new(store.clone(), metrics.clone(), options.clone()));
        let batcher = Arc::new(PushBatcher::new(store.clone(), topics.clone(), tasks.clone()));
        let receipt_keys = Arc::new(ReceiptKeys::new(store.clone()));
        let (keys, loops) = (receipt_keys.clone(), tasks.clone());
        let groups = Arc::new(Groups::new(store.clone(), keeper.clone(), metrics.clone(), loops, keys, &options));
        let (ids, filling, scrapes) = (Arc::default(), Filling::default(), Arc::default());
        let (traffic, attention) = (Arc::default(), Arc::default());
        let firing = cron::Turns::default();
        // It paces calls to the real store, whatever clock messages go by.
        let reads = Arc::new(ReadLimiter::new(Clock::System));
        Broker {
            store,
            metrics,
            keeper,
            topics,
            batcher,
            ids,
            groups,
            receipt_keys,
            remote,
            filling,
            scrapes,
            traffic,
            attention,
            firing,
            reads,
            tasks,
            started_at: Clock::System.now(),
            options,
        }
    }

    /// Runs everything but the loops of the partitions, until `stop`, which has to come after those have ended.
    pub async fn run(&self, stop: CancellationToken) {
        let cron_scheduler = cron::CronScheduler::new(self.clone());
        let stats = stats_collector::StatsCollector::new(self.clone());
        let sampler = overview::Sampler::new(self.clone());
        let watched = futures_util::future::join3(
            stats.run(stop.clone()),
            self.watch_store(stop.clone()),
            sampler.run(stop.clone()),
        );
        let kept = futures_util::future::join3(
            self.keeper.run(stop.clone()),
            self.answer_others(stop.clone()),
            self.tell_fleet(stop.clone()),
        );
        tokio::join!(kept, cron_scheduler.run(stop.clone()), watched, self.store.backend.run(self, stop));
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    pub fn tracer(&self) -> &Tracer {
        &self.options.tracer
    }

    pub fn is_stopping(&self) -> bool {
        self.groups.is_stopping()
    }

    pub fn member(&self) -> &MemberId {
        self.keeper.member()
    }

    pub(crate) fn receipt_keys(&self) -> &ReceiptKeys {
        &self.receipt_keys
    }

    pub fn clock(&self) -> &Clock {
        self.store.backend.clock().local()
    }

    pub fn now(&self) -> Timestamp {
        self.store.backend.clock().now()
    }

    pub fn drain_timeout(&self) -> std::time::Duration {
        self.options.drain_timeout
    }

    /// Empty when `wait` ends or the broker stops. A topic that does not exist is waited for. Errors: `Invalid` out of range,
    /// `NotFound`, `Full` with too many waiting.
    pub async fn reserve(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: ReserveRequest,
    ) -> Result<Vec<Delivery>> {
        Ok(self.reserve_selected(topic, group, request, Selection::default()).await?.deliveries)
    }

    /// Only messages that are selected. Errors: as [`Broker::reserve`]; `Invalid` with `per_key` above 1 for a topic
    /// without ordering.
    pub async fn reserve_selected(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: ReserveRequest,
        selection: Selection,
    ) -> Result<ReservedDeliveries> {
        request.check(selection)?;
        let wait = self.await_topic(topic, group, request.wait).await?;
        self.reserve_existing(topic, group, ReserveRequest { wait, ..request }, selection).await
    }

    /// Waits for a topic, at most so long, and answers what is left of the time. Errors: `NotFound`, for a group that the
    /// topic does not have at once.
    pub async fn await_topic(&self, topic: &TopicName, group: &GroupName, wait: Duration) -> Result<Duration> {
        let clock = self.store.backend.clock().local();
        let until = clock.instant().plus(wait);
        self.topics.awaited(topic, group, until, &self.tasks.stopping()).await?;
        Ok(until.since(clock.instant()))
    }

    /// As [`Broker::reserve_selected`]; a topic that does not exist is `NotFound` at once.
    pub async fn reserve_existing(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: ReserveRequest,
        selection: Selection,
    ) -> Result<ReservedDeliveries> {
        request.check(selection)?;
        let clock = self.store.backend.clock().local();
        let until = clock.instant().plus(request.wait);
        let mut descriptor = self.topics.group(topic, group).await?;
        loop {
            let visibility_timeout = request.visibility_timeout.unwrap_or(descriptor.settings.visibility_timeout);
            check_visibility_timeout(visibility_timeout)?;
            let delivery = self.join(&descriptor, group)?;
            let wait = until.since(clock.instant());
            selection.check_ordering(&descriptor)?;
            let Selection { min_age, per_key, on_failure, gather } = selection;
            let want = Want { max: request.max, visibility_timeout, min_age, per_key, on_failure, gather };
            let deliveries = delivery.reserve(want, wait).await?;
            if !deliveries.is_empty() || !delivery.is_closed() || self.groups.is_stopping() {
                return Ok(ReservedDeliveries { deliveries, visibility_timeout });
            }
            // The topic is gone, or another one has its name now. Only a topic that is deleted and created repeatedly
            // keeps a consumer here, and no longer than it wants to wait.
            self.topics.evict(topic);
            if wait.is_zero() {
                return Ok(ReservedDeliveries { deliveries, visibility_timeout });
            }
            descriptor = self.topics.group(topic, group).await?;
        }
    }

    /// Dropping it returns unsettled deliveries. Errors: `Invalid` out of range, `NotFound`, `Full` with too many
    /// waiting.
    pub async fn stream(&self, topic: &TopicName, group: &GroupName, request: StreamRequest) -> Result<Session> {
        request.check()?;
        let descriptor = self.topics.group(topic, group).await?;
        let delivery = self.join(&descriptor, group)?;
        Session::open(delivery, request.max_in_flight, request.visibility_timeout)
    }

    /// Makes this broker a member of the group, and continues a copy of the group that was cut short.
    fn join(&self, descriptor: &Arc<Descriptor>, group: &GroupName) -> Result<Arc<GroupDelivery>> {
        let delivery = self.groups.join(descriptor, group)?;
        drop(self.copy_group(descriptor, group));
        Ok(delivery)
    }

    /// Looks at one message; `key` if it was pushed with one. A reserved message is where its owner says. Errors:
    /// `NotFound`, `Ambiguous`.
    pub async fn peek(
        &self,
        topic: &TopicName,
        group: &GroupName,
        id: &MessageId,
        key: Option<&Key>,
    ) -> Result<(Partition, Peeked)> {
        let descriptor = self.topics.peek_group(topic, group).await?;
        let absent = || {
            let why = "it was never pushed, it is settled, or it was pushed with another `key`";
            Error::not_found(format!("group {group} of topic {topic} has no message {id}; {why}"))
        };
        let Location::In(partition) = self.locate(&descriptor, id, key).await? else { return Err(absent()) };
        let peeked = self.store.reads.peek(&descriptor.group_partition(partition, group), id).await?;
        let mut peeked = peeked.ok_or_else(absent)?;
        if peeked.state == MessageState::InFlight {
            let states = self.held_states(&descriptor, partition, group, std::slice::from_ref(id)).await?;
            if let Some((state, next_at)) = states.into_iter().next() {
                (peeked.state, peeked.next_at) = (state, next_at);
            }
        }
        Ok((partition, peeked))
    }

    pub async fn health(&self) -> Health {
        let ready = self.store.backend.ready().await;
        self.metrics.store.clock_offset.set(self.store.backend.clock().local_ahead_seconds());
        let (ready, detail) = match (ready, self.groups.is_stopping()) {
            (Err(error), _) => (false, Some(error.to_string())),
            (Ok(_), true) => (false, Some(STOPPING.to_owned())),
            (Ok(degraded), false) => (true, degraded),
        };
        Health { ready, detail, store: self.store.backend.describe() }
    }
}

fn wrong_cursor() -> Error {
    Error::invalid("cursor", "is not one that dwell gave; begin without a cursor")
}

fn check_count(field: &str, count: usize) -> Result<()> {
    match count {
        1..=BATCH_MESSAGES_MAX => Ok(()),
        _ => Err(Error::range(field, format!("{count} is not in 1 to {BATCH_MESSAGES_MAX}"))),
    }
}

/// That a topic lacks a group. Nobody knows the groups of one that is only promised.
fn no_group(descriptor: &Descriptor, group: &GroupName) -> Error {
    let topic = &descriptor.topic;
    match descriptor.is_promised() {
        true => Error::unavailable(format!(
            "topic {topic} is on its way to the store: whether it has a group {group} is not known yet"
        )),
        false => Error::missing(Missing::group(topic, group)),
    }
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How a broker behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease runs without a renewal. 1 s to 10 min.
    pub lease_ttl: Duration,
    /// The span from one heartbeat of a member to the next; at most a third of the lease ttl counts.
    pub heartbeat: Duration,
    /// How long after the last request of a consumer this process leaves a group.
    pub idle_timeout: Duration,
    /// How long a stop waits for deliveries that are out.
    pub drain_timeout: Duration,
    /// Bytes of bodies that all owned partitions together hold in memory. 16 MiB to 64 GiB.
    pub prefetch_bytes: usize,
    /// Partitions of all groups together that this process is a member of, at most.
    pub member_partitions: usize,
    /// The settings of topics that are made without any.
    pub topic_defaults: Settings,
    /// Whether a push to a topic that does not exist creates it.
    pub auto_create: bool,
    /// How long a settling request waits for the store before it answers `pending`.
    pub settle_timeout: Duration,
    /// How long each sample of the recent traffic is; 180 are kept.
    pub traffic_step: Duration,
    /// Makes spans of what happens to messages.
    pub tracer: Tracer,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lease_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
            prefetch_bytes: usize::try_from(PREFETCH_LIMIT_BYTES).unwrap_or(usize::MAX),
            member_partitions: MEMBER_PARTITIONS_MAX,
            topic_defaults: Settings::default(),
            auto_create: true,
            settle_timeout: Duration::from_secs(5),
            traffic_step: Duration::from_secs(10),
            tracer: Tracer::off(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    None,
    Exists,
    Generation(u64),
}

impl Precondition {
    pub fn check(self, topic: &TopicName, there: Option<&Descriptor>) -> Result<()> {
        let holds = match self {
            Precondition::None => true,
            Precondition::Exists => there.is_some(),
            Precondition::Generation(generation) => there.is_some_and(|there| there.generation == generation),
        };
        match holds {
            true => Ok(()),
            false => Err(Error::stale(format!("topic {topic} is not as `If-Match` says; nothing changed"))),
        }
    }
}
