//! A topic that was opened: its groups, and each of their partitions with its owner.

use super::super::line::{Ink, Line};
use super::super::rows::age_of;
use super::super::state::Opened;
use super::table::{self, PARTITIONS, columns};
use crate::cli::api::{Counts, Topic};
use crate::cli::output::thousands;
use crate::model::time::show_span;

/// The table, from the first line that is shown on.
pub(super) fn lines(opened: &Opened, page: usize, width: usize) -> Vec<Line> {
    let Some(topic) = &opened.topic else {
        return vec![Line::of(
            Ink::Dim,
            format!("asking for {}; if it stays so, it is not there any more", opened.name),
        )];
    };
    let all: Vec<Vec<String>> =
        topic.totals.iter().chain(&topic.partitions).map(|counts| cells(topic, counts)).collect();
    let named = vec![topic.topic.clone()];
    let widths = columns(&PARTITIONS, &[&all[..], &[named]].concat(), width);
    let head = table::head(&PARTITIONS, &widths, "");
    // The name stands where the first column has nothing.
    let first = widths.first().copied().flatten();
    let head = match first {
        Some(wide) => {
            let mut parts = head.0.into_iter();
            parts.next();
            Line(std::iter::once((Ink::Good, format!("{:<wide$}", topic.topic))).chain(parts).collect())
        }
        None => head,
    };
    let row = |(at, cells): (usize, &Vec<String>)| {
        let ink = if at < topic.totals.len() { Ink::Head } else { Ink::Plain };
        table::line(&PARTITIONS, &widths, cells, ink)
    };
    std::iter::once(head).chain(all.iter().enumerate().skip(opened.from).take(page).map(row)).collect()
}

fn cells(topic: &Topic, counts: &Counts) -> Vec<String> {
    let owner = match counts.partition {
        Some(_) => counts.owner.clone().unwrap_or_else(|| "-".to_owned()),
        None => {
            let of_group = topic.partitions.iter().filter(|partition| partition.group == counts.group);
            let (all, owned) = of_group.fold((0, 0), |(all, owned), p| (all + 1, owned + u32::from(p.owner.is_some())));
            format!("{owned} of {all} owned")
        }
    };
    vec![
        String::new(),
        counts.group.clone(),
        counts.partition.map_or("all".to_owned(), |partition| partition.to_string()),
        thousands(counts.scheduled),
        thousands(counts.ready),
        thousands(counts.in_flight),
        thousands(counts.dead),
        age_of(counts).map_or("-".to_owned(), show_span),
        owner,
    ]
}
