//! Calls that are answered only once enough servers have what they changed.
//!
//! `WAIT` confirms the writes of the connection that sends it, and blocks that connection until it is answered. So these calls have a
//! connection to themselves, which leads to the same server as the one for everything else. Calls that come while a `WAIT` is
//! out go together, in one write with one `WAIT` behind them. Since Redis 7.2 it waits for nothing after calls that wrote
//! nothing, such as repeats of what another connection did: so a write stands in front of each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::oneshot;

use super::failure::{self, TOO_FEW};
use super::scripts::{SCRIPTS, ScriptCall};
use crate::model::error::{Error, Result};
use crate::model::spelling::counted;
use crate::platform::tasks::Tasks;

const ROUND_MAX: usize = 64;

/// Which servers must have a change before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmation {
    /// How many replicas, 0 to 16.
    pub replicas: u32,
    /// Whether the primary, and these replicas, must have fsynced it; needs Redis 7.2, and a timeout of 5 s: half of it
    /// is waited, and with `appendfsync everysec` it may take 2 s.
    pub fsync: bool,
}

impl Confirmation {
    pub fn is_needed(self) -> bool {
        self != Confirmation::default()
    }

    fn command(self, replicas: u32, limit: Duration) -> Cmd {
        let mut wait = redis::cmd(if self.fsync { "WAITAOF" } else { "WAIT" });
        if self.fsync {
            wait.arg(u8::from(replicas == self.replicas));
        }
        wait.arg(replicas).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        wait
    }

    fn check(self, answer: &Value) -> Result<()> {
        let number =
            |value: &Value| if let Value::Int(number) = value { u32::try_from(*number).unwrap_or(0) } else { 0 };
        let (local, replicas) = match answer {
            Value::Array(numbers) => (numbers.first().map_or(0, number), numbers.get(1).map_or(0, number)),
            number_of_replicas => (1, number(number_of_replicas)),
        };
        if replicas < self.replicas {
            let asked = self.replicas;
            return Err(Error::outcome_unknown(format!(
                "{TOO_FEW} replicas: {} confirmed the change, and `redis.min_replicas` asks for {asked}",
                counted(replicas, "replica")
            )));
        }
        match local {
            0 => Err(Error::outcome_unknown(format!("{TOO_FEW} fsyncs: Redis did not fsync the change in time"))),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Unconfirmed {
    /// The connection failed, or Redis refused to wait.
    Failed(RedisError),
    /// Too few servers had the change in time, or nobody knows.
    TooFew(Error),
}

#[derive(Clone)]
pub(super) struct ConfirmedConnection {
    connection: MultiplexedConnection,
    confirmation: Confirmation,
    end: [Cmd; 2],
    gathered: Arc<Mutex<Gathered>>,
    rounds: Tasks,
}

#[derive(Default)]
struct Gathered {
    calls: Vec<Waiting>,
    /// Whether a round is out, after which somebody looks here again.
    is_served: bool,
}

struct Waiting {
    commands: Vec<Cmd>,
    answer: oneshot::Sender<std::result::Result<Value, Unconfirmed>>,
}

impl ConfirmedConnection {
    /// Looks whether the user may wait, and Redis can. A call waits for at most half of `timeout`, so that its answer
    /// comes before the caller gives up. `mark` is a key of that server which nothing else uses. Errors: Those of
    /// Redis.
    pub(super) async fn new(
        connection: MultiplexedConnection,
        confirmation: Confirmation,
        timeout: Duration,
        mark: &str,
    ) -> RedisResult<ConfirmedConnection> {
        let probe = Confirmation { replicas: 1, ..confirmation }.command(0, timeout);
        for command in [probe, SCRIPTS.wait_marker.load()] {
            if let Value::ServerError(error) = connection.clone().send_packed_command(&command).await? {
                return Err(error.into());
            }
        }
        let wait = confirmation.command(confirmation.replicas, timeout / 2);
        let end = [ScriptCall::new(&SCRIPTS.wait_marker, &[mark]).command, wait];
        Ok(ConfirmedConnection { connection, confirmation, end, gathered: Arc::default(), rounds: Tasks::new() })
    }

    pub(super) async fn call(&self, commands: Vec<Cmd>) -> std::result::Result<Value, Unconfirmed> {
        let (answer, answered) = oneshot::channel();
        let is_served = {
            let mut gathered = self.gathered();
            gathered.calls.push(Waiting { commands, answer });
            std::mem::replace(&mut gathered.is_served, true)
        };
        if !is_served {
            // Not in this call, which may be given up while others wait for the same answer.
            let this = self.clone();
            self.rounds.start(async move { while this.round().await {} });
        }
        answered.await.unwrap_or_else(|_| Err(Unconfirmed::TooFew(failure::unanswered())))
    }

    async fn round(&self) -> bool {
        let calls: Vec<Waiting> = {
            let mut gathered = self.gathered();
            let count = gathered.calls.len().min(ROUND_MAX);
            gathered.is_served = count > 0;
            // Calls that nobody waits for any more were sent elsewhere.
            gathered.calls.drain(..count).filter(|call| !call.answer.is_closed()).collect()
        };
        if !calls.is_empty() {
            let mut pipeline = Pipeline::new();
            for command in calls.iter().flat_map(|call| &call.commands).chain(&self.end) {
                pipeline.add_command(command.clone());
            }
            let count = pipeline.cmd_iter().count();
            let sent = self.connection.clone().send_packed_commands(&pipeline, 0, count).await;
            self.answer(calls, sent);
        }
        self.gathered().is_served
    }

    fn answer(&self, calls: Vec<Waiting>, sent: RedisResult<Vec<Value>>) {
        let (mut values, confirmed) = match sent {
            Ok(mut values) => {
                let (waited, marked) = (values.pop().unwrap_or(Value::Nil), values.pop().unwrap_or(Value::Nil));
                let confirmed = match (marked, waited) {
                    (Value::ServerError(error), _) | (_, Value::ServerError(error)) => {
                        Err(Unconfirmed::Failed(error.into()))
                    }
                    (_, waited) => self.confirmation.check(&waited).map_err(Unconfirmed::TooFew),
                };
                (values.into_iter(), confirmed)
            }
            Err(error) => (Vec::new().into_iter(), Err(Unconfirmed::Failed(error))),
        };
        for Waiting { commands, answer } in calls {
            let value = values.by_ref().take(commands.len()).last();
            let _ = answer.send(match (value, &confirmed) {
                // A refused call was not applied, so there is nothing to confirm.
                (Some(refused @ Value::ServerError(_)), _) => Ok(refused),
                (Some(value), Ok(())) => Ok(value),
                (_, Err(error)) => Err(error.clone()),
                (None, Ok(())) => Err(Unconfirmed::TooFew(failure::unanswered())),
            });
        }
    }

    fn gathered(&self) -> std::sync::MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Kind;
    use crate::store::redis::failure::is_too_few;

    #[test]
    fn an_answer_counts_replicas_and_fsyncs() {
        let two = Confirmation { replicas: 2, fsync: false };
        assert_eq!(two.check(&Value::Int(2)), Ok(()));
        assert!(
            two.check(&Value::Int(1)).is_err_and(|error| error.kind() == Kind::OutcomeUnknown && is_too_few(&error))
        );
        assert!(two.check(&Value::Nil).is_err());
        let synced = Confirmation { replicas: 1, fsync: true };
        let answer = |local, replicas| Value::Array(vec![Value::Int(local), Value::Int(replicas)]);
        assert_eq!(synced.check(&answer(1, 1)), Ok(()));
        assert!(synced.check(&answer(0, 1)).is_err_and(|error| error.detail().contains("did not fsync")));
        assert!(
            synced.check(&answer(1, 0)).is_err_and(|error| error.detail().contains("0 replicas confirmed the change"))
        );
    }
}
