//! Completions for shells, and man pages, both made of the command line itself.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write man pages: dwell.1 and one for each subcommand
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dwell man /usr/local/share/man/man1    dwell(1), dwell-push(1), dwell-topic-create(1) and so on")]
pub(super) struct ManArgs {
    /// An existing directory; pages of the same names are replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints completions of `command`.
pub(super) fn print(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
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

/// Writes the man pages of `command`.
pub(super) fn write_pages(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let wrong = |error: io::Error| not_written(&args.directory, &error);
    clap_mangen::generate_to(command.disable_help_subcommand(true), &args.directory).map_err(wrong)
}

fn not_written(place: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write to {}: {error}", place.display()))
}
