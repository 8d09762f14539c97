//! Fair groups: the keys that have due messages take turns, however many one of them has.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, HeldKey, HeldKeys, KeyLimit};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::{Fairness, KeyException, KeyPatterns, Ordering, Settings, Weight};
use dwell::store::Fate;

use crate::support::{Running, World, eventually, kind_of, stories};

stories! {
    a_quiet_key_does_not_wait_for_a_busy_one, messages_without_a_key_are_one_key, a_retry_of_a_quiet_key_has_its_turn,
    the_next_owner_goes_on_with_what_was_sorted, a_group_that_is_fair_no_more_delivers_everything,
    a_group_becomes_fair_for_what_waits, a_key_at_its_limit_waits_and_others_do_not, a_key_waits_for_its_rate_and_others_do_not,
    the_rate_of_a_key_holds_across_owners, sorted_messages_are_found_by_their_ids,
    the_busiest_keys_are_known, with_an_ordering_it_is_refused, shares_are_by_weight_and_weights_count_at_once,
    some_keys_have_other_limits,
}

const SECOND: Duration = Duration::from_secs(1);

struct Shop {
    broker: Broker,
    running: Running,
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

/// The key of a message is what its id has before the hyphen.
fn key_of(id: &str) -> &str {
    id.split_once('-').map_or("", |(key, _)| key)
}

impl Shop {
    fn start(world: &World) -> Result<Shop> {
        let options = Options { drain_timeout: Duration::ZERO, ..Options::default() };
        let running = Running::start(world, options)?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn open(world: &World, fair: Fairness) -> Result<Shop> {
        let shop = Shop::start(world)?;
        shop.broker.declare(orders()?, Settings { partitions: NonZeroU16::MIN, ..Settings::default() }).await?;
        shop.take_turns(fair).await?;
        Ok(shop)
    }

    async fn limit_keys(&self, key_max_in_flight: u32) -> Result<()> {
        let wish = GroupRequest { key_max_in_flight: Some(key_max_in_flight), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    async fn pace_keys(&self, key_rate: f64, key_burst: u32) -> Result<()> {
        let wish = GroupRequest { key_rate: Some(key_rate), key_burst: Some(key_burst), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    async fn weigh(&self, weights: &[(&str, u32)]) -> Result<()> {
        let weights = weights.iter().map(|(pattern, weight)| Ok(((*pattern).to_owned(), Weight::new(*weight)?)));
        let weights = KeyPatterns::new("weights", weights.collect::<Result<_>>()?)?;
        let wish = GroupRequest { weights: Some(weights), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    async fn except(&self, limits: &[(&str, KeyException)]) -> Result<()> {
        let limits = limits.iter().map(|(pattern, limit)| ((*pattern).to_owned(), *limit)).collect();
        let key_limits = Some(KeyPatterns::new("key_limits", limits)?);
        let wish = GroupRequest { key_limits, ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    /// What explain says of a message that waits.
    async fn why(&self, id: &str) -> Result<&'static str> {
        let (message, key) = (MessageId::new(id)?, Key::new(key_of(id))?);
        let explained = self.broker.explain(&orders()?, &message, Some(&key)).await?;
        Ok(explained.groups.first().map_or("", |(_, reason)| reason.name))
    }

    /// Nothing may be delivered now but a message that is pushed now, with another key.
    async fn nothing_else_comes(&self, other: &str) -> Result<()> {
        self.push(other, 1).await?;
        let found = self.reserve(100).await?;
        let keys: Vec<_> = found.iter().map(|delivery| key_of(delivery.message.id.as_str())).collect();
        assert_eq!(keys, [other]);
        Ok(())
    }

    async fn take_turns(&self, fair: Fairness) -> Result<()> {
        let wish = GroupRequest { fair: Some(fair), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::standard(), wish).await.map(drop)
    }

    async fn push(&self, key: &str, count: usize) -> Result<()> {
        for from in (0..count).step_by(500) {
            let message = |n| -> Result<NewMessage> {
                let mut message = NewMessage::new("x").id(MessageId::new(format!("{key}-{n:06}"))?);
                message.key = (!key.is_empty()).then(|| Key::new(key)).transpose()?;
                Ok(message)
            };
            let batch = (from..count.min(from + 500)).map(message).collect::<Result<_>>()?;
            self.broker.push_batch(&orders()?, batch).await?;
        }
        Ok(())
    }

    async fn reserve(&self, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: SECOND, visibility_timeout: None };
        self.broker.reserve(&orders()?, &GroupName::standard(), request).await
    }

    async fn decide(&self, deliveries: &[Delivery], decision: Decision) -> Result<()> {
        let decisions = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), decision.clone())).collect();
        self.broker.settle(&orders()?, &GroupName::standard(), decisions).await.map(drop)
    }

    /// Takes so many messages, ten at a time, and acknowledges each.
    async fn take(&self, count: usize) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        while ids.len() < count {
            let deliveries = self.reserve(10.min(count - ids.len())).await?;
            self.decide(&deliveries, Decision::Ack).await?;
            ids.extend(deliveries.iter().map(|delivery| delivery.message.id.to_string()));
        }
        Ok(ids)
    }

    async fn ready(&self) -> Result<u64> {
        let (_, stats) = self.broker.group(&orders()?, &GroupName::standard()).await?;
        Ok(stats.iter().map(|(_, stats)| stats.ready).sum())
    }
}

/// The last place that a message of a key with this prefix has.
fn last_place(ids: &[String], prefix: &str) -> Option<usize> {
    ids.iter().rposition(|id| key_of(id).starts_with(prefix))
}

fn in_order(ids: &[String], key: &str) -> bool {
    let of_key: Vec<_> = ids.iter().filter(|id| key_of(id) == key).collect();
    of_key.is_sorted()
}

async fn a_quiet_key_does_not_wait_for_a_busy_one(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("busy", 3_000).await?;
    world.pass(1_000);
    for key in 0..20 {
        shop.push(&format!("quiet{key}"), 2).await?;
    }
    let ids = shop.take(3_040).await?;
    let mut counts = BTreeMap::<&str, usize>::new();
    ids.iter().for_each(|id| *counts.entry(id).or_default() += 1);
    assert!(counts.values().all(|count| *count == 1), "each once");
    // At first only the busy one is known; it has no more of the memory than of the rest.
    let last = last_place(&ids, "quiet");
    assert!(last.is_some_and(|last| last < 1_000), "the last quiet message is number {last:?}");
    assert!(in_order(&ids, "busy") && (0..20).all(|key| in_order(&ids, &format!("quiet{key}"))));
    Ok(())
}

async fn messages_without_a_key_are_one_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("", 2_000).await?;
    shop.push("quiet", 5).await?;
    let ids = shop.take(2_005).await?;
    let last = last_place(&ids, "quiet");
    assert!(last.is_some_and(|last| last < 1_000), "the last quiet message is number {last:?}");
    Ok(())
}

async fn a_retry_of_a_quiet_key_has_its_turn(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("quiet", 1).await?;
    let first = shop.reserve(1).await?;
    shop.decide(&first, Decision::Nack { delay: Some(SECOND), reason: None }).await?;
    shop.push("busy", 3_000).await?;
    shop.take(100).await?;
    world.pass(2_000);
    let ids = shop.take(200).await?;
    let last = last_place(&ids, "quiet");
    assert!(last.is_some_and(|last| last < 100), "the quiet message is number {last:?} of {}", ids.len());
    Ok(())
}

async fn the_next_owner_goes_on_with_what_was_sorted(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("busy", 2_000).await?;
    shop.push("other", 1_000).await?;
    let mut ids = shop.take(200).await?;
    shop.running.stop().await;
    let next = Shop::start(&world)?;
    next.push("quiet", 3).await?;
    let then = next.take(2_803).await?;
    let last = last_place(&then, "quiet");
    assert!(last.is_some_and(|last| last < 1_000), "the last quiet message is number {last:?}");
    ids.extend(then);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3_003);
    Ok(())
}

async fn a_group_that_is_fair_no_more_delivers_everything(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("busy", 2_000).await?;
    shop.push("other", 100).await?;
    let mut ids = shop.take(50).await?;
    shop.take_turns(Fairness::None).await?;
    ids.extend(shop.take(1_000).await?);
    shop.running.stop().await;
    let next = Shop::start(&world)?;
    ids.extend(next.take(1_050).await?);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2_100);
    Ok(())
}

async fn a_group_becomes_fair_for_what_waits(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::None).await?;
    shop.push("busy", 3_000).await?;
    world.pass(1_000);
    shop.push("quiet", 3).await?;
    assert!(shop.take(100).await?.iter().all(|id| key_of(id) == "busy"));
    shop.take_turns(Fairness::Key).await?;
    let ids = shop.take(2_903).await?;
    let last = last_place(&ids, "quiet");
    assert!(last.is_some_and(|last| last < 1_000), "the last quiet message is number {last:?}");
    Ok(())
}

async fn shares_are_by_weight_and_weights_count_at_once(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.weigh(&[("gold*", 3)]).await?;
    for key in ["gold", "plain", "other"] {
        shop.push(key, 2_000).await?;
    }
    let share = |ids: &[String], key: &str| ids.iter().filter(|id| key_of(id) == key).count() * 100 / ids.len();
    // What the first look finds is only of the first key.
    shop.take(600).await?;
    let weighed = shop.take(1_000).await?;
    assert!(share(&weighed, "gold").abs_diff(60) <= 3, "{} of 60 %", share(&weighed, "gold"));
    shop.weigh(&[("plain", 8)]).await?;
    let anew = shop.take(1_000).await?;
    assert!(share(&anew, "plain").abs_diff(80) <= 5, "{} of 80 %", share(&anew, "plain"));
    shop.weigh(&[]).await?;
    let equal = shop.take(300).await?;
    assert!(share(&equal, "gold").abs_diff(33) <= 8, "{} of 33 %", share(&equal, "gold"));
    assert_eq!(shop.take(3_100).await?.len(), 3_100);
    Ok(())
}

async fn some_keys_have_other_limits(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.limit_keys(2).await?;
    let limit = |max_in_flight, rate| KeyException::new(max_in_flight, rate, None);
    shop.except(&[("go*", limit(Some(5), None)?), ("free", limit(Some(0), None)?), ("slow", limit(None, Some(0.01))?)])
        .await?;
    for key in ["gold", "free", "slow", "plain"] {
        shop.push(key, 20).await?;
    }
    let mut counts = BTreeMap::new();
    while counts.values().sum::<usize>() < 28 {
        for delivery in shop.reserve(100).await? {
            *counts.entry(key_of(delivery.message.id.as_str()).to_owned()).or_insert(0) += 1;
        }
    }
    let of = |key: &str, count: usize| (key.to_owned(), count);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [of("free", 20), of("gold", 5), of("plain", 2), of("slow", 1)]);
    shop.nothing_else_comes("another").await?;
    let reasons = [shop.why("gold-000019").await?, shop.why("plain-000019").await?, shop.why("slow-000019").await?];
    assert_eq!(reasons, ["key_at_max_in_flight", "key_at_max_in_flight", "key_rate_limited"]);
    // In effect at once for what waits.
    shop.except(&[("gold", limit(Some(6), None)?)]).await?;
    let more = shop.reserve(100).await?;
    let keys: Vec<_> = more.iter().map(|delivery| key_of(delivery.message.id.as_str())).collect();
    assert!(keys.contains(&"gold") && !keys.contains(&"plain"), "{keys:?}");
    Ok(())
}

/// A settlement of any kind, and a deadline that passes, let the key have its next one.
async fn a_key_at_its_limit_waits_and_others_do_not(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.limit_keys(2).await?;
    shop.push("busy", 500).await?;
    shop.push("other", 1).await?;
    let key = |delivery: &Delivery| key_of(delivery.message.id.as_str()).to_owned();
    let mut first = Vec::new();
    while first.len() < 3 {
        first.extend(shop.reserve(100).await?);
    }
    let mut keys: Vec<_> = first.iter().map(key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["busy", "busy", "other"]);
    assert_eq!(shop.why("busy-000499").await?, "key_at_max_in_flight");
    shop.push("another", 1).await?;
    let next = shop.reserve(100).await?;
    assert_eq!(next.iter().map(key).collect::<Vec<_>>(), ["another"]);
    let busy: Vec<_> = first.into_iter().filter(|delivery| key(delivery) == "busy").collect();
    for (n, decision) in
        [Decision::Ack, Decision::Nack { delay: Some(3_600 * SECOND), reason: None }].iter().enumerate()
    {
        shop.decide(&busy[n..=n], decision.clone()).await?;
        assert_eq!(shop.reserve(100).await?.iter().map(key).collect::<Vec<_>>(), ["busy"], "after {decision:?}");
    }
    // Both that are out are over now, with the two others.
    world.pass(40_000);
    let retried = shop.reserve(100).await?;
    assert!(retried.iter().filter(|delivery| key(delivery) == "busy").count() <= 2 && !retried.is_empty());
    Ok(())
}

async fn a_key_waits_for_its_rate_and_others_do_not(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.pace_keys(2.0, 3).await?;
    shop.push("busy", 500).await?;
    shop.push("other", 1).await?;
    let mut first = Vec::new();
    while first.len() < 4 {
        first.extend(shop.reserve(100).await?);
    }
    let key = |delivery: &Delivery| key_of(delivery.message.id.as_str()).to_owned();
    let mut keys: Vec<_> = first.iter().map(key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["busy", "busy", "busy", "other"]);
    assert_eq!(shop.why("busy-000499").await?, "key_rate_limited");
    // To settle them changes nothing.
    shop.decide(&first, Decision::Ack).await?;
    shop.nothing_else_comes("another").await?;
    world.pass(499);
    shop.nothing_else_comes("third").await?;
    // The one that is in memory by now, too.
    assert_eq!(shop.why("busy-000003").await?, "key_rate_limited");
    world.pass(1);
    for _ in 0..4 {
        assert_eq!(shop.reserve(100).await?.iter().map(key).collect::<Vec<_>>(), ["busy"]);
        world.pass(500);
    }
    // Another rate counts from now on, and none lets all of them go.
    shop.pace_keys(1.0, 2).await?;
    let mut taken = Vec::new();
    while taken.len() < 2 {
        taken.extend(shop.reserve(100).await?);
    }
    assert_eq!(taken.len(), 2);
    let wish = GroupRequest { key_rate: Some(0.0), ..GroupRequest::default() };
    shop.broker.create_group(&orders()?, &GroupName::standard(), wish).await?;
    assert_eq!(shop.take(400).await?.len(), 400);
    Ok(())
}

/// The next owner knows when the last delivery was, if the one before could say so; else it counts from its own beginning.
async fn the_rate_of_a_key_holds_across_owners(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.pace_keys(0.1, 2).await?;
    shop.push("busy", 500).await?;
    let mut first = Vec::new();
    while first.len() < 2 {
        first.extend(shop.reserve(100).await?);
    }
    shop.decide(&first, Decision::Ack).await?;
    world.pass(4_000);
    shop.running.stop().await;
    let next = Shop::start(&world)?;
    // A key that nobody has had before waits too: the next owner knows no key.
    world.pass(5_999);
    next.push("", 1).await?;
    assert_eq!(next.reserve(100).await?.iter().map(|of| &of.message.envelope.key).collect::<Vec<_>>(), [&None]);
    world.pass(1);
    assert_eq!(next.reserve(100).await?.len(), 1);
    Ok(())
}

/// Cancel and reschedule need no owner for what is sorted; all of it counts as ready.
async fn sorted_messages_are_found_by_their_ids(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::Key).await?;
    shop.push("busy", 2_000).await?;
    let mut ids = shop.take(20).await?;
    assert_eq!(shop.ready().await?, 1_980);
    for n in (1_000..2_000).step_by(100) {
        let id = MessageId::new(format!("busy-{n:06}"))?;
        let (_, cancelled) = shop.broker.cancel(&orders()?, &id, Some(&Key::new("busy")?)).await?;
        assert!(cancelled.fates.has(Fate::Done), "{n}");
    }
    assert_eq!(shop.ready().await?, 1_970);
    ids.extend(shop.take(1_970).await?);
    assert!(in_order(&ids, "busy"));
    Ok(())
}

/// What the owner knows of its keys: how many messages each has, and what the next one waits for.
async fn the_busiest_keys_are_known(world: World) -> Result<()> {
    let shop = Shop::open(&world, Fairness::None).await?;
    let keys = async || {
        let (descriptor, stats) = shop.broker.group(&orders()?, &GroupName::standard()).await?;
        shop.broker.keys(&descriptor, &GroupName::standard(), &stats).await
    };
    let shown = async || -> Result<Vec<String>> {
        let found = keys().await?.map(|found| found.keys.busiest).unwrap_or_default();
        let line = |held: HeldKey| {
            let key = held.key.map(|key| key.to_string()).unwrap_or_default();
            let waits = held.limit.map_or("", KeyLimit::reason);
            format!("{key} {} {} {waits} {}", held.ready, held.in_flight, held.opens_at.is_some())
        };
        Ok(found.into_iter().map(line).collect())
    };
    shop.push("busy", 1_200).await?;
    assert_eq!(keys().await?, None, "it is not fair");
    shop.take_turns(Fairness::Key).await?;
    let found = keys().await?.ok_or_else(|| Error::bug("it is fair"))?;
    assert_eq!((found.keys, found.is_complete), (HeldKeys::default(), false), "nobody owns the partition");
    shop.limit_keys(1).await?;
    shop.push("quiet", 2).await?;
    shop.push("", 3).await?;
    let mut out = Vec::new();
    while out.len() < 5 {
        out.extend(shop.reserve(10).await?);
    }
    eventually("the owner has looked at all of them", async || {
        Ok((shown().await?
            == ["busy 1199 1 key_at_max_in_flight false", " 0 3  false", "quiet 1 1 key_at_max_in_flight false"])
        .then_some(()))
    })
    .await?;
    let found = keys().await?.ok_or_else(|| Error::bug("it is fair"))?;
    assert_eq!((found.keys.count, found.is_complete), (3, true));
    shop.decide(&out, Decision::Ack).await?;
    shop.limit_keys(0).await?;
    shop.pace_keys(0.5, 1).await?;
    let mut out = Vec::new();
    while out.len() < 2 {
        out.extend(shop.reserve(10).await?);
    }
    shop.decide(&out, Decision::Ack).await?;
    assert_eq!(shown().await?, ["busy 1198 0 key_rate_limited true"]);
    Ok(())
}

async fn with_an_ordering_it_is_refused(world: World) -> Result<()> {
    let shop = Shop::start(&world)?;
    shop.broker.declare(orders()?, Settings { ordering: Ordering::Key, ..Settings::default() }).await?;
    let refused = shop.take_turns(Fairness::Key).await;
    assert_eq!(kind_of(refused), Some(Kind::Invalid));
    Ok(())
}
