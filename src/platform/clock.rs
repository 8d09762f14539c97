//! The only reader of time. Everything else gets time as a value or asks a [`Clock`].

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::model::time::{Timestamp, ms_up};

/// A reading of the monotonic clock that also runs while the machine is suspended.
///
/// Lease validity and deadlines are counted on it: a laptop lid or a paused virtual machine must not prolong them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The start of the clock.
    pub const START: Instant = Instant(Duration::ZERO);

    /// Further away than any timer: about 300 years.
    pub const FAR: Instant = Instant(Duration::from_secs(10_000_000_000));

    /// This instant plus a span.
    pub fn plus(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span))
    }

    /// This instant minus a span, not before the start of the clock.
    pub fn minus(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(span))
    }

    /// The span since an earlier instant; zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Time for one process: the system's, or one that a test moves by hand.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The clocks of the operating system.
    #[default]
    System,
    /// A clock that stands still until a test advances it.
    Manual(Manual),
}

/// The hands of a manual clock; clones share them.
#[derive(Debug, Clone)]
pub struct Manual {
    elapsed: Arc<watch::Sender<Duration>>,
    start: Timestamp,
}

impl Manual {
    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Manual {
        Manual { elapsed: Arc::new(watch::Sender::new(Duration::ZERO)), start }
    }

    async fn reached(&self, until: Instant) {
        let mut elapsed = self.elapsed.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = elapsed.wait_for(|elapsed| *elapsed >= until.0).await;
    }

    /// Moves time forward and wakes everything that slept until then.
    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }
}

impl Clock {
    /// Wall time, cut to the millisecond.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            Clock::Manual(manual) => {
                let elapsed = manual.elapsed.borrow().as_millis();
                Timestamp::from_ms(manual.start.as_ms() + u64::try_from(elapsed).unwrap_or(u64::MAX))
            }
        }
    }

    /// Wall time, rounded up to the millisecond: never behind.
    pub fn now_up(&self) -> Timestamp {
        match self {
            Clock::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_ms(ms_up(since))
            }
            Clock::Manual(_) => self.now(),
        }
    }

    /// Monotonic time.
    pub fn instant(&self) -> Instant {
        match self {
            Clock::System => Instant(boot_time()),
            Clock::Manual(manual) => Instant(*manual.elapsed.borrow()),
        }
    }

    /// The id of the boot since which [`Clock::instant`] counts; `None` where the system does not name it.
    pub fn boot_id(&self) -> Option<String> {
        match self {
            Clock::System => boot_id(),
            Clock::Manual(_) => None,
        }
    }

    /// The wall time that a test set, to be used in place of the store's own clock.
    pub fn manual_now(&self) -> Option<Timestamp> {
        match self {
            Clock::System => None,
            Clock::Manual(_) => Some(self.now()),
        }
    }

    /// Returns once [`Clock::instant`] has reached `until`; at once if it has.
    pub async fn sleep_until(&self, until: Instant) {
        match self {
            Clock::System => {
                // The timer does not run through suspend, so it is asked again after it fires.
                loop {
                    let left = until.since(self.instant());
                    if left.is_zero() {
                        return;
                    }
                    tokio::time::sleep(left.min(Duration::from_secs(3_600))).await;
                }
            }
            // A part of every loop that waits, and only tests take it: it is no part of their size.
            Clock::Manual(manual) => Box::pin(manual.reached(until)).await,
        }
    }

    /// Returns after a span.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.instant().plus(span)).await;
    }
}

/// CPU time that this process has taken so far.
pub fn cpu_time() -> Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(taken.tv_sec.unsigned_abs(), u32::try_from(taken.tv_nsec).unwrap_or(0))
}

#[cfg(target_os = "linux")]
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()))
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> Option<String> {
    None
}

#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    // Elsewhere the monotonic clock may stop in suspend; docs/operate/run.md says so.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_its_sleepers_when_moved() {
        let manual = Manual::at(Timestamp::from_ms(1_000));
        let clock = Clock::Manual(manual.clone());
        let until = clock.instant().plus(Duration::from_millis(5));
        let sleeper = tokio::spawn(async move {
            clock.sleep_until(until).await;
            clock.now()
        });
        manual.advance(Duration::from_millis(4));
        manual.advance(Duration::from_millis(2));
        assert_eq!(sleeper.await.ok(), Some(Timestamp::from_ms(1_006)));
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let before = Clock::System.instant();
        assert!(Clock::System.instant() >= before);
    }
}
