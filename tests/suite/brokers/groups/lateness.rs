//! How late messages come, and that none comes early.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use serde_json::json;

use super::fleet::{Fleet, ORDERS};
use super::rounds;
use super::sidecar::{Sidecar, Taken};
use crate::support::repeatedly;

/// Messages a second: half of the goal, since this runs unoptimised, its client and Redis beside it.
const RATE: u64 = 1_000;

/// What one consumer saw: each delivery, and how late it was when the client had it.
type Seen = Vec<(Taken, i64)>;

/// Milliseconds from the due time to now on the clock of this machine, which is also that of Redis; early is negative.
fn lateness_ms(taken: &Taken, now: Timestamp) -> Result<i64> {
    let due_at: Timestamp = taken.due_at.parse().map_err(|_| Error::bug(format!("no time: {}", taken.due_at)))?;
    Ok(now.as_ms() as i64 - due_at.as_ms() as i64)
}

/// Takes and acks until nothing came for a second.
async fn consume(dwell: Sidecar) -> Result<Seen> {
    let mut seen = Seen::new();
    loop {
        let taken = dwell.reserve(ORDERS, 100, "3s").await?;
        let now = Clock::System.now();
        if taken.is_empty() {
            return Ok(seen);
        }
        for taken in &taken {
            seen.push((taken.clone(), lateness_ms(taken, now)?));
        }
        dwell.ack(ORDERS, &taken).await?;
    }
}

#[tokio::test]
async fn no_message_is_early_and_few_are_late() -> Result<()> {
    let (_fleet, members) = Fleet::with(16, &["a", "b"]).await?;
    let seconds = 3 * rounds(1) as u64;
    let count = RATE * seconds;
    let start = Clock::System.now().plus(Duration::from_secs(2));
    for page in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let due_at = || start.plus(Duration::from_millis(fastrand::u64(0..seconds * 1_000)));
        let message = |n: &u64| json!({"id": format!("m{n}"), "payload": "x", "due_at": due_at().to_string()});
        members[0].push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    let consumers: Vec<_> =
        members.iter().flat_map(|member| [0, 1].map(|_| tokio::spawn(consume(member.clone())))).collect();
    members[0].shared(ORDERS, &[8, 8]).await?;
    println!("shared {} ms before the first is due", start.as_ms() as i64 - Clock::System.now().as_ms() as i64);

    let (mut ids, mut late) = (BTreeSet::new(), Vec::new());
    for consumer in consumers {
        for (taken, ms) in consumer.await.map_err(|error| Error::bug(error.to_string()))?? {
            assert_eq!(taken.attempt, 1, "{taken:?}");
            assert!(ms >= 0, "{ms} ms: {taken:?}");
            assert!(ids.insert(taken.id.clone()), "twice: {taken:?}");
            late.push(ms);
        }
    }
    assert_eq!(ids.len() as u64, count);
    late.sort_unstable();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!("{RATE} messages a second over {seconds} s: p50 {} ms, p99 {} ms, max {} ms", at(0.5), at(0.99), at(1.0));
    assert_eq!(members[0].counts(ORDERS).await?, [0; 4]);
    Ok(())
}

#[tokio::test]
async fn earlier_message_wakes_the_sleeping_owner() -> Result<()> {
    let (_fleet, members) = Fleet::with(1, &["a", "b"]).await?;
    let push = async |id: &str, delay: &str| {
        members[1].push(ORDERS, &[json!({"id": id, "payload": "x", "delay": delay})]).await
    };
    push("far", "1h").await?;
    let sleeper = members[0].clone();
    let poll = tokio::spawn(async move { sleeper.reserve(ORDERS, 1, "5s").await });
    members[0].shared(ORDERS, &[1]).await?;
    // It has seen the head and sleeps.
    let since = Instant::now();
    repeatedly("it sleeps", || {
        let over = since.elapsed() > Duration::from_millis(200);
        async move { Ok(over.then_some(())) }
    })
    .await?;
    push("near", "300ms").await?;
    let taken = poll.await.map_err(|error| Error::bug(error.to_string()))??;
    let late = lateness_ms(taken.first().ok_or_else(|| Error::bug("nothing came"))?, Clock::System.now())?;
    println!("pushed before a head that is an hour away: {late} ms late");
    assert_eq!(taken[0].id, "near");
    // A renewal would find it, too, up to a third of the ttl later.
    assert!((0..200).contains(&late), "{late} ms");
    Ok(())
}
