//! What was lost is a comparison: of what brokers were answered with what the partitions count.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::{MessageId, TopicName};
use dwell::store::Pushed;

use super::journal::WINDOW;
use super::replicas::follows;
use super::{Dwell, Outage};
use crate::support::{Mode, RedisServer, eventually, free_port, scratch};

const COMPARED: &str = "dwell_restore_seconds_count";

const LOSSES: &str = "dwell_redis_losses_total";

const REPLAYED: &str = r#"dwell_wal_replayed_total{log="journal"}"#;

impl Dwell {
    /// Waits until this broker has looked again what Redis has.
    async fn compares_again(&self, before: f64) -> Result<()> {
        eventually("it is compared", async || Ok((self.metric(COMPARED)? > before).then_some(()))).await?;
        self.recovered().await
    }
}

/// Pushes and deliveries go on at brokers with older and with newer connections, and none of them finds a loss again and again.
async fn agree(outage: &Outage, older: &Dwell, losses_max: f64) -> Result<()> {
    let dir = scratch()?;
    let newer = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let mut ids = Vec::new();
    for n in 0..20 {
        for (name, dwell) in [("older", older), ("newer", &newer)] {
            ids.push(format!("{name}{n}"));
            dwell.push_one("orders", &format!("{name}{n}")).await?;
        }
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    older.delivers("orders", &ids).await?;
    for dwell in [older, &newer] {
        let losses = dwell.metric(LOSSES)?;
        assert!(losses <= losses_max, "{losses}");
    }
    newer.close().await
}

#[tokio::test]
async fn first_replica_of_a_redis_is_no_loss() -> Result<()> {
    let port = free_port()?;
    let tcp = ["--save", "", "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--port"];
    let redis = RedisServer::start_with(&[&tcp[..], &[&port]].concat()).await?;
    let outage = Outage { journal: Some(WINDOW), ..Outage::with(redis)? };
    let older = outage.dwell().await?;
    older.push_one("orders", "first").await?;
    older.delivers("orders", &["first"]).await?;
    older.recovered().await?;
    let _replica = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &port]).await?;
    follows(&outage.redis).await?;
    agree(&outage, &older, 0.0).await?;
    assert_eq!(older.metric(REPLAYED)?, 0.0);
    older.close().await
}

/// It may have had the data of another one meanwhile, so it counts as another process.
#[tokio::test]
async fn redis_that_was_a_replica_for_a_moment_has_one_name() -> Result<()> {
    let outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let older = outage.dwell().await?;
    older.push_one("orders", "first").await?;
    older.delivers("orders", &["first"]).await?;
    older.recovered().await?;
    outage.redis.ask::<String>("REPLICAOF 127.0.0.1 1").await?;
    outage.redis.ask::<String>("REPLICAOF NO ONE").await?;
    agree(&outage, &older, 1.0).await?;
    older.close().await
}

#[tokio::test]
async fn restart_of_a_redis_that_kept_everything_is_no_loss() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (dwell, other_dir) = (outage.dwell().await?, scratch()?);
    let other = outage.dwell_in(other_dir.path(), outage.redis.url(), false).await?;
    let pushed = dwell.push("orders", &["acked", "cancelled", "waits"], Duration::ZERO).await?;
    assert!(pushed.iter().all(|outcome| outcome.pushed == Pushed::Journaled), "{pushed:?}");
    other.push("orders", &["later"], Duration::from_secs(4)).await?;
    dwell.broker().cancel(&TopicName::new("orders")?, &MessageId::new("cancelled")?, None).await?;
    dwell.recovered().await?;
    other.recovered().await?;
    let before = [dwell.metric(COMPARED)?, other.metric(COMPARED)?];
    outage.redis.kill()?;
    outage.redis.restart().await?;
    for (dwell, before) in [&dwell, &other].into_iter().zip(before) {
        dwell.compares_again(before).await?;
        assert_eq!((dwell.metric(LOSSES)?, dwell.metric(REPLAYED)?), (0.0, 0.0));
    }
    dwell.delivers("orders", &["acked", "later", "waits"]).await?;
    dwell.close().await?;
    other.close().await
}

/// Who compares after that finds a history that ended, not one that nobody remembers.
#[tokio::test]
async fn topic_that_is_deleted_after_a_restart_is_no_loss() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (late, dir) = (outage.dwell().await?, scratch()?);
    let deletes = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    late.push("orders", &["a"], Duration::from_secs(3_600)).await?;
    deletes.push("orders", &["b"], Duration::from_secs(3_600)).await?;
    late.recovered().await?;
    deletes.recovered().await?;
    let before = [deletes.metric(COMPARED)?, late.metric(COMPARED)?];
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    deletes.compares_again(before[0]).await?;
    let deleted = async || Ok(deletes.broker().delete_topic(&TopicName::new("orders")?).await.ok());
    eventually("the topic is deleted", deleted).await?;
    outage.proxy.set(Mode::Pass);
    late.compares_again(before[1]).await?;
    assert_eq!(late.metric(LOSSES)?, 0.0);
    late.close().await?;
    deletes.close().await
}

/// A tombstone is kept for a day. Who has seen it expects nothing of the topic afterwards.
#[tokio::test]
async fn topic_that_was_deleted_long_before_a_restart_is_no_loss() -> Result<()> {
    let orders = TopicName::new("orders")?;
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (other, dir) = (outage.dwell().await?, scratch()?);
    let deletes = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    other.push("orders", &["a"], Duration::from_secs(3_600)).await?;
    other.push("kept", &["b"], Duration::from_secs(3_600)).await?;
    deletes.recovered().await?;
    other.recovered().await?;
    deletes.broker().delete_topic(&orders).await?;
    let is_gone = async || Ok(other.broker().topic(&orders).await.is_err().then_some(()));
    eventually("the other one has seen that it is deleted", is_gone).await?;
    for key in outage.redis.keys().await?.into_iter().filter(|key| key.contains(":orders:")) {
        outage.redis.ask::<u64>(&format!("DEL {key}")).await?;
    }
    let before = other.metric(COMPARED)?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    other.compares_again(before).await?;
    assert_eq!(other.metric(LOSSES)?, 0.0);
    other.close().await?;
    deletes.close().await
}

/// Whoever comes first in the new process ends the history of before, so what others change there hides nothing.
#[tokio::test]
async fn changes_of_others_do_not_hide_a_loss() -> Result<()> {
    let redis = RedisServer::start().await?;
    let mut outage = Outage { journal: Some(WINDOW), silence: Duration::from_millis(200), ..Outage::with(redis)? };
    let (dwell, other_dir) = (outage.dwell().await?, scratch()?);
    dwell.push("orders", &["kept"], Duration::from_secs(3_600)).await?;
    dwell.recovered().await?;
    outage.redis.ask::<String>("SAVE").await?;
    dwell.push("orders", &["lost"], Duration::ZERO).await?;
    let before = dwell.metric(COMPARED)?;
    outage.proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let other = outage.dwell_in(other_dir.path(), outage.redis.url(), false).await?;
    let ids: Vec<String> = (0..40).map(|n| format!("other{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    other.push("orders", &ids, Duration::from_secs(3_600)).await?;
    outage.proxy.set(Mode::Pass);
    dwell.compares_again(before).await?;
    assert_eq!(dwell.metric(LOSSES)?, 1.0);
    other.recovered().await?;
    other.delivers("orders", &["lost"]).await?;
    dwell.close().await?;
    other.close().await
}

/// Nothing else of the topic is there any more that could be missed.
#[tokio::test]
async fn deletion_of_a_topic_is_not_undone_by_a_loss() -> Result<()> {
    let redis = RedisServer::start().await?;
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::with(redis)? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "m").await?;
    dwell.push_one("other", "n").await?;
    outage.redis.ask::<String>("SAVE").await?;
    dwell.broker().delete_topic(&TopicName::new("orders")?).await?;
    let before = dwell.metric(COMPARED)?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    dwell.compares_again(before).await?;
    assert_eq!(dwell.broker().topics().await?, [TopicName::new("other")?]);
    dwell.close().await
}
