//! Which broker a command asks, and where its address is from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell_client::{Client, ClientBuilder};

use super::address::ServerAddress;
use super::contexts::Contexts;
use super::failure::Failure;
use crate::platform::https::Roots;
use crate::platform::secret::TokenFile;

/// A broker logs changes under this name as made by hand; see [`crate::api::http::CLI_USER_AGENT_PREFIX`].
const USER_AGENT: &str = concat!("dwell-cli/", env!("CARGO_PKG_VERSION"));

/// How long opening a connection may take; the broker is on this machine, or near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

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
    fn or(self, token: Option<&str>, ca: Option<&str>) -> Files {
        let or = |file: Option<PathBuf>, other: Option<&str>| {
            given(file.as_deref()).map(Path::to_owned).or_else(|| other.map(PathBuf::from))
        };
        Files { token: or(self.token, token), ca: or(self.ca, ca) }
    }
}

/// An empty variable is how compose files and shells say "not set".
fn given(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| !path.as_os_str().is_empty())
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

    /// A client of it, which repeats nothing: whoever calls it knows whether that is safe. # Errors: usage, if the token or the
    /// certificates cannot be read.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let wrong =
            |option: &str, path: &Path, why: String| Failure::usage(format!("{option}: {} {why}", path.display()));
        let is_https = matches!(&self.address, ServerAddress::Http(url) if url.starts_with("https://"));
        if let Some(path) = self.token_file() {
            TokenFile::read(path).map_err(|why| wrong("--token-file", path, why))?;
        }
        if let Some(path) = given(self.files.ca.as_deref()).filter(|_| is_https) {
            Roots::read(path).map_err(|why| wrong("--ca-file", path, why))?;
        }
        let file = |path: Option<&Path>| path.unwrap_or(Path::new("")).to_owned();
        let client = ClientBuilder::default().server(self.address.to_string()).user_agent(USER_AGENT);
        let client = client.token_file(file(self.token_file())).ca_file(file(given(self.files.ca.as_deref())));
        let client = client.connect_timeout(CONNECT_TIMEOUT).retry_for(Duration::ZERO);
        client.build().map_err(|error| Failure::usage(error.to_string()))
    }

    /// The file with the token, which may change while a consumer runs.
    pub(super) fn token_file(&self) -> Option<&Path> {
        given(self.files.token.as_deref())
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
    fn cli_user_agent_is_recognized_by_the_broker() {
        assert!(USER_AGENT.starts_with(crate::api::http::CLI_USER_AGENT_PREFIX));
    }

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
