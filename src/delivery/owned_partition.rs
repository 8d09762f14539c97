//! A pair that this process owns, as its loop and its consumers share it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::prefetch::{Part, PrefetchBudget};
use super::table::{Now, Table};
use super::verdict::{StaleReason, Verdict};
use crate::coordination::lease::Lease;
use crate::platform::clock::Instant;
use crate::store::{ReserveLimit, StoreClock};

/// How far the decisions of an epoch have come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Every decision up to this ticket is in the store.
    pub(super) settled: u64,
    /// Every later decision up to this ticket is perhaps in the store: the call that carried them was never answered.
    pub(super) in_doubt: u64,
    /// The epoch is over: no call carries a decision any more.
    pub(super) over: bool,
}

impl Progress {
    /// What became of the decision with this ticket, which is `made` once it is in the store.
    pub(super) fn verdict(&self, ticket: u64, made: Verdict) -> Verdict {
        match self {
            Progress { settled, .. } if ticket <= *settled => made,
            Progress { over: false, .. } => Verdict::Pending,
            Progress { in_doubt, .. } if ticket <= *in_doubt => Verdict::UnknownOutcome,
            Progress { .. } => Verdict::Stale(StaleReason::LostPartition),
        }
    }
}

/// Wakes the loop of a pair, and tells it to give the lease up.
#[derive(Debug, Default)]
pub(super) struct Kick {
    notify: Notify,
    is_released: AtomicBool,
}

impl Kick {
    /// Wakes the loop.
    pub(super) fn notify_one(&self) {
        self.notify.notify_one();
    }

    /// Resolves when somebody wakes the loop.
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Tells the loop to drain and to give the lease up.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        self.notify_one();
    }

    /// Whether it was told so.
    pub(super) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }
}

/// One epoch of one pair.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) lease: Arc<Lease>,
    memory: Mutex<Memory>,
    /// Wakes the loop: a decision was made, a consumer came, or the prefetch ran low.
    pub(super) kick: Arc<Kick>,
    progress: Mutex<Progress>,
    /// Wakes who waits for progress.
    advanced: Notify,
    /// The lease is being given up: nothing more is handed out, what is out may still be settled.
    draining: AtomicBool,
}

/// The memory of an epoch, and what it takes of the process' budget.
#[derive(Debug)]
struct Memory {
    table: Table,
    part: Part,
}

/// The memory, while nobody else has it. What it holds is accounted for at the end.
pub(super) struct TableGuard<'a>(MutexGuard<'a, Memory>);

impl TableGuard<'_> {
    /// The part of the budget.
    pub(super) fn part(&mut self) -> &mut Part {
        &mut self.0.part
    }

    /// How much of `limit` may be reserved now.
    pub(super) fn grant(&mut self, limit: ReserveLimit, now: Instant) -> Option<ReserveLimit> {
        let prefetched = self.0.table.prefetched_bytes();
        self.0.part.grant(limit, prefetched, now)
    }
}

impl Deref for TableGuard<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0.table
    }
}

impl DerefMut for TableGuard<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.0.table
    }
}

impl Drop for TableGuard<'_> {
    fn drop(&mut self) {
        let bytes = self.0.table.bytes();
        self.0.part.hold(bytes);
    }
}

impl Owned {
    pub(super) fn new(lease: Arc<Lease>, table: Table, budget: Arc<PrefetchBudget>, kick: Arc<Kick>) -> Owned {
        let part = Part::new(budget, kick.clone());
        Owned {
            lease,
            memory: Mutex::new(Memory { table, part }),
            kick,
            progress: Mutex::default(),
            advanced: Notify::new(),
            draining: AtomicBool::new(false),
        }
    }

    /// Whether messages may be handed out.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.lease.is_valid(now)
    }

    /// Hands nothing more out.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The memory. A std mutex: it is held for microseconds and never across an await.
    pub(super) fn table(&self) -> TableGuard<'_> {
        // Nothing panics while the lock is held; if it did, the chain in the store would still catch a wrong decision.
        TableGuard(self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns once the ticket is settled: true, or false when the epoch ended before.
    pub(super) async fn settled(&self, ticket: u64) -> bool {
        loop {
            // Listening begins before looking, so that no progress goes unnoticed in between.
            let mut advanced = std::pin::pin!(self.advanced.notified());
            advanced.as_mut().enable();
            let progress = self.progress();
            if progress.settled >= ticket || progress.over {
                return progress.settled >= ticket;
            }
            advanced.await;
        }
    }

    /// How far the decisions have come.
    pub(super) fn progress(&self) -> Progress {
        *self.progress_mut()
    }

    /// Notes how far they have come.
    pub(super) fn advance(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress_mut());
        self.advanced.notify_waiters();
    }

    fn progress_mut(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics while the lock is held.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads both clocks.
pub(super) fn now(clock: &StoreClock) -> Now {
    Now { store: clock.now(), instant: clock.local().instant(), chance: fastrand::f64() }
}
