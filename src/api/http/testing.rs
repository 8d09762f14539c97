//! For unit tests: an application over a store that is always unavailable, so that requests end before the broker acts.

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
    Description, Fired, Firing, Forecast, Forward, Forwarded, HandedOver, HealthSnapshot, Heartbeat, InFlightCursor,
    LateFate, LateSettlement, LiveMember, Loss, MemberId, MemberReport, MovedPage, OutlinePage, OwnerRecord, Page,
    PartitionDepth, PartitionStats, Peeked, Purge, Purged, Pushed, Put, Renewal, Reschedule, Rescheduled,
    ScheduleChange, ScheduleRecord, SlotAsk, Slots, Spans, Store, StoreClock, TakenOver, VerifyCursor, VerifyPage,
    WaitingCursor, WaitingRange, Wakes, Window, WindowPage,
};
use crate::telemetry::metrics::Metrics;

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

/// Implements the traits of the store: the listed methods return an error.
macro_rules! always_away {
    ($($of:path { $($method:ident($($argument:ty),*) -> $found:ty;)* } and { $($other:tt)* })*) => { $(
        #[async_trait]
        impl $of for Away {
            $(async fn $method(&self, $(_: $argument),*) -> Result<$found> {
                away()
            })*
            $($other)*
        }
    )* };
}

always_away! {
    store::Topics {
        topic(&TopicName) -> Option<Descriptor>;
        topics() -> Vec<TopicName>;
        create(&Descriptor) -> Descriptor;
        update(&Descriptor) -> Descriptor;
        publish_settings(&Descriptor) -> ();
        delete(&Descriptor) -> ();
        delete_unchanged(&Descriptor) -> ();
    } and {}
    store::Messages {
        take_over(HandedOver, bool) -> TakenOver;
        push(&Descriptor, Partition, &Call, &[Message]) -> Vec<Pushed>;
        put(&Descriptor, Partition, &Call, Conflict, &[Message]) -> Vec<Put>;
        cancel(&Descriptor, Partition, &Call, &MessageId) -> Cancelled;
        purge_group(&Descriptor, Partition, &Call, &Purge) -> Purged;
        reschedule(&Descriptor, Partition, &Call, &Reschedule) -> Rescheduled;
        settle_late(&Descriptor, Partition, &GroupName, &Call, &[LateSettlement]) -> Vec<LateFate>;
    } and {}
    store::Reads {
        peek(&GroupPartition, &MessageId) -> Option<Peeked>;
        waiting(&GroupPartition, Window, Option<&WaitingCursor>, usize) -> Page<WaitingCursor>;
        outlines(&[WaitingRange]) -> Vec<OutlinePage>;
        in_flight(&GroupPartition, Option<&InFlightCursor>, usize) -> Page<InFlightCursor>;
        stats(&[GroupPartition]) -> Vec<PartitionStats>;
        depth(&[GroupPartition], &[Duration]) -> Vec<PartitionDepth>;
        forecast(&[GroupPartition], Spans) -> Vec<Forecast>;
        window(&GroupPartition, Window, Option<&(Timestamp, MessageId)>, usize) -> WindowPage;
    } and {}
    store::DeadLetters {
        dead(&GroupPartition, Option<&DeadCursor>, usize) -> DeadPage;
        redrive(&GroupPartition, &[MessageId]) -> Vec<bool>;
        purge(&GroupPartition, &[MessageId]) -> Vec<bool>;
        forward(&GroupPartition, Option<&Descriptor>, &[MessageId]) -> Forward;
        forwarded(&GroupPartition, &Forwarded) -> ();
        drop_dead(&GroupPartition, DeadBounds) -> DeadDropped;
    } and {}
    store::CronJobs {
        schedule_places() -> Vec<(TopicName, Partition)>;
        schedules(&TopicName, Partition) -> Vec<ScheduleRecord>;
        put_schedule(&Descriptor, Partition, &ScheduleChange) -> bool;
        remove_schedule(&TopicName, Partition, &ScheduleName) -> bool;
        fire(&Descriptor, Partition, &Firing) -> Fired;
    } and {}
    store::Groups {
        members(&TopicName, &GroupName, Duration) -> Vec<MemberReport>;
        leave(&TopicName, &GroupName, &MemberId) -> ();
        slots(&TopicName, &GroupName, SlotAsk) -> Slots;
        send(&MemberId, Bytes) -> bool;
    } and {
        async fn heartbeat(&self, _: &MemberId, heartbeats: &[Heartbeat], _: Duration) -> Vec<Result<Vec<LiveMember>>> {
            heartbeats.iter().map(|_| away()).collect()
        }
    }
    store::Leases {
        acquire(&GroupPartition, &MemberId, Duration, u64) -> Acquired;
        owner_records(&[GroupPartition]) -> Vec<Option<OwnerRecord>>;
    } and {
        async fn renew(&self, _: &MemberId, claims: &[Claim], _: Duration) -> Vec<Result<Renewal>> {
            claims.iter().map(|_| away()).collect()
        }
    }
    store::Maintenance {
        copy(&Descriptor, Partition, &GroupName, Option<CopyCursor>) -> Copied;
        audit(&GroupPartition, Option<&VerifyCursor>, bool) -> VerifyPage;
        move_page(&Descriptor, &GroupPartition, &Descriptor) -> MovedPage;
    } and {}
}
