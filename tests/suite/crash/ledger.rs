//! What producers and consumers were answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell::clock::Clock;
use dwell::error::{Error, Result};
use dwell::time::Timestamp;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::HttpClient;

const TOPIC: &str = "/v1/topics/orders";
/// Longer than any takeover.
const PATIENCE: Duration = Duration::from_secs(20);

/// Messages that wait for consumers, so that what is left can be drained in a moment.
const BACKLOG_MAX: usize = 1_000;

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
    /// What must not have happened.
    breaches: Vec<String>,
}

/// The books, and how many pushes and acks were answered.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
    answers: watch::Sender<(u64, u64)>,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many more pushes and acks are answered.
    pub(super) async fn until(&self, pushes: u64, acks: u64) -> Result<()> {
        let mut answers = self.answers.subscribe();
        let (pushes, acks) = (answers.borrow().0 + pushes, answers.borrow().1 + acks);
        let answered = answers.wait_for(|(pushed, acked)| *pushed >= pushes && *acked >= acks);
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::unavailable(format!("nothing is answered any more: {:?}", *self.answers.borrow()))),
        }
    }

    /// Pushes until `stop`; now and then a push that was not answered is made again.
    pub(super) async fn produce(&self, client: &HttpClient, prefix: &str, mut rng: Rng, stop: &CancellationToken) {
        for n in 0_u64.. {
            let mut ids: Vec<String> = (0..rng.usize(1..8)).map(|m| format!("{prefix}-{n}-{m}")).collect();
            let again = if rng.bool() { self.books().unanswered.pop() } else { None };
            ids.extend(again.clone());
            self.books().pushes.extend(ids.iter().map(|id| (id.clone(), Push::Unknown)));
            let message = |id: &String| json!({"payload": id, "id": id, "delay": rng.u64(0..300)});
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
    pub(super) async fn consume(&self, client: &HttpClient, mut rng: Rng, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let (mut acks, mut nacks) = (Vec::new(), Vec::new());
            for delivery in self.reserve(client).await {
                match rng.u8(..) {
                    0..220 => acks.push(delivery),
                    220..245 => nacks.push(json!({"receipt": delivery["receipt"], "delay": 10})),
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
    pub(super) async fn drain(&self, client: &HttpClient) -> Result<Option<()>> {
        let deliveries = self.reserve(client).await;
        self.ack(client, &deliveries).await;
        let (_, topic) = client.get(TOPIC).await.ok_or_else(|| Error::unavailable("no answer"))?;
        let left = |state: &str| topic["totals"][0][state].as_u64();
        Ok((["scheduled", "ready", "in_flight"].map(left) == [Some(0); 3]).then_some(()))
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

    /// Holds what happened to what was answered.
    ///
    /// A message that came again has one attempt more, unless the store says that reservations may be lost with the
    /// process: then `counts_attempts` is false.
    pub(super) fn check(&self, counts_attempts: bool) {
        let books = self.books();
        let stored = |push: &Push| matches!(push, Push::Stored(_) | Push::Duplicate);
        let gone = |id: &String| books.acked.contains(id) || books.perhaps_acked.contains(id);
        let stored: Vec<_> = books.pushes.iter().filter(|(_, push)| stored(push)).map(|(id, _)| id).collect();
        let lost: Vec<_> = stored.iter().filter(|id| !gone(id)).collect();
        println!(
            "{} pushed, {} stored, {} delivered, {} times again, {} of them uncharged, {} acked, {} perhaps acked",
            books.pushes.len(),
            stored.len(),
            books.delivered.len(),
            books.duplicates,
            books.uncharged.len(),
            books.acked.len(),
            books.perhaps_acked.len(),
        );
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert!(books.uncharged.is_empty() || !counts_attempts, "attempt 1 again: {:?}", books.uncharged);
        assert!(books.breaches.is_empty(), "{:#?}", books.breaches);
        assert!(books.acked.len() > 100, "too little happened to prove anything");
    }
}

impl Books {
    /// What was answered for one message of a batch, if anything was. When it was not pushed for the first time it stays
    /// open what became of the first one.
    fn pushed(&mut self, id: String, result: &Value, first: bool) {
        let push = match result["status"].as_str() {
            Some("stored" | "buffered") => Push::Stored(time(result)),
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
            breach("acked before");
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
