//! Every broker of a fleet is seen by the others, also one that only takes pushes.

use dwell::model::error::Result;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{HttpClient, Process, RedisServer, eventually, scratch, signal_to};

/// The brokers that one of them lists.
async fn listed(client: &HttpClient) -> Vec<Value> {
    let (_, answer) = client.get("/v1/brokers").await.unwrap_or_default();
    answer["brokers"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_broker_that_only_takes_pushes_is_listed_with_its_log_and_clock_until_it_ends() -> Result<()> {
    let redis = RedisServer::start().await?;
    let (one, other) = (scratch()?, scratch()?);
    let settings = [("REDIS_URL", redis.url()), ("DURABILITY", "journal".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut producer = Process::serve(one.path(), &settings).await?;
    let watcher = Process::serve(other.path(), &settings).await?;
    let pushed = producer.client.post("/v1/topics/t/messages", &json!({"payload": "x", "delay": "1h"})).await;
    assert_eq!(pushed.map(|(status, _)| status), Some(201));
    let both = async || {
        let brokers = listed(&watcher.client).await;
        Ok((brokers.len() == 2 && brokers.iter().all(|broker| broker["doing"] == "serving")).then_some(brokers))
    };
    let brokers = eventually("both are listed", both).await?;
    let producing = brokers.iter().find(|broker| broker["here"] == false).cloned().unwrap_or_default();
    assert_eq!(producing["version"], env!("CARGO_PKG_VERSION"), "{producing}");
    assert_eq!((&producing["groups"], &producing["owned"]), (&json!(0), &json!(0)), "{producing}");
    let started = producing["started_at"].as_str().unwrap_or_default().parse::<dwell::model::time::Timestamp>();
    let up = started.map(|at| dwell::platform::clock::Clock::System.now().since(at));
    assert!(up.is_ok_and(|up| up.as_secs() < 120), "{producing}");
    assert!(producing["wal_limit_bytes"].as_u64() > Some(0), "{producing}");
    assert!(producing["clock_ahead_ms"].as_i64().is_some_and(|ms| ms.abs() < 1_000), "{producing}");
    // Its own journal is what it knows itself; of others it is as old as their heartbeat.
    let own = listed(&producer.client).await;
    let own = own.iter().find(|broker| broker["here"] == true).cloned().unwrap_or_default();
    assert!(own["journal_bytes"].as_u64() > Some(0) && own["member"] == producing["member"], "{own}");
    let counted = async || {
        let metrics = watcher.client.text("/metrics").await.unwrap_or_default();
        Ok(metrics.lines().any(|line| line == "dwell_brokers 2" || line == "dwell_brokers 1").then_some(()))
    };
    eventually("they are counted", counted).await?;
    signal_to(producer.id(), Signal::TERM)?;
    producer.ended().await?;
    eventually("it is gone", async || Ok((listed(&watcher.client).await.len() == 1).then_some(()))).await?;
    Ok(())
}
