//! The loop of the WAL: what was buffered goes to the store once it is back, each record with the version it always had.

use std::sync::PoisonError;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::offer::{Log, is_deduped, outage};
use super::{BufferedStore, CALL_PAGE_BYTES, CALL_PAGE_RECORDS, PAGE_BYTES, PAGE_RECORDS, PAUSE, drop_part_of_a_call};
use crate::model::error::{Error, Kind, Result};
use crate::platform::clock::{Clock, Instant};
use crate::store::{LogTarget, Owners};
use crate::wal::{Entry, Position, Record};

enum ReplayStep {
    Idle,
    Moved(Duration),
    Stuck,
}

impl<S: LogTarget> BufferedStore<S> {
    /// Replays what is buffered until `stop`. After each page it rests as long as the page took, so that live pushes
    /// keep half of the store.
    pub(super) async fn replay(&self, owners: &dyn Owners, stop: CancellationToken) {
        let mut pause = PAUSE.0;
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.list_found() => {}
        }
        loop {
            let waiting = self.wal.depth().records;
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step(owners) => step,
            };
            self.report(&step, waiting);
            self.wal.observe();
            let wait = async {
                match step {
                    ReplayStep::Idle => tokio::select! {
                        () = self.breaker.opened() => {}
                        () = self.buffered.notified() => {}
                    },
                    ReplayStep::Moved(took) => {
                        pause = PAUSE.0;
                        Clock::System.sleep(took).await;
                    }
                    ReplayStep::Stuck => {
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

    /// Lists what an earlier process left in the log; until then any id may be in it, and for good if the log cannot be read.
    async fn list_found(&self) {
        let (found, mut after) = (self.wal.depth().end, None);
        while let (Some(found), true) = (found, self.wal.depth().records > 0) {
            let Ok(page) = self.wal.peek(after, PAGE_RECORDS, PAGE_BYTES).await else { return };
            self.held.appended(page.iter().map(|entry| &entry.record), Some(found));
            after = page.last().map(|entry| entry.position);
            if after.is_none_or(|after| after >= found) {
                return self.held.all_found_are_listed(found);
            }
        }
    }

    fn report(&self, step: &ReplayStep, waiting: u64) {
        match step {
            ReplayStep::Moved(_) if self.throttles.replay.is_due(Clock::System.instant()) => {
                tracing::info!(records = waiting, "replay begun");
            }
            ReplayStep::Idle if self.throttles.replay.is_over() => {
                tracing::info!(replayed = self.wal_metrics.replayed.get(), "replay done");
            }
            ReplayStep::Idle | ReplayStep::Moved(_) | ReplayStep::Stuck => {}
        }
    }

    async fn step(&self, owners: &dyn Owners) -> ReplayStep {
        let began = Clock::System.instant();
        let losses = self.losses();
        let unsure = !self.is_identified(losses) || self.wal.store_identity().is_none();
        if unsure && let Err(error) = self.identify().await {
            self.breaker.open(&error);
            return ReplayStep::Stuck;
        }
        if self.losses() != losses {
            return ReplayStep::Stuck;
        }
        // A cancel of a buffered message waits until the outcome of a page is known.
        let _offering = self.offering.lock().await;
        let end = self.wal.depth().end;
        let page = match self.next_page(CALL_PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => return self.stuck(&error),
        };
        // A page is its own probe: an unavailable node of a cluster does not block the others.
        let Some(last) = page.last().map(|entry| entry.position) else {
            if let Some(end) = end {
                self.behind.done(end);
                self.held.empty(end);
            }
            return self.probe().await;
        };
        if self.is_lossy_after(losses) {
            // Restored records are older, and the progress that the store keeps of this log shows what it has lost.
            return ReplayStep::Stuck;
        }
        if page.iter().any(|entry| self.waits_for_others(&entry.record)) {
            self.probe().await;
            return ReplayStep::Stuck;
        }
        match self.wal.id().await {
            Ok(name) => self.move_page(Log { name: &name, losses, owners }, page, last, began).await,
            Err(error) => self.stuck(&error),
        }
    }

    /// Whether another broker may restore what decides about a record: what became of the message of its id, its topic, or the
    /// first message of its dedup key. Consumers wait for that too, so nobody gets it later.
    fn waits_for_others(&self, record: &Record) -> bool {
        let has_unknown_topic =
            || matches!(record, Record::Create(_)) || self.topic_cache.seen(record.topic()).is_none();
        self.is_loss_suspected() || self.is_restoring() && (is_deduped(record) || has_unknown_topic())
    }

    /// The first page of the WAL, which has all that it has of a call. The journal must not have a call in parts: the store
    /// remembers only its number, so the first part that is restored would say that all of it was kept.
    /// A call of more than `call_bytes` is cut.
    pub(super) async fn next_page(&self, call_bytes: usize) -> Result<Vec<Entry>> {
        let mut page = self.wal.page(None, PAGE_RECORDS, PAGE_BYTES).await?;
        if !drop_part_of_a_call(&mut page, self.wal.depth().end) {
            page = self.wal.page(None, CALL_PAGE_RECORDS, call_bytes).await?;
            drop_part_of_a_call(&mut page, self.wal.depth().end);
        }
        Ok(page)
    }

    async fn probe(&self) -> ReplayStep {
        if self.breaker.reason().is_some()
            && let Err(error) = self.limited(self.store.ping()).await
        {
            self.breaker.open(&error);
            return ReplayStep::Stuck;
        }
        self.breaker.close();
        ReplayStep::Idle
    }

    /// Gives a page to the store. Records that the store certainly did not take go to the end of the WAL, so that they hold up
    /// nothing; those that it perhaps took, and those with an order, hold their page.
    async fn move_page(&self, log: Log<'_>, page: Vec<Entry>, last: Position, began: Instant) -> ReplayStep {
        let is_all = self.wal.depth().records <= page.len() as u64;
        let held: Vec<u64> = page.iter().flat_map(|entry| self.held.keys_of(&entry.record)).collect();
        let mut offered = self.offer(log, page).await;
        let is_sent = offered.is_unknown || offered.done() > 0;
        let perhaps_sent = self.change_perhaps_sent(|before| before.max(is_sent.then_some(last)));
        if let Some(away) = outage(&offered) {
            self.breaker.open(away);
            return self.keep_page(perhaps_sent).await;
        }
        self.breaker.close();
        let (done, is_torn) = (offered.done(), offered.forget_parts());
        if let Some(why) = &offered.why
            && self.throttles.not_taken.is_due(Clock::System.instant())
        {
            tracing::warn!(error = %why, records = offered.left.len(), "buffered messages not taken by the store: tried again");
        }
        let is_kept = self.keep_page_answers(log.name, std::mem::take(&mut offered.answers), log.losses).await;
        let has_order = offered.left.iter().any(|record| self.has_order(record));
        self.behind.set_stuck(has_order);
        if !is_kept || is_torn || offered.is_unknown || has_order || (done == 0 && is_all) {
            return self.keep_page(perhaps_sent).await;
        }
        let left = std::mem::take(&mut offered.left);
        if let Err(error) = self.wal.append(left.clone()).await {
            return self.stuck(&error);
        }
        self.held.appended(&left, self.wal.depth().end);
        self.wal_metrics.replayed.inc_by(offered.stored + offered.duplicate);
        self.wal_metrics.dropped.inc_by(offered.dropped);
        if let Err(error) = self.wal.trim(last).await {
            return self.stuck(&error);
        }
        self.change_perhaps_sent(|before| before.filter(|before| *before > last));
        self.behind.done(last);
        self.held.done(last, &held);
        if done == 0 { ReplayStep::Stuck } else { ReplayStep::Moved(Clock::System.instant().since(began)) }
    }

    /// Leaves a page where it is. If the store certainly has none of it, it may be cancelled.
    async fn keep_page(&self, perhaps_sent: Option<Position>) -> ReplayStep {
        if perhaps_sent.is_none()
            && let Err(error) = self.wal.take_back().await
        {
            return self.stuck(&error);
        }
        ReplayStep::Stuck
    }

    /// The last record of a page that is still in the WAL, though the store perhaps took something of it.
    pub(super) fn perhaps_sent(&self) -> Option<Position> {
        self.change_perhaps_sent(|before| before)
    }

    fn change_perhaps_sent(&self, change: impl FnOnce(Option<Position>) -> Option<Position>) -> Option<Position> {
        let mut perhaps_sent = self.perhaps_sent.lock().unwrap_or_else(PoisonError::into_inner);
        *perhaps_sent = change(*perhaps_sent);
        *perhaps_sent
    }

    fn stuck(&self, error: &Error) -> ReplayStep {
        let matters = !error.is_outage() || error.kind() == Kind::OutcomeUnknown;
        if matters && self.throttles.not_replayed.is_due(Clock::System.instant()) {
            tracing::error!(%error, "buffered messages cannot be replayed now");
        }
        ReplayStep::Stuck
    }
}
