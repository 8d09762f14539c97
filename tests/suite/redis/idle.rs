//! Waiting costs nothing: with messages an hour ahead and a consumer that waits, Redis sees leases being renewed, the
//! member saying that it lives, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::topic::Settings;

use crate::support::{RedisServer, Running, World, eventually};

const MESSAGES: usize = 100_000;
const PARTITIONS: u64 = 8;
/// Renewals of every lease that are watched.
const ROUNDS: u64 = 6;

/// What `renew` and `heartbeat` are made of, and what this story asks.
const RENEW: [&str; 5] = ["get", "hmget", "pexpire", "zrange", "getrange"];
const HEARTBEAT: [&str; 4] = ["zadd", "zrange", "hmget", "pexpire"];
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
    // A renewal reads one generation.
    eventually("the leases are renewed", async || {
        let seen = commands(server).await?;
        Ok((seen.get("getrange") >= Some(&(rounds * PARTITIONS))).then_some(seen))
    })
    .await
}

fn only_renewals_and_heartbeats(seen: &BTreeMap<String, u64>) -> bool {
    let known = |command: &str| [&RENEW[..], &HEARTBEAT, &OTHERS].iter().any(|list| list.contains(&command));
    let times = |command: &str| seen.get(command).copied().unwrap_or(0);
    let (renewals, beats) = (times("getrange"), times("zadd"));
    seen.keys().all(|command| known(command))
        && times("evalsha") == renewals + beats
        && times("zrange") == renewals + 2 * beats
        && times("pexpire") == renewals + 2 * beats
        && times("hmget") == renewals + beats
}

#[tokio::test]
async fn idle_broker_sends_only_renewals_and_heartbeats() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    // On a busy machine a shorter lease ends, and is acquired again. A sample of the recent traffic asks nobody once there
    // is none.
    let traffic_step = Duration::from_millis(100);
    let options = Options { lease_ttl: Duration::from_secs(3), traffic_step, ..Options::default() };
    let running = Running::start(&world, options.clone())?;
    let topic = TopicName::new("orders")?;
    let message = |_| NewMessage::new("close the order").after(Duration::from_secs(3_600));
    for _ in 0..MESSAGES / 1_000 {
        let batch = (0..1_000).map(message).collect();
        running.broker.push_batch(&topic, batch).await?.into_iter().try_for_each(|pushed| pushed.map(drop))?;
    }
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(60), visibility_timeout: None };
    let group = GroupName::standard();
    // Somebody asked at another broker once, and asks no more: it has no demand.
    let other = Running::start(&world, options)?;
    other.broker.reserve(&topic, &group, ReserveRequest { wait: Duration::ZERO, ..request }).await?;
    let holder = async |partition| {
        server.ask::<Option<String>>(&format!("GET {{dwell:orders:{partition}}}:default:lease")).await
    };
    let before = holder(0).await?;
    assert!(before.is_some());
    let idle = async {
        for partition in 0..PARTITIONS {
            eventually("the consumer has the partition", async || {
                Ok(holder(partition).await?.filter(|holder| before.as_ref() != Some(holder)))
            })
            .await?;
        }
        // Acquiring, subscribing and a first look come first, and then each broker says with its next heartbeat what it owns.
        eventually("everything is at rest", async || {
            let seen = while_renewed(&server, 3).await?;
            Ok((only_renewals_and_heartbeats(&seen) && seen.get("zadd") >= Some(&4)).then_some(()))
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

/// Topics with a group each, and a consumer that waits in each: 1,000 of them is the long form, `DWELL_IDLE_TOPICS=1000`.
fn topics() -> usize {
    std::env::var("DWELL_IDLE_TOPICS").ok().and_then(|topics| topics.parse().ok()).unwrap_or(40)
}

/// Resident memory of this process, in kB.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn heartbeats_of_many_groups_share_calls() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_secs(2)).await?;
    let options = Options { idle_timeout: Duration::from_secs(2), ..Options::default() };
    let options = match topics() {
        ..=100 => Options { lease_ttl: Duration::from_secs(2), heartbeat: Duration::from_millis(300), ..options },
        _ => options,
    };
    let running = Running::start(&world, options)?;
    let (group, count) = (GroupName::standard(), topics());
    let partitions = count as u64 * PARTITIONS;
    let before = resident_kb();
    let names: Vec<TopicName> = (0..count).map(|n| TopicName::new(format!("t{n}"))).collect::<Result<_>>()?;
    for name in &names {
        running.broker.declare(name.clone(), Settings::default()).await?;
    }
    let consumers: Vec<_> = names
        .iter()
        .map(|name| {
            let (broker, name, group) = (running.broker.clone(), name.clone(), group.clone());
            let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
            tokio::spawn(async move { while broker.reserve(&name, &group, request).await.is_ok() {} })
        })
        .collect();
    let leases = async || Ok(server.keys().await?.iter().filter(|key| key.ends_with(":lease")).count() as u64);
    eventually("every lease is held", async || Ok((leases().await? == partitions).then_some(()))).await?;
    let times = |seen: &BTreeMap<String, u64>, command: &str| seen.get(command).copied().unwrap_or(0);
    let window = async || {
        server.ask::<()>("CONFIG RESETSTAT").await?;
        let since = std::time::Instant::now();
        let seen = eventually("some heartbeats were recorded", async || {
            let seen = commands(&server).await?;
            Ok((times(&seen, "zadd") >= 4 * count as u64 && times(&seen, "getrange") >= partitions).then_some(seen))
        })
        .await?;
        Result::Ok((seen, since.elapsed()))
    };
    // First every partition is looked at, which writes its owner line.
    let (seen, took) =
        eventually("it is at rest", async || Ok(Some(window().await?).filter(|(seen, _)| times(seen, "hset") == 0)))
            .await?;
    let (renewals, beats) = (times(&seen, "getrange"), times(&seen, "zadd"));
    let calls = times(&seen, "evalsha") - renewals;
    let per_second = (calls + renewals) as f64 / took.as_secs_f64() / partitions as f64;
    let held = resident_kb();
    println!(
        "{count} groups, {partitions} partitions: {beats} heartbeats in {calls} calls, {per_second:.3} commands a second and partition"
    );
    println!("resident: {} kB a partition", (held.saturating_sub(before)) as f64 / partitions as f64);
    // 40 groups are in 16 slots. Those that another thread was about to ask for go alone.
    assert!(2 * calls <= beats, "{calls} calls for {beats} heartbeats");
    consumers.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("every lease is given up", async || Ok((leases().await? == 0).then_some(()))).await?;
    println!("resident: {before} kB before, {held} kB with consumers, {} kB after they left", resident_kb());
    running.stop().await;
    Ok(())
}
