//! How a group is doing, in a word, and lines that draw numbers.

use crate::cli::api::Counts;
use crate::model::message::LATE;

/// In the order of how much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Condition {
    #[default]
    Empty,
    Fine,
    DeadLetters,
    Copying,
    Paused,
    Late,
    NoConsumer,
}

impl Condition {
    /// Of a group in this state of the API, by its counts and those of its partitions.
    pub(super) fn of(state: &str, total: &Counts, partitions: &[Counts]) -> Condition {
        let is_late = total.oldest_ready_age_ms.is_some_and(|age| age >= LATE);
        let mut own = partitions.iter().filter(|partition| partition.group == total.group);
        match state {
            "paused" => Condition::Paused,
            "copying" => Condition::Copying,
            _ if is_late && own.any(|partition| partition.ready > 0 && partition.owner.is_none()) => {
                Condition::NoConsumer
            }
            _ if is_late => Condition::Late,
            _ if total.dead > 0 => Condition::DeadLetters,
            _ if total.scheduled + total.ready + total.in_flight > 0 => Condition::Fine,
            _ => Condition::Empty,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Condition::Empty => "empty",
            Condition::Fine => "ok",
            Condition::DeadLetters => "dead letters",
            Condition::Copying => "copying",
            Condition::Paused => "paused",
            Condition::Late => "late",
            Condition::NoConsumer => "no consumer",
        }
    }
}

/// A bar for each value, the highest for the greatest.
pub(super) fn sparkline(values: impl Iterator<Item = f64> + Clone) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.clone().fold(0.0, f64::max);
    let bar = |value: f64| {
        let part = if most > 0.0 { value / most } else { 0.0 };
        BARS.get((part * 7.0).ceil() as usize).copied().unwrap_or('█')
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_group_is_as_bad_as_the_worst_that_is_true_of_it() {
        let age = |secs| Some(Duration::from_secs(secs));
        let counts = |ready, dead, oldest_ready_age_ms| Counts {
            group: "g".to_owned(),
            ready,
            dead,
            oldest_ready_age_ms,
            ..Counts::default()
        };
        let owned = [Counts { owner: Some("a".to_owned()), ..counts(1, 0, age(6)) }];
        let unowned = [counts(1, 0, age(6))];
        for (state, total, partitions, word) in [
            ("active", counts(0, 0, None), &owned, "empty"),
            ("active", counts(1, 0, age(4)), &unowned, "ok"),
            ("active", counts(1, 1, age(4)), &owned, "dead letters"),
            ("active", counts(1, 1, age(5)), &owned, "late"),
            ("active", counts(1, 1, age(5)), &unowned, "no consumer"),
            ("paused", counts(1, 1, age(5)), &unowned, "paused"),
            ("copying", counts(0, 0, None), &owned, "copying"),
        ] {
            assert_eq!(Condition::of(state, &total, partitions).word(), word);
        }
        assert!(Condition::NoConsumer > Condition::Late && Condition::Late > Condition::Paused);
    }

    #[test]
    fn a_sparkline_is_as_high_as_its_greatest_value() {
        assert_eq!(sparkline([0.0, 1.0, 50.0, 100.0].into_iter()), "▁▂▅█");
        assert_eq!(sparkline([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(sparkline(std::iter::empty()), "");
    }
}
