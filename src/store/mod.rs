//! The store contract, a trait for each noun, and [`Owner`]: what the owner of a partition of a group may do through the
//! handle that [`Leases::acquire`] returned. [`Store`] has them all.
//!
//! Two stores fulfil it: Redis and the embedded sled store. The conformance suite is its definition. Nothing above
//! this module knows which store it has. A store decides nothing about retries, deadlines or who should own what.
//!
//! Every call ends by the store's own time limit. Besides the errors named at each method, every method may fail with
//! `Unavailable` (certainly not applied), `OutcomeUnknown` (perhaps applied; repeating it is safe) and `Corrupt`.

mod backend;
mod call;
mod changes;
mod clock;
mod clock_note;
mod cron_jobs;
mod data_loss;
mod datagram;
mod dead_letters;
pub mod embedded;
mod epoch;
mod groups;
mod hand_over;
mod leases;
mod listing;
mod log_target;
mod maintenance;
mod member;
mod messages;
mod notifications;
mod owner;
mod reads;
pub mod redis;
mod schedule;
mod topics;
mod verify;

use std::sync::Arc;

pub use backend::{Backend, Description, HealthSnapshot};
pub use call::{Call, Calls};
pub use changes::{Cancelled, Expected, Fate, Fates, Put, Reschedule, Rescheduled};
pub use clock::StoreClock;
pub use clock_note::ClockNote;
pub use cron_jobs::CronJobs;
pub use data_loss::Loss;
pub use datagram::{Datagram, Datagrams};
pub use dead_letters::{Dead, DeadBounds, DeadCursor, DeadDropped, DeadLetters, DeadPage};
pub(crate) use epoch::random_text;
pub use epoch::{Claim, Epoch, MemberId, Tenant};
pub use groups::{Groups, SlotAsk, Slots};
pub use hand_over::{HandedOver, LogKind, TakenOver};
pub use leases::{Acquired, Leases, Renewal};
pub use listing::{InFlightCursor, Listed, Page, WaitingCursor, Window};
pub use log_target::{BrokerReport, Change, LogTarget, Progress, Replayed, Reports, origin_page};
pub use maintenance::{CensusClaim, Copied, CopyCursor, Maintenance, MovedPage};
pub use member::{Heartbeat, LiveMember, MemberReport, MemberState, slot_of};
pub use messages::{Messages, Pushed};
pub use notifications::{Channel, Releases, Sleeper, Wake, Wakes};
pub use owner::{
    Buried, Charge, Glance, Owner, Recovered, RepairCursor, Repaired, Reservation, ReserveLimit, Reserved,
    ReservedMessage, Retried, Returned, Settlement,
};
pub use reads::{Forecast, PartitionDepth, PartitionStats, Peeked, Reads, Spans, State, WindowPage};
pub use schedule::{Fired, Firing, ScheduleChange, ScheduleRecord};
pub use topics::Topics;
pub use verify::{Defect, Finding, VerifyCursor, VerifyPage};

/// All nouns of the contract.
pub trait Contract:
    Backend + Topics + Messages + Reads + DeadLetters + CronJobs + Groups + Leases + Maintenance
{
}

impl<S: Backend + Topics + Messages + Reads + DeadLetters + CronJobs + Groups + Leases + Maintenance> Contract for S {}

/// A store as the rooms above use it: each noun is answered by the store, or by a layer around it that changes the noun.
/// Clones share it.
#[derive(Clone)]
pub struct Store {
    /// The store itself: what it is, whether it answers, its clock and its announcements.
    pub backend: Arc<dyn Backend>,
    /// Topics: their descriptors, and how these change.
    pub topics: Arc<dyn Topics>,
    /// Messages on their way in, and changes of those that wait.
    pub messages: Arc<dyn Messages>,
    /// Looking at messages without taking them.
    pub reads: Arc<dyn Reads>,
    /// Messages that failed too often.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// Cron jobs, and the messages that they push.
    pub cron_jobs: Arc<dyn CronJobs>,
    /// Members of a group, and the slots of one with a rate.
    pub groups: Arc<dyn Groups>,
    /// Who owns a partition of a group.
    pub leases: Arc<dyn Leases>,
    /// Work on a whole partition, page by page.
    pub maintenance: Arc<dyn Maintenance>,
}

impl Store {
    /// A store without layers.
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
