//! Three members, kills, retries, poison and outages: no message of a key comes after a later one.

use std::collections::HashSet;
use std::sync::Arc;

use dwell::model::error::{Error, Result};
use fastrand::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{
    HttpClient, Mode, Process, Proxy, RedisServer, Sequences, eventually, failed, repeatedly, scratch,
};

const MEMBERS: usize = 3;
const CONSUMERS: usize = 2;

const KEYS: usize = 20;
/// Messages of a key.
const EACH: usize = 100;

/// Messages of a key that are pushed at once.
const RUN: usize = 5;

/// Leases lapse soon, what nobody settles comes back soon, and an id is known for as long as the story lasts.
const SETTINGS: [(&str, &str); 10] = [
    ("LEASE_TTL", "1s"),
    ("GROUP_HEARTBEAT", "200ms"),
    ("REDIS_TIMEOUT", "300ms"),
    ("TOPIC_ORDERING", "key"),
    ("TOPIC_PARTITIONS", "8"),
    ("TOPIC_MAX_ATTEMPTS", "8"),
    ("TOPIC_VISIBILITY_TIMEOUT", "3s"),
    ("TOPIC_DEDUP_WINDOW", "1d"),
    ("TOPIC_BACKOFF_INITIAL", "20ms"),
    ("TOPIC_BACKOFF_MAX", "100ms"),
];

/// Members on one Redis, behind one proxy.
struct Fleet {
    redis: RedisServer,
    proxy: Proxy,
    dirs: Vec<TempDir>,
    members: Vec<Process>,
    book: Arc<Sequences>,
    rng: Rng,
}

impl Fleet {
    async fn start(rng: Rng) -> Result<Fleet> {
        let redis = RedisServer::durable().await?;
        let proxy = Proxy::before(&redis)?;
        let (dirs, members, book) = (Vec::new(), Vec::new(), Arc::default());
        let mut fleet = Fleet { redis, proxy, dirs, members, book, rng };
        for _ in 0..MEMBERS {
            fleet.dirs.push(scratch()?);
        }
        for member in 0..MEMBERS {
            let process = fleet.serve(member).await?;
            fleet.members.push(process);
        }
        Ok(fleet)
    }

    async fn serve(&self, member: usize) -> Result<Process> {
        let url = self.proxy.url();
        let settings: Vec<_> = SETTINGS.into_iter().chain([("REDIS_URL", url.as_str())]).collect();
        Process::serve(self.dirs[member].path(), &settings).await
    }

    /// Waits until so many messages more have come, or all of them.
    async fn flows(&self, more: usize, all: usize) -> Result<()> {
        let came = || self.book.book().came.len();
        let goal = (came() + more).min(all);
        while came() < goal {
            let before = came();
            eventually("messages come", async || Ok((came() > before).then_some(()))).await.map_err(|error| {
                let (came, missing) = (came(), self.book.book().missing());
                Error::unavailable(format!(
                    "{}: {came} of {all} came; of those promised not {missing:?}",
                    error.detail()
                ))
            })?;
        }
        Ok(())
    }

    /// Waits until so many messages more were promised.
    async fn promised(&self, more: usize, all: usize) -> Result<()> {
        let promised = || self.book.book().promised();
        let goal = (promised() + more).min(all);
        eventually("pushes are answered", async || Ok((promised() >= goal).then_some(()))).await
    }

    /// A member dies and comes back; Redis cannot be reached; or Redis dies and comes back.
    async fn fault(&mut self, number: usize, all: usize) -> Result<()> {
        let pushes = self.rng.usize(20..200);
        match number % 4 {
            0 | 2 => {
                let member = self.rng.usize(..MEMBERS);
                self.members[member].kill()?;
                self.flows(1, all).await?;
                self.members[member] = self.serve(member).await?;
            }
            1 => {
                self.proxy.set(Mode::Refuse);
                self.promised(pushes, all).await?;
                self.proxy.set(Mode::Pass);
            }
            _ => {
                self.redis.kill()?;
                self.promised(pushes, all).await?;
                self.redis.restart().await?;
            }
        }
        Ok(())
    }
}

/// Pushes the messages of some keys in runs, all at one member; a batch is repeated until all of it is promised.
async fn produce(client: HttpClient, book: Arc<Sequences>, keys: Vec<String>, each: usize, mut rng: Rng) -> Result<()> {
    for from in (0..each).step_by(RUN) {
        for keys in keys.chunks(20) {
            // One delay for each key: so what is pushed later is due later.
            let numbers = || from..each.min(from + RUN);
            let ids: Vec<_> = keys.iter().flat_map(|key| numbers().map(move |number| (key, number))).collect();
            let message = |(key, number): &(&String, usize)| {
                let delay = key.len() % 3 * 40;
                json!({"id": format!("{key}-{number}"), "key": key, "payload": "x", "delay_ms": delay})
            };
            let body = Arc::new(json!({"messages": ids.iter().map(message).collect::<Vec<_>>()}));
            let mut tries = 0;
            loop {
                let promised = repeatedly("a batch is promised", || {
                    let (client, body) = (client.clone(), body.clone());
                    async move { Ok(batch(&client, &body).await.then_some(())) }
                });
                // A member is away for longer than one wait, at times.
                match promised.await {
                    Ok(()) => break,
                    Err(error) if tries == 3 => return Err(error),
                    Err(_) => tries += 1,
                }
            }
            ids.iter().for_each(|(key, number)| book.pushed(&format!("{key}-{number}")));
        }
        if rng.u8(..) == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

async fn batch(client: &HttpClient, body: &Value) -> bool {
    let answer = client.post("/v1/topics/ledger/messages/batch", body).await;
    let results = answer.filter(|(status, _)| *status < 207);
    results.is_some_and(|(_, body)| body["results"].as_array().is_some_and(|results| !results.is_empty()))
}

const GROUP: &str = "/v1/topics/ledger/groups/default";

/// What a consumer does with a message: it fails at some, forgets some, and never succeeds with poison.
enum Does {
    Ack,
    Nack(Value),
    Nothing,
}

fn does(id: &str, receipt: &Value, rng: &mut Rng) -> Does {
    match rng.u32(..1_000) {
        _ if id.ends_with("-77") && id.starts_with("k-1") => Does::Nack(json!({"receipt": receipt})),
        0 => Does::Nothing,
        1..20 => Does::Nack(json!({"receipt": receipt, "delay_ms": rng.u32(..50)})),
        _ => Does::Ack,
    }
}

async fn consume(client: HttpClient, book: Arc<Sequences>, mut rng: Rng, over: CancellationToken) {
    while !over.is_cancelled() {
        let per_key = if rng.bool() { 1 } else { rng.usize(2..=5) };
        let mut request = json!({"max": 100 / per_key, "wait": "200ms", "per_key": per_key});
        if per_key > 1 && rng.bool() {
            request["on_failure"] = json!("keep_rest");
        }
        let Some((200, body)) = client.post(&format!("{GROUP}/reserve"), &request).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let deliveries = body["deliveries"].as_array().cloned().unwrap_or_default();
        if per_key > 1 {
            consume_in_order(&client, &book, &mut rng, &deliveries).await;
            continue;
        }
        let (mut acks, mut nacks) = (Vec::new(), Vec::new());
        for delivery in &deliveries {
            let (id, receipt) = (delivery["id"].as_str().unwrap_or_default(), &delivery["receipt"]);
            book.came(id);
            match does(id, receipt, &mut rng) {
                Does::Ack => acks.push(receipt.clone()),
                Does::Nack(nack) => nacks.push(nack),
                Does::Nothing => {}
            }
        }
        if !nacks.is_empty() {
            client.post(&format!("{GROUP}/nack"), &json!({"receipts": nacks})).await;
        }
        if !acks.is_empty() {
            client.post(&format!("{GROUP}/ack"), &json!({"receipts": acks})).await;
        }
    }
}

/// Several messages of a key one after the other: the next one once the one before is acked, and if nobody else has it.
async fn consume_in_order(client: &HttpClient, book: &Sequences, rng: &mut Rng, deliveries: &[Value]) {
    let mut failed = HashSet::new();
    for delivery in deliveries {
        let (id, receipt) = (delivery["id"].as_str().unwrap_or_default(), &delivery["receipt"]);
        let key = id.rsplit_once('-').map_or(id, |(key, _)| key);
        let mine = json!({"receipts": [receipt], "visibility_timeout": "3s"});
        if failed.contains(key) || !is_settled(client, "extend", &mine, "extended").await {
            failed.insert(key);
            continue;
        }
        book.came(id);
        let is_done = match does(id, receipt, rng) {
            Does::Ack => is_settled(client, "ack", &json!({"receipts": [receipt]}), "acked").await,
            Does::Nack(nack) => {
                client.post(&format!("{GROUP}/nack"), &json!({"receipts": [nack]})).await;
                false
            }
            Does::Nothing => false,
        };
        if !is_done {
            failed.insert(key);
        }
    }
}

async fn is_settled(client: &HttpClient, verb: &str, body: &Value, status: &str) -> bool {
    let answer = client.post(&format!("{GROUP}/{verb}"), body).await;
    answer.is_some_and(|(code, body)| code == 200 && body["results"][0]["status"] == status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_in_order_while_members_and_redis_die() -> Result<()> {
    let all = KEYS * EACH;
    let mut fleet = Fleet::start(Rng::with_seed(7)).await?;
    let (over, consumers, producers) = (CancellationToken::new(), TaskTracker::new(), TaskTracker::new());
    let mut pushes = Vec::new();
    for member in 0..MEMBERS {
        let client = fleet.members[member].client.clone();
        for _ in 0..CONSUMERS {
            let (book, rng, over) = (fleet.book.clone(), fleet.rng.fork(), over.clone());
            consumers.spawn(consume(client.clone(), book, rng, over));
        }
        let mine = (0..KEYS).filter(|key| key % MEMBERS == member).map(|key| format!("k-{key}")).collect();
        let (book, rng) = (fleet.book.clone(), fleet.rng.fork());
        pushes.push(producers.spawn(produce(client, book, mine, EACH, rng)));
    }
    let mut faults = 0;
    while !pushes.iter().all(|producer| producer.is_finished()) || faults < 4 {
        fleet.flows(200, all).await?;
        fleet.fault(faults, all).await?;
        faults += 1;
    }
    for producer in pushes {
        producer.await.map_err(|error| failed("a producer")(error.into()))??;
    }
    fleet.flows(all, all).await?;
    over.cancel();
    consumers.close();
    consumers.wait().await;
    let book = fleet.book.book();
    assert_eq!(book.promised(), all);
    assert!(book.missing().is_empty(), "{:?}", book.missing());
    assert!(book.inversions.is_empty(), "{:?}", &book.inversions[..book.inversions.len().min(20)]);
    Ok(())
}
