//! `dwell complete-topics LINE`, which the scripts of `dwell completions` run: the topics that may stand at the end of a command
//! line. It never says why it finds none, since that would stand in the middle of what somebody types.

use std::path::Path;
use std::time::Duration;

use clap::{Arg, Command, Parser};

use super::failure::Failure;
use super::{ServerArgs, output};
use crate::platform::clock::Clock;

/// How long somebody who pressed a key may wait.
const PATIENCE: Duration = Duration::from_millis(300);

/// Its name. It is no part of the command line of clap, so that no shell offers it and no page has it.
pub(crate) const COMMAND: &str = "complete-topics";

/// The options that say which broker to ask.
#[derive(Debug, Parser)]
struct Broker {
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints the topics, one a line. `line` is what stands before the cursor, and `root` all commands.
pub(crate) async fn print(line: &str, mut root: Command) -> Result<(), Failure> {
    root.build();
    let (mut words, last) = split(line);
    let after = words.iter().position(|word| is_dwell(word)).map_or(1, |at| at + 1);
    let words = words.split_off(after.min(words.len()));
    let Some(options) = broker_of_topic(&words, &last, &root) else { return Ok(()) };
    let found = tokio::select! {
        found = topics(options) => found,
        () = Clock::System.sleep(PATIENCE) => None,
    };
    found.unwrap_or_default().iter().filter(|name| name.starts_with(&last)).try_for_each(output::line)
}

fn is_dwell(word: &str) -> bool {
    Path::new(word).file_name().is_some_and(|name| name == "dwell")
}

async fn topics(options: Vec<String>) -> Option<Vec<String>> {
    let broker = Broker::try_parse_from(std::iter::once("dwell".to_owned()).chain(options)).ok()?;
    broker.server.remote().ok()?.client.topics().await.ok()
}

/// The words of a line that are complete, and the one at its end, which may be empty. Quotes are read as shells do.
fn split(line: &str) -> (Vec<String>, String) {
    let (mut words, mut word, mut quote, mut escaped) = (Vec::new(), None::<String>, None, false);
    for c in line.chars() {
        match (quote, c) {
            _ if escaped => {
                word.get_or_insert_default().push(c);
                escaped = false;
            }
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    (words, word.unwrap_or_default())
}

/// If a topic stands behind these words: the options among them that say which broker to ask.
fn broker_of_topic(words: &[String], last: &str, root: &Command) -> Option<Vec<String>> {
    let (mut command, mut positionals, mut options) = (root, 0, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(option) = word.strip_prefix("--") {
            let (name, given) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
            if !arg.get_action().takes_values() {
                continue;
            }
            let Some(value) = given.or_else(|| words.next().map(String::as_str)) else {
                return is_topic(arg).then_some(options);
            };
            if ["server", "context", "token-file", "ca-file"].contains(&name) {
                options.push(format!("--{name}={value}"));
            }
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if !word.starts_with('-') {
            positionals += 1;
        }
    }
    let arg = command.get_positionals().nth(positionals)?;
    (is_topic(arg) && !last.starts_with('-')).then_some(options)
}

/// Whether its value is a topic, as its name says.
fn is_topic(arg: &Arg) -> bool {
    match arg.get_long() {
        Some(long) => long == "dead-letter-topic",
        None => ["topic", "to"].contains(&arg.get_id().as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_shells_do() {
        let cases: [(&str, &[&str], &str); 6] = [
            ("", &[], ""),
            ("dwell", &[], "dwell"),
            ("dwell  topic ", &["dwell", "topic"], ""),
            (r#"a 'b c' "d\" e" f\ g h"#, &["a", "b c", "d\" e", "f g"], "h"),
            ("a '' ", &["a", ""], ""),
            ("a 'b c", &["a"], "b c"),
        ];
        for (line, words, last) in cases {
            assert_eq!(split(line), (words.iter().map(|word| (*word).to_owned()).collect(), last.to_owned()), "{line}");
        }
    }
}
