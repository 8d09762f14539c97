//! Results: one figure for each measure and way, with all its runs; the table and the file of them.

use std::fmt;
use std::num::NonZeroU16;

use serde::Serialize;

use super::Bench;
use crate::cli::failure::Failure;
use crate::cli::{PrintArgs, output};
use crate::model::spelling::{counted, thousands};
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;

/// Names of a figure: the measure, and the way to it.
pub(super) type Name = (&'static str, String);

#[derive(Debug, Default)]
pub(super) struct Results {
    figures: Vec<Figure>,
}

#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) name: Name,
    pub(super) unit: &'static str,
    pub(super) runs: Vec<f64>,
    pub(super) ceiling: Option<Name>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) measure: &'static str,
    pub(super) way: String,
    pub(super) unit: &'static str,
    pub(super) median: f64,
    pub(super) lowest: f64,
    pub(super) highest: f64,
    pub(super) runs: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
}

impl Results {
    pub(super) fn note(&mut self, name: Name, unit: &'static str, value: f64, ceiling: Option<Name>) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.runs.push(value),
            None => self.figures.push(Figure { name, unit, runs: vec![value], ceiling }),
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |figure: &Figure| {
            let ceiling = figure.ceiling.as_ref().filter(|name| **name != figure.name);
            let of = ceiling.and_then(|name| self.figures.iter().find(|other| other.name == *name));
            let median = median(&figure.runs);
            let ratio = of.map(|of| self::median(&of.runs)).filter(|of| *of > 0.0).map(|of| median / of);
            Row {
                measure: figure.name.0,
                way: figure.name.1.clone(),
                unit: figure.unit,
                median,
                lowest: figure.runs.iter().copied().reduce(f64::min).unwrap_or_default(),
                highest: figure.runs.iter().copied().reduce(f64::max).unwrap_or_default(),
                runs: figure.runs.clone(),
                ceiling: of.map(|of| of.name.1.clone()).filter(|_| ratio.is_some()),
                ratio,
            }
        };
        let mut measures = Vec::new();
        for figure in &self.figures {
            if !measures.contains(&figure.name.0) {
                measures.push(figure.name.0);
            }
        }
        let of = |measure| self.figures.iter().filter(move |figure| figure.name.0 == measure);
        measures.into_iter().flat_map(of).map(row).collect()
    }
}

/// The middle run; of an even number the lower of the two.
fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    at: Timestamp,
    machine: String,
    store: &'a str,
    messages: usize,
    payload_bytes: usize,
    partitions: NonZeroU16,
    rounds: usize,
    rows: Vec<Row>,
}

/// Prints the few figures that matter, then all of them.
pub(super) fn publish(bench: &Bench, store: &str, print: &PrintArgs) -> Result<(), Failure> {
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        at: Clock::System.now(),
        machine: machine(),
        store,
        messages: bench.plan.messages,
        payload_bytes: bench.payload.len(),
        partitions: bench.plan.partitions,
        rounds: bench.plan.rounds,
        rows: bench.results.borrow().rows(),
    };
    print.value(&document, Document::to_string)
}

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Document { version, machine, store, payload_bytes, partitions, rounds, .. } = self;
        let messages = thousands(u64::try_from(self.messages).unwrap_or(u64::MAX));
        writeln!(f, "dwell {version} on {store}, {machine}")?;
        writeln!(f, "{}\n", short(&self.rows))?;
        writeln!(f, "{messages} messages of {payload_bytes} bytes, {partitions} partitions")?;
        writeln!(
            f,
            "the median of {}, the lowest and the highest, and its ratio to what the machine does without dwell\n",
            counted(*rounds, "run")
        )?;
        f.write_str(&table(&self.rows))
    }
}

/// The figures that most people ask for first, by measure and way: over HTTP.
const ASKED_FIRST: [(&str, &str, &str); 5] = [
    ("push", "HTTP, batch", "batch 100"),
    ("life", "HTTP, batch", "batch 100"),
    ("life", "HTTP, single, 32", "connections"),
    ("lateness", "HTTP, 2000/s", "p99"),
    ("burst", "HTTP", "last ack"),
];

/// A line for each of them that was measured.
fn short(rows: &[Row]) -> String {
    let is_it = |row: &&Row, (measure, start, end): (&str, &str, &str)| {
        row.measure == measure && row.way.starts_with(start) && row.way.ends_with(end)
    };
    let found = ASKED_FIRST.into_iter().filter_map(|asked| rows.iter().find(|row| is_it(row, asked)));
    let line = |row: &Row| vec![format!("  {}", row.measure), row.way.clone(), number(row.median), row.unit.to_owned()];
    output::columns(&found.map(line).collect::<Vec<_>>(), &[2])
}

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

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => {
            let whole = value.round() as u64;
            thousands(whole)
        }
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_shows_medians_and_their_ratio() {
        let mut results = Results::default();
        let name = |way: &str| ("push", way.to_owned());
        for value in [30.0, 10.0, 20.0] {
            results.note(name("library"), "messages/s", value, Some(name("bare")));
            results.note(name("HTTP"), "messages/s", value, Some(name("not measured")));
            results.note(name("bare"), "messages/s", value * 2.0, None);
        }
        let rows = results.rows();
        let [library, http, bare] = &rows[..] else { return assert_eq!(rows.len(), 3) };
        assert_eq!((library.median, library.lowest, library.highest), (20.0, 10.0, 30.0));
        assert_eq!((library.ratio, library.ceiling.as_deref()), (Some(0.5), Some("bare")));
        assert_eq!((http.ratio, http.ceiling.as_deref()), (None, None));
        assert_eq!((bare.median, bare.ratio), (40.0, None));
    }

    #[test]
    fn summary_shows_few_key_figures_first() {
        let mut results = Results::default();
        for (measure, way, unit) in [
            ("ceiling", "bare push", "messages/s"),
            ("push", "library, batch 100", "messages/s"),
            ("push", "HTTP, batch 100", "messages/s"),
            ("lateness", "HTTP, 2000/s, p50", "ms"),
            ("lateness", "HTTP, 2000/s, p99", "ms"),
            ("burst", "HTTP, 50000 at once, rate", "messages/s"),
            ("burst", "HTTP, 50000 at once, last ack", "ms"),
        ] {
            results.note((measure, way.to_owned()), unit, 2_140.0, None);
        }
        let expected = "  push      HTTP, batch 100                2,140  messages/s
  lateness  HTTP, 2000/s, p99              2,140  ms
  burst     HTTP, 50000 at once, last ack  2,140  ms";
        assert_eq!(short(&results.rows()), expected);
        let all = table(&results.rows());
        assert!(all.contains("bare push") && all.contains("50000 at once, rate") && all.lines().count() == 8, "{all}");
    }

    #[test]
    fn numbers_have_significant_digits_only() {
        for (value, text) in [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (1_234.5, "1,235"), (100.0, "100")] {
            assert_eq!(number(value), text);
        }
    }
}
