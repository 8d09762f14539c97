//! Where a broker is, what a client shows to it, and which certificates it trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_client::wire::problem::Problem;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{ClientBuilder, RequestBuilder, Response, StatusCode, Url};

use super::failure::{CallError, CallResult, Failure};
use crate::platform::clock::Clock;
use crate::platform::https::{self, Roots};
use crate::platform::secret::TokenFile;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// `http://host:port` or `https://host:port`, without a slash at the end.
    Http(String),
    Unix(PathBuf),
}

impl ServerAddress {
    /// Reads `http://host:port`, `https://host:port`, `host:port` or `unix:/path`; the error says what is accepted.
    pub(crate) fn parse(text: &str) -> Result<ServerAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(ServerAddress::Unix(path.into())),
                false => Err("the path of a socket is absolute, as in unix:/run/dwell.sock".to_owned()),
            };
        }
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full)
            .map_err(|why| format!("expected http://HOST:PORT, https://HOST:PORT or unix:/path: {why}"))?;
        match url {
            url if !["http", "https"].contains(&url.scheme()) => {
                Err("expected http://HOST:PORT, https://HOST:PORT or unix:/path".to_owned())
            }
            url if url.path() != "/" || url.query().is_some() || !url.username().is_empty() => {
                Err("expected only http://HOST:PORT or https://HOST:PORT, nothing behind it".to_owned())
            }
            url => {
                let port = url.port().map_or(String::new(), |port| format!(":{port}"));
                Ok(ServerAddress::Http(format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())))
            }
        }
    }
}

impl Default for ServerAddress {
    fn default() -> ServerAddress {
        ServerAddress::Http("http://127.0.0.1:7373".to_owned())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Http(url) => f.write_str(url),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A broker logs changes under this name as made by hand; see [`crate::api::http::CLI_USER_AGENT_PREFIX`].
const USER_AGENT: &str = concat!("dwell-cli/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// The file that holds the token. It may change while a consumer runs.
    token: Option<Arc<(PathBuf, TokenFile)>>,
    ca_file: Option<PathBuf>,
}

impl Credentials {
    pub(crate) fn read(token_file: Option<&Path>, ca_file: Option<&Path>) -> Result<Credentials, Failure> {
        // An empty variable is how compose files and shells say "not set".
        let given = |path: Option<&Path>| path.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
        let (token_file, ca_file) = (given(token_file), given(ca_file));
        let token = token_file.map(|path| Arc::new((path.clone(), TokenFile::new(path))));
        let credentials = Credentials { token, ca_file };
        credentials.authorization(true).map_err(Failure::usage)?;
        Ok(credentials)
    }

    /// The value of `Authorization`, if there is a token; read just now, or a moment ago. # Errors: it cannot be read.
    fn authorization(&self, just_now: bool) -> Result<Option<HeaderValue>, String> {
        let Some((path, file)) = self.token.as_deref() else { return Ok(None) };
        let (refused, now) = (|why| format!("--token-file: {} {why}", path.display()), Clock::System.instant());
        let token = if just_now { file.reread(now) } else { file.token(now) }.map_err(refused)?;
        let value = HeaderValue::from_str(token.authorization().expose());
        let mut value = value.map_err(|_| refused("holds no token that can be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Sends a request with the token. One that was refused for an old token, which has changed meanwhile, is sent again: it
    /// has done nothing. # Errors: the token cannot be read.
    pub(crate) async fn send(&self, request: RequestBuilder) -> CallResult<reqwest::Result<Response>> {
        let shown = |just_now| self.authorization(just_now).map_err(CallError::Garbled);
        let Some(value) = shown(false)? else { return Ok(request.send().await) };
        let again = request.try_clone();
        let response = request.header(AUTHORIZATION, value.clone()).send().await;
        let refused = response.as_ref().is_ok_and(|response| response.status() == StatusCode::UNAUTHORIZED);
        match (again.filter(|_| refused), shown(refused)?) {
            (Some(again), Some(newer)) if newer != value => Ok(again.header(AUTHORIZATION, newer).send().await),
            _ => Ok(response),
        }
    }

    pub(crate) fn client(&self, server: &ServerAddress) -> Result<ClientBuilder, Failure> {
        let roots = match (server, &self.ca_file) {
            (ServerAddress::Http(url), Some(path)) if url.starts_with("https://") => {
                Roots::read(path).map_err(|why| Failure::usage(format!("--ca-file: {} {why}", path.display())))?
            }
            (ServerAddress::Http(url), None) if url.starts_with("https://") => Roots::system()?,
            (ServerAddress::Http(_) | ServerAddress::Unix(_), _) => Roots::none(),
        };
        Ok(https::client(&roots)?.user_agent(USER_AGENT))
    }

    pub(crate) fn explain(&self, mut problem: Problem) -> Problem {
        let more = match (problem.name(), self.token.as_deref()) {
            ("unauthorized", None) => "give --token-file FILE, or set DWELL_TOKEN_FILE".to_owned(),
            ("unauthorized", Some((path, _))) => format!("{} holds another one, perhaps an old one", path.display()),
            ("scope-missing", _) => "give --token-file with a token that has it".to_owned(),
            _ => return problem,
        };
        problem.detail = format!("{}; {more}", problem.detail);
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_everything_else_is_refused() {
        let cases = [
            ("http://127.0.0.1:7373", "http://127.0.0.1:7373"),
            ("http://localhost:7373/", "http://localhost:7373"),
            ("localhost:1", "http://localhost:1"),
            ("http://[::1]:7373", "http://[::1]:7373"),
            ("https://dwell.internal:7373/", "https://dwell.internal:7373"),
            ("https://host", "https://host"),
            ("unix:/run/dwell.sock", "unix:/run/dwell.sock"),
            ("unix:///run/dwell.sock", "unix:/run/dwell.sock"),
        ];
        for (text, shown) in cases {
            assert_eq!(ServerAddress::parse(text).map(|address| address.to_string()), Ok(shown.to_owned()));
        }
        for bad in
            ["", "ftp://host", "https://host/v1", "http://host/v1", "http://user@host", "unix:dwell.sock", "http://"]
        {
            assert!(ServerAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cli_user_agent_is_recognized_by_the_broker() {
        assert!(USER_AGENT.starts_with(crate::api::http::CLI_USER_AGENT_PREFIX));
    }
}
