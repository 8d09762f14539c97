//! How a command fails: a sentence for people and an exit code for scripts.

use crate::model::error::{Error, Kind};

/// Something failed.
pub(super) const FAILED: u8 = 1;
/// The command line or the configuration is wrong (EX_USAGE).
pub(super) const USAGE: u8 = 64;
/// The server or the store cannot be reached, or cannot serve now (EX_UNAVAILABLE).
pub(super) const UNAVAILABLE: u8 = 69;
/// Ended at once by a second signal, as a shell says it of SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: u8,
    /// What is printed; empty when everything was said before.
    pub(super) message: String,
}

impl Failure {
    /// Something failed.
    pub(super) fn new(message: impl Into<String>) -> Failure {
        Failure { code: FAILED, message: message.into() }
    }

    /// The command line or the configuration is wrong.
    pub(super) fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: message.into() }
    }

    /// A second signal.
    pub(super) fn interrupted(message: impl Into<String>) -> Failure {
        Failure { code: INTERRUPTED, message: message.into() }
    }

    /// Something failed, and was reported before.
    pub(super) fn said() -> Failure {
        Failure { code: FAILED, message: String::new() }
    }

    /// The reader of the output went away, as `head` does: no failure, but the end.
    pub(super) fn output_closed() -> Failure {
        Failure { code: 0, message: String::new() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error.kind() {
            Kind::Unavailable | Kind::OutcomeUnknown => UNAVAILABLE,
            Kind::Invalid
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::Stale
            | Kind::Conflict
            | Kind::Ambiguous
            | Kind::TooLarge
            | Kind::Full
            | Kind::Corrupt
            | Kind::Bug => FAILED,
        };
        Failure { code, message: error.detail().to_owned() }
    }
}
