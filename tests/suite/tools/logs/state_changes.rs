//! One line for each change of state, none for a message, and few in an outage.

use std::time::Instant;

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::Sidecar;
use crate::support::{RedisServer, eventually};

const GROUP: &str = "/v1/topics/orders/groups/default";

/// What was logged, as JSON.
fn lines(sidecar: &Sidecar) -> Result<Vec<Value>> {
    let parse = |line: &str| serde_json::from_str(line).map_err(|error| Error::bug(format!("{error}: {line}")));
    // The last one may not be whole yet.
    let logged = sidecar.logged()?;
    logged.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(parse).collect()
}

fn message(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

/// Takes a message and acks it.
async fn consume(sidecar: &Sidecar) -> Result<()> {
    let taken = sidecar.tell(&format!("POST {GROUP}/reserve"), r#"{"max": 1000, "wait": "10s"}"#).await?;
    let body: Value = taken.lines().last().and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let receipts: Vec<&Value> = body["deliveries"].as_array().into_iter().flatten().map(|it| &it["receipt"]).collect();
    assert!(!receipts.is_empty(), "{taken}");
    let receipts = serde_json::json!({ "receipts": receipts }).to_string();
    sidecar.tell(&format!("POST {GROUP}/ack"), &receipts).await.map(drop)
}

#[tokio::test]
async fn each_state_change_logs_one_line_and_an_outage_few() -> Result<()> {
    let mut redis = RedisServer::durable().await?;
    let config = format!("[redis]\nurl = '{}'\n[log]\nformat = 'json'\n[group]\ndrain_timeout = '1s'\n", redis.url());
    let mut sidecar = Sidecar::start(&config).await?;
    for (line, body) in [
        ("PUT /v1/topics/orders", r#"{"partitions": 2}"#),
        ("PUT /v1/topics/orders", r#"{"partitions": 2}"#),
        ("PUT /v1/topics/orders", r#"{"max_attempts": 3}"#),
        ("PUT /v1/topics/orders/groups/audit", ""),
        ("PUT /v1/topics/orders/groups/audit", r#"{"rate": 5}"#),
        ("POST /v1/topics/orders/groups/audit/pause", ""),
        ("POST /v1/topics/orders/groups/audit/pause", ""),
        ("POST /v1/topics/orders/groups/audit/resume", ""),
        ("DELETE /v1/topics/orders/groups/audit", ""),
        ("PUT /v1/topics/orders/cron/nightly", r#"{"every": "1h", "payload": "x"}"#),
        ("PUT /v1/topics/orders/cron/nightly", r#"{"every": "2h", "payload": "x"}"#),
        ("POST /v1/topics/orders/cron/nightly/pause", ""),
        ("POST /v1/topics/orders/cron/nightly/resume", ""),
        ("DELETE /v1/topics/orders/cron/nightly", ""),
    ] {
        sidecar.tell(line, body).await?;
    }
    for _ in 0..200 {
        sidecar.tell("POST /v1/topics/orders/messages", "x").await?;
    }
    consume(&sidecar).await?;
    let owned = async || {
        let topic = sidecar.tell("GET /v1/topics/orders", "").await?;
        Ok((topic.matches("\"owner\"").count() == 2).then_some(()))
    };
    eventually("both partitions are owned", owned).await?;
    let before = lines(&sidecar)?.len();

    redis.kill()?;
    let began = Instant::now();
    for _ in 0..500 {
        assert_eq!(sidecar.ask("POST /v1/topics/orders/messages", "x").await?.0, 202);
        assert_eq!(sidecar.ask("GET /v1/topics/orders", "").await?.0, 503);
        assert_eq!(sidecar.ask("POST /v1/topics/orders/messages?dealy=1s", "x").await?.0, 422);
    }
    let during = lines(&sidecar)?.split_off(before);
    // Ten at once, and then one in ten seconds.
    let most = 10 + usize::try_from(began.elapsed().as_secs() / 10).unwrap_or(0);
    redis.restart().await?;
    sidecar.until_ready_says("\"ready\"").await?;
    consume(&sidecar).await?;
    // It is said when the replay looks and finds nothing more, a moment after the last message went.
    let replayed = async || Ok(lines(&sidecar)?.iter().any(|line| message(line) == "replay done").then_some(()));
    eventually("the replay is said to be done", replayed).await?;
    sidecar.tell("DELETE /v1/topics/orders", "").await?;
    assert!(sidecar.stop().await?.success());

    // A few of the failed requests, and what the outage itself is.
    assert!((11..=20 + most).contains(&during.len()), "{during:#?}");
    let failed: Vec<_> = during.iter().filter(|line| message(line) == "a request failed").collect();
    assert!(
        (10..=most).contains(&failed.len()) && failed.iter().all(|line| line["span"]["request_id"].is_string()),
        "{failed:#?}"
    );

    let all = lines(&sidecar)?;
    let mut rest = all.iter().map(message);
    for expected in [
        "log opened",
        "started",
        "topic created",
        "topic changed",
        "group created",
        "group changed",
        "group paused",
        "group resumed",
        "group deleted",
        "cron job created",
        "cron job changed",
        "cron job paused",
        "cron job resumed",
        "cron job deleted",
        "group joined",
        "the store is unavailable: pushes are buffered on disk",
        "replay begun",
        "replay done",
        "topic deleted",
        "told to stop",
        "stopping: nothing more is handed out",
        "stopping: leases are given up",
        "stopped",
    ] {
        assert!(rest.any(|message| message == expected), "{expected} is not where it belongs: {all:#?}");
    }
    let once = ["topic created", "topic changed", "group paused", "cron job changed", "replay done", "group joined"];
    for expected in once {
        assert_eq!(all.iter().filter(|line| message(line) == expected).count(), 1, "{expected}: {all:#?}");
    }
    for line in &all {
        let has = |name: &str| line[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(["timestamp", "level", "message", "target"].into_iter().all(has), "{line}");
        assert!(!message(line).starts_with("lease ") || line["partition"].is_u64() && has("epoch"), "{line}");
    }
    let each = all.iter().filter(|line| ["lease acquired", "lease released"].contains(&message(line)));
    assert_eq!(each.count(), 0, "a group is a line, and not each of its partitions: {all:#?}");
    assert!(all.len() < 100, "{} lines for 1,200 messages: {all:#?}", all.len());
    Ok(())
}

/// Nobody took its lease, and it must not look as if somebody had.
#[tokio::test]
async fn redis_restart_logs_one_line() -> Result<()> {
    let mut redis = RedisServer::durable().await?;
    let config = format!(
        "[redis]\nurl = '{}'\ntimeout = '300ms'\n[log]\nformat = 'json'\n[lease]\nttl = '1s'\n[topic]\npartitions = 1\n",
        redis.url()
    );
    let sidecar = Sidecar::start(&config).await?;
    sidecar.tell("POST /v1/topics/orders/messages", "x").await?;
    consume(&sidecar).await?;
    redis.kill()?;
    assert_eq!(sidecar.ask("POST /v1/topics/orders/messages", "x").await?.0, 202);
    let over = async || {
        let metrics = sidecar.tell("GET /metrics", "").await?;
        let age = metrics.lines().find_map(|line| line.strip_prefix("dwell_wal_oldest_age_seconds{log=\"wal\"} "));
        Ok(age.and_then(|age| age.parse::<f64>().ok()).filter(|age| *age > 1.0))
    };
    eventually("the lease is over", over).await?;
    redis.restart().await?;
    let lost = async || Ok(lines(&sidecar)?.into_iter().find(|line| message(line) == "leases lost"));
    let lost = eventually("a lease is lost", lost).await?;
    assert_eq!(lost["error"], "stale: the store changed while the lease was not valid", "{lost}");
    Ok(())
}
