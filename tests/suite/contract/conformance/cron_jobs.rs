use dwell::model::error::{Kind, Result};
use dwell::model::limits::{CRON_JOBS_MAX, SCHEDULE_PAYLOAD_BYTES_MAX};
use dwell::model::message::CronJobName;
use dwell::model::partition::Partition;
use dwell::model::schedule::{Missed, Schedule};
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::store::{CronJobChange, CronJobDeletion, CronJobRecord, Fired, Firing, Pushed};

use crate::support::{TestTopic, World, acks, every, ids_of, kind_of, up_to};

const FIRST: Partition = Partition(0);

fn pulse(name: &str) -> Result<Schedule> {
    every(name, 1, Missed::Last)
}

fn change(schedule: Schedule, seen: Option<Version>, revision: Version, last: Option<Timestamp>) -> CronJobChange {
    CronJobChange { schedule, seen, revision, last }
}

const ZERO: Version = Version::from_us(10);
const ONE: Version = Version::from_us(11);
const TWO: Version = Version::from_us(12);
const THREE: Version = Version::from_us(13);

/// Whether it was changed.
async fn put(orders: &TestTopic, change: &CronJobChange) -> Result<bool> {
    let last = orders.store.cron_jobs.put_cron_job(&orders.descriptor, FIRST, change).await?;
    Ok(last.is_some())
}

async fn delete(orders: &TestTopic, name: &str) -> Result<CronJobDeletion> {
    orders.store.cron_jobs.delete_cron_job(&orders.descriptor, FIRST, &CronJobName::new(name)?).await
}

async fn all(orders: &TestTopic) -> Result<Vec<CronJobRecord>> {
    orders.store.cron_jobs.list(&orders.descriptor.topic, FIRST).await
}

/// Fires these occurrences, the last of which is done then, after `last`.
async fn fire(orders: &TestTopic, revision: Version, last: Timestamp, at: &[Timestamp]) -> Result<Fired> {
    let schedule = pulse("pulse")?;
    let now = orders.store.backend.clock().now();
    let messages = at.iter().map(|at| schedule.message(*at, now)).collect::<Result<_>>()?;
    let done = at.last().copied().unwrap_or(now);
    let version = orders.store.backend.clock().versions(at.len());
    let firing = Firing { schedule, revision, last, done, messages, version };
    orders.store.cron_jobs.fire(&orders.descriptor, FIRST, &firing).await
}

pub(super) async fn cron_job_update_needs_the_current_version(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    assert_eq!(all(&orders).await?, []);
    let start = world.now();
    assert!(put(&orders, &change(pulse("b")?, None, ONE, Some(start))).await?);
    assert!(!put(&orders, &change(pulse("b")?, None, TWO, Some(start))).await?);
    assert!(!put(&orders, &change(pulse("b")?, Some(ZERO), TWO, None)).await?);
    let paused = Schedule { paused: true, ..pulse("b")? };
    assert!(put(&orders, &change(paused.clone(), Some(ONE), TWO, None)).await?);
    let record = CronJobRecord { schedule: paused, revision: TWO, last: start };
    assert_eq!(all(&orders).await?, std::slice::from_ref(&record));
    // What is done never goes back.
    let earlier = change(pulse("b")?, Some(TWO), THREE, Some(Timestamp::from_ms(1)));
    assert!(put(&orders, &earlier).await?);
    assert_eq!(all(&orders).await?[0].last, start);
    let large = Schedule { payload: vec![0xff; SCHEDULE_PAYLOAD_BYTES_MAX].into(), ..pulse("a")? };
    assert!(put(&orders, &change(large.clone(), None, ONE, Some(start))).await?);
    let names: Vec<_> = all(&orders).await?.into_iter().map(|record| record.schedule.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(all(&orders).await?[0].schedule, large);
    let deleted = delete(&orders, "a").await?;
    assert!(deleted.was_there && deleted.revision > Some(ONE), "{deleted:?}");
    assert!(!delete(&orders, "a").await?.was_there);
    assert_eq!(delete(&orders, "never").await?, CronJobDeletion::default());
    assert_eq!(all(&orders).await?.len(), 1);
    Ok(())
}

pub(super) async fn occurrence_fires_once_even_after_consumption(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let start = world.now();
    put(&orders, &change(pulse("pulse")?, None, ONE, Some(start))).await?;
    world.pass(1_000);
    let first = world.now();
    assert_eq!(fire(&orders, ONE, start, &[first]).await?, Fired::Done(vec![true]));
    assert_eq!(fire(&orders, ONE, start, &[first]).await?, Fired::Before(first));
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), [format!("pulse@{first}")]);
    assert_eq!(taken.messages[0].ready_at, first);
    owner.settle(&acks(&[&format!("pulse@{first}")])?).await?;
    // Long gone, and no window remembers it.
    assert_eq!(fire(&orders, ONE, start, &[first]).await?, Fired::Before(first));
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(orders.stats_of(&orders.partition_of("audit")?).await?.ready, 1);
    assert_eq!(all(&orders).await?[0].last, first);
    Ok(())
}

pub(super) async fn nothing_fires_early_or_with_an_older_version(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let start = world.now();
    put(&orders, &change(pulse("pulse")?, None, ONE, Some(start))).await?;
    let next = Timestamp::from_ms(start.as_ms() + 1_000);
    world.pass(999);
    assert_eq!(fire(&orders, ONE, start, &[next]).await?, Fired::Early);
    world.pass(1);
    assert_eq!(fire(&orders, ZERO, start, &[next]).await?, Fired::Changed);
    put(&orders, &change(Schedule { paused: true, ..pulse("pulse")? }, Some(ONE), TWO, None)).await?;
    assert_eq!(fire(&orders, ONE, start, &[next]).await?, Fired::Changed);
    delete(&orders, "pulse").await?;
    assert_eq!(fire(&orders, TWO, start, &[next]).await?, Fired::Changed);
    assert_eq!(orders.stats().await?.ready, 0);
    Ok(())
}

pub(super) async fn occurrences_fire_together_or_are_skipped(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let start = world.now();
    put(&orders, &change(pulse("pulse")?, None, ONE, Some(start))).await?;
    world.pass(10_000);
    let at = |second: u64| Timestamp::from_ms(start.as_ms() + second * 1_000);
    // Somebody has pushed the id of one of them.
    let mut taken = orders.message("x", 0)?;
    taken.id = pulse("pulse")?.message(at(2), start)?.id;
    assert_eq!(orders.push_all(&[taken]).await?, [Pushed::Stored]);
    assert_eq!(fire(&orders, ONE, start, &[at(1), at(2), at(3)]).await?, Fired::Done(vec![true, false, true]));
    assert_eq!((orders.stats().await?.ready, orders.stats().await?.head), (3, Some(at(1))));
    let passed = fire(&orders, ONE, at(3), &[]).await?;
    assert_eq!((passed, all(&orders).await?[0].last), (Fired::Done(vec![]), world.now()));
    assert_eq!(orders.stats().await?.ready, 3);
    Ok(())
}

pub(super) async fn cron_jobs_are_listed_and_deleted_with_their_topic(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let topic = orders.descriptor.topic.clone();
    put(&orders, &change(pulse("pulse")?, None, ONE, Some(world.now()))).await?;
    assert_eq!(orders.store.cron_jobs.cron_partitions().await?, [(topic.clone(), FIRST)]);
    let updated = orders.store.topics.update(&orders.descriptor).await?;
    assert_eq!(kind_of(put(&orders, &change(pulse("late")?, None, ONE, None)).await), Some(Kind::Stale));
    world.pass(1_000);
    let stale = fire(&orders, ONE, Timestamp::ZERO, &[world.now()]).await;
    assert_eq!(kind_of(stale), Some(Kind::Stale));
    orders.store.topics.delete(&updated).await?;
    assert_eq!(all(&orders).await?, []);
    assert!(kind_of(put(&orders, &change(pulse("late")?, None, ONE, None)).await).is_some());
    world.topic("orders").await?;
    assert_eq!(all(&orders).await?, []);
    Ok(())
}

pub(super) async fn partition_accepts_at_most_a_hundred_cron_jobs(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for n in 0..CRON_JOBS_MAX {
        assert!(put(&orders, &change(pulse(&format!("pulse-{n}"))?, None, ONE, Some(world.now()))).await?);
    }
    let one_more = change(pulse("one-more")?, None, ONE, Some(world.now()));
    assert_eq!(kind_of(put(&orders, &one_more).await), Some(Kind::Full));
    assert_eq!(all(&orders).await?.len(), CRON_JOBS_MAX);
    assert!(put(&orders, &change(pulse("pulse-7")?, Some(ONE), TWO, None)).await?);
    Ok(())
}
