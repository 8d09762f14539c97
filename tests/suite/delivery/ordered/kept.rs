//! Batches of a key whose later messages stay with their consumer when one fails: each has its own visibility.

use std::time::Duration;

use dwell::broker::Selection;
use dwell::delivery::{Decision, Delivery, StaleReason, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::retry::{Backoff, LadderStep, OnFailure};
use dwell::model::topic::Settings;

use super::shop::{Shop, by_key, ids};
use crate::support::{World, kind_of, stories};

stories! {
    a_failed_message_leaves_the_rest_to_its_consumer, what_came_back_waits_only_for_earlier_ones,
    an_extended_message_holds_those_behind_it, messages_of_a_dead_consumer_come_back_in_one_batch,
    what_came_back_stays_in_front_without_a_consumer, batch_of_a_lost_owner_is_redelivered_in_its_order,
    a_batch_that_returns_together_leaves_what_others_keep, a_rest_needs_a_batch,
}

/// A failed message is due again at once.
fn at_once() -> Settings {
    Settings { backoff: Backoff::Ladder { steps: vec![LadderStep(Duration::ZERO)] }, ..by_key() }
}

impl Shop<'_> {
    /// Up to ten, each for itself.
    async fn each(&self) -> Result<Vec<Delivery>> {
        let selection = Selection { per_key: 10, on_failure: OnFailure::KeepRest, ..Selection::default() };
        self.selected(10, selection, Duration::from_secs(60)).await
    }

    /// Messages pushed together, in one batch.
    async fn pushed(&self, pushed: &[&str]) -> Result<Vec<Delivery>> {
        self.push_together(pushed).await?;
        let batch = self.each().await?;
        assert_eq!(ids(&batch), pushed);
        Ok(batch)
    }
}

async fn a_failed_message_leaves_the_rest_to_its_consumer(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let batch = shop.pushed(&["a-1", "a-2", "a-3"]).await?;
    assert_eq!(shop.nack(&batch[0]).await?, Verdict::Nacked);
    for delivery in &batch[1..] {
        shop.ack(delivery).await?;
    }
    shop.push("a-4", 0).await?;
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-1", 2));
    shop.ack(&again).await?;
    assert_eq!(shop.drain(1).await?, ["a-4"], "what was acked never comes again");
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn what_came_back_waits_only_for_earlier_ones(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let batch = shop.pushed(&["a-1", "a-2", "a-3"]).await?;
    shop.push("a-4", 0).await?;
    assert_eq!(shop.nack(&batch[1]).await?, Verdict::Nacked);
    shop.nothing().await?;
    shop.ack(&batch[0]).await?;
    let second = shop.each().await?;
    assert_eq!((ids(&second), second[0].attempt), (vec!["a-2"], 2), "a-3 is still out, and a-4 is behind it");
    assert_eq!(shop.nack(&batch[2]).await?, Verdict::Nacked);
    shop.nothing().await?;
    assert_eq!(shop.nack(&second[0]).await?, Verdict::Nacked);
    let rest = shop.each().await?;
    assert_eq!(ids(&rest), ["a-2", "a-3", "a-4"]);
    assert_eq!(rest.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [3, 2, 1]);
    for delivery in rest.iter().rev() {
        shop.ack(delivery).await?;
    }
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn an_extended_message_holds_those_behind_it(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let batch = shop.pushed(&["a-1", "a-2", "a-3"]).await?;
    let receipts = [batch[1].receipt.clone()];
    shop.broker.extend(&shop.topic, &shop.group, &receipts, Duration::from_secs(60)).await?;
    world.pass(31_000);
    let first = shop.each().await?;
    assert_eq!(ids(&first), ["a-1"]);
    shop.ack(&first[0]).await?;
    shop.nothing().await?;
    let passed = Verdict::Stale(StaleReason::DeadlinePassed);
    assert_eq!(shop.settle(&batch[2], Decision::Ack).await?, passed);
    shop.ack(&batch[1]).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    Ok(())
}

async fn messages_of_a_dead_consumer_come_back_in_one_batch(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let pushed: Vec<String> = (0..30).map(|n| format!("a-{n:02}")).collect();
    let pushed: Vec<&str> = pushed.iter().map(String::as_str).collect();
    shop.push_together(&pushed).await?;
    assert_eq!(ids(&shop.each().await?), pushed[..10]);
    world.pass(31_000);
    for (part, attempt) in pushed.chunks(10).zip([2, 1, 1]) {
        let batch = shop.each().await?;
        assert_eq!((ids(&batch).as_slice(), batch[9].attempt), (part, attempt));
        for delivery in &batch {
            shop.ack(delivery).await?;
        }
    }
    Ok(())
}

async fn what_came_back_stays_in_front_without_a_consumer(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let batch = shop.pushed(&["a-1", "a-2", "a-3"]).await?;
    shop.push("a-4", 0).await?;
    assert_eq!(shop.nack(&batch[0]).await?, Verdict::Nacked);
    // More than a second without a consumer: what nobody had goes back.
    world.pass(1_500);
    world.settled().await;
    assert_eq!(shop.nack(&batch[1]).await?, Verdict::Nacked);
    let again = shop.each().await?;
    assert_eq!(ids(&again), ["a-1", "a-2"], "a-3 is out");
    for delivery in again.iter().chain(&batch[2..]) {
        shop.ack(delivery).await?;
    }
    assert_eq!(shop.drain(1).await?, ["a-4"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn batch_of_a_lost_owner_is_redelivered_in_its_order(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let batch = shop.pushed(&["a-1", "a-2", "a-3", "a-4"]).await?;
    assert_eq!(shop.nack(&batch[2]).await?, Verdict::Nacked);
    shop.ack(&batch[1]).await?;
    assert_eq!(shop.nack(&batch[0]).await?, Verdict::Nacked);
    let mut owner = world.steal(&shop.group_partition().await?, shop.broker.member()).await?;
    owner.keep_positions();
    while owner.recover().await?.more {}
    let again = owner.reserve(crate::support::up_to(9)).await?.messages;
    assert_eq!(crate::support::ids_of(&again), ["a-1", "a-3", "a-4"]);
    assert_eq!(shop.settle(&batch[3], Decision::Ack).await?, Verdict::Stale(StaleReason::LostPartition));
    Ok(())
}

async fn a_batch_that_returns_together_leaves_what_others_keep(world: World) -> Result<()> {
    let shop = Shop::open(&world, at_once()).await?;
    let kept = shop.pushed(&["a-1", "a-2", "a-3"]).await?;
    assert_eq!(shop.nack(&kept[0]).await?, Verdict::Nacked);
    let together = Selection { per_key: 10, ..Selection::default() };
    let again = shop.selected(10, together, Duration::from_secs(60)).await?;
    assert_eq!(ids(&again), ["a-1"]);
    assert_eq!(shop.nack(&again[0]).await?, Verdict::Nacked);
    for delivery in &kept[1..] {
        shop.ack(delivery).await?;
    }
    assert_eq!(shop.drain(1).await?, ["a-1"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn a_rest_needs_a_batch(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let selection = Selection { on_failure: OnFailure::KeepRest, ..Selection::default() };
    assert_eq!(kind_of(shop.selected(10, selection, Duration::ZERO).await), Some(Kind::Invalid));
    Ok(())
}
