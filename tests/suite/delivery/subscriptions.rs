//! Groups as subscriptions, below HTTP: each gets every message; made, filled, paused, deleted while consumers are there.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, PauseFor, ReserveRequest, StreamRequest};
use dwell::delivery::{Decision, Delivery, StaleReason, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::Settings;
use dwell::store::{MessageState, Purge};
use futures_util::future::{Either, join, select};

use crate::support::{Running, World, kind_of, stories};

stories! {
    every_group_gets_every_message, new_group_starts_empty_or_as_a_copy, interrupted_copy_is_finished_by_a_consumer,
    group_being_copied_delivers_nothing, consumer_of_a_deleted_group_gets_not_found,
    group_deleted_by_another_broker_is_gone, group_created_by_another_broker_is_found, groups_per_topic_are_limited,
    change_that_would_lose_messages_is_a_conflict, paused_group_delivers_nothing, pause_returns_prefetched_messages,
    timed_pause_resumes_by_itself, pause_applies_to_all_brokers_and_survives_restarts, stream_stops_during_a_pause,
    purged_group_delivers_no_earlier_message, group_being_copied_is_not_purged,
}

/// Longer than any story.
const LONG: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

fn named(group: &str) -> Result<GroupName> {
    GroupName::new(group)
}

/// A broker of a topic of two partitions, and short words for what is said to it.
struct Shop {
    broker: Broker,
    running: Running,
}

impl Shop {
    fn open(world: &World) -> Result<Shop> {
        let topic_defaults =
            Settings { partitions: NonZeroU16::MIN.saturating_add(1), max_attempts: 2, ..Settings::default() };
        let running = Running::start(world, Options { topic_defaults, lease_ttl: LONG, ..Options::default() })?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn push(&self, ids: &[&str]) -> Result<()> {
        for id in ids {
            self.broker.push(&orders()?, NewMessage::new("x").id(MessageId::new(id)?)).await?;
        }
        Ok(())
    }

    async fn make(&self, group: &str, copy_of: Option<&str>) -> Result<bool> {
        let copy_of = copy_of.map(GroupName::new).transpose()?;
        Ok(self
            .broker
            .create_group(&orders()?, &named(group)?, GroupRequest { copy_of, ..GroupRequest::default() })
            .await?
            .created)
    }

    async fn reserve(&self, group: &str, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker.reserve(&orders()?, &named(group)?, request).await
    }

    /// Takes messages until there are so many.
    async fn take(&self, group: &str, count: usize) -> Result<Vec<Delivery>> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.reserve(group, (count - all.len()).min(1_000), MINUTE).await?);
        }
        Ok(all)
    }

    async fn settle(&self, group: &str, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker.settle(&orders()?, &named(group)?, decisions).await?[0])
    }

    async fn ack_all(&self, group: &str, deliveries: &[Delivery]) -> Result<()> {
        for delivery in deliveries {
            assert_eq!(self.settle(group, delivery, Decision::Ack).await?, Verdict::Acked);
        }
        Ok(())
    }

    async fn pause(&self, group: &str, pause: PauseFor) -> Result<()> {
        self.broker.pause_group(&orders()?, &named(group)?, pause).await.map(drop)
    }

    /// Scheduled, ready, in flight and dead messages of a group.
    async fn counts(&self, group: &str) -> Result<[u64; 4]> {
        let (_, stats) = self.broker.group(&orders()?, &named(group)?).await?;
        let mut counts = [0; 4];
        for (_, stats) in stats {
            for (sum, count) in counts.iter_mut().zip([stats.scheduled, stats.ready, stats.in_flight, stats.dead]) {
                *sum += count;
            }
        }
        Ok(counts)
    }
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<&str> {
    deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect()
}

/// That something does not happen while everything else does.
async fn not_now<T>(world: &World, happens: impl Future<Output = T>) -> Result<()> {
    match select(std::pin::pin!(happens), std::pin::pin!(world.settled())).await {
        Either::Left(_) => Err(Error::bug("it happened")),
        Either::Right(_) => Ok(()),
    }
}

async fn every_group_gets_every_message(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["early"]).await?;
    assert!(shop.make("audit", None).await?);
    assert!(!shop.make("audit", None).await?);
    shop.push(&["a", "b"]).await?;
    let taken = shop.take("default", 3).await?;
    assert_eq!(ids(&taken), BTreeSet::from(["a", "b", "early"]));
    shop.ack_all("default", &taken).await?;
    // The other group has its own attempts, and its own dead messages.
    let audit = shop.take("audit", 2).await?;
    assert_eq!(ids(&audit), BTreeSet::from(["a", "b"]));
    for delivery in &audit {
        shop.settle("audit", delivery, Decision::Bury { reason: None }).await?;
    }
    assert_eq!((shop.counts("default").await?, shop.counts("audit").await?), ([0; 4], [0, 0, 0, 2]));
    assert_eq!(shop.broker.redrive(&orders()?, &named("audit")?, None).await?, 2);
    assert_eq!((shop.counts("default").await?, shop.counts("audit").await?), ([0; 4], [0, 2, 0, 0]));
    Ok(())
}

async fn new_group_starts_empty_or_as_a_copy(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let many: Vec<NewMessage> =
        (0..1_000).map(|n| Ok(NewMessage::new("x").id(MessageId::new(format!("m{n}"))?))).collect::<Result<_>>()?;
    shop.broker.push_batch(&orders()?, many).await?;
    let held = shop.take("default", 10).await?;
    assert!(world.as_time_passes(shop.make("copy", Some("default"))).await?);
    assert!(shop.make("now", None).await?);
    shop.push(&["new"]).await?;
    let done = world.until("the copy is done", async || {
        Ok(shop.broker.topic(&orders()?).await?.subscription(&named("copy")?).copy_of.is_none())
    });
    world.as_time_passes(done).await?;
    shop.ack_all("default", &held).await?;
    // A partition that was asked for before the copy was done is asked for again after a while.
    let copy = world.as_time_passes(shop.take("copy", 1_001)).await?;
    assert_eq!(ids(&copy).len(), 1_001);
    assert!(copy.iter().all(|delivery| delivery.attempt == 1));
    shop.ack_all("copy", &copy[..20]).await?;
    assert_eq!(ids(&shop.take("now", 1).await?), BTreeSet::from(["new"]));
    assert_eq!(shop.counts("default").await?.iter().sum::<u64>(), 991);
    Ok(())
}

async fn interrupted_copy_is_finished_by_a_consumer(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let many: Vec<NewMessage> =
        (0..500).map(|n| Ok(NewMessage::new("x").id(MessageId::new(format!("m{n}"))?))).collect::<Result<_>>()?;
    shop.broker.push_batch(&orders()?, many).await?;
    // As a broker leaves it that dies behind the first page.
    let audit = named("audit")?;
    let mut wanted = shop.broker.topic(&orders()?).await?.as_ref().clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = Some(GroupName::standard());
    let made = world.store.topics.update(&wanted).await?;
    world.store.maintenance.copy(&made, Partition(1), &audit, None).await?;
    let taken = world.as_time_passes(shop.take("audit", 500)).await?;
    assert_eq!(ids(&taken).len(), 500);
    shop.ack_all("audit", &taken).await?;
    assert_eq!(shop.counts("audit").await?, [0; 4]);
    assert_eq!(shop.broker.topic(&orders()?).await?.subscription(&audit).copy_of, None);
    Ok(())
}

async fn group_being_copied_delivers_nothing(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    let audit = named("audit")?;
    let mut wanted = shop.broker.topic(&orders()?).await?.as_ref().clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = Some(GroupName::standard());
    let made = world.store.topics.update(&wanted).await?;
    // Nobody fills it: this broker knows the topic as it was.
    let mut owner = match world
        .store
        .leases
        .acquire(&made.group_partition(Partition(0), &audit), shop.broker.member(), LONG, wanted.generation)
        .await
    {
        Err(error) if error.kind() == Kind::Stale => None,
        acquired => Some(acquired?),
    };
    assert!(owner.take().is_none(), "who does not know of the copy owns nothing");
    assert_eq!(kind_of(shop.broker.delete_group(&orders()?, &GroupName::standard()).await), Some(Kind::Conflict));
    shop.broker.delete_group(&orders()?, &audit).await?;
    assert_eq!(shop.counts("default").await?, [0, 1, 0, 0]);
    Ok(())
}

async fn consumer_of_a_deleted_group_gets_not_found(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["before"]).await?;
    shop.make("audit", None).await?;
    shop.push(&["a", "b"]).await?;
    let held = shop.take("audit", 1).await?;
    let request = StreamRequest { max_in_flight: 1, visibility_timeout: None };
    let stream = shop.broker.stream(&orders()?, &named("audit")?, request).await?;
    shop.take("audit", 1).await?;
    let (waited, streamed, deleted) = {
        let deletion = async {
            world.settled().await;
            shop.broker.delete_group(&orders()?, &named("audit")?).await
        };
        let (waited, (streamed, deleted)) =
            join(shop.reserve("audit", 1, MINUTE), join(stream.next(LONG), deletion)).await;
        (waited, streamed, deleted)
    };
    deleted?;
    assert_eq!((kind_of(waited), streamed.is_none(), stream.is_over()), (Some(Kind::NotFound), true, true));
    assert_eq!(kind_of(shop.settle("audit", &held[0], Decision::Ack).await), Some(Kind::NotFound));
    assert_eq!(kind_of(shop.broker.delete_group(&orders()?, &named("audit")?).await), Some(Kind::NotFound));
    // One of the same name is another one.
    assert!(shop.make("audit", None).await?);
    shop.push(&["c"]).await?;
    assert_eq!(ids(&shop.take("audit", 1).await?), BTreeSet::from(["c"]));
    assert_eq!(shop.settle("audit", &held[0], Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    assert_eq!(shop.counts("default").await?, [0, 4, 0, 0]);
    Ok(())
}

async fn group_deleted_by_another_broker_is_gone(world: World) -> Result<()> {
    let (shop, other) = (Shop::open(&world)?, Shop::open(&world)?);
    shop.push(&["before"]).await?;
    shop.make("audit", None).await?;
    let deletion = async {
        world.settled().await;
        other.broker.delete_group(&orders()?, &named("audit")?).await
    };
    let (waited, deleted) = join(shop.reserve("audit", 1, MINUTE), deletion).await;
    deleted?;
    assert_eq!(kind_of(waited), Some(Kind::NotFound));
    Ok(())
}

async fn group_created_by_another_broker_is_found(world: World) -> Result<()> {
    let (shop, other) = (Shop::open(&world)?, Shop::open(&world)?);
    shop.push(&["before"]).await?;
    assert_eq!(kind_of(shop.reserve("audit", 1, Duration::ZERO).await), Some(Kind::NotFound));
    other.make("audit", None).await?;
    // This broker believes what it knew of the topic for some seconds; the partitions do not.
    shop.push(&["a"]).await?;
    assert_eq!(ids(&shop.take("audit", 1).await?), BTreeSet::from(["a"]));
    Ok(())
}

async fn groups_per_topic_are_limited(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    for n in 1..dwell::model::limits::GROUPS_MAX {
        assert!(shop.make(&format!("g{n}"), None).await?);
    }
    assert_eq!(kind_of(shop.make("more", None).await), Some(Kind::Full));
    shop.push(&["b"]).await?;
    assert_eq!(shop.counts("g15").await?, [0, 1, 0, 0]);
    shop.broker.delete_group(&orders()?, &named("g7")?).await?;
    assert!(shop.make("more", None).await?);
    Ok(())
}

async fn change_that_would_lose_messages_is_a_conflict(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    assert_eq!(kind_of(shop.make("copy", Some("nobody")).await), Some(Kind::Conflict));
    assert_eq!(kind_of(shop.broker.delete_group(&orders()?, &GroupName::standard()).await), Some(Kind::Conflict));
    assert_eq!(kind_of(shop.broker.delete_group(&TopicName::new("none")?, &named("g")?).await), Some(Kind::NotFound));
    assert_eq!(shop.counts("default").await?, [0, 1, 0, 0]);
    Ok(())
}

async fn paused_group_delivers_nothing(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a", "b"]).await?;
    shop.make("audit", None).await?;
    let held = shop.take("default", 1).await?;
    shop.pause("default", PauseFor::Ever).await?;
    shop.pause("default", PauseFor::Ever).await?;
    shop.push(&["c"]).await?;
    not_now(&world, shop.take("default", 1)).await?;
    // What is out may still be settled, and the other group goes on.
    assert_eq!(shop.settle("default", &held[0], Decision::Ack).await?, Verdict::Acked);
    assert_eq!(ids(&shop.take("audit", 1).await?), BTreeSet::from(["c"]));
    let resumed = async {
        world.settled().await;
        shop.broker.resume_group(&orders()?, &GroupName::standard()).await
    };
    let (taken, resumed) = join(shop.take("default", 2), resumed).await;
    resumed?;
    let mut all = ids(&held);
    let taken = taken?;
    all.extend(ids(&taken));
    assert_eq!(all, BTreeSet::from(["a", "b", "c"]));
    Ok(())
}

async fn pause_returns_prefetched_messages(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    shop.push(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let held = shop.take("default", 2).await?;
    shop.pause("default", PauseFor::Ever).await?;
    // Scheduled again in the store, without a charge: all but the two that are out.
    world
        .until("what was prefetched is back", async || {
            let mut scheduled = 0;
            for name in &names {
                let (_, peeked) =
                    shop.broker.peek(&orders()?, &GroupName::standard(), &MessageId::new(name)?, None).await?;
                scheduled += usize::from(peeked.state == MessageState::Ready && peeked.attempts == 0);
            }
            Ok(scheduled == 18)
        })
        .await?;
    shop.broker.resume_group(&orders()?, &GroupName::standard()).await?;
    let rest = shop.take("default", 18).await?;
    assert!(rest.iter().all(|delivery| delivery.attempt == 1) && ids(&rest).is_disjoint(&ids(&held)));
    Ok(())
}

async fn timed_pause_resumes_by_itself(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    let span = Duration::from_secs(5);
    shop.pause("default", PauseFor::Span(span)).await?;
    let ends = world.now().plus(span);
    not_now(&world, shop.take("default", 1)).await?;
    let taken = world.as_time_passes(shop.take("default", 1)).await?;
    assert_eq!(ids(&taken), BTreeSet::from(["a"]));
    assert!(world.now() >= ends);
    // One that has ended would end a pause, and is refused, as one too long is.
    assert_eq!(kind_of(shop.pause("default", PauseFor::Until(world.now())).await), Some(Kind::Invalid));
    assert_eq!(kind_of(shop.pause("default", PauseFor::Span(LONG * 4_000)).await), Some(Kind::Invalid));
    assert_eq!(
        kind_of(shop.broker.pause_group(&orders()?, &named("none")?, PauseFor::Ever).await),
        Some(Kind::NotFound)
    );
    Ok(())
}

async fn pause_applies_to_all_brokers_and_survives_restarts(world: World) -> Result<()> {
    let (shop, other) = (Shop::open(&world)?, Shop::open(&world)?);
    shop.push(&["a"]).await?;
    let warm = shop.take("default", 1).await?;
    shop.ack_all("default", &warm).await?;
    other.pause("default", PauseFor::Ever).await?;
    world
        .until("the pause is known", async || {
            shop.push(&["probe"]).await?;
            let taken = shop.reserve("default", 1, Duration::ZERO);
            let taken = world.as_time_passes(taken).await?;
            shop.ack_all("default", &taken).await?;
            Ok(taken.is_empty())
        })
        .await?;
    shop.running.stop().await;
    drop(shop);
    let third = Shop::open(&world)?;
    third.push(&["b"]).await?;
    not_now(&world, third.take("default", 1)).await?;
    third.broker.resume_group(&orders()?, &GroupName::standard()).await?;
    third.take("default", 1).await?;
    Ok(())
}

async fn stream_stops_during_a_pause(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    let request = StreamRequest { max_in_flight: 10, visibility_timeout: None };
    let stream = shop.broker.stream(&orders()?, &GroupName::standard(), request).await?;
    assert!(stream.next(MINUTE).await.is_some());
    shop.pause("default", PauseFor::Ever).await?;
    shop.push(&["b"]).await?;
    not_now(&world, stream.next(LONG)).await?;
    let resumed = async {
        world.settled().await;
        shop.broker.resume_group(&orders()?, &GroupName::standard()).await
    };
    let (next, resumed) = join(stream.next(LONG), resumed).await;
    resumed?;
    assert_eq!(next.map(|delivery| delivery.message.id.as_str().to_owned()), Some("b".to_owned()));
    stream.end();
    Ok(())
}

async fn purged_group_delivers_no_earlier_message(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a", "b", "c", "d"]).await?;
    shop.make("audit", Some("default")).await?;
    let taken = shop.take("default", 1).await?;
    let purge = Purge { group: GroupName::standard(), dead_letters: false };
    assert_eq!(shop.broker.count_purge(&orders()?, &purge).await?, 4);
    let purged = shop.broker.purge_group(&orders()?, &purge).await?;
    assert_eq!((purged.messages, purged.dead_letters), (4, 0));
    let none = world.as_time_passes(shop.reserve("default", 9, Duration::ZERO)).await?;
    assert!(none.is_empty(), "not from memory either");
    let verdict = shop.settle("default", &taken[0], Decision::Ack).await?;
    assert_eq!(verdict, Verdict::Stale(StaleReason::LostPartition));
    assert_eq!(shop.counts("default").await?, [0, 0, 0, 0]);
    shop.push(&["a", "e"]).await?;
    // The group audit has a message of this id, so it is a duplicate.
    assert_eq!(ids(&world.as_time_passes(shop.take("default", 1)).await?), BTreeSet::from(["e"]));
    let audit = world.as_time_passes(shop.take("audit", 5)).await?;
    assert_eq!(ids(&audit), BTreeSet::from(["a", "b", "c", "d", "e"]));
    Ok(())
}

async fn group_being_copied_is_not_purged(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(&["a"]).await?;
    let mut wanted = world.store.topics.topic(&orders()?).await?.ok_or_else(|| Error::bug("no topic"))?;
    wanted.groups.push(named("audit")?);
    wanted.subscription_mut(&named("audit")?).copy_of = Some(GroupName::standard());
    world.store.topics.update(&wanted).await?;
    let purge = Purge { group: named("audit")?, dead_letters: false };
    assert_eq!(kind_of(shop.broker.purge_group(&orders()?, &purge).await), Some(Kind::Conflict));
    Ok(())
}
