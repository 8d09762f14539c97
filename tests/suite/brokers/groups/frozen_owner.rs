//! An owner stands still for longer than its leases, as under a suspended machine, and then goes on.

use std::time::Instant;

use dwell::model::error::Result;
use futures_util::future::join;
use rustix::process::Signal;
use serde_json::json;

use super::fleet::{Fleet, ORDERS, declare};
use super::load::Load;
use super::sidecar::Sidecar;
use super::{TTL, passed};
use crate::support::{Mode, Proxy, RedisServer, Strike, eventually};

#[tokio::test]
async fn frozen_owner_settles_nothing_under_old_epochs() -> Result<()> {
    let (fleet, members) = Fleet::with(16, &["a", "b"]).await?;
    let load = Load::start(&members);
    members[0].shared(ORDERS, &[8, 8]).await?;
    load.flows(100).await?;
    let held = members[1].take(ORDERS, 20).await?;
    load.ledger.delivered(&held);

    load.leave(&members[1]);
    let (since, before) = (Instant::now(), fleet.epochs(16).await?);
    members[1].signal(Signal::STOP)?;
    members[0].shared(ORDERS, &[16]).await?;
    let taken_over = since.elapsed();
    passed(since, TTL * 3).await?;
    members[1].signal(Signal::CONT)?;
    // The very first thing it hears is an ack of what it handed out before.
    let verdicts = members[1].ack(ORDERS, &held).await?;
    assert!(verdicts.iter().all(|verdict| verdict == "stale"), "{verdicts:?}");

    members[0].shared(ORDERS, &[8, 8]).await?;
    let after = fleet.epochs(16).await?;
    let mine: Vec<_> = held.iter().map(|taken| taken.partition).collect();
    assert!(mine.iter().all(|partition| before[*partition] != after[*partition]), "{before:?} {after:?}");
    // A loop that the other member was faster than ends once its last call is answered.
    let lost = eventually("it knows that it lost all of them", async || {
        let lost = members[1].metric("dwell_leases_lost_total", "").await?;
        Ok((lost >= 8.0).then_some(lost))
    })
    .await?;
    println!("16 partitions: taken over {taken_over:?} after SIGSTOP; {lost} epochs lost after SIGCONT");
    eventually("what it had in hand comes again", async || {
        let book = load.ledger.book();
        Ok(held.iter().all(|taken| book.attempts.get(&taken.id).is_some_and(|a| a.len() > 1)).then_some(()))
    })
    .await?;
    load.drained(&members[0], |book| {
        for taken in &held {
            assert_eq!(book.attempts.get(&taken.id).map(Vec::as_slice), Some([1, 2].as_slice()), "{}", taken.id);
        }
        assert_eq!(book.acked.union(&book.doubtful).count(), book.pushed.len());
    })
    .await
}

/// Redis applied its ack, and it stood still before it read the answer.
#[tokio::test]
async fn ack_with_a_late_reply_is_not_stale() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let proxy = Proxy::before(&fleet.redis)?;
    let frozen = Sidecar::start(&fleet.file(""), "a", &proxy.url(), &[]).await?;
    let other = fleet.start("b").await?;
    declare(&frozen, ORDERS, 1).await?;
    frozen.push(ORDERS, &[json!({"id": "m", "payload": "m"})]).await?;
    let held = frozen.take(ORDERS, 1).await?;
    proxy.next_with(Strike::Outage, "{dwell:orders:0}:default:n");
    let meanwhile = async {
        proxy.refuses().await?;
        frozen.signal(Signal::STOP)?;
        eventually("another one has the partition", async || {
            let nothing = other.reserve(ORDERS, 1, "100ms").await?;
            assert!(nothing.is_empty(), "{nothing:?}");
            Ok((other.metric("dwell_leases_owned", "").await? >= 1.0).then_some(()))
        })
        .await?;
        proxy.set(Mode::Pass);
        frozen.signal(Signal::CONT)
    };
    let (verdicts, done) = join(frozen.ack(ORDERS, &held), meanwhile).await;
    done?;
    assert_eq!(other.counts(ORDERS).await?, [0; 4]);
    // It is pending if all of this took longer than an ack waits.
    let verdict = verdicts?.remove(0);
    assert!(verdict == "unknown_outcome" || verdict == "pending", "{verdict}\n{}", frozen.log());
    eventually("the epoch is over", async || {
        Ok((frozen.metric("dwell_leases_lost_total", "").await? >= 1.0).then_some(()))
    })
    .await?;
    assert_eq!(frozen.metric("dwell_settled_total", "outcome=\"stale\"").await?, 0.0);
    Ok(())
}
