//! The store on Redis. The only code that talks to Redis.
//!
//! One Lua script a verb makes every change atomic; `owner` repeats calls until they are answered; this file maps the
//! contract to scripts. What a crash or a lost reply does is argued in the header of each script.

mod address;
mod verify;
mod baseline;
mod depth;
mod checkup;
mod cluster;
mod confirmed;
mod connection;
mod group_copy;
mod changes;
mod dead;
mod deadline_call;
mod failure;
mod forecast;
mod run_history;
mod identity;
mod info;
mod keys;
mod leases;
mod logs;
mod get_message;
mod members;
mod topic_move;
mod options;
mod owner;
mod primary_discovery;
mod reservation_order;
mod push;
mod put;
mod reply;
mod schedules;
mod scripts;
mod sentinel;
mod hash_slot;
mod rate_slots;
mod topics;
mod bulk;
mod wake_listener;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::baseline::{BaselineRedis, BaselineStyle, RedisUsage};
use self::changes::Canceller;
pub use self::checkup::{Checkup, KeysCheckup, NodeCheckup, NodeFacts, Outcome, Quorum, SlowCall, Stall};
pub use self::confirmed::Confirmation;
use self::connection::Terms;
use self::deadline_call::ms;
use self::keys::Keys;
pub use self::options::RedisOptions;
pub use self::primary_discovery::location_of;
use self::reply::Reply;
use self::run_history::Losses;
use self::scripts::{Call, SCRIPTS};
use self::topology::Topology;
use crate::model::error::Result;
use crate::model::message::{Conflict, GroupName, Message, MessageId, ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::clock::{Clock, Instant};
use crate::store::{
    self, Acquired, Cancelled, CensusClaim, Claim, Copied, CopyCursor, DeadBounds, DeadCursor, DeadDropped, DeadPage,
    Description, Fired, Firing, Forecast, HealthSnapshot, Heartbeat, InFlightCursor, LiveMember, Loss, MemberId,
    MemberReport, MovedPage, Page, PartitionDepth, PartitionStats, Peeked, Pushed, Put, Renewal, Reschedule,
    Rescheduled, ScheduleChange, ScheduleRecord, SlotAsk, Slots, Spans, StoreClock, Tenant, VerifyCursor, VerifyPage,
    WaitingCursor, Wakes, Window, WindowPage,
};
use crate::telemetry::metrics::Metrics;

/// The store on Redis.
pub struct Redis {
    shared: Arc<Shared>,
}

/// What the handles of one store share.
struct Shared {
    connection: Topology,
    keys: Keys,
    clock: StoreClock,
    wakes: Wakes,
    losses: Losses,
    metrics: Arc<Metrics>,
    /// Why the first connection was refused, if it was.
    refusal: Option<String>,
}

impl Redis {
    /// Opens the store. Redis need not be there: then calls are `Unavailable` until it is. If it answers within
    /// `options.timeout`, it is looked at whether it can be trusted with messages; later each new connection looks.
    ///
    /// # Errors
    /// `Invalid` for a wrong URL, and for a Redis that answers and is too old, or evicts keys.
    pub async fn open(options: RedisOptions, clock: Clock, metrics: Arc<Metrics>) -> Result<Redis> {
        let (keys, losses) = (Keys::new(&options.prefix), Losses::default());
        metrics.store.expect(SCRIPTS.verbs());
        let terms = Terms::of(&options, metrics.clone());
        let way = Topology::new(&options, terms, &keys, clock.clone(), losses.clone())?;
        let refusal = way.try_now().await?;
        let clock = StoreClock::new(clock);
        let shared = Shared { connection: way, keys, clock, wakes: Wakes::default(), losses, metrics, refusal };
        if shared.connection.durability().is_some() {
            // It was there a moment ago; if it is not now, the first answer says what time it is.
            let _ = shared.observe_time().await;
        }
        Ok(Redis { shared: Arc::new(shared) })
    }
}

impl Shared {
    /// The last argument of scripts: the time that a test set, in microseconds.
    fn time_override(&self) -> String {
        self.clock.local().manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string())
    }

    async fn observe_time(&self) -> Result<()> {
        let sent = self.clock.local().instant();
        let mut time = Reply::of(self.connection.call(&redis::cmd("TIME")).await?)?;
        let (seconds, micros) = (time.number()?, time.number()?);
        self.clock.observe(sent, seconds * 1_000_000 + micros);
        Ok(())
    }

    /// Calls a script whose answer has a status and Redis' time in front.
    async fn ask(&self, call: &Call) -> Result<(String, Reply)> {
        let sent = self.clock.local().instant();
        self.read(sent, self.connection.eval(call).await?)
    }

    fn read(&self, sent: Instant, value: Value) -> Result<(String, Reply)> {
        let mut reply = Reply::of(value)?;
        let (status, now_us) = (reply.text()?, reply.number()?);
        self.clock.observe(sent, now_us);
        Ok((status, reply))
    }
}

#[async_trait]
impl store::Backend for Redis {
    fn describe(&self) -> Description {
        let connection = &self.shared.connection;
        let unknown = || self.shared.refusal.clone().unwrap_or_else(|| "not reachable yet".to_owned());
        let durability = connection.durability().unwrap_or_else(unknown);
        Description { kind: "redis", location: connection.location(), durability }
    }

    fn replicas(&self) -> u32 {
        self.shared.connection.confirmation().replicas
    }

    fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.shared.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        self.shared.losses.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = wake_listener::run(&self.shared, stop) => {}
            () = self.shared.connection.watch() => {}
        }
    }

    async fn ping(&self) -> Result<()> {
        self.shared.observe_time().await
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        self.shared.store_id(offered).await
    }

    /// It writes to no disk of its own, and buffers nothing.
    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot::default()
    }
}

#[async_trait]
impl store::Topics for Redis {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.shared.topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        self.shared.topics().await
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.shared.create(wanted).await
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.shared.update(wanted).await
    }

    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()> {
        self.shared.roll_all(descriptor, None).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<()> {
        self.shared.delete(descriptor, false, 0).await
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()> {
        self.shared.delete(descriptor, true, 0).await
    }
}

#[async_trait]
impl store::Messages for Redis {
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        self.shared.push(descriptor, partition, call, messages).await
    }

    async fn put(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        self.shared.put_all(descriptor, partition, call, conflict, messages).await
    }

    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        self.shared.cancel(descriptor, partition, id, Canceller::Call(call)).await
    }

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        self.shared.reschedule(descriptor, partition, call, reschedule).await
    }
}

#[async_trait]
impl store::Reads for Redis {
    async fn peek(&self, pair: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        self.shared.peek(pair, id).await
    }

    async fn bodies(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Message>>> {
        self.shared.bodies(pair, ids).await
    }

    async fn waiting(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        self.shared.waiting(pair, window, after, limit).await
    }

    async fn in_flight(
        &self,
        pair: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        self.shared.in_flight(pair, after, limit).await
    }

    async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        self.shared.stats(pairs).await
    }

    async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        self.shared.depth(pairs, within).await
    }

    async fn forecast(&self, pairs: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        self.shared.forecast(pairs, spans).await
    }

    async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        self.shared.window(pair, window, after, limit).await
    }
}

#[async_trait]
impl store::DeadLetters for Redis {
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        self.shared.dead(pair, after, limit).await
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.shared.redrive(pair, ids).await
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.shared.purge(pair, ids).await
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        self.shared.drop_dead(pair, bounds).await
    }
}

#[async_trait]
impl store::CronJobs for Redis {
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>> {
        self.shared.schedule_places().await
    }

    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>> {
        self.shared.schedules(topic, partition).await
    }

    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool> {
        self.shared.put_schedule(descriptor, partition, change).await
    }

    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool> {
        self.shared.remove_schedule(topic, partition, name).await
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        self.shared.fire(descriptor, partition, firing).await
    }
}

#[async_trait]
impl store::Groups for Redis {
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        self.shared.heartbeat(member, heartbeats, ttl).await
    }

    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>> {
        self.shared.members(topic, group, ttl).await
    }

    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        self.shared.leave(topic, group, member).await
    }

    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        self.shared.slots(topic, group, ask).await
    }

    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool> {
        self.shared.send(to, &datagram).await
    }
}

#[async_trait]
impl store::Leases for Redis {
    async fn acquire(
        &self,
        pair: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        self.shared.acquire(pair, member, ttl, generation).await
    }

    async fn tenants(&self, pairs: &[GroupPartition]) -> Result<Vec<Option<Tenant>>> {
        self.shared.tenants(pairs).await
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        self.shared.renew(member, claims, ttl).await
    }
}

#[async_trait]
impl store::Maintenance for Redis {
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        self.shared.copy(descriptor, partition, group, from).await
    }

    async fn claim_stats_collection(&self, member: &MemberId, ttl: Duration) -> Result<CensusClaim> {
        self.shared.claim_stats_collection(member, ttl).await
    }

    async fn yield_stats_collection(&self, member: &MemberId) -> Result<()> {
        self.shared.yield_stats_collection(member).await
    }

    async fn audit(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        self.shared.audit(pair, from, repair).await
    }

    async fn move_page(&self, from: &Descriptor, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage> {
        self.shared.move_page(from, pair, to).await
    }
}
