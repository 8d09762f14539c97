//! The store contract, a trait for each noun, and [`Owner`]: what the owner of a partition of a group may do through the
//! handle that [`Leases::acquire`] returned. [`Store`] has them all.
//!
//! Two stores fulfil it: Redis and the embedded sled store. The conformance suite is its definition. Nothing above
//! this module knows which store it has. A store decides nothing about retries, deadlines or who should own what.
//!
//! Every call ends by the store's own time limit. Besides the errors named at each method, every method may fail with
//! `Unavailable` (certainly not applied), `OutcomeUnknown` (perhaps applied; repeating it is safe) and `Corrupt`.

mod backend;
mod clock;
mod cron_jobs;
mod dead_letters;
pub mod embedded;
mod groups;
mod leases;
mod log_target;
mod maintenance;
mod messages;
mod notifications;
mod owner;
mod reads;
pub mod redis;
mod topics;

use std::sync::Arc;

pub(crate) use backend::restoring;
pub use backend::{Backend, Description, HealthSnapshot, Loss, WalDepth};
pub use clock::{ClockNote, StoreClock};
pub use cron_jobs::{CronJobChange, CronJobRecord, CronJobs, Fired, Firing};
use dead_letters::other_id;
pub use dead_letters::{
    Dead, DeadLetterCursor, DeadLetterPage, DeadLetterRetention, DeadLetters, DroppedDeadLetters, Forward, Forwarded,
    ForwardedMessage,
};
pub use groups::{Groups, Heartbeat, LiveMember, MemberReport, MemberState, SlotAsk, Slots, slot_of};
pub use leases::{Acquired, Claim, Leases, MemberId, OwnerRecord, Renewal};
pub use log_target::{BrokerReport, Change, LogTarget, Progress, Replayed, Reports, TOMBSTONE_KEPT, origin_page};
pub use maintenance::{
    Copied, CopyCursor, Defect, Finding, Maintenance, MovedPage, StatsClaim, VerifyCursor, VerifyPage,
};
pub use messages::{
    Buffered, Call, Calls, Cancelled, Expected, Fate, Fates, HandedOver, LateFate, LateSettlement, LogKind, Messages,
    Purge, Purged, Pushed, Put, Reschedule, Rescheduled, TakenOver,
};
pub use notifications::{Channel, Datagram, Datagrams, Releases, Sleeper, Wake, Wakes};
pub(crate) use owner::random_text;
pub use owner::{
    Buried, Charge, Epoch, HeadState, Owner, Recovered, RepairCursor, Repaired, Reservation, ReserveLimit, Reserved,
    ReservedMessage, Retried, Returned, Settlement,
};
pub use reads::{
    Forecast, InFlightCursor, Listed, Outline, OutlinePage, Page, PartitionDepth, PartitionStats, Peeked, Reads, Spans,
    State, WaitingCursor, WaitingRange, Window, WindowPage,
};
pub use topics::Topics;

pub trait Contract:
    Backend + Topics + Messages + Reads + DeadLetters + CronJobs + Groups + Leases + Maintenance
{
}

impl<S: Backend + Topics + Messages + Reads + DeadLetters + CronJobs + Groups + Leases + Maintenance> Contract for S {}

/// A store as the rooms above use it: each noun is answered by the store, or by a layer around it. Clones share it.
#[derive(Clone)]
pub struct Store {
    pub backend: Arc<dyn Backend>,
    pub topics: Arc<dyn Topics>,
    pub messages: Arc<dyn Messages>,
    pub reads: Arc<dyn Reads>,
    pub dead_letters: Arc<dyn DeadLetters>,
    pub cron_jobs: Arc<dyn CronJobs>,
    pub groups: Arc<dyn Groups>,
    pub leases: Arc<dyn Leases>,
    pub maintenance: Arc<dyn Maintenance>,
}

impl Store {
    pub fn of<S: Contract>(store: Arc<S>) -> Store {
        Store {
            backend: store.clone(),
            topics: store.clone(),
            messages: store.clone(),
            reads: store.clone(),
            dead_letters: store.clone(),
            cron_jobs: store.clone(),
            groups: store.clone(),
            leases: store.clone(),
            maintenance: store,
        }
    }
}
