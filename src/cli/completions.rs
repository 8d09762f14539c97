//! Completions for shells, man pages, and the answer to a command that does not exist: all from the command line itself.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Args, Command};
use clap_complete::Shell;

use super::failure::Failure;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dwell completions bash > /etc/bash_completion.d/dwell
  dwell completions zsh > \"${fpath[1]}/_dwell\"
  dwell completions fish > ~/.config/fish/completions/dwell.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write man pages: dwell.1 and one for each subcommand
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dwell man /usr/local/share/man/man1    dwell(1), dwell-push(1), dwell-topic-create(1) and so on")]
pub(crate) struct ManArgs {
    /// An existing directory; pages of the same names are replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn print(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "dwell", &mut script);
    match io::stdout().write_all(&script) {
        // `dwell completions bash | head` is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(not_written(Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn write_pages(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let wrong = |error: io::Error| not_written(&args.directory, &error);
    clap_mangen::generate_to(command.disable_help_subcommand(true), &args.directory).map_err(wrong)
}

fn not_written(place: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write to {}: {error}", place.display()))
}

/// The commands, and what people know them as from other tools.
const ELSEWHERE: [(&str, &[&str]); 10] = [
    ("get", &["show", "describe", "info"]),
    ("list", &["ls"]),
    ("delete", &["rm", "remove"]),
    ("create", &["add", "new", "put"]),
    ("update", &["set", "alter"]),
    ("push", &["send", "publish", "produce"]),
    ("consume", &["receive", "subscribe"]),
    ("cron", &["schedule"]),
    ("health", &["status"]),
    ("--version", &["version"]),
];

/// Says which commands there are, if the error is about one that does not exist; `typed` is what follows the program's name.
pub(crate) fn explained(error: &Error, typed: &[String], root: &Command) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (mut place, mut path) = (root, root.get_name().to_owned());
    for word in typed.iter().take_while(|word| *word != wrong) {
        let Some(inner) = place.find_subcommand(word) else { continue };
        place = inner;
        path = format!("{path} {}", inner.get_name());
    }
    let names: Vec<&str> = place.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
    let meant = |name: &&str| names.contains(name) || name.starts_with("--") && place.get_name() == root.get_name();
    // A plural, or what other tools say.
    let singular = wrong.strip_suffix('s').filter(|name| names.contains(name));
    let elsewhere = ELSEWHERE.iter().find(|(_, others)| others.contains(&wrong.as_str())).map(|(name, _)| *name);
    let hint = elsewhere.or(singular).filter(meant).map_or(String::new(), |name| format!("; it is `{path} {name}`"));
    let all = names.join(", ");
    Some(format!("error: `{path}` has no command `{wrong}`{hint}\n\nCommands: {all}\n\nTry `{path} --help`.\n"))
}
