//! The lines of the log are those of docs/reference/logs.md, with fields of its vocabulary.

use std::collections::BTreeSet;

use dwell::model::error::Result;

use super::{files, line_of};

const LOGS: &str = include_str!("../../../../docs/reference/logs.md");

/// The cells of the rows of a table.
fn rows(header: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = LOGS.lines().skip_while(move |line| *line != header).skip(2);
    rows.take_while(|line| line.starts_with('|')).map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// A call of a macro, from its parenthesis to the one that closes it, and the texts in it.
fn call(text: &str) -> (usize, Vec<&str>) {
    let (mut depth, mut texts, mut begun, mut escaped) = (0, Vec::new(), None, false);
    for (at, c) in text.char_indices() {
        match (c, begun) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('"', Some(from)) => {
                texts.push(&text[from..at]);
                begun = None;
            }
            (_, Some(_)) => {}
            ('"', None) => begun = Some(at + 1),
            ('(', None) => depth += 1,
            (')', None) if depth == 1 => return (at, texts),
            (')', None) => depth -= 1,
            _ => {}
        }
    }
    (text.len(), texts)
}

/// The names of the fields of a call: before a `=`, or after a `%` or `?`, or alone.
fn fields(call: &str) -> Vec<&str> {
    let arguments = call.split(',').map(str::trim);
    let names = arguments.filter(|argument| !argument.starts_with('"')).filter_map(|argument| {
        let name = argument.split('=').next()?.trim().trim_start_matches(['%', '?']);
        (!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then_some(name)
    });
    names.collect()
}

#[test]
fn documented_log_lines_match_the_code() -> Result<()> {
    let mut logged = BTreeSet::new();
    let mut wrong = Vec::new();
    let explained: BTreeSet<&str> = rows("| line | level | fields | when |").flat_map(|row| quoted(row[0])).collect();
    assert!(explained.len() > 40, "{explained:?}");
    for file in files("src", ".rs")? {
        for level in ["info", "warn", "error"] {
            for (at, begin) in file.text.match_indices(&format!("tracing::{level}!(")) {
                let (length, texts) = call(&file.text[at + begin.len() - 1..]);
                let whole = &file.text[at + begin.len()..at + begin.len() + length - 1];
                let Some(message) = texts.last().map(ToString::to_string) else { continue };
                let Some(row) =
                    rows("| line | level | fields | when |").find(|row| quoted(row[0]).any(|it| it == message))
                else {
                    wrong.push(format!("{}:{}: {message:?} is not explained", file.path, line_of(&file.text, at)));
                    continue;
                };
                if !row[1].contains(level) {
                    wrong.push(format!("{}:{}: {message:?} is {level}", file.path, line_of(&file.text, at)));
                }
                for field in fields(whole).into_iter().filter(|field| !quoted(row[2]).any(|it| it == *field)) {
                    wrong.push(format!("{}:{}: {message:?} has {field}", file.path, line_of(&file.text, at)));
                }
                logged.insert(message);
            }
        }
    }
    wrong.extend(explained.iter().filter(|line| !logged.contains(**line)).map(|line| format!("nobody logs {line:?}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
