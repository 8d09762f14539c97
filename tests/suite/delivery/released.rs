//! Deliveries that are given back unhandled: they are due again at once, and count as no attempts.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, Selection};
use dwell::delivery::{Decision, Delivery, StaleReason, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::retry::OnFailure;
use dwell::model::topic::{Ordering, Settings};
use dwell::store::MessageState;

use crate::support::{Running, World, stories};

stories! {
    released_delivery_comes_again_with_the_same_attempt, the_last_attempt_can_be_released,
    a_release_keeps_what_failed_before, the_first_decision_about_a_released_delivery_stands,
    a_release_is_never_late, with_ordering_a_released_message_comes_first, a_released_batch_of_a_key_comes_again_in_order,
    rest_of_a_batch_stays_if_asked_for, released_message_of_a_lost_owner_has_one_attempt,
}

const LEASE_TTL: Duration = Duration::from_secs(86_400);

struct Shop {
    broker: Broker,
    _running: Running,
    topic: TopicName,
    group: GroupName,
}

/// One partition, whose messages may be tried so often.
fn tried(max_attempts: u32) -> Settings {
    let visibility_timeout = Duration::from_secs(30);
    Settings { partitions: NonZeroU16::MIN, max_attempts, visibility_timeout, ..Settings::default() }
}

fn by_key() -> Settings {
    Settings { ordering: Ordering::Key, ..tried(1) }
}

impl Shop {
    async fn open(world: &World, settings: Settings) -> Result<Shop> {
        let options = Options { topic_defaults: settings.clone(), lease_ttl: LEASE_TTL, ..Options::default() };
        let running = Running::start(world, options)?;
        let (broker, topic) = (running.broker.clone(), TopicName::new("orders")?);
        broker.declare(topic.clone(), settings).await?;
        Ok(Shop { broker, _running: running, topic, group: GroupName::standard() })
    }

    /// In one batch, due now; all of one key.
    async fn push(&self, ids: &[&str]) -> Result<()> {
        let message = |id: &&str| {
            let message = NewMessage::new("x").id(MessageId::new(*id)?);
            Ok(NewMessage { key: Some(Key::new("k")?), ..message })
        };
        let messages = ids.iter().map(message).collect::<Result<_>>()?;
        self.broker.push_batch(&self.topic, messages).await.map(drop)
    }

    async fn batch(&self, max: usize, on_failure: OnFailure) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: Duration::from_secs(60), visibility_timeout: None };
        let selection = Selection { per_key: max, on_failure, ..Selection::default() };
        Ok(self.broker.reserve_selected(&self.topic, &self.group, request, selection).await?.deliveries)
    }

    async fn one(&self) -> Result<Delivery> {
        self.batch(1, OnFailure::default()).await?.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    async fn settle(&self, deliveries: &[&Delivery], decision: Decision) -> Result<Vec<Verdict>> {
        let decisions = deliveries.iter().map(|delivery| (delivery.receipt.clone(), decision.clone()));
        self.broker.settle(&self.topic, &self.group, decisions.collect()).await
    }

    async fn release(&self, delivery: &Delivery) -> Result<()> {
        assert_eq!(self.settle(&[delivery], Decision::Release).await?, [Verdict::Released]);
        Ok(())
    }
}

fn told(deliveries: &[Delivery]) -> Vec<(&str, u32)> {
    deliveries.iter().map(|delivery| (delivery.message.id.as_str(), delivery.attempt)).collect()
}

fn nack(reason: &str) -> Decision {
    Decision::Nack { delay: Some(Duration::ZERO), reason: Some(reason.into()) }
}

async fn released_delivery_comes_again_with_the_same_attempt(world: World) -> Result<()> {
    let shop = Shop::open(&world, tried(5)).await?;
    shop.push(&["a"]).await?;
    for attempt in [1, 2] {
        for _ in 0..3 {
            let taken = shop.one().await?;
            assert_eq!((taken.attempt, taken.ready_at <= world.now()), (attempt, true));
            shop.release(&taken).await?;
        }
        assert_eq!(shop.settle(&[&shop.one().await?], nack("no")).await?, [Verdict::Nacked]);
    }
    let (_, peeked) = shop.broker.peek(&shop.topic, &shop.group, &MessageId::new("a")?, None).await?;
    assert_eq!(peeked.attempts, 2);
    Ok(())
}

async fn the_last_attempt_can_be_released(world: World) -> Result<()> {
    for settings in [tried(1), by_key()] {
        let shop = Shop::open(&world, Settings { max_attempts: 1, ..settings }).await?;
        shop.push(&["a"]).await?;
        for _ in 0..3 {
            let taken = shop.one().await?;
            assert_eq!(taken.attempt, 1);
            shop.release(&taken).await?;
        }
        assert_eq!(shop.settle(&[&shop.one().await?], nack("no")).await?, [Verdict::Buried]);
        shop.broker.delete_topic(&shop.topic).await?;
    }
    Ok(())
}

async fn a_release_keeps_what_failed_before(world: World) -> Result<()> {
    let shop = Shop::open(&world, tried(5)).await?;
    shop.push(&["a"]).await?;
    assert_eq!(shop.settle(&[&shop.one().await?], nack("smtp: 451")).await?, [Verdict::Nacked]);
    shop.release(&shop.one().await?).await?;
    let (_, peeked) = shop.broker.peek(&shop.topic, &shop.group, &MessageId::new("a")?, None).await?;
    let failures: Vec<_> = peeked.history.iter().map(|failure| (failure.attempt, failure.reason.as_deref())).collect();
    assert_eq!((peeked.attempts, failures), (1, vec![(1, Some("smtp: 451"))]));
    Ok(())
}

async fn the_first_decision_about_a_released_delivery_stands(world: World) -> Result<()> {
    let shop = Shop::open(&world, tried(5)).await?;
    shop.push(&["a"]).await?;
    let taken = shop.one().await?;
    shop.release(&taken).await?;
    shop.release(&taken).await?;
    let settled = [Verdict::Stale(StaleReason::AlreadySettled)];
    assert_eq!(shop.settle(&[&taken], Decision::Ack).await?, settled);
    let again = shop.one().await?;
    assert_eq!(shop.settle(&[&again], Decision::Ack).await?, [Verdict::Acked]);
    assert_eq!(shop.settle(&[&again], Decision::Release).await?, settled);
    Ok(())
}

async fn a_release_is_never_late(world: World) -> Result<()> {
    let shop = Shop::open(&world, tried(5)).await?;
    shop.push(&["a"]).await?;
    let taken = shop.one().await?;
    world.pass(30_000);
    world.settled().await;
    let release = vec![(taken.receipt.clone(), Decision::Release)];
    let rulings = shop.broker.settle_anywhere(&shop.topic, &shop.group, release, true).await?;
    assert_eq!(rulings[0].verdict, Verdict::Stale(StaleReason::DeadlinePassed));
    let (_, peeked) = shop.broker.peek(&shop.topic, &shop.group, &MessageId::new("a")?, None).await?;
    assert_eq!((peeked.attempts, peeked.state), (1, MessageState::Scheduled));
    Ok(())
}

async fn with_ordering_a_released_message_comes_first(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push(&["a", "b"]).await?;
    for _ in 0..3 {
        let taken = shop.one().await?;
        assert_eq!(told(std::slice::from_ref(&taken)), [("a", 1)]);
        shop.release(&taken).await?;
    }
    for id in ["a", "b"] {
        let taken = shop.one().await?;
        assert_eq!(taken.message.id.as_str(), id);
        assert_eq!(shop.settle(&[&taken], Decision::Ack).await?, [Verdict::Acked]);
    }
    Ok(())
}

/// So many messages of the key in one batch, once all of them are in memory.
async fn whole(shop: &Shop, count: usize, on_failure: OnFailure) -> Result<Vec<Delivery>> {
    let batch = shop.batch(count, on_failure).await?;
    assert_eq!(batch.len(), count, "{:?}", told(&batch));
    Ok(batch)
}

/// As a worker does that stops: it has begun the first one alone.
async fn a_released_batch_of_a_key_comes_again_in_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push(&["a", "b", "c", "d"]).await?;
    let batch = whole(&shop, 4, OnFailure::ReturnRest).await?;
    let rest: Vec<&Delivery> = batch[1..].iter().collect();
    assert_eq!(shop.settle(&rest, Decision::Release).await?, [Verdict::Released; 3]);
    assert_eq!(shop.settle(&[&batch[0]], Decision::Ack).await?, [Verdict::Acked]);
    let mut again = Vec::new();
    while again.len() < 3 {
        again.extend(shop.batch(3, OnFailure::ReturnRest).await?);
    }
    assert_eq!(told(&again), [("b", 1), ("c", 1), ("d", 1)]);
    assert_eq!(shop.settle(&again.iter().collect::<Vec<_>>(), Decision::Ack).await?, [Verdict::Acked; 3]);
    Ok(())
}

async fn rest_of_a_batch_stays_if_asked_for(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push(&["a", "b"]).await?;
    let batch = whole(&shop, 2, OnFailure::KeepRest).await?;
    shop.release(&batch[0]).await?;
    assert_eq!(shop.settle(&[&batch[1]], Decision::Ack).await?, [Verdict::Acked]);
    assert_eq!(told(&[shop.one().await?]), [("a", 1)]);
    Ok(())
}

/// The owner that dies may have handed it out: that counts.
async fn released_message_of_a_lost_owner_has_one_attempt(world: World) -> Result<()> {
    let shop = Shop::open(&world, tried(5)).await?;
    shop.push(&["a"]).await?;
    shop.release(&shop.one().await?).await?;
    shop.one().await?;
    let partition =
        shop.broker.topic(&shop.topic).await?.group_partition(dwell::model::partition::Partition(0), &shop.group);
    let mut owner = world.steal(&partition, shop.broker.member()).await?;
    owner.recover().await?;
    let peeked = world.store.reads.peek(&partition, &MessageId::new("a")?).await?;
    let found = peeked.map(|peeked| (peeked.attempts, peeked.state));
    assert_eq!(found, Some((1, MessageState::Ready)));
    Ok(())
}
