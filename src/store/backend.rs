//! The store itself: what it is, whether it answers, its clock and its announcements.

use super::{Loss, StoreClock, Wakes};
use crate::model::error::Result;
use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The store itself: what it is, whether it answers, its clock and its announcements.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// What it is and what it survives, for the banner and for `/readyz`.
    fn describe(&self) -> Description;

    /// The store's clock, the one clock of the whole fleet, as far as this process knows it.
    fn clock(&self) -> &StoreClock;

    /// Announcements.
    fn wakes(&self) -> &Wakes;

    /// Whether the store may have lost what it had answered. Changes with every new suspicion.
    fn losses(&self) -> watch::Receiver<Loss>;

    /// What the store has to do in the background, until `stop`. The server runs it.
    async fn run(&self, stop: CancellationToken);

    /// Answers once the store answers.
    async fn ping(&self) -> Result<()>;

    /// Whether a push would be accepted durably now; and if so, what is degraded, in a sentence.
    ///
    /// # Errors
    /// Why it would not.
    async fn ready(&self) -> Result<Option<String>> {
        self.ping().await.map(|()| None)
    }

    /// Makes everything durable that was answered and releases what it holds.
    async fn close(&self) -> Result<()>;

    /// How many replicas have what is answered as stored; 0 where none is waited for.
    fn replicas(&self) -> u32 {
        0
    }

    /// The identity of the data behind the store, which lives as long as the data: a store that has none takes the one
    /// that is offered. Who finds another one than before has other data before it.
    async fn store_id(&self, offered: &str) -> Result<String>;

    /// What its process can say of it at once, without asking it: for those who look at metrics.
    fn health_snapshot(&self) -> HealthSnapshot;
}

/// What a store is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `embedded` or `redis`.
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub location: String,
    /// In one sentence: what a 201 survives, and what it does not.
    pub durability: String,
}

/// What a process knows of its store without asking it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// Bytes that are free on the disk that it writes to; `None` when that cannot be told.
    pub free_bytes: Option<u64>,
    /// Whether pushes are buffered because the store is away.
    pub is_away: bool,
}
