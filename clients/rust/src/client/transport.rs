//! Requests and answers: connections that are reused, repeats until an answer is final, and the problem that an answer is. It knows no
//! request by name.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::address::{Address, Place};
use super::connection::{self, Connection};
use super::error::{Error, Refused, Unavailable, Unreadable};
use super::token::TokenFile;
use crate::wire::problem::Problem;

/// The broker closes idle connections after 75 seconds.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Idle connections that are kept.
const IDLE_COUNT_MAX: usize = 64;
/// How long an answer is awaited after the request was ended.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// How a client reaches its server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) user_agent: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) retry_for: Duration,
}

/// A request, which may be sent several times.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    /// For one try; that of the client if absent.
    pub(crate) timeout: Option<Duration>,
    /// For all repeats; that of the client if absent.
    pub(crate) retry_for: Option<Duration>,
    /// Sending it twice would have its effect twice, so it is repeated only if the first try certainly had none.
    pub(crate) only_once: bool,
    /// A success has no end: its body is read as it comes.
    pub(crate) is_stream: bool,
    /// Ends the request early, once this is true.
    pub(crate) stop: Option<watch::Receiver<bool>>,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Call {
        Call {
            method,
            path: path.into(),
            body: None,
            header: None,
            timeout: None,
            retry_for: None,
            only_once: false,
            is_stream: false,
            stop: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Call {
        Call::new(Method::POST, path)
    }

    pub(crate) fn bytes(self, body: impl Into<Bytes>) -> Call {
        Call { body: Some(body.into()), ..self }
    }

    /// # Errors
    ///
    /// The body has no form in JSON.
    pub(crate) fn json(self, body: &impl serde::Serialize) -> Result<Call, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::argument(error.to_string()))?;
        Ok(self.bytes(body))
    }

    pub(crate) fn only_once(self) -> Call {
        Call { only_once: true, ..self }
    }
}

/// Why a try failed.
enum Failed {
    /// An answer that is no success.
    Answered(Refused),
    /// No answer. Perhaps the request was carried out.
    Unanswered(io::Error),
    /// The request never left.
    Unsent(io::Error),
    /// The request was ended by [`Call::stop`].
    Stopped,
}

/// Sends requests to a server, for any number of callers at a time.
pub(crate) struct Transport {
    pub(crate) address: Arc<Address>,
    tls: Option<TlsConnector>,
    token: Arc<TokenFile>,
    agent: HeaderValue,
    connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) retry_for: Duration,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Transport {
    pub(crate) fn new(server: &str, options: Options) -> Result<Transport, Error> {
        let address = Arc::new(Address::parse(server)?);
        let tls = match &address.place {
            Place::Tcp { is_tls: true, .. } => Some(connection::tls(options.ca_file.as_deref())?),
            _ => None,
        };
        let agent = HeaderValue::from_str(&options.user_agent);
        Ok(Transport {
            address,
            tls,
            token: Arc::new(TokenFile::new(options.token_file)),
            agent: agent.map_err(|_| Error::Setup(format!("{:?} is no user agent", options.user_agent)))?,
            connect_timeout: options.connect_timeout,
            timeout: options.timeout,
            retry_for: options.retry_for,
            idle: Mutex::default(),
        })
    }

    /// With connections that nothing else uses: behind a load balancer they stay with one broker.
    pub(crate) fn sibling(&self) -> Transport {
        Transport {
            address: self.address.clone(),
            tls: self.tls.clone(),
            token: self.token.clone(),
            agent: self.agent.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            retry_for: self.retry_for,
            idle: Mutex::default(),
        }
    }

    /// Sends a request until its answer is final, and reads it. `None` if it was ended by its [`Call::stop`].
    ///
    /// # Errors
    ///
    /// Those of [`Transport::answer`], and [`Error::Unreadable`].
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<Option<T>, Error> {
        let answer = self.answer(call).await?;
        answer.map(|answer| self.read(&answer)).transpose()
    }

    /// Sends a request until its answer is final: a success, or results of its parts. `None` if it was ended by its [`Call::stop`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], and [`Error::Unavailable`] when the time for repeats is over.
    pub(crate) async fn answer(&self, call: &Call) -> Result<Option<Answer>, Error> {
        let until = Instant::now() + call.retry_for.unwrap_or(self.retry_for);
        let (mut is_open, mut tries) = (false, 0);
        loop {
            let (wait, last) = match self.attempt(call, &mut is_open).await? {
                Ok(answer) => return Ok(Some(answer)),
                Err(Failed::Stopped) => return Ok(None),
                Err(Failed::Answered(refused)) => {
                    let refused = Refused { repeated: is_open, ..refused };
                    is_open |= refused.status == 504;
                    if !may_pass(refused.status) {
                        return Err(Error::Refused(Box::new(refused)));
                    }
                    (refused.retry_after.unwrap_or_default(), Failed::Answered(refused))
                }
                Err(Failed::Unanswered(error)) => {
                    is_open = true;
                    (Duration::ZERO, Failed::Unanswered(error))
                }
                Err(failed) => (Duration::ZERO, failed),
            };
            let wait = wait.max(backoff(tries, Duration::from_millis(50), Duration::from_secs(2)));
            if Instant::now() + wait > until || (call.only_once && is_open) {
                return Err(self.unavailable(last, is_open));
            }
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }

    /// Reads an answer as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`].
    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
        serde_json::from_slice(body).map_err(|error| self.unreadable(error.to_string()))
    }

    fn unavailable(&self, failed: Failed, repeated: bool) -> Error {
        let address = self.address.text.clone();
        let (answer, detail, cause) = match failed {
            Failed::Answered(refused) => (Some(refused.clone()), refused.to_string(), None),
            Failed::Unanswered(error) | Failed::Unsent(error) => {
                (None, with_causes(&error), Some(Arc::new(error) as _))
            }
            Failed::Stopped => (None, "stopped".to_owned(), None),
        };
        Error::Unavailable(Box::new(Unavailable { address, answer, detail, repeated, cause }))
    }

    /// An answer that is not one of dwell.
    pub(crate) fn unreadable(&self, detail: impl Into<String>) -> Error {
        Error::Unreadable(Box::new(Unreadable { address: self.address.text.clone(), detail: detail.into() }))
    }

    /// An answer that broke off: the request was carried out, perhaps in part.
    pub(crate) fn broke_off(&self, error: io::Error) -> Error {
        self.unavailable(Failed::Unanswered(error), true)
    }

    /// A part of a request that the broker could not do until the time for repeats was over.
    pub(crate) fn answered_unavailable(&self, answer: Refused) -> Error {
        let is_open = answer.status == 504;
        self.unavailable(Failed::Answered(answer), is_open)
    }

    /// One try. A connection that the broker closed meanwhile, or a token that was replaced, is no reason to fail.
    async fn attempt(&self, call: &Call, is_open: &mut bool) -> Result<Result<Answer, Failed>, Error> {
        let mut token = self.token.read(false)?;
        let timeout = call.timeout.unwrap_or(self.timeout);
        let until = Instant::now() + timeout;
        let is_repeatable = !call.only_once && !call.retry_for.unwrap_or(self.retry_for).is_zero();
        loop {
            let connection = match self.connection(call.only_once || call.is_stream).await {
                Ok(connection) => connection,
                Err(error) => return Ok(Err(Failed::Unsent(error))),
            };
            let (connection, is_reused) = connection;
            let left = until.saturating_duration_since(Instant::now());
            let exchanged = tokio::time::timeout(left, self.exchange(call, token.as_deref(), connection)).await;
            let answer = match exchanged {
                Err(_) => {
                    let why = format!("no answer within {} s", timeout.as_secs_f32());
                    return Ok(Err(Failed::Unanswered(io::Error::new(io::ErrorKind::TimedOut, why))));
                }
                Ok(Ok(answer)) => answer,
                Ok(Err(failed)) => {
                    // A connection that was used before: probably the broker closed it before it saw the request. It is certain if
                    // nothing was sent, and else the request is one more that may be repeated.
                    let is_sent_again = match &failed {
                        Failed::Unsent(_) => is_reused,
                        Failed::Unanswered(_) => is_reused && is_repeatable,
                        Failed::Answered(_) | Failed::Stopped => false,
                    };
                    if !is_sent_again {
                        return Ok(Err(failed));
                    }
                    *is_open |= matches!(failed, Failed::Unanswered(_));
                    // Probably the others were closed, too.
                    self.idle().clear();
                    continue;
                }
            };
            if answer.status == StatusCode::UNAUTHORIZED {
                let now = self.token.read(true)?;
                if now != token {
                    token = now;
                    continue;
                }
            }
            return Ok(answer.checked());
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn idle_connection(&self) -> Option<Connection> {
        loop {
            let (mut connection, since) = self.idle().pop()?;
            if since.elapsed() < IDLE_MAX && connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// A connection, and whether it was used before: then the broker may close it while a request is on its way.
    async fn connection(&self, is_new: bool) -> io::Result<(Connection, bool)> {
        if !is_new && let Some(connection) = self.idle_connection().await {
            return Ok((connection, true));
        }
        Ok((connection::connect(&self.address, self.tls.as_ref(), self.connect_timeout).await?, false))
    }

    async fn exchange(&self, call: &Call, token: Option<&str>, connection: Connection) -> Result<Answer, Failed> {
        let Connection { mut sender, sending } = connection;
        let request = self.request(call, token).map_err(|error| Failed::Unsent(io::Error::other(error)))?;
        let answering = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let is_stream = call.is_stream && head.status.is_success();
            let (body, stream) = match is_stream {
                true => (Bytes::new(), Some(body)),
                false => (body.collect().await?.to_bytes(), None),
            };
            Ok::<_, hyper::Error>((Answer { status: head.status, headers: head.headers, body, stream }, sender))
        };
        let mut answering = std::pin::pin!(answering);
        let answered = match call.stop.clone() {
            None => answering.await,
            Some(mut stop) => tokio::select! {
                answered = &mut answering => answered,
                () = happened(&mut stop) => {
                    sending.end();
                    return match tokio::time::timeout(LAST_ANSWER, answering).await {
                        Ok(Ok((answer, _))) => Ok(answer),
                        _ => Err(Failed::Stopped),
                    };
                }
            },
        };
        let (answer, sender) = answered.map_err(|error| match error.is_canceled() {
            true => Failed::Unsent(io::Error::other(error)),
            false => Failed::Unanswered(io::Error::other(error)),
        })?;
        let mut idle = self.idle();
        if answer.stream.is_none() && idle.len() < IDLE_COUNT_MAX && !sender.is_closed() {
            idle.push((Connection { sender, sending }, Instant::now()));
        }
        Ok(answer)
    }

    fn request(&self, call: &Call, token: Option<&str>) -> hyper::http::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(&call.method).uri(&call.path).header(HOST, &self.address.host);
        request = request.header(USER_AGENT, &self.agent);
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some((name, value)) = &call.header {
            request = request.header(name, value);
        }
        request.body(Full::new(call.body.clone().unwrap_or_default()))
    }
}

/// Waits until this is true. A sender that has gone says nothing more.
pub(crate) async fn happened(signal: &mut watch::Receiver<bool>) {
    if signal.wait_for(|happened| *happened).await.is_err() {
        std::future::pending().await
    }
}

/// An error with its causes: the text of hyper's own is general.
fn with_causes(error: &io::Error) -> String {
    let first: &dyn std::error::Error = error;
    let all = std::iter::successors(Some(first), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A success, or a problem with results of its parts.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The body of a [`Call::is_stream`]. Its connection ends when this is dropped.
    pub(crate) stream: Option<Incoming>,
}

impl Answer {
    fn checked(self) -> Result<Answer, Failed> {
        if self.status.is_success() {
            return Ok(self);
        }
        let problem: Option<Problem> = serde_json::from_slice(&self.body).ok();
        // A problem with verdicts or results is an answer to read: only some of it failed.
        let has_results = problem.as_ref().is_some_and(|problem| {
            problem.results.as_ref().and_then(|results| results.as_array()).is_some_and(|results| !results.is_empty())
        });
        if has_results {
            return Ok(self);
        }
        let seconds = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let refused = match problem {
            Some(problem) => Refused::of(problem),
            None => Refused {
                status: 0,
                kind: String::new(),
                detail: String::from_utf8_lossy(&self.body).chars().take(200).collect(),
                request_id: None,
                retry_after: None,
                repeated: false,
                problem: None,
            },
        };
        let (status, retry_after) = (self.status.as_u16(), seconds.map(Duration::from_secs));
        Err(Failed::Answered(Refused { status, retry_after, ..refused }))
    }
}

/// Whether the same request may succeed later.
pub(crate) fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 503 | 504)
}

/// How long to wait after so many tries: exponential, with jitter.
pub(crate) fn backoff(tries: u32, first: Duration, most: Duration) -> Duration {
    let wait = first.saturating_mul(1 << tries.min(16)).min(most);
    wait / 2 + (wait / 2).mul_f64(fastrand::f64())
}
