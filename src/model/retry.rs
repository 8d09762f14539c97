//! When a failed message is tried again, and when it is dead. Pure: chance comes in as a value.

use std::time::Duration;

use dwell_client::wire::topics;
pub use dwell_client::wire::topics::LadderStep;
use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{DELAY_MAX, LADDER_STEPS_MAX};
use crate::model::spelling::names;
use crate::model::time::{ms_up, one_span};

/// Policy for the later messages of a key in a batch when one fails, by a nack or its deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They return with it.
    #[default]
    ReturnRest,
    /// They stay with their consumer, which settles each of them.
    KeepRest,
}

names! { OnFailure::name:
    ReturnRest => "return_rest",
    KeepRest => "keep_rest",
}

impl std::str::FromStr for OnFailure {
    type Err = Error;

    fn from_str(text: &str) -> Result<OnFailure> {
        let known = OnFailure::ALL.into_iter().find(|on_failure| on_failure.name() == text);
        let why =
            || Error::wrong(Fault::Choice, "on_failure", format!("{text:?} is not one of return_rest, keep_rest"));
        known.ok_or_else(why)
    }
}

/// How long to wait before the next attempt.
///
/// In JSON it is written with integers, as in `initial_ms`, and read with these or with text, as in `"initial": "1s"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "topics::Backoff", into = "topics::Backoff")]
pub enum Backoff {
    /// `initial * factor^(attempt - 1)`, at most `max`, shortened by up to `jitter` of itself by chance.
    Exponential {
        /// Before the second attempt. 0 s to 10 years.
        initial: Duration,
        max: Duration,
        /// 1.0 to 100.0.
        factor: f64,
        /// 0.0 (none) to 1.0: the part of the delay that chance may take away, so that failures do not return together.
        jitter: f64,
    },
    /// The delay before the second, third, … attempt; the last step repeats.
    Ladder {
        /// 1 to 32 steps.
        steps: Vec<LadderStep>,
    },
}

impl TryFrom<topics::Backoff> for Backoff {
    type Error = String;

    fn try_from(form: topics::Backoff) -> std::result::Result<Backoff, String> {
        let one = |name, text, ms| one_span(name, text, ms).map_err(|error| error.detail().to_owned());
        let missing = |name: &str| format!("`{name}`: is missing, and so is `{name}_ms`");
        match form {
            topics::Backoff::Exponential { initial, initial_ms, max, max_ms, factor, jitter } => {
                Ok(Backoff::Exponential {
                    initial: one("initial", initial, initial_ms)?.ok_or_else(|| missing("initial"))?,
                    max: one("max", max, max_ms)?.ok_or_else(|| missing("max"))?,
                    factor,
                    jitter,
                })
            }
            topics::Backoff::Ladder { steps: Some(_), steps_ms: Some(_) } => {
                Err("`steps`: is given together with `steps_ms`; give one of them".to_owned())
            }
            topics::Backoff::Ladder { steps: Some(steps), steps_ms: None } => Ok(Backoff::Ladder { steps }),
            topics::Backoff::Ladder { steps: None, steps_ms: Some(steps) } => Ok(Backoff::Ladder {
                steps: steps.into_iter().map(|ms| LadderStep(Duration::from_millis(ms))).collect(),
            }),
            topics::Backoff::Ladder { steps: None, steps_ms: None } => Err(missing("steps")),
        }
    }
}

impl From<Backoff> for topics::Backoff {
    fn from(backoff: Backoff) -> topics::Backoff {
        match backoff {
            Backoff::Exponential { initial, max, factor, jitter } => {
                let (initial_ms, max_ms) = (Some(initial), Some(max));
                topics::Backoff::Exponential { initial: None, initial_ms, max: None, max_ms, factor, jitter }
            }
            Backoff::Ladder { steps } => topics::Backoff::Ladder {
                steps: None,
                steps_ms: Some(steps.iter().map(|step| ms_up(step.0)).collect()),
            },
        }
    }
}

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
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::range("backoff", why));
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
                    return Err(Error::range("backoff", format!("a ladder has 1 to {LADDER_STEPS_MAX} steps")));
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
    /// use dwell::model::retry::{Backoff, LadderStep};
    /// use std::time::Duration;
    /// let ladder = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(1)), LadderStep(Duration::from_secs(60))] };
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
    fn backoff_parses_both_forms_and_serializes_milliseconds() -> std::result::Result<(), serde_json::Error> {
        let read = |json: &str| serde_json::from_str::<Backoff>(json);
        let written = r#"{"kind":"exponential","initial_ms":1000,"max_ms":600000,"factor":2.0,"jitter":0.2}"#;
        assert_eq!(read(written)?, Backoff::default());
        assert_eq!(serde_json::to_string(&Backoff::default())?, written);
        assert_eq!(read(&written.replace("\"initial_ms\":1000", "\"initial\":\"1s\""))?, Backoff::default());
        let ladder =
            Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(1)), LadderStep(Duration::from_secs(60))] };
        assert_eq!(read(r#"{"kind":"ladder","steps":["1s","1m"]}"#)?, ladder);
        assert_eq!(read(&serde_json::to_string(&ladder)?)?, ladder);
        let refused = [
            (r#"{"kind":"ladder","steps":[5]}"#, "5 has no unit"),
            (r#"{"kind":"ladder","steps":["5s"],"steps_ms":[5]}"#, "`steps`: is given together with `steps_ms`"),
            (r#"{"kind":"ladder"}"#, "`steps`: is missing"),
            (r#"{"kind":"exponential","initial":1,"max_ms":5,"factor":2.0,"jitter":0.2}"#, "1 has no unit"),
            (r#"{"kind":"exponential","max_ms":5,"factor":2.0,"jitter":0.2}"#, "`initial`: is missing"),
            (
                r#"{"kind":"exponential","initial_ms":5,"initial":"5ms","max_ms":5,"factor":2.0,"jitter":0.2}"#,
                "`initial`: is given together with `initial_ms`",
            ),
        ];
        for (json, said) in refused {
            let why = read(json).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(why.contains(said), "{json}: {why}");
        }
        Ok(())
    }

    #[test]
    fn setting_ranges_are_checked() {
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
        assert!(Backoff::Ladder { steps: vec![LadderStep(Duration::ZERO); LADDER_STEPS_MAX + 1] }.check().is_err());
    }
}
