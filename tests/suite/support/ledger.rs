//! What producers and consumers were answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::HttpClient;

const TOPIC: &str = "/v1/topics/orders";
/// Longer than any takeover.
const PATIENCE: Duration = Duration::from_secs(20);

/// Messages that wait for consumers, so that what is left can be drained in a moment, and an outage goes by.
const BACKLOG_MAX: usize = 20_000;

/// What is known of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Push {
    /// No answer came, or one that leaves it open.
    Unknown,
    /// It is certainly not there.
    Refused,
    /// It is there, due then.
    Stored(Timestamp),
    /// It is there, and an earlier push that was not answered said when it is due.
    Duplicate,
}

#[derive(Debug, Default)]
struct Books {
    pushes: BTreeMap<String, Push>,
    /// Pushes that may be made again.
    unanswered: Vec<String>,
    stored: usize,
    delivered: BTreeSet<String>,
    acked: BTreeSet<String>,
    /// An ack was sent, and `acked` was never the answer.
    perhaps_acked: BTreeSet<String>,
    duplicates: usize,
    /// Messages that came twice as a first attempt.
    uncharged: BTreeSet<String>,
    /// Delivered although their ack was answered.
    again: Vec<String>,
    /// What must not have happened.
    breaches: Vec<String>,
}

/// The books, and how many pushes and acks were answered.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    answers: watch::Sender<(u64, u64)>,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many more pushes and acks are answered; for pushes alone no longer than until producers wait for
    /// consumers, who may have nothing before the fault is over.
    pub(crate) async fn until(&self, pushes: u64, acks: u64) -> Result<()> {
        let mut answers = self.answers.subscribe();
        let acks_wanted = acks;
        let (pushes, acks) = (answers.borrow().0 + pushes, answers.borrow().1 + acks);
        let is_full = || acks_wanted == 0 && self.books().backlog() > BACKLOG_MAX;
        let answered = answers.wait_for(|(pushed, acked)| (*pushed >= pushes && *acked >= acks) || is_full());
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::unavailable(format!("nothing is answered any more: {:?}", *self.answers.borrow()))),
        }
    }

    /// Pushes until `stop`; now and then a push that was not answered is made again.
    pub(crate) async fn produce(&self, client: &HttpClient, prefix: &str, mut rng: Rng, stop: &CancellationToken) {
        for n in 0_u64.. {
            let mut ids: Vec<String> = (0..rng.usize(1..8)).map(|m| format!("{prefix}-{n}-{m}")).collect();
            let again = if rng.bool() { self.books().unanswered.pop() } else { None };
            ids.extend(again.clone());
            self.books().pushes.extend(ids.iter().map(|id| (id.clone(), Push::Unknown)));
            let message = |id: &String| json!({"payload": id, "id": id, "delay_ms": rng.u64(0..300)});
            let body = json!({"messages": ids.iter().map(message).collect::<Vec<_>>()});
            let answer = client.post(&format!("{TOPIC}/messages/batch"), &body).await;
            let results = answer.map_or(Value::Null, |(_, mut body)| body["results"].take());
            for (n, id) in ids.into_iter().enumerate() {
                let first = again.as_ref() != Some(&id);
                self.books().pushed(id, &results[n], first);
            }
            self.answers.send_modify(|(pushes, _)| *pushes += u64::from(!results.is_null()));
            let mut answers = self.answers.subscribe();
            while self.books().backlog() > BACKLOG_MAX && !stop.is_cancelled() {
                // Consumers are behind, as before a takeover.
                tokio::select! {
                    _ = answers.changed() => {}
                    () = stop.cancelled() => {}
                }
            }
            if stop.is_cancelled() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes messages until `stop`: most are acked, some are nacked, a few are forgotten.
    pub(crate) async fn consume(&self, client: &HttpClient, mut rng: Rng, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let (mut acks, mut nacks) = (Vec::new(), Vec::new());
            for delivery in self.reserve(client).await {
                match rng.u8(..) {
                    0..220 => acks.push(delivery),
                    220..245 => nacks.push(json!({"receipt": delivery["receipt"], "delay_ms": 10})),
                    245.. => {}
                }
            }
            self.ack(client, &acks).await;
            if !nacks.is_empty() {
                client.post(&format!("{TOPIC}/groups/default/nack"), &json!({"receipts": nacks})).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes and acks once; an answer when nothing is left.
    pub(crate) async fn drain(&self, client: &HttpClient) -> Result<Option<()>> {
        let deliveries = self.reserve(client).await;
        self.ack(client, &deliveries).await;
        let (_, topic) = client.get(TOPIC).await.ok_or_else(|| Error::unavailable("no answer"))?;
        let left = |state: &str| topic["totals"][0][state].as_u64();
        let (_, ready) = client.get("/readyz").await.ok_or_else(|| Error::unavailable("no answer"))?;
        let empty = ["scheduled", "ready", "blocked", "backoff", "in_flight"].map(left) == [Some(0); 5];
        Ok((empty && ready["status"] == "ready").then_some(()))
    }

    async fn reserve(&self, client: &HttpClient) -> Vec<Value> {
        let reserve = json!({"max": 50, "wait": "200ms"});
        let answer = client.post(&format!("{TOPIC}/groups/default/reserve"), &reserve).await;
        let deliveries = answer.and_then(|(_, body)| body["deliveries"].as_array().cloned()).unwrap_or_default();
        deliveries.iter().for_each(|delivery| self.books().delivered(delivery));
        deliveries
    }

    async fn ack(&self, client: &HttpClient, deliveries: &[Value]) {
        if deliveries.is_empty() {
            return;
        }
        let receipts: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["receipt"]).collect();
        let answer = client.post(&format!("{TOPIC}/groups/default/ack"), &json!({"receipts": receipts})).await;
        let results = answer.map_or(Value::Null, |(_, mut body)| body["results"].take());
        let mut books = self.books();
        for (n, delivery) in deliveries.iter().enumerate() {
            books.settled(text(delivery, "id"), results[n]["status"] == "acked");
        }
        self.answers.send_modify(|(_, acks)| *acks += u64::from(!results.is_null()));
    }

    /// What was answered, and what became of it.
    pub(crate) fn tally(&self) -> Tally {
        let books = self.books();
        let gone = |id: &&String| books.acked.contains(*id) || books.perhaps_acked.contains(*id);
        let of =
            |wanted: fn(&Push) -> bool| books.pushes.iter().filter(move |(_, push)| wanted(push)).map(|(id, _)| id);
        let acknowledged = |push: &Push| matches!(push, Push::Stored(_) | Push::Duplicate);
        Tally {
            acknowledged: of(acknowledged).count(),
            lost: of(acknowledged).filter(|id| !gone(id)).cloned().collect(),
            recovered: of(|push| *push == Push::Unknown).filter(|id| books.delivered.contains(*id)).count(),
            unknown: of(|push| *push == Push::Unknown).filter(|id| !books.delivered.contains(*id)).count(),
            repeated: books.duplicates,
            uncharged: books.uncharged.iter().cloned().collect(),
            again: books.again.clone(),
            breaches: books.breaches.clone(),
        }
    }
}

/// What was answered, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Pushes that were answered 2xx.
    pub(crate) acknowledged: usize,
    /// Those of them that never came.
    pub(crate) lost: Vec<String>,
    /// Pushes without an answer that came all the same.
    pub(crate) recovered: usize,
    /// Pushes without an answer that did not come: nothing is owed.
    pub(crate) unknown: usize,
    /// Deliveries of messages that had been delivered before.
    pub(crate) repeated: usize,
    /// Messages that came twice as a first attempt.
    pub(crate) uncharged: Vec<String>,
    /// Messages that came after their ack had been answered: a second message in the store.
    pub(crate) again: Vec<String>,
    /// What must never happen: early, phantom, refused and delivered, at another time.
    pub(crate) breaches: Vec<String>,
}

/// What a fault is allowed to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// Reservations may be lost with a process, so a first attempt may come twice.
    pub(crate) uncharged: bool,
    /// Acks may be lost with the store.
    pub(crate) again: bool,
}

impl Tally {
    /// Holds what happened to what was answered.
    pub(crate) fn holds(&self, bounds: Bounds) {
        assert!(
            self.lost.is_empty(),
            "{} lost: {:?} …",
            self.lost.len(),
            self.lost.iter().take(20).collect::<Vec<_>>()
        );
        assert!(self.breaches.is_empty(), "{:#?}", self.breaches);
        assert!(self.uncharged.is_empty() || bounds.uncharged, "attempt 1 again: {:?}", self.uncharged);
        assert!(self.again.is_empty() || bounds.again, "delivered after the ack: {:#?}", self.again);
        assert!(self.acknowledged > 100, "too little happened to prove anything");
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { acknowledged, recovered, unknown, repeated, .. } = self;
        let (lost, uncharged, again) = (self.lost.len(), self.uncharged.len(), self.again.len());
        write!(
            f,
            "{acknowledged} acknowledged, {lost} lost, {recovered} recovered, {unknown} unknown, {repeated} delivered again, \
             {uncharged} of them uncharged, {again} after their ack"
        )
    }
}

impl Books {
    /// What was answered for one message of a batch, if anything was. When it was not pushed for the first time it stays
    /// open what became of the first one.
    fn pushed(&mut self, id: String, result: &Value, first: bool) {
        let push = match result["status"].as_str() {
            // Only the store can tell it from the first one, which may be due at another time.
            Some("buffered") if !first => Push::Duplicate,
            Some("stored" | "journaled" | "buffered") => Push::Stored(time(result)),
            Some("duplicate") => Push::Duplicate,
            _ if result["error"]["status"] == 503 && first => Push::Refused,
            _ => Push::Unknown,
        };
        match push {
            Push::Stored(_) | Push::Duplicate => self.stored += 1,
            Push::Unknown => self.unanswered.push(id.clone()),
            Push::Refused => {}
        }
        self.pushes.insert(id, push);
    }

    fn settled(&mut self, id: String, acked: bool) {
        if acked {
            self.perhaps_acked.remove(&id);
            self.acked.insert(id);
        } else if !self.acked.contains(&id) {
            self.perhaps_acked.insert(id);
        }
    }

    /// How many messages wait for consumers.
    fn backlog(&self) -> usize {
        self.stored.saturating_sub(self.acked.len() + self.perhaps_acked.len())
    }

    fn delivered(&mut self, delivery: &Value) {
        let (id, due_at, attempt) = (text(delivery, "id"), time(delivery), delivery["attempt"].as_u64());
        let mut breach = |what: &str| self.breaches.push(format!("{what}: {delivery}"));
        if Clock::System.now() < due_at {
            breach("early");
        }
        match self.pushes.get(&id) {
            None => breach("a phantom"),
            Some(Push::Refused) => breach("refused, and delivered"),
            Some(Push::Stored(at)) if *at != due_at => breach("due at another time"),
            _ => {}
        }
        if self.acked.contains(&id) {
            self.again.push(delivery.to_string());
        }
        if !self.delivered.insert(id.clone()) {
            self.duplicates += 1;
            self.uncharged.extend((attempt < Some(2)).then_some(id));
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn time(value: &Value) -> Timestamp {
    // A time that cannot be read is far away, and so a breach.
    text(value, "due_at").parse().unwrap_or(Timestamp::from_ms(u64::MAX))
}
