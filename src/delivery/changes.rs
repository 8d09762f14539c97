//! What happened to the leases of a group, for one line in the log after each heartbeat instead of one for each partition.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::GroupDelivery;
use crate::model::error::Error;

/// What happened since it was logged last.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<Happened>);

#[derive(Debug, Default)]
struct Happened {
    lost: usize,
    /// Why the first of them was lost.
    why: Option<Error>,
    /// Partitions taken over from an owner that was gone, and the messages that it had reserved.
    recovered: usize,
    messages: usize,
}

impl Changes {
    /// A lease was lost.
    pub(super) fn lost(&self, why: &Error) {
        let mut happened = self.lock();
        happened.lost += 1;
        happened.why.get_or_insert_with(|| why.clone());
    }

    /// A partition was taken over with so many messages that an older epoch had reserved.
    pub(super) fn recovered(&self, messages: usize) {
        let mut happened = self.lock();
        happened.recovered += 1;
        happened.messages += messages;
    }

    fn lock(&self) -> MutexGuard<'_, Happened> {
        // Nothing panics while the lock is held; if it did, the counts would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupDelivery {
    /// Logs what happened to leases since the last time.
    pub(super) fn log_changes(&self) {
        let Happened { lost, why, recovered, messages } = std::mem::take(&mut *self.changes.lock());
        let (topic, group) = (&self.descriptor().topic, &self.group);
        if let Some(error) = why {
            tracing::warn!(%topic, %group, partitions = lost, %error, "leases lost");
        }
        if recovered > 0 {
            tracing::info!(%topic, %group, partitions = recovered, messages, "messages of older epochs recovered");
        }
    }
}
