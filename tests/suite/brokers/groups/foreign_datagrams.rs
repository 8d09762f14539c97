//! Datagrams that no broker of this store sent: whoever may publish in Redis may put anything there.

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS};
use super::settle_anywhere::{ACK, EXTEND};
use super::settle_anywhere::{both, receipts, results, statuses};

/// Publishes a datagram for a member; answers how many received it.
async fn publish(fleet: &Fleet, member: &str, datagram: &[u8]) -> Result<u64> {
    let client = redis::Client::open(fleet.redis.url()).map_err(|error| Error::bug(error.to_string()))?;
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.map_err(|error| Error::unavailable(error.to_string()))?;
    let mut publish = redis::cmd("SPUBLISH");
    publish.arg(format!("dwell:broker:{member}")).arg(datagram);
    publish.query_async(&mut connection).await.map_err(|error| Error::unavailable(error.to_string()))
}

fn request(topic: &str, until_ms: &Value, ask: &Value) -> Vec<u8> {
    let request = json!({"name": "abcdefghijkl", "from": "nobody-1", "until_ms": until_ms, "topic": topic,
        "group": "default", "ask": ask});
    json!({"request": request}).to_string().into_bytes()
}

#[tokio::test]
async fn foreign_datagrams_are_dropped_and_counted() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let owner = a.owners(ORDERS).await?[of_a[0].partition].clone().unwrap_or_default();
    let receipt = &of_a[0].receipt;
    let far = json!(9_999_999_999_999_u64);
    let ack = |receipt: &str| json!({"settle": [[receipt, "ack"]]});
    let foreign = receipt.chars().rev().collect::<String>();
    let invalid: [Vec<u8>; 8] = [
        Vec::new(),
        b"\xff\xfe garbage".to_vec(),
        vec![b'['; 100_000],
        request("orders", &json!(-1), &ack(receipt)),
        request("or:ders", &far, &ack(receipt)),
        request("orders", &far, &json!({"settle": [[receipt, {"nack": {"delay_ms": -5}}]]})),
        request("orders", &far, &json!({"settle": vec![json!([receipt, "ack"]); 1_001]})),
        request("orders", &far, &json!({"extend": {"receipts": [receipt], "timeout_ms": 0}})),
    ];
    for (n, datagram) in invalid.iter().enumerate() {
        assert_eq!(publish(&fleet, &owner, datagram).await?, 1, "{n}");
    }
    assert_eq!(publish(&fleet, &owner, &vec![b' '; dwell::model::limits::DATAGRAM_BYTES_MAX + 1]).await?, 1);
    assert_eq!(publish(&fleet, &owner, &request("orders", &json!(1), &ack(receipt))).await?, 1);
    // Nobody has signed this one, nobody knows the topic of that one, or the request of the last.
    assert_eq!(publish(&fleet, &owner, &request("orders", &far, &ack(&foreign))).await?, 1);
    assert_eq!(publish(&fleet, &owner, &request("nowhere", &far, &ack(receipt))).await?, 1);
    let answer = json!({"answer": {"name": "abcdefghijkl", "verdicts": [{"status": "acked"}]}}).to_string();
    assert_eq!(publish(&fleet, &owner, answer.as_bytes()).await?, 1);

    // They arrive in order, so what comes behind them is answered after them.
    let extend = json!({"receipts": receipts(&of_a), "visibility_timeout": "10m"});
    assert_eq!(statuses(&results(&b, EXTEND, extend).await?), ["extended"; 10], "{}", a.log());
    for (reason, count) in [("invalid", 8.0), ("full", 1.0), ("expired", 1.0)] {
        assert_eq!(a.metric("dwell_remote_dropped_total", reason).await?, count, "{reason}");
    }
    assert_eq!(fleet.counts().await?, 100);
    assert_eq!(statuses(&results(&b, ACK, json!({"receipts": receipts(&of_a)})).await?), ["acked"; 10]);
    Ok(())
}

/// A lease that names nobody that dwell could have written is not followed, and not told. The receipt names the owner; and once
/// that is gone, nobody can be asked.
#[tokio::test]
async fn foreign_lease_value_is_ignored() -> Result<()> {
    let (fleet, [(a, of_a), (b, _)]) = both().await?;
    let partition = of_a[0].partition;
    let first: Vec<_> = of_a.iter().filter(|taken| taken.partition == partition).cloned().collect();
    let lease = format!("{{dwell:{ORDERS}:{partition}}}:default:lease");
    let owner = a.owners(ORDERS).await?[partition].clone();
    a.signal(Signal::KILL)?;
    fleet.redis.ask::<()>(&format!("SET {lease} x:{{y}} PX 60000")).await?;
    let refused = results(&b, ACK, json!({"receipts": receipts(&first)})).await?;
    assert_eq!(statuses(&refused), vec!["unreachable"; first.len()]);
    assert!(refused.iter().all(|result| result["owner"].as_str() == owner.as_deref()), "{refused:?}");
    Ok(())
}
