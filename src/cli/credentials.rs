//! What a client shows to a broker, and whose certificates it believes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{ClientBuilder, RequestBuilder, Response, StatusCode};

use super::address::ServerAddress;
use super::api::Problem;
use super::client::CallResult;
use super::failure::Failure;
use super::problem::CallError;
use crate::platform::clock::Clock;
use crate::platform::https::{self, Roots};
use crate::platform::secret::TokenFile;

/// What a broker goes by when it writes down what was done by hand; see [`crate::api::http::BY_HAND`].
const USER_AGENT: &str = concat!("dwell-cli/", env!("CARGO_PKG_VERSION"));

/// What a client has to show, and to check.
#[derive(Debug, Clone, Default)]
pub(super) struct Credentials {
    /// The file that holds the token. It may change while a consumer runs.
    token: Option<Arc<(PathBuf, TokenFile)>>,
    ca_file: Option<PathBuf>,
}

impl Credentials {
    /// Those of the command line. # Errors: the token cannot be read.
    pub(super) fn read(token_file: Option<&Path>, ca_file: Option<&Path>) -> Result<Credentials, Failure> {
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
    pub(super) async fn send(&self, request: RequestBuilder) -> CallResult<reqwest::Result<Response>> {
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

    /// A client that believes who it has to. # Errors: nobody can be believed.
    pub(super) fn client(&self, server: &ServerAddress) -> Result<ClientBuilder, Failure> {
        let roots = match (server, &self.ca_file) {
            (ServerAddress::Http(url), Some(path)) if url.starts_with("https://") => {
                Roots::read(path).map_err(|why| Failure::usage(format!("--ca-file: {} {why}", path.display())))?
            }
            (ServerAddress::Http(url), None) if url.starts_with("https://") => Roots::system()?,
            (ServerAddress::Http(_) | ServerAddress::Unix(_), _) => Roots::none(),
        };
        Ok(https::client(&roots)?.user_agent(USER_AGENT))
    }

    /// Says in a refusal what to do about it.
    pub(super) fn explain(&self, mut problem: Problem) -> Problem {
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
    fn a_broker_knows_what_is_done_by_hand() {
        assert!(USER_AGENT.starts_with(crate::api::http::BY_HAND));
    }
}
