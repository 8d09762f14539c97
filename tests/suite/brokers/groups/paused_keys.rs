//! A key that is paused at a member that does not own its partition.

use std::collections::BTreeSet;

use dwell::model::error::{Error, Result};
use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use super::fleet::{Fleet, ORDERS};
use super::sidecar::Sidecar;
use crate::support::{RedisServer, eventually};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// Two members of a fair group that have messages of 16 keys in memory, 40 of each.
async fn fair_at_both() -> Result<(Fleet, [Sidecar; 2])> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    a.tell(&format!("PUT /v1/topics/{ORDERS}"), &json!({"partitions": 8})).await?;
    a.tell(&format!("PUT {GROUP}"), &json!({"fair": "key"})).await?;
    a.shared_by(&[&a, &b], ORDERS, &[4, 4]).await?;
    for key in 0..16 {
        let message = |n| json!({"id": format!("k{key}-{n}"), "key": format!("k{key}"), "payload": "x"});
        a.push(ORDERS, &(0..40).map(message).collect::<Vec<_>>()).await?;
    }
    for member in [&a, &b] {
        let taken = member.take(ORDERS, 4).await?;
        member.ack(ORDERS, &taken).await?;
    }
    Ok((fleet, [a, b]))
}

async fn pause(at: &Sidecar, key: &str) -> Result<StatusCode> {
    let request = at.client.post(format!("http://dwell{GROUP}/keys/{key}/pause")).json(&json!({"for": "1h"}));
    request.send().await.map(|response| response.status()).map_err(|error| Error::unavailable(error.to_string()))
}

/// The keys of all that these members give, which they ack.
async fn keys_of_all(members: &[&Sidecar]) -> Result<BTreeSet<String>> {
    let (mut keys, mut empty) = (BTreeSet::new(), 0);
    while empty < 3 {
        let mut taken = 0;
        for member in members {
            let messages = member.reserve(ORDERS, 100, "300ms").await?;
            taken += messages.len();
            member.ack(ORDERS, &messages).await?;
            keys.extend(messages.iter().filter_map(|taken| Some(taken.id.split_once('-')?.0.to_owned())));
        }
        empty = if taken == 0 { empty + 1 } else { 0 };
    }
    Ok(keys)
}

#[tokio::test]
async fn nothing_of_a_key_is_delivered_once_any_member_has_paused_it() -> Result<()> {
    let (_fleet, [a, b]) = fair_at_both().await?;
    for key in 0..8 {
        assert_eq!(pause(&b, &format!("k{key}")).await?, StatusCode::OK);
    }
    let open: BTreeSet<String> = (8..16).map(|key| format!("k{key}")).collect();
    assert_eq!(keys_of_all(&[&a, &b]).await?, open);
    for at in [&a, &b] {
        let keys = at.ask(&format!("GET {GROUP}")).await?["keys"].clone();
        assert_eq!((&keys["paused_count"], &keys["count"]), (&json!(8), &json!(8)), "{keys}");
        assert!(keys["busiest"].as_array().is_some_and(|all| all.iter().all(|key| key["reason"] == "key_paused")));
    }
    // The next owner keeps to it.
    a.signal(Signal::KILL)?;
    assert_eq!(pause(&b, "k0").await?, StatusCode::OK);
    let none = BTreeSet::new();
    eventually("its partitions are taken", async || {
        let keys = b.ask(&format!("GET {GROUP}")).await?["keys"].clone();
        b.reserve(ORDERS, 1, "100ms").await?;
        Ok((keys["complete"] == true && keys["count"] == 8).then_some(()))
    })
    .await?;
    assert_eq!(keys_of_all(&[&b]).await?, none);
    for key in 0..8 {
        b.tell(&format!("POST {GROUP}/keys/k{key}/resume"), &json!({})).await?;
    }
    assert_eq!(keys_of_all(&[&b]).await?, (0..8).map(|key| format!("k{key}")).collect());
    Ok(())
}

/// Nobody takes the partitions of an owner that stands still: after that it would go on with its lease, and what it holds.
#[tokio::test]
async fn owner_whose_lease_had_lapsed_knows_of_a_pause() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    a.tell(&format!("PUT /v1/topics/{ORDERS}"), &json!({"partitions": 2})).await?;
    a.tell(&format!("PUT {GROUP}"), &json!({"fair": "key"})).await?;
    for key in 0..4 {
        let message = |n| json!({"id": format!("k{key}-{n}"), "key": format!("k{key}"), "payload": "x"});
        a.push(ORDERS, &(0..40).map(message).collect::<Vec<_>>()).await?;
    }
    let taken = a.take(ORDERS, 4).await?;
    a.ack(ORDERS, &taken).await?;
    a.signal(Signal::STOP)?;
    for key in ["k0", "k1", "k2", "k3"] {
        eventually("the pause is certain", async || match pause(&b, key).await? {
            StatusCode::OK => Ok(Some(())),
            _ => Ok(None),
        })
        .await?;
    }
    a.signal(Signal::CONT)?;
    assert_eq!(keys_of_all(&[&a]).await?, BTreeSet::new());
    Ok(())
}

/// An owner that stands still gives no answer, so the pause is not certain; it is once another member has the partition.
#[tokio::test]
async fn pause_of_a_key_whose_owner_stands_still_is_certain_after_its_lease() -> Result<()> {
    let (_fleet, [a, b]) = fair_at_both().await?;
    a.signal(Signal::STOP)?;
    let mut unknown = 0;
    for key in 0..16 {
        let key = format!("k{key}");
        eventually("the pause is certain", async || match pause(&b, &key).await? {
            StatusCode::OK => Ok(Some(())),
            StatusCode::GATEWAY_TIMEOUT => {
                unknown += 1;
                Ok(None)
            }
            other => Err(Error::bug(format!("{other} while the owner stands still"))),
        })
        .await?;
    }
    assert!(unknown > 0, "the owner of a part of the keys did not answer");
    a.signal(Signal::CONT)?;
    assert_eq!(keys_of_all(&[&a, &b]).await?, BTreeSet::new());
    Ok(())
}
