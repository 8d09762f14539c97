//! The client: how it is set up, and every call of producers and operators. A worker is not part of it.

mod error;
mod address;
mod token;
mod connection;
mod transport;
mod message;
mod pages;
mod messages;
mod topics;
mod groups;
mod dead_letters;
mod bulk;
mod cron;
mod consume;
mod operations;

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

pub use consume::{DeliveryStream, StreamOptions};
pub use dead_letters::DeadLetterFilter;
pub use error::{Error, NotAccepted, Refused, Unavailable, Unreadable};
pub(crate) use message::not_empty;
pub use message::{Conflict, MessageId, NewMessage, Past, Reschedule};
pub use messages::MessageFilter;
pub(crate) use messages::{BATCH_BYTES, BATCH_MESSAGES, batch_body, is_passing};
pub use pages::Pages;
use transport::Answer;
pub(crate) use transport::{Call, Transport, backoff, happened, may_pass};

/// Where a client looks for its server without an address.
const SERVER: &str = "http://127.0.0.1:7373";

const AGENT: &str = concat!("dwell-client-rust/", env!("CARGO_PKG_VERSION"));

/// Where a push stands in a trace, as in W3C Trace Context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The header `traceparent`.
    pub traceparent: String,
    /// The header `tracestate`.
    pub tracestate: Option<String>,
}

type Tracer = Arc<dyn Fn() -> Option<Trace> + Send + Sync>;

/// The result of a call that creates something, or changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Put<T> {
    /// Whether it did not exist before. After a lost answer the call is repeated, and finds what it has created.
    pub created: bool,
    /// As it is now.
    pub value: T,
}

/// A client of one broker, or of several behind one address. A clone shares its connections.
///
/// ```no_run
/// use dwell_client::{Client, NewMessage};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), dwell_client::Error> {
/// let client = Client::connect("http://127.0.0.1:7373")?;
/// client.push("orders", NewMessage::text("close order 4711").delay(Duration::from_secs(1800))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) transport: Arc<Transport>,
    tracer: Option<Tracer>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.transport.address.text).finish_non_exhaustive()
    }
}

/// How a client is set up.
pub struct ClientBuilder {
    server: Option<String>,
    options: transport::Options,
    tracer: Option<Tracer>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("server", &self.server)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Default for ClientBuilder {
    fn default() -> ClientBuilder {
        let file = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        ClientBuilder {
            server: env::var("DWELL_SERVER").ok().filter(|server| !server.is_empty()),
            options: transport::Options {
                token_file: file("DWELL_TOKEN_FILE"),
                ca_file: file("DWELL_CA_FILE"),
                user_agent: AGENT.to_owned(),
                connect_timeout: Duration::from_secs(10),
                timeout: Duration::from_secs(30),
                retry_for: Duration::from_secs(5),
            },
            tracer: None,
        }
    }
}

impl ClientBuilder {
    /// `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. Default: `DWELL_SERVER`, and else `http://127.0.0.1:7373`.
    pub fn server(mut self, server: impl Into<String>) -> ClientBuilder {
        self.server = Some(server.into());
        self
    }

    /// The file with the token, which is read again when it changes; an empty path is none. Default: `DWELL_TOKEN_FILE`.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> ClientBuilder {
        self.options.token_file = Some(path.into()).filter(|path: &PathBuf| !path.as_os_str().is_empty());
        self
    }

    /// CA certificates that verify the broker; an empty path is none. Default: `DWELL_CA_FILE`, and else those of the system.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> ClientBuilder {
        self.options.ca_file = Some(path.into()).filter(|path: &PathBuf| !path.as_os_str().is_empty());
        self
    }

    /// The header `User-Agent`, which the broker writes to its log. Default: the name of this crate and its version.
    pub fn user_agent(mut self, name: impl Into<String>) -> ClientBuilder {
        self.options.user_agent = name.into();
        self
    }

    /// For opening one connection. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.options.connect_timeout = timeout;
        self
    }

    /// For one request. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.options.timeout = timeout;
        self
    }

    /// For how long a call is repeated while there is no final answer. Default 5 s; with zero it is sent once.
    pub fn retry_for(mut self, retry_for: Duration) -> ClientBuilder {
        self.options.retry_for = retry_for;
        self
    }

    /// Says for each push where it stands in a trace. It is called where the push is called, so it can read the current span of
    /// OpenTelemetry.
    pub fn trace(mut self, tracer: impl Fn() -> Option<Trace> + Send + Sync + 'static) -> ClientBuilder {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Makes the client. It opens no connection before the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: the address or the CA file is wrong.
    pub fn build(self) -> Result<Client, Error> {
        let server = self.server.as_deref().unwrap_or(SERVER);
        Ok(Client { transport: Arc::new(Transport::new(server, self.options)?), tracer: self.tracer })
    }
}

impl Client {
    /// A client of this server, with the token and the CA file of the environment.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: the address or the CA file is wrong.
    pub fn connect(server: impl Into<String>) -> Result<Client, Error> {
        Client::builder().server(server).build()
    }

    /// A client that is set up by the environment: `DWELL_SERVER`, `DWELL_TOKEN_FILE` and `DWELL_CA_FILE`.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: the address or the CA file is wrong.
    pub fn from_env() -> Result<Client, Error> {
        Client::builder().build()
    }

    /// Begins with what the environment says.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.transport.read(&self.answer(call).await?)
    }

    /// A call that creates what it names, or changes it.
    async fn put<T: DeserializeOwned>(&self, call: &Call) -> Result<Put<T>, Error> {
        let answer = self.answer(call).await?;
        Ok(Put { created: answer.status == StatusCode::CREATED, value: self.transport.read(&answer)? })
    }

    async fn answer(&self, call: &Call) -> Result<Answer, Error> {
        // Only calls with a stop are stopped.
        self.transport.answer(call).await?.ok_or(Error::Closed)
    }

    pub(crate) fn trace(&self, message: NewMessage) -> NewMessage {
        match self.tracer.as_ref().filter(|_| message.fields.traceparent.is_none()).and_then(|tracer| tracer()) {
            None => message,
            Some(Trace { traceparent, tracestate }) => {
                let message = message.traceparent(traceparent);
                tracestate.into_iter().fold(message, NewMessage::tracestate)
            }
        }
    }
}

/// Every character except these is encoded in a path or query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'~').remove(b'-');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The path of a topic.
///
/// # Errors
///
/// [`Error::Argument`]: it has no name.
pub(crate) fn topic_path(topic: &str) -> Result<String, Error> {
    not_empty("topic", topic)?;
    Ok(format!("/v1/topics/{}", encode(topic)))
}

/// The path of a group.
///
/// # Errors
///
/// [`Error::Argument`]: the topic or the group has no name.
pub(crate) fn group_path(topic: &str, group: &str) -> Result<String, Error> {
    not_empty("group", group)?;
    Ok(format!("{}/groups/{}", topic_path(topic)?, encode(group)))
}

pub(crate) fn key_path(topic: &str, group: &str, key: &str) -> Result<String, Error> {
    not_empty("key", key)?;
    if matches!(key, "." | "..") {
        return Err(Error::argument("the key is a step of a path: pause the group"));
    }
    Ok(format!("{}/keys/{}", group_path(topic, group)?, encode(key)))
}

/// The parameters of a query that have values.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn with(mut self, name: &str, value: Option<impl fmt::Display>) -> Query {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(&format!("{name}={}", encode(&value.to_string())));
        }
        self
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
