//! Receipts that are brought to another member than the one that handed the delivery out.

use dwell::error::{Error, Result};
use futures_util::future::try_join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS, declare};
use super::sidecar::{Sidecar, Taken};
use crate::support::{RedisServer, eventually};

pub(super) const ACK: &str = "POST /v1/topics/orders/groups/default/ack";
pub(super) const NACK: &str = "POST /v1/topics/orders/groups/default/nack";
const EXTEND: &str = "POST /v1/topics/orders/groups/default/extend";

/// Two members that say where they are, each with half of 8 partitions and 10 messages in hand.
async fn both() -> Result<(Fleet, [(Sidecar, Vec<Taken>); 2])> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start_advertised("a").await?, fleet.start_advertised("b").await?);
    let [of_a, of_b] = in_hand([&a, &b]).await?;
    Ok((fleet, [(a, of_a), (b, of_b)]))
}

/// Shares the topic between two members and lets each take 10 messages.
pub(super) async fn in_hand(members: [&Sidecar; 2]) -> Result<[Vec<Taken>; 2]> {
    declare(members[0], ORDERS, 8).await?;
    // Both at once: they want some of the same partitions, and whoever comes too late has no reason to warn.
    try_join_all(members.map(|member| member.reserve(ORDERS, 1, "0s"))).await?;
    members[0].shared(ORDERS, &[4, 4]).await?;
    for member in members {
        assert!(!member.log().contains("WARN"), "{}", member.log());
    }
    let message = |n| json!({"id": format!("m{n}"), "payload": "x"});
    members[0].push(ORDERS, &(0..100).map(message).collect::<Vec<_>>()).await?;
    Ok([members[0].take(ORDERS, 10).await?, members[1].take(ORDERS, 10).await?])
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
    /// Where a sidecar of this name listens.
    pub(super) fn address(&self, name: &str) -> String {
        format!("unix:{}", self.file(&format!("{name}.sock")).display())
    }

    /// Starts a sidecar that says where it listens.
    pub(super) async fn start_advertised(&self, name: &str) -> Result<Sidecar> {
        self.start_with(name, &[("DWELL_GROUP_ADVERTISE", &self.address(name))]).await
    }

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
    assert_eq!(b.metric("dwell_forwards_total", "outcome=\"answered\"").await?, 1.0);
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
    let nack = json!({"receipts": [
        {"receipt": ninth, "delay": "1h", "reason": "busy"}, {"receipt": tenth, "bury": true, "reason": "never"},
    ]});
    assert_eq!(statuses(&results(&b, NACK, nack).await?), ["nacked", "buried"]);
    let looked = a.ask(&format!("GET /v1/topics/orders/messages/{}", of_a[8].id)).await?;
    assert_eq!(looked["state"], "scheduled", "{looked}");
    let dead = a.ask("GET /v1/topics/orders/groups/default/dead-letters").await?;
    assert_eq!(
        (&dead["dead_letters"][0]["id"], &dead["dead_letters"][0]["last_error"]),
        (&json!(of_a[9].id), &json!("never"))
    );
    // What the owner says is final, and it names nobody.
    let over = acked(&b, &[ninth]).await?;
    assert_eq!((&over[0]["status"], over[0].get("owner")), (&json!("stale"), None));
    Ok(())
}

#[tokio::test]
async fn without_an_address_the_owner_is_named() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    // One of two is not enough: nobody connects to anything unless it is told to.
    for (of_owner, of_other) in [(false, false), (true, false), (false, true)] {
        let start = async |name: &str, advertised| match advertised {
            true => fleet.start_advertised(name).await,
            false => fleet.start(name).await,
        };
        let (a, b) = (start("a", of_owner).await?, start("b", of_other).await?);
        let [of_a, _] = in_hand([&a, &b]).await?;
        let owners = a.owners(ORDERS).await?;
        let refused = acked(&b, &receipts(&of_a)).await?;
        for (result, taken) in refused.iter().zip(&of_a) {
            assert_eq!(result["status"], "stale", "{result}");
            assert_eq!(result["owner"].as_str(), owners[taken.partition].as_deref(), "{result}");
        }
        assert_eq!(b.metric("dwell_forwards_total", "").await?, 0.0);
        assert_eq!(b.metric("dwell_settled_total", "outcome=\"stale\"").await?, 10.0);
        assert_eq!(statuses(&acked(&a, &receipts(&of_a)).await?), ["acked"; 10]);
        a.ended_by(Signal::TERM).await?;
        b.ended_by(Signal::TERM).await?;
        fleet.redis.ask::<()>("FLUSHALL").await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_owner_that_is_gone_is_not_reached_and_its_receipts_are_stale_once_another_owns() -> Result<()> {
    let (_fleet, [(a, of_a), (b, of_b)]) = both().await?;
    let owners = a.owners(ORDERS).await?;
    a.signal(Signal::KILL)?;
    let all: Vec<&str> = receipts(&of_a).into_iter().chain(receipts(&of_b)).collect();
    let first = acked(&b, &all).await?;
    for (result, taken) in first.iter().zip(&of_a) {
        assert_eq!(result["status"], "unreachable", "{result}");
        assert_eq!(result["owner"].as_str(), owners[taken.partition].as_deref(), "{result}");
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

#[tokio::test]
async fn an_owner_that_stands_still_costs_the_time_of_a_settlement_and_no_more() -> Result<()> {
    let (_fleet, [(a, of_a), (b, _)]) = both().await?;
    a.signal(Signal::STOP)?;
    let since = std::time::Instant::now();
    let verdicts = acked(&b, &receipts(&of_a)).await?;
    assert_eq!(statuses(&verdicts), ["unreachable"; 10]);
    println!("an owner that stood still was given up after {:?}", since.elapsed());
    assert!(since.elapsed().as_secs() < 7, "{:?}", since.elapsed());
    a.signal(Signal::CONT)
}

#[tokio::test]
async fn what_was_forwarded_is_not_forwarded_again() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let owners = a.owners(ORDERS).await?;
    let member_a = owners[of_a[0].partition].clone().unwrap_or_default();
    let member_b = owners.iter().flatten().find(|owner| **owner != member_a).cloned().unwrap_or_default();
    let send = async |member: &str| {
        let request =
            b.client.post("http://dwell/v1/topics/orders/groups/default/ack").header("dwell-forwarded", member);
        let response = request.json(&json!({"receipts": receipts(&of_a)})).send().await;
        let response = response.map_err(|error| Error::unavailable(error.to_string()))?;
        let status = response.status().as_u16();
        let body: Value = response.json().await.map_err(|error| Error::bug(error.to_string()))?;
        Result::Ok((status, body))
    };
    let (status, body) = send(&member_b).await?;
    let results = body["results"].as_array().cloned().unwrap_or_default();
    assert_eq!((status, statuses(&results)), (200, vec!["stale"; 10]));
    let (status, body) = send(&member_a).await?;
    assert_eq!((status, &body["type"]), (409, &json!("urn:dwell:error:conflict")), "{body}");
    assert_eq!(b.metric("dwell_forwards_total", "").await?, 0.0);

    // Somebody who is gone, and whose address now leads back to who asks.
    let loops = format!("gone-1@{}", fleet.address("b"));
    let partition = of_a[0].partition;
    fleet.redis.ask::<()>(&format!("SET {{dwell:orders:{partition}}}:default:lease {loops} PX 60000")).await?;
    let result = acked(&b, &[&of_a[0].receipt]).await?;
    assert_eq!((&result[0]["status"], &result[0]["owner"]), (&json!("unreachable"), &json!(loops)));
    assert_eq!(b.metric("dwell_forwards_total", "failed").await?, 1.0);
    Ok(())
}
