//! The heartbeat of a member: when to send it, how old what it said is, and the farewell.

use std::time::Duration;

use super::timing::Timing;
use crate::platform::clock::Instant;

/// Farewells that may fail. The heartbeat lapses by itself, and who leaves does not stay for that.
const FAREWELLS_MAX: u32 = 3;

/// One call about the membership is in flight at a time.
#[derive(Debug)]
pub(super) struct HeartbeatTimer {
    timing: Timing,
    /// Regular heartbeats are sent so long after each multiple of their span.
    phase: Duration,
    /// The call in flight, and when it was sent.
    call: Option<(Call, Instant)>,
    last_sent: Option<Instant>,
    next: Instant,
    /// Something was announced after the call in flight was sent.
    again: bool,
    /// When the heartbeat was sent that brought the newest list.
    seen: Option<Instant>,
    /// Nothing is acquired before: the lists had become stale.
    settled: Instant,
    farewells: Farewells,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Beat,
    Farewell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewells {
    Failed(u32),
    Over,
}

impl HeartbeatTimer {
    /// The first heartbeat is due at once. The groups of a process have the same `phase`, so that their heartbeats go together.
    pub(super) fn new(timing: Timing, phase: u32) -> HeartbeatTimer {
        HeartbeatTimer {
            phase: timing.heartbeat().mul_f64(f64::from(phase) / f64::from(u32::MAX)),
            timing,
            call: None,
            last_sent: None,
            next: Instant::START,
            again: false,
            seen: None,
            settled: Instant::START,
            farewells: Farewells::Failed(0),
        }
    }

    /// Whether to send a heartbeat now; if so it counts as sent.
    pub(super) fn beats(&mut self, now: Instant) -> bool {
        self.sends(Call::Beat, now)
    }

    /// Whether to send the farewell now; if so it counts as sent.
    pub(super) fn says_farewell(&mut self, now: Instant) -> bool {
        self.farewells != Farewells::Over && self.sends(Call::Farewell, now)
    }

    fn sends(&mut self, call: Call, now: Instant) -> bool {
        let sends = self.call.is_none() && now >= self.next;
        if sends {
            (self.call, self.last_sent, self.again) = (Some((call, now)), Some(now), false);
        }
        sends
    }

    /// The members changed: a heartbeat brings the new list soon.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.again = true;
        self.next = self.next.min(self.soon(now));
    }

    /// The next call is due at once.
    pub(super) fn turn(&mut self, now: Instant) {
        self.next = now;
    }

    /// When the next regular heartbeat is due, a span after the one sent then or earlier.
    fn regular(&self, sent: Instant) -> Instant {
        let span = self.timing.heartbeat().as_nanos().max(1);
        let into = (sent.since(Instant::START).as_nanos() + span - self.phase.as_nanos()) % span;
        sent.plus(Duration::from_nanos(u64::try_from(span - into).unwrap_or(u64::MAX)))
    }

    fn soon(&self, now: Instant) -> Instant {
        self.last_sent.map_or(now, |sent| sent.plus(self.timing.beat_pause()).max(now))
    }

    /// A heartbeat brought a list of which we are part. Returns whether the list before it had become stale.
    pub(super) fn answered(&mut self, now: Instant) -> bool {
        let Some((_, sent)) = self.call.take() else { return false };
        let was_stale = self.seen.is_some_and(|seen| sent.since(seen) > self.timing.stale_after());
        if was_stale {
            self.settled = now.plus(self.timing.settle());
        }
        self.seen = Some(sent);
        self.next = if self.again { self.soon(now) } else { self.regular(sent) };
        was_stale
    }

    /// Nobody is waited for any more.
    pub(super) fn settle(&mut self, now: Instant) {
        self.settled = self.settled.min(now);
    }

    /// The call failed, or its answer cannot be used.
    pub(super) fn failed(&mut self, now: Instant) {
        let Some((call, _)) = self.call.take() else { return };
        self.next = now.plus(self.timing.beat_retry());
        if call == Call::Farewell {
            self.farewells = match self.farewells {
                Farewells::Failed(times) if times + 1 < FAREWELLS_MAX => Farewells::Failed(times + 1),
                _ => Farewells::Over,
            };
        }
    }

    /// The store has forgotten the heartbeat.
    pub(super) fn departed(&mut self) {
        self.call = None;
        self.farewells = Farewells::Over;
    }

    /// Whether nothing remains to be said.
    pub(super) fn is_over(&self) -> bool {
        self.call.is_none() && self.farewells == Farewells::Over
    }

    /// The member stays after all.
    pub(super) fn revive(&mut self, now: Instant) {
        self.farewells = Farewells::Failed(0);
        self.next = now;
    }

    /// Whether the list is new enough, and has been for long enough, to acquire by it.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        now >= self.settled && self.is_fresh(now)
    }

    /// Whether the list is new enough to go by. If not, only a heartbeat helps.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) <= self.timing.stale_after())
    }

    /// From when on [`HeartbeatTimer::is_settled`], if the lists go on being answered.
    pub(super) fn settled_at(&self) -> Instant {
        self.settled
    }

    /// When to send the next call; never while one is in flight.
    pub(super) fn wake(&self) -> Instant {
        if self.call.is_some() { Instant::FAR } else { self.next }
    }
}
