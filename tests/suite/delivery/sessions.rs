//! Consumers that stay, below HTTP: how much they have in hand, and what becomes of it when they go.

use std::future::Future;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, StreamRequest};
use dwell::delivery::{Decision, Delivery, Session, StaleReason, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::Settings;
use futures_util::future::{Either, join, select};

use crate::support::{Running, World, kind_of, stories};

stories! {
    session_never_exceeds_its_max_in_flight, deadline_frees_a_slot_and_extend_keeps_it,
    deliveries_of_an_aborted_session_return_at_once, last_attempt_of_an_aborted_session_is_dead_lettered,
    gracefully_ended_session_keeps_its_deliveries, stop_ends_a_session_and_waits_for_its_deliveries,
    abandoned_poll_strands_no_message, lost_partition_frees_its_session_slots,
}

/// Longer than any story.
const LONG: Duration = Duration::from_secs(86_400);

/// Words for what the consumers of the topic `orders` do.
struct Shop<'a> {
    world: &'a World,
    running: Running,
    broker: Broker,
    topic: TopicName,
    group: GroupName,
}

impl<'a> Shop<'a> {
    /// A shop of one partition, in which a failed message is due again at once.
    async fn open(world: &'a World, ids: &[&str]) -> Result<Shop<'a>> {
        let backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::ZERO)] };
        let topic_defaults = Settings { partitions: NonZeroU16::MIN, backoff, ..Settings::default() };
        let running = Running::start(world, Options { topic_defaults, lease_ttl: LONG, ..Options::default() })?;
        let (broker, topic) = (running.broker.clone(), TopicName::new("orders")?);
        for id in ids {
            let message = NewMessage { id: Some(MessageId::new(id)?), ..NewMessage::new("x") };
            broker.push(&topic, message).await?;
        }
        Ok(Shop { world, running, broker, topic, group: GroupName::standard() })
    }

    async fn session(&self, max_in_flight: usize) -> Result<Session> {
        let request = StreamRequest { max_in_flight, visibility_timeout: None };
        self.broker.stream(&self.topic, &self.group, request).await
    }

    async fn reserve(&self, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: Duration::from_secs(60), visibility_timeout: None };
        self.broker.reserve(&self.topic, &self.group, request).await
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker.settle(&self.topic, &self.group, decisions).await?[0])
    }

    /// That something does not happen while everything else does.
    async fn not_now<T>(&self, happens: impl Future<Output = T>) -> Result<()> {
        match select(std::pin::pin!(happens), std::pin::pin!(self.world.settled())).await {
            Either::Left(_) => Err(Error::bug("it happened")),
            Either::Right(_) => Ok(()),
        }
    }
}

async fn next(session: &Session) -> Result<Delivery> {
    session.next(LONG).await.ok_or_else(|| Error::bug("nothing was handed out"))
}

fn id(delivery: &Delivery) -> (&str, u32) {
    (delivery.message.id.as_str(), delivery.attempt)
}

async fn session_never_exceeds_its_max_in_flight(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a", "b", "c", "d"]).await?;
    let session = shop.session(2).await?;
    let (a, b) = (next(&session).await?, next(&session).await?);
    shop.not_now(session.next(LONG)).await?;
    // A place is free as soon as its delivery is decided, also while the session waits for it.
    let ack = async {
        world.settled().await;
        shop.settle(&a, Decision::Ack).await
    };
    let (c, acked) = join(next(&session), ack).await;
    assert_eq!((id(&c?), acked?), (("c", 1), Verdict::Acked));
    shop.not_now(session.next(LONG)).await?;
    assert_eq!(shop.settle(&b, Decision::Bury { reason: None }).await?, Verdict::Buried);
    assert_eq!(id(&next(&session).await?), ("d", 1));
    for max in [0, 1_001] {
        assert_eq!(kind_of(shop.session(max).await), Some(Kind::Invalid), "{max}");
    }
    assert!(shop.session(1_000).await.is_ok());
    Ok(())
}

async fn deadline_frees_a_slot_and_extend_keeps_it(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a", "b"]).await?;
    let session = shop.session(1).await?;
    let a = next(&session).await?;
    shop.broker.extend(&shop.topic, &shop.group, &[a.receipt.to_string()], Duration::from_secs(60)).await?;
    world.pass(59_999);
    shop.not_now(session.next(LONG)).await?;
    world.pass(1);
    assert_eq!(id(&next(&session).await?), ("b", 1));
    assert_eq!(shop.settle(&a, Decision::Ack).await?, Verdict::Stale(StaleReason::DeadlinePassed));
    Ok(())
}

async fn deliveries_of_an_aborted_session_return_at_once(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a", "b", "c"]).await?;
    let session = shop.session(2).await?;
    let a = next(&session).await?;
    let b = next(&session).await?;
    assert_eq!(shop.settle(&b, Decision::Ack).await?, Verdict::Acked);
    drop(session);
    assert_eq!(shop.settle(&a, Decision::Ack).await?, Verdict::Stale(StaleReason::AlreadySettled));
    let mut rest = shop.reserve(10).await?;
    while rest.len() < 2 {
        rest.extend(shop.reserve(10).await?);
    }
    rest.sort_by(|one, other| one.message.id.cmp(&other.message.id));
    assert_eq!(rest.iter().map(id).collect::<Vec<_>>(), [("a", 2), ("c", 1)]);
    Ok(())
}

async fn last_attempt_of_an_aborted_session_is_dead_lettered(world: World) -> Result<()> {
    let shop = Shop::open(&world, &[]).await?;
    let message = NewMessage { max_attempts: Some(1), ..NewMessage::new("x") };
    shop.broker.push(&shop.topic, message).await?;
    let session = shop.session(1).await?;
    next(&session).await?;
    drop(session);
    let dead = async || Ok(shop.broker.dead(&shop.topic, &shop.group, None, 10).await?.dead);
    world.until("it is dead", async || Ok(!dead().await?.is_empty())).await?;
    assert_eq!(dead().await?[0].1.record.last_error, Some("the stream's client went away".into()));
    Ok(())
}

async fn gracefully_ended_session_keeps_its_deliveries(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a"]).await?;
    let session = shop.session(1).await?;
    let a = next(&session).await?;
    session.end();
    shop.not_now(shop.reserve(1)).await?;
    assert_eq!(shop.settle(&a, Decision::Ack).await?, Verdict::Acked);
    Ok(())
}

async fn stop_ends_a_session_and_waits_for_its_deliveries(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a", "b"]).await?;
    let session = shop.session(1).await?;
    let a = next(&session).await?;
    let consumer = async {
        assert_eq!(session.next(LONG).await, None);
        assert!(session.is_over());
        session.end();
        shop.settle(&a, Decision::Ack).await
    };
    let ((), verdict) = join(shop.running.stop(), consumer).await;
    assert_eq!(verdict?, Verdict::Acked);
    assert_eq!(kind_of(shop.session(1).await), Some(Kind::Unavailable));
    Ok(())
}

async fn abandoned_poll_strands_no_message(world: World) -> Result<()> {
    let shop = Shop::open(&world, &[]).await?;
    let later = NewMessage { due: dwell::model::message::Due::In(Duration::from_secs(1)), ..NewMessage::new("x") };
    shop.broker.push(&shop.topic, later).await?;
    // Given up before the message is due, and when it has come and the poll would take it as soon as it is looked at.
    for step in [0, 999, 1] {
        let mut poll = std::pin::pin!(shop.reserve(1));
        assert!(futures_util::poll!(poll.as_mut()).is_pending());
        world.pass(step);
        world.settled().await;
    }
    assert_eq!(shop.reserve(1).await?.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1]);
    Ok(())
}

async fn lost_partition_frees_its_session_slots(world: World) -> Result<()> {
    let shop = Shop::open(&world, &["a"]).await?;
    let session = shop.session(1).await?;
    let a = next(&session).await?;
    let partition = shop.broker.topic(&shop.topic).await?.group_partition(a.partition, &shop.group);
    world.steal(&partition, shop.broker.member()).await?.recover().await?;
    assert_eq!(shop.settle(&a, Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    // What was lost is acquired again after a pause.
    let again = world.as_time_passes(next(&session)).await?;
    assert_eq!(id(&again), ("a", 2));
    Ok(())
}
