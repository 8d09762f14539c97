//! One broker of a fleet exports the stats of the whole store, and no other does.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::page::Page;
use crate::support::{Process, RedisServer, eventually, scratch, signal_to};

/// How long a lease lasts, and so the claim of the stats collector, and how long a call to Redis may take: after a call without an
/// answer nothing is shown. Short enough for a story, or too long to be over on any machine however busy.
const SHORT: [&str; 2] = ["3s", "1500ms"];
const LONG: [&str; 2] = ["30s", "10s"];

/// Two sidecars on one Redis, each with a directory of its own.
struct Fleet {
    redis: RedisServer,
    dirs: [TempDir; 2],
    times: [&'static str; 2],
}

impl Fleet {
    async fn new(times: [&'static str; 2]) -> Result<Fleet> {
        Ok(Fleet { redis: RedisServer::start().await?, dirs: [scratch()?, scratch()?], times })
    }

    async fn serve(&self, dir: &Path) -> Result<Process> {
        let (url, [lease, timeout]) = (self.redis.url(), self.times);
        let settings = [("LEASE_TTL", lease), ("REDIS_TIMEOUT", timeout), ("REDIS_URL", url.as_str())];
        Process::serve(dir, &settings).await
    }

    async fn both(&self) -> Result<[Process; 2]> {
        Ok([self.serve(self.dirs[0].path()).await?, self.serve(self.dirs[1].path()).await?])
    }

    async fn has_key(&self) -> Result<bool> {
        Ok(self.redis.ask::<i64>("EXISTS dwell:stats-collector").await? == 1)
    }
}

async fn look(sidecar: &Process) -> Result<Page> {
    let text = sidecar.client.text("/metrics").await.ok_or_else(|| Error::unavailable("no page of metrics"))?;
    Ok(Page::of(&text))
}

fn is_taker(page: &Page) -> bool {
    let says = page.value("dwell_stats_collector") == Some(1.0);
    for name in
        ["dwell_messages", "dwell_messages_due", "dwell_oldest_ready_age_seconds", "dwell_stats_collection_seconds"]
    {
        assert_eq!(page.all(name).next().is_some(), says, "{name}");
    }
    says
}

/// The sum over some sidecars of what they show of the topic `orders`, by group, and by state or span.
fn sums(pages: &[Page]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for page in pages {
        for (series, value) in page.all("dwell_messages").chain(page.all("dwell_messages_due")) {
            assert!(series.contains("topic=\"orders\""), "{series}");
            let values: Vec<&str> = series.split('"').skip(1).step_by(2).collect();
            // Labels stand by name: group, state, topic; group, topic, within.
            let what = values.iter().skip(1).find(|value| **value != "orders").copied().unwrap_or_default();
            *sums.entry(format!("{} {what}", values[0])).or_default() += value;
        }
    }
    sums
}

async fn told(answer: Option<(u16, Value)>) -> Result<Value> {
    match answer {
        Some((200..=299, body)) => Ok(body),
        other => Err(Error::unavailable(format!("{other:?}"))),
    }
}

/// A topic of four partitions and two groups, with messages that are due now and later; nobody consumes.
async fn stock(sidecar: &Process) -> Result<BTreeMap<String, f64>> {
    let client = &sidecar.client;
    told(client.put("/v1/topics/orders", &json!({"partitions": 4})).await).await?;
    told(client.put("/v1/topics/orders/groups/audit", &json!({})).await).await?;
    let delays = ["0s", "0s", "0s", "50s", "9m", "9m", "50m", "23h", "2d"];
    let messages: Vec<Value> = delays.iter().map(|delay| json!({"payload": "x", "delay": delay})).collect();
    told(client.post("/v1/topics/orders/messages/batch", &json!({"messages": messages})).await).await?;
    let each = [
        ("ready", 3.0),
        ("scheduled", 6.0),
        ("blocked", 0.0),
        ("backoff", 0.0),
        ("in_flight", 0.0),
        ("dead", 0.0),
        ("1m", 1.0),
        ("10m", 3.0),
        ("1h", 4.0),
        ("1d", 5.0),
    ];
    let groups = ["default", "audit"];
    Ok(groups.iter().flat_map(|group| each.map(|(what, count)| (format!("{group} {what}"), count))).collect())
}

/// Looks at all of them until one exports the stats; which one.
async fn shown(sidecars: &[&Process], expected: &BTreeMap<String, f64>) -> Result<usize> {
    eventually("the stats are exported", async || {
        let mut pages = Vec::new();
        for sidecar in sidecars {
            pages.push(look(sidecar).await?);
        }
        let found = sums(&pages);
        let takers: Vec<usize> = (0..pages.len()).filter(|n| is_taker(&pages[*n])).collect();
        assert!(takers.len() <= 1, "{takers:?}");
        Ok(takers.first().copied().filter(|_| found == *expected))
    })
    .await
}

#[tokio::test]
async fn one_broker_reports_the_totals() -> Result<()> {
    let fleet = Fleet::new(LONG).await?;
    let [one, other] = fleet.both().await?;
    let expected = stock(&one).await?;
    assert!(!fleet.has_key().await?, "nobody has looked");
    let first = shown(&[&one, &other], &expected).await?;
    assert!(fleet.has_key().await?);
    // Never both, never half of it, and it stays where it is.
    for _ in 0..100 {
        let pages = [look(&one).await?, look(&other).await?];
        assert_eq!(pages.iter().map(is_taker).collect::<Vec<_>>(), [first == 0, first == 1]);
        assert_eq!(sums(&pages), expected);
    }
    Ok(())
}

#[tokio::test]
async fn another_broker_takes_over_after_a_kill() -> Result<()> {
    let fleet = Fleet::new(SHORT).await?;
    let mut sidecars = fleet.both().await?;
    let expected = stock(&sidecars[0]).await?;
    let taker = shown(&[&sidecars[0], &sidecars[1]], &expected).await?;
    sidecars[taker].kill()?;
    let began = Instant::now();
    assert_eq!(shown(&[&sidecars[1 - taker]], &expected).await?, 0);
    println!("taken over {:?} after SIGKILL", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn graceful_stop_releases_the_claim() -> Result<()> {
    let fleet = Fleet::new(LONG).await?;
    let mut sidecar = fleet.serve(fleet.dirs[0].path()).await?;
    let expected = stock(&sidecar).await?;
    shown(&[&sidecar], &expected).await?;
    assert!(fleet.has_key().await?);
    // So long that it cannot lapse by itself meanwhile.
    assert_eq!(fleet.redis.ask::<i64>("PEXPIRE dwell:stats-collector 600000").await?, 1);
    signal_to(sidecar.id(), Signal::TERM)?;
    sidecar.ended().await?;
    assert!(!fleet.has_key().await?);
    Ok(())
}

#[tokio::test]
async fn frozen_broker_drops_its_old_totals() -> Result<()> {
    let mut fleet = Fleet::new(SHORT).await?;
    let frozen = fleet.serve(fleet.dirs[0].path()).await?;
    let expected = stock(&frozen).await?;
    assert_eq!(shown(&[&frozen], &expected).await?, 0);
    // The claim of the other one does not lapse while it is looked at.
    fleet.times = LONG;
    let heir = fleet.serve(fleet.dirs[1].path()).await?;
    signal_to(frozen.id(), Signal::STOP)?;
    assert_eq!(shown(&[&heir], &expected).await?, 0);
    signal_to(frozen.id(), Signal::CONT)?;
    for _ in 0..100 {
        let pages = [look(&frozen).await?, look(&heir).await?];
        assert!(!is_taker(&pages[0]));
        assert_eq!(sums(&pages), expected);
    }
    Ok(())
}

#[tokio::test]
async fn abandoned_claim_expires_and_one_without_ttl_is_taken() -> Result<()> {
    let fleet = Fleet::new(SHORT).await?;
    fleet.redis.ask::<String>("SET dwell:stats-collector somebody PX 700").await?;
    let sidecar = fleet.serve(fleet.dirs[0].path()).await?;
    let expected = stock(&sidecar).await?;
    assert_eq!(shown(&[&sidecar], &expected).await?, 0);
    // Whoever wrote this is not dwell.
    fleet.redis.ask::<String>("SET dwell:stats-collector somebody").await?;
    eventually("it is taken", async || {
        let holder: String = fleet.redis.ask("GET dwell:stats-collector").await?;
        Ok((holder != "somebody").then_some(()))
    })
    .await?;
    // A claim lasts as long as a lease at most; -1 would be without end.
    let left: i64 = fleet.redis.ask("PTTL dwell:stats-collector").await?;
    assert!(left != -1 && left <= 3_000, "{left}");
    Ok(())
}
