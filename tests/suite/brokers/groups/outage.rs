//! Redis stands still, or dies and comes back, under one member: whose epochs are still whole, and whose are forgotten.

use std::time::Instant;

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::json;

use super::fleet::{Fleet, ORDERS, declare};
use super::sidecar::{Sidecar, Taken};
use super::{TTL, passed, signal};
use crate::support::{RedisServer, eventually};

const PARTITIONS: u16 = 8;

/// One member that has handed out half of 40 messages.
async fn half_way(redis: RedisServer, with: &[(&str, &str)]) -> Result<(Fleet, Sidecar, Vec<Taken>)> {
    let fleet = Fleet::of(redis).await?;
    let dwell = fleet.start_with("a", with).await?;
    declare(&dwell, ORDERS, PARTITIONS).await?;
    let messages: Vec<_> = (0..40).map(|n| json!({"id": format!("m{n}"), "payload": "x"})).collect();
    dwell.push(ORDERS, &messages).await?;
    let held = dwell.take(ORDERS, 20).await?;
    assert!(held.iter().all(|taken| taken.attempt == 1));
    dwell.shared(ORDERS, &[usize::from(PARTITIONS)]).await?;
    Ok((fleet, dwell, held))
}

/// Takes and acks until the topic is empty; answers what came.
async fn rest(dwell: &Sidecar) -> Result<Vec<Taken>> {
    let mut all = Vec::new();
    eventually("the topic is empty", async || {
        let Ok(taken) = dwell.reserve(ORDERS, 100, "500ms").await else { return Ok(None) };
        let verdicts = dwell
            .ack(ORDERS, &taken[..])
            .await
            .or_else(|error| if taken.is_empty() { Ok(vec![]) } else { Err(error) })?;
        assert!(verdicts.iter().all(|verdict| verdict == "acked"), "{verdicts:?}");
        all.extend(taken);
        Ok((dwell.counts(ORDERS).await? == [0; 4]).then_some(()))
    })
    .await?;
    Ok(all)
}

/// The rest came as first attempts, and nothing else did.
fn is_the_other_half(rest: &[Taken], held: &[Taken]) {
    assert_eq!(rest.len(), 20, "{rest:?}");
    assert!(rest.iter().all(|taken| taken.attempt == 1 && held.iter().all(|held| held.id != taken.id)), "{rest:?}");
}

#[tokio::test]
async fn owner_and_pending_acks_survive_a_frozen_redis() -> Result<()> {
    let (fleet, dwell, held) = half_way(RedisServer::start().await?, &[]).await?;
    let before = fleet.epochs(usize::from(PARTITIONS)).await?;
    let since = Instant::now();
    signal(fleet.redis.pid(), Signal::STOP)?;
    let (acker, early) = (dwell.clone(), held[..10].to_vec());
    let waiting = tokio::spawn(async move { acker.ack(ORDERS, &early).await });
    passed(since, TTL * 2).await?;
    let late = dwell.clone();
    let rest_of_held = held[10..].to_vec();
    let waiting_less = tokio::spawn(async move { late.ack(ORDERS, &rest_of_held).await });
    signal(fleet.redis.pid(), Signal::CONT)?;
    for acks in [waiting, waiting_less] {
        let verdicts = acks.await.map_err(|error| Error::bug(error.to_string()))??;
        println!("acks during the outage: {verdicts:?}");
        // `pending` stands: it is repeated until the store answers.
        assert!(verdicts.iter().all(|verdict| verdict == "acked" || verdict == "pending"), "{verdicts:?}");
    }
    is_the_other_half(&rest(&dwell).await?, &held);
    println!("everything settled {:?} after the outage of {:?} began", since.elapsed(), TTL * 2);
    assert_eq!(fleet.epochs(usize::from(PARTITIONS)).await?, before, "{}", dwell.log());
    assert_eq!(dwell.metric("dwell_leases_lost_total", "").await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn redis_restart_within_the_leases_causes_no_redelivery() -> Result<()> {
    // However slow the machine is, the leases hold.
    let long = [("DWELL_LEASE_TTL", "1m")];
    let (mut fleet, dwell, held) = half_way(RedisServer::durable().await?, &long).await?;
    let before = fleet.epochs(usize::from(PARTITIONS)).await?;
    let since = Instant::now();
    fleet.redis.kill()?;
    fleet.redis.restart().await?;
    let verdicts = dwell.ack(ORDERS, &held).await?;
    println!("Redis was back after {:?}; acks: {verdicts:?}", since.elapsed());
    assert!(verdicts.iter().all(|verdict| verdict == "acked" || verdict == "pending"), "{verdicts:?}");
    is_the_other_half(&rest(&dwell).await?, &held);
    assert_eq!(fleet.epochs(usize::from(PARTITIONS)).await?, before, "{}", dwell.log());
    assert_eq!(dwell.metric("dwell_leases_lost_total", "").await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn redis_restart_after_lease_expiry_ends_the_epochs() -> Result<()> {
    let (mut fleet, dwell, held) = half_way(RedisServer::durable().await?, &[]).await?;
    let before = fleet.epochs(usize::from(PARTITIONS)).await?;
    let since = Instant::now();
    fleet.redis.kill()?;
    passed(since, TTL + TTL / 4).await?;
    fleet.redis.restart().await?;
    let back = Instant::now();
    eventually("the epochs are forgotten", async || {
        Ok((dwell.metric("dwell_leases_lost_total", "").await? >= f64::from(PARTITIONS)).then_some(()))
    })
    .await
    .inspect_err(|_| println!("{}", dwell.log()))?;
    let verdicts = dwell.ack(ORDERS, &held).await?;
    assert!(verdicts.iter().all(|verdict| verdict == "stale"), "{verdicts:?}");
    let rest = rest(&dwell).await?;
    println!("everything was settled {:?} after Redis was back", back.elapsed());
    assert_eq!(rest.len(), 40, "{rest:?}");
    for taken in held {
        let again = rest.iter().find(|again| again.id == taken.id).map(|again| again.attempt);
        assert_eq!(again, Some(2), "{}", taken.id);
    }
    let after = fleet.epochs(usize::from(PARTITIONS)).await?;
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    Ok(())
}
