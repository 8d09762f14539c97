//! Telling waiting consumers that there is something.

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Wakes one consumer for what arrives, so that a crowd does not wake for one message; but everyone who does not take every
/// message, for nobody knows which of them may.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    undemanding: Notify,
    demanding: Notify,
}

impl Wakeups {
    /// Resolves when something has arrived.
    pub(super) fn notified(&self, demanding: bool) -> Notified<'_> {
        if demanding { self.demanding.notified() } else { self.undemanding.notified() }
    }

    /// Something has arrived.
    pub(super) fn notify_one(&self) {
        self.undemanding.notify_one();
        self.demanding.notify_waiters();
    }
}
