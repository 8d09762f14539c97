//! Ids for messages that are pushed without one.
//!
//! They are ULIDs that count up for a while, as monotonic ULIDs do (<https://github.com/ulid/spec>). The partition of a ULID is decided
//! without its last three characters, so messages that are pushed together are in one partition, and cost one call to the store.

use std::sync::{Mutex, PoisonError};

use ulid::Ulid;

/// A run ends after so many ids; what is taken at once is not cut.
const RUN_IDS: usize = 250;
/// Messages of a batch.
const TAKEN_MAX: usize = 1_000;
/// A run also ends after this time, so that a slow producer spreads its messages one by one.
const RUN_MS: u64 = 5;
/// The last three characters of a ULID.
const COUNTED_BITS: u32 = 15;

/// Makes new ids. No two are the same, not in other processes either.
///
/// ```
/// use dwell_client::wire::ids::Ids;
///
/// let ids: Vec<String> = Ids::new().take(2).map(|id| id.to_string()).collect();
/// assert_eq!(ids[0][..23], ids[1][..23]);
/// assert_ne!(ids[0], ids[1]);
/// ```
#[derive(Debug)]
pub struct Ids(Mutex<Run>);

#[derive(Debug)]
struct Run {
    next: u128,
    left: usize,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids::new()
    }
}

impl Ids {
    pub const fn new() -> Ids {
        Ids(Mutex::new(Run { next: 0, left: 0 }))
    }

    /// A new id.
    pub fn one(&self) -> Ulid {
        Ulid(self.first_of(1))
    }

    /// So many ids of one run, at most 1,000, in order.
    pub fn take(&self, count: usize) -> impl Iterator<Item = Ulid> + use<> {
        let first = self.first_of(count.min(TAKEN_MAX));
        (first..first + count.min(TAKEN_MAX) as u128).map(Ulid)
    }

    fn first_of(&self, count: usize) -> u128 {
        let fresh = Ulid::new();
        let mut run = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began_ms = Ulid(run.next).timestamp_ms();
        let is_over = !(began_ms..began_ms + RUN_MS).contains(&fresh.timestamp_ms());
        if run.left == 0 || is_over {
            *run = Run { next: fresh.0 >> COUNTED_BITS << COUNTED_BITS, left: RUN_IDS };
        }
        let first = run.next;
        run.next += count as u128;
        run.left = run.left.saturating_sub(count);
        first
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_of_many_threads_are_unique_and_those_taken_together_share_a_run() {
        let ids = Ids::new();
        let taken = || {
            (0..2_000).map(|n| ids.take(1 + n % 20).map(|id| id.to_string()).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let unique: BTreeSet<&String> = all.iter().flatten().collect();
        assert_eq!(unique.len(), all.iter().map(Vec::len).sum::<usize>());
        assert_eq!(unique.len(), 4 * 21_000);
        for together in &all {
            assert!(together.iter().all(|id| id.len() == 26 && id[..23] == together[0][..23]), "{together:?}");
        }
    }

    #[test]
    fn a_run_ends_after_its_ids_and_after_its_time() {
        let ids = Ids::new();
        let run = || ids.one().0 >> COUNTED_BITS;
        let first = run();
        let runs: BTreeSet<u128> = (0..10 * RUN_IDS).map(|_| run()).collect();
        assert!(runs.len() >= 10, "{}", runs.len());
        std::thread::sleep(std::time::Duration::from_millis(2 * RUN_MS));
        assert_ne!(run(), first);
    }
}
