//! How far the store's clock is from this machine's: shown, noted for a start without the store, and told when it is far.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::BufferedStore;
use crate::model::error::Result;
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{ClockNote, LogTarget};

/// A machine whose clock is off by more is not kept in time by anyone.
const FAR_US: u64 = 5_000_000;

/// How long changes gather before they are noted, and how long it takes until a disk that failed is tried again.
const GATHER: Duration = Duration::from_secs(1);

/// How long a wall clock that was set while the store is unavailable is not noted.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl<S: LogTarget> BufferedStore<S> {
    pub(super) async fn assume_clock(&self) {
        let mut newest = None;
        for log in [Some(&self.wal), self.journal.as_ref().map(|journal| journal.log())].into_iter().flatten() {
            let Ok(Some(entry)) = log.newest().await else { continue };
            newest = newest.max(Some(entry.at));
            entry.record.version().into_iter().for_each(|version| self.store.clock().witness(version));
        }
        self.store.clock().assume(self.wal.clock_note().as_ref(), newest);
    }

    pub(super) async fn remember_clock(&self, note: Option<&ClockNote>) -> Result<()> {
        match note {
            Some(note) => self.wal.remember_clock(note).await,
            None => Ok(()),
        }
    }

    /// Watches the offset until `stop`. It is noted when it changes, not only at the end: a process that is killed
    /// shall find it as well.
    pub(super) async fn watch_clock(&self, stop: CancellationToken) {
        let mut changes = self.store.clock().changes();
        let (mut noted, mut told_us, off) = (None, 0, RepeatThrottle::default());
        loop {
            let note = changes.borrow_and_update().clone();
            if let Some(ahead_us) = note.as_ref().map(|note| note.ahead_us) {
                self.metrics.store.clock_offset.set(-(ahead_us as f64) / 1_000_000.0);
                if noted != note && self.remember_clock(note.as_ref()).await.is_ok() {
                    noted.clone_from(&note);
                }
                // Nodes of a cluster that disagree are no reason to say so each second.
                if is_news(told_us, ahead_us) && off.is_due(Clock::System.instant()) {
                    log_offset(ahead_us);
                    told_us = ahead_us;
                }
                if noted != note || is_news(told_us, ahead_us) {
                    changes.mark_changed();
                }
            }
            let gathered = async {
                Clock::System.sleep(GATHER).await;
                changes.changed().await
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = gathered => if changed.is_err() { return },
                () = Clock::System.sleep(LOOK_AGAIN) => self.store.clock().look(),
            }
        }
    }
}

fn is_news(told_us: i64, ahead_us: i64) -> bool {
    told_us.abs_diff(ahead_us) >= FAR_US
}

fn log_offset(ahead_us: i64) {
    let ahead_seconds = -ahead_us / 1_000_000;
    if ahead_us.unsigned_abs() < FAR_US {
        tracing::info!("the clock of this machine agrees with the store's again");
    } else {
        tracing::warn!(
            ahead_seconds,
            "the clock of this machine is off: messages are due by the store's, times in this log are not"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_is_reported_once_per_change() {
        let offsets = [0, 4_999_999, 300_000_000, 300_400_000, 299_000_000, -60_000_000, -59_000_000, 1_000, 0];
        let mut told = vec![0];
        for ahead_us in offsets {
            if told.last().is_some_and(|last| is_news(*last, ahead_us)) {
                told.push(ahead_us);
            }
        }
        assert_eq!(told, [0, 300_000_000, -60_000_000, 1_000]);
    }
}
