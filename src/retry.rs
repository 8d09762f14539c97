//! When a failed message is tried again, and when it is dead. Pure: chance comes in as a value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::{DELAY_MAX, LADDER_STEPS_MAX};
use crate::time::span;

/// How long to wait before the next attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Backoff {
    /// `initial * factor^(attempt - 1)`, at most `max`, shortened by up to `jitter` of itself by chance.
    Exponential {
        /// Before the second attempt. 0 s to 10 years.
        #[serde(with = "span")]
        initial: Duration,
        /// Never longer than this.
        #[serde(with = "span")]
        max: Duration,
        /// 1.0 to 100.0.
        factor: f64,
        /// 0.0 (none) to 1.0: the part of the delay that chance may take away, so that failures do not return together.
        jitter: f64,
    },
    /// The delay before the second, third, … attempt; the last step repeats.
    Ladder {
        /// 1 to 32 steps.
        steps: Vec<Step>,
    },
}

/// One step of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(#[serde(with = "span")] pub Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::Exponential {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(600),
            factor: 2.0,
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// Checks every range. # Errors: [`crate::error::Kind::Invalid`].
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::invalid("backoff", why));
        match self {
            Backoff::Exponential { initial, max, factor, jitter } => {
                if max < initial {
                    return wrong("`max` is shorter than `initial`");
                }
                if *max > DELAY_MAX {
                    return wrong("`max` is longer than 3650 days");
                }
                if !(1.0..=100.0).contains(factor) {
                    return wrong("`factor` is not in 1.0 to 100.0");
                }
                if !(0.0..=1.0).contains(jitter) {
                    return wrong("`jitter` is not in 0.0 to 1.0");
                }
            }
            Backoff::Ladder { steps } => {
                if steps.is_empty() || steps.len() > LADDER_STEPS_MAX {
                    return Err(Error::invalid("backoff", format!("a ladder has 1 to {LADDER_STEPS_MAX} steps")));
                }
                if steps.iter().any(|step| step.0 > DELAY_MAX) {
                    return wrong("a step is longer than 3650 days");
                }
            }
        }
        Ok(())
    }

    /// The delay after attempt number `attempt` (1-based) failed; `chance` is in 0.0 to 1.0.
    ///
    /// ```
    /// use dwell::retry::{Backoff, Step};
    /// use std::time::Duration;
    /// let ladder = Backoff::Ladder { steps: vec![Step(Duration::from_secs(1)), Step(Duration::from_secs(60))] };
    /// assert_eq!(ladder.delay(1, 0.5), Duration::from_secs(1));
    /// assert_eq!(ladder.delay(2, 0.5), Duration::from_secs(60));
    /// assert_eq!(ladder.delay(9, 0.5), Duration::from_secs(60));
    /// ```
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        match self {
            Backoff::Exponential { initial, max, factor, jitter } => {
                let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
                let grown = (initial.as_secs_f64() * factor.powi(exponent)).min(max.as_secs_f64());
                Duration::from_secs_f64(grown * (1.0 - jitter * chance.clamp(0.0, 1.0)))
            }
            Backoff::Ladder { steps } => {
                let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                steps.get(index).or(steps.last()).map_or(Duration::ZERO, |step| step.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_doubles_up_to_ten_minutes_and_jitter_only_shortens() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay(1, 0.0), Duration::from_secs(1));
        assert_eq!(backoff.delay(4, 0.0), Duration::from_secs(8));
        assert_eq!(backoff.delay(4, 1.0), Duration::from_secs_f64(6.4));
        assert_eq!(backoff.delay(u32::MAX, 0.0), Duration::from_secs(600));
    }

    #[test]
    fn ranges_are_checked() {
        let with = |initial, max, factor, jitter| Backoff::Exponential {
            initial: Duration::from_secs(initial),
            max: Duration::from_secs(max),
            factor,
            jitter,
        };
        assert!(with(1, 1, 1.0, 0.0).check().is_ok());
        for bad in [with(2, 1, 2.0, 0.0), with(1, 2, 0.9, 0.0), with(1, 2, f64::NAN, 0.0), with(1, 2, 2.0, 1.1)] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Backoff::Ladder { steps: vec![] }.check().is_err());
        assert!(Backoff::Ladder { steps: vec![Step(Duration::ZERO); LADDER_STEPS_MAX + 1] }.check().is_err());
    }
}
