//! Many messages: none is lost, comes twice, or comes early.

use std::collections::HashSet;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::store::{PartitionStats, Settlement};

use crate::support::{World, up_to};

/// Fewer without optimizations, so that the suite stays short.
const MESSAGES: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
/// Due times spread over so many milliseconds.
const SPREAD_MS: usize = 50;

async fn nothing_is_lost_doubled_or_early(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let message = |n: usize| orders.message(&format!("m{n:06}"), (n * 7_919 % SPREAD_MS) as u64);
    for page in (0..MESSAGES).map(message).collect::<Result<Vec<_>>>()?.chunks(1_000) {
        orders.push_all(page).await?;
    }
    let mut owner = orders.owner().await?;
    let mut drained = HashSet::with_capacity(MESSAGES);
    for _ in 0..=SPREAD_MS {
        loop {
            let taken = owner.reserve(up_to(1_000)).await?;
            if taken.messages.is_empty() {
                break;
            }
            let mut acks = Settlement { remaining: vec![(taken.reservation, vec![])], ..Settlement::default() };
            for message in taken.messages {
                let due_at = message.message.map(|message| message.due_at)?;
                assert!(due_at <= world.now() && world.now().since(due_at) < Duration::from_millis(1));
                assert!(drained.insert(message.id.clone()), "{} came twice", message.id);
                acks.acked.push(message.id);
            }
            owner.settle(&acks).await?;
        }
        world.pass(1);
    }
    assert_eq!(drained.len(), MESSAGES);
    let stats = orders.stats().await?;
    assert_eq!(PartitionStats { owner: None, ..stats }, PartitionStats::default());
    Ok(())
}

#[tokio::test]
async fn embedded() -> Result<()> {
    nothing_is_lost_doubled_or_early(World::embedded().await?).await
}

#[tokio::test]
async fn redis() -> Result<()> {
    nothing_is_lost_doubled_or_early(World::redis().await?).await
}
