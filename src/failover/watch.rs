//! The loop of the journal: what it kept goes to the store again once that may have lost it.

use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::journal::Journal;
use super::offer::{as_sent, outage};
use super::{Failover, PAGE_BYTES, PAGE_RECORDS, PAUSE};
use crate::clock::Clock;
use crate::store::Store;
use crate::wal::Position;

impl<S: Store> Failover<S> {
    /// Watches over the journal until `stop`: drops what is old enough, and offers all of it again when the store may have
    /// lost some of it. It does so at the start as well, since nobody watched before.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let mut losses = self.store.losses();
        let mut suspected = Some(losses.borrow_and_update().count).filter(|_| self.journal.is_none());
        let mut noticed = losses.borrow().count;
        loop {
            let count = losses.borrow_and_update().count;
            self.metrics.store.losses.inc_by(count - noticed);
            noticed = count;
            if suspected != Some(count) {
                // Another Redis may answer there now.
                self.identified.store(false, Ordering::Relaxed);
                self.restoring.store(self.journal.is_some(), Ordering::Relaxed);
                self.buffered.notify_one();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.offer_journal() => {}
                }
                suspected = Some(count);
                self.made_up.store(count + 1, Ordering::Relaxed);
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
        let before = self.losses();
        match self.limited(self.store.ping()).await {
            Ok(()) if self.losses() == before => {
                if let Err(error) = journal.look().await
                    && self.unsaid.journal_not_trimmed.is_due(Clock::System.instant())
                {
                    tracing::warn!(%error, "journal not trimmed");
                }
            }
            _ => journal.broken(),
        }
    }

    /// Offers the store all that the journal has, until it has answered for all.
    async fn offer_journal(&self) {
        let Some(journal) = &self.journal else { return };
        let (mut after, mut given_back, mut pause) = (None, 0, PAUSE.0);
        loop {
            match self.offer_page(journal, after).await {
                Some((None, _)) => break,
                Some((last, stored)) => (after, pause, given_back) = (last, PAUSE.0, given_back + stored),
                None => {
                    Clock::System.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
        journal.broken();
        self.restoring.store(false, Ordering::Relaxed);
        if given_back > 0 {
            tracing::warn!(messages = given_back, "the store had lost messages: the journal gave them back");
        }
    }

    /// Offers a page of the journal: where it ends, if it is not empty, and how many messages the store had lost. `None`
    /// when it has to be offered again.
    async fn offer_page(&self, journal: &Journal, after: Option<Position>) -> Option<(Option<Position>, u64)> {
        let page = match journal.log().page(after, PAGE_RECORDS, PAGE_BYTES).await {
            Ok(page) => page,
            Err(error) => {
                if self.unsaid.journal_unread.is_due(Clock::System.instant()) {
                    tracing::error!(%error, "journal unreadable: what the store lost is not given back yet");
                }
                return None;
            }
        };
        let Some(last) = page.last().map(|entry| entry.position) else { return Some((None, 0)) };
        if !self.identified.load(Ordering::Relaxed) {
            return None;
        }
        let offered = self.offer(page.into_iter().map(|entry| entry.record).collect()).await;
        if outage(&offered).is_some() {
            return None;
        }
        journal.metrics().replayed.inc_by(offered.stored + offered.duplicate);
        journal.metrics().dropped.inc_by(offered.dropped);
        let stored = offered.stored;
        // What it does not take holds up neither the rest nor the forgetting.
        if !offered.left.is_empty() {
            let left: Vec<_> = offered.left.into_iter().map(as_sent).collect();
            self.wal.append(left.clone()).await.ok()?;
            self.note_behind(&left);
            self.buffered.notify_one();
        }
        Some((Some(last), stored))
    }
}
