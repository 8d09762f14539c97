//! Bare commands, without scripts and without promises: what one would send to this Redis without dwell, and the figures
//! of Redis about that work. It has its own connection, and shares nothing with the store.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError, Value};

use crate::app::config::RedisUrl;
use crate::model::error::{Error, Result};

const PAGE: usize = 500;

/// How long a write of bare commands may take: it has many of them.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct BaselineRedis {
    connection: MultiplexedConnection,
}

/// How commands are sent: what a message costs bare depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BaselineStyle {
    /// One command for each message and step, as many in one write as there are messages.
    Each,
    /// One command for each step, with all messages as its arguments.
    Together,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RedisUsage {
    /// Calls and microseconds of each command. Commands of a script count for themselves, and again in `evalsha`.
    pub(super) commands: BTreeMap<String, (u64, u64)>,
    /// Microseconds of processor time of the server, with reading requests and writing answers.
    pub(super) cpu_us: u64,
    pub(super) memory_bytes: u64,
}

impl RedisUsage {
    pub(super) fn of(&self, names: &[&str], before: &RedisUsage) -> (u64, u64) {
        let sum = |usage: &RedisUsage| {
            let found = names.iter().filter_map(|name| usage.commands.get(*name));
            found.fold((0, 0), |sum: (u64, u64), command| (sum.0 + command.0, sum.1 + command.1))
        };
        let (now, then) = (sum(self), sum(before));
        (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
    }
}

impl BaselineRedis {
    /// Connects and logs in.
    ///
    /// # Errors
    /// `Invalid` for a URL that does not lead to a single Redis, or `Unavailable`.
    pub(super) async fn open(url: &RedisUrl) -> Result<BaselineRedis> {
        let refused = |error: RedisError| {
            Error::invalid("--redis", format!("is not the URL of a single Redis ({})", error.category()))
        };
        let info = Client::open(url.secret().expose()).map_err(refused)?.get_connection_info().clone();
        // As the store has it: small commands must not wait for one another in the kernel.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(refused)?;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        Ok(BaselineRedis { connection })
    }

    pub(super) async fn ping(&self, count: usize) -> Result<()> {
        let pings = (0..count).map(|_| redis::cmd("PING"));
        self.pipeline(pings.collect()).await
    }

    pub(super) async fn push(&self, key: &str, ids: &[String], payload: &[u8], style: BaselineStyle) -> Result<()> {
        let (z, h) = (format!("{key}:z"), format!("{key}:h"));
        let step = |ids: &[String]| {
            let (mut zadd, mut hset) = (redis::cmd("ZADD"), redis::cmd("HSET"));
            zadd.arg(&z);
            hset.arg(&h);
            for id in ids {
                zadd.arg(1).arg(id);
                hset.arg(id).arg(payload);
            }
            [zadd, hset]
        };
        let pages = ids.chunks(style.page(ids.len()));
        self.pipeline(pages.flat_map(step).collect()).await
    }

    /// Takes up to `max` due messages of a key: removes the ids, reads and deletes the bodies. Answers how many.
    pub(super) async fn take(&self, key: &str, max: usize, style: BaselineStyle) -> Result<usize> {
        let (z, h) = (format!("{key}:z"), format!("{key}:h"));
        let mut due = redis::cmd("ZRANGE");
        due.arg(&z).arg("-inf").arg(2).arg("BYSCORE").arg("LIMIT").arg(0).arg(max);
        let ids: Vec<String> = self.ask(&due).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        let command = |name, key: &str, ids: &[String]| {
            let mut command = redis::cmd(name);
            command.arg(key).arg(ids);
            command
        };
        let page = style.page(ids.len());
        let take = ids.chunks(page).flat_map(|ids| [command("ZREM", &z, ids), command("HMGET", &h, ids)]);
        self.pipeline(take.collect()).await?;
        self.pipeline(ids.chunks(page).map(|ids| command("HDEL", &h, ids)).collect()).await?;
        Ok(ids.len())
    }

    /// How far its clock is ahead of `local_us` (read before and after), in microseconds; 0 within the round trip.
    pub(super) async fn ahead_us(&self, local_us: impl Fn() -> i64) -> Result<i64> {
        let sent = local_us();
        let (seconds, micros): (i64, i64) = self.ask(&redis::cmd("TIME")).await?;
        let answered = local_us();
        let ahead = seconds * 1_000_000 + micros - (sent + answered) / 2;
        Ok(if ahead.abs() <= (answered - sent) / 2 + 1_000 { 0 } else { ahead })
    }

    pub(super) async fn usage(&self) -> Result<RedisUsage> {
        let mut usage = RedisUsage::default();
        for section in ["commandstats", "cpu", "memory"] {
            let info: String = self.ask(redis::cmd("INFO").arg(section)).await?;
            info.lines().filter_map(|line| line.trim_end().split_once(':')).for_each(|(name, value)| {
                usage.read(name, value);
            });
        }
        Ok(usage)
    }

    pub(super) async fn version(&self) -> Result<String> {
        let info: String = self.ask(&redis::cmd("INFO")).await?;
        let field = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)).unwrap_or_default();
        let aof = if field("aof_enabled:") == "1" { "append-only file" } else { "no append-only file" };
        Ok(format!("Redis {}, {aof}", field("redis_version:")))
    }

    pub(super) async fn holds(&self, prefix: &str) -> Result<bool> {
        let mut found = false;
        self.scan(prefix, async |keys| {
            found |= !keys.is_empty();
            Ok(())
        })
        .await?;
        Ok(found)
    }

    pub(super) async fn clear(&self, prefix: &str) -> Result<()> {
        self.scan(prefix, async |keys| match keys.is_empty() {
            true => Ok(()),
            false => self.ask::<()>(redis::cmd("UNLINK").arg(keys)).await,
        })
        .await
    }

    async fn scan(&self, prefix: &str, mut page: impl AsyncFnMut(Vec<String>) -> Result<()>) -> Result<()> {
        // A prefix has no character that SCAN would read as a pattern.
        for pattern in [format!("{prefix}:*"), format!("{{{prefix}:*")] {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(PAGE);
                let (next, keys): (String, Vec<String>) = self.ask(&scan).await?;
                cursor = next;
                page(keys).await?;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        command.query_async(&mut self.connection.clone()).await.map_err(failed)
    }

    /// Sends all commands in one write. Errors: also if Redis refused one of them.
    async fn pipeline(&self, commands: Vec<Cmd>) -> Result<()> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        commands.into_iter().for_each(|command| {
            pipeline.add_command(command);
        });
        let answers: Vec<Value> = pipeline.query_async(&mut self.connection.clone()).await.map_err(failed)?;
        drop(answers);
        Ok(())
    }
}

fn failed(error: RedisError) -> Error {
    Error::unavailable(format!("Redis: {error}"))
}

impl BaselineStyle {
    fn page(self, count: usize) -> usize {
        match self {
            BaselineStyle::Each => 1,
            BaselineStyle::Together => count.max(1),
        }
    }
}

impl RedisUsage {
    fn read(&mut self, name: &str, value: &str) {
        let micros = |seconds: &str| Duration::try_from_secs_f64(seconds.parse().unwrap_or(0.0)).unwrap_or_default();
        match name {
            "used_memory" => self.memory_bytes = value.parse().unwrap_or(0),
            "used_cpu_user" | "used_cpu_sys" => {
                self.cpu_us += u64::try_from(micros(value).as_micros()).unwrap_or(u64::MAX);
            }
            name => {
                let Some(command) = name.strip_prefix("cmdstat_") else { return };
                let field = |field: &str| {
                    let found = value.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
                    found.and_then(|number| number.parse().ok()).unwrap_or(0)
                };
                self.commands.insert(command.to_owned(), (field("calls"), field("usec")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_cost_is_the_difference_of_two_readings() {
        let read = |lines: &[(&str, &str)]| {
            let mut usage = RedisUsage::default();
            lines.iter().for_each(|(name, value)| usage.read(name, value));
            usage
        };
        let before = read(&[("cmdstat_zadd", "calls=1,usec=5,usec_per_call=5.00"), ("used_cpu_sys", "0.5")]);
        let after = read(&[
            ("cmdstat_zadd", "calls=3,usec=9,usec_per_call=3.00"),
            ("cmdstat_hset", "calls=1,usec=2,usec_per_call=2.00"),
            ("used_cpu_sys", "0.500001"),
            ("used_cpu_user", "1.25"),
            ("used_memory", "77"),
        ]);
        assert_eq!(after.of(&["zadd", "hset", "hdel"], &before), (3, 6));
        assert_eq!((before.cpu_us, after.cpu_us, after.memory_bytes), (500_000, 1_750_001, 77));
    }
}
