//! An outage in which every pod is replaced by one with a fresh disk.

use std::collections::BTreeSet;

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Process, RedisServer, empty, eventually, failed, scratch, signal_to};

/// Messages that are pushed to a broker at once.
const BATCH: usize = 25;

/// A broker, and the directory that goes with it. The place of its socket stays.
struct Pod {
    dir: TempDir,
    process: Option<Process>,
}

/// Two brokers, each of which hands over to the other one.
struct Fleet {
    redis: RedisServer,
    pods: [Pod; 2],
    durability: &'static str,
    pushes: usize,
    accepted: BTreeSet<String>,
    delivered: BTreeSet<String>,
    /// Delivered again although the ack was answered.
    again: usize,
}

impl Fleet {
    async fn start(redis: RedisServer, durability: &'static str) -> Result<Fleet> {
        let pod = || Ok::<_, Error>(Pod { dir: scratch()?, process: None });
        let (accepted, delivered) = (BTreeSet::new(), BTreeSet::new());
        let mut fleet = Fleet { redis, pods: [pod()?, pod()?], durability, pushes: 0, accepted, delivered, again: 0 };
        for at in 0..2 {
            fleet.serve(at).await?;
        }
        Ok(fleet)
    }

    async fn serve(&mut self, at: usize) -> Result<()> {
        let (url, other) = (self.redis.url(), format!("unix:{}/dwell.sock", self.pods[1 - at].dir.path().display()));
        let settings = [
            ("REDIS_URL", url.as_str()),
            ("REDIS_TIMEOUT", "300ms"),
            ("LOG_LEVEL", "info"),
            ("DURABILITY", self.durability),
            ("JOURNAL_WINDOW", "1h"),
            ("LEASE_TTL", "1s"),
            ("GROUP_DRAIN_TIMEOUT", "4s"),
            ("TOPIC_PARTITIONS", "2"),
            ("WAL_HAND_OVER", other.as_str()),
        ];
        self.pods[at].process = Some(Process::serve(self.pods[at].dir.path(), &settings).await?);
        Ok(())
    }

    /// A pod is told to stop, and another one takes its place, without anything of its disk.
    async fn replace(&mut self, at: usize) -> Result<()> {
        let mut process = self.pods[at].process.take().ok_or_else(|| Error::bug("a pod that does not run"))?;
        signal_to(process.id(), Signal::TERM)?;
        let ended = process.ended().await;
        let log = std::fs::read_to_string(self.pods[at].dir.path().join("dwell.log")).unwrap_or_default();
        ended.inspect_err(|_| eprintln!("{log}"))?;
        assert!(!log.contains("not handed over"), "the stop was over before it was taken: {log}");
        empty(self.pods[at].dir.path())?;
        self.serve(at).await
    }

    /// Pushes to a broker, which accepts everything.
    async fn push(&mut self, at: usize) -> Result<()> {
        self.pushes += 1;
        let ids: Vec<String> = (0..BATCH).map(|n| format!("m{}-{n}", self.pushes)).collect();
        let messages: Vec<_> = ids.iter().map(|id| json!({"id": id, "payload": id})).collect();
        let process = self.pods[at].process.as_ref().ok_or_else(|| Error::bug("a pod that does not run"))?;
        let answer = process.client.post("/v1/topics/orders/messages/batch", &json!({"messages": messages})).await;
        let status = answer.as_ref().map(|(status, _)| *status);
        assert!(matches!(status, Some(201 | 202)), "{answer:?}");
        self.accepted.extend(ids);
        Ok(())
    }

    /// Waits until both brokers have given Redis what they have.
    async fn restored(&self) -> Result<()> {
        for pod in &self.pods {
            let process = pod.process.as_ref().ok_or_else(|| Error::bug("a pod that does not run"))?;
            let ready = async || {
                let answer = process.client.get("/readyz").await;
                Ok(answer.filter(|(status, body)| *status == 200 && body["status"] == "ready"))
            };
            eventually("nothing is buffered", ready).await?;
        }
        Ok(())
    }

    /// Takes and acks at both brokers until everything that was accepted came, and then until nothing more does.
    async fn drain(&mut self) -> Result<()> {
        let accepted = self.accepted.len();
        self.restored().await?;
        let mut quiet = 0;
        while quiet < if self.delivered.len() < accepted { 4 } else { 1 } {
            quiet += 1;
            for at in [0, 1] {
                let process = self.pods[at].process.as_ref().ok_or_else(|| Error::bug("a pod that does not run"))?;
                let wait = if self.delivered.len() < accepted { "2s" } else { "300ms" };
                let group = "/v1/topics/orders/groups/default";
                let reserve = json!({"max": 500, "wait": wait});
                let Some((200, body)) = process.client.post(&format!("{group}/reserve"), &reserve).await else {
                    continue;
                };
                let deliveries = body["deliveries"].as_array().cloned().unwrap_or_default();
                if deliveries.is_empty() {
                    continue;
                }
                quiet = 0;
                let receipts: Vec<_> = deliveries.iter().map(|delivery| &delivery["receipt"]).collect();
                let acked = process.client.post(&format!("{group}/ack"), &json!({"receipts": receipts})).await;
                for (n, delivery) in deliveries.iter().enumerate() {
                    let id = delivery["id"].as_str().unwrap_or_default().to_owned();
                    if self.delivered.contains(&id) {
                        self.again += 1;
                    }
                    if acked.as_ref().is_some_and(|(_, body)| body["results"][n]["status"] == "acked") {
                        self.delivered.insert(id);
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&self) {
        let lost: Vec<_> = self.accepted.difference(&self.delivered).collect();
        assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), self.accepted.len());
        assert_eq!(self.again, 0, "delivered again after the ack");
    }
}

#[tokio::test]
async fn buffered_messages_survive_replacing_every_broker() -> Result<()> {
    let mut fleet = Fleet::start(RedisServer::durable().await?, "standard").await?;
    fleet.push(0).await?;
    fleet.redis.kill()?;
    fleet.push(0).await?;
    fleet.push(1).await?;
    for at in [0, 1] {
        fleet.replace(at).await?;
        fleet.push(at).await?;
    }
    fleet.redis.restart().await?;
    fleet.drain().await?;
    fleet.check();
    Ok(())
}

#[tokio::test]
async fn journal_survives_replacing_every_broker_with_redis_emptied() -> Result<()> {
    let mut fleet = Fleet::start(RedisServer::start().await?, "journal").await?;
    fleet.push(0).await?;
    fleet.push(1).await?;
    fleet.redis.kill()?;
    fleet.push(1).await?;
    for at in [0, 1] {
        fleet.replace(at).await?;
    }
    // It comes back without data.
    fleet.redis.restart().await?;
    fleet.drain().await?;
    fleet.check();
    Ok(())
}

#[tokio::test]
async fn deleted_topic_stays_deleted_after_broker_replacement() -> Result<()> {
    let mut fleet = Fleet::start(RedisServer::start().await?, "journal").await?;
    fleet.push(1).await?;
    let process = fleet.pods[0].process.as_ref().ok_or_else(|| Error::bug("a pod that does not run"))?;
    assert_eq!(process.client.delete("/v1/topics/orders").await.map(|(status, _)| status), Some(204));
    fleet.redis.kill()?;
    fleet.replace(0).await?;
    // It comes back without data, and the journal of the other broker has the messages of the topic.
    fleet.redis.restart().await?;
    fleet.accepted.clear();
    fleet.restored().await?;
    // The deletion does not take what is pushed to a new topic of the name.
    fleet.push(0).await?;
    fleet.drain().await?;
    assert_eq!(fleet.delivered, fleet.accepted, "only the messages of the new topic come");
    Ok(())
}

/// The first page of a log is with another broker, and the rest is not: what is replayed of the rest must not hide the page.
#[tokio::test]
async fn partial_hand_over_is_replayed_by_both_brokers() -> Result<()> {
    let mut redis = RedisServer::durable().await?;
    let dirs = [scratch()?, scratch()?];
    let (url, to) = (redis.url(), format!("unix:{}/dwell.sock", dirs[1].path().display()));
    let common = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_TIMEOUT", "300ms"),
        ("LEASE_TTL", "1s"),
        ("LOG_LEVEL", "warn"),
        ("TOPIC_PARTITIONS", "1"),
    ];
    let giving = [&common[..], &[("WAL_HAND_OVER", to.as_str()), ("GROUP_DRAIN_TIMEOUT", "4s")]].concat();
    // It has no room for all.
    let taking = [&common[..], &[("WAL_LIMIT_BYTES", "16777216")]].concat();
    let mut giver = Process::serve(dirs[0].path(), &giving).await?;
    let mut taker = Process::serve(dirs[1].path(), &taking).await?;
    giver.client.post("/v1/topics/orders/messages?id=before&raw=true", &json!("x")).await;
    redis.kill()?;
    let payload = "x".repeat(1_000_000);
    for batch in 0..3 {
        let messages: Vec<_> =
            (0..6).map(|n| json!({"id": format!("m{batch}-{n}"), "payload": payload, "delay": "1h"})).collect();
        let pushed = giver.client.post("/v1/topics/orders/messages/batch", &json!({"messages": messages})).await;
        assert_eq!(pushed.map(|(status, _)| status), Some(202));
    }
    signal_to(giver.id(), Signal::TERM)?;
    giver.ended().await?;
    let log = std::fs::read_to_string(dirs[0].path().join("dwell.log")).map_err(failed("the log"))?;
    assert!(log.contains("not handed over") && !log.contains("handed=0"), "{log}");
    // The giver is the first to replay what it still has.
    taker.kill()?;
    let giver = Process::serve(dirs[0].path(), &giving).await?;
    redis.restart().await?;
    eventually("the giver has nothing buffered", async || {
        let answer = giver.client.get("/readyz").await;
        Ok(answer.filter(|(status, body)| *status == 200 && body["status"] == "ready"))
    })
    .await?;
    let _taker = Process::serve(dirs[1].path(), &taking).await?;
    eventually("every message is stored", async || {
        let stored: u64 = redis.ask("HLEN {dwell:orders:0}:default:h").await?;
        Ok((stored == 19).then_some(()))
    })
    .await
}

#[tokio::test]
async fn records_without_a_taker_stay_on_disk_and_stop_is_timely() -> Result<()> {
    let redis = RedisServer::durable().await?;
    let dir = scratch()?;
    let (url, nobody) = (redis.url(), format!("unix:{}/nobody.sock", dir.path().display()));
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_TIMEOUT", "300ms"),
        ("GROUP_DRAIN_TIMEOUT", "1s"),
        ("LOG_LEVEL", "warn"),
        ("WAL_HAND_OVER", nobody.as_str()),
    ];
    let mut redis = redis;
    let mut process = Process::serve(dir.path(), &settings).await?;
    process.client.post("/v1/topics/orders/messages?id=before&raw=true", &json!("x")).await;
    redis.kill()?;
    let pushed = process.client.post("/v1/topics/orders/messages?id=kept&raw=true", &json!("x")).await;
    assert_eq!(pushed.map(|(status, _)| status), Some(202));
    signal_to(process.id(), Signal::TERM)?;
    process.ended().await?;
    let log = std::fs::read_to_string(dir.path().join("dwell.log")).map_err(failed("the log"))?;
    assert!(log.contains("not handed over: it stays on disk") && log.contains("records=1"), "{log}");
    redis.restart().await?;
    let process = Process::serve(dir.path(), &settings).await?;
    eventually("the next start replays it", async || {
        Ok(process.client.get("/v1/topics/orders/messages/kept").await.filter(|(status, _)| *status == 200))
    })
    .await
    .map(drop)
}
