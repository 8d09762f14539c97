//! What is held in memory before consumers take it: no more than the budget, nobody starves for it, and what a consumer does
//! not want keeps nobody busy.

use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, Selection};
use dwell::delivery::Decision;
use dwell::model::error::{Error, Result};
use dwell::model::limits::PREFETCH_LIMIT_BYTES_MIN;
use dwell::model::message::{GroupName, Key, NewMessage, TopicName};
use dwell::model::topic::{Descriptor, Settings};

use crate::support::{Process, Running, World, failed, scratch, stories};

stories! { prefetch_budget_bounds_all_partitions, inactive_consumer_starves_no_other_group }

const MESSAGE_BYTES: usize = 256 * 1024;

/// As many as fit into the budget twice.
const MESSAGES: usize = 128;

const PARTITIONS: u16 = 16;

/// A topic whose messages do not fit into the budget.
async fn fill(broker: &Broker, name: &str) -> Result<TopicName> {
    let topic = TopicName::new(name)?;
    let partitions = std::num::NonZeroU16::MIN.saturating_add(PARTITIONS - 1);
    broker.declare(topic.clone(), Settings { partitions, ..Settings::default() }).await?;
    for n in 0..MESSAGES {
        // The key spreads them over all partitions.
        let message = NewMessage::new(vec![b'x'; MESSAGE_BYTES]).key(Key::new(format!("k{n}"))?);
        broker.push(&topic, message).await?;
    }
    Ok(topic)
}

fn start(world: &World) -> Result<Running> {
    let day = Duration::from_secs(86_400);
    let prefetch_bytes = usize::try_from(PREFETCH_LIMIT_BYTES_MIN).unwrap_or(usize::MAX);
    Running::start(world, Options { lease_ttl: day, idle_timeout: day, prefetch_bytes, ..Options::default() })
}

/// Messages that the store counts as reserved.
async fn reserved(world: &World, descriptor: &Descriptor) -> Result<usize> {
    let partitions: Vec<_> =
        descriptor.partitions().map(|p| descriptor.group_partition(p, &GroupName::standard())).collect();
    let reserved: u64 = world.store.reads.stats(&partitions).await?.iter().map(|stats| stats.in_flight).sum();
    Ok(usize::try_from(reserved).unwrap_or(usize::MAX))
}

fn request(max: usize) -> ReserveRequest {
    ReserveRequest { max, wait: Duration::from_secs(60), visibility_timeout: Some(Duration::from_secs(3_600)) }
}

async fn prefetch_budget_bounds_all_partitions(world: World) -> Result<()> {
    let running = start(&world)?;
    let (broker, group) = (&running.broker, GroupName::standard());
    let topics = [fill(broker, "a").await?, fill(broker, "b").await?];
    let (mut taken, mut most) = (0, 0);
    // One at a time, so that all partitions prefetch for a consumer who takes little.
    while taken < 2 * MESSAGES {
        for topic in &topics {
            let deliveries = world.as_time_passes(broker.reserve(topic, &group, request(1))).await?;
            taken += deliveries.len();
            let decisions: Vec<_> = deliveries.iter().map(|it| (it.receipt.to_string(), Decision::Ack)).collect();
            if !decisions.is_empty() {
                world.as_time_passes(broker.settle(topic, &group, decisions)).await?;
            }
            let mut held = 0;
            for topic in &topics {
                held += reserved(&world, broker.topic(topic).await?.as_ref()).await?;
            }
            most = most.max(held);
        }
        if taken == 0 {
            break;
        }
        if broker.stats(&topics[0]).await?.iter().all(|(_, stats)| stats.ready + stats.in_flight == 0) {
            break;
        }
    }
    let limit = usize::try_from(PREFETCH_LIMIT_BYTES_MIN).unwrap_or(usize::MAX);
    assert!(most * MESSAGE_BYTES <= limit, "{most} messages were held");
    assert!(most * MESSAGE_BYTES > limit / 4, "{most} messages were held: too few to show anything");
    running.stop().await;
    Ok(())
}

async fn inactive_consumer_starves_no_other_group(world: World) -> Result<()> {
    let running = start(&world)?;
    let (broker, group) = (&running.broker, GroupName::standard());
    let (hog, other) = (fill(broker, "hog").await?, fill(broker, "other").await?);
    // A consumer that waits, and wants none of what is there.
    let aged = broker.clone();
    let (of_hog, of_group) = (hog.clone(), group.clone());
    running.beside(|stop| async move {
        let waits = async {
            let old = Selection { min_age: Duration::from_secs(86_400), ..Selection::default() };
            while aged.reserve_selected(&of_hog, &of_group, request(1), old).await.is_ok() {}
        };
        tokio::select! {
            () = waits => {}
            () = stop.cancelled() => {}
        }
    });
    let descriptor = broker.topic(&hog).await?;
    world
        .until("the first group holds what it may", async || {
            world.settled().await;
            world.pass(10);
            Ok(reserved(&world, &descriptor).await? > 16)
        })
        .await?;
    let mut taken = 0;
    while taken < MESSAGES {
        let deliveries = world.as_time_passes(broker.reserve(&other, &group, request(8))).await?;
        assert!(!deliveries.is_empty(), "after {taken} messages nothing came within a minute");
        taken += deliveries.len();
    }
    Ok(())
}

/// The time that the processors gave to a process, in ticks of 10 ms.
fn ticks(process: &Process) -> Result<u64> {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", process.id())).map_err(failed("the time of a process"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11).take(2);
    Ok(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

#[tokio::test]
async fn consumer_without_matching_messages_uses_no_cpu() -> Result<()> {
    let dir = scratch()?;
    let process = Process::serve(dir.path(), &[]).await?;
    let answered = |answer: Option<(u16, serde_json::Value)>| {
        answer.map(|(status, _)| status).ok_or_else(|| Error::unavailable("no answer"))
    };
    let messages: Vec<_> = (0..5).map(|n| serde_json::json!({"payload": n.to_string()})).collect();
    let batch = serde_json::json!({ "messages": messages });
    assert_eq!(answered(process.client.post("/v1/topics/orders/messages/batch", &batch).await)?, 201);
    let (before, began) = (ticks(&process)?, std::time::Instant::now());
    let want = serde_json::json!({"wait": "3s", "min_age": "1h"});
    assert_eq!(answered(process.client.post("/v1/topics/orders/groups/default/reserve", &want).await)?, 200);
    let (busy, took) = (Duration::from_millis((ticks(&process)? - before) * 10), began.elapsed());
    // Both loops that once woke each other took most of it.
    assert!(busy < took / 4, "{busy:?} of {took:?}");
    Ok(())
}
