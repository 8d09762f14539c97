//! The generated pages: each is rendered from the code that knows the thing.

mod cli;
mod configuration;
mod errors;
mod http;
mod limits;
mod metrics;
mod requests;

use dwell::model::error::Result;

/// The directory of the pages, from the root of the repository.
pub(crate) const DIR: &str = "docs/reference";

/// The command that writes them.
pub(crate) const COMMAND: &str = "cargo run --locked --example reference";

/// Every page: its file name and its text.
pub(crate) fn files() -> Result<Vec<(&'static str, String)>> {
    let pages = [
        ("cli.md", cli::page()),
        ("configuration.md", configuration::page()?),
        ("errors.md", errors::page()),
        ("http.md", http::page()),
        ("limits.md", limits::page()),
        ("metrics.md", metrics::page()?),
        ("requests.md", requests::page()),
    ];
    Ok(pages.map(|(file, text)| (file, finished(&text))).into())
}

/// The text with its first line, and without blank lines that follow each other.
fn finished(text: &str) -> String {
    let mut text = format!("<!-- Generated: {COMMAND} -->\n\n{}\n", text.trim_end());
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

/// Text for a cell of a table: one line, with no bar that would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A table. A column that is empty in every row is left out.
fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let used: Vec<usize> = (0..N).filter(|column| rows.iter().any(|row| !row[*column].is_empty())).collect();
    let line = |cells: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = used.iter().map(|column| cells(*column)).collect();
        format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |")
    };
    let head = line(&|column| heads[column].to_owned());
    let rule = format!("|{}\n", "---|".repeat(used.len()));
    let body: String = rows.iter().map(|row| line(&|column| cell(&row[column]))).collect();
    format!("{head}{rule}{body}\n")
}
