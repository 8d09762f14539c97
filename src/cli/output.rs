//! Printing that survives a closed pipe (`println!` would panic under `dwell … | head`), and the question before something is
//! deleted for good.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write, stderr, stdin};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::failure::Failure;
use super::journal;
use crate::model::time::short_span;
use crate::platform::clock::Clock;

/// How long a command may take without a sign that it is at work.
const PATIENCE: Duration = Duration::from_secs(2);

const TICK: Duration = Duration::from_millis(100);

/// The sign of a command at work. It is drawn on a terminal only, and makes room for what is printed.
static SIGN: LazyLock<ProgressBar> = LazyLock::new(|| {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message("waiting for the answer");
    styled(bar, "{spinner} {msg}, {elapsed}")
});

/// Runs a command with a sign of what it is at, once it takes long.
pub(crate) async fn with_sign<T>(command: impl Future<Output = T>) -> T {
    SIGN.reset_elapsed();
    tokio::pin!(command);
    tokio::select! {
        ended = &mut command => return ended,
        () = Clock::System.sleep(PATIENCE) => {}
    }
    SIGN.set_draw_target(ProgressDrawTarget::stderr());
    SIGN.enable_steady_tick(TICK);
    let ended = command.await;
    SIGN.finish_and_clear();
    ended
}

/// Says what the command is at, or how far it is.
pub(crate) fn progress(text: impl fmt::Display) {
    SIGN.set_message(text.to_string());
}

/// Writes a line to stdout, at once. # Errors: ends the command quietly when nobody reads any more.
pub(crate) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let write = || {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    };
    SIGN.suspend(write).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(format!("cannot write to stdout: {error}")),
    })
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    line(text)
}

/// Gives a bar a style; a template that cannot be read leaves that of the library.
pub(crate) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Writes a line to stderr, for people. Where that is closed, there is nobody to tell.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = SIGN.suspend(|| writeln!(std::io::stderr().lock(), "{text}"));
}

pub(crate) fn report(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        note(journal::error(format_args!("dwell: {}", failure.message)));
    }
    failure.code.into()
}

/// Lays out rows as columns as wide as their widest cell; `right` are the columns of numbers.
pub(crate) fn columns(rows: &[Vec<String>], right: &[usize]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let cell = |(column, text): (usize, &String)| {
        let width = widths.get(column).copied().unwrap_or(0);
        if right.contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
    };
    let row = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned();
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Rows in columns, below a line of labels.
pub(crate) fn table<const N: usize>(
    labels: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    right: &[usize],
) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(labels.map(str::to_owned)).chain(rows).map(Vec::from).collect();
    columns(&rows, right)
}

/// A table with more lines below each row.
pub(crate) fn with_lines_below<L: IntoIterator<Item = String>>(
    table: &str,
    below: impl Iterator<Item = L>,
) -> Vec<String> {
    let mut lines = table.lines().map(str::to_owned);
    let mut all: Vec<String> = lines.next().into_iter().collect();
    for (line, below) in lines.zip(below) {
        all.push(line);
        all.extend(below);
    }
    all
}

pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1_024.0, unit + 1);
    }
    let unit_name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {unit_name}") }
}

/// A span that was measured, in two units at most: `0.08ms`, `250ms`, `1m15s`.
pub(crate) fn span(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.2}ms") } else { short_span(span) }
}

/// Answers the question before it is asked.
#[derive(Debug, Args)]
pub(crate) struct YesArgs {
    /// Do not ask for confirmation; required without a terminal
    #[arg(long)]
    yes: bool,
}

impl YesArgs {
    /// Whether the question is answered already, so that nothing has to be counted for it.
    pub(crate) fn is_given(&self) -> bool {
        self.yes
    }

    /// Asks on a terminal whether to do something at a broker. # Errors: usage where there is none; a failure when the
    /// answer is not yes.
    pub(crate) fn ask(&self, what: impl fmt::Display, place: impl fmt::Display) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let question = format!("{what}, at {place}?");
        if !stdin().is_terminal() || !stderr().is_terminal() {
            return Err(Failure::usage(format!("{question} There is no terminal to ask on; repeat with --yes")));
        }
        note(format_args!("{question} Type yes to go on:"));
        let mut answer = String::new();
        let read = SIGN.suspend(|| stdin().read_line(&mut answer));
        match read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            true => Ok(()),
            false => Err(Failure::new("nothing was changed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "1"], ["long", "200"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows, &[1]), "a       1\nlong  200");
    }

    #[test]
    fn a_span_has_two_units_at_most() {
        let shown =
            [81, 9_990, 250_000, 2_000_000, 75_000_000, 90_061_000_000].map(|us| span(Duration::from_micros(us)));
        assert_eq!(shown, ["0.08ms", "9.99ms", "250ms", "2s", "1m15s", "1d1h"]);
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!([bytes(0), bytes(1_023), bytes(1_536), bytes(3 << 40)], ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]);
    }
}
