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
  dwell completions fish > ~/.config/fish/completions/dwell.fish

The scripts for bash, zsh and fish complete the names of topics, too. They ask the broker that the
command line names, wait 0.3 s at most, and offer none if it does not answer.")]
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
    let script = with_topics(args.shell, &String::from_utf8_lossy(&script));
    match io::stdout().write_all(script.as_bytes()) {
        // `dwell completions bash | head` is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(not_written(Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

/// Asks for topics where one may stand. Bash hands over its line because it splits words at the colons of addresses.
const BASH_TOPICS: &str = r#"
_dwell_topics() {
    local names
    names="$("$1" complete-topics "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)"
    [[ -n "${names}" ]] || return 1
    COMPREPLY=( $(compgen -W "${names}") )
}
"#;

const ZSH_TOPICS: &str = r#"_dwell_topics() {
    local -a names
    names=(${(f)"$("${words[1]}" complete-topics "${(j: :)words[1,CURRENT-1]} ${PREFIX}" 2>/dev/null)"})
    (( ${#names} )) && compadd -a names
}

"#;

const FISH_TOPICS: &str = r#"
function __fish_dwell_topics
    set -g __fish_dwell_topic_names (dwell complete-topics (commandline -cp | string collect) 2>/dev/null)
    test -n "$__fish_dwell_topic_names"
end
complete -c dwell -n "__fish_dwell_topics" -f -a '$__fish_dwell_topic_names'
"#;

/// The script that clap generates knows no topics. In bash and zsh those of the broker come before its answer, in fish
/// beside it.
fn with_topics(shell: Shell, script: &str) -> String {
    let first = "_dwell() {\n";
    match shell {
        Shell::Bash => {
            let ask = format!("{first}    _dwell_topics \"$1\" && return 0\n");
            format!("{}{BASH_TOPICS}", script.replacen(first, &ask, 1))
        }
        Shell::Zsh => {
            let ask = format!("{ZSH_TOPICS}{first}    _dwell_topics && return 0\n");
            script.replacen(first, &ask, 1)
        }
        Shell::Fish => format!("{script}{FISH_TOPICS}"),
        _ => script.to_owned(),
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
