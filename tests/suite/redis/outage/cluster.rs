//! One primary of a Redis Cluster dies or loses its data: the others take pushes and hand out, and what was promised for it
//! comes later.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::TopicName;
use dwell::model::schedule::Missed;
use dwell::model::topic::Settings;

use super::journal::WINDOW;
use super::{Dwell, Outage};
use crate::support::{Cluster, RedisServer, eventually, every, scratch};

#[tokio::test]
async fn one_primary_down_fails_no_push_and_no_other_partition() -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let outage = Outage::with(RedisServer::start().await?)?;
    let dwell = outage.dwell_on(cluster.url(), false).await?;
    let ids: Vec<String> = (0..400).map(|n| format!("m{n:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (before, during) = ids.split_at(100);
    let placed = dwell.push("orders", before, Duration::ZERO).await?;
    let mut of_the_killed = Vec::new();
    for partition in 0..8 {
        if cluster.place_of(&format!("{{dwell:orders:{partition}}}")).await?.0 == 0 {
            of_the_killed.push(partition);
        }
    }
    assert!(
        placed.iter().filter_map(|outcome| outcome.partition).any(|partition| of_the_killed.contains(&partition.0))
    );
    dwell.delivers("orders", before).await?;
    for node in &cluster.primaries {
        node.server.ask::<u64>("WAIT 1 1000").await?;
    }
    cluster.primaries[0].server.kill()?;
    let (mut buffered, mut elsewhere) = (0, Vec::new());
    for ids in during.chunks(10) {
        for outcome in dwell.push("orders", ids, Duration::ZERO).await? {
            buffered += usize::from(outcome.pushed == dwell::store::Pushed::Buffered);
            if outcome.partition.is_some_and(|partition| !of_the_killed.contains(&partition.0)) {
                elsewhere.push(outcome.id.to_string());
            }
        }
    }
    assert!(buffered > 0, "the primary was not missed");
    let got = dwell.drain("orders", during.len()).await?;
    assert!(elsewhere.iter().all(|id| got.contains_key(id)), "{} of {}", got.len(), elsewhere.len());
    // What waited for the promotion of the replica comes, too.
    dwell.recovered().await?;
    let late = dwell.drain("orders", during.len() - got.len()).await?;
    assert_eq!(got.len() + late.len(), during.len());
    assert!(got.values().chain(late.values()).all(|got| got.times == 1 && !got.early));
    dwell.close().await
}

#[tokio::test]
async fn emptied_primary_at_a_new_address_is_restored() -> Result<()> {
    let mut cluster = Cluster::start(0).await?;
    let outage = Outage { journal: Some(WINDOW), ..Outage::with(RedisServer::start().await?)? };
    let dwell = outage.dwell_on(cluster.url(), false).await?;
    let ids: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    dwell.push("orders", &ids, Duration::from_millis(50)).await?;
    cluster.move_emptied(0).await?;
    dwell.delivers("orders", &ids).await?;
    dwell.close().await
}

/// One node fails over to a replica that lacks its last writes, and another one starts again empty before its replica is
/// promoted.
#[tokio::test]
async fn nodes_that_lost_writes_are_restored_and_repeat_nothing() -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let timeout = Duration::from_secs(1);
    let outage = Outage { journal: Some(WINDOW), timeout, ..Outage::with(RedisServer::start().await?)? };
    let dwell = outage.dwell_on(cluster.url(), false).await?;
    let ids = |prefix: &str| (0..40).map(|n| format!("{prefix}{n:02}")).collect::<Vec<_>>();
    let (acked, pushed, meanwhile) = (ids("acked"), ids("pushed"), ids("while"));
    let acked: Vec<&str> = acked.iter().map(String::as_str).collect();
    dwell.push("orders", &acked, Duration::ZERO).await?;
    cluster.primaries[0].server.ask::<u64>("WAIT 1 1000").await?;
    cluster.primaries[0].server.leave_behind(&cluster.replicas[0].server).await?;
    dwell.delivers("orders", &acked).await?;
    let mut owed: Vec<&str> = pushed.iter().map(String::as_str).collect();
    dwell.push("orders", &owed, Duration::ZERO).await?;
    cluster.primaries[0].server.kill()?;
    cluster.primaries[1].server.kill()?;
    cluster.primaries[1].server.restart().await?;
    eventually("the replica is promoted", async || {
        let info: String = cluster.replicas[0].server.ask("INFO replication").await?;
        Ok(info.contains("role:master").then_some(()))
    })
    .await?;
    let more: Vec<&str> = meanwhile.iter().map(String::as_str).collect();
    dwell.push("orders", &more, Duration::ZERO).await?;
    owed.extend(more);
    dwell.recovered().await?;
    dwell.delivers("orders", &owed).await?;
    dwell.close().await
}

/// A node that starts without its data has lost some partitions of a topic, and perhaps partition 0 with the descriptor that is read.
#[tokio::test]
async fn lost_descriptor_is_restored_from_its_copy() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (pushes, acks) = (outage.dwell().await?, scratch()?);
    let ids: Vec<String> = (0..20).map(|n| format!("m{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let placed = pushes.push("orders", &ids, Duration::ZERO).await?;
    let acks = outage.dwell_in(acks.path(), outage.redis.url(), false).await?;
    acks.delivers("orders", &ids).await?;

    let mut partitions = placed.iter().filter_map(|outcome| outcome.partition).map(|partition| partition.0);
    let lost = partitions.find(|partition| *partition != 0).unwrap_or_default();
    outage.redis.ask::<u64>("DEL {dwell:orders:0}:gen").await?;
    for key in outage.redis.ask::<Vec<String>>(&format!("KEYS {{dwell:orders:{lost}}}:*")).await? {
        outage.redis.ask::<u64>(&format!("DEL {key}")).await?;
    }
    restart(&mut outage, &[&pushes, &acks]).await?;
    assert_eq!(pushes.broker().topics().await?, [TopicName::new("orders")?]);
    assert_eq!(outage.redis.ask::<u64>("EXISTS {dwell:orders:0}:gen").await?, 1);
    pushes.push_one("orders", "next").await?;
    acks.delivers("orders", &["next"]).await?;
    pushes.close().await?;
    acks.close().await
}

/// The lists of topics and of cron jobs may be on that node, and what they list on others.
#[tokio::test]
async fn lost_topic_and_cron_lists_are_rebuilt() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "m").await?;
    dwell.broker().put_cron_job(&TopicName::new("orders")?, every("pulse", 3_600, Missed::Last)?).await?;
    let places = "SMEMBERS dwell:cron";
    let before: Vec<String> = outage.redis.ask(places).await?;
    assert_eq!(before.len(), 1, "a cron job is in one partition");
    outage.redis.ask::<u64>("DEL dwell:topics dwell:cron").await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let orders = [TopicName::new("orders")?];
    let is_listed = async || dwell.broker().topics().await.is_ok_and(|listed| listed == orders);
    eventually("the topic is listed", async || Ok(is_listed().await.then_some(()))).await?;
    eventually("the cron job is listed", async || {
        Ok((outage.redis.ask::<Vec<String>>(places).await? == before).then_some(()))
    })
    .await?;
    dwell.delivers("orders", &["m"]).await?;
    dwell.close().await
}

/// The node of the descriptor may go back to an older one, and those of the partitions not.
#[tokio::test]
async fn older_descriptor_is_replaced_by_a_newer_copy() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    let settings = lose_newer_descriptor(&outage, &dwell).await?;
    restart(&mut outage, &[&dwell]).await?;
    dwell.push_one("orders", "after").await?;
    dwell.delivers("orders", &["before", "after"]).await?;
    assert_eq!(dwell.broker().topic(&TopicName::new("orders")?).await?.settings, settings);
    dwell.close().await
}

/// So it may be after one failover behind another, when every broker has restored what it knew before the last one.
#[tokio::test]
async fn older_descriptor_is_replaced_when_a_push_meets_a_newer_copy() -> Result<()> {
    let (outage, other) = (Outage::begin().await?, scratch()?);
    let before = outage.dwell().await?;
    let settings = lose_newer_descriptor(&outage, &before).await?;
    before.close().await?;
    let dwell = outage.dwell_in(other.path(), outage.redis.url(), false).await?;
    dwell.push_one("orders", "after").await?;
    assert_eq!(dwell.broker().topic(&TopicName::new("orders")?).await?.settings, settings);
    dwell.delivers("orders", &["before", "after"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn older_descriptor_is_replaced_when_a_consumer_meets_a_newer_copy() -> Result<()> {
    let (outage, other) = (Outage::begin().await?, scratch()?);
    let before = outage.dwell().await?;
    let settings = lose_newer_descriptor(&outage, &before).await?;
    before.close().await?;
    let dwell = outage.dwell_in(other.path(), outage.redis.url(), false).await?;
    dwell.delivers("orders", &["before"]).await?;
    assert_eq!(dwell.broker().topic(&TopicName::new("orders")?).await?.settings, settings);
    dwell.close().await
}

/// Leaves a topic with a message, whose partitions have a newer descriptor than the topic; answers the newer settings.
async fn lose_newer_descriptor(outage: &Outage, dwell: &Dwell) -> Result<Settings> {
    dwell.push_one("orders", "before").await?;
    outage.redis.ask::<u64>("COPY {dwell:orders:0}:gen older").await?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { max_attempts: 7, ..dwell.broker().topic(&orders).await?.settings.clone() };
    dwell.broker().declare(orders, settings.clone()).await?;
    outage.redis.ask::<u64>("COPY older {dwell:orders:0}:gen REPLACE").await?;
    Ok(settings)
}

/// The tombstone in partition 0 may be lost, and the others not.
#[tokio::test]
async fn topic_stays_deleted_while_any_partition_records_it() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (pushes, other) = (outage.dwell().await?, scratch()?);
    pushes.push_one("orders", "m").await?;
    let deletes = outage.dwell_in(other.path(), outage.redis.url(), false).await?;
    deletes.broker().delete_topic(&TopicName::new("orders")?).await?;
    deletes.close().await?;
    outage.redis.ask::<u64>("DEL {dwell:orders:0}:gen").await?;
    restart(&mut outage, &[&pushes]).await?;
    assert_eq!(pushes.broker().topics().await?, []);
    pushes.close().await
}

/// The name of the store may be lost alone, and a broker that never knew it be the first to give it another one.
#[tokio::test]
async fn renamed_store_with_the_brokers_topics_is_accepted() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "before").await?;
    outage.redis.ask::<String>("SET dwell:id 01ARZ3NDEKTSV4RRFFQ69G5FAV").await?;
    restart(&mut outage, &[&dwell]).await?;
    dwell.push_one("orders", "after").await?;
    dwell.delivers("orders", &["before", "after"]).await?;
    dwell.close().await
}

/// Redis starts again with what it has, which may be other than what it had.
async fn restart(outage: &mut Outage, brokers: &[&Dwell]) -> Result<()> {
    let compared: Vec<f64> =
        brokers.iter().map(|dwell| dwell.metric("dwell_restore_seconds_count")).collect::<Result<_>>()?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    for (dwell, before) in brokers.iter().zip(compared) {
        let noticed = async || Ok((dwell.metric("dwell_restore_seconds_count")? > before).then_some(()));
        eventually("the restart is noticed", noticed).await?;
        dwell.recovered().await?;
    }
    Ok(())
}
