//! Dead letters that are forwarded to another topic: once, whatever happens in between.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{DeadLetterFilter, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::FORWARD_HOPS_MAX;
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::{DeadLetterTopic, Expiry, Ordering, Settings};

use crate::support::{Running, World, kind_of, stories};

stories! {
    dead_letters_are_delivered_from_the_dead_letter_topic, dead_letters_wait_for_a_topic_that_is_missing,
    earlier_dead_letters_are_forwarded_once_configured, expired_message_is_not_forwarded,
    a_topic_does_not_forward_to_itself, dead_letter_topics_may_form_a_cycle,
    a_circle_of_dead_letter_topics_ends_at_the_hop_limit, a_chain_that_ends_is_not_cut_by_the_hop_limit, stop_forwards_pending_dead_letters,
    ordered_dead_letter_topic_keeps_dead_letter_order, two_brokers_forward_each_dead_letter_once,
}

const DAY: Duration = Duration::from_secs(86_400);

fn options() -> Options {
    Options { lease_ttl: DAY, idle_timeout: DAY, auto_create: false, ..Options::default() }
}

fn forwarding(to: &str) -> Result<Settings> {
    let dead_letter = Some(DeadLetterTopic { topic: TopicName::new(to)? });
    Ok(Settings { partitions: NonZeroU16::MIN, max_attempts: 1, dead_letter, ..Settings::default() })
}

fn plain() -> Settings {
    Settings { partitions: NonZeroU16::MIN, ..Settings::default() }
}

struct Topics<'w> {
    world: &'w World,
    running: Running,
}

impl<'w> Topics<'w> {
    fn start(world: &'w World) -> Result<Topics<'w>> {
        Ok(Topics { world, running: Running::start(world, options())? })
    }

    async fn declare(&self, topic: &str, settings: Settings) -> Result<()> {
        self.running.broker.declare(TopicName::new(topic)?, settings).await.map(drop)
    }

    async fn push(&self, topic: &str, id: &str) -> Result<()> {
        let message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?);
        self.running.broker.push(&TopicName::new(topic)?, message).await.map(drop)
    }

    /// Takes a message of a topic, and decides about it.
    async fn settle(&self, topic: &str, decision: Decision) -> Result<Delivery> {
        let (topic, group) = (TopicName::new(topic)?, GroupName::standard());
        let broker = &self.running.broker;
        loop {
            let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
            let taken = self.world.as_time_passes(broker.reserve(&topic, &group, request)).await?;
            if let Some(delivery) = taken.into_iter().next() {
                let decisions = vec![(delivery.receipt.to_string(), decision)];
                self.world.as_time_passes(broker.settle(&topic, &group, decisions)).await?;
                return Ok(delivery);
            }
        }
    }

    async fn dead(&self, topic: &str) -> Result<usize> {
        let (topic, group) = (TopicName::new(topic)?, GroupName::standard());
        Ok(self.running.broker.dead_matching(&topic, &group, &DeadLetterFilter::default(), None, 100).await?.dead.len())
    }
}

fn nack() -> Decision {
    Decision::Nack { delay: None, reason: Some("smtp: 550".into()) }
}

fn bury() -> Decision {
    Decision::Bury { reason: None }
}

/// Topic, reason and attempts of what a message was before.
fn source(delivery: &Delivery) -> Option<(String, String, u32)> {
    let source = delivery.message.envelope.dead_letter_source.as_ref()?;
    Some((source.topic.to_string(), source.reason.clone(), source.attempts))
}

async fn dead_letters_are_delivered_from_the_dead_letter_topic(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders-dead", plain()).await?;
    topics.declare("orders", forwarding("orders-dead")?).await?;
    for (decision, reason) in [(nack(), "max_attempts"), (bury(), "buried")] {
        topics.push("orders", reason).await?;
        topics.settle("orders", decision).await?;
        let delivery = topics.settle("orders-dead", Decision::Ack).await?;
        assert_eq!((delivery.message.id.as_str(), delivery.attempt), (reason, 1));
        assert_eq!(source(&delivery), Some(("orders".to_owned(), reason.to_owned(), 1)));
        assert_eq!(topics.dead("orders").await?, 0);
    }
    Ok(())
}

async fn dead_letters_wait_for_a_topic_that_is_missing(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders", forwarding("orders-dead")?).await?;
    topics.push("orders", "a").await?;
    topics.settle("orders", bury()).await?;
    topics.push("orders", "alive").await?;
    topics.settle("orders", Decision::Ack).await?;
    assert_eq!(topics.dead("orders").await?, 1);
    topics.declare("orders-dead", plain()).await?;
    assert_eq!(topics.settle("orders-dead", Decision::Ack).await?.message.id.as_str(), "a");
    assert_eq!(topics.dead("orders").await?, 0);
    // It goes, and comes back as another one.
    let dead = TopicName::new("orders-dead")?;
    topics.running.broker.delete_topic(&dead).await?;
    topics.push("orders", "b").await?;
    topics.settle("orders", bury()).await?;
    topics.declare("orders-dead", plain()).await?;
    assert_eq!(topics.settle("orders-dead", Decision::Ack).await?.message.id.as_str(), "b");
    Ok(())
}

async fn earlier_dead_letters_are_forwarded_once_configured(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders-dead", plain()).await?;
    topics.declare("orders", Settings { dead_letter: None, ..forwarding("orders-dead")? }).await?;
    for n in 0..3 {
        topics.push("orders", &format!("m{n}")).await?;
        topics.settle("orders", bury()).await?;
    }
    assert_eq!(topics.dead("orders").await?, 3);
    topics.declare("orders", forwarding("orders-dead")?).await?;
    for n in 0..3 {
        assert_eq!(topics.settle("orders-dead", Decision::Ack).await?.message.id.to_string(), format!("m{n}"));
    }
    topics.declare("orders", Settings { dead_letter: None, ..forwarding("orders-dead")? }).await?;
    for n in 3..6 {
        topics.push("orders", &format!("m{n}")).await?;
        topics.settle("orders", bury()).await?;
    }
    assert_eq!(topics.dead("orders").await?, 3);
    Ok(())
}

async fn expired_message_is_not_forwarded(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders-dead", plain()).await?;
    let settings = Settings { ttl: Duration::from_secs(1), on_expiry: Expiry::Bury, ..forwarding("orders-dead")? };
    topics.declare("orders", settings).await?;
    topics.push("orders", "expired").await?;
    world.pass(2_000);
    topics.push("orders", "buried").await?;
    topics.settle("orders", bury()).await?;
    assert_eq!(topics.settle("orders-dead", Decision::Ack).await?.message.id.as_str(), "buried");
    assert_eq!(topics.dead("orders").await?, 1);
    Ok(())
}

async fn a_topic_does_not_forward_to_itself(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    assert_eq!(kind_of(topics.declare("orders", forwarding("orders")?).await), Some(Kind::Invalid));
    topics.declare("orders", forwarding("orders-dead")?).await?;
    assert_eq!(kind_of(topics.declare("orders", forwarding("orders")?).await), Some(Kind::Invalid));
    Ok(())
}

async fn dead_letter_topics_may_form_a_cycle(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("a", forwarding("b")?).await?;
    topics.declare("b", forwarding("a")?).await?;
    topics.push("a", "m").await?;
    for (topic, before) in [("a", None), ("b", Some("a")), ("a", Some("b"))] {
        let delivery = topics.settle(topic, nack()).await?;
        assert_eq!(delivery.message.id.as_str(), "m");
        assert_eq!(source(&delivery).map(|source| source.0).as_deref(), before);
    }
    Ok(())
}

/// Waits until a topic has a dead letter; its id, whether it is at the limit, and the topics that forwarded it.
async fn stuck(topics: &Topics<'_>, topic: &str) -> Result<(String, bool, u32)> {
    let stays = topics.world.until("a dead letter stays", async || Ok(topics.dead(topic).await? == 1));
    topics.world.as_time_passes(stays).await?;
    let (name, group) = (TopicName::new(topic)?, GroupName::standard());
    let listed = topics.running.broker.dead_matching(&name, &group, &DeadLetterFilter::default(), None, 9).await?;
    let (_, dead) = listed.dead.into_iter().next().ok_or_else(|| Error::not_found(topic.to_owned()))?;
    Ok((dead.id.to_string(), dead.is_at_hop_limit(), dead.message?.envelope.hops()))
}

async fn a_circle_of_dead_letter_topics_ends_at_the_hop_limit(world: World) -> Result<()> {
    for circle in [&["a", "b"][..], &["x", "y", "z"]] {
        let topics = Topics::start(&world)?;
        for (n, topic) in circle.iter().enumerate() {
            topics.declare(topic, forwarding(circle[(n + 1) % circle.len()])?).await?;
        }
        topics.push(circle[0], "m").await?;
        let hops = FORWARD_HOPS_MAX as usize;
        for n in 0..=hops {
            let delivery = topics.settle(circle[n % circle.len()], nack()).await?;
            assert_eq!(delivery.message.envelope.hops() as usize, n);
        }
        let last = circle[hops % circle.len()];
        assert_eq!(stuck(&topics, last).await?, ("m".to_owned(), true, FORWARD_HOPS_MAX));
        // A redrive is one more life in this topic, not another round.
        let (name, group) = (TopicName::new(last)?, GroupName::standard());
        assert_eq!(topics.running.broker.redrive(&name, &group, None).await?, 1);
        topics.settle(last, bury()).await?;
        assert_eq!(stuck(&topics, last).await?, ("m".to_owned(), true, FORWARD_HOPS_MAX));
        // The next owner, which looks through all dead letters, leaves it there too; others of the topic go on.
        world.as_time_passes(topics.running.stop()).await;
        let next = Topics::start(&world)?;
        next.push(last, "other").await?;
        next.settle(last, bury()).await?;
        let following = circle[(hops + 1) % circle.len()];
        assert_eq!(next.settle(following, Decision::Ack).await?.message.id.as_str(), "other");
        assert_eq!(stuck(&next, last).await?, ("m".to_owned(), true, FORWARD_HOPS_MAX));
        // If the circle is opened, it goes on to the end.
        next.declare(following, plain()).await?;
        next.declare(last, Settings { max_attempts: 2, ..forwarding(following)? }).await?;
        assert_eq!(next.settle(following, Decision::Ack).await?.message.id.as_str(), "m");
        world.as_time_passes(next.running.stop()).await;
    }
    Ok(())
}

async fn a_chain_that_ends_is_not_cut_by_the_hop_limit(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    let last = FORWARD_HOPS_MAX + 1;
    topics.declare(&format!("t{last}"), plain()).await?;
    for n in 0..last {
        topics.declare(&format!("t{n}"), forwarding(&format!("t{}", n + 1))?).await?;
    }
    topics.push("t0", "m").await?;
    for n in 0..last {
        topics.settle(&format!("t{n}"), nack()).await?;
    }
    assert_eq!(topics.settle(&format!("t{last}"), Decision::Ack).await?.message.envelope.hops(), last);
    Ok(())
}

async fn stop_forwards_pending_dead_letters(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders-dead", plain()).await?;
    topics.declare("orders", forwarding("orders-dead")?).await?;
    topics.push("orders", "a").await?;
    topics.settle("orders", bury()).await?;
    world.as_time_passes(topics.running.stop()).await;
    let other = Topics::start(&world)?;
    assert_eq!(other.settle("orders-dead", Decision::Ack).await?.message.id.as_str(), "a");
    Ok(())
}

async fn ordered_dead_letter_topic_keeps_dead_letter_order(world: World) -> Result<()> {
    let topics = Topics::start(&world)?;
    topics.declare("orders-dead", Settings { ordering: Ordering::Key, ..plain() }).await?;
    topics.declare("orders", Settings { ordering: Ordering::Key, ..forwarding("orders-dead")? }).await?;
    for n in 0..10 {
        let message = NewMessage::new("x").id(MessageId::new(format!("m{n}"))?);
        let message = NewMessage { key: Some(Key::new("customer-7")?), ..message };
        topics.running.broker.push(&TopicName::new("orders")?, message).await?;
    }
    for _ in 0..10 {
        topics.settle("orders", nack()).await?;
    }
    for n in 0..10 {
        assert_eq!(topics.settle("orders-dead", Decision::Ack).await?.message.id.to_string(), format!("m{n}"));
    }
    Ok(())
}

async fn two_brokers_forward_each_dead_letter_once(world: World) -> Result<()> {
    let all = [Topics::start(&world)?, Topics::start(&world)?];
    all[0].declare("orders-dead", plain()).await?;
    let eight = Settings { partitions: Settings::default().partitions, ..forwarding("orders-dead")? };
    all[0].declare("orders", eight).await?;
    const COUNT: usize = 40;
    for n in 0..COUNT {
        all[n % 2].push("orders", &format!("m{n:03}")).await?;
    }
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let mut left = COUNT;
    while left > 0 {
        for topics in &all {
            let request = ReserveRequest { max: 5, wait: Duration::from_millis(500), visibility_timeout: None };
            let broker = &topics.running.broker;
            let taken = world.as_time_passes(broker.reserve(&topic, &group, request)).await?;
            left -= taken.len();
            let decisions = taken.iter().map(|delivery| (delivery.receipt.to_string(), nack())).collect::<Vec<_>>();
            if !decisions.is_empty() {
                world.as_time_passes(broker.settle(&topic, &group, decisions)).await?;
            }
        }
    }
    let mut got: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..COUNT {
        let delivery = all[0].settle("orders-dead", Decision::Ack).await?;
        *got.entry(delivery.message.id.to_string()).or_default() += 1;
    }
    assert_eq!((got.len(), got.values().max()), (COUNT, Some(&1)), "{got:?}");
    for topic in ["orders", "orders-dead"] {
        assert_eq!(all[1].running.messages(&TopicName::new(topic)?).await?, 0, "{topic}");
    }
    Ok(())
}
