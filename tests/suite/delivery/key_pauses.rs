//! Pausing a key of a fair group: no message of it is handed out, and those of other keys do not wait.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, PauseFor, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::limits::DELAY_MAX;
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::topic::{Fairness, Settings};

use crate::support::{Running, World, kind_of, stories};

stories! {
    a_paused_key_waits_and_others_do_not, a_key_that_is_resumed_continues, messages_that_come_later_wait_too,
    the_next_owner_keeps_the_pause, the_last_pause_counts, a_key_waits_in_its_group_alone, what_cannot_be_paused_is_refused,
    a_pause_counts_in_a_fair_group_alone, many_keys_are_paused_and_listed, deliveries_in_flight_are_settled,
    a_nack_pauses_its_key, a_nack_never_shortens_a_pause, the_pause_of_a_nack_outlives_its_owner,
    a_late_nack_pauses_its_key, the_last_attempt_pauses_its_key_too, elsewhere_the_nack_of_a_key_is_a_nack,
    a_paused_key_is_explained_before_anybody_consumes,
}

const MINUTE: Duration = Duration::from_secs(60);

struct Shop {
    broker: Broker,
    running: Running,
}

fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

fn key_of(delivery: &Delivery) -> &str {
    delivery.message.envelope.key.as_ref().map_or("", Key::as_str)
}

impl Shop {
    fn start(world: &World) -> Result<Shop> {
        let options = Options { drain_timeout: Duration::ZERO, ..Options::default() };
        let running = Running::start(world, options)?;
        Ok(Shop { broker: running.broker.clone(), running })
    }

    async fn open(world: &World) -> Result<Shop> {
        let shop = Shop::start(world)?;
        shop.broker.declare(orders()?, Settings { partitions: NonZeroU16::MIN, ..Settings::default() }).await?;
        shop.take_turns("default", Fairness::Key).await?;
        Ok(shop)
    }

    async fn take_turns(&self, group: &str, fair: Fairness) -> Result<()> {
        let wish = GroupRequest { fair: Some(fair), ..GroupRequest::default() };
        self.broker.create_group(&orders()?, &GroupName::new(group)?, wish).await.map(drop)
    }

    async fn push(&self, key: &str, messages: usize) -> Result<()> {
        let message = |n: usize| {
            let id = MessageId::new(format!("{key}-{n:06}-{}", fastrand::u32(..)))?;
            Ok(NewMessage::new("x").id(id).key(Key::new(key)?))
        };
        let messages = (0..messages).map(message).collect::<Result<Vec<_>>>()?;
        for page in messages.chunks(1_000) {
            for outcome in self.broker.push_batch(&orders()?, page.to_vec()).await? {
                outcome?;
            }
        }
        Ok(())
    }

    async fn pause(&self, key: &str, pause: PauseFor) -> Result<Timestamp> {
        self.broker.pause_key(&orders()?, &GroupName::standard(), &Key::new(key)?, pause).await
    }

    async fn resume(&self, key: &str) -> Result<()> {
        self.broker.resume_key(&orders()?, &GroupName::standard(), &Key::new(key)?).await
    }

    async fn reserve_of(&self, group: &str, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait: MINUTE, visibility_timeout: Some(10 * MINUTE) };
        self.broker.reserve(&orders()?, &GroupName::new(group)?, request).await
    }

    async fn decide(&self, deliveries: &[Delivery], decision: Decision) -> Result<()> {
        let decisions = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), decision.clone())).collect();
        self.broker.settle(&orders()?, &GroupName::standard(), decisions).await.map(drop)
    }

    /// Takes and acks so many messages, and answers the key of each.
    async fn take(&self, messages: usize) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        while keys.len() < messages {
            let taken = self.reserve_of("default", (messages - keys.len()).min(100)).await?;
            self.decide(&taken, Decision::Ack).await?;
            keys.extend(taken.iter().map(|delivery| key_of(delivery).to_owned()));
        }
        Ok(keys)
    }

    /// Of all that waits only the message of a key that is pushed now comes.
    async fn nothing_else_comes(&self, key: &str) -> Result<()> {
        self.push(key, 1).await?;
        assert_eq!(self.take(1).await?, [key]);
        Ok(())
    }

    async fn paused(&self) -> Result<Vec<String>> {
        let (descriptor, _) = self.broker.group(&orders()?, &GroupName::standard()).await?;
        let paused = self.broker.paused_keys(&descriptor, &GroupName::standard()).await?;
        assert_eq!(paused.count, paused.first.len() as u64);
        Ok(paused.first.into_iter().map(|paused| paused.key.to_string()).collect())
    }

    /// What the owner says of a key.
    async fn waits_for(&self, key: &str) -> Result<Option<(&'static str, Option<Timestamp>)>> {
        let (descriptor, stats) = self.broker.group(&orders()?, &GroupName::standard()).await?;
        let keys = self.broker.keys(&descriptor, &GroupName::standard(), &stats).await?;
        let busiest = keys.map(|keys| keys.keys.busiest).unwrap_or_default();
        let held = busiest.into_iter().find(|held| held.key.as_ref().is_some_and(|held| held.as_str() == key));
        Ok(held.and_then(|held| Some((held.limit?.reason(), held.opens_at))))
    }
}

async fn a_paused_key_waits_and_others_do_not(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 1_500).await?;
    shop.push("other", 3).await?;
    // The owner has messages of both in memory, and has sorted others.
    shop.take(10).await?;
    let until = shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    assert_eq!(until, shop.broker.now().plus(MINUTE));
    for n in 0..20 {
        shop.nothing_else_comes(&format!("k{n}")).await?;
    }
    assert_eq!(shop.waits_for("busy").await?, Some(("key_paused", Some(until))));
    let (descriptor, _) = shop.broker.group(&orders()?, &GroupName::standard()).await?;
    let listed = shop.broker.paused_keys(&descriptor, &GroupName::standard()).await?;
    assert_eq!((listed.count, listed.first[0].until), (1, until));
    world.pass(59_999);
    shop.nothing_else_comes("late").await?;
    world.pass(1);
    let rest = shop.take(1_400).await?;
    assert!(rest.iter().all(|key| key == "busy"));
    assert_eq!(shop.paused().await?, Vec::<String>::new());
    Ok(())
}

async fn a_key_that_is_resumed_continues(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 800).await?;
    shop.take(1).await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.nothing_else_comes("first").await?;
    shop.resume("busy").await?;
    assert_eq!(shop.paused().await?, Vec::<String>::new());
    assert_eq!(shop.take(799).await?.len(), 799);
    // One that is not paused stays as it is.
    shop.resume("busy").await?;
    shop.nothing_else_comes("busy").await
}

/// Also with no owner when the pause begins, and with messages that are not due yet.
async fn messages_that_come_later_wait_too(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.push("busy", 3).await?;
    let soon = NewMessage::new("x").key(Key::new("busy")?).after(Duration::from_secs(1));
    shop.broker.push(&orders()?, soon).await?;
    shop.nothing_else_comes("other").await?;
    world.pass(2_000);
    shop.nothing_else_comes("other").await?;
    shop.nothing_else_comes("another").await?;
    world.pass(58_000);
    assert_eq!(shop.take(4).await?, ["busy"; 4]);
    Ok(())
}

async fn the_next_owner_keeps_the_pause(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 1_200).await?;
    shop.take(5).await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.running.stop().await;
    let next = Shop::start(&world)?;
    for n in 0..5 {
        next.nothing_else_comes(&format!("k{n}")).await?;
    }
    assert_eq!(next.paused().await?, ["busy"]);
    world.pass(60_000);
    assert_eq!(next.take(1_195).await?.len(), 1_195);
    Ok(())
}

async fn the_last_pause_counts(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 2).await?;
    shop.pause("busy", PauseFor::Span(10 * MINUTE)).await?;
    shop.nothing_else_comes("other").await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.nothing_else_comes("other").await?;
    world.pass(60_000);
    assert_eq!(shop.take(1).await?, ["busy"]);
    let until = shop.broker.now().plus(2 * MINUTE);
    assert_eq!(shop.pause("busy", PauseFor::Until(until)).await?, until);
    world.pass(60_000);
    shop.nothing_else_comes("other").await?;
    // A time in the past would end it, which is not what a pause is for.
    assert_eq!(kind_of(shop.pause("busy", PauseFor::Until(Timestamp::ZERO)).await), Some(Kind::Invalid));
    shop.broker.resume_key(&orders()?, &GroupName::standard(), &Key::new("busy")?).await?;
    assert_eq!((shop.take(1).await?, shop.paused().await?), (vec!["busy".to_owned()], Vec::new()));
    Ok(())
}

async fn a_key_waits_in_its_group_alone(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.take_turns("audit", Fairness::Key).await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.push("busy", 2).await?;
    assert_eq!(shop.reserve_of("audit", 10).await?.len(), 2);
    shop.nothing_else_comes("other").await?;
    // A group that is made again knows nothing of the pause.
    let (topic, audit) = (orders()?, GroupName::new("audit")?);
    shop.broker.pause_key(&topic, &audit, &Key::new("busy")?, PauseFor::Span(MINUTE)).await?;
    shop.broker.delete_group(&topic, &audit).await?;
    shop.take_turns("audit", Fairness::Key).await?;
    shop.push("busy", 1).await?;
    assert_eq!(shop.reserve_of("audit", 10).await?.len(), 1);
    Ok(())
}

async fn what_cannot_be_paused_is_refused(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    for wrong in [PauseFor::Ever, PauseFor::Span(DELAY_MAX + MINUTE)] {
        assert_eq!(kind_of(shop.pause("busy", wrong).await), Some(Kind::Invalid), "{wrong:?}");
    }
    let (topic, none, key) = (orders()?, GroupName::new("none")?, Key::new("busy")?);
    let paused = shop.broker.pause_key(&topic, &none, &key, PauseFor::Span(MINUTE)).await;
    assert_eq!(kind_of(paused), Some(Kind::NotFound));
    shop.take_turns("plain", Fairness::None).await?;
    let paused = shop.broker.pause_key(&topic, &GroupName::new("plain")?, &key, PauseFor::Span(MINUTE)).await;
    assert_eq!(kind_of(paused), Some(Kind::Conflict), "no key of it can wait alone");
    Ok(())
}

async fn a_pause_counts_in_a_fair_group_alone(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 3).await?;
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.nothing_else_comes("other").await?;
    shop.take_turns("default", Fairness::None).await?;
    assert_eq!((shop.take(1).await?, shop.paused().await?), (vec!["busy".to_owned()], Vec::new()));
    shop.take_turns("default", Fairness::Key).await?;
    shop.nothing_else_comes("other").await?;
    world.pass(60_000);
    assert_eq!(shop.take(2).await?, ["busy", "busy"]);
    Ok(())
}

async fn many_keys_are_paused_and_listed(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    for n in 0..30_u32 {
        let key = format!("k{n:02}");
        shop.push(&key, 2).await?;
        if n % 2 == 0 {
            // The later the number, the earlier the end.
            shop.pause(&key, PauseFor::Span(MINUTE * (40 - n))).await?;
        }
    }
    let open: BTreeSet<String> = shop.take(30).await?.into_iter().collect();
    assert!(open.iter().all(|key| key[1..].parse().is_ok_and(|n: u32| n % 2 == 1)), "{open:?}");
    assert_eq!(
        shop.paused().await?,
        (0..30).rev().filter(|n| n % 2 == 0).map(|n| format!("k{n:02}")).collect::<Vec<_>>()
    );
    // Each continues by itself.
    for n in (0..30).rev().filter(|n| n % 2 == 0) {
        world.pass(if n == 28 { 12 * 60_000 } else { 2 * 60_000 });
        assert_eq!(shop.take(2).await?, [format!("k{n:02}"), format!("k{n:02}")]);
    }
    Ok(())
}

async fn deliveries_in_flight_are_settled(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 3).await?;
    let taken = shop.reserve_of("default", 2).await?;
    assert_eq!(taken.len(), 2);
    shop.pause("busy", PauseFor::Span(MINUTE)).await?;
    shop.decide(&taken[..1], Decision::Ack).await?;
    shop.decide(&taken[1..], Decision::Nack { delay: Some(Duration::ZERO), reason: None }).await?;
    shop.nothing_else_comes("other").await?;
    world.pass(60_000);
    let mut attempts: Vec<_> = Vec::new();
    while attempts.len() < 2 {
        attempts.extend(shop.reserve_of("default", 2).await?.iter().map(|delivery| delivery.attempt));
    }
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2], "no attempt was charged by the pause");
    Ok(())
}

fn nack_key(delay: Duration) -> Decision {
    Decision::NackKey { delay: Some(delay), reason: Some("429".into()) }
}

async fn a_nack_pauses_its_key(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 1_500).await?;
    let taken = shop.reserve_of("default", 3).await?;
    shop.decide(&taken[..1], nack_key(MINUTE)).await?;
    // The owner has messages of the key in memory, and has sorted others.
    for n in 0..10 {
        shop.nothing_else_comes(&format!("k{n}")).await?;
    }
    assert_eq!(
        (shop.waits_for("busy").await?.map(|(reason, _)| reason), shop.paused().await?),
        (Some("key_paused"), vec!["busy".to_owned()])
    );
    // Those that are out are settled, and a second one moves the end.
    shop.decide(&taken[1..2], Decision::Ack).await?;
    world.pass(30_000);
    shop.decide(&taken[2..], nack_key(MINUTE)).await?;
    world.pass(30_000);
    shop.nothing_else_comes("late").await?;
    world.pass(30_000);
    let mut attempts = Vec::new();
    while attempts.len() < 1_499 {
        let taken = shop.reserve_of("default", 1_000).await?;
        shop.decide(&taken, Decision::Ack).await?;
        attempts.extend(taken.iter().map(|delivery| delivery.attempt));
    }
    assert_eq!(attempts.iter().filter(|attempt| **attempt == 2).count(), 2, "only the nacked ones had an attempt");
    assert_eq!(attempts.iter().filter(|attempt| **attempt == 1).count(), 1_497);
    Ok(())
}

async fn a_nack_never_shortens_a_pause(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 3).await?;
    let taken = shop.reserve_of("default", 1).await?;
    let until = shop.pause("busy", PauseFor::Span(10 * MINUTE)).await?;
    shop.decide(&taken, nack_key(MINUTE)).await?;
    world.pass(2 * 60_000);
    shop.nothing_else_comes("other").await?;
    assert_eq!(shop.waits_for("busy").await?, Some(("key_paused", Some(until))));
    shop.resume("busy").await?;
    assert_eq!(shop.take(3).await?, ["busy"; 3]);
    Ok(())
}

async fn the_pause_of_a_nack_outlives_its_owner(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.push("busy", 600).await?;
    let taken = shop.reserve_of("default", 1).await?;
    shop.decide(&taken, nack_key(MINUTE)).await?;
    shop.running.stop().await;
    let next = Shop::start(&world)?;
    for n in 0..5 {
        next.nothing_else_comes(&format!("k{n}")).await?;
    }
    world.pass(60_000);
    assert_eq!(next.take(600).await?.len(), 600);
    Ok(())
}

/// Its owner is gone: the store, or the next owner, applies it.
async fn a_late_nack_pauses_its_key(world: World) -> Result<()> {
    for is_owned in [false, true] {
        let shop = Shop::open(&world).await?;
        shop.push("busy", 600).await?;
        let taken = shop.reserve_of("default", 1).await?;
        shop.running.stop().await;
        let next = Shop::start(&world)?;
        if is_owned {
            next.pause("busy", PauseFor::Span(MINUTE / 2)).await?;
            next.nothing_else_comes("other").await?;
        }
        let decisions = vec![(taken[0].receipt.to_string(), nack_key(MINUTE))];
        let (topic, group) = (orders()?, GroupName::standard());
        let settled = next.broker.settle_anywhere(&topic, &group, decisions, true);
        let ruled = world.as_time_passes(settled).await?;
        assert_eq!(ruled[0].verdict, Verdict::Nacked, "{is_owned}");
        for n in 0..5 {
            next.nothing_else_comes(&format!("k{n}")).await?;
        }
        assert_eq!(next.paused().await?, ["busy"]);
        world.pass(31_000);
        next.nothing_else_comes("late").await?;
        next.broker.delete_topic(&orders()?).await?;
        next.running.stop().await;
        world.pass(60_000);
    }
    Ok(())
}

async fn the_last_attempt_pauses_its_key_too(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let message = |id: &str| -> Result<NewMessage> {
        let message = NewMessage::new("x").id(MessageId::new(id)?).key(Key::new("busy")?);
        Ok(NewMessage { max_attempts: Some(1), ..message })
    };
    shop.broker.push(&orders()?, message("first")?).await?;
    shop.broker.push(&orders()?, message("second")?).await?;
    let taken = shop.reserve_of("default", 1).await?;
    shop.decide(&taken, nack_key(MINUTE)).await?;
    shop.nothing_else_comes("other").await?;
    world.pass(60_000);
    assert_eq!(shop.take(1).await?, ["busy"]);
    let (_, stats) = shop.broker.group(&orders()?, &GroupName::standard()).await?;
    assert_eq!(stats.iter().map(|(_, stats)| stats.dead).sum::<u64>(), 1);
    Ok(())
}

/// In a group that is not fair, and for a message without a key.
async fn elsewhere_the_nack_of_a_key_is_a_nack(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.broker.push_batch(&orders()?, vec![NewMessage::new("x"), NewMessage::new("y")]).await?;
    let taken = shop.reserve_of("default", 1).await?;
    shop.decide(&taken, nack_key(MINUTE)).await?;
    assert_eq!(shop.take(1).await?, [""]);
    shop.take_turns("default", Fairness::None).await?;
    shop.push("busy", 2).await?;
    let taken = shop.reserve_of("default", 1).await?;
    shop.decide(&taken, nack_key(MINUTE)).await?;
    assert_eq!(shop.take(1).await?, ["busy"]);
    world.pass(60_000);
    assert_eq!(shop.take(2).await?.len(), 2);
    Ok(())
}

async fn a_paused_key_is_explained_before_anybody_consumes(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let (id, key) = (MessageId::new("first")?, Key::new("acme")?);
    shop.broker.push(&orders()?, NewMessage::new("x").id(id.clone()).key(key.clone())).await?;
    let reason = async || {
        let explained = shop.broker.explain(&orders()?, &id, None).await?;
        Ok::<_, dwell::model::error::Error>(explained.groups.into_iter().next().map(|(_, why)| (why.name, why.until)))
    };
    assert_eq!(reason().await?, Some(("no_consumer", None)));
    let until = shop.pause("acme", PauseFor::Span(MINUTE)).await?;
    assert_eq!(reason().await?, Some(("key_paused", Some(until))));
    shop.resume("acme").await?;
    assert_eq!(reason().await?, Some(("no_consumer", None)));
    Ok(())
}
