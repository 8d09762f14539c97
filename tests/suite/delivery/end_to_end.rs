//! Deliveries end to end below HTTP: a broker over a real store, with a clock that only the story moves.

use std::collections::HashSet;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, PauseFor, ReserveRequest};
use dwell::codec::DeadLetterReason;
use dwell::delivery::{Decision, Delivery, StaleReason, UnknownReason, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::{Expiry, Settings};
use dwell::store::{MessageState, Pushed};
use futures_util::future::{join, try_join_all};

use crate::support::{Running, World, kind_of, stories};

stories! {
    message_is_delivered_when_due_and_not_before, earlier_message_overtakes_the_head, the_first_decision_stands,
    duplicate_receipts_of_a_request_get_two_verdicts, deleted_topic_has_no_owner_despite_deliveries,
    text_that_is_no_receipt_is_invalid, nacked_message_is_redelivered_after_its_delay, nack_without_delay_uses_the_backoff,
    unsettled_delivery_is_redelivered, extend_moves_the_deadline, poison_message_is_dead_lettered_with_its_last_error,
    a_buried_message_is_dead_at_once_and_can_be_redriven, explain_names_why_a_message_waits,
    explain_names_what_blocks_a_due_message, prefetched_messages_return_without_a_charge, stop_returns_all_messages,
    an_expired_message_is_not_delivered, topic_time_to_live_applies_to_messages,
    expired_message_is_dead_lettered_if_configured, retry_past_the_expiry_is_dropped,
    long_poll_without_messages_returns_empty, fifty_consumers_receive_without_overlap,
    twenty_thousand_messages_are_delivered_once, stolen_partition_makes_receipts_stale,
    a_single_attempt_is_not_spent_by_an_owner_that_died, reserve_response_is_bounded_by_bytes,
    batch_is_validated_before_any_message_is_stored, auto_create_off_creates_no_topic,
    topic_deleted_by_another_broker_is_gone, new_settings_take_effect, topic_recreated_during_its_deletion_is_served,
    retry_is_not_delayed_by_a_backlog, waiting_consumer_gets_messages_of_an_expired_lease,
    repeated_push_call_is_not_a_duplicate_of_itself,
}

const ORDERS: &str = "orders";
const ALREADY_SETTLED: Verdict = Verdict::Stale(StaleReason::AlreadySettled);
const LEASE_TTL: Duration = Duration::from_secs(86_400);

fn orders() -> Result<(TopicName, GroupName)> {
    Ok((TopicName::new(ORDERS)?, GroupName::standard()))
}

fn message(id: &str, delay: Duration) -> Result<NewMessage> {
    let mut message = NewMessage::new(id.to_owned());
    message.id = Some(MessageId::new(id)?);
    message.due = Due::In(delay);
    Ok(message)
}

/// Short words for what a producer and a consumer of the topic `orders` do.
struct Shop {
    broker: Broker,
    running: Running,
}

impl Shop {
    async fn open(world: &World, settings: Settings) -> Result<Shop> {
        // Time moves in leaps here, and a lease must not lapse in one of them.
        let options = Options { topic_defaults: settings, lease_ttl: LEASE_TTL, ..Options::default() };
        let topic = orders()?.0;
        let running = Running::start(world, options)?;
        running.broker.declare(topic.clone(), running.broker.topic_defaults().clone()).await?;
        let shop = Shop { broker: running.broker.clone(), running };
        // Every partition is owned before the story begins: a member that time leaps away from would join again first.
        world.as_time_passes(shop.look()).await?;
        world
            .until("every partition is owned", async || {
                Ok(shop.broker.stats(&topic).await?.iter().all(|(_, stats)| stats.owner.is_some()))
            })
            .await?;
        Ok(shop)
    }

    /// Asks for messages without waiting for any, which makes this process a member of the group.
    async fn look(&self) -> Result<Vec<Delivery>> {
        let (topic, group) = orders()?;
        let request = ReserveRequest { max: 1, wait: Duration::ZERO, visibility_timeout: None };
        self.broker.reserve(&topic, &group, request).await
    }

    async fn push(&self, id: &str, delay_ms: u64) -> Result<()> {
        self.broker.push(&orders()?.0, message(id, Duration::from_millis(delay_ms))?).await.map(drop)
    }

    async fn reserve(&self, max: usize) -> Result<Vec<Delivery>> {
        let (topic, group) = orders()?;
        let request = ReserveRequest { max, wait: Duration::from_secs(60), visibility_timeout: None };
        self.broker.reserve(&topic, &group, request).await
    }

    /// The only message there is.
    async fn one(&self) -> Result<Delivery> {
        let mut deliveries = self.reserve(10).await?;
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    /// One of those there are.
    async fn one_of(&self, max: usize) -> Result<Delivery> {
        self.reserve(max).await?.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let (topic, group) = orders()?;
        let verdicts = self.broker.settle(&topic, &group, vec![(delivery.receipt.to_string(), decision)]).await?;
        Ok(verdicts[0])
    }

    async fn state(&self, id: &str) -> Result<Option<(MessageState, u32)>> {
        let (topic, group) = orders()?;
        match self.broker.peek(&topic, &group, &MessageId::new(id)?, None).await {
            Ok((_, peeked)) => Ok(Some((peeked.state, peeked.attempts))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn nack(delay_ms: u64, reason: &str) -> Decision {
    Decision::Nack { delay: Some(Duration::from_millis(delay_ms)), reason: Some(reason.into()) }
}

async fn message_is_delivered_when_due_and_not_before(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("close", 1_800_000).await?;
    let due_at = world.now().plus(Duration::from_millis(1_800_000));
    // Time passes in steps while the consumer waits, the last of them to one millisecond before the due time.
    let consumer = async {
        loop {
            if let Some(delivery) = shop.reserve(10).await?.pop() {
                return Ok::<_, Error>((delivery, world.now()));
            }
        }
    };
    let time = async {
        for step in [1_000_000, 799_999, 1] {
            world.pass(step);
            world.settled().await;
        }
    };
    let (delivered, ()) = join(consumer, time).await;
    let (delivery, at) = delivered?;
    assert_eq!((delivery.message.due_at, at, delivery.lateness), (due_at, due_at, Duration::ZERO));
    assert_eq!((delivery.attempt, delivery.message.envelope.payload.as_ref()), (1, b"close".as_slice()));
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Acked);
    assert_eq!(shop.state("close").await?, None);
    Ok(())
}

async fn earlier_message_overtakes_the_head(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("late", 3_600_000).await?;
    let push = async {
        world.settled().await;
        shop.push("early", 0).await
    };
    let (delivery, pushed) = join(shop.one(), push).await;
    pushed?;
    assert_eq!(delivery?.message.id.as_str(), "early");
    Ok(())
}

async fn the_first_decision_stands(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("a", 0).await?;
    let delivery = shop.one().await?;
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Acked);
    // Who did not hear it may ask again, and nothing else may be decided.
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Acked);
    assert_eq!(shop.settle(&delivery, nack(0, "no")).await?, ALREADY_SETTLED);
    assert_eq!(shop.settle(&delivery, Decision::Bury { reason: None }).await?, ALREADY_SETTLED);
    assert_eq!(shop.state("a").await?, None);
    shop.push("b", 0).await?;
    let delivery = shop.one().await?;
    assert_eq!(shop.settle(&delivery, nack(5_000, "first")).await?, Verdict::Nacked);
    assert_eq!(shop.settle(&delivery, nack(0, "second")).await?, Verdict::Nacked);
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, ALREADY_SETTLED);
    assert_eq!(shop.state("b").await?, Some((MessageState::Scheduled, 1)), "the first delay stands");
    Ok(())
}

async fn duplicate_receipts_of_a_request_get_two_verdicts(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("a", 0).await?;
    let delivery = shop.one().await?;
    let (topic, group) = orders()?;
    let ack = || (delivery.receipt.to_string(), Decision::Ack);
    assert_eq!(shop.broker.settle(&topic, &group, vec![ack(), ack()]).await?, [Verdict::Acked; 2]);
    Ok(())
}

async fn deleted_topic_has_no_owner_despite_deliveries(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("a", 0).await?;
    let delivery = shop.one().await?;
    let owned = |count| format!("dwell_leases_owned{{group=\"default\",topic=\"orders\"}} {count}");
    let says = async |count| Ok(shop.broker.metrics().text()?.lines().any(|line| line == owned(count)));
    assert!(says(8).await?);
    shop.broker.delete_topic(&orders()?.0).await?;
    // No time goes by here: a delivery that is out is waited for by nobody.
    world.until("nothing is owned", async || says(0).await).await?;
    assert_eq!(kind_of(shop.settle(&delivery, Decision::Ack).await), Some(Kind::NotFound));
    Ok(())
}

async fn text_that_is_no_receipt_is_invalid(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("a", 0).await?;
    let (topic, group) = orders()?;
    let acks = ["", "nonsense"].map(|receipt| (receipt.to_owned(), Decision::Ack)).to_vec();
    let invalid = [Verdict::Unknown(UnknownReason::Invalid); 2];
    // Before and after this process consumes for the group.
    assert_eq!(shop.broker.settle(&topic, &group, acks.clone()).await?, invalid);
    shop.one().await?;
    assert_eq!(shop.broker.settle(&topic, &group, acks).await?, invalid);
    Ok(())
}

async fn nacked_message_is_redelivered_after_its_delay(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("a", 0).await?;
    let first = shop.one().await?;
    assert_eq!(shop.settle(&first, nack(5_000, "busy")).await?, Verdict::Nacked);
    assert_eq!(shop.state("a").await?, Some((MessageState::Scheduled, 1)));
    world.pass(5_000);
    let second = shop.one().await?;
    assert_eq!((second.attempt, second.lateness), (2, Duration::ZERO));
    assert_ne!(second.receipt, first.receipt);
    assert_eq!(shop.settle(&first, Decision::Ack).await?, ALREADY_SETTLED);
    assert_eq!(shop.settle(&second, Decision::Ack).await?, Verdict::Acked);
    Ok(())
}

async fn nack_without_delay_uses_the_backoff(world: World) -> Result<()> {
    let steps = [1_000, 60_000].map(|ms| LadderStep(Duration::from_millis(ms))).to_vec();
    let settings = Settings { backoff: Backoff::Ladder { steps }, ..Settings::default() };
    let shop = Shop::open(&world, settings).await?;
    shop.push("a", 0).await?;
    for (attempt, delay_ms) in [(1, 1_000), (2, 60_000), (3, 60_000)] {
        let delivery = shop.one().await?;
        assert_eq!(delivery.attempt, attempt);
        shop.settle(&delivery, Decision::Nack { delay: None, reason: None }).await?;
        let (_, peeked) = shop.broker.peek(&orders()?.0, &orders()?.1, &delivery.message.id, None).await?;
        assert_eq!(peeked.next_at, Some(world.now().plus(Duration::from_millis(delay_ms))));
        world.pass(delay_ms);
    }
    Ok(())
}

fn impatient() -> Settings {
    let backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::ZERO)] };
    Settings { visibility_timeout: Duration::from_secs(30), backoff, ..Settings::default() }
}

async fn unsettled_delivery_is_redelivered(world: World) -> Result<()> {
    let shop = Shop::open(&world, impatient()).await?;
    shop.push("a", 0).await?;
    let first = shop.one().await?;
    assert_eq!(first.deadline, world.now().plus(Duration::from_secs(30)));
    world.pass(29_999);
    assert_eq!(shop.state("a").await?, Some((MessageState::InFlight, 0)));
    world.pass(1);
    let second = shop.one().await?;
    assert_eq!(second.attempt, 2);
    assert_eq!(shop.settle(&first, Decision::Ack).await?, Verdict::Stale(StaleReason::DeadlinePassed));
    assert_eq!(shop.settle(&second, Decision::Ack).await?, Verdict::Acked);
    Ok(())
}

async fn extend_moves_the_deadline(world: World) -> Result<()> {
    let shop = Shop::open(&world, impatient()).await?;
    let (topic, group) = orders()?;
    shop.push("a", 0).await?;
    let delivery = shop.one().await?;
    world.pass(20_000);
    let receipts = [delivery.receipt.to_string()];
    let extended = shop.broker.extend(&topic, &group, &receipts, Duration::from_secs(60)).await?;
    assert_eq!(extended, [Verdict::Extended(world.now().plus(Duration::from_secs(60)))]);
    world.pass(59_000);
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Acked);
    let extended = shop.broker.extend(&topic, &group, &receipts, Duration::from_secs(60)).await?;
    // Nobody has asked for a minute, so this process may have left the group.
    assert!(matches!(extended[..], [Verdict::Stale(_)]), "{extended:?}");
    Ok(())
}

async fn poison_message_is_dead_lettered_with_its_last_error(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings { max_attempts: 3, ..impatient() }).await?;
    let (topic, group) = orders()?;
    shop.push("poison", 0).await?;
    for attempt in 1..=2 {
        let delivery = shop.one().await?;
        assert_eq!(delivery.attempt, attempt);
        assert_eq!(shop.settle(&delivery, nack(0, "cannot parse")).await?, Verdict::Nacked);
    }
    assert_eq!(shop.settle(&shop.one().await?, nack(0, "still cannot parse")).await?, Verdict::Buried);
    let dead = shop.broker.dead(&topic, &group, None, 10).await?.dead;
    assert_eq!(dead.len(), 1);
    let record = &dead[0].1.record;
    assert_eq!((record.reason, record.attempts), (DeadLetterReason::MaxAttempts, 3));
    assert_eq!(record.last_error, Some("still cannot parse".into()));
    Ok(())
}

async fn a_buried_message_is_dead_at_once_and_can_be_redriven(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let (topic, group) = orders()?;
    shop.push("a", 0).await?;
    let decision = Decision::Bury { reason: Some("no such customer".into()) };
    assert_eq!(shop.settle(&shop.one().await?, decision).await?, Verdict::Buried);
    assert_eq!(shop.broker.redrive(&topic, &group, None).await?, 1);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a", 1));
    assert_eq!(shop.settle(&again, Decision::Bury { reason: None }).await?, Verdict::Buried);
    assert_eq!(shop.broker.purge(&topic, &group, Some(&[MessageId::new("a")?])).await?, 1);
    assert_eq!(shop.state("a").await?, None);
    Ok(())
}

async fn explain_names_why_a_message_waits(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    let (topic, group) = orders()?;
    let why = async |id: &str| -> Result<(&'static str, String)> {
        let mut explanation = shop.broker.explain(&topic, &MessageId::new(id)?, None).await?;
        let (of, reason) = explanation.groups.remove(0);
        assert_eq!((of, explanation.groups.len(), explanation.buffered), (group.clone(), 0, false));
        let error = reason.error.map_or(String::new(), |error| format!(": {error}"));
        Ok((reason.name, format!("{}{error}", reason.detail)))
    };
    shop.push("later", 60_000).await?;
    let due_at = world.now().plus(Duration::from_millis(60_000));
    assert_eq!(why("later").await?, ("scheduled", format!("due at {due_at}")));
    assert_eq!(why("never").await?.0, "unknown");
    shop.push("a", 0).await?;
    shop.push("b", 0).await?;
    let taken = shop.one_of(1).await?;
    let out = taken.message.id.as_str();
    let until = world.now().plus(Duration::from_secs(30));
    assert_eq!(why(out).await?, ("in_flight", format!("a consumer has it as attempt 1, until {until}")));
    let other = if out == "a" { "b" } else { "a" };
    assert!(matches!(why(other).await?.0, "prefetched" | "behind_others"));
    shop.settle(&taken, nack(5_000, "the bank is closed")).await?;
    let (reason, detail) = why(out).await?;
    assert!(reason == "retrying" && detail.starts_with("1 attempt failed, the last at "), "{detail}");
    let taken = shop.one_of(1).await?;
    shop.settle(&taken, Decision::Bury { reason: Some("no such customer".into()) }).await?;
    let (reason, detail) = why(other).await?;
    assert!(reason == "dead" && detail.ends_with("after 1 attempt, reason buried: no such customer"), "{detail}");
    shop.broker.pause_group(&topic, &group, PauseFor::Ever).await?;
    world.pass(60_000);
    world
        .until("the pause is why", async || {
            Ok(why("later").await? == ("paused", "the group is paused until it is resumed".to_owned()))
        })
        .await?;
    let gone = TopicName::new("gone")?;
    assert_eq!(kind_of(shop.broker.explain(&gone, &MessageId::new("a")?, None).await), Some(Kind::NotFound));
    Ok(())
}

async fn explain_names_what_blocks_a_due_message(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    let (topic, group) = orders()?;
    let why = async |id: &str| -> Result<(&'static str, String)> {
        let mut explanation = shop.broker.explain(&topic, &MessageId::new(id)?, None).await?;
        let reason = explanation.groups.remove(0).1;
        Ok((reason.name, reason.detail))
    };
    shop.push("a", 0).await?;
    let limit = |max_in_flight, rate| GroupRequest { max_in_flight, rate, ..GroupRequest::default() };
    shop.broker.create_group(&topic, &group, limit(Some(1), None)).await?;
    let taken = shop.one_of(1).await?;
    shop.push("b", 0).await?;
    world.until("the limit is reached", async || Ok(why("b").await?.0 == "at_max_in_flight")).await?;
    shop.settle(&taken, Decision::Ack).await?;
    world.pass(1_500);
    world
        .until("nobody asks", async || {
            let (name, detail) = why("b").await?;
            Ok(name == "no_consumer" && (detail.contains("for messages for ") || detail.contains("owns")))
        })
        .await?;
    shop.broker.create_group(&topic, &group, limit(Some(0), Some(0.001))).await?;
    shop.push("c", 0).await?;
    // A first message may go out at once.
    let consume = async {
        loop {
            shop.one_of(1).await?;
        }
        #[expect(unreachable_code, reason = "says what the errors are")]
        Ok::<(), Error>(())
    };
    let is_limited = async || Ok(why("b").await?.0 == "rate_limited" || why("c").await?.0 == "rate_limited");
    tokio::select! {
        consumed = consume => consumed,
        limited = world.until("the rate is why", is_limited) => limited,
    }
}

async fn prefetched_messages_return_without_a_charge(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    for id in ["a", "b", "c"] {
        shop.push(id, 0).await?;
    }
    let taken = shop.reserve(1).await?;
    // The first message may be delivered before the owner has heard of the last.
    let (topic, group) = orders()?;
    let group_partition = shop.broker.topic(&topic).await?.group_partition(Partition(0), &group);
    let in_store = async || {
        let peeked = world.store.reads.peek(&group_partition, &MessageId::new("c")?).await?;
        Ok(peeked.map(|peeked| (peeked.state, peeked.attempts)))
    };
    world.until("the last is prefetched", async || Ok(in_store().await? == Some((MessageState::InFlight, 0)))).await?;
    assert_eq!(shop.state("c").await?, Some((MessageState::Ready, 0)), "no consumer has it");
    // More than a second without a consumer.
    world.pass(1_500);
    world.until("the prefetch is given back", async || Ok(in_store().await? == Some((MessageState::Ready, 0)))).await?;
    assert_eq!(shop.state(taken[0].message.id.as_str()).await?, Some((MessageState::InFlight, 0)));
    assert!(shop.reserve(10).await?.iter().all(|delivery| delivery.attempt == 1));
    Ok(())
}

async fn stop_returns_all_messages(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    for id in ["a", "b", "c"] {
        shop.push(id, 0).await?;
    }
    let taken = shop.reserve(1).await?;
    // The stop waits for the delivery that is out, and lets it be acked.
    let ack = async {
        world.settled().await;
        shop.settle(&taken[0], Decision::Ack).await
    };
    let ((), verdict) = join(shop.running.stop(), ack).await;
    assert_eq!(verdict?, Verdict::Acked);
    assert_eq!(kind_of(shop.reserve(1).await), Some(Kind::Unavailable));
    // Another process has them at once, each for the first time.
    let next = Running::start(&world, Options { lease_ttl: LEASE_TTL, ..Options::default() })?;
    let request = ReserveRequest { max: 10, wait: Duration::from_secs(60), visibility_timeout: None };
    let rest = next.broker.reserve(&orders()?.0, &orders()?.1, request).await?;
    assert_eq!(
        rest.iter().map(|delivery| (delivery.message.id.as_str(), delivery.attempt)).collect::<Vec<_>>(),
        [("b", 1), ("c", 1)]
    );
    Ok(())
}

async fn an_expired_message_is_not_delivered(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let mut short = message("short", Duration::from_secs(1))?;
    short.ttl = Some(Duration::from_secs(5));
    shop.broker.push(&orders()?.0, short).await?;
    shop.push("long", 1_000).await?;
    world.pass(6_000);
    assert_eq!(shop.one().await?.message.id.as_str(), "long");
    world.until("the expired message is gone", async || Ok(shop.state("short").await?.is_none())).await
}

async fn topic_time_to_live_applies_to_messages(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ttl: Duration::from_secs(5), ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    shop.push("short", 1_000).await?;
    let mut long = message("long", Duration::from_secs(1))?;
    long.ttl = Some(Duration::from_secs(3_600));
    shop.broker.push(&orders()?.0, long).await?;
    // The last moment is in time: nothing was waiting, so only now somebody asks.
    world.pass(5_999);
    assert!(shop.state("short").await?.is_some());
    world.pass(1);
    assert_eq!(shop.one().await?.message.id.as_str(), "long");
    world.until("the expired message is gone", async || Ok(shop.state("short").await?.is_none())).await?;
    // A topic that changes its mind means what is pushed from then on.
    let settings = Settings { ttl: Duration::ZERO, ..shop.broker.topic(&orders()?.0).await?.settings.clone() };
    shop.push("before", 0).await?;
    shop.broker.declare(orders()?.0, settings).await?;
    shop.push("after", 0).await?;
    world.pass(3_600_000);
    assert_eq!(shop.one().await?.message.id.as_str(), "after");
    Ok(())
}

async fn expired_message_is_dead_lettered_if_configured(world: World) -> Result<()> {
    let (partitions, ttl) = (std::num::NonZeroU16::MIN, Duration::from_secs(5));
    let settings = Settings { partitions, ttl, on_expiry: Expiry::Bury, ..Settings::default() };
    let shop = Shop::open(&world, settings).await?;
    shop.push("late", 0).await?;
    world.pass(5_000);
    shop.push("next", 0).await?;
    assert_eq!(shop.one().await?.message.id.as_str(), "next");
    let dead = async || -> Result<_> {
        let (topic, group) = orders()?;
        Ok(shop.broker.dead(&topic, &group, None, 10).await?.dead.pop().map(|(_, dead)| (dead.id, dead.record)))
    };
    world.until("it is dead", async || Ok(dead().await?.is_some())).await?;
    let (id, record) = dead().await?.ok_or_else(|| Error::bug("nothing is dead"))?;
    assert_eq!((id.as_str(), record.reason, record.attempts), ("late", DeadLetterReason::Expired, 0));
    assert!(shop.broker.metrics().text()?.contains(r#"outcome="expired",topic="orders"} 1"#));
    Ok(())
}

async fn retry_past_the_expiry_is_dropped(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ttl: Duration::from_secs(5), ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    shop.push("once", 0).await?;
    let first = shop.one().await?;
    assert_eq!(shop.settle(&first, nack(6_000, "busy")).await?, Verdict::Nacked);
    shop.push("other", 5_500).await?;
    world.pass(6_000);
    assert_eq!(shop.one().await?.message.id.as_str(), "other");
    let gone = world.until("it is gone", async || {
        assert!(shop.look().await?.is_empty());
        Ok(shop.state("once").await?.is_none())
    });
    world.as_time_passes(gone).await
}

async fn long_poll_without_messages_returns_empty(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    shop.push("later", 3_600_000).await?;
    let time = async {
        world.settled().await;
        world.pass(60_000);
    };
    let (deliveries, ()) = join(shop.reserve(1), time).await;
    assert_eq!(deliveries?, []);
    Ok(())
}

async fn fifty_consumers_receive_without_overlap(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let ids: Vec<String> = (0..1_000).map(|n| format!("m{n}")).collect();
    let batch = ids.iter().map(|id| message(id, Duration::ZERO)).collect::<Result<_>>()?;
    shop.broker.push_batch(&orders()?.0, batch).await?;
    let consumer = async || {
        let mut got = Vec::new();
        for _ in 0..20 {
            let delivery = shop.reserve(1).await?.pop().ok_or_else(|| Error::bug("a consumer got nothing"))?;
            assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Acked);
            got.push(delivery.message.id);
        }
        Ok::<_, Error>(got)
    };
    let got = try_join_all((0..50).map(|_| consumer())).await?;
    let distinct: HashSet<_> = got.into_iter().flatten().collect();
    assert_eq!(distinct.len(), ids.len());
    Ok(())
}

async fn twenty_thousand_messages_are_delivered_once(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let (topic, group) = orders()?;
    let count = 20_000;
    for page in 0..count / 1_000 {
        // Due at different times within ten minutes, in no order.
        let delay = |n: u64| Duration::from_millis(n.wrapping_mul(7_919) % 600_000);
        let batch = (page * 1_000..(page + 1) * 1_000).map(|n| message(&format!("m{n}"), delay(n)));
        for outcome in shop.broker.push_batch(&topic, batch.collect::<Result<_>>()?).await? {
            outcome?;
        }
    }
    let mut seen = HashSet::new();
    while (seen.len() as u64) < count {
        let deliveries = shop.reserve(1_000).await?;
        if deliveries.is_empty() {
            continue;
        }
        let now = world.now();
        assert!(deliveries.iter().all(|delivery| delivery.message.due_at <= now), "one came early");
        let acks = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), Decision::Ack)).collect();
        assert!(shop.broker.settle(&topic, &group, acks).await?.iter().all(|verdict| *verdict == Verdict::Acked));
        for delivery in deliveries {
            assert!(seen.insert(delivery.message.id), "one came twice");
        }
        world.pass(60_000);
    }
    assert_eq!(shop.running.messages(&topic).await?, 0);
    Ok(())
}

async fn stolen_partition_makes_receipts_stale(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    shop.push("a", 0).await?;
    let delivery = shop.one().await?;
    // The lease lapses, and someone else takes the partition and what is in flight with it.
    let (topic, group) = orders()?;
    let group_partition = shop.broker.topic(&topic).await?.group_partition(delivery.partition, &group);
    world.steal(&group_partition, shop.broker.member()).await?.recover().await?;
    assert_eq!(shop.settle(&delivery, Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    // What was lost is acquired again after a pause.
    let again = world.as_time_passes(shop.one()).await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a", 2));
    Ok(())
}

async fn a_single_attempt_is_not_spent_by_an_owner_that_died(world: World) -> Result<()> {
    let partitions = std::num::NonZeroU16::MIN;
    let shop = Shop::open(&world, Settings { partitions, max_attempts: 1, ..Settings::default() }).await?;
    for id in ["a", "b", "c"] {
        shop.push(id, 0).await?;
    }
    let taken = shop.reserve(1).await?;
    let group_partition = shop.broker.topic(&orders()?.0).await?.group_partition(taken[0].partition, &orders()?.1);
    world.steal(&group_partition, shop.broker.member()).await?.recover().await?;
    let mut again = HashSet::new();
    while again.len() < 3 {
        again.extend(world.as_time_passes(shop.reserve(10)).await?.into_iter().map(|delivery| delivery.message.id));
    }
    Ok(())
}

async fn reserve_response_is_bounded_by_bytes(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    for n in 0..20 {
        let mut large = message(&format!("m{n}"), Duration::ZERO)?;
        large.payload = vec![b'x'; 1024 * 1024].into();
        shop.broker.push(&orders()?.0, large).await?;
    }
    let mut got = 0;
    while got < 20 {
        let deliveries = shop.reserve(1_000).await?;
        assert!(deliveries.len() <= 9, "{} MiB in one answer", deliveries.len());
        got += deliveries.len();
    }
    Ok(())
}

async fn batch_is_validated_before_any_message_is_stored(world: World) -> Result<()> {
    let running = Running::start(&world, Options::default())?;
    let mut wrong = message("b", Duration::ZERO)?;
    wrong.max_attempts = Some(1_001);
    let refused = running.broker.push_batch(&orders()?.0, vec![message("a", Duration::ZERO)?, wrong]).await;
    let error = refused.err().ok_or_else(|| Error::bug("a wrong batch was accepted"))?;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.detail().starts_with("messages[1]: `max_attempts`"), "{error}");
    assert_eq!(running.broker.topics().await?, []);
    Ok(())
}

async fn auto_create_off_creates_no_topic(world: World) -> Result<()> {
    let running = Running::start(&world, Options { auto_create: false, ..Options::default() })?;
    let pushed = running.broker.push(&orders()?.0, message("a", Duration::ZERO)?).await;
    assert_eq!(kind_of(pushed), Some(Kind::NotFound));
    assert_eq!(running.broker.topics().await?, []);
    Ok(())
}

async fn topic_deleted_by_another_broker_is_gone(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let (topic, _) = orders()?;
    shop.push("a", 3_600_000).await?;
    let elsewhere = Running::start(&world, Options::default())?;
    elsewhere.broker.delete_topic(&topic).await?;
    // The push finds out, and makes another topic of the same name.
    shop.push("b", 0).await?;
    assert_eq!(shop.one().await?.message.id.as_str(), "b");
    assert_eq!(shop.state("a").await?, None);
    Ok(())
}

async fn new_settings_take_effect(world: World) -> Result<()> {
    let shop = Shop::open(&world, impatient()).await?;
    let (topic, _) = orders()?;
    shop.push("a", 0).await?;
    let first = shop.one().await?;
    shop.settle(&first, nack(0, "no")).await?;
    shop.broker.declare(topic.clone(), Settings { max_attempts: 2, ..impatient() }).await?;
    let more = Settings { partitions: std::num::NonZeroU16::MIN, ..impatient() };
    assert_eq!(kind_of(shop.broker.declare(topic, more).await), Some(Kind::Conflict));
    // A renewal brings the news.
    for attempt in 2..10 {
        world.time.advance(LEASE_TTL / 2);
        // Whoever is idle for so long may have left the group, and joins again after pauses.
        let delivery = world.as_time_passes(shop.one()).await?;
        assert_eq!(delivery.attempt, attempt);
        if shop.settle(&delivery, nack(0, "no")).await? == Verdict::Buried {
            return Ok(());
        }
    }
    Err(Error::bug("the new limit of attempts never took effect"))
}

async fn topic_recreated_during_its_deletion_is_served(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let (topic, _) = orders()?;
    let batch = async |from: u64| {
        let later = Duration::from_secs(3_600);
        let batch = (from..from + 1_000).map(|n| message(&format!("old{n}"), later)).collect::<Result<_>>()?;
        shop.broker.push_batch(&topic, batch).await
    };
    for page in 0..5 {
        batch(page * 1_000).await?;
    }
    // A producer and a consumer go on while the old messages are being removed.
    let goes_on = async {
        while shop.broker.topic(&topic).await.is_ok() {
            tokio::task::yield_now().await;
        }
        shop.push("new", 0).await?;
        shop.one().await
    };
    let (deleted, delivery) = join(shop.broker.delete_topic(&topic), goes_on).await;
    deleted?;
    world.settled().await;
    assert_eq!(shop.settle(&delivery?, Decision::Ack).await?, Verdict::Acked);
    shop.push("next", 0).await?;
    assert_eq!(shop.one().await?.message.id.as_str(), "next");
    Ok(())
}

async fn retry_is_not_delayed_by_a_backlog(world: World) -> Result<()> {
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, one).await?;
    shop.push("again", 0).await?;
    let first = shop.one().await?;
    shop.settle(&first, nack(0, "busy")).await?;
    world.pass(1);
    let backlog = (0..1_000).map(|n| message(&format!("m{n:03}"), Duration::ZERO)).collect::<Result<_>>()?;
    shop.broker.push_batch(&orders()?.0, backlog).await?;
    for _ in 0..200 {
        let delivery = shop.reserve(1).await?.pop().ok_or_else(|| Error::bug("a consumer got nothing"))?;
        if delivery.message.id.as_str() == "again" {
            assert_eq!(delivery.attempt, 2);
            return Ok(());
        }
        shop.settle(&delivery, Decision::Ack).await?;
    }
    Err(Error::bug("200 later messages came before a retry that was due before them all"))
}

async fn waiting_consumer_gets_messages_of_an_expired_lease(world: World) -> Result<()> {
    let lease_ttl = Duration::from_millis(500);
    let one = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let running = Running::start(&world, Options { topic_defaults: one, lease_ttl, ..Options::default() })?;
    let shop = Shop { broker: running.broker.clone(), running };
    shop.push("a", 0).await?;
    shop.push("b", 0).await?;
    assert_eq!(shop.reserve(1).await?.len(), 1);
    // The lease lapses while the other message is in memory, and is resumed while a consumer waits.
    let time = async {
        world.settled().await;
        world.pass(200);
        world.settled().await;
    };
    world.pass(499);
    let waited = tokio::time::timeout(Duration::from_secs(5), join(shop.reserve(1), time)).await;
    let (deliveries, ()) = waited.map_err(|_| Error::bug("the consumer waits in vain"))?;
    assert_eq!(deliveries?.len(), 1);
    Ok(())
}

async fn repeated_push_call_is_not_a_duplicate_of_itself(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let (topic, _) = orders()?;
    let offer = shop.broker.offer(NewMessage::new("a"));
    let id = offer.id().clone();
    let outcome = shop.broker.push_offer(&topic, offer).await?;
    assert_eq!((&outcome.id, outcome.pushed), (&id, Pushed::Stored));
    assert_eq!(shop.running.messages(&topic).await?, 1);
    assert_eq!(shop.broker.push(&topic, NewMessage::new("a").id(id)).await?.pushed, Pushed::Duplicate);
    assert_eq!(shop.running.messages(&topic).await?, 1);
    Ok(())
}
