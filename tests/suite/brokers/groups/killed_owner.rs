//! An owner is killed: the others take what was its, and what it had in hand comes again.

use std::time::Instant;

use dwell::model::error::Result;
use rustix::process::Signal;
use serde_json::json;

use super::TTL;
use super::fleet::{Fleet, ORDERS};
use super::load::Load;
use crate::support::eventually;

#[tokio::test]
async fn killed_owner_is_replaced_and_its_late_acks_are_stale() -> Result<()> {
    let (_fleet, members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let load = Load::start(&members);
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    load.flows(100).await?;
    // Somebody who takes his time.
    let held = members[2].take(ORDERS, 20).await?;
    load.ledger.delivered(&held);
    assert!(held.iter().all(|taken| taken.attempt == 1));

    load.leave(&members[2]);
    let since = Instant::now();
    members[2].signal(Signal::KILL)?;
    members[0].shared(ORDERS, &[16, 16]).await?;
    let taken_over = since.elapsed();
    println!("a killed owner of 32 partitions' third was replaced in {taken_over:?}, with a ttl of {TTL:?}");
    assert!(taken_over < 2 * TTL, "{taken_over:?}");

    for other in &members[..2] {
        let verdicts = other.ack(ORDERS, &held).await?;
        assert!(verdicts.iter().all(|verdict| verdict == "stale"), "{verdicts:?}");
    }
    let again = || held.iter().all(|taken| load.ledger.book().attempts.get(&taken.id).is_some_and(|a| a.len() > 1));
    eventually("what it had in hand comes again", async || Ok(again().then_some(()))).await?;
    let takeovers =
        members[0].metric("dwell_takeovers_total", "").await? + members[1].metric("dwell_takeovers_total", "").await?;
    assert!(takeovers >= 1.0);
    load.drained(&members[0], |book| {
        for taken in &held {
            assert_eq!(book.attempts.get(&taken.id).map(Vec::as_slice), Some([1, 2].as_slice()), "{}", taken.id);
        }
        // What it had fetched and perhaps handed out may have been charged; nothing comes a third time.
        let wild: Vec<_> = book.attempts.iter().filter(|(_, a)| a.len() > 2 || a.iter().any(|n| *n > 2)).collect();
        assert!(wild.is_empty(), "{wild:?}");
    })
    .await
}

/// The only consumer settles before it polls again, at another broker: nobody else makes somebody take over.
#[tokio::test]
async fn settlement_finds_out_that_the_owner_is_gone_though_nobody_consumes() -> Result<()> {
    let (_fleet, members) = Fleet::with(1, &["a", "b"]).await?;
    members[0].push(ORDERS, &[json!({"id": "m", "payload": "m"}), json!({"id": "n", "payload": "n"})]).await?;
    let held = members[1].take(ORDERS, 2).await?;
    members[1].signal(Signal::KILL)?;
    eventually("somebody is told", async || {
        let all = members[0].ask("GET /v1/attention").await?;
        let causes = all["attention"].as_array().into_iter().flatten();
        let mut causes = causes.filter_map(|item| item["cause"].as_str());
        Ok(causes.any(|cause| cause.starts_with("2 messages were in flight at a broker that is gone")).then_some(()))
    })
    .await?;
    let verdicts = members[0].ack(ORDERS, &held).await?;
    assert_eq!(verdicts, ["stale", "stale"]);
    let again = members[0].take(ORDERS, 2).await?;
    assert!(again.iter().all(|taken| taken.attempt == 2));
    Ok(())
}
