//! The loops: what was buffered goes to the store once it is back; what the journal kept, once it may have lost it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::offer::outage;
use super::{Failover, is_outage};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Kind};
use crate::store::Store;
use crate::wal::{Entry, Position};

/// Records of one page.
const PAGE_RECORDS: usize = 500;

/// Bytes of one page: far below what one call may have, and little memory.
const PAGE_BYTES: usize = 1024 * 1024;

/// From the first to the longest pause before the store is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// What a step of the replay came to.
enum Step {
    /// Nothing is buffered, and the store is there.
    Idle,
    /// A page went to the store, which took so long.
    Moved(Duration),
    /// Nothing can be done now.
    Stuck,
}

impl<S: Store> Failover<S> {
    /// Replays what is buffered until `stop`. After each page it rests as long as the page took, so that live pushes keep
    /// half of the store.
    pub(super) async fn replay(&self, stop: CancellationToken) {
        let mut pause = PAUSE.0;
        loop {
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step() => step,
            };
            self.wal.observe();
            let wait = async {
                match step {
                    Step::Idle => tokio::select! {
                        () = self.breaker.opened() => {}
                        () = self.buffered.notified() => {}
                    },
                    Step::Moved(took) => {
                        pause = PAUSE.0;
                        Clock::System.sleep(took).await;
                    }
                    Step::Stuck => {
                        Clock::System.sleep(pause).await;
                        pause = (pause * 2).min(PAUSE.1);
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait => {}
            }
        }
    }

    async fn step(&self) -> Step {
        let began = Clock::System.instant();
        if self.breaker.reason().is_some() || !self.identified.load(Ordering::Relaxed) {
            // This is also the probe: who is asked for its name and says it is there.
            if let Err(error) = self.identify().await {
                self.breaker.open(&error);
                return Step::Stuck;
            }
        }
        let page = match self.wal.page(None, PAGE_RECORDS, PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => return stuck(&error),
        };
        let Some(last) = page.last().map(|entry| entry.position) else {
            self.breaker.close();
            return Step::Idle;
        };
        self.move_page(page, last, began).await
    }

    /// Gives a page to the store. What the store does not take goes to the end of the WAL, so that it holds up nothing.
    async fn move_page(&self, page: Vec<Entry>, last: Position, began: Instant) -> Step {
        // The journal first: what the store took and lost again must be somewhere once it has left the WAL.
        if let Some(journal) = &self.journal {
            journal.keep(page.iter().map(|entry| entry.record.clone()).collect()).await;
        }
        let offered = self.offer(page).await;
        if let Some(away) = outage(&offered) {
            self.breaker.open(away);
            return Step::Stuck;
        }
        let done = offered.done();
        if let Some(why) = &offered.why {
            tracing::warn!(%why, records = offered.left.len(), "the store did not take these; they are tried again");
        }
        if !offered.left.is_empty()
            && let Err(error) = self.wal.append(offered.left).await
        {
            return stuck(&error);
        }
        if let Err(error) = self.wal.trim(last).await {
            return stuck(&error);
        }
        self.wal_metrics.replayed.inc_by(offered.stored + offered.duplicate);
        self.wal_metrics.dropped.inc_by(offered.dropped);
        if done == 0 {
            return Step::Stuck;
        }
        self.breaker.close();
        Step::Moved(Clock::System.instant().since(began))
    }

    /// Watches over the journal until `stop`: drops what is old enough, and offers all of it again when the store may have
    /// lost some of it. It does so at the start as well, since nobody watched before.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let mut losses = self.store.losses();
        let mut suspected = Some(losses.borrow_and_update().count).filter(|_| self.journal.is_none());
        loop {
            let count = losses.borrow_and_update().count;
            if suspected != Some(count) {
                // Another Redis may answer there now.
                self.identified.store(false, Ordering::Relaxed);
                self.buffered.notify_one();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.offer_journal() => {}
                }
                suspected = Some(count);
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = losses.changed() => if changed.is_err() { return },
                () = self.journal_look() => {}
            }
        }
    }

    /// Drops what is old, if the store answers and is still the same.
    async fn journal_look(&self) {
        let Some(journal) = &self.journal else { return std::future::pending().await };
        self.clock.sleep(journal.pause()).await;
        journal.log().observe();
        if journal.log().depth().records == 0 {
            return;
        }
        let before = self.store.losses().borrow().count;
        match self.limited(self.store.ping()).await {
            Ok(()) if self.store.losses().borrow().count == before => {
                if let Err(error) = journal.look().await {
                    tracing::warn!(%error, "the journal was not trimmed");
                }
            }
            _ => journal.broken(),
        }
    }

    /// Offers the store all that the journal has, until it has answered for all.
    async fn offer_journal(&self) {
        let Some(journal) = &self.journal else { return };
        let (mut after, mut offered_count, mut pause) = (None, 0, PAUSE.0);
        loop {
            let page = journal.log().page(after, PAGE_RECORDS, PAGE_BYTES).await;
            let last = match &page {
                Ok(page) => page.last().map(|entry| entry.position),
                Err(error) => {
                    tracing::error!(%error, "the journal cannot be read: what the store lost may stay lost");
                    return;
                }
            };
            let Some(last) = last else { break };
            let offered = match (self.identified.load(Ordering::Relaxed), page) {
                (true, Ok(page)) => self.offer(page).await,
                _ => super::offer::Offered::default(),
            };
            let kept =
                offered.left.is_empty() || (offered.done() > 0 && self.wal.append(offered.left.clone()).await.is_ok());
            if offered.done() == 0 || !kept {
                Clock::System.sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                continue;
            }
            (after, pause) = (Some(last), PAUSE.0);
            offered_count += offered.stored;
            journal.metrics().replayed.inc_by(offered.stored + offered.duplicate);
            journal.metrics().dropped.inc_by(offered.dropped);
            self.buffered.notify_one();
        }
        journal.broken();
        if offered_count > 0 {
            tracing::warn!(messages = offered_count, "the store had lost these; the journal gave them back");
        }
    }
}

fn stuck(error: &Error) -> Step {
    if !is_outage(error) || error.kind() == Kind::OutcomeUnknown {
        tracing::error!(%error, "what is buffered cannot be replayed now");
    }
    Step::Stuck
}
