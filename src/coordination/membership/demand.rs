//! Whether a member has demand: whether somebody wants messages from it.

use std::time::Duration;

use crate::platform::clock::Instant;

/// How long demand lasts after a consumer waited, or a delivery was in flight, for the last time. A consumer that settles
/// and reserves again is between two requests for a moment, and one that polls every few hundred milliseconds is there all
/// the time: their partitions must not move back and forth.
pub const LINGER: Duration = Duration::from_secs(1);

/// The demand of one member.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// When somebody wanted messages last, as far as is known.
    wanted: Option<Instant>,
    /// What the heartbeat sent last says; `None` before the first.
    announced: Option<bool>,
}

impl Demand {
    /// Somebody wanted messages at this instant.
    pub(super) fn wanted(&mut self, at: Instant) {
        self.wanted = self.wanted.max(Some(at));
    }

    /// Whether somebody wants messages, or did within [`LINGER`].
    pub(super) fn is_there(&self, now: Instant) -> bool {
        now < self.ends()
    }

    /// Whether the others were told otherwise.
    pub(super) fn has_changed(&self, now: Instant) -> bool {
        self.announced != Some(self.is_there(now))
    }

    /// A heartbeat tells the others.
    pub(super) fn announce(&mut self, now: Instant) {
        self.announced = Some(self.is_there(now));
    }

    /// What the heartbeat sent last says.
    pub(super) fn is_announced(&self) -> bool {
        self.announced == Some(true)
    }

    /// When to look whether it is over.
    pub(super) fn wake(&self, now: Instant) -> Instant {
        if self.is_there(now) { self.ends() } else { Instant::FAR }
    }

    fn ends(&self) -> Instant {
        self.wanted.map_or(Instant::START, |at| at.plus(LINGER))
    }
}
