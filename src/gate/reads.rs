//! Limits the reads that cost the store much: a few at once, of one token fewer, and together at most half of the store's time.

use std::num::NonZeroU16;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::identity::Identity;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{HEAVY_READ_WAIT_MAX, HEAVY_READS_MAX};
use crate::platform::clock::{Clock, Instant};

/// Partitions that one call reads: the store does nothing else meanwhile, about a millisecond.
pub(crate) const PARTITIONS_AT_ONCE: usize = 64;

const TURN: Duration = Duration::from_millis(5);
const REST_MAX: Duration = Duration::from_millis(100);

pub(crate) struct ReadLimiter {
    clock: Clock,
    slots: Semaphore,
    pace: Mutex<Pace>,
}

/// The store's time that heavy reads took, and until when it belongs to others.
#[derive(Debug, Default)]
struct Pace {
    busy: Duration,
    free_from: Instant,
}

pub(crate) struct HeavyRead<'a> {
    limiter: &'a ReadLimiter,
    _own: OwnRead,
    _slot: SemaphorePermit<'a>,
}

/// One of the reads that a token may make at once.
struct OwnRead(Identity);

impl Drop for OwnRead {
    fn drop(&mut self) {
        if let Some(own) = self.0.reads() {
            own.add_permits(1);
        }
    }
}

/// A read of a topic: a heavy one if it takes more than one call, since few partitions are as cheap as any other verb.
pub(crate) struct PartitionRead<'a>(Option<HeavyRead<'a>>);

impl ReadLimiter {
    pub(crate) fn new(clock: Clock) -> ReadLimiter {
        ReadLimiter { clock, slots: Semaphore::new(HEAVY_READS_MAX), pace: Mutex::default() }
    }

    /// Waits until a read may begin, at most [`HEAVY_READ_WAIT_MAX`]. Errors: `Full`.
    pub(crate) async fn begin(&self) -> Result<HeavyRead<'_>> {
        let full = || {
            let detail = format!("{HEAVY_READS_MAX} reads over whole topics are under way; try again in a moment");
            Error::new(Kind::Full, detail)
        };
        let who = Identity::current();
        let turn = async {
            // The turn of its token comes first, so that one with many reads does not stand before others.
            if let Some(own) = who.reads() {
                own.acquire().await.map_err(|_| full())?.forget();
            }
            let own = OwnRead(who.clone());
            let slot = self.slots.acquire().await.map_err(|_| full())?;
            Ok(HeavyRead { limiter: self, _own: own, _slot: slot })
        };
        tokio::select! {
            biased;
            read = turn => read,
            () = self.clock.sleep(HEAVY_READ_WAIT_MAX) => Err(full()),
        }
    }

    /// Begins a read of so many partitions. One of many waits for its turn as a heavy read, one of few begins at once. Errors: `Full`.
    pub(crate) async fn begin_for(&self, partitions: NonZeroU16) -> Result<PartitionRead<'_>> {
        let is_heavy = usize::from(partitions.get()) > PARTITIONS_AT_ONCE;
        Ok(PartitionRead(if is_heavy { Some(self.begin().await?) } else { None }))
    }
}

impl PartitionRead<'_> {
    /// Makes one call to the store.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(read) => read.call(call).await,
            None => call.await,
        }
    }
}

impl HeavyRead<'_> {
    /// Makes one call to the store, which should take about a millisecond: nothing else runs in the store meanwhile.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let clock = &self.limiter.clock;
        let mut pace = self.limiter.pace.lock().await;
        clock.sleep_until(pace.free_from).await;
        let began = clock.instant();
        let answer = call.await;
        let ended = clock.instant();
        pace.busy += ended.since(began).min(REST_MAX);
        if pace.busy >= TURN {
            pace.free_from = ended.plus(std::mem::take(&mut pace.busy));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;

    fn limiter() -> (Manual, ReadLimiter) {
        let manual = Manual::at(Timestamp::from_ms(1));
        (manual.clone(), ReadLimiter::new(Clock::Manual(manual)))
    }

    #[tokio::test]
    async fn heavy_reads_use_at_most_half_of_the_store_time() -> Result<()> {
        let (manual, limiter) = limiter();
        let (one, other) = (limiter.begin().await?, limiter.begin().await?);
        one.call(async { manual.advance(TURN) }).await;
        let mut next = Box::pin(other.call(async { Clock::Manual(manual.clone()).instant() }));
        assert!(futures_util::poll!(&mut next).is_pending(), "the store's time belongs to others");
        manual.advance(TURN - Duration::from_millis(1));
        assert!(futures_util::poll!(&mut next).is_pending());
        manual.advance(Duration::from_millis(1));
        assert_eq!(next.await, Instant::START.plus(TURN * 2));
        Ok(())
    }

    #[tokio::test]
    async fn third_heavy_read_waits_and_times_out() -> Result<()> {
        let (manual, limiter) = limiter();
        let (one, _other) = (limiter.begin().await?, limiter.begin().await?);
        let mut third = Box::pin(limiter.begin());
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(one);
        let _third = third.await?;
        let mut fourth = Box::pin(limiter.begin());
        assert!(futures_util::poll!(&mut fourth).is_pending());
        manual.advance(HEAVY_READ_WAIT_MAX);
        assert_eq!(fourth.await.err().map(|error| error.kind()), Some(Kind::Full));
        Ok(())
    }

    #[tokio::test]
    async fn reads_of_one_token_leave_a_turn_to_others() -> Result<()> {
        use crate::gate::identity::Trust;

        let (_manual, limiter) = limiter();
        let [a, b] = ["a", "b"].map(|name| Identity::new(name.into(), Trust::Known));
        let _one = a.clone().scope(limiter.begin()).await?;
        let mut more: Vec<_> = (0..5).map(|_| Box::pin(a.clone().scope(limiter.begin()))).collect();
        for read in &mut more {
            assert!(futures_util::poll!(read).is_pending());
        }
        let _other = b.scope(limiter.begin()).await?;
        Ok(())
    }
}
