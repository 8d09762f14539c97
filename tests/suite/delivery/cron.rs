//! Recurring messages end to end: brokers fire them, whoever consumes, each occurrence once.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, CronJobName, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::schedule::{Missed, Schedule, Timing};
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::store::CronJobChange;

use crate::support::{Running, World, every, kind_of, stories};

stories! {
    occurrence_fires_once_with_many_brokers, cron_job_fires_without_a_consumer, cron_job_change_reaches_all_brokers,
    paused_cron_job_does_not_catch_up, missed_occurrences_follow_the_missed_policy, cron_job_is_read_listed_and_deleted,
    a_cron_expression_fires, failed_cron_job_stops_no_other, occurrence_ids_are_reserved_for_cron_jobs, occurrence_with_an_existing_id_is_counted,
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

fn start(world: &World) -> Result<Running> {
    // Time moves in leaps, and neither a lease nor the patience with consumers must end in one.
    let day = Duration::from_secs(30 * 86_400);
    Running::start(world, Options { lease_ttl: day, idle_timeout: day, ..Options::default() })
}

/// Messages of the topic in any state.
async fn there(broker: &Broker) -> Result<u64> {
    let stats = broker.stats(&orders()?).await?;
    Ok(stats.iter().map(|(_, s)| s.scheduled + s.ready + s.in_flight + s.dead).sum())
}

/// Waits until so many messages are there, while time stands still.
async fn are_there(world: &World, broker: &Broker, count: u64) -> Result<()> {
    world.until(&format!("{count} messages are there"), async || Ok(there(broker).await? == count)).await
}

async fn occurrence_fires_once_with_many_brokers(world: World) -> Result<()> {
    let brokers = [start(&world)?, start(&world)?, start(&world)?];
    let consumer = &brokers[0].broker;
    consumer.put_cron_job(&orders()?, every("pulse", 60, Missed::Last)?).await?;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(60), visibility_timeout: None };
    while seen.len() < 8 {
        world.settled().await;
        world.pass(60_000);
        let taken = world.as_time_passes(consumer.reserve(&orders()?, &GroupName::standard(), request)).await?;
        let decisions = taken.iter().map(|delivery| (delivery.receipt.to_string(), Decision::Ack)).collect();
        let acked = world.as_time_passes(consumer.settle(&orders()?, &GroupName::standard(), decisions)).await?;
        assert!(acked.iter().all(|verdict| *verdict == Verdict::Acked));
        for delivery in taken {
            *seen.entry(delivery.message.id.to_string()).or_default() += 1;
        }
    }
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    let fired = |broker: &Running| -> Result<u64> {
        let text = broker.broker.metrics().text()?;
        let line = "dwell_cron_occurrences_total{outcome=\"fired\",topic=\"orders\"} ";
        let count = text.lines().find_map(|said| said.strip_prefix(line)?.parse().ok());
        Ok(count.unwrap_or(0))
    };
    let all: u64 = brokers.iter().map(fired).sum::<Result<u64>>()?;
    assert_eq!(all, seen.len() as u64 + there(consumer).await?);
    Ok(())
}

async fn cron_job_fires_without_a_consumer(world: World) -> Result<()> {
    let running = start(&world)?;
    let (made, record) = running.broker.put_cron_job(&orders()?, every("pulse", 10, Missed::Last)?).await?;
    assert!(made && record.last == world.now());
    let next = record.schedule.next(record.last).unwrap_or_default();
    for count in 1..=3 {
        world.settled().await;
        world.pass(next.since(world.now()).as_millis() as u64 + (count - 1) * 10_000);
        are_there(&world, &running.broker, count).await?;
    }
    let id = dwell::model::message::MessageId::new(format!("pulse@{next}"))?;
    let key = dwell::model::message::Key::new("pulse")?;
    let (_, peeked) = running.broker.peek(&orders()?, &GroupName::standard(), &id, Some(&key)).await?;
    assert_eq!((peeked.message.due_at, &peeked.message.envelope.payload[..]), (next, &b"beat"[..]));
    Ok(())
}

async fn occurrence_ids_are_reserved_for_cron_jobs(world: World) -> Result<()> {
    let running = start(&world)?;
    let (_, record) = running.broker.put_cron_job(&orders()?, every("pulse", 10, Missed::Last)?).await?;
    let next = record.schedule.next(record.last).unwrap_or_default();
    for conflict in Conflict::ALL {
        let id = MessageId::new(format!("pulse@{next}"))?;
        let forged = || Ok(NewMessage::new("forged").id(id.clone()).key(Key::new("pulse")?).on_conflict(conflict));
        let refused = running.broker.push(&orders()?, forged()?).await;
        assert!(refused.as_ref().is_err_and(|error| error.detail().starts_with("`id`: ")), "{refused:?}");
        assert_eq!(kind_of(refused), Some(Kind::Invalid));
        let batch = vec![NewMessage::new("x"), forged()?];
        assert_eq!(kind_of(running.broker.push_batch(&orders()?, batch).await), Some(Kind::Invalid));
    }
    assert_eq!(there(&running.broker).await?, 0);
    let like = NewMessage::new("x").id(MessageId::new("pulse@noon")?).after(Duration::from_secs(86_400));
    running.broker.push(&orders()?, like).await?;
    world.settled().await;
    world.pass(next.since(world.now()).as_millis() as u64);
    are_there(&world, &running.broker, 2).await
}

async fn occurrence_with_an_existing_id_is_counted(world: World) -> Result<()> {
    let running = start(&world)?;
    let (_, record) = running.broker.put_cron_job(&orders()?, every("pulse", 10, Missed::Last)?).await?;
    let next = record.schedule.next(record.last).unwrap_or_default();
    // As an older version let a producer do.
    let (descriptor, message) = (running.broker.topic(&orders()?).await?, record.schedule.message(next, world.now())?);
    let partition = descriptor.partition_of("pulse");
    let call = crate::support::new_call(&*world.store.backend, 1);
    world.store.messages.push(&descriptor, partition, &call, Conflict::Keep, &[message]).await?;
    world.settled().await;
    world.pass(next.since(world.now()).as_millis() as u64);
    world
        .until("it is counted", async || {
            let text = running.broker.metrics().text()?;
            let line = "dwell_cron_occurrences_total{outcome=\"duplicate\",topic=\"orders\"} 1";
            Ok(text.lines().any(|said| said == line))
        })
        .await?;
    assert_eq!(there(&running.broker).await?, 1);
    Ok(())
}

async fn cron_job_change_reaches_all_brokers(world: World) -> Result<()> {
    let (one, other) = (start(&world)?, start(&world)?);
    one.broker.put_cron_job(&orders()?, every("pulse", 3_600, Missed::Last)?).await?;
    // Saying it again changes nothing.
    let before = one.broker.cron_job(&orders()?, &CronJobName::new("pulse")?).await?;
    let (made, again) = other.broker.put_cron_job(&orders()?, every("pulse", 3_600, Missed::Last)?).await?;
    assert!(!made && again == before);
    let (made, changed) = other.broker.put_cron_job(&orders()?, every("pulse", 10, Missed::Last)?).await?;
    assert!(!made && changed.revision != before.revision);
    drop(other);
    world.settled().await;
    world.as_time_passes(are_there(&world, &one.broker, 1)).await?;
    Ok(())
}

async fn paused_cron_job_does_not_catch_up(world: World) -> Result<()> {
    let running = start(&world)?;
    let name = CronJobName::new("pulse")?;
    running.broker.put_cron_job(&orders()?, every("pulse", 60, Missed::All)?).await?;
    let paused = running.broker.pause_cron_job(&orders()?, &name, true).await?;
    assert!(paused.schedule.paused && paused.schedule.next(paused.last).is_none());
    // Putting it again does not let it go on.
    running.broker.put_cron_job(&orders()?, every("pulse", 30, Missed::All)?).await?;
    world.settled().await;
    world.pass(600_000);
    world.settled().await;
    assert_eq!(there(&running.broker).await?, 0);
    let resumed = running.broker.pause_cron_job(&orders()?, &name, false).await?;
    assert_eq!(resumed.last, world.now());
    world.settled().await;
    world.pass(30_000);
    are_there(&world, &running.broker, 1).await
}

async fn missed_occurrences_follow_the_missed_policy(world: World) -> Result<()> {
    let running = start(&world)?;
    for (name, missed) in [("skip", Missed::Skip), ("last", Missed::Last), ("all", Missed::All)] {
        running.broker.put_cron_job(&orders()?, every(name, 600, missed)?).await?;
    }
    running.stop().await;
    drop(running);
    // Three occurrences while nobody is there, the last of them long enough ago.
    let next = every("x", 600, Missed::All)?.next(world.now()).unwrap_or_default();
    world.pass(next.since(world.now()).as_millis() as u64 + 1_200_000 + 61_000);
    let running = start(&world)?;
    are_there(&world, &running.broker, 1 + 3).await?;
    world.settled().await;
    assert_eq!(there(&running.broker).await?, 4);
    // From then on they go on alike.
    world.pass(600_000 - 61_000);
    are_there(&world, &running.broker, 4 + 3).await
}

async fn cron_job_is_read_listed_and_deleted(world: World) -> Result<()> {
    let running = start(&world)?;
    let broker = &running.broker;
    for n in 0..30 {
        broker.put_cron_job(&orders()?, every(&format!("pulse-{n}"), 3_600, Missed::Last)?).await?;
    }
    let page = broker.cron_jobs(&orders()?, None).await?;
    assert_eq!((page.cron_jobs.len(), page.next), (30, None));
    assert_eq!(kind_of(broker.cron_jobs(&orders()?, Some("x")).await), Some(Kind::Invalid));
    let name = CronJobName::new("pulse-7")?;
    broker.delete_cron_job(&orders()?, &name).await?;
    assert_eq!(kind_of(broker.delete_cron_job(&orders()?, &name).await), Some(Kind::NotFound));
    assert_eq!(kind_of(broker.cron_job(&orders()?, &name).await), Some(Kind::NotFound));
    assert_eq!(kind_of(broker.pause_cron_job(&orders()?, &name, true).await), Some(Kind::NotFound));
    let wrong = Schedule { ttl: Some(Duration::ZERO), ..every("pulse", 60, Missed::Last)? };
    assert_eq!(kind_of(broker.put_cron_job(&orders()?, wrong).await), Some(Kind::Invalid));
    Ok(())
}

async fn a_cron_expression_fires(world: World) -> Result<()> {
    let running = start(&world)?;
    let timing = Timing::Cron { cron: "0 3 * * *".to_owned(), time_zone: "Europe/Berlin".to_owned() };
    let nightly = Schedule { timing, ..every("nightly", 1, Missed::Last)? };
    let (_, record) = running.broker.put_cron_job(&orders()?, nightly).await?;
    let next = record.schedule.next(record.last).unwrap_or_default();
    assert_eq!(next.to_string(), "2026-01-03T02:00:00.000Z");
    world.settled().await;
    world.pass(next.since(world.now()).as_millis() as u64 - 1);
    world.settled().await;
    assert_eq!(there(&running.broker).await?, 0);
    world.pass(1);
    are_there(&world, &running.broker, 1).await
}

/// Stores a cron job as another version of dwell might have.
async fn store(world: &World, broker: &Broker, schedule: Schedule) -> Result<()> {
    let descriptor = broker.topic(&orders()?).await?;
    let partition: Partition = descriptor.partition_of(schedule.name.as_str());
    let change = CronJobChange { schedule, seen: None, revision: Version::from_us(1), last: Some(Timestamp::ZERO) };
    assert!(world.store.cron_jobs.put_cron_job(&descriptor, partition, &change).await?.is_some());
    Ok(())
}

async fn failed_cron_job_stops_no_other(world: World) -> Result<()> {
    let running = start(&world)?;
    let broker = &running.broker;
    broker.put_cron_job(&orders()?, every("pulse", 10, Missed::Last)?).await?;
    let zone = |cron: &str, zone: &str| Timing::Cron { cron: cron.to_owned(), time_zone: zone.to_owned() };
    let unknown = Error::corrupt("a cron job is unreadable");
    for (name, timing) in [
        ("mars", zone("0 3 * * *", "Mars/Olympus")),
        ("sixth", zone("0 0 3 * * *", "UTC")),
        ("never", zone("0 0 30 2 *", "UTC")),
    ] {
        store(&world, broker, Schedule { timing, ..every(name, 1, Missed::Last)? }).await?;
    }
    for (name, stored) in [("moon", r#"{"name":"moon","lunar":"full"}"#), ("noise", "\u{1} no JSON")] {
        store(&world, broker, Schedule::unreadable(CronJobName::new(name)?, stored, &unknown)).await?;
    }
    running.stop().await;
    drop(running);
    let running = start(&world)?;
    let broker = &running.broker;
    world.settled().await;
    world.as_time_passes(are_there(&world, broker, 1)).await?;
    let mut failed = Vec::new();
    for record in broker.cron_jobs(&orders()?, None).await?.cron_jobs {
        if let Err(error) = record.schedule.expect(record.last) {
            failed.push((record.schedule.name.to_string(), error.detail().to_owned()));
        }
    }
    failed.sort();
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["mars", "moon", "never", "noise", "sixth"]);
    assert!(failed[0].1.contains("\"Mars/Olympus\" is not the name of a time zone"), "{failed:?}");
    assert!(failed[2].1.contains("never occurs"), "{failed:?}");
    let counted = |text: String| text.lines().any(|line| line == "dwell_cron_jobs_failed 5");
    world.until("they are counted", async || Ok(counted(broker.metrics().text()?))).await?;
    let attention = broker.attention().await?;
    let causes: Vec<_> =
        attention.concerns.iter().map(|concern| (concern.kind.name(), concern.cause.as_str())).collect();
    let cause = ("cron_failed", "5 cron jobs cannot be read or computed: `dwell cron list TOPIC`");
    assert!(causes.contains(&cause), "{causes:?}");
    // Whoever cannot read it changes nothing in it, and may replace or delete it.
    let moon = CronJobName::new("moon")?;
    assert_eq!(kind_of(broker.pause_cron_job(&orders()?, &moon, true).await), Some(Kind::Conflict));
    let (made, again) = broker.put_cron_job(&orders()?, every("moon", 10, Missed::Last)?).await?;
    assert!(!made && again.schedule.next(again.last).is_some());
    broker.pause_cron_job(&orders()?, &CronJobName::new("mars")?, true).await?;
    for name in ["noise", "never", "sixth"] {
        broker.delete_cron_job(&orders()?, &CronJobName::new(name)?).await?;
    }
    world.until("none has failed", async || Ok(broker.metrics().text()?.contains("\ndwell_cron_jobs_failed 0\n"))).await
}
