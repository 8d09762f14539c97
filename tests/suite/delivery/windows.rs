//! Groups with a window, below HTTP: outside of it nothing is handed out, and at its opening those who wait are served.
//!
//! Every story begins on a Friday, 2026-01-02, at 03:04:05 UTC.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, PauseFor, ReserveRequest, StreamRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::time::{Timestamp, parse_timestamp};
use dwell::model::topic::Settings;
use dwell::store::MessageState;
use futures_util::future::{Either, join, select};

use crate::support::{Running, World, stories};

stories! {
    long_poll_is_served_when_the_window_opens, closed_group_gives_prefetched_messages_back,
    delivery_in_flight_is_settled_and_a_retry_waits_for_the_opening, stream_stops_while_the_window_is_closed,
    pause_that_ends_in_a_closed_window_delivers_nothing, removed_window_delivers_at_once, closed_time_is_not_lateness,
    window_is_known_to_other_brokers_and_after_a_restart, slow_group_gets_nothing_outside_of_its_window,
}

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than any story.
const LONG: Duration = Duration::from_secs(86_400);
/// The clock moves by 10 ms after each few hundred turns, in which a store on a busy machine may not have answered: the steps
/// of a few calls. A broker that polled would look after seconds.
const AT_ONCE: Duration = Duration::from_millis(500);

struct Shop {
    broker: Broker,
    running: Running,
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

fn group() -> GroupName {
    GroupName::standard()
}

fn at(time: &str) -> Result<Timestamp> {
    parse_timestamp(&format!("2026-01-02T{time}Z")).map_err(Error::bug)
}

impl Shop {
    fn open(world: &World) -> Result<Shop> {
        let partitions = NonZeroU16::MIN.saturating_add(1);
        let topic_defaults = Settings { partitions, visibility_timeout: LONG / 4, ..Settings::default() };
        let running = Running::start(world, Options { topic_defaults, lease_ttl: LONG, ..Options::default() })?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn push(&self, count: usize) -> Result<()> {
        let message = |n| Ok(NewMessage::new("x").id(MessageId::new(format!("m{n}"))?));
        self.broker.push_batch(&orders()?, (0..count).map(message).collect::<Result<_>>()?).await.map(drop)
    }

    async fn window(&self, window: Option<&str>) -> Result<()> {
        let window = window.map(str::parse).transpose().map_err(Error::bug)?;
        let request = GroupRequest { window: Some(window), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &group(), request).await.map(drop)
    }

    async fn reserve(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker.reserve(&orders()?, &group(), request).await
    }

    async fn take(&self, count: usize) -> Result<Vec<Delivery>> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.reserve(count - all.len(), MINUTE).await?);
        }
        Ok(all)
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker.settle(&orders()?, &group(), decisions).await?[0])
    }

    /// Why a message waits, and until when.
    async fn explained(&self, id: &str) -> Result<(&'static str, Option<Timestamp>)> {
        let explained = self.broker.explain(&orders()?, &MessageId::new(id)?, None).await?;
        let (_, reason) = explained.groups.into_iter().next().ok_or_else(|| Error::bug("no group"))?;
        Ok((reason.name, reason.until))
    }
}

/// That something does not happen while everything else does.
async fn not_now<T>(world: &World, happens: impl Future<Output = T>) -> Result<()> {
    match select(std::pin::pin!(happens), std::pin::pin!(world.settled())).await {
        Either::Left(_) => Err(Error::bug("it happened")),
        Either::Right(_) => Ok(()),
    }
}

/// Moves the clock to a time of the day.
fn pass_to(world: &World, time: &str) -> Result<()> {
    world.time.advance(at(time)?.since(world.now()));
    Ok(())
}

async fn long_poll_is_served_when_the_window_opens(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(2).await?;
    shop.window(Some("fri 03:05-03:10")).await?;
    not_now(&world, shop.take(1)).await?;
    assert_eq!(shop.explained("m0").await?, ("closed", Some(at("03:05:00")?)));
    let opens = async {
        world.settled().await;
        pass_to(&world, "03:04:59")
    };
    let polls = async {
        let (taken, opens) = join(shop.take(2), opens).await;
        opens.and(taken)
    };
    let taken = world.as_time_passes(polls).await?;
    let waited = world.now().since(at("03:05:00")?);
    assert!(world.now() >= at("03:05:00")? && waited <= AT_ONCE, "{waited:?}");
    assert!(taken.iter().all(|delivery| delivery.lateness <= AT_ONCE), "{taken:?}");
    Ok(())
}

async fn closed_group_gives_prefetched_messages_back(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(20).await?;
    shop.window(Some("03:00-03:05")).await?;
    let held = shop.take(2).await?;
    // Nobody asks at the moment at which it closes.
    pass_to(&world, "03:05:00")?;
    world
        .until("what was prefetched is back", async || {
            let mut ready = 0;
            for n in 0..20 {
                let id = MessageId::new(format!("m{n}"))?;
                let (_, peeked) = shop.broker.peek(&orders()?, &group(), &id, None).await?;
                ready += usize::from(peeked.state == MessageState::Ready && peeked.attempts == 0);
            }
            Ok(ready == 18)
        })
        .await?;
    not_now(&world, shop.take(1)).await?;
    assert_eq!(shop.settle(&held[0], Decision::Ack).await?, Verdict::Acked);
    Ok(())
}

async fn delivery_in_flight_is_settled_and_a_retry_waits_for_the_opening(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(2).await?;
    shop.window(Some("03:00-03:05")).await?;
    let held = shop.take(2).await?;
    pass_to(&world, "03:05:00")?;
    assert_eq!(shop.settle(&held[0], Decision::Ack).await?, Verdict::Acked);
    let nack = Decision::Nack { delay: Some(Duration::ZERO), reason: None };
    assert_eq!(shop.settle(&held[1], nack).await?, Verdict::Nacked);
    world.pass(10);
    not_now(&world, shop.take(1)).await?;
    shop.window(Some("03:06-03:10")).await?;
    pass_to(&world, "03:05:59.900")?;
    let retried = world.as_time_passes(shop.take(1)).await?;
    assert!(world.now() >= at("03:06:00")?);
    assert_eq!((retried[0].attempt, &retried[0].message.id), (2, &held[1].message.id));
    Ok(())
}

async fn stream_stops_while_the_window_is_closed(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(1).await?;
    shop.window(Some("03:00-03:05")).await?;
    let request = StreamRequest { max_in_flight: 10, visibility_timeout: None };
    let stream = shop.broker.stream(&orders()?, &group(), request).await?;
    let first = stream.next(MINUTE).await.ok_or_else(|| Error::bug("nothing came"))?;
    assert_eq!(shop.settle(&first, Decision::Ack).await?, Verdict::Acked);
    pass_to(&world, "03:05:00")?;
    shop.broker.push(&orders()?, NewMessage::new("x").id(MessageId::new("later")?)).await?;
    not_now(&world, stream.next(LONG)).await?;
    shop.window(None).await?;
    let next = stream.next(LONG).await;
    assert_eq!(next.map(|delivery| delivery.message.id.as_str().to_owned()), Some("later".to_owned()));
    stream.end();
    Ok(())
}

async fn pause_that_ends_in_a_closed_window_delivers_nothing(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(1).await?;
    shop.window(Some("03:06-03:10")).await?;
    shop.broker.pause_group(&orders()?, &group(), PauseFor::Until(at("03:05:30")?)).await?;
    assert_eq!(shop.explained("m0").await?, ("paused", Some(at("03:05:30")?)));
    let passes = async {
        world.settled().await;
        pass_to(&world, "03:05:30")?;
        world.settled().await;
        assert_eq!(shop.explained("m0").await?, ("closed", Some(at("03:06:00")?)));
        pass_to(&world, "03:05:59.900")
    };
    let (taken, passed) = world.as_time_passes(join(shop.take(1), passes)).await;
    passed?;
    assert_eq!(taken?.len(), 1);
    assert!(world.now() >= at("03:06:00")?);
    Ok(())
}

async fn removed_window_delivers_at_once(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(1).await?;
    shop.window(Some("sat-thu 00:00-23:59")).await?;
    not_now(&world, shop.take(1)).await?;
    let removed = async {
        world.settled().await;
        shop.window(None).await
    };
    let (taken, removed) = join(shop.take(1), removed).await;
    removed?;
    assert_eq!(taken?.len(), 1);
    assert_eq!(shop.broker.topic(&orders()?).await?.subscription(&group()).window, None);
    Ok(())
}

/// It was due for the last five seconds of a window, and for the whole time until the next one opens.
async fn closed_time_is_not_lateness(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let due = NewMessage { due: Due::At(at("03:04:55")?), ..NewMessage::new("x").id(MessageId::new("m0")?) };
    shop.broker.push(&orders()?, due).await?;
    shop.window(Some("03:00-03:05")).await?;
    pass_to(&world, "03:30:00")?;
    let stats = shop.broker.stats(&orders()?).await?;
    let oldest = stats.into_iter().filter_map(|(_, stats)| stats.oldest_ready_age).max();
    assert_eq!(oldest, Some(Duration::from_secs(5)));
    world.time.advance(LONG - Duration::from_secs(1_800));
    // Saturday 03:00:00.
    let taken = world.as_time_passes(shop.take(1)).await?;
    let late = taken[0].lateness;
    assert!((Duration::from_secs(5)..Duration::from_secs(5) + AT_ONCE).contains(&late), "{late:?}");
    Ok(())
}

async fn window_is_known_to_other_brokers_and_after_a_restart(world: World) -> Result<()> {
    let (shop, other) = (Shop::open(&world)?, Shop::open(&world)?);
    shop.push(1).await?;
    other.window(Some("03:05-03:10 UTC")).await?;
    shop.running.stop().await;
    drop(shop);
    let third = Shop::open(&world)?;
    not_now(&world, third.take(1)).await?;
    pass_to(&world, "03:04:59.900")?;
    assert_eq!(world.as_time_passes(third.take(1)).await?.len(), 1);
    assert!(world.now() >= at("03:05:00")?);
    Ok(())
}

/// Slots of its rate hand nothing out either.
async fn slow_group_gets_nothing_outside_of_its_window(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    shop.push(3).await?;
    let window = Some(Some("03:05-03:10".parse().map_err(|why: String| Error::bug(why))?));
    let request = GroupRequest { rate: Some(100.0), window, ..GroupRequest::default() };
    shop.broker.create_group(&orders()?, &group(), request).await?;
    pass_to(&world, "03:04:59")?;
    let taken = world.as_time_passes(shop.take(3)).await?;
    let (opened, last) = (at("03:05:00")?, world.now());
    assert!(taken.len() == 3 && last >= opened && last.since(opened) < Duration::from_secs(2), "{last}");
    Ok(())
}
