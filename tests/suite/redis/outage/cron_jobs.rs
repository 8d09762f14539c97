//! Cron jobs in a Redis that loses its data: they come back from journals, with what they fired, and stay deleted.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::Decision;
use dwell::model::error::{Kind, Result};
use dwell::model::message::{CronJobName, GroupName, TopicName};
use dwell::model::schedule::{Missed, Schedule};
use dwell::model::topic::Settings;

use super::journal::WINDOW;
use super::{Dwell, Outage};
use crate::support::{Mode, eventually, every, kind_of, scratch};

/// The ids of messages of the topic that Redis has.
async fn stored(outage: &Outage) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    for hash in Outage::hashes("orders") {
        ids.extend(outage.redis.ask::<Vec<String>>(&format!("HKEYS {hash}")).await?);
    }
    Ok(ids)
}

async fn names(dwell: &Dwell) -> Result<Vec<String>> {
    let list = dwell.broker().cron_jobs(&TopicName::new("orders")?, None).await?;
    Ok(list.cron_jobs.into_iter().map(|record| record.schedule.name.to_string()).collect())
}

#[tokio::test]
async fn lost_cron_job_comes_back_with_what_it_fired() -> Result<()> {
    let outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let dwell = outage.dwell().await?;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    dwell.push_one("orders", "m").await?;
    for (name, seconds) in [("gone", 3_600), ("kept", 3_600), ("pulse", 1)] {
        dwell.broker().put_cron_job(&orders, every(name, seconds, Missed::All)?).await?;
    }
    other.broker().delete_cron_job(&orders, &CronJobName::new("gone")?).await?;
    let paused = other.broker().pause_cron_job(&orders, &CronJobName::new("kept")?, true).await?;

    // One occurrence is consumed, and another one waits.
    let request = ReserveRequest { max: 2, wait: Duration::from_secs(20), visibility_timeout: None };
    let group = GroupName::standard();
    let mut acked = BTreeSet::new();
    while acked.len() < 2 {
        for delivery in dwell.broker().reserve(&orders, &group, request).await? {
            acked.insert(delivery.message.id.to_string());
            dwell.broker().settle(&orders, &group, vec![(delivery.receipt.to_string(), Decision::Ack)]).await?;
        }
    }
    let waits = eventually("it fired once more", async || {
        Ok(stored(&outage).await?.into_iter().find(|id| id.starts_with("pulse@") && !acked.contains(id)))
    })
    .await?;

    outage.redis.ask::<String>("FLUSHALL").await?;
    let restored = async || Ok((stored(&outage).await?.contains(&waits)).then_some(()));
    eventually("what was lost is restored", restored).await?;
    dwell.recovered().await?;
    other.recovered().await?;
    assert_eq!(names(&dwell).await?, ["kept", "pulse"]);
    let kept = dwell.broker().cron_job(&orders, &CronJobName::new("kept")?).await?;
    assert_eq!((kept.schedule, kept.last), (Schedule { paused: true, ..paused.schedule }, paused.last));
    // It fires on, and nothing that was consumed comes again.
    let got = dwell.drain("orders", 3).await?;
    assert!(got.contains_key(&waits), "{got:?}");
    assert!(got.iter().all(|(id, got)| got.times == 1 && !acked.contains(id)), "{got:?} {acked:?}");
    dwell.close().await?;
    other.close().await
}

/// The broker that made it may be gone, and have made it long ago.
#[tokio::test]
async fn cron_job_is_in_the_journal_of_each_broker_that_reads_it() -> Result<()> {
    let outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let maker = outage.dwell().await?;
    maker.push_one("orders", "m").await?;
    maker.broker().put_cron_job(&orders, every("kept", 3_600, Missed::Last)?).await?;
    let before = maker.broker().cron_job(&orders, &CronJobName::new("kept")?).await?;
    maker.close().await?;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let journaled = async || Ok((other.metric("dwell_wal_records{log=\"journal\"}")? >= 1.0).then_some(()));
    eventually("the other broker has read it", journaled).await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    let listed = async || Ok((names(&other).await.is_ok_and(|names| names == ["kept"])).then_some(()));
    eventually("it is back", listed).await?;
    other.recovered().await?;
    assert_eq!(other.broker().cron_job(&orders, &CronJobName::new("kept")?).await?, before);
    other.close().await
}

/// The reply to the deletion may be lost, and its repeat finds nothing: that is kept too.
#[tokio::test]
async fn repeated_deletion_of_a_cron_job_is_kept() -> Result<()> {
    let mut outage = Outage { journal: Some(WINDOW), ..Outage::begin().await? };
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "m").await?;
    for name in ["gone", "kept"] {
        dwell.broker().put_cron_job(&orders, every(name, 3_600, Missed::Last)?).await?;
    }
    // As if this broker had not heard the answer.
    outage.journal = None;
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let gone = CronJobName::new("gone")?;
    other.broker().delete_cron_job(&orders, &gone).await?;
    assert_eq!(kind_of(dwell.broker().delete_cron_job(&orders, &gone).await), Some(Kind::NotFound));
    other.close().await?;
    outage.redis.ask::<String>("FLUSHALL").await?;
    let kept =
        async || Ok(names(&dwell).await.is_ok_and(|names| names.iter().any(|name| name == "kept")).then_some(()));
    eventually("it is back", kept).await?;
    dwell.recovered().await?;
    assert_eq!(names(&dwell).await?, ["kept"]);
    dwell.close().await
}

/// A node may lose the deletion of a topic, and keep a cron job of it for the next topic of the name.
#[tokio::test]
async fn cron_job_of_a_deleted_topic_does_not_fire_in_the_next_one() -> Result<()> {
    let outage = Outage::begin().await?;
    let orders = TopicName::new("orders")?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "m").await?;
    dwell.broker().put_cron_job(&orders, every("old", 1, Missed::All)?).await?;
    let places: Vec<String> = outage.redis.ask("SMEMBERS dwell:cron").await?;
    let partition = places[0].strip_prefix("orders:").unwrap_or_default();
    let cron_jobs = format!("{{dwell:orders:{partition}}}:s");
    outage.redis.ask::<String>(&format!("RENAME {cron_jobs} kept")).await?;
    dwell.broker().delete_topic(&orders).await?;

    dwell.push_one("orders", "n").await?;
    outage.redis.ask::<String>(&format!("RENAME kept {cron_jobs}")).await?;
    outage.redis.ask::<u64>(&format!("SADD dwell:cron {}", places[0])).await?;
    dwell.broker().put_cron_job(&orders, every("new", 1, Missed::All)?).await?;
    let fired = async |name: &str| Ok(stored(&outage).await?.iter().filter(|id| id.starts_with(name)).count());
    let twice = async || Ok((fired("new@").await? >= 2).then_some(()));
    eventually("the new one fires", twice).await?;
    assert_eq!((fired("old@").await?, names(&dwell).await?), (0, vec!["new".to_owned()]));
    dwell.close().await
}

/// A broker that meets a topic in an outage does not know how many partitions it has.
#[tokio::test]
async fn cron_job_of_a_promised_topic_is_refused_until_the_topic_is_known() -> Result<()> {
    let outage = Outage::begin().await?;
    let (orders, dir) = (TopicName::new("orders")?, scratch()?);
    let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
    let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
    other.broker().declare(orders.clone(), settings).await?;
    let dwell = outage.dwell().await?;
    outage.proxy.set(Mode::Refuse);
    dwell.push_one("orders", "buffered").await?;
    outage.proxy.set(Mode::Pass);
    // In eight partitions some of these would be elsewhere than in one.
    for name in ["a", "b", "c", "d"] {
        eventually("the topic is known", async || {
            match dwell.broker().put_cron_job(&orders, every(name, 3_600, Missed::All)?).await {
                Err(error) if error.kind() == Kind::Unavailable => Ok(None),
                answer => answer.map(Some),
            }
        })
        .await?;
    }
    assert_eq!(names(&other).await?, ["a", "b", "c", "d"]);
    dwell.recovered().await?;
    assert_eq!(names(&dwell).await?, ["a", "b", "c", "d"]);
    other.close().await?;
    dwell.close().await
}
