//! Noticing that Redis is not the one it was: another run, or another replica. It may have lost its last writes.
//!
//! Every new connection looks before its first call. Who finds another Redis first notes so in Redis itself, so that a
//! process that starts afterwards knows as well.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;

use super::keys::Keys;
use super::scripts::SCRIPTS;
use crate::clock::Clock;
use crate::store::Loss;

/// A notice older than this is of no interest: no lease runs longer.
const OLD: Duration = Duration::from_secs(3_600);

/// Which Redis this process has seen.
pub(super) struct History {
    keys: Keys,
    clock: Clock,
    seen: Mutex<Option<String>>,
    losses: watch::Sender<Loss>,
}

impl History {
    pub(super) fn new(keys: Keys, clock: Clock) -> History {
        History { keys, clock, seen: Mutex::default(), losses: watch::Sender::default() }
    }

    pub(super) fn losses(&self) -> watch::Receiver<Loss> {
        self.losses.subscribe()
    }

    /// Looks which Redis is at the other end of a new connection.
    pub(super) async fn look(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let id = identity(connection).await?;
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.as_ref() == Some(&id) {
            return Ok(());
        }
        let before = self.clock.instant();
        let age = self.notice(connection, &id).await?;
        let since = (age < OLD).then(|| before.minus(age));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        self.losses.send_modify(|loss| {
            loss.count += u64::from(known.is_some());
            loss.since = since;
        });
        if known.is_some() {
            tracing::warn!("this is another Redis than before: it may have lost its last writes");
        }
        Ok(())
    }

    /// For how long this Redis has been known to be this one.
    async fn notice(&self, connection: &mut MultiplexedConnection, id: &str) -> RedisResult<Duration> {
        let topics: Value = connection.send_packed_command(redis::cmd("EXISTS").arg(self.keys.topics())).await?;
        let anything = i32::from(matches!(topics, Value::Int(1)));
        let over = self.clock.manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string());
        let mut call = redis::cmd("EVAL");
        call.arg(SCRIPTS.notice.source).arg(1).arg(self.keys.history()).arg(id).arg(anything).arg(over);
        let (_, _, age_ms): (String, u64, u64) = ask(connection, &call).await?;
        Ok(Duration::from_millis(age_ms))
    }
}

/// The run and the replication history of a Redis: either changes when it may have lost something.
async fn identity(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    let mut server = redis::cmd("INFO");
    server.arg("server");
    let mut replication = redis::cmd("INFO");
    replication.arg("replication");
    let text =
        format!("{}\r\n{}", ask::<String>(connection, &server).await?, ask::<String>(connection, &replication).await?);
    let fields: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or("unknown");
    Ok(format!("{}/{}", field("run_id"), field("master_replid")))
}

async fn ask<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<T> {
    command.query_async(connection).await
}
