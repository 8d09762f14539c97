//! What is said of a group at one member is obeyed by all: a pause, a limit, the end of the group.

use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use dwell::model::time::{Timestamp, parse_timestamp};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::TTL;
use super::fleet::{Fleet, ORDERS};
use super::sidecar::Sidecar;

const GROUP: &str = "/v1/topics/orders/groups/default";

async fn push(at: &Sidecar, prefix: &str, count: usize) -> Result<()> {
    let message = |n| json!({"payload": "x", "key": format!("{prefix}{n}")});
    at.push(ORDERS, &(0..count).map(message).collect::<Vec<_>>()).await
}

/// What each of them is handed out, asked at the same time.
async fn asked(members: &[Sidecar], wait: &str) -> Result<usize> {
    let taken = join_all(members.iter().map(|member| member.reserve(ORDERS, 100, wait))).await;
    taken.into_iter().map(|taken| taken.map(|taken| taken.len())).sum()
}

/// Until each owns its part.
async fn settle_in(members: &[Sidecar]) -> Result<()> {
    for _ in 0..100 {
        asked(members, "100ms").await?;
        let owners = members[0].owners(ORDERS).await?;
        let distinct: std::collections::BTreeSet<_> = owners.iter().flatten().collect();
        if owners.iter().all(Option::is_some) && distinct.len() == members.len() {
            return Ok(());
        }
    }
    Err(Error::unavailable("the partitions were not shared"))
}

#[tokio::test]
async fn pause_and_deletion_reach_all_members() -> Result<()> {
    let (_fleet, members) = Fleet::with(8, &["a", "b"]).await?;
    settle_in(&members).await?;
    members[0].tell(&format!("POST {GROUP}/pause"), &json!({})).await?;
    let since = Instant::now();
    // The other one hears of it in a moment; what it hands out until then is the last.
    push(&members[0], "k", 64).await?;
    let mut rounds = 0;
    while asked(&members, "100ms").await? > 0 {
        rounds += 1;
    }
    let heard = since.elapsed();
    println!("a pause was obeyed by all after {heard:?} and {rounds} rounds");
    assert!(heard < TTL, "{heard:?}");
    for _ in 0..3 {
        push(&members[1], "l", 16).await?;
        assert_eq!(asked(&members, "100ms").await?, 0);
    }
    members[1].tell(&format!("POST {GROUP}/resume"), &json!({})).await?;
    let mut taken = 0;
    for _ in 0..20 {
        taken += asked(&members, "200ms").await?;
    }
    assert!(taken >= 48, "{taken}");

    members[0].tell("PUT /v1/topics/orders/groups/other", &json!({})).await?;
    let waits = members[1].reserve(ORDERS, 1, "20s");
    let line = format!("DELETE {GROUP}");
    let deletes = members[0].ask(&line);
    let (waited, deleted) = futures_util::future::join(waits, deletes).await;
    deleted?;
    // Whoever waited is told so; whoever asks is, too.
    assert!(waited.is_ok_and(|taken| !taken.is_empty()) || members[1].reserve(ORDERS, 1, "1s").await.is_err());
    let refused = members[1].reserve(ORDERS, 1, "1s").await;
    assert!(refused.as_ref().is_err_and(|error| error.detail().contains("no group default")), "{refused:?}");
    Ok(())
}

/// When each delivery of an answer was handed out, by the clock of the store.
fn handed_out(answer: &Value, visibility: Duration) -> Result<Vec<Timestamp>> {
    let deliveries = answer["deliveries"].as_array().ok_or_else(|| Error::corrupt("no deliveries"))?;
    let time = |delivery: &Value| {
        let deadline = parse_timestamp(delivery["deadline"].as_str().unwrap_or_default()).map_err(Error::bug)?;
        Ok(Timestamp::from_ms(deadline.as_ms() - u64::try_from(visibility.as_millis()).unwrap_or(0)))
    };
    deliveries.iter().map(time).collect()
}

#[tokio::test]
async fn rate_limit_holds_when_a_member_dies() -> Result<()> {
    const RATE: usize = 40;
    let (_fleet, members) = Fleet::with(8, &["a", "b", "c"]).await?;
    settle_in(&members).await?;
    members[0].tell(&format!("PUT {GROUP}"), &json!({"rate": RATE})).await?;
    push(&members[0], "k", 160).await?;
    let visibility = Duration::from_secs(3_600);
    let since = Instant::now();
    let drain = async |member: &Sidecar, ends: bool| -> Result<Vec<Timestamp>> {
        let mut times = Vec::new();
        while since.elapsed() < Duration::from_secs(9) {
            let body = json!({"max": 10, "wait": "500ms", "visibility_timeout": "1h"});
            match member.tell(&format!("POST {GROUP}/reserve"), &body).await {
                Ok(answer) => times.extend(handed_out(&answer, visibility)?),
                Err(_) if ends => break,
                Err(error) => return Err(error),
            }
            if ends && since.elapsed() > Duration::from_secs(1) && !member.is_over() {
                member.signal(Signal::KILL)?;
            }
        }
        Ok(times)
    };
    let all = join_all([drain(&members[0], false), drain(&members[1], false), drain(&members[2], true)]).await;
    let mut times: Vec<Timestamp> = all.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    times.sort();
    // A member knows the clock of the store to some milliseconds.
    let window = Duration::from_millis(970);
    let within = |from: &Timestamp| times.iter().filter(|at| *at >= from && at.since(*from) < window).count();
    let most = times.iter().map(within).max().unwrap_or(0);
    println!("{} hand-overs, at most {most} in a second of {RATE}", times.len());
    assert!(most <= RATE, "{most}");
    assert!(times.len() >= 120, "{}", times.len());
    Ok(())
}
