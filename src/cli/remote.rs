//! A broker that a command asks, and its errors in the words of the command line: what failed, where, and the next step.

use std::error::Error as _;

use dwell_client::wire::problem::Problem;
use dwell_client::{Client, Error, Refused, Unavailable};

use super::address::ServerAddress;
use super::failure::{CallError, CallResult, Failure};
use super::place::{Files, Place};
use crate::model::error::innermost_cause;

/// A broker to ask. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    pub(crate) place: Place,
}

impl Remote {
    /// # Errors: usage, if the token or the certificates of the place cannot be read.
    pub(crate) fn at(place: Place) -> Result<Remote, Failure> {
        Ok(Remote { client: place.client()?, place })
    }

    /// A broker that a part of dwell has started.
    pub(crate) fn started(address: &str) -> Result<Remote, Failure> {
        let address = ServerAddress::parse(address).map_err(Failure::new)?;
        Remote::at(Place::named(address, Files::default()))
    }
}

/// An answer of the broker at a place.
pub(crate) trait At<T> {
    /// An error names the place, and says what to do.
    fn at(self, place: &Place) -> CallResult<T>;
}

impl<T> At<T> for Result<T, Error> {
    fn at(self, place: &Place) -> CallResult<T> {
        self.map_err(|error| place.error(error))
    }
}

impl Place {
    pub(crate) fn error(&self, error: Error) -> CallError {
        match self.unready(error) {
            // The answer of a broker without its store does not say which broker it is, and `redis.url` is its own.
            CallError::Problem(mut problem) if problem.name() == "unavailable" => {
                let next = "`dwell doctor` on its machine looks at its store";
                problem.detail = format!("{}; the broker at {self} says so: {next}", problem.detail);
                CallError::Problem(problem)
            }
            error => error,
        }
    }

    /// Of the request that asks whether the broker is ready: to be unavailable is an answer to it.
    pub(crate) fn unready(&self, error: Error) -> CallError {
        match error {
            Error::Refused(refused) => self.refused(*refused),
            Error::NotAccepted(not_accepted) => self.refused(not_accepted.first),
            Error::Unavailable(unavailable) => match unavailable.answer {
                Some(refused) => self.refused(refused),
                None => self.unanswered(&unavailable),
            },
            Error::Unreadable(unreadable) => self.garbled(&unreadable.detail),
            Error::Argument(why) => CallError::Garbled(format!("the request cannot be made: {why}")),
            error => CallError::Garbled(error.to_string()),
        }
    }

    fn refused(&self, refused: Refused) -> CallError {
        match refused.problem {
            Some(problem) => CallError::Problem(Box::new(self.explained(*problem))),
            None => self.garbled(&format!("status {}", refused.status)),
        }
    }

    fn explained(&self, mut problem: Problem) -> Problem {
        let more = match (problem.name(), self.token_file()) {
            ("unauthorized", None) => "give --token-file FILE, or set DWELL_TOKEN_FILE".to_owned(),
            ("unauthorized", Some(path)) => format!("{} holds another one, perhaps an old one", path.display()),
            ("scope-missing", _) => "give --token-file with a token that has it".to_owned(),
            _ => return problem,
        };
        problem.detail = format!("{}; {more}", problem.detail);
        problem
    }

    fn unanswered(&self, unavailable: &Unavailable) -> CallError {
        let why = unavailable.source().map_or_else(|| unavailable.detail.clone(), innermost_cause);
        if unavailable.repeated {
            return CallError::NoAnswer(format!(
                "no answer from {self}: {why}; `dwell health` asks whether it is ready"
            ));
        }
        let hint = match () {
            () if why.contains("InvalidContentType") => "it speaks HTTP: give an address that begins with http://",
            () if why.contains("certificate") => "--ca-file names the certificates that are believed",
            () => "is `dwell serve` running there?",
        };
        CallError::Unreachable(format!("cannot reach {self}: {why}; {hint}{}", self.other()))
    }

    pub(crate) fn garbled(&self, why: &str) -> CallError {
        CallError::Garbled(format!("{self} answers, but not as dwell does: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_refused_names_address_and_hint() -> Result<(), Failure> {
        let Remote { client, place } = Remote::started("unix:/does/not/exist.sock")?;
        let failure = client.topics().await.at(&place).map_err(Failure::from).err().unwrap_or_else(Failure::printed);
        assert_eq!(failure.code, crate::cli::failure::UNAVAILABLE);
        assert!(failure.message.contains("unix:/does/not/exist.sock: No such file"), "{}", failure.message);
        assert!(failure.message.ends_with("is `dwell serve` running there?"), "{}", failure.message);
        Ok(())
    }
}
