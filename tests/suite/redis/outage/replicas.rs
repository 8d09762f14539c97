//! `redis.min_replicas`: what is answered 201 is on a replica, and what is not on one is buffered until it is.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, MessageId, TopicName};
use dwell::store::Pushed;
use dwell::store::redis::Confirmation;
use rustix::process::Signal;

use super::{Dwell, Outage};
use crate::support::{Cluster, RedisServer, Watched, eventually, free_port, kind_of, signal};

const ONE: Confirmation = Confirmation { replicas: 1, fsync: false };

/// Time for a call, where a slow machine must not look like a replica that is missing.
const PATIENCE: Duration = Duration::from_secs(4);

/// Messages of each phase of a story.
const PHASE: usize = 20;

/// A primary with a replica behind a proxy, and the replica.
async fn replicated() -> Result<(Outage, RedisServer)> {
    let port = free_port()?;
    let tcp = ["--save", "", "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--port"];
    let primary = RedisServer::start_with(&[&tcp[..], &[&port]].concat()).await?;
    let replica = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &port]).await?;
    follows(&primary).await?;
    Ok((Outage { confirmation: ONE, timeout: PATIENCE, ..Outage::with(primary)? }, replica))
}

pub(super) async fn follows(primary: &RedisServer) -> Result<()> {
    eventually("the replica follows", async || {
        let info: String = primary.ask("INFO replication").await?;
        Ok(info.contains("state=online").then_some(()))
    })
    .await
}

/// How many messages a server holds.
async fn holds(server: &RedisServer) -> Result<usize> {
    let mut held = 0;
    for hash in Outage::hashes("orders") {
        held += server.ask::<usize>(&format!("HLEN {hash}")).await?;
    }
    Ok(held)
}

#[tokio::test]
async fn push_is_stored_after_replication_and_buffered_until_then() -> Result<()> {
    let (outage, replica) = replicated().await?;
    let dwell = outage.dwell().await?;
    let stored = dwell.push_one("orders", "stored").await?;
    assert_eq!((stored.pushed, stored.replicas), (Pushed::Stored, 1));
    assert_eq!(holds(&replica).await?, 1, "the replica has what was answered");

    signal(&replica, Signal::STOP)?;
    let buffered = dwell.push_one("orders", "buffered").await?;
    assert_eq!((buffered.pushed, buffered.replicas), (Pushed::Buffered, 0));
    eventually("the reason is shown", async || {
        let health = dwell.broker().health().await;
        let is_named = health.detail.is_some_and(|said| said.contains("`redis.min_replicas` asks for 1"));
        Ok((health.ready && is_named).then_some(()))
    })
    .await?;
    // Consumers do not wait for replicas, and what the primary has is delivered.
    let got = dwell.drain("orders", 2).await?;
    assert_eq!(got.len(), 2, "{got:?}");

    signal(&replica, Signal::CONT)?;
    dwell.recovered().await?;
    let stored = dwell.push_one("orders", "again").await?;
    assert_eq!((stored.pushed, stored.replicas), (Pushed::Stored, 1));
    // What was delivered and acked meanwhile is not delivered again.
    dwell.delivers("orders", &["again"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn concurrent_pushes_share_a_wait() -> Result<()> {
    let (outage, _replica) = replicated().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "first").await?;
    let ids: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
    let outcomes = futures_util::future::try_join_all(ids.iter().map(|id| dwell.push_one("orders", id))).await?;
    assert!(outcomes.iter().all(|outcome| outcome.pushed == Pushed::Stored && outcome.replicas == 1));
    let stats: String = outage.redis.ask("INFO commandstats").await?;
    let waits =
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")?.split(',').next()?.parse().ok());
    let waits: usize = waits.unwrap_or(usize::MAX);
    assert!(waits < 100, "{waits} calls of WAIT for 200 pushes");
    dwell.close().await
}

/// Redis 7.2 and newer answer a `WAIT` at once on a connection that wrote nothing.
#[tokio::test]
async fn duplicate_push_waits_for_replication_too() -> Result<()> {
    let (outage, replica) = replicated().await?;
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "m").await?;
    let request = ReserveRequest { max: 1, wait: PATIENCE, visibility_timeout: None };
    let taken = dwell.broker().reserve(&topic, &group, request).await?;
    let bury = taken.iter().map(|taken| (taken.receipt.to_string(), Decision::Bury { reason: None })).collect();
    assert_eq!(dwell.broker().settle(&topic, &group, bury).await?, [Verdict::Buried]);

    signal(&replica, Signal::STOP)?;
    let ids = [MessageId::new("m")?];
    let other = Outage { confirmation: ONE, timeout: PATIENCE, ..Outage::with(RedisServer::start().await?)? };
    for dwell in [dwell, other.dwell_on(outage.proxy.url(), false).await?] {
        let purged = dwell.broker().purge(&topic, &group, Some(&ids)).await;
        assert_eq!(kind_of(purged), Some(Kind::OutcomeUnknown), "the replica has the message");
        dwell.close().await?;
    }
    signal(&replica, Signal::CONT)
}

#[tokio::test]
async fn missing_replicas_are_reported_and_pushes_buffered() -> Result<()> {
    let outage = Outage { confirmation: ONE, ..Outage::begin().await? }.hasty();
    let dwell = outage.dwell().await?;
    assert!(dwell.0.describe().durability.contains("what is answered is on 1"), "{:?}", dwell.0.describe());
    assert_eq!(dwell.push_one("orders", "m").await?.pushed, Pushed::Buffered);
    // Restoring, with which a broker starts, may still be what it says first.
    eventually("health says why nothing is stored", async || {
        let health = dwell.broker().health().await;
        Ok((health.ready && health.detail.is_some_and(|said| said.contains("buffered on disk"))).then_some(()))
    })
    .await?;
    dwell.close().await
}

/// What was answered 201 and 202.
#[derive(Default)]
struct Accepted(BTreeMap<String, Pushed>);

impl Accepted {
    /// Pushes of a phase: every one is accepted, whatever happens to Redis.
    async fn push(&mut self, dwell: &Dwell, phase: &str) -> Result<()> {
        for n in 0..PHASE / 4 {
            let ids: Vec<String> = (0..4).map(|of| format!("{phase}-{n}-{of}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            for outcome in dwell.push("orders", &ids, Duration::ZERO).await? {
                self.0.insert(outcome.id.to_string(), outcome.pushed);
            }
        }
        Ok(())
    }
}

/// A replica that lacks what its primary answered is promoted. Answers what was accepted, and is not delivered.
async fn lost_in_a_failover(confirmation: Confirmation) -> Result<Vec<String>> {
    let mut watched = Watched::start().await?;
    let outage = Outage { confirmation, timeout: Duration::from_secs(1), ..Outage::with(RedisServer::start().await?)? };
    let dwell = outage.dwell_on(watched.url(), false).await?;
    let mut accepted = Accepted::default();
    accepted.push(&dwell, "together").await?;
    assert!(accepted.0.values().any(|pushed| *pushed == Pushed::Stored));
    watched.primary.leave_behind(&watched.replica).await?;
    accepted.push(&dwell, "apart").await?;
    watched.primary.kill()?;
    accepted.push(&dwell, "killed").await?;
    watched.promoted().await?;
    accepted.push(&dwell, "promoted").await?;
    watched.rejoin().await?;
    dwell.recovered().await?;
    accepted.push(&dwell, "rejoined").await?;
    dwell.recovered().await?;
    let there = holds(&watched.replica).await?;
    let got = dwell.drain("orders", there).await?;
    dwell.close().await?;
    assert!(got.values().all(|got| got.times == 1 && !got.early), "{got:?}");
    Ok(accepted.0.into_keys().filter(|id| !got.contains_key(id)).collect())
}

#[tokio::test]
async fn failover_loses_no_accepted_push_without_a_journal() -> Result<()> {
    assert_eq!(lost_in_a_failover(ONE).await?, Vec::<String>::new());
    // The same without it does.
    let lost = lost_in_a_failover(Confirmation::default()).await?;
    assert!(!lost.is_empty() && lost.iter().all(|id| id.starts_with("apart")), "{lost:?}");
    Ok(())
}

#[tokio::test]
async fn cluster_replica_has_every_acknowledged_write() -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let outage = Outage { confirmation: ONE, timeout: PATIENCE, ..Outage::with(RedisServer::start().await?)? };
    let dwell = outage.dwell_on(cluster.url(), false).await?;
    let ids: Vec<String> = (0..200).map(|n| format!("m{n:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for ids in ids.chunks(20) {
        let outcomes = dwell.push("orders", ids, Duration::ZERO).await?;
        assert!(outcomes.iter().all(|outcome| outcome.pushed == Pushed::Stored && outcome.replicas == 1));
    }
    cluster.primaries[0].server.kill()?;
    dwell.delivers("orders", &ids).await?;
    dwell.close().await
}
