//! The question before something is deleted for good.

use std::fmt;
use std::io::{IsTerminal as _, stderr, stdin};

use clap::Args;

use super::failure::Failure;
use super::output;

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

    /// Asks on a terminal.
    ///
    /// # Errors
    /// Usage where there is no terminal; a failure when the answer is not yes.
    pub(super) fn ask(&self, question: impl fmt::Display) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !stdin().is_terminal() || !stderr().is_terminal() {
            return Err(Failure::usage(format!("{question} There is no terminal to ask on; repeat with --yes")));
        }
        output::note(format_args!("{question} Type yes to go on:"));
        let mut answer = String::new();
        let read = stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            true => Ok(()),
            false => Err(Failure::new("nothing was changed")),
        }
    }
}
