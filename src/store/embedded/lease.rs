//! The lease of a pair. It lives in memory: opening the store is a takeover.

use std::time::Duration;

use crate::platform::clock::Instant;
use crate::store::{Epoch, MemberId};

/// Who has a pair, and until when.
#[derive(Debug)]
pub(super) struct Lease {
    member: MemberId,
    until: Instant,
    epoch: Epoch,
}

impl Lease {
    /// A lease that runs for `ttl` from `now`.
    pub(super) fn new(member: MemberId, epoch: Epoch, now: Instant, ttl: Duration) -> Lease {
        Lease { member, until: now.plus(ttl), epoch }
    }

    /// Whether it is held under this epoch. It is, even after it lapsed, until somebody takes it.
    pub(super) fn has_epoch(&self, epoch: &Epoch) -> bool {
        self.epoch == *epoch
    }

    /// Its member, unless it lapsed.
    pub(super) fn member(&self, now: Instant) -> Option<&MemberId> {
        (self.until > now).then_some(&self.member)
    }

    /// How long it still runs.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.since(now)
    }

    /// Lets it run for `ttl` from `now`, if this member has it under this epoch.
    pub(super) fn prolong(&mut self, member: &MemberId, epoch: &Epoch, now: Instant, ttl: Duration) -> bool {
        let mine = self.member == *member && self.epoch == *epoch;
        if mine {
            self.until = now.plus(ttl);
        }
        mine
    }
}
