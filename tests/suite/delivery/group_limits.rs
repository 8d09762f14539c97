//! Groups with limits, below HTTP: no second has more hand-overs than the rate, and no moment more deliveries in flight
//! than the limit, whoever hands them out.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::topic::Settings;
use futures_util::future::join;

use crate::support::{Running, World, kind_of, stories};

stories! {
    rate_limit_holds_in_every_second, removed_limit_delays_nothing, slow_rate_spaces_deliveries,
    short_polls_get_their_share_of_the_rate, in_flight_limit_is_enforced, next_owner_takes_over_the_share_of_the_limit,
    a_limit_below_the_partitions_is_refused,
}

const VISIBILITY: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

struct Shop {
    broker: Broker,
    running: Running,
}

impl Shop {
    fn open(world: &World, lease_ttl: Duration) -> Result<Shop> {
        let topic_defaults = Settings {
            partitions: NonZeroU16::MIN.saturating_add(1),
            visibility_timeout: VISIBILITY,
            ..Settings::default()
        };
        let options = Options { topic_defaults, lease_ttl, drain_timeout: Duration::ZERO, ..Options::default() };
        let running = Running::start(world, options)?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn push(&self, count: usize) -> Result<()> {
        let message = |n| Ok(NewMessage::new("x").id(MessageId::new(format!("m{n}"))?));
        self.broker.push_batch(&orders()?, (0..count).map(message).collect::<Result<_>>()?).await.map(drop)
    }

    async fn limit(&self, rate: Option<f64>, max_in_flight: Option<u32>) -> Result<()> {
        let wish = GroupRequest { rate, max_in_flight, ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    async fn reserve(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker.reserve(&orders()?, &GroupName::standard(), request).await
    }

    async fn ack(&self, delivery: &Delivery) -> Result<()> {
        let decisions = vec![(delivery.receipt.to_string(), Decision::Ack)];
        let verdicts = self.broker.settle(&orders()?, &GroupName::standard(), decisions).await?;
        assert_eq!(verdicts, [Verdict::Acked]);
        Ok(())
    }

    /// Asks for messages, a few at a time, until none has come for so long; answers when each was handed out.
    async fn drain(&self, max: usize, patience: Duration) -> Result<Vec<Timestamp>> {
        let mut times = Vec::new();
        loop {
            let deliveries = self.reserve(max, patience).await?;
            if deliveries.is_empty() {
                return Ok(times);
            }
            let visibility = u64::try_from(VISIBILITY.as_millis()).unwrap_or(0);
            times.extend(deliveries.iter().map(|it| Timestamp::from_ms(it.deadline.as_ms() - visibility)));
        }
    }
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

/// The most hand-overs in any one second.
fn most_in_a_second(times: &mut [Timestamp]) -> usize {
    times.sort();
    let within = |from: &Timestamp| times.iter().filter(|at| *at >= from && at.since(*from) < SECOND).count();
    times.iter().map(within).max().unwrap_or(0)
}

async fn rate_limit_holds_in_every_second(world: World) -> Result<()> {
    let long = Duration::from_secs(86_400);
    let (one, two) = (Shop::open(&world, long)?, Shop::open(&world, long)?);
    one.push(120).await?;
    one.limit(Some(20.0), None).await?;
    let began = world.now();
    // Several consumers at each of two brokers, greedy and modest ones.
    let all = world
        .as_time_passes(async {
            let at_one = join(one.drain(50, 3 * SECOND), one.drain(1, 3 * SECOND));
            let at_two = join(two.drain(7, 3 * SECOND), two.drain(1, 3 * SECOND));
            join(at_one, at_two).await
        })
        .await;
    let mut times = Vec::new();
    for part in [all.0.0, all.0.1, all.1.0, all.1.1] {
        times.extend(part?);
    }
    assert_eq!(times.len(), 120);
    assert!(most_in_a_second(&mut times) <= 20, "{times:?}");
    let last = times.last().map_or(Duration::ZERO, |last| last.since(began));
    assert!((6 * SECOND..30 * SECOND).contains(&last), "{last:?}");
    Ok(())
}

async fn removed_limit_delays_nothing(world: World) -> Result<()> {
    let shop = Shop::open(&world, Duration::from_secs(86_400))?;
    shop.push(50).await?;
    shop.limit(Some(1.0), None).await?;
    assert_eq!(world.as_time_passes(shop.reserve(50, 5 * SECOND)).await?.len(), 1);
    shop.limit(Some(0.0), None).await?;
    let mut rest = Vec::new();
    while rest.len() < 49 {
        rest.extend(world.as_time_passes(shop.reserve(50, SECOND)).await?);
    }
    Ok(())
}

async fn slow_rate_spaces_deliveries(world: World) -> Result<()> {
    let shop = Shop::open(&world, Duration::from_secs(86_400))?;
    shop.push(4).await?;
    shop.limit(Some(0.5), None).await?;
    let mut times = world.as_time_passes(shop.drain(10, 5 * SECOND)).await?;
    times.sort();
    assert_eq!(times.len(), 4);
    assert!(times.windows(2).all(|two| two[1].since(two[0]) >= 2 * SECOND), "{times:?}");
    Ok(())
}

async fn short_polls_get_their_share_of_the_rate(world: World) -> Result<()> {
    let shop = Shop::open(&world, Duration::from_secs(86_400))?;
    shop.push(40).await?;
    shop.limit(Some(5.0), None).await?;
    let mut taken = 0;
    for _ in 0..20 {
        // Two seconds apart, each for the moment that a poll looks.
        taken += world.as_time_passes(shop.reserve(10, Duration::ZERO)).await?.len();
        world.pass(2_000);
    }
    assert!(taken >= 10, "{taken}");
    Ok(())
}

async fn in_flight_limit_is_enforced(world: World) -> Result<()> {
    let long = Duration::from_secs(86_400);
    let (one, two) = (Shop::open(&world, long)?, Shop::open(&world, long)?);
    one.broker.declare(orders()?, one.broker.topic_defaults().clone()).await?;
    one.limit(None, Some(5)).await?;
    // Each owns a partition before there is anything: what is moved with its owner is handed out again.
    let owners = async || -> Result<usize> {
        let stats = one.broker.stats(&orders()?).await?;
        let owners: std::collections::BTreeSet<_> = stats.into_iter().filter_map(|(_, stats)| stats.owner).collect();
        Ok(owners.len())
    };
    while owners().await? < 2 {
        let (at_one, at_two) = world.as_time_passes(join(one.reserve(1, SECOND), two.reserve(1, SECOND))).await;
        assert!(at_one?.is_empty() && at_two?.is_empty());
    }
    one.push(40).await?;
    let mut held: Vec<(bool, Delivery)> = Vec::new();
    let take = async |held: &mut Vec<(bool, Delivery)>| -> Result<()> {
        let both = join(one.reserve(20, SECOND), two.reserve(20, SECOND));
        let (at_one, at_two) = world.as_time_passes(both).await;
        held.extend(at_one?.into_iter().map(|delivery| (true, delivery)));
        held.extend(at_two?.into_iter().map(|delivery| (false, delivery)));
        Ok(())
    };
    for _ in 0..4 {
        take(&mut held).await?;
        assert!(held.len() <= 5, "{}", held.len());
    }
    assert_eq!(held.len(), 5);
    for _ in 0..3 {
        let (at_one, done) = held.remove(0);
        if at_one { one.ack(&done).await? } else { two.ack(&done).await? }
    }
    for _ in 0..4 {
        take(&mut held).await?;
        assert!(held.len() <= 5, "{}", held.len());
    }
    assert_eq!(held.len(), 5);
    // A lower limit takes nothing away; it waits until there are fewer.
    one.limit(None, Some(2)).await?;
    world.settled().await;
    for _ in 0..3 {
        let (at_one, done) = held.remove(0);
        if at_one {
            one.ack(&done).await?
        } else {
            two.ack(&done).await?
        }
        take(&mut held).await?;
    }
    assert!(held.len() <= 3, "{}", held.len());
    one.limit(None, Some(0)).await?;
    for _ in 0..6 {
        take(&mut held).await?;
    }
    assert_eq!(held.len(), 34);
    Ok(())
}

async fn next_owner_takes_over_the_share_of_the_limit(world: World) -> Result<()> {
    let ttl = 2 * SECOND;
    let first = Shop::open(&world, ttl)?;
    first.push(20).await?;
    first.limit(None, Some(4)).await?;
    let mut held = Vec::new();
    while held.len() < 4 {
        held.extend(world.as_time_passes(first.reserve(20, SECOND)).await?);
    }
    // Without a word: its leases lapse, and what it had is handed out by the next, in its share and no more.
    drop(first);
    let next = Shop::open(&world, ttl)?;
    let taken = async {
        let mut all = Vec::new();
        while all.len() < 4 {
            all.extend(next.reserve(20, SECOND).await?);
        }
        all.extend(next.reserve(20, SECOND).await?);
        Ok::<_, dwell::model::error::Error>(all)
    };
    let taken = world.as_time_passes(taken).await?;
    assert_eq!(taken.len(), 4);
    next.running.stop().await;
    Ok(())
}

async fn a_limit_below_the_partitions_is_refused(world: World) -> Result<()> {
    let shop = Shop::open(&world, SECOND)?;
    shop.push(1).await?;
    assert_eq!(kind_of(shop.limit(None, Some(1)).await), Some(Kind::Invalid));
    for rate in [-1.0, f64::NAN, 1e9] {
        assert_eq!(kind_of(shop.limit(Some(rate), None).await), Some(Kind::Invalid), "{rate}");
    }
    let unchanged = shop.broker.topic(&orders()?).await?;
    assert!(unchanged.subscriptions.is_empty(), "{unchanged:?}");
    Ok(())
}
