//! The depth of topics on both stores, told on a clock that only the story moves.

use std::time::Duration;

use dwell::broker::{GroupRequest, Options, PauseFor, ReserveRequest};
use dwell::delivery::Decision;
use dwell::model::error::Result;
use dwell::model::message::{GroupName, Key, NewMessage, TopicName};
use dwell::model::topic::{Fairness, Settings};
use dwell::telemetry::metrics::TOPIC_LABELS_MAX;

use super::page::Page;
use crate::support::{Running, World, stories};

/// A broker, and what somebody sees who looks at its metrics.
struct Seen {
    world: World,
    running: Running,
}

impl Seen {
    async fn on(world: World) -> Result<Seen> {
        let running = Running::start(&world, Options::default())?;
        Ok(Seen { world, running })
    }

    fn look(&self) -> Result<Page> {
        Ok(Page::of(&self.running.broker.scrape()?))
    }

    /// Looks again and again, while time passes, until it is so.
    async fn until(&self, what: &str, is_so: impl Fn(&Page) -> bool) -> Result<Page> {
        self.world.as_time_passes(self.world.until(what, async || Ok(is_so(&self.look()?)))).await?;
        self.look()
    }

    async fn push(&self, topic: &str, delays_s: &[u64]) -> Result<()> {
        let topic = TopicName::new(topic)?;
        for delay in delays_s {
            let message = NewMessage::new("x").after(Duration::from_secs(*delay));
            self.running.broker.push(&topic, message).await?;
        }
        Ok(())
    }
}

fn messages(page: &Page, topic: &str, group: &str) -> Option<[f64; 4]> {
    let of =
        |state: &str| page.value(&format!("dwell_messages{{group=\"{group}\",state=\"{state}\",topic=\"{topic}\"}}"));
    Some([of("scheduled")?, of("ready")?, of("in_flight")?, of("dead")?])
}

async fn every_state_is_counted(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    seen.push("orders", &[3_600, 3_600, 0, 0, 0, 0, 0]).await?;
    seen.until("nobody consumes", |page| messages(page, "orders", "default") == Some([2.0, 5.0, 0.0, 0.0])).await?;
    let request =
        ReserveRequest { max: 3, wait: Duration::from_secs(5), visibility_timeout: Some(Duration::from_secs(3_600)) };
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let ask = ReserveRequest { max: 3 - taken.len(), ..request };
        taken.extend(seen.world.as_time_passes(seen.running.broker.reserve(&topic, &group, ask)).await?);
    }
    let bury = vec![(taken[0].receipt.to_string(), Decision::Bury { reason: None })];
    seen.world.as_time_passes(seen.running.broker.settle(&topic, &group, bury)).await?;
    // What is prefetched here and with nobody is ready.
    let page =
        seen.until("some are out", |page| messages(page, "orders", "default") == Some([2.0, 2.0, 2.0, 1.0])).await?;
    let described = seen.running.broker.stats(&topic).await?;
    let sum =
        |count: fn(&dwell::store::PartitionStats) -> u64| described.iter().map(|(_, stats)| count(stats)).sum::<u64>();
    assert_eq!([sum(|s| s.scheduled), sum(|s| s.ready), sum(|s| s.in_flight), sum(|s| s.dead)], [2, 2, 2, 1]);
    assert_eq!(page.value("dwell_stats_collector"), Some(1.0));
    Ok(())
}

/// Four messages of one key and one of another. One of each key is out, and the other three wait for the limit of theirs.
async fn keys_of_a_fair_group_are_counted(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    let (topic, group, broker) = (TopicName::new("orders")?, GroupName::standard(), &seen.running.broker);
    let of = |what: &str| format!("{what}{{group=\"default\",topic=\"orders\"}}");
    let (keys, ratio) = (of("dwell_group_keys"), of("dwell_group_busiest_key_ratio"));
    for key in ["busy", "busy", "busy", "busy", "quiet"] {
        let message = NewMessage { key: Some(Key::new(key)?), ..NewMessage::new("x") };
        broker.push(&topic, message).await?;
    }
    let page =
        seen.until("it is counted", |page| messages(page, "orders", "default") == Some([0.0, 5.0, 0.0, 0.0])).await?;
    assert_eq!((page.value(&keys), page.value(&ratio)), (None, None), "it is not fair");
    let wish = GroupRequest { fair: Some(Fairness::Key), key_max_in_flight: Some(1), ..GroupRequest::default() };
    broker.create_group(&topic, &group, wish).await?;
    let request =
        ReserveRequest { max: 5, wait: Duration::from_secs(5), visibility_timeout: Some(Duration::from_secs(3_600)) };
    let mut taken = 0;
    while taken < 2 {
        taken += seen.world.as_time_passes(broker.reserve(&topic, &group, request)).await?.len();
    }
    let page = seen.until("the keys are known", |page| page.value(&keys) == Some(2.0)).await?;
    let paused = of("dwell_group_paused_keys");
    assert_eq!((page.value(&ratio), page.value(&paused)), (Some(0.8), Some(0.0)));
    assert_eq!(messages(&page, "orders", "default"), Some([0.0, 3.0, 2.0, 0.0]));
    for key in ["busy", "empty"] {
        broker.pause_key(&topic, &group, &Key::new(key)?, PauseFor::Span(Duration::from_secs(3_600))).await?;
    }
    seen.until("the pauses are counted", |page| page.value(&paused) == Some(2.0)).await?;
    Ok(())
}

/// As many topics as have labels, each with one message and an earlier name.
async fn small_topics_do_not_hide_a_backlog(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    for n in 0..TOPIC_LABELS_MAX {
        seen.push(&format!("junk{n}"), &[0]).await?;
    }
    seen.push("orders", &[0, 0, 3_600]).await?;
    let page = seen
        .until("the backlog is shown", |page| messages(page, "orders", "default") == Some([1.0, 2.0, 0.0, 0.0]))
        .await?;
    assert_eq!(messages(&page, "other", "other"), Some([0.0, 1.0, 0.0, 0.0]));
    Ok(())
}

async fn deleted_topic_is_gone_from_the_next_collection(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    let audit = GroupName::new("audit")?;
    for topic in ["orders", "returns"] {
        seen.running.broker.declare(TopicName::new(topic)?, Settings::default()).await?;
    }
    let orders = TopicName::new("orders")?;
    seen.running.broker.create_group(&orders, &audit, Default::default()).await?;
    seen.push("orders", &[60]).await?;
    seen.push("returns", &[60, 60]).await?;
    seen.until("all are counted", |page| {
        messages(page, "orders", "audit") == Some([1.0, 0.0, 0.0, 0.0])
            && messages(page, "returns", "default") == Some([2.0, 0.0, 0.0, 0.0])
    })
    .await?;
    seen.running.broker.delete_topic(&TopicName::new("returns")?).await?;
    seen.running.broker.delete_group(&orders, &audit).await?;
    let page = seen
        .until("the deleted ones are gone", |page| {
            page.value("dwell_stats_collector") == Some(1.0) && page.all("dwell_messages").count() == 6
        })
        .await?;
    assert_eq!(messages(&page, "orders", "default"), Some([1.0, 0.0, 0.0, 0.0]));
    assert!(page.all("dwell_messages_due").all(|(series, _)| !series.contains("returns") && !series.contains("audit")));
    Ok(())
}

async fn ages_and_due_counts_advance_with_time(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    seen.push("orders", &[30, 30, 300]).await?;
    let due = |page: &Page, within: &str| {
        page.value(&format!("dwell_messages_due{{group=\"default\",topic=\"orders\",within=\"{within}\"}}"))
    };
    let page = seen.until("it is counted", |page| due(page, "1m") == Some(2.0)).await?;
    assert_eq!((due(&page, "10m"), due(&page, "1h"), due(&page, "1d")), (Some(3.0), Some(3.0), Some(3.0)));
    let age = "dwell_oldest_ready_age_seconds{group=\"default\",topic=\"orders\"}";
    assert_eq!(page.value(age), Some(0.0));
    seen.world.pass(90_000);
    let page = seen.until("two are ready", |page| due(page, "1m") == Some(0.0)).await?;
    assert_eq!((due(&page, "10m"), messages(&page, "orders", "default")), (Some(1.0), Some([1.0, 2.0, 0.0, 0.0])));
    assert!(page.value(age).is_some_and(|age| (59.0..90.0).contains(&age)), "{:?}", page.value(age));
    Ok(())
}

async fn nothing_is_counted_without_a_scrape(world: World) -> Result<()> {
    let seen = Seen::on(world).await?;
    seen.push("orders", &[60]).await?;
    seen.until("it is counted", |page| page.value("dwell_stats_collector") == Some(1.0)).await?;
    // Two minutes later nobody is taken to look any more: what was counted is not shown to who comes then.
    seen.world.pass(121_000);
    seen.world.settled().await;
    let page = seen.look()?;
    assert_eq!((page.value("dwell_stats_collector"), page.all("dwell_messages").count()), (Some(0.0), 0));
    seen.until("and then it is counted again", |page| page.value("dwell_stats_collector") == Some(1.0)).await?;
    Ok(())
}

stories!(
    every_state_is_counted,
    keys_of_a_fair_group_are_counted,
    small_topics_do_not_hide_a_backlog,
    deleted_topic_is_gone_from_the_next_collection,
    ages_and_due_counts_advance_with_time,
    nothing_is_counted_without_a_scrape,
);

#[tokio::test]
async fn claim_is_released_when_metrics_are_not_scraped() -> Result<()> {
    let seen = Seen::on(World::redis().await?).await?;
    let has_key =
        async || Ok(seen.world.meddle(&["EXISTS".to_owned(), "dwell:stats-collector".to_owned()]).await? == "1");
    seen.push("orders", &[60]).await?;
    assert!(!has_key().await?);
    seen.until("it is counted", |page| page.value("dwell_stats_collector") == Some(1.0)).await?;
    assert!(has_key().await?);
    seen.world.pass(121_000);
    seen.world.until("the key is gone", async || Ok(!has_key().await?)).await
}

/// A topic whose keys somebody damaged hides no other.
#[tokio::test]
async fn damaged_topic_is_left_out_of_the_totals() -> Result<()> {
    let seen = Seen::on(World::redis().await?).await?;
    seen.push("orders", &[60]).await?;
    seen.push("returns", &[60]).await?;
    let broken = ["SET", "{dwell:orders:0}:default:dz", "not a zset"].map(str::to_owned);
    seen.world.meddle(&broken).await?;
    let page = seen.until("it is counted", |page| page.value("dwell_stats_collector") == Some(1.0)).await?;
    assert_eq!(messages(&page, "returns", "default"), Some([1.0, 0.0, 0.0, 0.0]));
    assert!(page.all("dwell_messages").all(|(series, _)| !series.contains("orders")));
    Ok(())
}
