//! The suspicion that a store lost what it had answered: a Redis that came back as another run, or as another replica.

use std::time::Duration;

use crate::platform::clock::Instant;

/// What is suspected.
///
/// For one lease ttl after it, a member that this process has never heard of may still believe that it owns a pair, so
/// nobody takes one, but for the owner that was valid all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// Counts suspicions; 0 before the first.
    pub count: u64,
    /// Somebody restores what is lost.
    pub restores: bool,
    /// What was lost is being restored: until that is done nothing is reserved.
    pub is_restoring: bool,
    /// When anyone first noticed the last one; `None` when there is nothing to suspect.
    pub since: Option<Instant>,
}

impl Loss {
    /// Whether a loss was noticed, and what was lost is not restored yet.
    pub fn is_giving_back(&self) -> bool {
        self.is_restoring && self.count > 0
    }

    /// Until when no pair may be taken.
    pub fn hold_until(&self, ttl: Duration) -> Instant {
        self.since.map_or(Instant::default(), |since| since.plus(ttl))
    }
}
