//! The command line, from clap's tree of commands.

use clap::{Arg, Command};

use super::table;

const HEAD: &str = "\
# Command line

This page lists every command with its options. Every command except `dwell serve`, `dwell demo`, `dwell bench`, `dwell doctor`,
`dwell config` and `dwell context` is a client of a running broker over HTTP. `dwell <command> --help` prints the same text as this page.

";

/// Options that every client command has; the page lists them once.
const SHARED: [&str; 5] = ["server", "context", "token-file", "ca-file", "help"];

pub(super) fn page() -> String {
    let mut root = dwell::command_line::command().disable_help_subcommand(true);
    root.build();
    let push = root.find_subcommand("push").cloned().unwrap_or_default();
    let shared: Vec<_> = push.get_arguments().filter(|arg| is_shared(arg)).map(row).collect();
    let mut text = format!(
        "{HEAD}Options of every client command, before or after its name:\n\n{}",
        table(["option", "meaning"], &shared)
    );
    if let Some(after) = root.get_after_help() {
        text.push_str(&format!("```text\n{after}\n```\n"));
    }
    // Other commands take the configuration of `serve`, too.
    let configuration = root.find_subcommand("serve").map(rows).unwrap_or_default();
    for command in root.get_subcommands() {
        let known = if command.get_name() == "serve" { &[][..] } else { &configuration };
        section(command, "dwell", known, &mut text);
    }
    text
}

fn is_shared(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|name| SHARED.contains(&name))
}

/// An argument whose help says no more than its name, such as `<TOPIC>`.
fn is_plain(arg: &Arg) -> bool {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.is_positional()
        && ["The topic", "The group", "The message", "The shell", "The payload"].contains(&help.as_str())
}

/// One command and the commands below it. `known` are arguments that the page has explained.
fn section(command: &Command, parent: &str, known: &[[String; 2]], text: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    text.push_str(&format!("\n{} {name}\n\n", "#".repeat(name.split(' ').count())));
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        text.push_str(&format!("{}.\n\n", about.to_string().trim_end_matches('.')));
    }
    if command.has_subcommands() {
        let common = common(command);
        if !common.is_empty() {
            text.push_str(&format!("Arguments of each:\n\n{}", table(["argument", "meaning"], &common)));
        }
        let known = [known, &common].concat();
        command.get_subcommands().for_each(|inner| section(inner, &name, &known, text));
    } else {
        let usage = command.clone().bin_name(&name).render_usage().to_string();
        text.push_str(&format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ")));
        let all = rows(command);
        let (old, new): (Vec<_>, Vec<_>) = all.into_iter().partition(|row| known.contains(row));
        if old.iter().any(|row| row[0].starts_with("`--config")) {
            text.push_str("It takes the options of `dwell serve` for the configuration.\n\n");
        }
        if !new.is_empty() {
            text.push_str(&table(["argument", "meaning"], &new));
        }
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(&format!("```text\n{}\n```\n", after.to_string().trim_end()));
    }
}

/// The arguments that all commands below this one have.
fn common(command: &Command) -> Vec<[String; 2]> {
    let each: Vec<_> = command.get_subcommands().map(rows).collect();
    let first = each.first().cloned().unwrap_or_default();
    first.into_iter().filter(|row| each.len() > 1 && each.iter().all(|rows| rows.contains(row))).collect()
}

/// The arguments of a command that the page explains there.
fn rows(command: &Command) -> Vec<[String; 2]> {
    let explained = |arg: &&Arg| !arg.is_hide_set() && !is_shared(arg) && !is_plain(arg);
    command.get_arguments().filter(explained).map(row).collect()
}

/// An argument as people type it, and its help.
fn row(arg: &Arg) -> [String; 2] {
    let values = arg.get_value_names().unwrap_or_default();
    let takes = arg.get_action().takes_values();
    let values: String = values.iter().filter(|_| takes).map(|name| format!(" <{name}>")).collect();
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{values}"),
        (Some(long), None) => format!("--{long}{values}"),
        (None, _) => values.trim().to_owned(),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match default.first().filter(|_| takes && !arg.is_hide_default_value_set()) {
        Some(value) => format!(" [default: {value}]"),
        None => String::new(),
    };
    [format!("`{name}`"), escaped(&format!("{help}{default}"))]
}

/// Angle brackets outside of inline code are HTML in a page.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(n, part)| if n % 2 == 0 { part.replace('<', "\\<") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}
