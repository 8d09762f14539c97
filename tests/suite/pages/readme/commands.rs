//! Every `dwell …` line of the README and of docs/ works as printed.
//!
//! A line is a span of inline code that begins with `dwell `, or a line of a shell session that begins with it, with `$ dwell ` or
//! with `cargo run … -- `. Each one is parsed by the real command line. Those that end by themselves are run, too: against a real
//! broker, with names in place of placeholders, and with a yes where they ask for one. A command that is only named, as
//! `dwell topic` in a table, has to exist.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

use dwell::command_line;
use dwell::model::error::{Error, Result};

use super::Broker;
use crate::pages::tidy::{File, pages};
use crate::support::failed;

/// What stands for something of the reader's own, and what it is here.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("TOPIC", "orders"),
    ("NAME", "nightly"),
    ("GROUP", "default"),
    ("ID", "close-4711"),
    ("URL", "redis://127.0.0.1:6379"),
    ("…", "redis://127.0.0.1:6379"),
    ("<command>", "topic"),
];

/// Commands that are not run: they wait for ever, take their time, move it, look at this machine, or end the broker.
const PARSED_ONLY: [&str; 8] = ["serve", "clock", "consume", "top", "demo", "bench", "doctor", "drain"];

/// What ends the arguments of a command in a shell.
const SHELL: [&str; 6] = ["|", ">", "&", "&&", ";", "#"];

/// What there is before each line is run.
const SETUP: [&str; 4] = [
    "topic create orders",
    "group create orders audit",
    "cron create orders nightly --every 1d close",
    "push orders close --id close-4711 --delay 1h",
];

/// What a line that waits for a message gets: else it would wait to its end. And what takes it away again, as nothing acks it.
const DUE: [&str; 2] = ["push orders now", "topic delete orders --yes"];

/// What a page tells its reader to type.
#[derive(Debug)]
struct Line {
    place: String,
    args: Vec<String>,
}

/// The arguments behind `dwell`, as a shell splits them; `None` if a quote is open.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// The command behind a prompt, or behind cargo, without the word `dwell`.
fn command(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("$ ");
    line.strip_prefix("dwell ").or_else(|| line.strip_prefix("cargo run --locked --release -- "))
}

fn args(text: &str) -> Vec<String> {
    let known = |word: String| {
        let name = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == word);
        name.map_or(word, |(_, name)| (*name).to_owned())
    };
    let words = words(text).unwrap_or_default();
    words.into_iter().take_while(|word| !SHELL.contains(&word.as_str())).map(known).collect()
}

/// Every line of a page.
fn lines(page: &File) -> Vec<Line> {
    let mut found = Vec::new();
    let (mut prose, mut block, mut from) = (String::new(), None::<&str>, String::new());
    let mut add = |text: &str, number: usize| {
        found.push(Line { place: format!("{}:{number}: dwell {text}", page.path), args: args(text) });
    };
    for (number, line) in page.text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(kind) };
        } else if let Some(kind) = block {
            from.push_str(line.strip_suffix('\\').unwrap_or(line));
            if line.ends_with('\\') {
                continue;
            }
            // What is printed in a block of text may begin with dwell's name.
            let is_typed = kind == "sh" || from.starts_with("$ ");
            if let Some(text) = command(&from).filter(|_| is_typed) {
                add(text, number + 1);
            }
            from.clear();
        } else {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    for (n, span) in prose.split('`').enumerate().filter(|(n, _)| n % 2 == 1) {
        let span = span.replace('\n', " ");
        if let Some(text) = command(&span) {
            let before: usize = prose.split('`').take(n).map(|part| part.matches('\n').count()).sum();
            add(text, before + 1);
        }
    }
    found
}

/// How a line is checked.
#[derive(Debug, PartialEq)]
enum Check {
    Run,
    Parsed,
    Named,
}

impl Line {
    fn check(&self) -> std::result::Result<Check, String> {
        let parsed = command_line::check(&self.args);
        let is_named = self.args.iter().all(|arg| arg.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        let asks = |arg: &String| ["--config", "--help"].contains(&arg.as_str());
        match parsed {
            Ok(()) if PARSED_ONLY.contains(&self.args[0].as_str()) || self.args.iter().any(asks) => Ok(Check::Parsed),
            Ok(()) => Ok(Check::Run),
            Err(_) if is_named => {
                let help: Vec<String> = self.args.iter().cloned().chain(["--help".to_owned()]).collect();
                command_line::check(&help).map(|()| Check::Named).map_err(|why| format!("{}: {why}", self.place))
            }
            Err(why) => Err(format!("{}: {why}", self.place)),
        }
    }
}

/// Runs the binary with a broker and a home; the error is what it said.
fn run<S: AsRef<std::ffi::OsStr>>(
    (broker, home): (&Broker, &Path),
    args: &[S],
) -> Result<std::result::Result<(), String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(args).env_clear().env("DWELL_SERVER", &broker.url).env("HOME", home).stdin(Stdio::null());
    let said = command.output().map_err(failed("dwell"))?;
    let all = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    Ok(if said.status.success() { Ok(()) } else { Err(all) })
}

#[test]
fn every_command_line_of_the_docs_is_run_or_parsed() -> Result<()> {
    let (broker, home) = (Broker::serve(&[])?, tempfile::tempdir().map_err(failed("a home"))?);
    let at = (&broker, home.path());
    let lines: Vec<Line> = pages()?.iter().filter(|page| page.path != "CHANGELOG.md").flat_map(lines).collect();
    let (mut wrong, mut ran) = (Vec::new(), HashSet::new());
    for line in &lines {
        match line.check() {
            // Several pages may have it.
            Ok(Check::Run) if ran.insert(&line.args) => {
                for setup in SETUP {
                    run(at, &args(setup))?.map_err(Error::bug)?;
                }
                let waits = line.args.iter().any(|arg| arg == "--wait");
                if waits {
                    run(at, &args(DUE[0]))?.map_err(Error::bug)?;
                }
                let first = run(at, &line.args)?;
                let answer = match first {
                    Err(said) if said.contains("repeat with --yes") => {
                        run(at, &[&line.args[..], &["--yes".to_owned()]].concat())?
                    }
                    answer => answer,
                };
                wrong.extend(answer.err().map(|said| format!("{}: {said}", line.place)));
                if waits {
                    run(at, &args(DUE[1]))?.map_err(Error::bug)?;
                }
            }
            Ok(Check::Run | Check::Parsed | Check::Named) => {}
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lines.len() > 90 && ran.len() > 30, "{} of {} lines were run: {lines:#?}", ran.len(), lines.len());
    Ok(())
}

#[test]
fn wrong_command_line_in_a_page_is_detected() {
    let text = "a `dwell topic show\norders` b\n```text\ndwell 0.1.0 ready\n$ dwell topic list | head\n```\n```sh\ndwell push orders \\\n  'a b' # c\n```\n";
    let page = File { path: "x.md".to_owned(), text: text.to_owned() };
    let all = lines(&page);
    let shown: Vec<_> = all.iter().map(|line| line.args.join(",")).collect();
    assert_eq!(shown, ["topic,list", "push,orders,a b", "topic,show,orders"]);
    let checks: Vec<_> = all.iter().map(|line| line.check().ok()).collect();
    assert_eq!(checks, [Some(Check::Run), Some(Check::Run), None]);
}
