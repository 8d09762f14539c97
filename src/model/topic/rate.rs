//! How fast a group hands out: its slots.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{RATE_MAX, RATE_MIN, SLOT_OPEN};

/// So many messages a second at most, by all members of a group together.
///
/// Each hand-over needs a slot of its own. Slots begin at least [`Rate::spacing`] apart and are open for [`SLOT_OPEN`];
/// one that nobody used in that time is gone. In any second there are hand-overs of slots that began in it or up to
/// `SLOT_OPEN` before, in an interval of 1.05 s without its ends; and since slots are 1.05 s divided by the rate apart,
/// that is never more of them than the rate, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

impl Rate {
    /// # Errors
    /// `Invalid` out of range.
    pub fn new(per_second: f64) -> Result<Rate> {
        Rate::checked(per_second, per_second).map_err(|why| Error::wrong(Fault::Range, "rate", why))
    }

    /// Reads a limit as people write it; 0 is none.
    ///
    /// # Errors
    /// Why it is none: not a number, or out of range; also a number so small that a computer takes it for 0.
    pub fn read_limit(text: &str) -> Result<Option<Rate>, String> {
        let per_second: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !mantissa.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
        match per_second == 0.0 && is_zero {
            true => Ok(None),
            false => Rate::checked(per_second, text).map(Some),
        }
    }

    fn checked(per_second: f64, shown: impl std::fmt::Display) -> Result<Rate, String> {
        if (RATE_MIN..=RATE_MAX).contains(&per_second) {
            return Ok(Rate(per_second));
        }
        Err(format!("{shown} is not in {RATE_MIN} to {RATE_MAX} messages a second"))
    }

    /// From the beginning of one slot to that of the next; rounded up to microseconds.
    pub fn spacing(self) -> Duration {
        let micros = ((Duration::from_secs(1) + SLOT_OPEN).as_secs_f64() * 1e6 / self.0).ceil();
        Duration::from_micros(micros as u64)
    }
}

impl TryFrom<f64> for Rate {
    type Error = Error;

    fn try_from(per_second: f64) -> Result<Rate> {
        Rate::new(per_second)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> f64 {
        rate.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_slots_than_the_rate() -> Result<()> {
        for rate in [1.0, 3.0, 7.0, 10.0, 47.0, 1_000.0] {
            let spacing = Rate::new(rate)?.spacing();
            // Slots that began in the second or were still open at its beginning, wherever it begins.
            let seen = Duration::from_secs(1) + SLOT_OPEN;
            let most = (seen.as_nanos() - 1) / spacing.as_nanos() + 1;
            assert!(most as f64 <= rate, "{most} of {rate}");
            assert!(most as f64 > rate * 0.9, "{most} of {rate}");
        }
        assert_eq!(Rate::new(0.5)?.spacing(), Duration::from_millis(2_100));
        assert!(Rate::new(RATE_MAX).is_ok() && Rate::new(RATE_MIN).is_ok());
        for none in ["0", "0.0", "-0", "0e5", "0E-9"] {
            assert_eq!(Rate::read_limit(none), Ok(None), "{none}");
        }
        for wrong in ["1e-400", "0.1e-400", "-1e-999", "1e400", "nan", "", "5x", "0.0001"] {
            assert!(Rate::read_limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Rate::read_limit("2.5e1"), Ok(Some(Rate::new(25.0)?)));
        for wrong in [0.0, -1.0, RATE_MAX * 1.01, RATE_MIN / 2.0, f64::NAN, f64::INFINITY] {
            assert!(Rate::new(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }
}
