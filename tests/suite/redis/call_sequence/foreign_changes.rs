//! Somebody else changes the keys: what has a body is delivered when it is due, and the rest is an error that passes.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::delivery::Decision;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::store::{Owner, Reservation, Settlement};
use futures_util::future::{join, try_join_all};

use super::{OrderedTopics, Shop};
use crate::support::{acks, eventually, kind_of, up_to};

const HOUR_MS: u64 = 3_600_000;

/// Two messages are out and one is due in an hour when somebody does something by hand. The owner notices, repairs and
/// counts; these ids come then, and the one of the next hour is what it has to be.
async fn check(by_hand: &str, delivered: &[&str], repairs: u64, next_hour: bool) -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    behind.orders.push("next-hour", HOUR_MS).await?;
    let due_at = behind.orders.peek("next-hour").await?.and_then(|peeked| peeked.next_at);
    // A lease that lapses on a busy machine would bring back what is out.
    let shop = behind.shop_with(Duration::from_secs(5))?;
    assert_eq!(shop.reserve(9).await?.len(), 2);
    behind.server.ask::<redis::Value>(by_hand).await?;
    if by_hand.ends_with(":gen") {
        // A partition without its history has lost what it had, for all that anybody knows.
        assert_eq!(kind_of(behind.push(&["c"]).await), Some(Kind::Stale));
    }
    // Something else becomes due, so the owner looks.
    behind.push(&["c"]).await?;
    assert_eq!(shop.ids(delivered.len()).await?, delivered, "{by_hand}");
    eventually("the repair", async || Ok((shop.repairs() == repairs).then_some(()))).await?;
    let peeked = behind.orders.peek("next-hour").await?.map(|peeked| peeked.next_at);
    assert_eq!(peeked, next_hour.then_some(due_at), "{by_hand}");
    Ok(())
}

#[tokio::test]
async fn manual_key_changes_are_detected_and_repaired() -> Result<()> {
    let (z, h, r) = (super::ZSET, super::HASH, super::RESERVATIONS);
    try_join_all([
        // A body without a place is scheduled for when it was due, and not before.
        check(&format!("ZREM {z} next-hour"), &["a", "b", "c"], 1, true),
        check(&format!("DEL {z}"), &["a", "b", "c"], 1, true),
        // An id without a body is dropped, long before it would be due.
        check(&format!("HDEL {h} next-hour"), &["a", "b", "c"], 1, false),
        check(&format!("ZADD {z} 1 ghost"), &["c"], 1, true),
        check(&format!("DEL {h}"), &["c"], 1, false),
    ])
    .await?;
    try_join_all([
        // A body that is gone while its message is out cannot come again.
        check(&format!("HDEL {h} a"), &["b", "c"], 0, true),
        // Without its lines the owner has lost the partition; what it held is found without a place.
        check(&format!("DEL {r}"), &["a", "b", "c"], 2, true),
        check("DEL {dwell:orders:0}:default:lease", &["c"], 0, true),
        check("DEL {dwell:orders:0}:gen", &["c"], 0, true),
    ])
    .await?;
    Ok(())
}

/// What a key of another type means for the calls that touch it.
#[tokio::test]
async fn a_key_of_another_type_is_corrupt() -> Result<()> {
    for key in ["z", "h", "r", "a", "dh", "lease"] {
        let behind = OrderedTopics::start().await?;
        behind.push(&["a", "b"]).await?;
        let mut owner = behind.orders.owner().await?;
        let first = owner.reserve(up_to(1)).await?.reservation;
        break_key(&behind, key).await?;
        if matches!(key, "z" | "h" | "dh") {
            assert_eq!(kind_of(behind.orders.push("c", 0).await), Some(Kind::Corrupt), "{key}");
        }
        if matches!(key, "z" | "h" | "r" | "a") {
            assert_eq!(kind_of(settled(&mut *owner, first).await), Some(Kind::Corrupt), "{key}");
        }
        if matches!(key, "r" | "lease") {
            assert_eq!(kind_of(behind.orders.owner().await), Some(Kind::Corrupt), "{key}");
        }
    }
    Ok(())
}

async fn settled(owner: &mut dyn Owner, reservation: Reservation) -> Result<()> {
    owner.settle(&Settlement { remaining: vec![(reservation, vec![])], ..acks(&["a"])? }).await?;
    owner.reserve(up_to(1)).await.map(drop)
}

/// Puts a list in the place of a key, which is kept if there is one. Nobody writes in between.
async fn break_key(behind: &OrderedTopics, key: &str) -> Result<()> {
    let (key, kept) = (format!("{{dwell:orders:0}}:default:{key}"), "{dwell:orders:0}:kept");
    let script = "redis.pcall('RENAME', KEYS[1], KEYS[2]) return redis.call('RPUSH', KEYS[1], 'somebody else')";
    behind.server.call(redis::cmd("EVAL").arg(script).arg(2).arg(key).arg(kept)).await
}

async fn mend_key(behind: &OrderedTopics, key: &str) -> Result<()> {
    let key = format!("{{dwell:orders:0}}:default:{key}");
    behind.server.ask::<u64>(&format!("UNLINK {key}")).await?;
    let _ = behind.server.ask::<()>(&format!("RENAME {{dwell:orders:0}}:kept {key}")).await;
    Ok(())
}

/// While a key has another type the broker looks at it from time to time; when it is mended everything comes.
async fn patient(key: &str) -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let shop = behind.shop()?;
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let mut fragile = NewMessage::new("fragile");
    (fragile.id, fragile.max_attempts) = (Some(MessageId::new("fragile")?), Some(1));
    shop.broker().push(&topic, fragile).await?;
    behind.push(&["a", "b"]).await?;
    // What is fetched in two steps is handed out in two.
    let mut out = shop.reserve(3).await?;
    while out.len() < 3 {
        out.extend(shop.reserve(3 - out.len()).await?);
    }
    break_key(&behind, key).await?;
    // The last attempt of one message fails, and the others are tried again at once.
    let nack = || Decision::Nack { delay: Some(Duration::ZERO), reason: None };
    let nacks = out.iter().map(|delivery| (delivery.receipt.to_string(), nack())).collect();
    let nacked = shop.broker().settle(&topic, &group, nacks);
    let mut acked = BTreeSet::new();
    let (nacked, calls) = join(nacked, calls_in_a_second(&behind, &shop, &mut acked)).await;
    assert_eq!(nacked?.len(), 3);
    let calls = calls?;
    assert!(calls < 100, "{key}: {calls} calls in a second");
    mend_key(&behind, key).await?;
    // Attempts that were charged in the key that was broken are forgotten; then the one that may fail once comes again.
    eventually("every message is acked or dead", async || {
        shop.consume(&mut acked).await?;
        let dead = behind.orders.stats().await?.dead;
        Ok((acked.len() as u64 + dead == 3).then_some(()))
    })
    .await
}

/// How many scripts Redis runs in a second or two in which a consumer waits.
async fn calls_in_a_second(behind: &OrderedTopics, shop: &Shop, acked: &mut BTreeSet<String>) -> Result<u64> {
    let count = async || {
        let text: String = behind.server.ask("INFO commandstats").await?;
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0,");
        Ok::<u64, Error>(line.split(',').next().and_then(|calls| calls.parse().ok()).unwrap_or(0))
    };
    let seconds = async || Ok::<u64, Error>(behind.server.ask::<(u64, u64)>("TIME").await?.0);
    let (before, began) = (count().await?, seconds().await?);
    while seconds().await? < began + 2 {
        shop.consume(acked).await?;
    }
    Ok(count().await? - before)
}

#[tokio::test]
async fn broker_waits_until_a_corrupt_key_is_repaired() -> Result<()> {
    try_join_all(["z", "h", "r", "a", "dz", "dh", "lease"].map(patient)).await.map(drop)
}
