//! The key of receipts when brokers come and go, and when Redis loses it.

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::Fleet;
use super::settle_anywhere::{ACK, both, receipts, results, statuses};
use super::sidecar::{Sidecar, Taken};
use super::signal;
use crate::support::eventually;

const KEY: &str = "dwell:receipt-key";

async fn key(fleet: &Fleet) -> Result<Option<String>> {
    fleet.redis.ask(&format!("GET {KEY}")).await
}

/// The verdicts on acks of these and of one that is made up, which comes last.
async fn acked(at: &Sidecar, taken: &[Taken]) -> Result<Vec<Value>> {
    let (front, back) = taken[0].receipt.split_at(40);
    let made_up = format!("{front}{}{}", if back.starts_with('A') { 'B' } else { 'A' }, &back[1..]);
    let receipts: Vec<&str> = receipts(taken).into_iter().chain([made_up.as_str()]).collect();
    results(at, ACK, json!({"receipts": receipts})).await
}

/// Which of these receipts are known, of messages that are acked: an owner that came after the loss finds them stale, not unknown.
async fn known(at: &Sidecar, taken: &[Taken]) -> Result<Vec<bool>> {
    Ok(acked(at, taken).await?.iter().map(|verdict| verdict["status"] != "unknown").collect())
}

/// The key that a broker keeps in its directory first.
fn kept(fleet: &Fleet, name: &str) -> Result<Option<String>> {
    let text = std::fs::read_to_string(fleet.file(name).join("receipt-keys"));
    Ok(text
        .map_err(|error| Error::bug(error.to_string()))?
        .lines()
        .next()
        .and_then(|line| line.split_once(' '))
        .map(|(_, key)| key.to_owned()))
}

#[tokio::test]
async fn a_lost_key_is_put_back_and_receipts_of_before_stay_known() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let before = key(&fleet).await?;
    assert!(before.is_some() && before == kept(&fleet, "a")? && before == kept(&fleet, "b")?);
    // Then no broker takes a partition by itself, and a push may be the first call that finds Redis empty.
    eventually("nobody asks for messages", async || {
        let group = a.ask("GET /v1/topics/orders/groups/default").await?;
        let mut members = group["members"].as_array().into_iter().flatten();
        Ok(members.all(|member| member["demand"] == false).then_some(()))
    })
    .await?;
    fleet.redis.ask::<()>("FLUSHALL").await?;
    a.push("orders", &[json!({"id": "later", "payload": "x"})]).await?;
    eventually("the key is put back", async || {
        a.reserve("orders", 1, "100ms").await?;
        Ok((key(&fleet).await? == before).then_some(()))
    })
    .await?;
    for member in [&a, &b] {
        let verdicts = acked(member, &of_a).await?;
        let (made_up, authentic) = verdicts.split_last().ok_or_else(|| Error::bug("no verdicts"))?;
        assert_eq!((&made_up["status"], &made_up["reason"]), (&json!("unknown"), &json!("invalid")));
        assert!(authentic.iter().all(|verdict| verdict["status"] != "unknown"), "{authentic:?}");
    }
    Ok(())
}

#[tokio::test]
async fn another_key_at_the_store_is_taken_and_receipts_of_before_stay_known() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let before = key(&fleet).await?;
    let other = "A".repeat(43);
    let swap = format!("redis.call('FLUSHALL') redis.call('SET','{KEY}','{other}')");
    fleet.redis.call::<()>(redis::cmd("EVAL").arg(swap).arg(0)).await?;
    a.push("orders", &[json!({"id": "later", "payload": "x"})]).await?;
    // What was prefetched before is delivered, and nobody has it any more.
    let later = eventually("something is delivered and acked", async || {
        for member in [&a, &b] {
            let taken = member.reserve("orders", 1, "1s").await?;
            if !taken.is_empty() && statuses(&acked(member, &taken).await?) == ["acked", "unknown"] {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    })
    .await?;
    assert_eq!(key(&fleet).await?, Some(other));
    for member in [&a, &b] {
        let verdicts = acked(member, &of_a).await?;
        assert!(verdicts[..of_a.len()].iter().all(|verdict| verdict["status"] != "unknown"), "{verdicts:?}");
        assert_eq!(known(member, &later).await?, [true, false], "{}", member.log());
    }
    let fresh = fleet.start("c").await?;
    assert_eq!(known(&fresh, &later).await?, [true, false], "the store has its key");
    // Nobody can say any more whether a fresh broker's store ever had the key of before.
    assert_eq!(statuses(&acked(&fresh, &of_a[..1]).await?), ["unknown", "unknown"]);
    assert_ne!(before, key(&fleet).await?);
    Ok(())
}

#[tokio::test]
async fn without_redis_no_receipt_is_called_invalid_but_garbage() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    signal(fleet.redis.pid(), Signal::STOP)?;
    let is_unsure = async || {
        let verdicts = acked(&b, &of_a[..1]).await?;
        Ok((statuses(&verdicts) == ["unreachable", "unreachable"]).then_some(()))
    };
    let unsure = eventually("nobody can say that it is none", is_unsure).await;
    let garbage = results(&b, ACK, json!({"receipts": ["garbage.", "garbage."]})).await;
    signal(fleet.redis.pid(), Signal::CONT)?;
    unsure?;
    assert!(garbage?.iter().all(|verdict| verdict["reason"] == "invalid"));
    assert_eq!(statuses(&acked(&b, &of_a).await?)[..10], ["acked"; 10], "{}", a.log());
    Ok(())
}
