//! The connection to Redis: one multiplexed connection, dropped and made anew when it is of no use any more.
//!
//! Retries of the client library are not used: whether a call may be repeated is decided where the call is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use super::history::History;
use super::scripts::{Call, Script};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Kind, Result};
use crate::metrics::Metrics;

/// Timeouts in a row after which a connection counts as half open.
const TIMEOUTS_MAX: u32 = 3;

/// The connection there is, or why there is none.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// When the last attempt to connect failed, and how.
    failure: Option<(Instant, Error)>,
}

/// The way to one Redis.
pub(super) struct Connection {
    client: Client,
    timeout: Duration,
    metrics: Arc<Metrics>,
    history: History,
    current: Mutex<Current>,
    /// Counts connections, so that a failure of an old one does not drop its successor.
    number: AtomicU64,
    timeouts: AtomicU32,
}

impl Connection {
    pub(super) fn new(client: Client, timeout: Duration, metrics: Arc<Metrics>, history: History) -> Connection {
        Connection {
            client,
            timeout,
            metrics,
            history,
            current: Mutex::default(),
            number: AtomicU64::new(0),
            timeouts: AtomicU32::new(0),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls a script.
    pub(super) async fn eval(&self, call: &Call) -> Result<Value> {
        let began = Clock::System.instant();
        let answer = match self.call(&call.command).await {
            Err(error) if error.detail().starts_with(NOSCRIPT) => {
                self.load(call.script).await?;
                self.call(&call.command).await
            }
            answer => answer,
        };
        self.measure(call.script, began, answer.as_ref().err());
        answer
    }

    /// Calls a script many times in one write; each call is answered for itself.
    pub(super) async fn eval_all(&self, script: &'static Script, calls: &[Call]) -> Vec<Result<Value>> {
        let began = Clock::System.instant();
        let mut pipeline = Pipeline::with_capacity(calls.len());
        calls.iter().for_each(|call| {
            pipeline.add_command(call.command.clone());
        });
        let mut answers = self.pipeline(&pipeline, calls.len()).await;
        let forgotten = |answer: &Result<Value>| matches!(answer, Err(error) if error.detail().starts_with(NOSCRIPT));
        if answers.iter().any(forgotten) && self.load(script).await.is_ok() {
            answers = self.pipeline(&pipeline, calls.len()).await;
        }
        self.measure(script, began, answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    /// Makes the script known to Redis, for calls by digest.
    async fn load(&self, script: &Script) -> Result<Value> {
        self.call(redis::cmd("SCRIPT").arg("LOAD").arg(script.source)).await
    }

    fn measure(&self, script: &Script, began: Instant, error: Option<&Error>) {
        let took = Clock::System.instant().since(began);
        self.metrics.store_call(script.verb, took, error.map(Error::kind));
    }

    /// Calls one command.
    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        let (number, mut connection) = self.connect().await?;
        match connection.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => Err(self.failed(number, error.into()).await),
            Ok(value) => {
                self.answered();
                Ok(value)
            }
            Err(error) => Err(self.failed(number, error).await),
        }
    }

    /// Calls commands in one write; each is answered for itself.
    pub(super) async fn pipeline(&self, pipeline: &Pipeline, count: usize) -> Vec<Result<Value>> {
        if count == 0 {
            return Vec::new();
        }
        let (number, mut connection) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return vec![Err(error); count],
        };
        match connection.send_packed_commands(pipeline, 0, count).await {
            Ok(values) => {
                self.answered();
                let mut answers = Vec::with_capacity(values.len());
                for value in values {
                    answers.push(match value {
                        Value::ServerError(error) => Err(self.failed(number, error.into()).await),
                        value => Ok(value),
                    });
                }
                answers
            }
            Err(error) => vec![Err(self.failed(number, error).await); count],
        }
    }

    async fn connect(&self) -> Result<(u64, MultiplexedConnection)> {
        let began = Clock::System.instant();
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((self.number.load(Ordering::Relaxed), connection.clone()));
        }
        // Who waited while another one tried shares its failure: one by one they would wait for many timeouts.
        if let Some((_, error)) = current.failure.as_ref().filter(|(at, _)| *at >= began) {
            return Err(error.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let connected = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            self.history.look(&mut connection).await?;
            Ok(connection)
        };
        let connection = match connected.await {
            Ok(connection) => connection,
            Err(error) => {
                let error = self.note(unreachable_redis(&error));
                current.failure = Some((Clock::System.instant(), error.clone()));
                return Err(error);
            }
        };
        current.connection = Some(connection.clone());
        self.timeouts.store(0, Ordering::Relaxed);
        self.metrics.store_up.set(1);
        Ok((self.number.fetch_add(1, Ordering::Relaxed) + 1, connection))
    }

    /// It answers, so neither timeouts nor refusals before this count any more.
    fn answered(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.metrics.store_up.set(1);
    }

    async fn failed(&self, number: u64, error: RedisError) -> Error {
        let timed_out = error.is_timeout() && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX;
        let demoted = matches!(error.code(), Some("READONLY" | "MASTERDOWN"));
        if timed_out || demoted || error.is_unrecoverable_error() || (error.is_io_error() && !error.is_timeout()) {
            let mut current = self.current.lock().await;
            if self.number.load(Ordering::Relaxed) == number {
                current.connection = None;
            }
        }
        self.note(outcome(&error))
    }

    fn note(&self, error: Error) -> Error {
        if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown) {
            self.metrics.store_up.set(0);
        }
        error
    }
}

/// How the detail of an error begins when Redis has no such script.
const NOSCRIPT: &str = "Redis: NOSCRIPT";

fn unreachable_redis(error: &RedisError) -> Error {
    Error::unavailable(format!("Redis cannot be reached ({error}); check that it runs and that `redis.url` is right"))
}

/// What a failure means for the call that met it.
fn outcome(error: &RedisError) -> Error {
    let Some(code) = error.code() else {
        if error.is_connection_refusal() {
            return unreachable_redis(error);
        }
        return Error::outcome_unknown(format!("Redis did not answer ({error})"));
    };
    let detail = format!("Redis: {code} {}", error.detail().unwrap_or_default());
    match code {
        "WRONGTYPE" => Error::corrupt(format!("{detail}; another program uses dwell's keys")),
        "ERR" if detail.contains("user_script") || detail.contains("script:") => Error::corrupt(detail),
        // Refused before the first write, by design of the scripts: they are atomic, and flags are checked up front.
        _ => Error::unavailable(detail),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::super::keys::Keys;
    use super::*;

    #[tokio::test]
    async fn callers_that_wait_share_the_failure_of_a_connection() -> std::result::Result<(), Box<dyn std::error::Error>>
    {
        // It takes connections and never says a word.
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("redis.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path)?;
        let client = Client::open(format!("redis+unix://{}", path.display()))?;
        let timeout = Duration::from_millis(100);
        let connection = Connection::new(
            client,
            timeout,
            Arc::new(Metrics::new()?),
            History::new(Keys::new("dwell"), Clock::System),
        );
        let ping = redis::cmd("PING");
        let began = Clock::System.instant();
        let answers = join_all((0..30).map(|_| connection.call(&ping))).await;
        let took = Clock::System.instant().since(began);
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable)));
        assert!(took < timeout * 5, "{took:?}");
        Ok(())
    }
}
