//! Consumers that wait for a batch: of so many messages, or of one key, unless the oldest has waited for long enough.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, Selection};
use dwell::delivery::{Decision, Delivery, Gather};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::{Ordering, Settings};
use futures_util::future::{Either, join, select};

use crate::support::{Running, World, kind_of, stories};

stories! {
    fewer_than_min_wait_for_the_linger_and_no_longer, min_messages_come_at_once, messages_count_over_all_partitions,
    a_batch_of_one_key_has_no_other, a_key_below_min_comes_after_the_linger, retries_count_and_expired_messages_do_not,
    others_take_what_waits_for_a_batch, a_backlog_comes_in_batches_of_one_key, wrong_batches_are_refused,
}

const SECOND: Duration = Duration::from_secs(1);

struct Shop {
    broker: Broker,
    _running: Running,
}

fn views() -> Result<TopicName> {
    TopicName::new("views")
}

impl Shop {
    async fn open(world: &World, settings: Settings) -> Result<Shop> {
        let lease_ttl = Duration::from_secs(86_400);
        let running = Running::start(world, Options { lease_ttl, ..Options::default() })?;
        running.broker.declare(views()?, settings).await?;
        Ok(Shop { broker: running.broker.clone(), _running: running })
    }

    async fn with(world: &World, partitions: u16) -> Result<Shop> {
        let partitions = NonZeroU16::new(partitions).ok_or_else(|| Error::bug("no partitions"))?;
        Shop::open(world, Settings { partitions, ..Settings::default() }).await
    }

    fn message(id: &str, key: &str) -> Result<NewMessage> {
        Ok(NewMessage { key: Some(Key::new(key)?), ..NewMessage::new("x").id(MessageId::new(id)?) })
    }

    /// Pushes messages whose keys are the first letters of their ids.
    async fn push(&self, ids: &[&str]) -> Result<()> {
        let batch = ids.iter().map(|id| Shop::message(id, &id[..1])).collect::<Result<_>>()?;
        self.broker.push_batch(&views()?, batch).await.map(drop)
    }

    async fn reserve(&self, max: usize, wait: Duration, gather: Gather) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        let selection = Selection { gather, ..Selection::default() };
        Ok(self.broker.reserve_selected(&views()?, &GroupName::standard(), request, selection).await?.deliveries)
    }

    async fn decide(&self, delivery: &Delivery, decision: Decision) -> Result<()> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        self.broker.settle(&views()?, &GroupName::standard(), decisions).await.map(drop)
    }
}

fn at_least(min: usize, linger: Duration) -> Gather {
    Gather { min, linger, same_key: false }
}

fn of_one_key(min: usize, linger: Duration) -> Gather {
    Gather { min, linger, same_key: true }
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    let mut ids: Vec<_> = deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

async fn fewer_than_min_wait_for_the_linger_and_no_longer(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    shop.push(&["a1", "a2"]).await?;
    world.pass(1_000);
    shop.push(&["b1"]).await?;
    let waits = shop.reserve(10, 60 * SECOND, at_least(5, 3 * SECOND));
    let time = async {
        world.settled().await;
        world.pass(1_999);
        world.settled().await;
    };
    let mut waits = std::pin::pin!(waits);
    assert!(matches!(select(waits.as_mut(), std::pin::pin!(time)).await, Either::Right(_)), "too early");
    world.pass(1);
    let taken = waits.await?;
    assert_eq!(ids(&taken), ["a1", "a2", "b1"], "the oldest takes the others along");
    assert_eq!(taken.iter().map(|delivery| delivery.lateness).max(), Some(3 * SECOND));
    Ok(())
}

async fn min_messages_come_at_once(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    shop.push(&["a1", "b1"]).await?;
    let waits = shop.reserve(10, 60 * SECOND, at_least(4, 50 * SECOND));
    let pushes = async {
        world.settled().await;
        world.pass(100);
        shop.push(&["c1", "d1", "e1"]).await
    };
    let (taken, pushed) = join(waits, pushes).await;
    pushed?;
    assert_eq!(ids(&taken?), ["a1", "b1", "c1", "d1", "e1"]);
    let none = world.as_time_passes(shop.reserve(10, SECOND, at_least(2, 50 * SECOND))).await?;
    assert!(none.is_empty(), "what is in flight counts for no other batch");
    Ok(())
}

async fn messages_count_over_all_partitions(world: World) -> Result<()> {
    let shop = Shop::with(&world, 4).await?;
    let names: Vec<String> = ('a'..='l').map(|key| format!("{key}1")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    shop.push(&names).await?;
    let taken = world.as_time_passes(shop.reserve(20, 30 * SECOND, at_least(12, 50 * SECOND))).await?;
    assert_eq!(ids(&taken), names);
    Ok(())
}

async fn a_batch_of_one_key_has_no_other(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    shop.push(&["a1", "b1", "a2", "b2", "b3", "c1"]).await?;
    let taken = world.as_time_passes(shop.reserve(10, 10 * SECOND, of_one_key(3, 60 * SECOND))).await?;
    assert_eq!(ids(&taken), ["b1", "b2", "b3"]);
    // Without a number to wait for, the key whose message is ready for longest.
    let taken = world.as_time_passes(shop.reserve(10, 10 * SECOND, of_one_key(1, Duration::ZERO))).await?;
    assert_eq!(ids(&taken), ["a1", "a2"]);
    let taken = world.as_time_passes(shop.reserve(10, 10 * SECOND, of_one_key(1, Duration::ZERO))).await?;
    assert_eq!(ids(&taken), ["c1"]);
    // Messages without a key are those of one key of their partition.
    let keyless = ["x1", "x2"].iter().map(|id| Ok(NewMessage::new("x").id(MessageId::new(*id)?)));
    shop.broker.push_batch(&views()?, keyless.collect::<Result<_>>()?).await?;
    let taken = world.as_time_passes(shop.reserve(10, 10 * SECOND, of_one_key(2, 60 * SECOND))).await?;
    assert_eq!(ids(&taken), ["x1", "x2"]);
    Ok(())
}

async fn a_key_below_min_comes_after_the_linger(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    shop.push(&["a1"]).await?;
    world.pass(1_000);
    shop.push(&["b1", "b2"]).await?;
    let taken = world.as_time_passes(shop.reserve(10, 60 * SECOND, of_one_key(3, 5 * SECOND))).await?;
    assert_eq!((ids(&taken), taken[0].lateness), (vec!["a1"], 5 * SECOND));
    let taken = world.as_time_passes(shop.reserve(10, 60 * SECOND, of_one_key(3, 5 * SECOND))).await?;
    assert_eq!((ids(&taken), taken[0].lateness), (vec!["b1", "b2"], 5 * SECOND));
    Ok(())
}

async fn retries_count_and_expired_messages_do_not(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    let dies = NewMessage { ttl: Some(2 * SECOND), ..Shop::message("a0", "a")? };
    shop.broker.push(&views()?, dies).await?;
    shop.push(&["a1", "a2"]).await?;
    for delivery in &world.as_time_passes(shop.reserve(2, SECOND, Gather::default())).await? {
        shop.decide(delivery, Decision::Nack { delay: Some(Duration::ZERO), reason: None }).await?;
    }
    world.pass(3_000);
    let none = world.as_time_passes(shop.reserve(10, SECOND, of_one_key(3, 60 * SECOND))).await?;
    assert!(none.is_empty(), "one of three has expired: {none:?}");
    shop.push(&["a3"]).await?;
    let taken = world.as_time_passes(shop.reserve(10, 10 * SECOND, of_one_key(3, 60 * SECOND))).await?;
    assert_eq!(ids(&taken), ["a1", "a2", "a3"]);
    Ok(())
}

async fn others_take_what_waits_for_a_batch(world: World) -> Result<()> {
    let shop = Shop::with(&world, 2).await?;
    shop.push(&["a1"]).await?;
    let both =
        join(shop.reserve(10, 3 * SECOND, at_least(5, 60 * SECOND)), shop.reserve(10, 3 * SECOND, Gather::default()));
    let (batch, plain) = world.as_time_passes(both).await;
    assert_eq!((batch?.len(), ids(&plain?)), (0, vec!["a1"]));
    Ok(())
}

async fn a_backlog_comes_in_batches_of_one_key(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    let names: Vec<String> = (0..900).map(|n| format!("{}{n:03}", ["a", "b", "c"][n % 3])).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    shop.push(&names).await?;
    let mut taken = Vec::new();
    for _ in 0..9 {
        let batch = world.as_time_passes(shop.reserve(100, 10 * SECOND, of_one_key(100, 60 * SECOND))).await?;
        let keys: std::collections::BTreeSet<_> =
            batch.iter().map(|delivery| delivery.message.envelope.key.clone()).collect();
        assert_eq!((batch.len(), keys.len()), (100, 1));
        taken.extend(batch.into_iter().map(|delivery| delivery.message.id.as_str().to_owned()));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 900);
    Ok(())
}

async fn wrong_batches_are_refused(world: World) -> Result<()> {
    let shop = Shop::with(&world, 1).await?;
    let refused = async |max, gather| kind_of(shop.reserve(max, Duration::ZERO, gather).await);
    for (max, gather) in [
        (10, at_least(0, SECOND)),
        (10, at_least(11, SECOND)),
        (10, at_least(5, Duration::ZERO)),
        (10, at_least(5, 61 * SECOND)),
        (10, at_least(1, SECOND)),
    ] {
        assert_eq!(refused(max, gather).await, Some(Kind::Invalid), "{max} {gather:?}");
    }
    shop.broker.delete_topic(&views()?).await?;
    shop.broker.declare(views()?, Settings { ordering: Ordering::Key, ..Settings::default() }).await?;
    for gather in [of_one_key(1, Duration::ZERO), at_least(2, SECOND)] {
        assert_eq!(refused(10, gather).await, Some(Kind::Invalid), "with ordering: {gather:?}");
    }
    Ok(())
}
