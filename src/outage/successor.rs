//! The client of a hand-over: gives pages of records to another broker.
//!
//! Which records, and what becomes of them here, is decided elsewhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::codec::encode_page;
use crate::model::error::{Error, Result, innermost_cause};
use crate::model::limits::SOCKET_PATH_BYTES_MAX;
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::{self, Roots};
use crate::platform::secret::TokenFile;
use crate::store::{HandedOver, TakenOver};

/// Where records are handed over, behind the address of a broker.
pub const PATH: &str = "/v1/hand-over";

/// The content type of a page.
pub const MEDIA_TYPE: &str = "application/vnd.dwell.records";

/// The header that names the store that the records are for.
pub const STORE: &str = "dwell-store";

/// The header that says when that store was last heard of, in ms since 1970.
pub const HEARD: &str = "dwell-store-heard";

/// The header that says which log they stood in, `wal` or `journal`.
pub const KIND: &str = "dwell-log";

/// The header that names that log.
pub const LOG: &str = "dwell-log-id";

/// The header that names the record of a journal before the page.
pub const AFTER: &str = "dwell-log-after";

/// What the address of a broker looks like, for errors.
pub const ACCEPTED: &str = "http://HOST:PORT, https://HOST:PORT or unix:/absolute/path";

/// What the address of a Unix socket begins with.
const SOCKET: &str = "unix:";

/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// From the first to the longest pause before a page is given again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1_000));

/// Bytes of a refusal that are read.
const SAID_BYTES: usize = 2_000;

/// To whom a broker that stops gives what it has buffered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOverOptions {
    /// The address of a broker, or of several behind one name, as [`check_url`] accepts it.
    pub url: String,
    /// The token that is shown: one with `produce`.
    pub token_file: Option<PathBuf>,
    /// CA certificates used to verify the broker; without, the system's.
    pub ca_file: Option<PathBuf>,
    /// How long all of it may take.
    pub limit: Duration,
}

/// What it answers.
#[derive(Deserialize)]
struct Answer {
    taken: u64,
    refused: u64,
}

/// Why a page was not taken.
enum NotTaken {
    /// It would be refused again.
    Refused(String),
    /// Perhaps another time.
    Failed(String),
}

/// Whether a text is the address of a broker. The error says what is wrong with it.
pub fn check_url(text: &str) -> std::result::Result<String, String> {
    if text.strip_prefix(SOCKET).is_some_and(|path| path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX) {
        return Ok(text.to_owned());
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    match url.scheme() {
        "http" | "https"
            if url.host().is_some() && is_bare && url.username().is_empty() && url.password().is_none() =>
        {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err("is not the address of a broker".to_owned()),
    }
}

/// The broker that is to have the records.
pub struct Successor {
    client: Client,
    url: String,
    token: Option<TokenFile>,
}

impl Successor {
    /// # Errors
    /// `Invalid` for certificates that cannot be read.
    pub fn new(options: &HandOverOptions) -> Result<Successor> {
        let is_tls = options.url.starts_with("https:");
        let roots = Roots::choose("wal.hand_over_ca_file", options.ca_file.as_deref(), is_tls)?;
        let builder = https::broker_client(&roots)?;
        let (builder, base) = match options.url.strip_prefix(SOCKET) {
            Some(path) => (builder.unix_socket(Path::new(path)), "http://localhost"),
            None => (builder, options.url.as_str()),
        };
        let client = https::build(builder)?;
        let token = options.token_file.clone().map(TokenFile::new);
        Ok(Successor { client, url: format!("{base}{PATH}"), token })
    }

    /// Gives a page, again and again until it is taken, refused, or `until`. When it returns an error the page may have been
    /// taken all the same.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn give(&self, page: &HandedOver, until: Instant) -> Result<TakenOver> {
        let body = encode_page(&page.records)?;
        let mut pause = PAUSE.0;
        loop {
            let limit = Clock::System.instant().plus(PAGE_TIMEOUT).min(until);
            let answer = tokio::select! {
                answer = self.post(page, body.clone()) => answer,
                () = Clock::System.sleep_until(limit) => Err(NotTaken::Failed("no answer in time".to_owned())),
            };
            let why = match answer {
                Ok(taken) => return Ok(taken),
                Err(NotTaken::Refused(why)) => return Err(Error::refused(why)),
                Err(NotTaken::Failed(why)) => why,
            };
            if Clock::System.instant().plus(pause) >= until {
                return Err(Error::unavailable(why));
            }
            Clock::System.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn post(&self, page: &HandedOver, body: Vec<u8>) -> std::result::Result<TakenOver, NotTaken> {
        let mut request = self
            .client
            .post(&self.url)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .header(STORE, &page.store)
            .header(KIND, page.kind.name())
            .header(LOG, &page.log)
            .header(AFTER, page.after)
            .body(body);
        if let Some(heard) = page.heard {
            request = request.header(HEARD, heard.as_ms());
        }
        if let Some(value) = self.authorization()? {
            request = request.header(AUTHORIZATION, value);
        }
        let failed = |error: reqwest::Error| NotTaken::Failed(innermost_cause(&error.without_url()));
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut said = Vec::new();
        while said.len() < SAID_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            said.extend_from_slice(&chunk);
        }
        said.truncate(SAID_BYTES);
        if status == StatusCode::OK {
            let answer = serde_json::from_slice(&said);
            let Answer { taken, refused } = answer.map_err(|error| NotTaken::Failed(format!("its answer: {error}")))?;
            return Ok(if taken + refused == 0 { TakenOver::LacksEarlier } else { TakenOver::Kept { taken, refused } });
        }
        let why = format!("status {status}: {}", String::from_utf8_lossy(&said).trim());
        let is_passing = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        Err(if status.is_client_error() && !is_passing { NotTaken::Refused(why) } else { NotTaken::Failed(why) })
    }

    fn authorization(&self) -> std::result::Result<Option<HeaderValue>, NotTaken> {
        let Some(file) = &self.token else { return Ok(None) };
        let token =
            file.token(Clock::System.instant()).map_err(|why| NotTaken::Failed(format!("the own token {why}")))?;
        let value = HeaderValue::from_str(token.authorization().expose());
        let mut value = value.map_err(|_| NotTaken::Refused("the own token cannot be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for good in
            ["http://dwell-gateway:7373", "https://dwell.shop.svc", "http://[::1]:7373/", "unix:/run/dwell.sock"]
        {
            assert!(check_url(good).is_ok_and(|url| !url.ends_with('/')), "{good}");
        }
        for bad in ["", "dwell-gateway:7373", "unix:run/dwell.sock", "http://a/b", "http://u:p@a", "http://a?b=c"] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
