use std::time::Duration;

use dwell::delivery::{Decision, StaleReason, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::limits::PARKED_MESSAGES_MAX;
use dwell::model::message::Conflict;
use dwell::model::topic::{Ordering, Settings};
use dwell::store::{MessageState, Pushed};

use super::shop::{Shop, by_key, ids};
use crate::support::{World, kind_of, stories};

stories! {
    messages_of_a_key_are_serial_and_keys_independent, messages_without_a_key_are_unordered,
    equal_due_times_are_delivered_in_push_order, a_failed_message_holds_its_key_until_it_is_settled,
    a_deadline_that_passes_holds_the_key, a_poison_message_blocks_its_key_until_it_is_dead,
    a_buried_message_frees_its_key, an_expired_message_frees_its_key, order_applies_from_the_first_delivery_on,
    returned_messages_keep_their_order, new_owner_continues_the_key_order, retry_delay_survives_a_change_of_owner,
    stop_returns_waiting_messages, oversized_key_blocks_the_partition_without_loss, the_ordering_of_a_topic_is_fixed,
    redriven_message_follows_later_messages_of_its_key,
}

async fn messages_of_a_key_are_serial_and_keys_independent(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2", "a-3", "b-1", "c-1", "b-2"]).await?;
    let first = shop.take(3).await?;
    assert_eq!(ids(&first), ["a-1", "b-1", "c-1"]);
    shop.nothing().await?;
    shop.ack(&first[1]).await?;
    let b = shop.one().await?;
    assert_eq!(b.message.id.as_str(), "b-2");
    shop.ack(&first[0]).await?;
    let a = shop.one().await?;
    assert_eq!((a.message.id.as_str(), a.attempt), ("a-2", 1));
    shop.nothing().await?;
    shop.ack(&a).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    shop.ack(&b).await?;
    shop.ack(&first[2]).await?;
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn messages_without_a_key_are_unordered(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["x", "y", "z"]).await?;
    assert_eq!(ids(&shop.take(3).await?), ["x", "y", "z"]);
    Ok(())
}

async fn equal_due_times_are_delivered_in_push_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    for (id, delay) in [("a-9", 50), ("a-7", 60), ("a-8", 50), ("a-1", 60), ("a-5", 40)] {
        shop.push(id, delay).await?;
    }
    world.pass(60);
    shop.push("a-0", 0).await?;
    assert_eq!(shop.drain(6).await?, ["a-5", "a-9", "a-8", "a-7", "a-1", "a-0"]);
    Ok(())
}

async fn a_failed_message_holds_its_key_until_it_is_settled(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    for attempt in 1..4 {
        let first = shop.one().await?;
        assert_eq!((first.message.id.as_str(), first.attempt, first.lateness), ("a-1", attempt, Duration::ZERO));
        assert_eq!(shop.nack(&first).await?, Verdict::Nacked);
        assert_eq!(shop.state("a-1").await?, Some((MessageState::Backoff, attempt)));
        // Others come while it waits; those of its key do not.
        let other = format!("b-{attempt}");
        shop.push(&other, 0).await?;
        assert_eq!(shop.drain(1).await?, [other]);
        world.pass(4_999 - shop_time(&world, &first));
        shop.reserve_none().await?;
        world.pass(1);
    }
    let last = shop.one().await?;
    assert_eq!(
        (last.message.id.as_str(), last.attempt, last.message.envelope.payload.as_ref()),
        ("a-1", 4, &b"a-1"[..])
    );
    shop.ack(&last).await?;
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

/// Milliseconds since a delivery was handed out.
fn shop_time(world: &World, delivery: &dwell::delivery::Delivery) -> u64 {
    let handed_at = delivery.deadline.as_ms() - 30_000;
    world.now().as_ms() - handed_at
}

impl Shop<'_> {
    /// That nothing comes now, without time passing.
    async fn reserve_none(&self) -> Result<()> {
        let request = self.reserve_for(10, Duration::from_secs(60));
        tokio::select! {
            taken = request => panic_on(&ids(&taken?)),
            () = self.world.settled() => {}
        }
        Ok(())
    }
}

fn panic_on(taken: &[&str]) {
    assert!(taken.is_empty(), "{taken:?}");
}

async fn a_deadline_that_passes_holds_the_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    let lost = shop.one().await?;
    world.pass(30_000);
    shop.reserve_none().await?;
    world.pass(5_000);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-1", 2));
    assert_eq!(shop.settle(&lost, Decision::Ack).await?, Verdict::Stale(StaleReason::DeadlinePassed));
    shop.ack(&again).await?;
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

async fn a_poison_message_blocks_its_key_until_it_is_dead(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings { max_attempts: 3, ..by_key() }).await?;
    shop.push_all(&["a-1", "a-2", "b-1"]).await?;
    assert_eq!(ids(&shop.take(2).await?), ["a-1", "b-1"]);
    // Its consumer says nothing, again and again.
    for attempt in 2..=3 {
        world.pass(30_000);
        shop.reserve_none().await?;
        world.pass(5_000);
        let taken = shop.take(2).await?;
        assert_eq!((ids(&taken), taken[0].attempt), (vec!["a-1", "b-1"], attempt));
    }
    world.pass(30_000);
    let taken = shop.one().await?;
    assert_eq!((taken.message.id.as_str(), taken.attempt), ("a-2", 1));
    assert!(matches!(shop.state("a-1").await?, Some((MessageState::Dead { .. }, 3))));
    Ok(())
}

async fn a_buried_message_frees_its_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    let first = shop.one().await?;
    assert_eq!(shop.settle(&first, Decision::Bury { reason: None }).await?, Verdict::Buried);
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

async fn an_expired_message_frees_its_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push("a-1", 0).await?;
    let mut short = Shop::message("a-2", 0)?;
    short.ttl = Some(Duration::from_secs(1));
    shop.broker.push(&shop.topic, short).await?;
    shop.push("a-3", 0).await?;
    let first = shop.one().await?;
    world.pass(1_000);
    shop.ack(&first).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn order_applies_from_the_first_delivery_on(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let (at, group_partition) = (world.now(), shop.group_partition().await?);
    world.pass(1_000);
    // Pushed elsewhere at its due time, and on the way for long.
    let late = async |id: &str| {
        let message = Shop::message(id, 0)?.accept(at)?;
        let descriptor = shop.broker.topic(&shop.topic).await?;
        let call = crate::support::new_call(&*world.store.backend, 1);
        world.store.messages.push(&descriptor, group_partition.partition, &call, Conflict::Keep, &[message]).await
    };
    shop.push_all(&["k-1", "a-5", "a-6"]).await?;
    // One is with a consumer; of the others two are in the owner's memory, none handed out.
    let other = shop.one().await?;
    assert_eq!(other.message.id.as_str(), "k-1");
    assert_eq!(shop.state("a-6").await?.map(|(state, _)| state), Some(MessageState::Blocked));
    assert_eq!(late("a-1").await?, [Pushed::Stored.into()]);
    world.settled().await;
    let earlier = shop.one().await?;
    assert_eq!(earlier.message.id.as_str(), "a-1");
    assert_eq!(late("a-2").await?, [Pushed::Stored.into()]);
    world.settled().await;
    shop.ack(&earlier).await?;
    let next = shop.one().await?;
    assert_eq!(next.message.id.as_str(), "a-2");
    shop.nack(&next).await?;
    // It holds its key while it waits, whatever comes.
    assert_eq!(late("a-0").await?, [Pushed::Stored.into()]);
    shop.reserve_none().await?;
    world.pass(5_000);
    assert_eq!(shop.drain(4).await?, ["a-2", "a-0", "a-5", "a-6"]);
    Ok(())
}

async fn returned_messages_keep_their_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-9", "a-8", "a-7", "b-9", "b-8", "c-9", "c-8"]).await?;
    let taken = shop.take(2).await?;
    assert_eq!(ids(&taken), ["a-9", "b-9"]);
    shop.nack(&taken[1]).await?;
    // More than a second without a consumer: what is ready, what is behind and what waits go back.
    world.pass(1_500);
    for (id, attempts) in [("a-8", 0), ("b-9", 1), ("b-8", 0), ("c-9", 0), ("c-8", 0)] {
        world.until(id, async || Ok(shop.state(id).await? == Some((MessageState::Ready, attempts)))).await?;
    }
    shop.push_all(&["a-0", "b-0", "c-0"]).await?;
    // The key of what is still out is held all the same, and the time of the next attempt is kept.
    let third = shop.one().await?;
    assert_eq!(third.message.id.as_str(), "c-9");
    shop.reserve_none().await?;
    world.pass(3_500);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("b-9", 2));
    for delivery in [&taken[0], &third, &again] {
        shop.ack(delivery).await?;
    }
    let mut rest = shop.drain(7).await?;
    rest.sort_by_key(|id| id.as_bytes()[0]);
    assert_eq!(rest, ["a-8", "a-7", "a-0", "b-8", "b-0", "c-8", "c-0"]);
    Ok(())
}

async fn new_owner_continues_the_key_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-9", "a-8", "a-7", "b-9", "b-8"]).await?;
    let old = shop.take(2).await?;
    assert_eq!(ids(&old), ["a-9", "b-9"]);
    shop.ack(&old[1]).await?;
    world.pass(10);
    world.steal(&shop.group_partition().await?, shop.broker.member()).await?.recover().await?;
    shop.push_all(&["a-0", "b-0"]).await?;
    assert_eq!(shop.settle(&old[0], Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    let mut came = Vec::new();
    while came.len() < 6 {
        let taken = world.as_time_passes(shop.reserve_for(9, Duration::from_secs(60))).await?;
        for delivery in taken {
            shop.ack(&delivery).await?;
            came.push(delivery.message.id.to_string());
        }
    }
    came.sort_by_key(|id| id.as_bytes()[0]);
    assert_eq!(came, ["a-9", "a-8", "a-7", "a-0", "b-8", "b-0"]);
    Ok(())
}

async fn retry_delay_survives_a_change_of_owner(world: World) -> Result<()> {
    let day = Duration::from_secs(3_600);
    let backoff = dwell::model::retry::Backoff::Ladder { steps: vec![dwell::model::retry::LadderStep(day)] };
    let shop = Shop::open(&world, Settings { backoff, ..by_key() }).await?;
    shop.push_all(&["a-1", "a-2", "b-1"]).await?;
    let taken = shop.take(2).await?;
    assert_eq!(shop.nack(&taken[0]).await?, Verdict::Nacked);
    let next_at = world.now().plus(day);
    world.steal(&shop.group_partition().await?, shop.broker.member()).await?.recover().await?;
    assert_eq!(shop.settle(&taken[1], Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    let mut other = Vec::new();
    while other.is_empty() {
        other = world.as_time_passes(shop.reserve_for(9, Duration::from_secs(60))).await?;
    }
    assert_eq!((ids(&other), other[0].attempt), (vec!["b-1"], 2));
    shop.ack(&other[0]).await?;
    shop.nothing().await?;
    world.pass(next_at.since(world.now()).as_millis() as u64 - 1);
    shop.reserve_none().await?;
    world.pass(1);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt, again.ready_at), ("a-1", 2, next_at));
    shop.ack(&again).await?;
    assert_eq!(shop.one().await?.message.id.as_str(), "a-2");
    Ok(())
}

async fn stop_returns_waiting_messages(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2", "b-1", "b-2"]).await?;
    let taken = shop.take(2).await?;
    shop.nack(&taken[0]).await?;
    shop.ack(&taken[1]).await?;
    world.as_time_passes(shop.running.stop()).await;
    let stats = world.store.reads.stats(&[shop.group_partition().await?]).await?;
    assert_eq!((stats[0].ready, stats[0].in_flight, stats[0].owner.is_none()), (3, 0, true));
    let mut owner = world.steal(&shop.group_partition().await?, &crate::support::member("next")).await?;
    owner.keep_positions();
    assert_eq!(owner.recover().await?.messages, 0);
    let rest = owner.reserve(crate::support::up_to(9)).await?.messages;
    assert_eq!(crate::support::ids_of(&rest), ["a-1", "a-2", "b-2"]);
    assert_eq!(rest.iter().map(|message| message.attempts).collect::<Vec<_>>(), [1, 0, 0]);
    Ok(())
}

async fn oversized_key_blocks_the_partition_without_loss(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let hot: Vec<String> = (0..PARKED_MESSAGES_MAX + 500).map(|n| format!("hot-{n}")).collect();
    for page in hot.chunks(1_000) {
        let page = page.iter().map(|id| Shop::message(id, 0)).collect::<Result<Vec<_>>>()?;
        shop.broker.push_batch(&shop.topic, page).await?.into_iter().collect::<Result<Vec<_>>>()?;
        world.pass(1);
    }
    shop.push("b-1", 0).await?;
    let first = shop.one().await?;
    assert_eq!(first.message.id.as_str(), "hot-0");
    // The key has more messages than an owner keeps of one, so another key waits: nothing is lost, nothing comes out of order.
    shop.reserve_none().await?;
    let held = async || Ok(shop.broker.stats(&shop.topic).await?[0].1.clone());
    world
        .until("the bound is reached", async || {
            let stats: dwell::store::PartitionStats = held().await?;
            assert!(stats.in_flight <= 1);
            Ok((stats.ready + stats.blocked) as usize == hot.len())
        })
        .await?;
    shop.ack(&first).await?;
    let mut came = vec![first.message.id.to_string()];
    while !came.contains(&"b-1".to_owned()) {
        came.extend(shop.drain(1).await?);
    }
    assert!(came.len() < 1_500, "{}", came.len());
    came.extend(shop.drain(hot.len() + 1 - came.len()).await?);
    came.retain(|id| id != "b-1");
    assert_eq!(came, hot);
    Ok(())
}

async fn the_ordering_of_a_topic_is_fixed(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let other = Settings { ordering: Ordering::None, ..by_key() };
    assert_eq!(kind_of(shop.broker.declare(shop.topic.clone(), other).await), Some(Kind::Conflict));
    let same = Settings { max_attempts: 3, ..by_key() };
    assert_eq!(shop.broker.declare(shop.topic.clone(), same.clone()).await?.descriptor.settings, same);
    Ok(())
}

async fn redriven_message_follows_later_messages_of_its_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    shop.settle(&shop.one().await?, Decision::Bury { reason: None }).await?;
    let second = shop.one().await?;
    world.pass(10);
    assert_eq!(shop.broker.redrive(&shop.topic, &shop.group, None).await?, 1);
    shop.reserve_none().await?;
    shop.push("a-3", 10).await?;
    world.pass(10);
    shop.ack(&second).await?;
    assert_eq!(shop.drain(2).await?, ["a-1", "a-3"]);
    Ok(())
}
