//! The broker: where it is, whether it is ready, and on what.

use std::time::Duration;

use super::super::line::{Ink, Line};
use super::super::state::State;
use super::table::quantile;
use crate::cli::output::{bytes, thousands};
use crate::model::time::show_span;

/// Three lines.
pub(in super::super) fn header(state: &State) -> Vec<Line> {
    vec![broker(state), store(state), logs(state)]
}

fn broker(state: &State) -> Line {
    let version = state.reading.as_ref().map_or("", |reading| reading.version.as_str());
    let line = Line::of(Ink::Head, format!("dwell {version}").trim_end().to_owned());
    let line = line.and(Ink::Plain, format!("  {}  ", state.server));
    let line = match (&state.away, &state.readiness) {
        (Some(_), _) => line.and(Ink::Bad, "AWAY"),
        (None, None) => line.and(Ink::Dim, "asking"),
        (None, Some(Err(_))) => line.and(Ink::Bad, "NOT READY"),
        (None, Some(Ok(ready))) if ready.detail.is_some() => line.and(Ink::Odd, "DEGRADED"),
        (None, Some(Ok(_))) => line.and(Ink::Good, "ready"),
    };
    match state.topic_count() {
        Some(1) => line.and(Ink::Dim, "  1 topic"),
        Some(count) => line.and(Ink::Dim, format!("  {} topics", thousands(count as u64))),
        None => line,
    }
}

/// The store and what a 201 survives; or what is wrong.
fn store(state: &State) -> Line {
    match &state.readiness {
        None => Line::default(),
        Some(Err(why)) => Line::of(Ink::Bad, why.clone()),
        Some(Ok(ready)) => {
            let line = Line::of(Ink::Plain, format!("{} {}: ", ready.store.kind, ready.store.location));
            match &ready.detail {
                Some(degraded) => line.and(Ink::Odd, degraded.clone()),
                None => line.and(Ink::Dim, ready.store.durability.clone()),
            }
        }
    }
}

/// The logs beside Redis, and how Redis answers. An embedded store has neither.
fn logs(state: &State) -> Line {
    let Some(reading) = &state.reading else { return Line::default() };
    // One that is not ready does not say which it is, but only Redis has logs beside it.
    if reading.logs.is_empty() {
        return Line::of(Ink::Dim, "no log beside it: the store is on this disk");
    }
    let mut line = Line::default();
    for (name, (records, size, age)) in &reading.logs {
        let oldest = Duration::try_from_secs_f64((age * 10.0).round() / 10.0).unwrap_or_default();
        let oldest = if *records > 0.0 { format!(", oldest {}", age_shown(oldest)) } else { String::new() };
        let text = format!("{name} {} records, {}{oldest}  ", thousands(*records as u64), bytes(*size as u64));
        line = line.and(if *records > 0.0 && name == "wal" { Ink::Odd } else { Ink::Plain }, text);
    }
    let line = match reading.is_store_up {
        true => line.and(Ink::Good, "redis answers"),
        false => line.and(Ink::Bad, "redis is AWAY"),
    };
    line.and(Ink::Plain, format!(", p99 {}", quantile(state.rates.as_ref().and_then(|rates| rates.calls_p99))))
}

fn age_shown(age: Duration) -> String {
    match age.as_secs() {
        0..60 => format!("{:.1}s", age.as_secs_f64()),
        seconds => show_span(Duration::from_secs(seconds)),
    }
}
