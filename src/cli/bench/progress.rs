//! What is seen while a bench runs: a bar on a terminal, a line for each round elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::note;

/// Steps that were made.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
        // A template that cannot be read leaves the style of the library.
        if let Ok(style) = ProgressStyle::with_template("  {elapsed_precise} {bar:30} {pos:>4} of {len}  {msg}") {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// The next step begins.
    pub(super) fn step(&self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }

    /// The next round begins.
    pub(super) fn round(&self, round: usize, rounds: usize) {
        if self.0.is_hidden() {
            note(format_args!("  round {round} of {rounds}"));
        }
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
