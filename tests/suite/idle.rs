//! Waiting costs nothing: with messages an hour ahead and a consumer that waits, Redis sees leases being renewed, the
//! member saying that it lives, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::error::{Error, Result};
use dwell::message::{GroupName, NewMessage, TopicName};

use crate::support::{RedisServer, Running, World, eventually};

const MESSAGES: usize = 100_000;
const PARTITIONS: u64 = 8;
/// Renewals of every lease that are watched.
const ROUNDS: u64 = 6;

/// What `renew` and `beat` are made of, and what this story asks.
const RENEW: [&str; 5] = ["get", "hget", "pexpire", "zrange", "getrange"];
const BEAT: [&str; 4] = ["zremrangebyscore", "zadd", "pexpire", "zrange"];
const OTHERS: [&str; 6] = ["evalsha", "time", "ping", "info", "config|resetstat", "client|setinfo"];

/// The commands that Redis saw since its statistics began anew, with how often.
async fn commands(server: &RedisServer) -> Result<BTreeMap<String, u64>> {
    let text: String = server.ask("INFO commandstats").await?;
    let read = |line: &str| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), stats.split(',').next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(read).collect())
}

/// Waits until every lease was renewed so often, and returns what Redis saw meanwhile.
async fn while_renewed(server: &RedisServer, rounds: u64) -> Result<BTreeMap<String, u64>> {
    server.ask::<()>("CONFIG RESETSTAT").await?;
    // A renewal reads one owner line.
    eventually("the leases are renewed", async || {
        let seen = commands(server).await?;
        Ok((seen.get("hget") >= Some(&(rounds * PARTITIONS))).then_some(seen))
    })
    .await
}

fn only_renewals_and_heartbeats(seen: &BTreeMap<String, u64>) -> bool {
    let known = |command: &str| [&RENEW[..], &BEAT, &OTHERS].iter().any(|list| list.contains(&command));
    let times = |command: &str| seen.get(command).copied().unwrap_or(0);
    let (renewals, beats) = (times("hget"), times("zadd"));
    seen.keys().all(|command| known(command))
        && times("evalsha") == renewals + beats
        && times("zrange") == renewals + beats
        && times("pexpire") == renewals + beats
        && times("getrange") == renewals
        && times("zremrangebyscore") == beats
}

#[tokio::test]
async fn redis_sees_renewals_and_heartbeats_and_nothing_else() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    let options = Options { lease_ttl: Duration::from_secs(1), ..Options::default() };
    let running = Running::start(&world, options)?;
    let topic = TopicName::new("orders")?;
    let message = |_| NewMessage::new("close the order").after(Duration::from_secs(3_600));
    for _ in 0..MESSAGES / 1_000 {
        let batch = (0..1_000).map(message).collect();
        running.broker.push_batch(&topic, batch).await?.into_iter().try_for_each(|pushed| pushed.map(drop))?;
    }
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(60), visibility_timeout: None };
    let group = GroupName::standard();
    let idle = async {
        // Acquiring, subscribing and a first look come first.
        eventually("everything is at rest", async || {
            Ok(only_renewals_and_heartbeats(&while_renewed(&server, 1).await?).then_some(()))
        })
        .await?;
        while_renewed(&server, ROUNDS).await
    };
    tokio::select! {
        delivered = running.broker.reserve(&topic, &group, request) => {
            return Err(Error::bug(format!("the consumer does not wait: {delivered:?}")));
        }
        seen = idle => {
            let seen = seen?;
            assert!(only_renewals_and_heartbeats(&seen), "{seen:?}");
        }
    }
    assert_eq!(running.messages(&topic).await?, MESSAGES as u64);
    Ok(())
}
