//! Which broker a command asks, and where its address is from.

use std::fmt;
use std::path::PathBuf;

use super::address::{Credentials, ServerAddress};
use super::contexts::Contexts;
use super::failure::Failure;

/// Where the address of a broker is from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// The command line, or a part of dwell.
    Named,
    /// `DWELL_SERVER`.
    Variable,
    Context(String),
    Default,
}

/// A broker, and what a client shows to it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: ServerAddress,
    origin: Origin,
    /// The files that the command line or a variable names, or else those of the context.
    files: Files,
}

/// A file with a token, and one with certificates.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    pub(super) token: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
}

impl Files {
    pub(super) fn credentials(&self) -> Result<Credentials, Failure> {
        Credentials::read(self.token.as_deref(), self.ca.as_deref())
    }

    fn or(self, token: Option<&str>, ca: Option<&str>) -> Files {
        let or = |file: Option<PathBuf>, other: Option<&str>| {
            // An empty variable is how compose files and shells say "not set".
            file.filter(|file| !file.as_os_str().is_empty()).or_else(|| other.map(PathBuf::from))
        };
        Files { token: or(self.token, token), ca: or(self.ca, ca) }
    }
}

impl Place {
    /// A broker whose address was said.
    pub(super) fn named(address: ServerAddress, files: Files) -> Place {
        Place { address, origin: Origin::Named, files }
    }

    /// The broker of `--server` or `DWELL_SERVER`. No context matters then, nor does its token: it is for another broker.
    pub(super) fn of_server(address: &ServerAddress, files: Files) -> Place {
        let variable = std::env::var("DWELL_SERVER").ok().and_then(|text| ServerAddress::parse(&text).ok());
        let origin = if variable.as_ref() == Some(address) { Origin::Variable } else { Origin::Named };
        Place { address: address.clone(), origin, files }
    }

    /// The broker of a context, or of the one that is used, or at the default address. # Errors: usage.
    pub(super) fn of_context(name: Option<&str>, files: Files) -> Result<Place, Failure> {
        let contexts = match name {
            Some(_) => Some(Contexts::read()?),
            None => Contexts::read_if_any()?,
        };
        let named = contexts.as_ref().and_then(|contexts| Some((contexts, name.or(contexts.used())?)));
        let Some((contexts, name)) = named else {
            return Ok(Place { address: ServerAddress::default(), origin: Origin::Default, files });
        };
        let context = contexts.named(name)?;
        let wrong = |why| Failure::usage(format!("the server of the context {name} is wrong: {why}"));
        let address = ServerAddress::parse(&context.server).map_err(wrong)?;
        let files = files.or(context.token_file.as_deref(), context.ca_file.as_deref());
        Ok(Place { address, origin: Origin::Context(name.to_owned()), files })
    }

    pub(super) fn credentials(&self) -> Result<Credentials, Failure> {
        self.files.credentials()
    }

    /// How to name another broker, for those who named none.
    pub(super) fn other(&self) -> &'static str {
        match self.origin {
            Origin::Default => " --server, DWELL_SERVER or `dwell context` names another broker",
            Origin::Named | Origin::Variable | Origin::Context(_) => "",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        match &self.origin {
            Origin::Named => Ok(()),
            Origin::Variable => f.write_str(" (DWELL_SERVER)"),
            Origin::Context(name) => write!(f, " (context {name})"),
            Origin::Default => f.write_str(" (the default)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_says_where_its_address_is_from() {
        let address = ServerAddress::default();
        let place = |origin| Place { address: address.clone(), origin, files: Files::default() };
        let cases = [
            (Origin::Named, "http://127.0.0.1:7373"),
            (Origin::Variable, "http://127.0.0.1:7373 (DWELL_SERVER)"),
            (Origin::Context("prod".to_owned()), "http://127.0.0.1:7373 (context prod)"),
            (Origin::Default, "http://127.0.0.1:7373 (the default)"),
        ];
        for (origin, shown) in cases {
            let place = place(origin);
            assert_eq!(place.to_string(), shown);
            // Only the default needs the hint: the others were chosen by somebody.
            assert_eq!(place.other().contains("`dwell context` names another"), place.origin == Origin::Default);
        }
    }

    #[test]
    fn files_that_are_named_win_over_those_of_the_context() {
        let named = |path: &str| Files { token: Some(path.into()), ca: None };
        let files = |files: Files| (files.token, files.ca);
        assert_eq!(files(named("/mine").or(Some("/its"), Some("/ca"))), (Some("/mine".into()), Some("/ca".into())));
        assert_eq!(files(named("").or(Some("/its"), None)), (Some("/its".into()), None));
        assert_eq!(files(Files::default().or(None, None)), (None, None));
    }
}
