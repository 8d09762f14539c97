//! Percentiles of durations.

use std::time::Duration;

/// Percentiles by nearest rank; all zero of nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl Percentiles {
    pub(super) fn of(mut spans: Vec<Duration>) -> Percentiles {
        spans.sort_unstable();
        let rank = |percent: usize| {
            let rank = (spans.len() * percent).div_ceil(100).max(1);
            spans.get(rank - 1).copied().unwrap_or_default()
        };
        Percentiles { p50: rank(50), p99: rank(99), max: rank(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let ms = Duration::from_millis;
        let of = |spans: Vec<u64>| Percentiles::of(spans.into_iter().map(ms).collect());
        assert_eq!(of((1..=100).rev().collect()), Percentiles { p50: ms(50), p99: ms(99), max: ms(100) });
        assert_eq!(of(vec![7]), Percentiles { p50: ms(7), p99: ms(7), max: ms(7) });
        assert_eq!(of(vec![]), Percentiles { p50: ms(0), p99: ms(0), max: ms(0) });
    }
}
