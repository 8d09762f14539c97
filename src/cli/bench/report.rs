//! The result: a table for people, and a file for programs.

use std::path::Path;

use serde::Serialize;

use super::Bench;
use super::results::Row;
use crate::cli::failure::Failure;
use crate::cli::output;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;

/// The file.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    at: Timestamp,
    machine: String,
    store: &'a str,
    messages: usize,
    payload_bytes: usize,
    rounds: usize,
    rows: Vec<Row>,
}

/// Prints the table, and writes the file if one is wanted.
pub(super) fn publish(bench: &Bench, store: &str, json: Option<&Path>) -> Result<(), Failure> {
    let rows = bench.book.borrow().rows();
    output::line(format_args!(
        "\ndwell {}, {}, {store}\n{} messages of {} bytes, {} partitions; the median of {} runs, the lowest and the highest\n",
        env!("CARGO_PKG_VERSION"),
        machine(),
        output::thousands(u64::try_from(bench.plan.messages).unwrap_or(u64::MAX)),
        bench.payload.len(),
        bench.plan.partitions,
        bench.plan.rounds,
    ))?;
    output::line(table(&rows))?;
    let Some(path) = json else { return Ok(()) };
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        at: Clock::System.now(),
        machine: machine(),
        store,
        messages: bench.plan.messages,
        payload_bytes: bench.payload.len(),
        rounds: bench.plan.rounds,
        rows,
    };
    let failed = |why: String| Failure::new(format!("cannot write {}: {why}", path.display()));
    let text = serde_json::to_string_pretty(&document).map_err(|error| failed(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| failed(error.to_string()))
}

/// What this ran on.
pub(super) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{processors} processors ({model})")
}

fn table(rows: &[Row]) -> String {
    let head = ["measure", "way", "median", "lowest", "highest", "unit", "ratio", "to"].map(str::to_owned).to_vec();
    let mut cells = vec![head];
    let mut before = "";
    for row in rows {
        let measure = if row.measure == before { "" } else { row.measure };
        before = row.measure;
        cells.push(vec![
            measure.to_owned(),
            row.way.clone(),
            number(row.median),
            number(row.lowest),
            number(row.highest),
            row.unit.to_owned(),
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            row.ceiling.clone().unwrap_or_default(),
        ]);
    }
    output::columns(&cells, &[2, 3, 4, 6])
}

/// Three digits that count, or all before the point.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => {
            let whole = value.round() as u64;
            output::thousands(whole)
        }
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, text) in [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (1_234.5, "1,235"), (100.0, "100")] {
            assert_eq!(number(value), text);
        }
    }
}
