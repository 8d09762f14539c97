//! Which of the ready messages comes next: priorities, and consumers that want old messages only.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, Selection};
use dwell::delivery::{Decision, Delivery};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use futures_util::future::{Either, join, select};

use crate::support::{Running, World, kind_of, stories};

stories! {
    highest_priority_is_delivered_first, priority_does_not_change_due_times, earliest_due_message_does_not_starve,
    a_priority_is_kept_through_failures_and_restarts, messages_below_min_age_are_left_to_others,
    min_age_is_exact_to_the_millisecond, old_messages_behind_young_ones_are_found,
}

const SECOND: Duration = Duration::from_secs(1);

struct Shop {
    broker: Broker,
    running: Running,
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

impl Shop {
    fn open(world: &World) -> Result<Shop> {
        let topic_defaults = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        let lease_ttl = Duration::from_secs(86_400);
        let running = Running::start(world, Options { topic_defaults, lease_ttl, ..Options::default() })?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn push(&self, id: &str, priority: u8, delay: Duration) -> Result<()> {
        let message = NewMessage::new("x").id(MessageId::new(id)?).priority(priority).after(delay);
        self.broker.push(&orders()?, message).await.map(drop)
    }

    /// Pushes messages in one call, due in this order, a millisecond apart.
    async fn push_all(&self, messages: &[(&str, u8)]) -> Result<()> {
        let now = self.broker.now();
        let message = |(n, (id, priority)): (usize, &(&str, u8))| {
            let at = now.plus(Duration::from_millis(n as u64));
            Ok(NewMessage::new("x").id(MessageId::new(id)?).priority(*priority).at(at))
        };
        let batch = messages.iter().enumerate().map(message).collect::<Result<_>>()?;
        self.broker.push_batch(&orders()?, batch).await.map(drop)
    }

    async fn reserve(&self, max: usize, wait: Duration, min_age: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        let selection = Selection { min_age, ..Selection::default() };
        Ok(self.broker.reserve_selected(&orders()?, &GroupName::standard(), request, selection).await?.deliveries)
    }

    async fn one(&self) -> Result<Delivery> {
        let taken = self.reserve(1, 60 * SECOND, Duration::ZERO).await?;
        taken.into_iter().next().ok_or_else(|| Error::bug("nothing came"))
    }

    /// The ids of what comes, one at a time.
    async fn order(&self, count: usize) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.one().await?.message.id.as_str().to_owned());
        }
        Ok(ids)
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<()> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        self.broker.settle(&orders()?, &GroupName::standard(), decisions).await.map(drop)
    }
}

/// Is a member of the group, with nothing in memory that was reserved before.
async fn fresh(world: &World, shop: &Shop) -> Result<()> {
    let looked = world.as_time_passes(shop.reserve(1, Duration::ZERO, Duration::ZERO)).await?;
    assert!(looked.is_empty());
    Ok(())
}

async fn highest_priority_is_delivered_first(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push_all(&[("a0", 0), ("b9", 9), ("c5", 5), ("d9", 9), ("e0", 0), ("f1", 1)]).await?;
    world.pass(100);
    assert_eq!(shop.order(6).await?, ["b9", "d9", "c5", "f1", "a0", "e0"]);
    assert_eq!(kind_of(shop.push("x", 10, Duration::ZERO).await), Some(Kind::Invalid));
    Ok(())
}

async fn priority_does_not_change_due_times(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push("later", 9, 10 * SECOND).await?;
    shop.push("now", 0, Duration::ZERO).await?;
    assert_eq!(shop.order(1).await?, ["now"]);
    world.pass(9_999);
    assert!(matches!(select(std::pin::pin!(shop.one()), std::pin::pin!(world.settled())).await, Either::Right(_)));
    world.pass(1);
    assert_eq!(shop.order(1).await?, ["later"]);
    Ok(())
}

async fn earliest_due_message_does_not_starve(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let names: Vec<String> = (0..60).map(|n| format!("high{n}")).collect();
    let mut all: Vec<(&str, u8)> = vec![("low1", 0), ("low2", 0)];
    all.extend(names.iter().map(|name| (name.as_str(), 9)));
    shop.push_all(&all).await?;
    world.pass(100);
    let order = shop.order(62).await?;
    let at = |id: &str| order.iter().position(|other| other == id).unwrap_or(usize::MAX);
    let bound = dwell::model::limits::PASSED_OVER_MAX;
    assert!(at("low1") <= bound && at("low2") <= 2 * bound + 1, "{order:?}");
    assert!(at("low1") > 0 && at("high0") < at("high1"), "{order:?}");
    Ok(())
}

async fn a_priority_is_kept_through_failures_and_restarts(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push("urgent", 9, Duration::ZERO).await?;
    let first = shop.one().await?;
    assert_eq!(first.message.envelope.priority, 9);
    shop.settle(&first, Decision::Nack { delay: Some(Duration::ZERO), reason: None }).await?;
    shop.running.stop().await;
    drop(shop);
    let shop = Shop::open(&world)?;
    world.pass(1);
    shop.push_all(&[("a", 0), ("b", 0)]).await?;
    world.pass(100);
    // An attempt is charged before a retry is handed out, so the others may be faster.
    let three = [shop.one().await?, shop.one().await?, shop.one().await?];
    let again = three.iter().find(|delivery| delivery.message.id.as_str() == "urgent");
    assert_eq!(again.map(|delivery| (delivery.attempt, delivery.message.envelope.priority)), Some((2, 9)));
    Ok(())
}

async fn messages_below_min_age_are_left_to_others(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push("old", 0, Duration::ZERO).await?;
    world.pass(5_000);
    shop.push("young", 9, Duration::ZERO).await?;
    let age = 5 * SECOND;
    let taken = world.as_time_passes(shop.reserve(10, SECOND, age)).await?;
    let ids: Vec<_> = taken.iter().map(|delivery| delivery.message.id.as_str()).collect();
    assert_eq!(ids, ["old"]);
    // One that waits for older ones keeps nothing from who does not.
    let both = join(shop.reserve(10, 2 * SECOND, 600 * SECOND), shop.one());
    let (aged, young) = world.as_time_passes(both).await;
    assert!(aged?.is_empty());
    assert_eq!(young?.message.id.as_str(), "young");
    let too_old = shop.reserve(1, Duration::ZERO, dwell::model::limits::MIN_AGE_MAX + SECOND).await;
    assert_eq!(kind_of(too_old), Some(Kind::Invalid));
    Ok(())
}

async fn min_age_is_exact_to_the_millisecond(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push("a", 0, Duration::ZERO).await?;
    world.pass(1_000);
    let waits = shop.reserve(10, 60 * SECOND, 3 * SECOND);
    let time = async {
        world.settled().await;
        world.pass(1_999);
        world.settled().await;
    };
    let mut waits = std::pin::pin!(waits);
    assert!(matches!(select(waits.as_mut(), std::pin::pin!(time)).await, Either::Right(_)));
    world.pass(1);
    let taken = waits.await?;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].lateness, 3 * SECOND);
    Ok(())
}

async fn old_messages_behind_young_ones_are_found(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    fresh_topic(&shop).await?;
    // Pushed long ago, and due after many that were pushed now.
    shop.push("old", 0, 20 * SECOND).await?;
    fresh(&world, &shop).await?;
    world.pass(15_000);
    let names: Vec<String> = (0..200).map(|n| format!("young{n:03}")).collect();
    shop.push_all(&names.iter().map(|name| (name.as_str(), 0)).collect::<Vec<_>>()).await?;
    world.pass(6_000);
    let taken = world.as_time_passes(shop.reserve(10, 5 * SECOND, 15 * SECOND)).await?;
    let ids: Vec<_> = taken.iter().map(|delivery| delivery.message.id.as_str()).collect();
    assert_eq!(ids, ["old"]);
    Ok(())
}

async fn fresh_topic(shop: &Shop) -> Result<()> {
    shop.broker.declare(orders()?, shop.broker.topic_defaults().clone()).await.map(drop)
}
