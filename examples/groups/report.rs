//! What the stories found: one line for each promise.

use std::time::Duration;

use dwell::model::error::Result;

/// The table at the end.
#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    story: &'static str,
    figures: String,
    goal: String,
    kept: bool,
}

impl Report {
    /// Writes a line down, and shows it.
    pub(crate) fn row(&mut self, story: &'static str, figures: impl Into<String>, goal: impl Into<String>, kept: bool) {
        let row = Row { story, figures: figures.into(), goal: goal.into(), kept };
        println!("  {} {}: {} (goal: {})", row.verdict(), row.story, row.figures, row.goal);
        self.0.push(row);
    }

    /// A story that broke off has failed.
    pub(crate) fn ended(&mut self, story: &'static str, end: Result<()>) {
        if let Err(error) = end {
            self.row(story, error.detail(), "the story is told to its end", false);
        }
    }

    /// Whether everything was as promised.
    pub(crate) fn is_kept(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|row| row.kept)
    }

    /// The table, as it stands in the documentation.
    pub(crate) fn print(&self) {
        println!("\n| story | figures | goal | verdict |\n|---|---|---|---|");
        for row in &self.0 {
            println!("| {} | {} | {} | {} |", row.story, row.figures, row.goal, row.verdict());
        }
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        if self.kept { "ok" } else { "FAILED" }
    }
}

/// Many durations of one kind.
#[derive(Default)]
pub(crate) struct Spans(Vec<Duration>);

impl Spans {
    pub(crate) fn add(&mut self, span: Duration) {
        self.0.push(span);
    }

    /// The span that this share of them does not exceed; zero of none.
    pub(crate) fn at(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    /// `20 times, median 81 ms, longest 230 ms`.
    pub(crate) fn summary(&mut self) -> String {
        format!("{} times, median {}, longest {}", self.0.len(), show(self.at(0.5)), show(self.at(1.0)))
    }
}

/// `0.82 ms`, `82 ms` or `8.2 s`.
pub(crate) fn show(span: Duration) -> String {
    match span.as_micros() {
        0..10_000 => format!("{:.2} ms", span.as_secs_f64() * 1_000.0),
        10_000..1_000_000 => format!("{} ms", span.as_millis()),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}
