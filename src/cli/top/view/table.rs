//! Tables: as many columns as fit, the important ones first.

use super::super::line::{Ink, Line};
use super::super::rows::Row;
use super::super::snapshot::Quantile;
use crate::cli::output::thousands;
use crate::model::time::show_span;

/// A column of a table.
pub(super) struct Column {
    name: &'static str,
    /// Which columns give way first where there is no room: those with the greatest numbers.
    rank: u8,
    is_text: bool,
}

/// Characters between two columns.
const GAP: usize = 2;

pub(super) const TOPICS: [Column; 9] = [
    text("topic", 0),
    number("scheduled", 2),
    number("ready", 1),
    number("in flight", 7),
    number("dead", 3),
    number("oldest ready", 6),
    number("pushes/s", 8),
    number("deliv/s", 5),
    number("late p99", 4),
];

pub(super) const PARTITIONS: [Column; 9] = [
    text("", 8),
    text("group", 2),
    number("partition", 0),
    number("scheduled", 4),
    number("ready", 1),
    number("in flight", 6),
    number("dead", 5),
    number("oldest ready", 7),
    text("owner", 3),
];

const fn text(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: true }
}

const fn number(name: &'static str, rank: u8) -> Column {
    Column { name, rank, is_text: false }
}

/// The names of the cells of a topic.
pub(in super::super) fn names_of_columns() -> Vec<String> {
    TOPICS.iter().map(|column| column.name.to_owned()).collect()
}

/// The cells of a topic.
pub(in super::super) fn cells(row: &Row) -> Vec<String> {
    let depth = |of: fn(&super::super::rows::Depth) -> String| row.depth.as_ref().map_or("-".to_owned(), of);
    let rate = |of: fn(&super::super::snapshot::TopicRates) -> f64| {
        row.rates.as_ref().map_or("-".to_owned(), |rates| format!("{:.1}", of(rates)))
    };
    vec![
        row.name.clone(),
        depth(|depth| thousands(depth.scheduled)),
        depth(|depth| thousands(depth.ready)),
        depth(|depth| thousands(depth.in_flight)),
        depth(|depth| thousands(depth.dead)),
        depth(|depth| depth.oldest.map_or("-".to_owned(), show_span)),
        rate(|rates| rates.pushes),
        rate(|rates| rates.deliveries),
        quantile(row.rates.and_then(|rates| rates.lateness_p99)),
    ]
}

/// A percentile for people.
pub(super) fn quantile(quantile: Option<Quantile>) -> String {
    let seconds = |seconds: f64| match seconds {
        seconds if seconds < 0.1 => format!("{:.1}ms", seconds * 1_000.0),
        seconds if seconds < 10.0 => format!("{:.0}ms", seconds * 1_000.0),
        seconds => format!("{seconds:.0}s"),
    };
    match quantile {
        None => "-".to_owned(),
        Some(Quantile::About(about)) => seconds(about),
        Some(Quantile::Beyond(bound)) => format!(">{}", seconds(bound)),
    }
}

/// How wide each column is; `None` for those that have no room. The first one by rank is always there.
pub(super) fn columns(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<Option<usize>> {
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let mut ranked: Vec<(u8, usize, usize)> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| (column.rank, at, column.name.chars().count().max(widest(at).unwrap_or(0))))
        .collect();
    ranked.sort_unstable();
    let (mut widths, mut left, mut is_full) = (vec![None; columns.len()], width, false);
    for (number, (_, at, wide)) in ranked.into_iter().enumerate() {
        let gap = if number == 0 { 0 } else { GAP };
        // What is less important does not take the place of what did not fit.
        is_full |= number > 0 && wide + gap > left;
        if let Some(place) = widths.get_mut(at).filter(|_| !is_full) {
            *place = Some(wide.min(left));
            left = left.saturating_sub(wide + gap);
        }
    }
    widths
}

/// The names of the columns; the one that it is sorted by stands out.
pub(super) fn head(columns: &[Column], widths: &[Option<usize>], sorted_by: &str) -> Line {
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut line = Line::default();
    for (at, text) in padded(columns, widths, &names) {
        let is_it = columns.get(at).is_some_and(|column| column.name == sorted_by);
        line = line.and(if is_it { Ink::Odd } else { Ink::Head }, text);
    }
    line
}

/// One row.
pub(super) fn line(columns: &[Column], widths: &[Option<usize>], cells: &[String], ink: Ink) -> Line {
    Line::of(ink, padded(columns, widths, cells).into_iter().map(|(_, text)| text).collect::<String>())
}

/// The cells that have room, with their gaps, and which columns they are of.
fn padded(columns: &[Column], widths: &[Option<usize>], cells: &[String]) -> Vec<(usize, String)> {
    let mut padded = Vec::new();
    for (at, ((column, width), cell)) in columns.iter().zip(widths).zip(cells).enumerate() {
        let Some(width) = *width else { continue };
        let gap = if padded.is_empty() { "" } else { "  " };
        let cell: String = cell.chars().take(width).collect();
        padded.push((
            at,
            match column.is_text {
                true => format!("{gap}{cell:<width$}"),
                false => format!("{gap}{cell:>width$}"),
            },
        ));
    }
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_gives_way_by_rank() {
        let shown = |width| -> Vec<&str> {
            let widths = columns(&TOPICS, &[], width);
            TOPICS.iter().zip(widths).filter_map(|(column, width)| width.map(|_| column.name)).collect()
        };
        assert_eq!(shown(0), ["topic"]);
        assert_eq!(shown(12), ["topic", "ready"]);
        assert_eq!(shown(22), ["topic", "ready"]);
        assert_eq!(shown(23), ["topic", "scheduled", "ready"]);
        assert_eq!(shown(200).len(), TOPICS.len());
    }

    #[test]
    fn percentiles_are_as_exact_as_they_are_small() {
        let about = |seconds| quantile(Some(Quantile::About(seconds)));
        assert_eq!([about(0.00123), about(0.25), about(75.0)], ["1.2ms", "250ms", "75s"]);
        assert_eq!([quantile(None), quantile(Some(Quantile::Beyond(60.0)))], ["-", ">60s"]);
    }
}
