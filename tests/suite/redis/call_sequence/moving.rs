//! Messages on their way to another topic: a reply is lost, the broker that moves them dies half-way, a copy arrives late.
//! All the while they are in one of the two topics, and found there.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Due, GroupName, MessageId, TopicName};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::{Expected, Fate, MessageState, MovedPage, Purge, Pushed, Renewal, Rescheduled, Window};

use super::OrderedTopics;
use crate::support::{
    LEASE, Strike, TestTopic, acks, buries, eventually, fates_of, ids, kind_of, member, new_call, up_to,
};

/// In a call that begins a page, and in no other: where the page goes.
const BEGIN: &str = "wider 1";
/// In a call that places messages, and in no other: two keys beside each other.
const PLACE: &str = ":gen\r\n$21\r\n{dwell:wider:";
/// In a call that closes a partition to a page, and in no other: its key and the stream behind it.
const CLOSE: &str = ":moved\r\n$12\r\n";
/// In a call that ends a page, and in no other: two keys beside each other.
const END: &str = "{dwell:orders:0}:default:r\r\n$21\r\n{dwell:orders:0}:wake";

const IDS: [&str; 4] = ["a", "b", "c", "dead"];

struct Moving {
    behind: OrderedTopics,
    to: TestTopic,
}

impl Moving {
    /// Three messages that wait and a dead one, and a topic of two partitions for them.
    async fn start() -> Result<Moving> {
        let behind = OrderedTopics::start().await?;
        let orders = behind.orders.clone();
        // Redis learns the scripts, so that a copy of a call is one that it could apply.
        let (warm, warmer) = (behind.world.topic("warm").await?, Moving::topic(&behind, "warmer").await?);
        warm.push("w", 0).await?;
        let page = warm.store.maintenance.move_page(&warm.descriptor, &warm.group_partition(), &warmer).await?;
        warm.store.maintenance.moved(&warm.group_partition(), &page).await?;
        let to = TestTopic { descriptor: Moving::topic(&behind, "wider").await?, ..orders.clone() };
        orders.push("dead", 0).await?;
        let mut owner = orders.owner().await?;
        let taken = owner.reserve(up_to(1)).await?;
        owner.settle(&buries(taken.reservation, &["dead"], &[])?).await?;
        owner.release(Timestamp::ZERO).await?;
        for id in &IDS[..3] {
            orders.push(id, 0).await?;
        }
        Ok(Moving { behind, to })
    }

    async fn topic(behind: &OrderedTopics, name: &str) -> Result<Descriptor> {
        let settings = Settings { partitions: NonZeroU16::MIN.saturating_add(1), ..Settings::default() };
        behind.world.store.topics.create(&Descriptor::new(TopicName::new(name)?, settings)).await
    }

    fn orders(&self) -> &TestTopic {
        &self.behind.orders
    }

    async fn page(&self) -> Result<MovedPage> {
        let orders = self.orders();
        orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &self.to.descriptor).await
    }

    async fn moved(&self, page: &MovedPage) -> Result<()> {
        self.orders().store.maintenance.moved(&self.orders().group_partition(), page).await
    }

    async fn finish(&self) -> Result<()> {
        loop {
            let page = self.page().await?;
            if !page.more {
                return Ok(());
            }
            self.moved(&page).await?;
        }
    }

    async fn call_back(&self) -> Result<()> {
        self.orders().store.maintenance.call_back_move(&self.orders().group_partition()).await
    }

    /// The ids that a topic has in any state, each from its list, and whether the counts agree with them.
    async fn found(&self, topic: &TestTopic) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for partition in topic.descriptor.partitions() {
            let partition = topic.descriptor.group_partition(partition, &GroupName::standard());
            let (reads, before) = (&topic.store.reads, found.len());
            let waiting = reads.waiting(&partition, Window::ALL, None, 100).await?.messages;
            let in_flight = reads.in_flight(&partition, None, 100).await?.messages;
            found.extend(waiting.iter().chain(&in_flight).map(|listed| listed.id.to_string()));
            let dead = topic.store.dead_letters.dead(&partition, None, 100).await?.dead;
            found.extend(dead.iter().map(|dead| dead.id.to_string()));
            let stats = topic.stats_of(&partition).await?;
            assert_eq!(stats.scheduled + stats.ready, waiting.len() as u64, "{partition}");
            assert_eq!(stats.in_flight, in_flight.len() as u64, "{partition}");
            assert_eq!(stats.dead, dead.len() as u64, "{partition}");
            assert_eq!((found.len() - before) as u64, stats.scheduled + stats.ready + stats.in_flight + stats.dead);
            let audit = topic.store.maintenance.audit(&partition, None, false).await?;
            assert_eq!(audit.findings, [], "{partition}");
        }
        Ok(found)
    }

    /// Both topics, none twice, none missing; what the first has is due or dead, and nothing is on its way.
    async fn is_whole(&self, step: &str) -> Result<()> {
        let mut all = self.found(self.orders()).await?;
        all.extend(self.found(&self.to).await?);
        all.sort();
        assert_eq!(all, IDS, "{step}");
        assert_eq!(self.orders().stats().await?.in_flight, 0, "{step}");
        Ok(())
    }
}

/// Each call of a page is lost on its way or answered in vain; then the move is repeated, or called back, or repeated after
/// that.
#[tokio::test]
async fn page_that_is_interrupted_anywhere_is_whole_afterwards() -> Result<()> {
    for strike in [Strike::Request, Strike::Reply] {
        for call in [BEGIN, PLACE, END] {
            for remedy in 0..3 {
                let moving = Moving::start().await?;
                moving.behind.proxy.next_with(strike, call);
                let step = format!("{strike:?} {call} {remedy}");
                let interrupted = match moving.page().await {
                    Ok(page) => moving.moved(&page).await,
                    Err(error) => Err(error),
                };
                assert!(interrupted.is_err_and(|error| error.is_outage()), "{step}");
                moving.behind.proxy.struck()?;
                // What arrived is in both until the page ends, and no consumer of the first gets it.
                let all: BTreeSet<String> = moving.found(moving.orders()).await?.into_iter().collect();
                let there: BTreeSet<String> = moving.found(&moving.to).await?.into_iter().collect();
                assert_eq!(all.union(&there).collect::<Vec<_>>(), IDS, "{step}");
                if remedy > 0 {
                    eventually("the page is called back", async || Ok(moving.call_back().await.ok())).await?;
                    moving.is_whole(&step).await?;
                }
                if remedy != 1 {
                    moving.finish().await?;
                    moving.is_whole(&step).await?;
                    assert_eq!(moving.found(moving.orders()).await?, Vec::<String>::new(), "{step}");
                }
            }
        }
    }
    Ok(())
}

/// Nobody consumes the group, so no owner calls the page back: the call that wants a message of it does.
#[tokio::test]
async fn message_of_an_interrupted_move_is_changed_in_a_group_that_nobody_consumes() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Reply, BEGIN);
    assert!(moving.page().await.is_err());
    let shop = moving.behind.shop()?;
    let (topic, id) = (TopicName::new("orders")?, MessageId::new("a")?);
    let in_an_hour = Due::In(Duration::from_secs(3_600));
    let moved = shop.broker().reschedule(&topic, &id, None, in_an_hour, Expected::default()).await?;
    assert!(matches!(moved.rescheduled, Rescheduled::Done(fates) if fates_of(&fates) == [Fate::Done]));
    let (_, cancelled) = shop.broker().cancel(&topic, &id, None).await?;
    assert_eq!(fates_of(&cancelled.fates), [Fate::Done]);
    let mut left = moving.found(moving.orders()).await?;
    left.sort();
    assert_eq!(left, ["b", "c", "dead"]);
    Ok(())
}

/// The broker died before anything was placed: until somebody ends the page its messages are in flight, whoever asks.
#[tokio::test]
async fn messages_on_their_way_are_found_and_nobody_takes_them() -> Result<()> {
    let moving = Moving::start().await?;
    let orders = moving.orders();
    moving.behind.proxy.next_with(Strike::Reply, BEGIN);
    assert!(moving.page().await.is_err());
    assert_eq!(moving.found(orders).await?, IDS);
    let peeked = orders.peek("a").await?.ok_or_else(|| Error::not_found("a"))?;
    assert_eq!((peeked.state, peeked.moving_to), (MessageState::InFlight, Some(TopicName::new("wider")?)));
    assert_eq!(orders.cancel("a").await?, [Fate::InFlight]);
    assert_eq!(orders.reschedule("a", 5_000).await?, [Fate::InFlight]);
    assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
    // Neither does an owner, which does not take them for an orphan or a loss either.
    let mut owner = orders.owner().await?;
    let recovered = owner.recover().await?;
    assert_eq!(
        (recovered.messages, recovered.orphans, recovered.left_behind, recovered.is_moving),
        (0, 0, false, true)
    );
    orders.push("e", 0).await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!((taken.messages.len(), taken.unsettled), (1, 1));
    owner.settle(&acks(&["e"])?).await?;
    let renewed = orders.renew(&member("owner"), &*owner, LEASE).await?;
    assert!(matches!(renewed, Renewal::Kept(head) if head.is_moving), "{renewed:?}");
    moving.call_back().await?;
    assert!(!owner.recover().await?.is_moving);
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!((taken.messages.len(), taken.unsettled), (3, 3));
    Ok(())
}

/// The next owner gives them back, and its consumer gets them.
#[tokio::test]
async fn next_owner_delivers_what_a_dead_broker_was_moving() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    let shop = moving.behind.shop()?;
    assert_eq!(shop.ids(3).await?, IDS[..3]);
    shop.running.stop().await;
    Ok(())
}

/// So does an owner that was there all the while.
#[tokio::test]
async fn living_owner_gives_back_what_a_dead_broker_was_moving() -> Result<()> {
    let moving = Moving::start().await?;
    let shop = moving.behind.shop()?;
    let mut acked = BTreeSet::new();
    while acked.len() < 3 {
        shop.consume(&mut acked).await?;
    }
    for id in ["x", "y"] {
        moving.orders().push(id, 600_000).await?;
    }
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    let back = async || Ok((moving.orders().stats().await?.scheduled == 2).then_some(()));
    eventually("the owner has given them back", back).await?;
    shop.running.stop().await;
    Ok(())
}

#[tokio::test]
async fn late_copy_of_a_page_that_was_called_back_places_nothing() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    let copy = moving.behind.proxy.struck()?;
    moving.behind.proxy.next_with(Strike::Request, CLOSE);
    assert!(moving.call_back().await.is_err());
    moving.behind.proxy.struck()?;
    moving.call_back().await?;
    let answer = moving.behind.without_effect(&copy).await?;
    assert!(answer.contains("CLOSED"), "{answer}");
    moving.is_whole("called back").await?;
    moving.finish().await?;
    let answer = moving.behind.without_effect(&copy).await?;
    assert!(answer.contains("CLOSED"), "{answer}");
    moving.is_whole("moved").await
}

/// An owner calls the page back while its broker is about to end it: what was given back stays.
#[tokio::test]
async fn broker_that_was_overtaken_ends_no_page() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    // It has closed one partition to the page, and dies.
    moving.behind.proxy.next_with(Strike::Request, END);
    assert!(moving.call_back().await.is_err());
    let page = moving.page().await?;
    assert_eq!((page.waiting, page.arrived.refused.len()), (0, 3));
    moving.moved(&page).await?;
    moving.is_whole("overtaken").await?;
    assert_eq!(moving.orders().stats().await?.ready, 3);
    moving.finish().await?;
    moving.is_whole("moved").await
}

#[tokio::test]
async fn deleted_target_gives_everything_back() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    moving.to.store.topics.delete(&moving.to.descriptor).await?;
    assert_eq!(kind_of(moving.page().await), Some(Kind::Stale));
    assert_eq!(moving.orders().stats().await?.ready, 3);
    let to = Moving::topic(&moving.behind, "wider").await?;
    let to = TestTopic { descriptor: to, ..moving.to.clone() };
    let moving = Moving { to, ..moving };
    moving.finish().await?;
    moving.is_whole("made anew").await
}

/// Redis takes no more bodies: nothing is moved, and nothing stays on its way.
#[tokio::test]
async fn full_redis_gives_everything_back() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.server.ask::<()>("CONFIG SET maxmemory 100kb").await?;
    assert!(moving.page().await.is_err());
    moving.is_whole("full").await?;
    assert_eq!(moving.orders().stats().await?.ready, 3);
    moving.behind.server.ask::<()>("CONFIG SET maxmemory 0").await?;
    moving.finish().await?;
    moving.is_whole("moved").await
}

#[tokio::test]
async fn second_move_calls_back_the_first() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    let third = TestTopic { descriptor: Moving::topic(&moving.behind, "third").await?, ..moving.to.clone() };
    let second = Moving { to: third, behind: moving.behind };
    second.finish().await?;
    second.is_whole("moved elsewhere").await?;
    assert_eq!(second.found(second.orders()).await?, Vec::<String>::new());
    Ok(())
}

/// A purge counts what is still in its group, and no message that it counted is in the other topic.
#[tokio::test]
async fn purge_of_the_source_ends_the_page_first() -> Result<()> {
    for (strike, purged) in [(Strike::Request, true), (Strike::Reply, false)] {
        let moving = Moving::start().await?;
        moving.behind.proxy.next_with(strike, PLACE);
        assert!(moving.page().await.is_err());
        let copy = moving.behind.proxy.struck()?;
        let orders = moving.orders();
        let purge = Purge { group: GroupName::standard(), dead_letters: true };
        let call = new_call(&*orders.store.backend, 1);
        let answer = orders.store.messages.purge_group(&orders.descriptor, Partition(0), &call, &purge).await?;
        let there = moving.found(&moving.to).await?.len() as u64;
        assert_eq!((answer.messages + there, answer.dead_letters), (3, 1), "{strike:?}");
        assert_eq!(there == 0, purged, "{strike:?}");
        moving.behind.proxy.deliver(&copy).await?;
        assert_eq!(moving.found(&moving.to).await?.len() as u64, there, "{strike:?}");
        assert_eq!(moving.found(orders).await?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test]
async fn deleted_source_leaves_no_message() -> Result<()> {
    let moving = Moving::start().await?;
    moving.behind.proxy.next_with(Strike::Request, PLACE);
    assert!(moving.page().await.is_err());
    moving.to.store.topics.delete(&moving.orders().descriptor).await?;
    let left: Vec<String> = moving.behind.server.ask("KEYS {dwell:orders:0}:default:*").await?;
    assert_eq!(left, Vec::<String>::new());
    Ok(())
}

/// A dead letter on a page of a move is redriven or purged once, where it is.
#[tokio::test]
async fn dead_letter_on_its_way_is_called_back_before_it_is_redriven_or_purged() -> Result<()> {
    for redrives in [true, false] {
        let moving = Moving::start().await?;
        let page = moving.page().await?;
        moving.moved(&page).await?;
        moving.behind.proxy.next_with(Strike::Request, PLACE);
        assert!(moving.page().await.is_err());
        let copy = moving.behind.proxy.struck()?;
        let orders = moving.orders();
        assert_eq!(orders.stats().await?.dead, 1);
        let (partition, dead) = (orders.group_partition(), ids(&["dead"])?);
        if redrives {
            assert_eq!(orders.store.dead_letters.redrive(&partition, &dead).await?, [true]);
            assert_eq!(orders.stats().await?.ready, 1);
        } else {
            assert!(orders.store.dead_letters.purge(&partition, &dead).await?[0].is_some());
        }
        moving.behind.proxy.deliver(&copy).await?;
        assert_eq!(orders.stats().await?.dead, 0);
        assert!(!moving.found(&moving.to).await?.contains(&"dead".to_owned()));
        assert_eq!(orders.peek("dead").await?.is_some(), redrives);
    }
    Ok(())
}

/// What arrived was consumed before the page ended: it does not come again.
#[tokio::test]
async fn what_arrived_and_was_consumed_is_not_placed_again() -> Result<()> {
    let moving = Moving::start().await?;
    let page = moving.page().await?;
    for partition in moving.to.descriptor.partitions() {
        let partition = moving.to.descriptor.group_partition(partition, &GroupName::standard());
        let mut owner = moving.to.acquire(&partition, &member("owner"), LEASE).await?;
        let taken = owner.reserve(up_to(9)).await?;
        let ids: Vec<MessageId> = taken.messages.into_iter().map(|message| message.id).collect();
        owner.settle(&dwell::store::Settlement { acked: ids, ..Default::default() }).await?;
    }
    let again = moving.page().await?;
    assert!(again.arrived.messages.iter().all(|message| message.was_stored));
    moving.moved(&page).await?;
    moving.moved(&again).await?;
    moving.finish().await?;
    assert_eq!(moving.found(moving.orders()).await?, Vec::<String>::new());
    assert_eq!(moving.found(&moving.to).await?, ["dead"]);
    Ok(())
}
