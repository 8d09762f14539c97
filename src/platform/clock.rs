//! The only reader of time. All other code gets time as a value or asks a [`Clock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;
use tokio::sync::watch;

use crate::model::time::{Timestamp, ms_up};

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;

/// This clock may stop during suspend; docs/operate/run.md says so.
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// A reading of the monotonic clock, which also runs while the machine is suspended: a closed laptop or a paused virtual
/// machine must not prolong leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    pub const START: Instant = Instant(Duration::ZERO);

    /// Beyond any timer: about 300 years.
    pub const FAR: Instant = Instant(Duration::from_secs(10_000_000_000));

    pub fn plus(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span))
    }

    pub fn minus(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(span))
    }

    /// Zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// The machine's clock, and the time of messages is ahead of it.
    Ahead(Ahead),
    Manual(Manual),
}

/// How far the time of messages is ahead of the machine's clock: whole milliseconds, and never less than before.
#[derive(Debug, Clone, Default)]
pub struct Ahead(Arc<AtomicU64>);

impl Ahead {
    pub fn by(span: Duration) -> Ahead {
        let ahead = Ahead::default();
        ahead.advance(span);
        ahead
    }

    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Nothing wakes: who sleeps until a time of messages has to be told.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(ms_up(by), Ordering::SeqCst);
    }
}

#[derive(Debug, Clone)]
pub struct Manual {
    elapsed: Arc<watch::Sender<Duration>>,
    start: Timestamp,
}

impl Manual {
    pub fn at(start: Timestamp) -> Manual {
        Manual { elapsed: Arc::new(watch::Sender::new(Duration::ZERO)), start }
    }

    async fn reached(&self, until: Instant) {
        let mut elapsed = self.elapsed.subscribe();
        // The sender exists as long as `self`, so waiting cannot fail.
        let _ = elapsed.wait_for(|elapsed| *elapsed >= until.0).await;
    }

    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }
}

impl Clock {
    /// The time of messages.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::from_ms(u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)),
            Clock::Ahead(ahead) => Clock::System.now().plus(ahead.get()),
            Clock::Manual(manual) => {
                let elapsed = manual.elapsed.borrow().as_millis();
                Timestamp::from_ms(manual.start.as_ms() + u64::try_from(elapsed).unwrap_or(u64::MAX))
            }
        }
    }

    pub fn now_up(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::from_ms(ms_up(since_1970())),
            Clock::Ahead(ahead) => Clock::System.now_up().plus(ahead.get()),
            Clock::Manual(_) => self.now(),
        }
    }

    /// The machine's time, by which leases, waits and pauses go.
    pub fn instant(&self) -> Instant {
        match self {
            Clock::System | Clock::Ahead(_) => Instant(read(MONOTONIC)),
            Clock::Manual(manual) => Instant(*manual.elapsed.borrow()),
        }
    }

    /// The machine's time, moved ahead as far as the time of messages is: visibility timeouts go by it.
    pub fn elapsed(&self) -> Instant {
        match self {
            Clock::Ahead(ahead) => self.instant().plus(ahead.get()),
            Clock::System | Clock::Manual(_) => self.instant(),
        }
    }

    /// The clock of this machine, for what others check by theirs.
    pub fn of_machine(&self) -> Clock {
        match self {
            Clock::Ahead(_) => Clock::System,
            Clock::System | Clock::Manual(_) => self.clone(),
        }
    }

    /// The boot since which [`Clock::instant`] counts; `None` where the system does not name it.
    pub fn boot_id(&self) -> Option<String> {
        match self {
            Clock::System | Clock::Ahead(_) => {
                let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
                Some(id.trim().to_owned()).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()))
            }
            Clock::Manual(_) => None,
        }
    }

    pub fn manual_now(&self) -> Option<Timestamp> {
        match self {
            Clock::System | Clock::Ahead(_) => None,
            Clock::Manual(_) => Some(self.now()),
        }
    }

    pub async fn sleep_until(&self, until: Instant) {
        match self {
            Clock::System | Clock::Ahead(_) => {
                // The timer stops during suspend, so the clock is read again after it fires.
                loop {
                    let left = until.since(self.instant());
                    if left.is_zero() {
                        return;
                    }
                    tokio::time::sleep(left.min(Duration::from_secs(3_600))).await;
                }
            }
            // Boxed: only tests use it, and it must not enlarge every waiting future.
            Clock::Manual(manual) => Box::pin(manual.reached(until)).await,
        }
    }

    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.instant().plus(span)).await;
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Processor time of this thread, so that a test counts nobody else's.
#[cfg(test)]
pub(crate) fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

pub fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn manual_clock_wakes_sleepers_when_advanced() {
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
    fn only_the_message_clock_is_ahead() {
        let day = Duration::from_secs(86_400);
        let (ahead, before) = (Ahead::by(day), Clock::System.now());
        let clock = Clock::Ahead(ahead.clone());
        assert!(clock.now() >= before.plus(day) && clock.now_up() >= clock.of_machine().now().plus(day));
        ahead.advance(day);
        assert_eq!(ahead.get(), day * 2);
        let (instant, elapsed) = (clock.instant(), clock.elapsed());
        assert!(instant < Clock::System.instant().plus(day) && elapsed >= instant.plus(day * 2));
    }

    #[test]
    fn monotonic_clock_never_goes_back() {
        let before = Clock::System.instant();
        assert!(Clock::System.instant() >= before);
    }
}
