//! The loop of the WAL: what was buffered goes to the store once it is back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::offer::outage;
use super::{Failover, PAGE_BYTES, PAGE_RECORDS, PAUSE, is_outage};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Kind};
use crate::store::Store;
use crate::wal::{Entry, Position};

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
        let unsure = !self.identified.load(Ordering::Relaxed) || self.wal.store_identity().is_none();
        if unsure && let Err(error) = self.identify().await {
            self.breaker.open(&error);
            return Step::Stuck;
        }
        let page = match self.wal.page(None, PAGE_RECORDS, PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => return stuck(&error),
        };
        // A page is its own probe: a node of a cluster that is away keeps nothing from the others.
        let Some(last) = page.last().map(|entry| entry.position) else { return self.probe().await };
        self.move_page(page, last, began).await
    }

    /// Nothing is buffered: whether pushes may go to the store again.
    async fn probe(&self) -> Step {
        if self.breaker.reason().is_some()
            && let Err(error) = self.limited(self.store.ping()).await
        {
            self.breaker.open(&error);
            return Step::Stuck;
        }
        self.breaker.close();
        Step::Idle
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
}

fn stuck(error: &Error) -> Step {
    if !is_outage(error) || error.kind() == Kind::OutcomeUnknown {
        tracing::error!(%error, "what is buffered cannot be replayed now");
    }
    Step::Stuck
}
