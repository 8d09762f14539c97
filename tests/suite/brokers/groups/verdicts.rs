//! Why a receipt is not settled when several brokers share a store: the reason survives the way between them.

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS};
use super::settle_anywhere::{ACK, NACK, in_hand, receipts, results, statuses};
use super::sidecar::{Sidecar, Taken};
use crate::support::RedisServer;

/// Acks one receipt; answers status and body as they are.
async fn ack_one(at: &Sidecar, receipt: &str) -> Result<(u16, Value)> {
    let request =
        at.client.post("http://dwell/v1/topics/orders/groups/default/ack").json(&json!({"receipts": [receipt]}));
    let response = request.send().await.map_err(|error| Error::unavailable(error.to_string()))?;
    let status = response.status().as_u16();
    Ok((status, response.json().await.map_err(|error| Error::bug(error.to_string()))?))
}

fn reasons(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["reason"].as_str().unwrap_or_default()).collect()
}

async fn acked(at: &Sidecar, taken: &[Taken]) -> Result<Vec<Value>> {
    results(at, ACK, json!({"receipts": receipts(taken)})).await
}

#[tokio::test]
async fn remote_settlement_returns_the_owners_reason() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    let [of_a, _] = in_hand([&a, &b]).await?;
    let nack = json!({"receipts": receipts(&of_a[..2]), "delay": "1h"});
    assert_eq!(statuses(&results(&a, NACK, nack).await?), ["nacked"; 2]);
    let refused = acked(&b, &of_a[..2]).await?;
    assert_eq!((statuses(&refused), reasons(&refused)), (vec!["stale"; 2], vec!["already_settled"; 2]));
    // The verdict on a single one is made a problem by the broker that was asked.
    let (status, body) = ack_one(&b, &of_a[0].receipt).await?;
    assert_eq!(
        (status, &body["type"], &body["reason"]),
        (409, &json!("urn:dwell:error:not-settled"), &json!("already_settled"))
    );
    assert_eq!(body["results"][0]["receipt"], json!(of_a[0].receipt));
    let (status, body) = ack_one(&b, &of_a[3].receipt).await?;
    assert_eq!((status, &body["results"][0]["status"]), (200, &json!("acked")));
    // An owner that does not answer has perhaps settled it.
    a.signal(Signal::STOP)?;
    let (status, body) = ack_one(&b, &of_a[4].receipt).await?;
    assert_eq!(
        (status, &body["type"], &body["reason"]),
        (504, &json!("urn:dwell:error:outcome-unknown"), &json!("unreachable"))
    );
    b.shared(ORDERS, &[8]).await?;
    let (status, body) = ack_one(&b, &of_a[5].receipt).await?;
    assert_eq!((status, &body["reason"]), (409, &json!("lost_partition")), "{body}");
    Ok(())
}

#[tokio::test]
async fn broker_reports_lost_partitions() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    let [of_a, _] = in_hand([&a, &b]).await?;
    // It stands still until the other one has taken its partitions over.
    a.signal(Signal::STOP)?;
    b.shared(ORDERS, &[8]).await?;
    a.signal(Signal::CONT)?;
    let late = acked(&a, &of_a).await?;
    assert_eq!((statuses(&late), reasons(&late)), (vec!["stale"; of_a.len()], vec!["lost_partition"; of_a.len()]));
    let (status, body) = ack_one(&b, &of_a[0].receipt).await?;
    assert_eq!((status, &body["reason"]), (409, &json!("lost_partition")), "{body}");
    Ok(())
}
