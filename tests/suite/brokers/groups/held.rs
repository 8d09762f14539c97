//! Messages that an owner holds, asked about and changed at another member; and an owner that dies or stands still.

use std::collections::BTreeSet;

use dwell::model::error::{Error, Result};
use futures_util::future::join;
use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS};
use super::sidecar::{Sidecar, Taken};
use crate::support::{RedisServer, eventually};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// A topic with ordering at two members, with a key of which `a` holds three messages: the first waits an hour for its next
/// attempt.
async fn held_at_a() -> Result<(Fleet, [Sidecar; 2], Held)> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    a.tell(&format!("PUT /v1/topics/{ORDERS}"), &json!({"partitions": 8, "ordering": "key"})).await?;
    a.shared_by(&[&a, &b], ORDERS, &[4, 4]).await?;
    for key in 0..16 {
        let message = |n| json!({"id": format!("k{key}-{n}"), "key": format!("k{key}"), "payload": "x"});
        a.push(ORDERS, &(0..4).map(message).collect::<Vec<_>>()).await?;
    }
    let taken = a.take(ORDERS, 1).await?.remove(0);
    let nack = json!({"receipts": [taken.receipt], "delay": "1h", "reason": "no"});
    a.tell(&format!("POST {GROUP}/nack"), &nack).await?;
    let held = Held::of(&taken)?;
    eventually("the next are held", async || Ok((held.state(&a, 1).await? == "blocked").then_some(()))).await?;
    Ok((fleet, [a, b], held))
}

/// The messages of a key.
struct Held {
    key: String,
}

impl Held {
    fn of(taken: &Taken) -> Result<Held> {
        let (key, _) = taken.id.split_once('-').ok_or_else(|| Error::bug("a key"))?;
        Ok(Held { key: key.to_owned() })
    }

    fn path(&self, n: usize) -> String {
        format!("/v1/topics/{ORDERS}/messages/{key}-{n}?key={key}", key = self.key)
    }

    async fn state(&self, at: &Sidecar, n: usize) -> Result<String> {
        let answer = at.ask(&format!("GET {}", self.path(n))).await?;
        Ok(answer["state"].as_str().unwrap_or_default().to_owned())
    }

    async fn why(&self, at: &Sidecar, n: usize) -> Result<Value> {
        let path = format!("/v1/topics/{ORDERS}/messages/{key}-{n}/explain?key={key}", key = self.key);
        Ok(at.ask(&format!("GET {path}")).await?["groups"][0].clone())
    }

    async fn cancel(&self, at: &Sidecar, n: usize) -> Result<StatusCode> {
        let sent = at.client.delete(format!("http://dwell{}", self.path(n))).send().await;
        sent.map(|response| response.status()).map_err(|error| Error::unavailable(error.to_string()))
    }
}

/// Takes everything that is ready, so that a consumer that waits gets nothing.
async fn take_all(members: [&Sidecar; 2]) -> Result<[Vec<Taken>; 2]> {
    let mut all = [Vec::new(), Vec::new()];
    eventually("nothing more is ready", async || {
        for (member, all) in members.iter().zip(&mut all) {
            all.extend(member.reserve(ORDERS, 100, "0s").await?);
        }
        let ready = members[0].counts(ORDERS).await?[1];
        Ok((ready == 0).then_some(()))
    })
    .await?;
    Ok(all)
}

#[tokio::test]
async fn another_member_reaches_what_the_owner_holds() -> Result<()> {
    let (_fleet, [a, b], held) = held_at_a().await?;
    take_all([&a, &b]).await?;
    let story = async {
        for at in [&a, &b] {
            assert_eq!((held.state(at, 0).await?, held.state(at, 2).await?), ("backoff".into(), "blocked".into()));
            let why = held.why(at, 2).await?;
            let blocker = json!(format!("{}-0", held.key));
            assert_eq!((&why["reason"], &why["blocker"]), (&json!("behind_its_key"), &blocker), "{why}");
            assert!(why["until"].is_string() && why["owner"].is_string(), "{why}");
            assert_eq!(held.why(at, 0).await?["reason"], "backoff");
            let totals = at.ask(&format!("GET {GROUP}")).await?["totals"].clone();
            let of = |state: &str| totals[state].as_u64().unwrap_or(u64::MAX);
            assert_eq!(["ready", "blocked", "backoff", "in_flight"].map(of), [0, 48, 1, 15], "{totals}");
            assert!(of("oldest_ready_age_ms") > 0, "{totals}");
        }
        let later = b.tell(&format!("PATCH {}", held.path(3)), &json!({"delay": "2h"})).await?;
        assert_eq!((&later["status"], held.state(&a, 3).await?), (&json!("rescheduled"), "scheduled".to_owned()));
        assert_eq!(held.cancel(&b, 2).await?, StatusCode::OK);
        assert_eq!(held.cancel(&b, 0).await?, StatusCode::OK);
        assert_eq!(held.cancel(&b, 0).await?, StatusCode::OK, "a repeat is answered the same");
        Ok::<(), Error>(())
    };
    // A consumer waits, so that the owner keeps what it holds.
    let (told, taken) = join(story, a.reserve(ORDERS, 1, "60s")).await;
    told?;
    let taken = taken?;
    assert_eq!(taken[0].id, format!("{}-1", held.key), "its key goes on with the next");
    // What a consumer has is in flight, at any member.
    assert_eq!((held.state(&b, 1).await?, held.cancel(&b, 1).await?), ("in_flight".to_owned(), StatusCode::CONFLICT));
    assert_eq!(held.why(&b, 1).await?["reason"], "in_flight");
    assert_eq!(a.ack(ORDERS, &taken).await?, ["acked"]);
    assert!(a.reserve(ORDERS, 10, "500ms").await?.is_empty());
    assert!(b.ask(&format!("GET {}", held.path(2))).await.is_err(), "it is gone");
    Ok(())
}

/// A member knows the keys of the partitions of both.
#[tokio::test]
async fn keys_of_a_fair_group_are_known_at_each_member() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start("a").await?, fleet.start("b").await?);
    a.tell(&format!("PUT /v1/topics/{ORDERS}"), &json!({"partitions": 8})).await?;
    a.tell(&format!("PUT {GROUP}"), &json!({"fair": "key", "key_max_in_flight": 1})).await?;
    a.shared_by(&[&a, &b], ORDERS, &[4, 4]).await?;
    for key in 0..16 {
        let message = |n| json!({"id": format!("k{key}-{n}"), "key": format!("k{key}"), "payload": "x"});
        a.push(ORDERS, &(0..4).map(message).collect::<Vec<_>>()).await?;
    }
    let mut taken = 0;
    eventually("one message of each key is taken", async || {
        for member in [&a, &b] {
            taken += member.reserve(ORDERS, 100, "0s").await?.len();
        }
        Ok((taken == 16).then_some(()))
    })
    .await?;
    for at in [&a, &b] {
        let keys = at.ask(&format!("GET {GROUP}")).await?["keys"].clone();
        assert_eq!((&keys["count"], &keys["complete"]), (&json!(16), &json!(true)), "{keys}");
        let reason = "key_at_max_in_flight";
        let waits = json!({"key": "k0", "ready": 3, "in_flight": 1, "reason": reason});
        assert_eq!(keys["busiest"][0], waits, "{keys}");
    }
    Ok(())
}

/// Whatever happens to the owner: the verdict is that nothing was done, or it is done for good.
async fn owner_fails(with: Signal) -> Result<()> {
    let (_fleet, [a, b], held) = held_at_a().await?;
    let [at_a, at_b] = take_all([&a, &b]).await?;
    let waiting = tokio::spawn({
        let a = a.clone();
        async move { a.reserve(ORDERS, 1, "3s").await }
    });
    a.signal(with)?;
    let cancelled = async || match held.cancel(&b, 1).await? {
        StatusCode::OK => Ok(Some(())),
        StatusCode::SERVICE_UNAVAILABLE => Ok(None),
        other => Err(Error::bug(format!("{other} while the owner is gone"))),
    };
    // Its lease lapses, and then the message is back in the store, also without a consumer.
    eventually("the cancel counts", cancelled).await?;
    if with == Signal::STOP {
        a.signal(Signal::CONT)?;
    }
    assert!(b.ask(&format!("GET {}", held.path(1))).await.is_err(), "it is gone");
    b.ack(ORDERS, &at_b).await?;
    let mut came: BTreeSet<String> = at_b.into_iter().map(|taken| taken.id).collect();
    if with == Signal::STOP {
        // Some may be stale, and come again.
        let verdicts = a.ack(ORDERS, &at_a).await?;
        let acked = at_a.iter().zip(verdicts).filter(|(_, verdict)| verdict == "acked");
        came.extend(acked.map(|(taken, _)| taken.id.clone()));
    }
    if let Ok(Ok(taken)) = waiting.await {
        a.ack(ORDERS, &taken).await?;
        came.extend(taken.into_iter().map(|taken| taken.id));
    }
    eventually("the messages of the other keys come", async || {
        let taken = b.reserve(ORDERS, 100, "1s").await?;
        let more = if with == Signal::STOP { a.reserve(ORDERS, 100, "0s").await? } else { Vec::new() };
        for (at, taken) in [(&b, taken), (&a, more)] {
            came.extend(taken.iter().map(|taken| taken.id.clone()));
            if !taken.is_empty() {
                at.ack(ORDERS, &taken).await?;
            }
        }
        let others = came.iter().filter(|id| !id.starts_with(&format!("{}-", held.key)));
        Ok((others.count() == 15 * 4).then_some(()))
    })
    .await?;
    assert!(!came.contains(&format!("{}-1", held.key)), "a cancelled message came: {came:?}");
    Ok(())
}

#[tokio::test]
async fn cancel_is_exact_when_the_owner_dies() -> Result<()> {
    owner_fails(Signal::KILL).await
}

#[tokio::test]
async fn cancel_is_exact_when_the_owner_stands_still() -> Result<()> {
    owner_fails(Signal::STOP).await
}
