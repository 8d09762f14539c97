//! `--json`: every command that prints has it, and what it prints is JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use clap::Command;
use dwell::model::error::{Error, Result};
use dwell::model::time::parse_timestamp;
use serde_json::Value;

use super::Shell;
use crate::support::{eventually, failed};

/// Commands that have no answer to print as JSON, each with the reason.
const WITHOUT: [(&str, &str); 3] = [
    ("serve", "runs until it is stopped; its log is JSON with --log-format json"),
    ("completions", "prints a script for a shell"),
    ("man", "writes files"),
];

/// Commands that take long, or end or change a broker, whose JSON is tested elsewhere.
const ELSEWHERE: [&str; 4] = ["demo", "bench", "drain", "reload"];

/// A line for each of the others, in an order in which each finds what it needs. `$receipt` is the last one
/// printed, `$later` is an hour after the last time.
pub(super) const LINES: [&str; 62] = [
    "config check",
    "config show",
    "health",
    "health --live",
    "clock get",
    "topic create orders --partitions 2",
    "topic update orders --max-attempts 1",
    "topic list",
    "topic get orders",
    "push orders hello --id a --delay 1h",
    "message get orders a",
    "message list orders",
    "message reschedule orders a --delay 2h",
    "explain orders a",
    "forecast orders",
    "bulk count orders --from now --to +3h",
    "bulk postpone orders --from now --to +3h --by 3h",
    "bulk advance orders --from now --to +1d --by 1d",
    "bulk park orders --from now --to +1d",
    "bulk unpark orders --from now --to +1d",
    "bulk cancel orders --from +1d --to +2d --yes",
    "message run orders a",
    "message cancel orders a",
    "push orders hello --id b",
    "reserve orders --wait 20s",
    "release orders $receipt",
    "reserve orders --wait 20s",
    "extend orders $receipt --visibility-timeout 5m",
    "nack orders $receipt --bury --reason smtp",
    "dead-letters list orders",
    "dead-letters redrive orders --all --dry-run",
    "dead-letters redrive orders b",
    "dead-letters purge orders --all --yes",
    "reserve orders --wait 20s",
    "ack orders $receipt",
    "push orders hello --id c",
    "consume orders --count 1",
    "group create orders audit",
    "group update orders audit --rate 5",
    "group get orders audit",
    "group list orders",
    "group pause orders audit",
    "group resume orders audit",
    "group purge orders audit --yes",
    "group delete orders audit --yes",
    "cron create orders pulse --every 1h beat",
    "cron update orders pulse --every 2h",
    "cron get orders pulse",
    "cron list orders",
    "cron pause orders pulse",
    "cron resume orders pulse",
    "cron delete orders pulse",
    "attention",
    "brokers",
    "clock advance 1s",
    "clock set $later",
    "verify orders",
    "top --interval 100ms",
    "context add prod --server unix:/run/dwell/dwell.sock",
    "context list",
    "context use prod",
    "context remove prod",
];

/// The last lines: they look at the machine, or leave nothing.
const LAST: [&str; 3] = ["doctor", "topic move orders orders-2", "topic delete orders-2 --yes"];

/// The commands that do something, by their words.
fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    let inner: Vec<&Command> = command.get_subcommands().filter(|inner| inner.get_name() != "help").collect();
    if inner.is_empty() {
        found.push((path.to_owned(), command.clone()));
    }
    for inner in inner {
        leaves(inner, format!("{path} {}", inner.get_name()).trim_start(), found);
    }
}

fn all_leaves() -> Vec<(String, Command)> {
    let (mut root, mut found) = (dwell::command_line::command(), Vec::new());
    root.build();
    leaves(&root, "", &mut found);
    found
}

#[test]
fn every_command_that_prints_has_json() {
    let without: BTreeSet<&str> = WITHOUT.iter().map(|(name, _)| *name).collect();
    let leaves = all_leaves();
    let missing: BTreeSet<&str> = leaves
        .iter()
        .filter(|(_, command)| command.get_arguments().all(|argument| argument.get_id() != "json"))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(missing, without, "give it --json, or a reason to have none");
    assert!(WITHOUT.iter().all(|(_, reason)| !reason.is_empty()));
    let is_played =
        |name: &str| LINES.iter().chain(&LAST).any(|line| *line == name || line.starts_with(&format!("{name} ")));
    let unplayed: Vec<&str> = leaves.iter().map(|(name, _)| name.as_str()).filter(|name| !is_played(name)).collect();
    let expected: BTreeSet<&str> = without.iter().copied().chain(ELSEWHERE).collect();
    assert_eq!(unplayed.into_iter().collect::<BTreeSet<_>>(), expected, "play it below");
}

/// A broker whose clock can be moved.
async fn with_test_clock() -> Result<Shell> {
    let mut shell = Shell::without_broker()?;
    let mut serve = shell.command(&["serve", "--test-clock", "--listen", &shell.address()]);
    serve.stdout(Stdio::null()).stderr(Stdio::null());
    shell.broker = Some(serve.spawn().map_err(failed("dwell serve"))?);
    eventually("dwell serve answers", async || Ok(shell.dwell(&["topic", "list"])?.ok().map(drop))).await?;
    Ok(shell)
}

#[tokio::test]
async fn json_output_is_valid_json_only() -> Result<()> {
    let shell = with_test_clock().await?;
    let mut printed = BTreeMap::new();
    for line in LINES.iter().chain(&LAST) {
        let replaced = |word| printed.get(word).map_or(word, String::as_str);
        let words: Vec<&str> = line.split(' ').map(replaced).collect();
        let said = shell.dwell(&[&words[..], &["--json"]].concat())?;
        assert!(said.code == Some(0) || words == ["doctor"], "{line}: {said:?}");
        let values: serde_json::Result<Vec<Value>> = said.out.lines().map(serde_json::from_str).collect();
        let values = values.map_err(|error| Error::bug(format!("{line}: {error}: {said:?}")))?;
        assert!(!values.is_empty(), "{line}: {said:?}");
        let found = |field: &str| values.iter().find_map(|value| value[field].as_str());
        printed.extend(found("receipt").map(|receipt| ("$receipt", receipt.to_owned())));
        let later = found("now").and_then(|now| Some(parse_timestamp(now).ok()?.plus(Duration::from_secs(3_600))));
        printed.extend(later.map(|later| ("$later", later.to_string())));
    }
    Ok(())
}

/// Also fields that the command line does not know.
#[tokio::test]
async fn json_output_equals_the_api_response() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "hello", "--id", "a", "--delay", "1h", "--meta", "trace=b", "--priority", "3"])?;
    for (command, path) in [
        (&["topic", "get", "orders"][..], "topics/orders"),
        (&["message", "get", "orders", "a"], "topics/orders/messages/a"),
        (&["group", "get", "orders", "default"], "topics/orders/groups/default"),
        (&["explain", "orders", "a"], "topics/orders/messages/a/explain"),
    ] {
        let mut curl = std::process::Command::new("curl");
        let socket = shell.dir.path().join("dwell.sock");
        curl.arg("-s").arg("--unix-socket").arg(socket).arg(format!("http://localhost/v1/{path}"));
        let answer = curl.output().map_err(failed("curl"))?;
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        let printed: Value =
            serde_json::from_str(&shell.dwell(&[command, &["--json"]].concat())?.out).unwrap_or_default();
        assert!(answer.is_object() && printed == answer, "{path}: {printed} {answer}");
    }
    Ok(())
}
