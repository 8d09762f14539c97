//! The loop of the WAL: what was buffered goes to the store once it is back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::offer::{Offered, outage};
use super::{Failover, PAGE_BYTES, PAGE_RECORDS, PAUSE, is_outage};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Kind};
use crate::store::Store;
use crate::wal::{Position, Record};

/// What the store did not take of a page although it answers, of topics with ordering: nothing passes it.
struct Held {
    records: Vec<Record>,
    /// Where its page ends.
    last: Position,
}

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
        let (mut pause, mut held) = (PAUSE.0, None);
        loop {
            let waiting = self.wal.depth().records;
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step(&mut held) => step,
            };
            self.tell(&step, waiting);
            self.wal.observe();
            self.behind.set_stuck(held.is_some());
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

    async fn step(&self, held: &mut Option<Held>) -> Step {
        let began = Clock::System.instant();
        let unsure = !self.identified.load(Ordering::Relaxed) || self.wal.store_identity().is_none();
        if unsure && let Err(error) = self.identify().await {
            self.breaker.open(&error);
            return Step::Stuck;
        }
        // Who cancels what is buffered waits until it is known what became of a page.
        let _offering = self.offering.lock().await;
        if let Some(Held { records, last }) = held.take() {
            return self.move_page(records, last, began, held, true).await;
        }
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
        let records: Vec<Record> = page.into_iter().map(|entry| entry.record).collect();
        if self.is_lossy() && records.iter().any(|record| self.has_order(record)) {
            // What the journal gives back is older.
            return Step::Stuck;
        }
        self.move_page(records, last, began, held, false).await
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

    /// Gives a page to the store, or what is held of it. What the store does not take goes to the end of the WAL, so that it
    /// holds up nothing; but what has an order is held, and holds up the rest.
    async fn move_page(
        &self,
        page: Vec<Record>,
        last: Position,
        began: Instant,
        held: &mut Option<Held>,
        was_held: bool,
    ) -> Step {
        let losses = self.losses();
        // A copy only for who keeps one.
        let copied = if self.journal.is_some() { page.len() } else { 0 };
        let records: Vec<Record> = page.iter().take(copied).cloned().collect();
        let is_all = self.wal.depth().records <= page.len() as u64;
        let offered = self.offer(page).await;
        if let Some(away) = outage(&offered) {
            self.breaker.open(away);
            if was_held {
                *held = Some(Held { records: offered.left, last });
                return Step::Stuck;
            }
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
        if done == 0 && is_all && !was_held {
            // Nothing waits behind them: they may stay where they are.
            return self.keep_page(&offered).await;
        }
        if done > 0 && !self.journaled(records, losses).await {
            return Step::Moved(Clock::System.instant().since(began));
        }
        let (ordered, others) = offered.left.into_iter().partition(|record| self.has_order(record));
        if let Err(error) = self.wal.append(others).await {
            return self.stuck(&error);
        }
        self.page_sent.store(false, Ordering::Relaxed);
        self.wal_metrics.replayed.inc_by(offered.stored + offered.duplicate);
        self.wal_metrics.dropped.inc_by(offered.dropped);
        if !Vec::is_empty(&ordered) {
            *held = Some(Held { records: ordered, last });
            return Step::Stuck;
        }
        if let Err(error) = self.wal.trim(last).await {
            return self.stuck(&error);
        }
        self.behind.done(last);
        if done == 0 { Step::Stuck } else { Step::Moved(Clock::System.instant().since(began)) }
    }

    /// Leaves a page where it is. If the store certainly has none of it, it may be cancelled.
    async fn keep_page(&self, offered: &Offered) -> Step {
        let sent = self.page_sent.fetch_or(offered.sent, Ordering::Relaxed) || offered.sent;
        if !sent && let Err(error) = self.wal.take_back().await {
            return self.stuck(&error);
        }
        Step::Stuck
    }

    /// Keeps in the journal what is about to leave the WAL: what the store took and lost again must be somewhere. Not
    /// before the store took it, or a store that takes nothing would fill the journal. False when the store may have lost
    /// it before it was kept: then it has to be offered again.
    async fn journaled(&self, records: Vec<Record>, losses: u64) -> bool {
        let Some(journal) = &self.journal else { return true };
        journal.keep(records).await;
        self.losses() == losses
    }

    fn stuck(&self, error: &Error) -> Step {
        let matters = !is_outage(error) || error.kind() == Kind::OutcomeUnknown;
        if matters && self.unsaid.not_replayed.is_due(Clock::System.instant()) {
            tracing::error!(%error, "buffered messages cannot be replayed now");
        }
        Step::Stuck
    }
}
