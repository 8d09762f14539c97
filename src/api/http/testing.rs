//! For unit tests: an application whose store is away, so that every request ends before a verb does anything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{App, Guard};
use crate::broker::{Broker, Options};
use crate::model::error::{Error, Result};
use crate::model::message::{Conflict, GroupName, Message, MessageId, ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::store::{
    self, Acquired, Call, Cancelled, Claim, Copied, CopyCursor, DeadBounds, DeadCursor, DeadDropped, DeadPage,
    Description, Fired, Firing, Forecast, HandedOver, HealthSnapshot, Heartbeat, InFlightCursor, LiveMember, Loss,
    MemberId, MemberReport, MovedPage, Page, PartitionDepth, PartitionStats, Peeked, Pushed, Put, Renewal, Reschedule,
    Rescheduled, ScheduleChange, ScheduleRecord, SlotAsk, Slots, Spans, Store, StoreClock, TakenOver, Tenant,
    VerifyCursor, VerifyPage, WaitingCursor, Wakes, Window, WindowPage,
};
use crate::telemetry::metrics::Metrics;

/// An application over a store that never answers.
pub(crate) fn app() -> Result<App> {
    let store = Away { clock: StoreClock::new(Clock::System), wakes: Wakes::default() };
    let options =
        Options { drain_timeout: Duration::ZERO, settle_timeout: Duration::from_secs(1), ..Options::default() };
    let broker = Broker::new(Store::of(Arc::new(store)), Arc::new(Metrics::new()?), Tasks::new(), options);
    Ok(App::new(broker, Clock::System, Guard::Loopback { tls: false }, Tasks::new()))
}

struct Away {
    clock: StoreClock,
    wakes: Wakes,
}

fn away<T>() -> Result<T> {
    Err(Error::unavailable("this store is always away"))
}

#[async_trait]
impl store::Backend for Away {
    fn describe(&self) -> Description {
        Description { kind: "away", location: String::new(), durability: "none".to_owned() }
    }

    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        watch::Sender::default().subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }

    async fn ping(&self) -> Result<()> {
        away()
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    async fn store_id(&self, _: &str) -> Result<String> {
        away()
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot::default()
    }
}

#[async_trait]
impl store::Topics for Away {
    async fn topic(&self, _: &TopicName) -> Result<Option<Descriptor>> {
        away()
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        away()
    }

    async fn create(&self, _: &Descriptor) -> Result<Descriptor> {
        away()
    }

    async fn update(&self, _: &Descriptor) -> Result<Descriptor> {
        away()
    }

    async fn publish_settings(&self, _descriptor: &Descriptor) -> Result<()> {
        away()
    }

    async fn delete(&self, _: &Descriptor) -> Result<()> {
        away()
    }

    async fn delete_unchanged(&self, _: &Descriptor) -> Result<()> {
        away()
    }
}

#[async_trait]
impl store::Messages for Away {
    async fn take_over(&self, _: HandedOver, _: bool) -> Result<TakenOver> {
        away()
    }

    async fn push(&self, _: &Descriptor, _: Partition, _: &Call, _: &[Message]) -> Result<Vec<Pushed>> {
        away()
    }

    async fn put(&self, _: &Descriptor, _: Partition, _: &Call, _: Conflict, _: &[Message]) -> Result<Vec<Put>> {
        away()
    }

    async fn cancel(&self, _: &Descriptor, _: Partition, _: &Call, _: &MessageId) -> Result<Cancelled> {
        away()
    }

    async fn reschedule(&self, _: &Descriptor, _: Partition, _: &Call, _: &Reschedule) -> Result<Rescheduled> {
        away()
    }
}

#[async_trait]
impl store::Reads for Away {
    async fn peek(&self, _: &GroupPartition, _: &MessageId) -> Result<Option<Peeked>> {
        away()
    }

    async fn waiting(
        &self,
        _: &GroupPartition,
        _: Window,
        _: Option<&WaitingCursor>,
        _: usize,
    ) -> Result<Page<WaitingCursor>> {
        away()
    }

    async fn in_flight(
        &self,
        _: &GroupPartition,
        _: Option<&InFlightCursor>,
        _: usize,
    ) -> Result<Page<InFlightCursor>> {
        away()
    }

    async fn stats(&self, _: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        away()
    }

    async fn depth(&self, _: &[GroupPartition], _: &[Duration]) -> Result<Vec<PartitionDepth>> {
        away()
    }

    async fn forecast(&self, _: &[GroupPartition], _: Spans) -> Result<Vec<Forecast>> {
        away()
    }

    async fn window(
        &self,
        _: &GroupPartition,
        _: Window,
        _: Option<&(Timestamp, MessageId)>,
        _: usize,
    ) -> Result<WindowPage> {
        away()
    }
}

#[async_trait]
impl store::DeadLetters for Away {
    async fn dead(&self, _: &GroupPartition, _: Option<&DeadCursor>, _: usize) -> Result<DeadPage> {
        away()
    }

    async fn redrive(&self, _: &GroupPartition, _: &[MessageId]) -> Result<Vec<bool>> {
        away()
    }

    async fn purge(&self, _: &GroupPartition, _: &[MessageId]) -> Result<Vec<bool>> {
        away()
    }

    async fn drop_dead(&self, _: &GroupPartition, _: DeadBounds) -> Result<DeadDropped> {
        away()
    }
}

#[async_trait]
impl store::CronJobs for Away {
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>> {
        away()
    }

    async fn schedules(&self, _topic: &TopicName, _partition: Partition) -> Result<Vec<ScheduleRecord>> {
        away()
    }

    async fn put_schedule(
        &self,
        _descriptor: &Descriptor,
        _partition: Partition,
        _change: &ScheduleChange,
    ) -> Result<bool> {
        away()
    }

    async fn remove_schedule(&self, _topic: &TopicName, _partition: Partition, _name: &ScheduleName) -> Result<bool> {
        away()
    }

    async fn fire(&self, _descriptor: &Descriptor, _partition: Partition, _firing: &Firing) -> Result<Fired> {
        away()
    }
}

#[async_trait]
impl store::Groups for Away {
    async fn heartbeat(&self, _: &MemberId, heartbeats: &[Heartbeat], _: Duration) -> Vec<Result<Vec<LiveMember>>> {
        heartbeats.iter().map(|_| away()).collect()
    }

    async fn members(&self, _: &TopicName, _: &GroupName, _: Duration) -> Result<Vec<MemberReport>> {
        away()
    }

    async fn leave(&self, _: &TopicName, _: &GroupName, _: &MemberId) -> Result<()> {
        away()
    }

    async fn slots(&self, _topic: &TopicName, _group: &GroupName, _ask: SlotAsk) -> Result<Slots> {
        away()
    }

    async fn send(&self, _: &MemberId, _: Bytes) -> Result<bool> {
        away()
    }
}

#[async_trait]
impl store::Leases for Away {
    async fn acquire(&self, _: &GroupPartition, _: &MemberId, _: Duration, _: u64) -> Result<Acquired> {
        away()
    }

    async fn tenants(&self, _: &[GroupPartition]) -> Result<Vec<Option<Tenant>>> {
        away()
    }

    async fn renew(&self, _: &MemberId, claims: &[Claim], _: Duration) -> Vec<Result<Renewal>> {
        claims.iter().map(|_| away()).collect()
    }
}

#[async_trait]
impl store::Maintenance for Away {
    async fn copy(
        &self,
        _descriptor: &Descriptor,
        _partition: Partition,
        _group: &GroupName,
        _from: Option<CopyCursor>,
    ) -> Result<Copied> {
        away()
    }

    async fn audit(&self, _: &GroupPartition, _: Option<&VerifyCursor>, _: bool) -> Result<VerifyPage> {
        away()
    }

    async fn move_page(&self, _: &Descriptor, _: &GroupPartition, _: &Descriptor) -> Result<MovedPage> {
        away()
    }
}
