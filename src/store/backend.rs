//! The store itself: what it is, whether it answers, its clock, its announcements, and the suspicion that it lost data.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{StoreClock, Wakes};
use crate::model::error::{Error, Result};
use crate::platform::clock::Instant;

#[async_trait]
pub trait Backend: Send + Sync + 'static {
    fn describe(&self) -> Description;

    /// The store's clock, the one clock of the whole fleet, as far as this process knows it.
    fn clock(&self) -> &StoreClock;

    fn wakes(&self) -> &Wakes;

    /// Whether the store may have lost what it had answered. Changes with every new suspicion.
    fn losses(&self) -> watch::Receiver<Loss>;

    /// Runs the background work of the store until `stop`. The server runs it.
    async fn run(&self, stop: CancellationToken);

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

    /// How full the write-ahead log of this process is.
    fn wal_depth(&self) -> WalDepth {
        WalDepth::default()
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
    pub count: u64,
    /// There was a loss that this process did not notice itself: another broker did, or what it gave back at its start shows it.
    pub is_heard: bool,
    pub restores: bool,
    /// Lost messages are being restored: until that is done nothing is reserved.
    pub is_restoring: bool,
    /// When anyone first noticed the last one; `None` when there is nothing to suspect.
    pub since: Option<Instant>,
}

impl Loss {
    /// Whether a loss was noticed, and what was lost is not restored yet.
    pub fn is_giving_back(&self) -> bool {
        self.is_restoring && (self.count > 0 || self.is_heard)
    }

    pub fn hold_until(&self, ttl: Duration) -> Instant {
        self.since.map_or(Instant::default(), |since| since.plus(ttl))
    }
}

/// A request that has to wait until a loss is restored. It changed nothing.
pub(crate) fn restoring() -> Error {
    Error::unavailable("the store lost data, and the brokers are giving it back")
}
