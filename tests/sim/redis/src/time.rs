//! Simulated time.

use std::ops::Add;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    pub fn from_ms(ms: u64) -> Time {
        Time(ms * 1_000)
    }

    /// Whole milliseconds since 1970.
    pub fn as_ms(self) -> u64 {
        self.0 / 1_000
    }

    /// Microseconds since `earlier`; 0 if that is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;

    /// Later by so many microseconds.
    fn add(self, us: u64) -> Time {
        Time(self.0.saturating_add(us))
    }
}
