//! The store contract, a trait for each noun, and [`Owner`]: what the owner of a partition of a group may do through the
//! handle that [`Leases::acquire`] returned. [`Store`] has them all.
//!
//! Two stores fulfil it: Redis and the embedded sled store. The conformance suite is its definition. Nothing above
//! this module knows which store it has. A store decides nothing about retries, deadlines or who should own what.
//!
//! Every call ends by the store's own time limit. Besides the errors named at each method, every method may fail with
//! `Unavailable` (certainly not applied), `OutcomeUnknown` (perhaps applied; repeating it is safe) and `Corrupt`.

mod clock;
mod dead_letters;
mod messages;
mod log_target;
mod owner;
mod groups;
mod leases;
mod maintenance;
mod memory;
mod notifications;
mod owners;
mod reads;
mod topics;
pub mod embedded;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::model::error::{Error, Result};
use crate::platform::clock::Instant;
use crate::platform::signing_key::SigningKey;
pub use clock::{ClockNote, StoreClock};
use dead_letters::other_id;
pub use dead_letters::{
    AgeOrder, Dead, DeadLetterCursor, DeadLetterOutline, DeadLetterOutlinePage, DeadLetterPage, DeadLetterRange,
    DeadLetterRetention, DeadLetters, DroppedDeadLetters, Forward, Forwarded, ForwardedMessage,
};
pub use groups::{
    Doing, Groups, Heartbeat, LiveMember, MemberId, MemberReport, MemberState, ProcessState, SlotAsk, Slots,
    of_processes, slot_of,
};
pub use leases::{Acquired, Claim, Leases, OwnerRecord, Renewal};
pub use log_target::{
    BrokerReport, Change, Identity, KeptCronJob, LogTarget, Progress, Replayed, Reports, TOMBSTONE_KEPT, origin_page,
};
pub use maintenance::{
    Copied, CopyCursor, Defect, Finding, Maintenance, MovedPage, StatsClaim, VerifyCursor, VerifyPage,
};
pub use memory::{Eviction, Fullness, NodeMemory};
use messages::too_many_paused;
pub use messages::{
    Buffered, Call, Calls, Cancelled, Expected, Fate, Fates, HandedOver, KeyPause, LateFate, LateSettlement, LogKind,
    Messages, Purge, Purged, PushVerdict, Pushed, Refused, Reschedule, Rescheduled, StoredDuplicate, TakenOver,
};
pub use notifications::{Channel, Datagram, Datagrams, Releases, Sleeper, Wake, Wakes};
pub use owner::{
    Buried, Charge, Epoch, HeadState, KeyCount, Owner, PausedKey, Recovered, RepairCursor, Repaired, Reservation,
    ReserveLimit, Reserved, ReservedMessage, Retried, Returned, Settlement, Sorted, SortedKeys,
};
pub(crate) use owner::{SORTED, random_text};
pub use owners::{NoOwners, Owners};
pub use reads::{
    Forecast, InFlightCursor, Listed, MessageState, Outline, OutlinePage, Page, PartitionDepth, PartitionStats, Peeked,
    Reads, Spans, WaitingCursor, WaitingRange, Window, WindowPage,
};
pub use topics::{CronJobChange, CronJobDeletion, CronJobRecord, CronJobs, Fired, Firing, Topics, is_firing};

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

/// The store itself: what it is, whether it answers, its clock, its announcements, and the suspicion that it lost data.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    fn describe(&self) -> Description;

    /// The store's clock, the one clock of the whole fleet, as far as this process knows it.
    fn clock(&self) -> &StoreClock;

    fn wakes(&self) -> &Wakes;

    /// Whether the store may have lost what it had answered. Changes with every new suspicion.
    fn losses(&self) -> watch::Receiver<Loss>;

    /// Runs the background work of the store until `stop`. The broker runs it, and reaches the owners for it.
    async fn run(&self, owners: &dyn Owners, stop: CancellationToken);

    async fn ping(&self) -> Result<()>;

    /// Errors: why no push would be accepted durably. `Some` says what is degraded, in a sentence.
    async fn ready(&self) -> Result<Option<String>> {
        self.ping().await.map(|()| None)
    }

    async fn close(&self) -> Result<()>;

    /// How many replicas have what is answered as stored; 0 where none is waited for.
    fn replicas(&self) -> u32 {
        0
    }

    /// The identity of the data. A store without one takes the offered one; another identity than before means other
    /// data.
    async fn store_id(&self, offered: &str) -> Result<String>;

    /// The key that receipts are signed with, the same for all brokers of the store. A store without one, or that lost
    /// it, takes the offered one.
    async fn receipt_key(&self, offered: &SigningKey) -> Result<SigningKey>;

    /// Keys that are kept beside the store, the newest first: receipts are read with them before the store answers.
    fn kept_receipt_keys(&self) -> Vec<SigningKey> {
        Vec::new()
    }

    /// How full the write-ahead log of this process is.
    fn wal_depth(&self) -> WalDepth {
        WalDepth::default()
    }

    /// The memory of each of its servers, as they said last. Empty where there are none.
    fn memory(&self) -> Vec<NodeMemory> {
        Vec::new()
    }

    /// Records and bytes of the journal of this process.
    fn journal_depth(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Health of the store as this process knows it without asking, for metrics.
    fn health_snapshot(&self) -> HealthSnapshot;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub location: String,
    /// In one sentence: what a 201 survives, and what it does not.
    pub durability: String,
}

/// How full the write-ahead log of a broker is; zeros where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalDepth {
    /// Records that wait.
    pub records: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes that it may have.
    pub limit_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// Bytes that are free on the disk that it writes to; `None` when that cannot be told.
    pub free_bytes: Option<u64>,
    pub is_away: bool,
}

/// Suspected losses. For one lease ttl after it, a member that this process has never heard of may still believe that
/// it owns a partition, so nobody takes one, but for the owner that was valid all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// How many losses this process has suspected.
    pub count: u64,
    /// There was a loss that this process did not notice itself: another broker did, or what it gave back at its start shows it.
    pub is_heard: bool,
    /// Somebody restores what the store loses, so each loss sets `is_restoring`. The outage layer does, from the moment that its loops run.
    pub restores: bool,
    /// Nothing is reserved: lost messages are being restored, or this process begins and does not know yet whether there was a loss.
    pub is_restoring: bool,
    /// When anyone first noticed the last one; `None` when there is nothing to suspect.
    pub since: Option<Instant>,
}

impl Loss {
    /// Whether a loss is suspected, by this process or another one, and it is not known yet that nothing was lost, or all restored.
    pub fn is_suspected(&self) -> bool {
        self.is_restoring && (self.count > 0 || self.is_heard)
    }

    pub fn hold_until(&self, ttl: Duration) -> Instant {
        self.since.map_or(Instant::default(), |since| since.plus(ttl))
    }
}

/// A key of receipts as a store has it. Errors: `Corrupt` when it is none.
fn stored_receipt_key(text: &str) -> Result<SigningKey> {
    SigningKey::from_text(text)
        .ok_or_else(|| Error::corrupt("the key of receipts in the store is none that dwell made"))
}

/// For verbs that need the topic as the store has it: it is only promised.
pub(crate) fn not_stored_yet() -> Error {
    Error::unavailable("the topic is on its way to the store")
}

/// A request that has to wait until a loss is restored. It changed nothing.
pub(crate) fn restoring() -> Error {
    Error::unavailable("the store lost data, and the brokers are giving it back")
}
