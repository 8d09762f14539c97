//! The topics as a table: what is known of each, which are shown, and in which order.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use super::snapshot::{Quantile, Rates, TopicRates};
use crate::cli::api::Counts;

/// What a topic holds, in all its groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Depth {
    pub(super) scheduled: u64,
    pub(super) ready: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
    /// How long the oldest ready message has been.
    pub(super) oldest: Option<Duration>,
}

/// A line of the table. What was not asked for yet is absent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) depth: Option<Depth>,
    pub(super) rates: Option<TopicRates>,
}

/// What the table is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Name,
    Ready,
    Oldest,
    Dead,
    Scheduled,
    Pushes,
    Deliveries,
    Lateness,
}

impl Sort {
    const ALL: [Sort; 8] = [
        Sort::Name,
        Sort::Ready,
        Sort::Oldest,
        Sort::Dead,
        Sort::Scheduled,
        Sort::Pushes,
        Sort::Deliveries,
        Sort::Lateness,
    ];

    pub(super) fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL.get(at + 1).copied().unwrap_or_default()
    }

    /// The column that it is.
    pub(super) fn column(self) -> &'static str {
        match self {
            Sort::Name => "topic",
            Sort::Ready => "ready",
            Sort::Oldest => "oldest ready",
            Sort::Dead => "dead",
            Sort::Scheduled => "scheduled",
            Sort::Pushes => "pushes/s",
            Sort::Deliveries => "deliv/s",
            Sort::Lateness => "late p99",
        }
    }

    /// What sorts the greatest first; what is not known comes last.
    fn value(self, row: &Row) -> f64 {
        let depth = |of: fn(&Depth) -> f64| row.depth.as_ref().map_or(-1.0, of);
        let rate = |of: fn(&TopicRates) -> f64| row.rates.as_ref().map_or(-1.0, of);
        match self {
            Sort::Name => 0.0,
            Sort::Ready => depth(|depth| depth.ready as f64),
            Sort::Oldest => depth(|depth| depth.oldest.map_or(-1.0, |oldest| oldest.as_secs_f64())),
            Sort::Dead => depth(|depth| depth.dead as f64),
            Sort::Scheduled => depth(|depth| depth.scheduled as f64),
            Sort::Pushes => rate(|rates| rates.pushes),
            Sort::Deliveries => rate(|rates| rates.deliveries),
            Sort::Lateness => rate(|rates| match rates.lateness_p99 {
                None => -1.0,
                Some(Quantile::About(seconds) | Quantile::Beyond(seconds)) => seconds,
            }),
        }
    }
}

impl Depth {
    /// The sum over groups.
    pub(super) fn of(totals: &[Counts]) -> Depth {
        let mut depth = Depth::default();
        for counts in totals {
            depth.scheduled += counts.scheduled;
            depth.ready += counts.ready;
            depth.in_flight += counts.in_flight;
            depth.dead += counts.dead;
            depth.oldest = depth.oldest.max(age_of(counts));
        }
        depth
    }
}

/// How long the oldest ready message of these has been ready.
pub(super) fn age_of(counts: &Counts) -> Option<Duration> {
    counts.oldest_ready_age_ms
}

/// The rows whose names hold the filter, sorted.
pub(super) fn rows(
    names: &[String],
    depths: &HashMap<String, Depth>,
    rates: Option<&Rates>,
    filter: &str,
    sort: Sort,
) -> Vec<Row> {
    let row = |name: &String| Row {
        name: name.clone(),
        depth: depths.get(name).cloned(),
        rates: rates.and_then(|rates| rates.of(name)),
    };
    let mut rows: Vec<Row> = names.iter().filter(|name| name.contains(filter)).map(row).collect();
    rows.sort_by(|a, b| {
        let by_value = sort.value(b).partial_cmp(&sort.value(a)).unwrap_or(Ordering::Equal);
        by_value.then_with(|| a.name.cmp(&b.name))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filtered_and_the_greatest_comes_first() {
        let names = ["orders", "mail", "order-mail"].map(str::to_owned);
        let depth = |ready, oldest| Depth { ready, oldest: Some(Duration::from_secs(oldest)), ..Depth::default() };
        let depths = HashMap::from([("orders".to_owned(), depth(3, 1)), ("mail".to_owned(), depth(5, 9))]);
        let names_by = |filter, sort| {
            let rows = rows(&names, &depths, None, filter, sort);
            rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names_by("", Sort::Name), ["mail", "order-mail", "orders"]);
        assert_eq!(names_by("order", Sort::Name), ["order-mail", "orders"]);
        assert_eq!(names_by("", Sort::Ready), ["mail", "orders", "order-mail"]);
        assert_eq!(names_by("", Sort::Lateness), ["mail", "order-mail", "orders"]);
    }

    #[test]
    fn sorting_goes_round_and_groups_are_added() {
        let mut sort = Sort::default();
        for expected in Sort::ALL.iter().skip(1).chain([&Sort::Name]) {
            sort = sort.next();
            assert_eq!(sort, *expected);
        }
        let counts = |ready, age: Option<u64>| Counts {
            partition: None,
            group: "g".to_owned(),
            scheduled: 1,
            ready,
            in_flight: 2,
            dead: 3,
            next_due_at: None,
            oldest_ready_age_ms: age.map(Duration::from_secs),
            owner: None,
        };
        let depth = Depth::of(&[counts(4, Some(2)), counts(5, Some(60)), counts(0, None)]);
        let oldest = Some(Duration::from_secs(60));
        assert_eq!(depth, Depth { scheduled: 3, ready: 9, in_flight: 6, dead: 9, oldest });
    }
}
