//! Printing that survives a closed pipe (`println!` would panic under `dwell … | head`), and the question before something is
//! deleted for good.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write, stderr, stdin};
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::failure::Failure;

/// Writes a line to stdout, at once. # Errors: ends the command quietly when nobody reads any more.
pub(super) fn line(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(format!("cannot write to stdout: {error}")),
    })
}

pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    line(text)
}

/// Writes a value as JSON, or as a text for people.
pub(super) fn value<T: Serialize, D: fmt::Display>(
    as_json: bool,
    value: &T,
    text: impl FnOnce(&T) -> D,
) -> Result<(), Failure> {
    if as_json { json(value) } else { line(text(value)) }
}

/// Gives a bar a style; a template that cannot be read leaves that of the library.
pub(super) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Writes a line to stderr, for people. Where that is closed, there is nobody to tell.
pub(super) fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

pub(super) fn report(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        note(format_args!("dwell: {}", failure.message));
    }
    failure.code.into()
}

/// Lays out rows as columns as wide as their widest cell; `right` are the columns of numbers.
pub(super) fn columns(rows: &[Vec<String>], right: &[usize]) -> String {
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

pub(super) fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{} messages", thousands(count)) }
}

pub(super) fn thousands(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1_024.0, unit + 1);
    }
    let unit_name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {unit_name}") }
}

/// Answers the question before it is asked.
#[derive(Debug, Args)]
pub(super) struct YesArgs {
    /// Do not ask for confirmation; required without a terminal
    #[arg(long)]
    yes: bool,
}

impl YesArgs {
    /// Whether the question is answered already, so that nothing has to be counted for it.
    pub(super) fn is_given(&self) -> bool {
        self.yes
    }

    /// Asks on a terminal. # Errors: usage where there is none; a failure when the answer is not yes.
    pub(super) fn ask(&self, question: impl fmt::Display) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !stdin().is_terminal() || !stderr().is_terminal() {
            return Err(Failure::usage(format!("{question} There is no terminal to ask on; repeat with --yes")));
        }
        note(format_args!("{question} Type yes to go on:"));
        let mut answer = String::new();
        let read = stdin().read_line(&mut answer);
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
    fn bytes_have_a_unit() {
        assert_eq!([bytes(0), bytes(1_023), bytes(1_536), bytes(3 << 40)], ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]);
    }

    #[test]
    fn large_numbers_have_commas() {
        let cases = [(0_u64, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
    }
}
