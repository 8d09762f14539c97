//! Random histories: producers and a consumer at several brokers, while Redis dies, is emptied or goes back, brokers lose
//! the way to it, are killed and come back. What was acknowledged is held against what there is in the end.
//!
//! One client makes one call after the other, each at a broker by chance, so the order of what was acknowledged is certain.
//! `make histories` is the long form: `DWELL_OPERATIONS` is how many operations there are, `DWELL_SEED` repeats the
//! choices of a run, if not its timing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dwell::error::{Error, Result};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::support::{Mode, Process, Proxy, RedisServer, Strike, eventually_within, from_environment, scratch};

/// Operations of the short form, in each story.
const OPERATIONS: usize = 400;

/// Operations between two faults.
const CALM: std::ops::Range<usize> = 3..25;

/// Times that nothing comes, after which nothing is expected any more.
const QUIET_MAX: usize = 60;

/// Ids that are set, moved and cancelled again and again.
const IDS: usize = 8;

const SETTINGS: [(&str, &str); 8] = [
    ("DURABILITY", "journal"),
    ("JOURNAL_WINDOW", "1h"),
    ("LEASE_TTL", "1s"),
    ("REDIS_TIMEOUT", "300ms"),
    ("TOPIC_PARTITIONS", "2"),
    ("TOPIC_VISIBILITY_TIMEOUT", "3s"),
    ("TOPIC_BACKOFF_INITIAL", "50ms"),
    ("TOPIC_BACKOFF_MAX", "200ms"),
];

/// What a message may be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Gone,
    /// With this payload, due so many hours from the beginning.
    There(String, u64),
}

/// A broker, the way to Redis, and its directory.
struct Broker {
    process: Option<Process>,
    proxy: Proxy,
    dir: tempfile::TempDir,
}

struct Game {
    redis: RedisServer,
    brokers: Vec<Broker>,
    rng: Rng,
    /// Whether Redis may lose what it answered.
    loses: bool,
    /// What each id may be: more than one state after an operation without an answer.
    states: BTreeMap<String, BTreeSet<State>>,
    /// Messages that are consumed: those that were accepted, and how often each came after its ack.
    accepted: BTreeSet<String>,
    acked: BTreeSet<String>,
    /// Acked without an answer that says what became of it.
    perhaps_acked: BTreeSet<String>,
    again: Vec<String>,
    made: usize,
    /// What was answered about each id.
    told: BTreeMap<String, Vec<String>>,
    faults: BTreeMap<&'static str, usize>,
    answers: BTreeMap<u16, usize>,
}

impl Game {
    async fn begin(brokers: usize, loses: bool) -> Result<Game> {
        let seed = from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
        println!("DWELL_SEED={seed}");
        let redis = if loses { RedisServer::start().await? } else { RedisServer::durable().await? };
        let mut game = Game {
            redis,
            brokers: Vec::new(),
            rng: Rng::with_seed(seed),
            loses,
            states: BTreeMap::new(),
            accepted: BTreeSet::new(),
            acked: BTreeSet::new(),
            perhaps_acked: BTreeSet::new(),
            again: Vec::new(),
            made: 0,
            told: BTreeMap::new(),
            faults: BTreeMap::new(),
            answers: BTreeMap::new(),
        };
        for _ in 0..brokers {
            let (proxy, dir) = (Proxy::before(&game.redis)?, scratch()?);
            game.brokers.push(Broker { process: None, proxy, dir });
            game.start(game.brokers.len() - 1).await?;
        }
        Ok(game)
    }

    async fn start(&mut self, at: usize) -> Result<()> {
        let broker = &mut self.brokers[at];
        let url = broker.proxy.url();
        let settings: Vec<(&str, &str)> = SETTINGS.into_iter().chain([("REDIS_URL", url.as_str())]).collect();
        broker.process = Some(Process::serve(broker.dir.path(), &settings).await?);
        Ok(())
    }

    fn broker(&mut self) -> crate::support::HttpClient {
        let at = self.rng.usize(0..self.brokers.len());
        let process = self.brokers[at].process.as_ref();
        process.map_or_else(|| unreachable!("every broker runs between two faults"), |process| process.client.clone())
    }

    fn count(&mut self, answer: Option<&(u16, Value)>) {
        *self.answers.entry(answer.map_or(0, |(status, _)| *status)).or_default() += 1;
    }

    /// Replaces an id, whatever is there.
    async fn set(&mut self, id: &str) -> Result<()> {
        self.made += 1;
        let (payload, hours) = (format!("p{}", self.made), self.rng.u64(100..1_000));
        let message = json!({"messages": [{
            "id": id, "payload": payload, "conflict": "replace", "delay": format!("{hours}h"),
        }]});
        let answer = self.broker().post("/v1/topics/orders/messages/batch", &message).await;
        self.count(answer.as_ref());
        let status = answer.as_ref().map_or("", |(_, body)| body["results"][0]["status"].as_str().unwrap_or(""));
        let kind = answer.as_ref().map_or(0, |(status, _)| *status);
        let new = State::There(payload, hours);
        self.told.entry(id.to_owned()).or_default().push(format!("set {new:?}: {kind} {status}"));
        let states = self.states.entry(id.to_owned()).or_insert_with(|| BTreeSet::from([State::Gone]));
        match status {
            "stored" | "journaled" | "replaced" | "buffered" => *states = BTreeSet::from([new]),
            _ if is_certain(kind, &answer) => {}
            _ => drop(states.insert(new)),
        }
        Ok(())
    }

    async fn cancel(&mut self, id: &str) -> Result<()> {
        let answer = self.broker().delete(&format!("/v1/topics/orders/messages/{id}")).await;
        self.count(answer.as_ref());
        self.told.entry(id.to_owned()).or_default().push(format!("cancel: {answer:?}"));
        let states = self.states.entry(id.to_owned()).or_insert_with(|| BTreeSet::from([State::Gone]));
        match answer {
            Some((200, _)) => *states = BTreeSet::from([State::Gone]),
            // It was not there: whatever is acknowledged is in a log of a broker that could not say so.
            Some((404 | 409 | 503, _)) => {}
            _ => drop(states.insert(State::Gone)),
        }
        Ok(())
    }

    async fn move_to(&mut self, id: &str) -> Result<()> {
        let hours = self.rng.u64(100..1_000);
        let body = json!({"delay": format!("{hours}h")});
        let answer = self.broker().patch(&format!("/v1/topics/orders/messages/{id}"), &body).await;
        self.count(answer.as_ref());
        let states = self.states.entry(id.to_owned()).or_insert_with(|| BTreeSet::from([State::Gone]));
        self.told.entry(id.to_owned()).or_default().push(format!("move to {hours}: {answer:?}"));
        let moved = |state: &State| match state {
            State::There(payload, _) => State::There(payload.clone(), hours),
            State::Gone => State::Gone,
        };
        match answer {
            Some((200, _)) => *states = states.iter().map(moved).filter(|state| *state != State::Gone).collect(),
            Some((404 | 409 | 503, _)) => {}
            _ => {
                let more: Vec<State> = states.iter().map(moved).collect();
                states.extend(more);
            }
        }
        Ok(())
    }

    /// Pushes a few messages that are due, each under an id of its own.
    async fn push(&mut self) -> Result<()> {
        let ids: Vec<String> = (0..self.rng.usize(1..8)).map(|n| format!("n{}-{n}", self.made)).collect();
        self.made += 1;
        let messages: Vec<Value> = ids.iter().map(|id| json!({"id": id, "payload": id})).collect();
        let answer = self.broker().post("/v1/topics/orders/messages/batch", &json!({"messages": messages})).await;
        self.count(answer.as_ref());
        let Some((_, body)) = answer else { return Ok(()) };
        for (id, result) in ids.into_iter().zip(body["results"].as_array().into_iter().flatten()) {
            if matches!(result["status"].as_str(), Some("stored" | "journaled" | "buffered")) {
                self.accepted.insert(id);
            }
        }
        Ok(())
    }

    /// Takes what is due at a broker, and acks it there.
    async fn take(&mut self, wait: &str) -> Result<usize> {
        let broker = self.broker();
        let reserve = json!({"max": 100, "wait": wait});
        let answer = broker.post("/v1/topics/orders/groups/default/reserve", &reserve).await;
        let Some((200, body)) = answer else { return Ok(0) };
        let deliveries = body["deliveries"].as_array().cloned().unwrap_or_default();
        let receipts: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["receipt"]).collect();
        if receipts.is_empty() {
            return Ok(0);
        }
        for delivery in &deliveries {
            let id = delivery["id"].as_str().unwrap_or_default();
            assert!(id.starts_with('n'), "{delivery} was handed out a hundred hours early");
            if self.acked.contains(id) {
                self.again.push(format!("{id} attempt {}", delivery["attempt"]));
            }
        }
        let acked = broker.post("/v1/topics/orders/groups/default/ack", &json!({"receipts": receipts})).await;
        for (at, delivery) in deliveries.iter().enumerate() {
            let id = delivery["id"].as_str().unwrap_or_default().to_owned();
            let verdict = acked.as_ref().and_then(|(_, body)| body["results"][at]["status"].as_str());
            match verdict {
                Some("acked") => drop(self.acked.insert(id)),
                Some("stale") => {}
                _ => drop(self.perhaps_acked.insert(id)),
            }
        }
        Ok(deliveries.len())
    }

    async fn operate(&mut self) -> Result<()> {
        let id = format!("m{}", self.rng.usize(0..IDS));
        match self.rng.usize(0..10) {
            0..3 => self.set(&id).await,
            3..5 => self.cancel(&id).await,
            5..6 => self.move_to(&id).await,
            6..8 => self.push().await,
            _ => self.take("0s").await.map(drop),
        }
    }

    /// Something goes wrong, a few operations pass, and it is healed.
    async fn fault(&mut self) -> Result<()> {
        let at = self.rng.usize(0..self.brokers.len());
        let kinds = if self.loses { 8 } else { 6 };
        let kind = self.rng.usize(0..kinds);
        let name =
            ["cut", "reply", "request", "killed", "redis killed", "all cut", "emptied", "rewound", "emptied unseen"]
                [kind];
        *self.faults.entry(name).or_default() += 1;
        let calm = self.rng.usize(CALM);
        match kind {
            0 => {
                self.brokers[at].proxy.set(Mode::Refuse);
                self.pass(calm).await?;
                self.brokers[at].proxy.set(Mode::Pass);
            }
            1 | 2 => {
                self.brokers[at].proxy.next(if kind == 1 { Strike::Reply } else { Strike::Request });
                self.pass(calm).await?;
            }
            3 => {
                if let Some(mut process) = self.brokers[at].process.take() {
                    process.kill()?;
                }
                self.start(at).await?;
            }
            4 if self.loses => return Ok(()),
            4 => {
                self.redis.kill()?;
                self.pass(calm).await?;
                self.redis.restart().await?;
            }
            5 => {
                self.brokers.iter().for_each(|broker| broker.proxy.set(Mode::Refuse));
                self.pass(calm).await?;
                if self.rng.bool() {
                    if let Some(mut process) = self.brokers[at].process.take() {
                        process.kill()?;
                    }
                    self.start(at).await?;
                    self.pass(calm).await?;
                }
                self.brokers.iter().for_each(|broker| broker.proxy.set(Mode::Pass));
            }
            // It comes back with nothing, or as it was a while ago.
            _ => {
                self.settled().await?;
                let snapshot = if kind == 7 { self.redis.snapshot().await? } else { Vec::new() };
                self.pass(calm).await?;
                self.brokers.iter().for_each(|broker| broker.proxy.set(Mode::Refuse));
                self.redis.kill()?;
                self.redis.restart().await?;
                self.redis.rewind(&snapshot).await?;
                self.brokers.iter().for_each(|broker| broker.proxy.set(Mode::Pass));
            }
        }
        Ok(())
    }

    async fn pass(&mut self, operations: usize) -> Result<()> {
        for _ in 0..operations {
            self.operate().await?;
        }
        Ok(())
    }

    /// Every broker has done what it has to do.
    async fn settled(&self) -> Result<()> {
        for broker in &self.brokers {
            let Some(process) = &broker.process else { continue };
            let ready = async || {
                let answer = process.client.get("/readyz").await;
                Ok(answer.filter(|(status, body)| *status == 200 && body["status"] == "ready"))
            };
            eventually_within(Duration::from_secs(60), "a broker has nothing left to do", ready).await?;
        }
        Ok(())
    }

    /// What was accepted, and nobody acked.
    fn lost(&self) -> Vec<String> {
        let is_open = |id: &&String| !self.acked.contains(*id) && !self.perhaps_acked.contains(*id);
        self.accepted.iter().filter(is_open).cloned().collect()
    }

    async fn end(mut self) -> Result<()> {
        self.settled().await?;
        let mut quiet = 0;
        while quiet < 3 * self.brokers.len() || (quiet < QUIET_MAX && !self.lost().is_empty()) {
            quiet = if self.take("700ms").await? == 0 { quiet + 1 } else { 0 };
        }
        self.settled().await?;
        let lost = self.lost();
        let mut wrong = Vec::new();
        for (id, states) in &self.states {
            let found = self.look(id).await?;
            let is_one = states.iter().any(|state| match (state, &found) {
                (State::Gone, None) => true,
                (State::There(payload, hours), Some((there, due))) => payload == there && due.abs_diff(*hours) <= 1,
                _ => false,
            });
            if !is_one {
                let told = self.told.get(id).map_or(&[][..], |told| &told[told.len().saturating_sub(8)..]);
                wrong.push(format!("{id} is {found:?}, and not one of {states:?}: {told:#?}"));
            }
        }
        println!("{} pushed, faults {:?}, answers {:?}", self.accepted.len(), self.faults, self.answers);
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert!(self.again.is_empty(), "came again after the ack: {:?}", self.again);
        assert!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// The payload of a message, and in how many hours it is due.
    async fn look(&self, id: &str) -> Result<Option<(String, u64)>> {
        let client = self.brokers[0].process.as_ref().map(|process| process.client.clone());
        let client = client.ok_or_else(|| Error::bug("the first broker does not run"))?;
        let looked =
            async || Ok(client.get(&format!("/v1/topics/orders/messages/{id}")).await.filter(|(s, _)| *s != 503));
        let (status, body) = eventually_within(Duration::from_secs(20), "an answer", looked).await?;
        if status == 404 {
            return Ok(None);
        }
        let due: dwell::time::Timestamp =
            body["due_at"].as_str().unwrap_or_default().parse().map_err(|_| Error::bug("a due time"))?;
        let hours = due.since(dwell::clock::Clock::System.now()).as_secs().div_ceil(3_600);
        Ok(Some((body["payload"].as_str().unwrap_or_default().to_owned(), hours)))
    }
}

/// Whether an answer says that nothing was done.
fn is_certain(status: u16, answer: &Option<(u16, Value)>) -> bool {
    let item = answer.as_ref().map(|(_, body)| &body["results"][0]["error"]["type"]);
    let unknown = item.and_then(Value::as_str).is_some_and(|kind| kind.contains("outcome-unknown"));
    !unknown && (status == 207 || status == 503 || status == 409)
}

async fn play(brokers: usize, loses: bool) -> Result<()> {
    let operations = from_environment("DWELL_OPERATIONS")?.unwrap_or(OPERATIONS);
    let mut game = Game::begin(brokers, loses).await?;
    let mut done = 0;
    while done < operations {
        let calm = game.rng.usize(CALM);
        game.pass(calm).await?;
        done += calm;
        game.fault().await?;
    }
    game.end().await
}

#[tokio::test]
async fn one_broker_keeps_what_it_said_while_redis_keeps_everything() -> Result<()> {
    play(1, false).await
}

#[tokio::test]
async fn two_brokers_keep_what_they_said_while_redis_keeps_everything() -> Result<()> {
    play(2, false).await
}

#[tokio::test]
async fn one_broker_keeps_what_it_said_while_redis_loses_what_it_likes() -> Result<()> {
    play(1, true).await
}

#[tokio::test]
async fn two_brokers_keep_what_they_said_while_redis_loses_what_it_likes() -> Result<()> {
    play(2, true).await
}
