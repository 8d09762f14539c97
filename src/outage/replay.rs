//! The loop of the WAL: what was buffered goes to the store once it is back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::replay_batch::{Offered, outage};
use super::{BufferedStore, PAGE_BYTES, PAGE_RECORDS, PAUSE};
use crate::model::error::{Error, Kind};
use crate::platform::clock::{Clock, Instant};
use crate::store::LogTarget;
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

impl<S: LogTarget> BufferedStore<S> {
    /// Replays what is buffered until `stop`. After each page it rests as long as the page took, so that live pushes keep
    /// half of the store.
    pub(super) async fn replay(&self, stop: CancellationToken) {
        let mut pause = PAUSE.0;
        loop {
            let waiting = self.wal.depth().records;
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step() => step,
            };
            self.tell(&step, waiting);
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

    /// Says when a replay begins, and when all of it is done.
    fn tell(&self, step: &Step, waiting: u64) {
        match step {
            Step::Moved(_) if self.unsaid.replay.is_due(Clock::System.instant()) => {
                tracing::info!(records = waiting, "replay begun");
            }
            Step::Idle if self.unsaid.replay.is_over() => {
                tracing::info!(replayed = self.wal_metrics.replayed.get(), "replay done");
            }
            Step::Idle | Step::Moved(_) | Step::Stuck => {}
        }
    }

    async fn step(&self) -> Step {
        let began = Clock::System.instant();
        let unsure = !self.identified.load(Ordering::Relaxed) || self.wal.store_identity().is_none();
        if unsure && let Err(error) = self.identify().await {
            self.breaker.open(&error);
            return Step::Stuck;
        }
        let losses = self.losses();
        // Who cancels what is buffered waits until it is known what became of a page.
        let _offering = self.offering.lock().await;
        let end = self.wal.depth().end;
        let page = match self.wal.page(None, PAGE_RECORDS, PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => return self.stuck(&error),
        };
        // A page is its own probe: a node of a cluster that is away keeps nothing from the others.
        let Some(last) = page.last().map(|entry| entry.position) else {
            end.into_iter().for_each(|end| self.behind.done(end));
            return self.probe().await;
        };
        if self.is_lossy_after(losses) {
            // What the journal gives back is older, and what the store remembers of this log says what it has lost.
            return Step::Stuck;
        }
        match self.wal.id().await {
            Ok(log) => self.move_page(&log, page, last, (began, losses)).await,
            Err(error) => self.stuck(&error),
        }
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

    /// Gives a page to the store. What the store certainly did not take goes to the end of the WAL, so that it holds up
    /// nothing; what it perhaps took, and what has an order, holds its page. A store that is found to have lost data since
    /// there were so many losses takes nothing.
    async fn move_page(&self, log: &str, page: Vec<Entry>, last: Position, (began, losses): (Instant, u64)) -> Step {
        let is_all = self.wal.depth().records <= page.len() as u64;
        let mut offered = self.offer(log, page, losses).await;
        if let Some(away) = outage(&offered) {
            self.breaker.open(away);
            return self.keep_page(&offered).await;
        }
        // It answers, whatever it says of these.
        self.breaker.close();
        let done = offered.done();
        if let Some(why) = &offered.why
            && self.unsaid.not_taken.is_due(Clock::System.instant())
        {
            tracing::warn!(error = %why, records = offered.left.len(), "buffered messages not taken by the store: tried again");
        }
        let is_kept = self.keep_page_answers(log, std::mem::take(&mut offered.answers), losses).await;
        let has_order = offered.left.iter().any(|record| self.has_order(record));
        self.behind.set_stuck(has_order);
        if !is_kept || offered.is_unknown || has_order || (done == 0 && is_all) {
            return self.keep_page(&offered).await;
        }
        if let Err(error) = self.wal.append(std::mem::take(&mut offered.left)).await {
            return self.stuck(&error);
        }
        self.page_sent.store(false, Ordering::Relaxed);
        self.wal_metrics.replayed.inc_by(offered.stored + offered.duplicate);
        self.wal_metrics.dropped.inc_by(offered.dropped);
        if let Err(error) = self.wal.trim(last).await {
            return self.stuck(&error);
        }
        self.behind.done(last);
        if done == 0 { Step::Stuck } else { Step::Moved(Clock::System.instant().since(began)) }
    }

    /// Leaves a page where it is. If the store certainly has none of it, it may be cancelled.
    async fn keep_page(&self, offered: &Offered) -> Step {
        let sent = offered.is_unknown || offered.done() > 0;
        let sent = self.page_sent.fetch_or(sent, Ordering::Relaxed) || sent;
        if !sent && let Err(error) = self.wal.take_back().await {
            return self.stuck(&error);
        }
        Step::Stuck
    }

    fn stuck(&self, error: &Error) -> Step {
        let matters = !error.is_outage() || error.kind() == Kind::OutcomeUnknown;
        if matters && self.unsaid.not_replayed.is_due(Clock::System.instant()) {
            tracing::error!(%error, "buffered messages cannot be replayed now");
        }
        Step::Stuck
    }
}
