//! Settlements that come after their deliveries ended, below HTTP: they count while the message waits and nobody has had
//! it since.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, StaleReason, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Due, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::time::Timestamp;
use dwell::model::topic::{Ordering, Settings};
use dwell::store::MessageState;

use crate::support::{Running, World, stories};

stories! {
    a_late_ack_counts_while_the_message_waits, a_late_ack_is_counted_once, a_repeated_late_ack_is_answered_the_same,
    a_late_ack_counts_while_the_message_is_ready_in_memory, a_late_ack_counts_after_a_nack,
    a_late_ack_is_stale_once_another_consumer_had_the_message, a_late_ack_is_stale_for_another_message_of_the_id,
    late_ack_of_a_dead_letter_is_stale, a_late_extend_hides_the_message_again, a_late_nack_sets_the_due_time,
    late_bury_is_stale, a_late_ack_counts_after_a_takeover, late_ack_counts_without_an_owner,
    with_ordering_a_late_ack_frees_the_key, with_ordering_a_late_extend_holds_the_key,
    a_receipt_twice_in_a_late_request_is_answered_twice,
}

const LEASE_TTL: Duration = Duration::from_secs(86_400);
const PASSED: Verdict = Verdict::Stale(StaleReason::DeadlinePassed);

/// A visibility timeout of 30 s, and a backoff of 5 s.
fn settings() -> Settings {
    let backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(5))] };
    let visibility_timeout = Duration::from_secs(30);
    Settings { partitions: NonZeroU16::MIN, visibility_timeout, backoff, ..Settings::default() }
}

fn by_key() -> Settings {
    Settings { ordering: Ordering::Key, ..settings() }
}

struct Shop<'a> {
    world: &'a World,
    broker: Broker,
    running: Running,
    topic: TopicName,
    group: GroupName,
}

impl<'a> Shop<'a> {
    async fn open(world: &'a World, settings: Settings) -> Result<Shop<'a>> {
        let options = Options { topic_defaults: settings, lease_ttl: LEASE_TTL, ..Options::default() };
        let running = Running::start(world, options)?;
        let (broker, topic) = (running.broker.clone(), TopicName::new("orders")?);
        broker.declare(topic.clone(), broker.topic_defaults().clone()).await?;
        let shop = Shop { world, broker, running, topic, group: GroupName::standard() };
        world.as_time_passes(shop.reserve(1, Duration::ZERO)).await?;
        let owned = async || Ok(shop.broker.stats(&shop.topic).await?.iter().all(|(_, stats)| stats.owner.is_some()));
        world.until("the partition is owned", owned).await?;
        Ok(shop)
    }

    async fn push(&self, id: &str, delay_ms: u64) -> Result<()> {
        let mut message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?);
        message.due = Due::In(Duration::from_millis(delay_ms));
        message.key = Some(Key::new("k")?);
        self.broker.push(&self.topic, message).await.map(drop)
    }

    async fn reserve(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker.reserve(&self.topic, &self.group, request).await
    }

    async fn one(&self) -> Result<Delivery> {
        let mut taken = self.reserve(1, Duration::from_secs(60)).await?;
        taken.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision, late: bool) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker.settle_anywhere(&self.topic, &self.group, decisions, late).await?[0].verdict)
    }

    async fn late_ack(&self, delivery: &Delivery) -> Result<Verdict> {
        self.settle(delivery, Decision::Ack, true).await
    }

    async fn late_extend(&self, delivery: &Delivery, timeout: Duration) -> Result<Verdict> {
        let receipts = vec![delivery.receipt.to_string()];
        Ok(self.broker.extend_anywhere(&self.topic, &self.group, receipts, timeout, true).await?[0].verdict)
    }

    async fn state(&self, id: &str) -> Result<Option<(MessageState, u32)>> {
        match self.broker.peek(&self.topic, &self.group, &MessageId::new(id)?, Some(&Key::new("k")?)).await {
            Ok((_, peeked)) => Ok(Some((peeked.state, peeked.attempts))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Pushes a message, takes it, and lets its deadline pass. It is due again after 5 s.
    async fn too_late(&self, id: &str) -> Result<Delivery> {
        self.push(id, 0).await?;
        let taken = self.one().await?;
        self.world.pass(30_000);
        let waits = async || Ok(self.state(id).await? == Some((MessageState::Scheduled, 1)));
        self.world.until("the deadline has passed", waits).await?;
        Ok(taken)
    }

    async fn is_empty(&self) -> Result<()> {
        assert_eq!(self.running.messages(&self.topic).await?, 0);
        self.world.pass(60_000);
        let came = self.world.as_time_passes(self.reserve(10, Duration::ZERO)).await?;
        assert!(came.is_empty(), "{came:?}");
        Ok(())
    }
}

async fn a_late_ack_counts_while_the_message_waits(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    assert_eq!(shop.settle(&taken, Decision::Ack, false).await?, PASSED, "without being asked for");
    assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn a_late_ack_is_counted_once(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let counted = |outcome: &str| -> Result<bool> {
        let series = format!("dwell_settled_total{{group=\"default\",outcome=\"{outcome}\",topic=\"orders\"}} 1");
        Ok(shop.broker.scrape()?.lines().any(|line| line == series))
    };
    let (first, second) = (shop.too_late("a").await?, shop.too_late("b").await?);
    assert_eq!(shop.late_ack(&first).await?, Verdict::Acked);
    assert!(counted("acked")? && !counted("stale")?, "{}", shop.broker.scrape()?);
    assert_eq!(shop.settle(&second, Decision::Ack, false).await?, PASSED);
    assert!(counted("acked")? && counted("stale")?, "{}", shop.broker.scrape()?);
    assert_eq!(shop.settle(&second, Decision::Bury { reason: None }, true).await?, PASSED);
    assert!(!counted("stale")?, "a refused late settlement is stale: {}", shop.broker.scrape()?);
    Ok(())
}

async fn a_repeated_late_ack_is_answered_the_same(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    for _ in 0..3 {
        assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked);
    }
    let acked = "dwell_settled_total{group=\"default\",outcome=\"acked\",topic=\"orders\"} 1";
    let scraped = shop.broker.scrape()?;
    assert!(scraped.lines().any(|line| line == acked), "a repeat is not counted: {scraped}");
    assert_eq!(shop.late_extend(&taken, Duration::from_secs(9)).await?, PASSED);
    shop.push("a", 0).await?;
    assert_eq!(shop.late_ack(&taken).await?, PASSED, "the next message of the id");
    assert_eq!(shop.state("a").await?.map(|(_, attempts)| attempts), Some(0));
    Ok(())
}

async fn a_late_ack_counts_while_the_message_is_ready_in_memory(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    shop.push("b", 0).await?;
    world.pass(6_000);
    // The owner reserves both, and the consumer gets one.
    let other = shop.one().await?;
    assert_eq!(other.message.id.as_str(), "b");
    let reserved = async || Ok(shop.state("a").await?.is_some_and(|(state, _)| state != MessageState::Scheduled));
    world.until("it is ready", reserved).await?;
    assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked);
    assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked, "and again");
    assert_eq!(shop.settle(&other, Decision::Ack, false).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn a_late_ack_counts_after_a_nack(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    shop.push("a", 0).await?;
    let taken = shop.one().await?;
    let nack = Decision::Nack { delay: None, reason: None };
    assert_eq!(shop.settle(&taken, nack, true).await?, Verdict::Nacked);
    assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn a_late_ack_is_stale_once_another_consumer_had_the_message(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let first = shop.too_late("a").await?;
    world.pass(5_000);
    let second = shop.one().await?;
    assert_eq!((second.attempt, shop.late_ack(&first).await?), (2, PASSED));
    world.pass(30_000);
    let waits = async || Ok(shop.state("a").await? == Some((MessageState::Scheduled, 2)));
    world.until("it waits again", waits).await?;
    assert_eq!(shop.late_ack(&first).await?, PASSED);
    assert_eq!(shop.late_extend(&first, Duration::from_secs(9)).await?, PASSED);
    assert_eq!(shop.late_ack(&second).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn a_late_ack_is_stale_for_another_message_of_the_id(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    shop.broker.cancel(&shop.topic, &MessageId::new("a")?, Some(&Key::new("k")?)).await?;
    shop.push("a", 0).await?;
    let again = shop.one().await?;
    world.pass(30_000);
    let waits = async || Ok(shop.state("a").await? == Some((MessageState::Scheduled, 1)));
    world.until("it waits again", waits).await?;
    assert_eq!(shop.late_ack(&taken).await?, PASSED);
    assert_eq!(shop.late_ack(&again).await?, Verdict::Acked);
    Ok(())
}

async fn late_ack_of_a_dead_letter_is_stale(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings { max_attempts: 1, ..settings() }).await?;
    shop.push("a", 0).await?;
    let taken = shop.one().await?;
    world.pass(30_000);
    let dead = async || Ok(matches!(shop.state("a").await?, Some((MessageState::Dead { .. }, _))));
    world.until("it is dead", dead).await?;
    assert_eq!(shop.late_ack(&taken).await?, PASSED);
    Ok(())
}

async fn a_late_extend_hides_the_message_again(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    let deadline = world.now().plus(Duration::from_secs(60));
    assert_eq!(shop.late_extend(&taken, Duration::from_secs(60)).await?, Verdict::Extended(deadline));
    world.pass(59_000);
    let none = world.as_time_passes(shop.reserve(1, Duration::ZERO)).await?;
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(shop.late_ack(&taken).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn a_late_nack_sets_the_due_time(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    let nack = Decision::Nack { delay: Some(Duration::ZERO), reason: Some("busy".into()) };
    assert_eq!(shop.settle(&taken, nack, true).await?, Verdict::Nacked);
    let again = shop.one().await?;
    assert_eq!(again.attempt, 2);
    assert_eq!(shop.settle(&again, Decision::Ack, false).await?, Verdict::Acked);
    Ok(())
}

async fn late_bury_is_stale(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    assert_eq!(shop.settle(&taken, Decision::Bury { reason: None }, true).await?, PASSED);
    assert_eq!(shop.state("a").await?, Some((MessageState::Scheduled, 1)));
    Ok(())
}

async fn a_late_ack_counts_after_a_takeover(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    shop.push("a", 0).await?;
    shop.push("b", 0).await?;
    let (first, second) = (shop.one().await?, shop.one().await?);
    let partition = shop.broker.topic(&shop.topic).await?.group_partition(first.partition, &shop.group);
    let mut owner = world.steal(&partition, shop.broker.member()).await?;
    while owner.recover().await?.more {}
    assert_eq!(world.as_time_passes(shop.late_ack(&first)).await?, Verdict::Acked);
    let hidden = world.as_time_passes(shop.late_extend(&second, Duration::from_secs(60))).await?;
    assert!(matches!(hidden, Verdict::Extended(_)), "{hidden:?}");
    assert_eq!(shop.state("a").await?, None);
    let waits = async || Ok(shop.state("b").await? == Some((MessageState::Scheduled, 1)));
    world.until("it waits", waits).await
}

async fn late_ack_counts_without_an_owner(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let first = shop.too_late("a").await?;
    shop.push("b", 0).await?;
    let second = shop.one().await?;
    let partition = shop.broker.topic(&shop.topic).await?.group_partition(first.partition, &shop.group);
    world.steal(&partition, shop.broker.member()).await?.release(Timestamp::ZERO).await?;
    // One waits, and the other is in the reservation of an epoch that is over.
    assert_eq!(world.as_time_passes(shop.late_ack(&first)).await?, Verdict::Acked);
    assert_eq!(world.as_time_passes(shop.late_ack(&second)).await?, Verdict::Acked);
    assert_eq!((shop.state("a").await?, shop.state("b").await?), (None, None));
    Ok(())
}

async fn with_ordering_a_late_ack_frees_the_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    for id in ["a", "b"] {
        shop.push(id, 0).await?;
    }
    let first = shop.one().await?;
    world.pass(30_000);
    world.settled().await;
    assert_eq!(shop.late_ack(&first).await?, Verdict::Acked);
    let second = shop.one().await?;
    assert_eq!((second.message.id.as_str(), second.attempt), ("b", 1));
    assert_eq!(shop.late_ack(&second).await?, Verdict::Acked);
    shop.is_empty().await
}

async fn with_ordering_a_late_extend_holds_the_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    for id in ["a", "b"] {
        shop.push(id, 0).await?;
    }
    let first = shop.one().await?;
    world.pass(30_000);
    world.settled().await;
    assert!(matches!(shop.late_extend(&first, Duration::from_secs(60)).await?, Verdict::Extended(_)));
    world.pass(59_000);
    let none = world.as_time_passes(shop.reserve(2, Duration::ZERO)).await?;
    assert!(none.is_empty(), "{none:?}");
    world.pass(1_000);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a", 2));
    assert!(matches!(shop.late_ack(&first).await?, Verdict::Stale(_)));
    assert_eq!(shop.late_ack(&again).await?, Verdict::Acked);
    assert_eq!(shop.one().await?.message.id.as_str(), "b");
    Ok(())
}

async fn a_receipt_twice_in_a_late_request_is_answered_twice(world: World) -> Result<()> {
    let shop = Shop::open(&world, settings()).await?;
    let taken = shop.too_late("a").await?;
    let decisions = vec![(taken.receipt.to_string(), Decision::Ack); 2];
    let rulings = shop.broker.settle_anywhere(&shop.topic, &shop.group, decisions, true).await?;
    assert!(rulings.iter().all(|ruling| ruling.verdict == Verdict::Acked), "{rulings:?}");
    shop.is_empty().await
}
