//! Receipts that come to another member than the one that handed the delivery out.

use dwell::model::error::{Error, Result};
use futures_util::future::try_join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS, declare};
use super::sidecar::{Sidecar, Taken};
use crate::support::{RedisServer, eventually};

pub(super) const ACK: &str = "POST /v1/topics/orders/groups/default/ack";
const RELEASE: &str = "POST /v1/topics/orders/groups/default/release";
pub(super) const NACK: &str = "POST /v1/topics/orders/groups/default/nack";
pub(super) const EXTEND: &str = "POST /v1/topics/orders/groups/default/extend";

/// Two members, each with half of 8 partitions and 10 messages in hand.
pub(super) async fn both() -> Result<(Fleet, [(Sidecar, Vec<Taken>); 2])> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    let [of_a, of_b] = in_hand([&a, &b]).await?;
    Ok((fleet, [(a, of_a), (b, of_b)]))
}

/// Shares the topic between two members and lets each take 10 messages.
pub(super) async fn in_hand(members: [&Sidecar; 2]) -> Result<[Vec<Taken>; 2]> {
    declare(members[0], ORDERS, 8).await?;
    // Both at once: they want some of the same partitions, and whoever comes too late has no reason to warn.
    members[0].shared_by(&members, ORDERS, &[4, 4]).await?;
    for member in members {
        assert!(!member.log().contains("WARN"), "{}", member.log());
    }
    let message = |n| json!({"id": format!("m{n}"), "payload": "x"});
    members[0].push(ORDERS, &(0..100).map(message).collect::<Vec<_>>()).await?;
    let taken = try_join_all(members.map(|member| member.take(ORDERS, 10))).await?;
    <[Vec<Taken>; 2]>::try_from(taken).map_err(|_| Error::bug("two members"))
}

pub(super) fn receipts(taken: &[Taken]) -> Vec<&str> {
    taken.iter().map(|taken| taken.receipt.as_str()).collect()
}

/// The results of a settling request.
pub(super) async fn results(at: &Sidecar, line: &str, body: Value) -> Result<Vec<Value>> {
    let answer = at.tell(line, &body).await?;
    answer["results"].as_array().cloned().ok_or_else(|| Error::bug("no results"))
}

async fn acked(at: &Sidecar, receipts: &[&str]) -> Result<Vec<Value>> {
    results(at, ACK, json!({"receipts": receipts})).await
}

pub(super) fn statuses(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["status"].as_str().unwrap_or_default()).collect()
}

impl Fleet {
    /// How many messages the topic has.
    pub(super) async fn counts(&self) -> Result<u64> {
        let mut count = 0;
        for partition in 0..8 {
            count += self.redis.ask::<u64>(&format!("HLEN {{dwell:{ORDERS}:{partition}}}:default:h")).await?;
        }
        Ok(count)
    }
}

#[tokio::test]
async fn a_receipt_is_settled_at_any_member() -> Result<()> {
    let (fleet, [(a, of_a), (b, of_b)]) = both().await?;
    // Of both members, one by one in turn, and one of nobody.
    let mut mixed: Vec<&str> =
        of_a[..8].iter().zip(&of_b).flat_map(|(a, b)| [a, b]).map(|t| t.receipt.as_str()).collect();
    mixed.insert(5, "nonsense");
    let first = acked(&b, &mixed).await?;
    let expected: Vec<&str> = (0..17).map(|at| if at == 5 { "unknown" } else { "acked" }).collect();
    assert_eq!(statuses(&first), expected, "{}", b.log());
    assert!(first.iter().zip(&mixed).all(|(result, receipt)| result["receipt"] == *receipt), "{first:?}");
    assert_eq!(b.metric("dwell_remote_requests_total", "outcome=\"answered\"").await?, 1.0);
    // An answer that was lost is asked for again, wherever.
    for member in [&a, &b] {
        assert_eq!(statuses(&acked(member, &mixed).await?), expected);
    }
    assert_eq!(fleet.counts().await?, 100 - 16);
    let settled = a.metric("dwell_settled_total", "acked").await? + b.metric("dwell_settled_total", "acked").await?;
    assert_eq!(settled, 16.0, "each is counted once");

    let (ninth, tenth) = (of_a[8].receipt.as_str(), of_a[9].receipt.as_str());
    let extended = results(&b, EXTEND, json!({"receipts": [ninth], "visibility_timeout": "10m"})).await?;
    assert_eq!(extended[0]["status"], "extended");
    assert!(extended[0]["deadline"].is_string() && extended[0].get("owner").is_none(), "{extended:?}");
    let error = json!({"class": "Never", "message": "no", "stack": "at a\nat b"});
    let nack = json!({"receipts": [
        {"receipt": ninth, "delay": "1h", "reason": "busy"}, {"receipt": tenth, "bury": true, "reason": error},
    ]});
    assert_eq!(statuses(&results(&b, NACK, nack).await?), ["nacked", "buried"]);
    let looked = a.ask(&format!("GET /v1/topics/orders/messages/{}", of_a[8].id)).await?;
    assert_eq!(looked["state"], "scheduled", "{looked}");
    let dead = a.ask("GET /v1/topics/orders/groups/default/dead-letters").await?;
    assert_eq!((&dead["dead_letters"][0]["id"], &dead["dead_letters"][0]["last_error"]), (&json!(of_a[9].id), &error));
    let back = of_a[7].receipt.as_str();
    let over = results(&b, RELEASE, json!({"receipts": [back]})).await?;
    assert_eq!((&over[0]["status"], &over[0]["reason"]), (&json!("stale"), &json!("already_settled")), "{over:?}");
    let more = a.take(ORDERS, 1).await?;
    for _ in 0..2 {
        let released = results(&b, RELEASE, json!({"receipts": [more[0].receipt]})).await?;
        assert_eq!(statuses(&released), ["released"], "{released:?}");
    }
    let looked = a.ask(&format!("GET /v1/topics/orders/messages/{}", more[0].id)).await?;
    assert_eq!(looked["attempts"], 0, "{looked}");
    // What the owner says is final, and it names nobody.
    let over = acked(&b, &[ninth]).await?;
    assert_eq!((&over[0]["status"], over[0].get("owner")), (&json!("stale"), None));
    Ok(())
}

#[tokio::test]
async fn receipts_of_a_lost_owner_become_stale_after_takeover() -> Result<()> {
    let (_fleet, [(a, of_a), (b, of_b)]) = both().await?;
    let owners = a.owners(ORDERS).await?;
    // A delivery that is in flight is demand.
    b.take(ORDERS, 1).await?;
    a.signal(Signal::KILL)?;
    let all: Vec<&str> = receipts(&of_a).into_iter().chain(receipts(&of_b)).collect();
    let first = acked(&b, &all).await?;
    for (result, taken) in first.iter().zip(&of_a) {
        // Its lease lapses within the request, or not; and it may have heard of it before it died.
        match result["status"].as_str() {
            Some("unreachable") => assert_eq!(result["owner"].as_str(), owners[taken.partition].as_deref(), "{result}"),
            Some("unknown_outcome") => assert!(result.get("owner").is_none(), "{result}"),
            _ => assert_eq!(result["reason"], "lost_partition", "{result}"),
        }
    }
    assert_eq!(statuses(&first[10..]), ["acked"; 10], "one that is gone holds nobody up");
    b.shared(ORDERS, &[8]).await?;
    let later = acked(&b, &receipts(&of_a)).await?;
    assert_eq!(statuses(&later), ["stale"; 10]);
    assert!(later.iter().all(|result| result.get("owner").is_none()), "{later:?}");
    let mut again: Vec<String> = Vec::new();
    eventually("what it had in hand comes again", async || {
        let taken = b.reserve(ORDERS, 100, "1s").await?;
        again.extend(taken.iter().filter(|taken| taken.attempt > 1).map(|taken| taken.id.clone()));
        Ok(of_a.iter().all(|taken| again.contains(&taken.id)).then_some(()))
    })
    .await
}

/// The results of a request that is repeated until the owner that took over can answer.
async fn reached(member: &Sidecar, verb: &str, body: Value) -> Result<Vec<Value>> {
    eventually("the new owner is reached", async || {
        let results = results(member, verb, body.clone()).await?;
        Ok(results.iter().all(|result| result["status"] != "unreachable").then_some(results))
    })
    .await
}

#[tokio::test]
async fn a_late_settlement_counts_at_any_member_and_after_a_takeover() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let late = |taken: &[Taken]| json!({"receipts": receipts(taken), "late": true});
    let nack = json!({"receipts": receipts(&of_a[..2]), "delay": "1h"});
    assert_eq!(statuses(&results(&a, NACK, nack).await?), ["nacked"; 2]);
    for member in [&b, &a, &b] {
        assert_eq!(statuses(&results(member, ACK, late(&of_a[..2])).await?), ["acked"; 2], "{}", member.log());
    }
    assert_eq!(fleet.counts().await?, 98);
    // A delivery that is in flight is demand.
    b.take(ORDERS, 1).await?;
    a.signal(Signal::KILL)?;
    b.shared(ORDERS, &[8]).await?;
    let mut extend = late(&of_a[2..4]);
    extend["visibility_timeout"] = json!("10m");
    assert_eq!(statuses(&reached(&b, EXTEND, extend).await?), ["extended"; 2], "{}", b.log());
    for _ in 0..2 {
        assert_eq!(statuses(&reached(&b, ACK, late(&of_a[4..])).await?), ["acked"; 6], "{}", b.log());
    }
    assert_eq!(statuses(&acked(&b, &receipts(&of_a[2..4])).await?), ["stale"; 2], "not without being asked for");
    assert_eq!(fleet.counts().await?, 92);
    let looked = b.ask(&format!("GET /v1/topics/orders/messages/{}", of_a[2].id)).await?;
    assert_eq!((&looked["state"], &looked["attempts"]), (&json!("scheduled"), &json!(1)), "{looked}");
    Ok(())
}

#[tokio::test]
async fn frozen_owner_delays_a_settlement_by_its_timeout_only() -> Result<()> {
    let (_fleet, [(a, of_a), (b, _)]) = both().await?;
    a.signal(Signal::STOP)?;
    let since = std::time::Instant::now();
    let verdicts = acked(&b, &receipts(&of_a)).await?;
    assert_eq!(statuses(&verdicts), ["unreachable"; 10]);
    println!("an owner that stood still was given up after {:?}", since.elapsed());
    assert!(since.elapsed().as_secs() < 7, "{:?}", since.elapsed());
    a.signal(Signal::CONT)
}

/// An owner that stood still too long, and whose partitions another member has taken: its receipts are over everywhere.
#[tokio::test]
async fn receipt_of_an_ended_epoch_is_stale_without_a_remote_call() -> Result<()> {
    let (_fleet, [(a, of_a), (b, _)]) = both().await?;
    a.signal(Signal::STOP)?;
    b.shared(ORDERS, &[8]).await?;
    let requests = b.metric("dwell_remote_requests_total", "").await?;
    let over = acked(&b, &receipts(&of_a)).await?;
    assert!(over.iter().all(|result| result["reason"] == "lost_partition"), "{over:?}");
    assert_eq!(b.metric("dwell_remote_requests_total", "").await?, requests, "nobody was asked");
    assert_eq!(b.metric("dwell_settled_total", "outcome=\"stale\"").await?, 10.0);
    a.signal(Signal::CONT)
}

/// A request that waits in Redis for an owner that stands still is worked on once the owner goes on, if it still counts.
#[tokio::test]
async fn briefly_frozen_owner_answers_pending_requests() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    a.signal(Signal::STOP)?;
    let (of_a, asked) = (receipts(&of_a), b.clone());
    let acking = acked(&asked, &of_a);
    let resume = async {
        let sent = "the request has been sent";
        let published = async || {
            let stats: String = fleet.redis.ask("INFO commandstats").await?;
            let stats = stats.lines().find(|line| line.starts_with("cmdstat_spublish:")).map(str::to_owned);
            Ok(stats)
        };
        let before = published().await?;
        crate::support::eventually(sent, async || Ok((published().await? != before).then_some(()))).await?;
        a.signal(Signal::CONT)
    };
    let (verdicts, resumed) = futures_util::future::join(acking, resume).await;
    resumed?;
    assert_eq!(statuses(&verdicts?), ["acked"; 10], "{}", a.log());
    assert_eq!(fleet.counts().await?, 90);
    Ok(())
}
