//! Several successive messages of one key in one batch.

use std::time::Duration;

use dwell::broker::Selection;
use dwell::delivery::{Decision, Delivery, StaleReason, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::retry::OnFailure;
use dwell::model::topic::{Ordering, Settings};
use dwell::store::MessageState;

use super::shop::{Shop, by_key, ids};
use crate::support::{World, kind_of, stories};

stories! {
    batch_holds_successive_messages_of_a_key, key_continues_once_its_batch_is_settled,
    a_failed_message_returns_those_that_follow_it, a_message_that_fails_behind_another_waits_for_it,
    settled_messages_of_a_batch_are_not_redelivered, deadlines_of_a_batch_charge_each_message_and_keep_the_order,
    bury_does_not_return_the_rest_of_a_batch, delayed_message_does_not_block_earlier_ones,
    batch_of_a_lost_owner_is_redelivered_in_order, without_ordering_a_batch_of_a_key_is_refused,
    random_settlements_keep_key_order,
}

const RETURNED: Verdict = Verdict::Stale(StaleReason::Returned);

impl Shop<'_> {
    async fn batch_for(&self, max: usize, per_key: usize, wait: Duration) -> Result<Vec<Delivery>> {
        self.selected(max, Selection { per_key, ..Selection::default() }, wait).await
    }

    async fn batch(&self, max: usize, per_key: usize) -> Result<Vec<Delivery>> {
        self.batch_for(max, per_key, Duration::from_secs(60)).await
    }

    /// So many messages of one key in one batch, once all of them are in memory.
    async fn all(&self, count: usize) -> Result<Vec<Delivery>> {
        let batch = self.batch(count, count).await?;
        assert_eq!(batch.len(), count, "{:?}", ids(&batch));
        Ok(batch)
    }
}

async fn batch_holds_successive_messages_of_a_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3", "a-4", "b-1", "b-2"]).await?;
    let batch = shop.batch(10, 3).await?;
    assert_eq!(ids(&batch), ["a-1", "a-2", "a-3", "b-1", "b-2"]);
    assert!(batch.iter().all(|delivery| delivery.attempt == 1));
    shop.nothing().await?;
    for delivery in &batch {
        shop.ack(delivery).await?;
    }
    assert_eq!(shop.drain(1).await?, ["a-4"]);
    Ok(())
}

async fn key_continues_once_its_batch_is_settled(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3"]).await?;
    let batch = shop.all(2).await?;
    shop.ack(&batch[1]).await?;
    shop.nothing().await?;
    shop.ack(&batch[0]).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    Ok(())
}

async fn a_failed_message_returns_those_that_follow_it(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3", "a-4"]).await?;
    let batch = shop.all(3).await?;
    shop.ack(&batch[0]).await?;
    assert_eq!(shop.nack(&batch[1]).await?, Verdict::Nacked);
    assert_eq!(shop.settle(&batch[2], Decision::Ack).await?, RETURNED);
    shop.nothing().await?;
    world.pass(5_000);

    let again = shop.batch(10, 10).await?;
    assert_eq!((ids(&again), again[0].attempt), (vec!["a-2", "a-3", "a-4"], 2));
    assert_eq!((again[1].attempt, again[2].attempt), (1, 1), "it was not its fault");
    for delivery in &again {
        shop.ack(delivery).await?;
    }
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn a_message_that_fails_behind_another_waits_for_it(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3"]).await?;
    let batch = shop.all(3).await?;
    assert_eq!(shop.nack(&batch[1]).await?, Verdict::Nacked);
    world.pass(5_000);
    shop.nothing().await?;
    assert_eq!(shop.nack(&batch[0]).await?, Verdict::Nacked);
    world.pass(5_000);
    let first = shop.one().await?;
    assert_eq!((first.message.id.as_str(), first.attempt), ("a-1", 2));
    shop.ack(&first).await?;
    let second = shop.one().await?;
    assert_eq!((second.message.id.as_str(), second.attempt), ("a-2", 2));
    shop.ack(&second).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    Ok(())
}

async fn settled_messages_of_a_batch_are_not_redelivered(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3"]).await?;
    let batch = shop.all(3).await?;
    shop.ack(&batch[1]).await?;
    assert_eq!(shop.nack(&batch[0]).await?, Verdict::Nacked);
    world.pass(5_000);
    assert_eq!(shop.drain(2).await?, ["a-1", "a-3"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn deadlines_of_a_batch_charge_each_message_and_keep_the_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3"]).await?;
    let batch = shop.all(3).await?;
    let passed = Verdict::Stale(StaleReason::DeadlinePassed);
    world.pass(30_000);
    world.settled().await;
    assert_eq!(shop.settle(&batch[2], Decision::Ack).await?, passed);
    for id in ["a-1", "a-2", "a-3"] {
        world.pass(5_000);
        let again = shop.one().await?;
        assert_eq!((again.message.id.as_str(), again.attempt), (id, 2));
        shop.ack(&again).await?;
    }
    Ok(())
}

async fn bury_does_not_return_the_rest_of_a_batch(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2"]).await?;
    let batch = shop.all(2).await?;
    assert_eq!(shop.settle(&batch[0], Decision::Bury { reason: None }).await?, Verdict::Buried);
    shop.ack(&batch[1]).await?;
    assert!(matches!(shop.state("a-1").await?, Some((MessageState::Dead { .. }, 1))));
    Ok(())
}

async fn delayed_message_does_not_block_earlier_ones(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push("a-1", 60_000).await?;
    shop.push_together(&["a-2", "a-3"]).await?;
    assert_eq!(ids(&shop.all(2).await?), ["a-2", "a-3"]);
    Ok(())
}

async fn batch_of_a_lost_owner_is_redelivered_in_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_together(&["a-1", "a-2", "a-3"]).await?;
    let batch = shop.all(3).await?;
    shop.ack(&batch[0]).await?;
    let mut owner = world.steal(&shop.group_partition().await?, shop.broker.member()).await?;
    owner.keep_positions();
    while owner.recover().await?.more {}
    let again = owner.reserve(crate::support::up_to(9)).await?.messages;
    assert_eq!(crate::support::ids_of(&again), ["a-2", "a-3"]);
    Ok(())
}

async fn without_ordering_a_batch_of_a_key_is_refused(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings { ordering: Ordering::None, ..by_key() }).await?;
    for per_key in [0, 2, 11] {
        assert_eq!(kind_of(shop.batch_for(10, per_key, Duration::ZERO).await), Some(Kind::Invalid), "{per_key}");
    }
    Ok(())
}

/// Batches of any size are settled in any order; what is done of a key is done in order, but for what a consumer settles
/// itself before an earlier message of its batch.
async fn random_settlements_keep_key_order(world: World) -> Result<()> {
    const KEYS: usize = 3;
    const EACH: usize = 40;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let shop = Shop::open(&world, Settings { max_attempts: 1_000, ..by_key() }).await?;
    for number in 0..EACH {
        for key in 0..KEYS {
            shop.push(&format!("{key}-{number:03}"), 0).await?;
        }
    }
    let mut done = vec![vec![false; EACH]; KEYS];
    while done.iter().flatten().any(|done| !done) {
        let per_key = rng.usize(1..=10);
        let keeps = per_key > 1 && rng.bool();
        let on_failure = if keeps { OnFailure::KeepRest } else { OnFailure::ReturnRest };
        let selection = Selection { per_key, on_failure, ..Selection::default() };
        let wait = Duration::from_secs(60);
        let batch = world.as_time_passes(shop.selected(rng.usize(1..20), selection, wait)).await?;
        let mut open: Vec<(usize, usize, &Delivery)> = Vec::new();
        for delivery in &batch {
            let id = delivery.message.id.as_str();
            let (key, number) = (usize::from(id.as_bytes()[0] - b'0'), id[2..].parse::<usize>().unwrap_or(EACH));
            let earlier = |at: usize| done[key][at] || open.iter().any(|(of, before, _)| (*of, *before) == (key, at));
            assert!(!done[key][number] && (0..number).all(earlier), "{id} came too early");
            open.push((key, number, delivery));
        }
        rng.shuffle(&mut open);
        for (key, number, delivery) in open {
            if rng.u8(..4) == 0 {
                let nacked = shop.nack(delivery).await?;
                assert!(nacked == Verdict::Nacked || nacked == RETURNED && !keeps, "{nacked:?}");
            } else {
                match shop.settle(delivery, Decision::Ack).await? {
                    Verdict::Acked => done[key][number] = true,
                    verdict => assert!(verdict == RETURNED && !keeps, "{verdict:?}"),
                }
            }
        }
    }
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}
