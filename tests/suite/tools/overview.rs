//! What an operator sees first: the traffic of the last 30 minutes, what needs attention, and the brokers.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use dwell::broker::{GroupRequest, Options, PauseFor, ReserveRequest, Sample};
use dwell::delivery::{Decision, Delivery};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{GroupPartition, Ordering, Settings};

use crate::support::{Running, World, eventually, member, stories, up_to};

stories! {
    traffic_is_kept_for_30_minutes, a_late_message_needs_attention_with_its_cause,
    pauses_and_dead_letters_need_attention, majority_of_retries_is_reported_as_a_retry_storm, messages_given_back_again_and_again_are_a_retry_storm,
    every_broker_of_a_group_is_listed, deleted_topic_needs_no_attention,
    a_broker_that_ended_without_a_stop_needs_attention, expired_messages_need_attention,
    a_key_that_holds_up_hundreds_needs_attention, topic_of_any_name_keeps_brokers_listed,
}

const DAY: Duration = Duration::from_secs(86_400);
const STEP_MS: u64 = 10_000;
const MINUTE_MS: u64 = 60_000;

struct Shop<'w> {
    world: &'w World,
    running: Running,
    topic: TopicName,
    group: GroupName,
}

impl<'w> Shop<'w> {
    async fn open(world: &'w World) -> Result<Shop<'w>> {
        let options = Options { lease_ttl: DAY, idle_timeout: DAY, ..Options::default() };
        let shop = Shop {
            world,
            running: Running::start(world, options)?,
            topic: TopicName::new("orders")?,
            group: GroupName::standard(),
        };
        let settings = Settings { partitions: NonZeroU16::MIN, max_attempts: 0, ..Settings::default() };
        shop.running.broker.declare(shop.topic.clone(), settings).await?;
        Ok(shop)
    }

    async fn push(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.running.broker.push(&self.topic, NewMessage::new("x")).await?;
        }
        Ok(())
    }

    async fn take(&self, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: Duration::from_secs(60), visibility_timeout: None };
        self.world.as_time_passes(self.running.broker.reserve(&self.topic, &self.group, request)).await
    }

    async fn settle(&self, deliveries: Vec<Delivery>, decision: Decision) -> Result<()> {
        let decisions =
            deliveries.into_iter().map(|delivery| (delivery.receipt.to_string(), decision.clone())).collect();
        let settled = self.running.broker.settle(&self.topic, &self.group, decisions);
        self.world.as_time_passes(settled).await.map(drop)
    }

    /// Lets time go by until there is a sample like this. A sample waits for the store, so a step may take longer.
    async fn sample(&self, is_it: impl Fn(&Sample) -> bool) -> Result<Arc<Sample>> {
        eventually("a sample", async || {
            self.world.pass(STEP_MS / 10);
            self.world.settled().await;
            Ok(self.running.broker.traffic(None).into_iter().find(|sample| is_it(sample)))
        })
        .await
    }

    /// The kinds of what needs attention, and the first cause.
    async fn attention(&self) -> Result<(Vec<&'static str>, String)> {
        // An answer is given again for two seconds.
        self.world.pass(2_000);
        let attention = self.running.broker.attention().await?;
        assert_eq!(attention.topics_seen, attention.topics);
        let kinds = attention.concerns.iter().map(|concern| concern.kind.name()).collect();
        Ok((kinds, attention.concerns.first().map(|first| first.cause.clone()).unwrap_or_default()))
    }
}

async fn traffic_is_kept_for_30_minutes(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(3).await?;
    let sample = shop.sample(|sample| sample.total.pushed > 0).await?;
    assert_eq!((sample.total.pushed, sample.total.delivered, sample.total.backlog), (3, 0, Some(3)));
    assert_eq!((sample.topics.len(), sample.topics[0].0.as_ref(), sample.topics[0].1), (1, "orders", sample.total));
    let first = sample.at;
    let taken = shop.take(10).await?;
    shop.settle(taken, Decision::Ack).await?;
    let sample = shop.sample(|sample| sample.total.delivered > 0 && sample.at > first).await?;
    assert_eq!(sample.total.delivered, 3);
    assert!(sample.total.lateness_ms.is_some_and(|[p50, p99]| p50 <= p99), "{sample:?}");
    shop.sample(|sample| sample.at > first && sample.total.backlog == Some(0)).await?;
    assert!(shop.running.broker.traffic(Some(first)).iter().all(|sample| sample.at > first));
    let quiet = async || {
        world.pass(STEP_MS);
        world.settled().await;
        Ok(shop.running.broker.traffic(None).iter().all(|sample| sample.total.pushed == 0))
    };
    world.until("older samples are forgotten", quiet).await?;
    assert!(shop.running.broker.traffic(None).len() <= 180);
    shop.running.stop().await;
    Ok(())
}

async fn a_late_message_needs_attention_with_its_cause(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    assert_eq!(shop.attention().await?, (vec![], String::new()), "all is well");
    shop.push(2).await?;
    assert_eq!(shop.attention().await?.0, Vec::<&str>::new(), "a message may be ready for a moment");
    world.pass(MINUTE_MS);
    let (kinds, cause) = shop.attention().await?;
    assert_eq!(kinds, ["no_consumer"]);
    assert!(cause.contains("2 ready messages, the oldest for 1m") && cause.contains("nobody consumes"), "{cause}");
    let taken = shop.take(2).await?;
    shop.settle(taken, Decision::Ack).await?;
    assert_eq!(shop.attention().await?.0, Vec::<&str>::new());
    shop.running.stop().await;
    Ok(())
}

async fn pauses_and_dead_letters_need_attention(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(2).await?;
    let taken = shop.take(2).await?;
    shop.settle(taken, Decision::Bury { reason: Some("550".into()) }).await?;
    shop.running.broker.pause_group(&shop.topic, &shop.group, PauseFor::Ever).await?;
    let (kinds, cause) = shop.attention().await?;
    assert_eq!(kinds, ["dead_letters", "paused"]);
    assert!(cause.contains("2 dead letters") && !cause.contains("550"), "{cause}");
    world.pass(31 * MINUTE_MS);
    let (kinds, cause) = shop.attention().await?;
    assert_eq!(kinds, ["paused"]);
    assert!(cause.contains("until it is resumed"), "{cause}");
    shop.running.stop().await;
    Ok(())
}

async fn majority_of_retries_is_reported_as_a_retry_storm(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(5).await?;
    for _ in 0..6 {
        for _ in 0..5 {
            let taken = shop.take(1).await?;
            shop.settle(taken, Decision::Nack { delay: Some(Duration::ZERO), reason: None }).await?;
        }
    }
    shop.sample(|sample| sample.total.retried > 0).await?;
    let (kinds, _) = shop.attention().await?;
    assert!(kinds.contains(&"retry_storm"), "{kinds:?}");
    shop.running.stop().await;
    Ok(())
}

/// No attempt is counted, so nothing else ends this.
async fn messages_given_back_again_and_again_are_a_retry_storm(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(5).await?;
    for _ in 0..30 {
        let taken = shop.take(1).await?;
        shop.settle(taken, Decision::Release).await?;
    }
    shop.sample(|sample| sample.total.released == 30).await?;
    let (kinds, _) = shop.attention().await?;
    assert!(kinds.contains(&"retry_storm"), "{kinds:?}");
    shop.running.stop().await;
    Ok(())
}

async fn expired_messages_need_attention(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let message = NewMessage { ttl: Some(Duration::from_secs(1)), ..NewMessage::new("x") };
    shop.running.broker.push(&shop.topic, message).await?;
    world.pass(MINUTE_MS);
    shop.push(1).await?;
    let taken = shop.take(10).await?;
    assert_eq!(taken.len(), 1, "{taken:?}");
    shop.settle(taken, Decision::Ack).await?;
    shop.sample(|sample| sample.total.expired > 0).await?;
    let (kinds, cause) = shop.attention().await?;
    assert_eq!(kinds, ["expired"]);
    assert!(cause.contains("1 message expired"), "{cause}");
    shop.running.stop().await;
    Ok(())
}

async fn every_broker_of_a_group_is_listed(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let wish = GroupRequest::default();
    shop.running.broker.create_group(&shop.topic, &GroupName::new("audit")?, wish).await?;
    let other = Running::start(&world, Options { lease_ttl: DAY, idle_timeout: DAY, ..Options::default() })?;
    // Who has no consumer is listed as well, with no group.
    let idle = async || {
        let brokers = shop.running.broker.brokers().await?;
        Ok(brokers.get(other.broker.member()).is_some_and(|other| other.groups == 0 && other.process.is_some()))
    };
    world.until("the idle one is listed", idle).await?;
    let request = ReserveRequest { max: 1, wait: Duration::ZERO, visibility_timeout: None };
    for group in [&shop.group, &GroupName::new("audit")?] {
        world.as_time_passes(other.broker.reserve(&shop.topic, group, request)).await?;
    }
    let both = async || {
        let brokers = shop.running.broker.brokers().await?;
        Ok(brokers.get(other.broker.member()).is_some_and(|other| other.groups == 2))
    };
    world.until("the other one is in both groups", both).await?;
    let brokers = shop.running.broker.brokers().await?;
    let (here, there) = (&brokers[shop.running.broker.member()], &brokers[other.broker.member()]);
    assert_eq!((here.is_here, here.groups, there.is_here), (true, 0, false));
    assert_eq!((there.groups, there.version.as_str()), (2, env!("CARGO_PKG_VERSION")));
    other.stop().await;
    shop.running.stop().await;
    Ok(())
}

async fn a_key_that_holds_up_hundreds_needs_attention(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let topic = TopicName::new("by-key")?;
    let settings = Settings { partitions: NonZeroU16::MIN, ordering: Ordering::Key, ..Settings::default() };
    shop.running.broker.declare(topic.clone(), settings).await?;
    let of_key = |_| Ok(NewMessage::new("x").key(Key::new("customer-1")?));
    shop.running.broker.push_batch(&topic, (0..101).map(of_key).collect::<Result<_>>()?).await?;
    let shop = Shop { topic, ..shop };
    let first = shop.take(1).await?;
    assert_eq!(first.len(), 1);
    shop.settle(first, Decision::Nack { delay: Some(DAY), reason: None }).await?;
    // Consumers wait all the time. One that came just now has its answer once the owner has looked at the key again.
    let attention = async |minutes, expected: &str| {
        world.pass(minutes * MINUTE_MS);
        let (broker, topic, group) = (shop.running.broker.clone(), shop.topic.clone(), shop.group.clone());
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
        let waits = tokio::spawn(async move { broker.reserve(&topic, &group, request).await.map(drop) });
        let attention = eventually(expected, async || {
            world.settled().await;
            let (kinds, cause) = shop.attention().await?;
            Ok((kinds == [expected]).then_some(cause))
        });
        let cause = attention.await;
        waits.abort();
        cause
    };
    let cause = attention(4, "late").await?;
    assert!(cause.contains("the oldest for 4m"), "{cause}");
    let cause = attention(2, "blocked").await?;
    assert!(cause.contains("100 blocked, the oldest for 6m"), "{cause}");
    shop.running.stop().await;
    Ok(())
}

/// Whatever a topic is named, its members are no brokers as processes.
async fn topic_of_any_name_keeps_brokers_listed(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let (topic, group) = (TopicName::new("_dwell")?, GroupName::new("_brokers")?);
    let one = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
    shop.running.broker.declare(topic.clone(), one).await?;
    let wish = GroupRequest::default();
    shop.running.broker.create_group(&topic, &group, wish).await?;
    let other = Running::start(&world, Options { lease_ttl: DAY, idle_timeout: DAY, ..Options::default() })?;
    let request = ReserveRequest { max: 1, wait: Duration::ZERO, visibility_timeout: None };
    world.as_time_passes(other.broker.reserve(&topic, &group, request)).await?;
    let member = async || {
        let brokers = shop.running.broker.brokers().await?;
        Ok(brokers.get(other.broker.member()).is_some_and(|other| other.groups == 1))
    };
    world.until("the other one is a member", member).await?;
    let brokers = shop.running.broker.brokers().await?;
    assert!(brokers[other.broker.member()].process.is_some(), "{brokers:?}");
    assert_eq!(brokers.len(), 2);
    other.stop().await;
    shop.running.stop().await;
    Ok(())
}

async fn deleted_topic_needs_no_attention(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(1).await?;
    shop.sample(|sample| sample.total.backlog == Some(1)).await?;
    world.pass(MINUTE_MS);
    assert_eq!(shop.attention().await?.0, ["no_consumer"]);
    shop.running.broker.delete_topic(&shop.topic).await?;
    assert_eq!(shop.attention().await?.0, Vec::<&str>::new());
    let after = shop.running.broker.traffic(None).last().map(|sample| sample.at);
    shop.sample(|sample| Some(sample.at) > after && sample.total.backlog == Some(0)).await?;
    shop.running.stop().await;
    Ok(())
}

async fn a_broker_that_ended_without_a_stop_needs_attention(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push(2).await?;
    let topic = world.existing(shop.running.broker.topic(&shop.topic).await?.as_ref().clone());
    let partition = GroupPartition { topic: shop.topic.clone(), partition: Partition(0), group: shop.group.clone() };
    let ttl = Duration::from_secs(1);
    let mut gone = topic.acquire(&partition, &member("gone"), ttl).await?;
    assert_eq!(gone.reserve(up_to(1)).await?.messages.len(), 1);
    // Nobody has taken over; the embedded store has moved on by more than the lease meanwhile.
    let kinds = shop.attention().await?.0;
    assert!(matches!(kinds[..], [] | ["no_consumer"]), "{kinds:?}");
    drop(gone);
    world.pass(2_000);
    let mut taken = Vec::new();
    while taken.len() < 2 {
        taken.extend(shop.take(2 - taken.len()).await?);
    }
    shop.sample(|sample| sample.takeovers > 0).await?;
    let (kinds, cause) = shop.attention().await?;
    assert_eq!(kinds, ["broker_gone"]);
    assert!(cause.contains("took over 1 partition with messages in flight"), "{cause}");
    shop.settle(taken, Decision::Ack).await?;
    world.pass(31 * MINUTE_MS);
    assert_eq!(shop.attention().await?.0, Vec::<&str>::new());
    shop.running.stop().await;
    Ok(())
}

#[tokio::test]
async fn an_unreadable_message_needs_attention() -> Result<()> {
    let world = World::redis().await?;
    let shop = Shop::open(&world).await?;
    shop.running.broker.push(&shop.topic, NewMessage::new("secret").id(MessageId::new("a")?)).await?;
    world.pass(MINUTE_MS);
    assert_eq!(shop.attention().await?.0, ["no_consumer"]);
    let damage = ["HSET", "{dwell:orders:0}:default:h", "a", "secret"].map(str::to_owned);
    assert_eq!(world.meddle(&damage).await?, "0", "it was there");
    world.pass(2_000);
    let attention = shop.running.broker.attention().await?;
    let concerns: Vec<_> = attention.concerns.iter().map(|concern| (concern.kind.name(), &concern.place)).collect();
    assert_eq!(concerns, [("unreadable", &Some((shop.topic.clone(), None)))]);
    let cause = &attention.concerns[0].cause;
    assert!(!cause.contains("secret") && !cause.is_empty(), "{cause}");
    shop.running.stop().await;
    Ok(())
}
