//! The consumers of a history: they ack in time, too late or not at all, bury, and take what was forwarded, of which they bury
//! some for good, for somebody who deletes it.

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::deployment::Kind;
use super::run::{ARRIVALS, Run};
use crate::support::eventually_within;

const ORDERS: &str = "orders";

/// Where the dead letters of that topic go.
const DEAD: &str = "orders-dead";

/// One delivery in so many is put off and acked late, and one in so many is buried.
const LATER_EACH: usize = 12;
const BURIED_EACH: usize = 12;

/// One delivery in so many of what was forwarded is buried there.
const BURIED_AGAIN_EACH: usize = 3;

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Ack,
    AckLate,
    /// For longer than it takes until the late ack.
    PutOff,
    Bury,
}

impl Run {
    /// Makes the topic, the one for its dead letters, and the one that is moved to it.
    pub(super) async fn declare(&self) -> Result<()> {
        for (topic, settings) in
            [(DEAD, json!({})), (ORDERS, json!({"dead_letter": {"topic": DEAD}})), (ARRIVALS, json!({}))]
        {
            let put = async || {
                let answer = self.client(0)?.put(&format!("/v1/topics/{topic}"), &settings).await;
                Ok(answer.filter(|(status, _)| (200..300).contains(status)))
            };
            eventually_within(std::time::Duration::from_secs(20), "a topic", put).await?;
        }
        Ok(())
    }

    /// Takes what is due at a broker.
    pub(super) async fn reserve(&mut self, at: usize, wait: &str) -> Result<Vec<Value>> {
        self.reserve_of(ORDERS, at, wait).await
    }

    async fn reserve_of(&mut self, topic: &str, at: usize, wait: &str) -> Result<Vec<Value>> {
        let reserve = json!({"max": 100, "wait": wait});
        let answer = self.client(at)?.post(&format!("/v1/topics/{topic}/groups/default/reserve"), &reserve).await;
        let deliveries = answer.and_then(|(_, body)| body["deliveries"].as_array().cloned()).unwrap_or_default();
        for delivery in &deliveries {
            let id = id_of(delivery);
            assert!(id.starts_with('n'), "{delivery} was handed out a hundred hours early");
            self.tell(&id, at, format!("delivered from {topic}, attempt {}", delivery["attempt"]));
            self.check_key(&id);
            let was_buried = topic == ORDERS && self.buried.contains(&id);
            if !was_buried && !self.by.acks.contains_key(&id) {
                continue;
            }
            self.read_logs();
            if self.exempt.may_come_again(&id) {
                self.exempt.again += 1;
            } else {
                let acked_by = self.by.acks.get(&id).copied();
                self.tell(&id, at, format!("again: it was acked by {acked_by:?}"));
                self.again.push(id);
            }
        }
        Ok(deliveries)
    }

    /// Acks what a broker handed out, at a random one. It is in the journal of the owner.
    pub(super) async fn ack(&mut self, from: usize, deliveries: &[Value]) -> Result<()> {
        self.settle(ORDERS, How::Ack, from, deliveries).await
    }

    async fn settle(&mut self, topic: &str, how: How, from: usize, deliveries: &[Value]) -> Result<()> {
        let receipts: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["receipt"]).collect();
        if receipts.is_empty() {
            return Ok(());
        }
        // Those that use another primary than the owner do not reach it.
        let is_apart = |at: usize| self.apart.as_ref().is_some_and(|apart| apart.contains(&at));
        let able = |at: &usize| !self.brokers[*at].is_frozen && is_apart(*at) == is_apart(from);
        let able: Vec<usize> = (0..self.brokers.len()).filter(able).collect();
        // Those at the old primary may deliver what is acked at the new one.
        let is_split = self.apart.as_ref().is_some_and(|apart| !apart.is_empty());
        let at = self.rng.choice(able).unwrap_or(from);
        let (verb, body) = match how {
            How::Ack => ("ack", json!({"receipts": receipts})),
            How::AckLate => ("ack", json!({"receipts": receipts, "late": true})),
            How::PutOff => ("nack", json!({"receipts": receipts, "delay": "5s"})),
            How::Bury => ("nack", json!({"receipts": receipts, "bury": true})),
        };
        let answer = self.client(at)?.post(&format!("/v1/topics/{topic}/groups/default/{verb}"), &body).await;
        for (n, delivery) in deliveries.iter().enumerate() {
            let id = id_of(delivery);
            let verdict = answer.as_ref().and_then(|(_, body)| body["results"][n]["status"].as_str());
            self.tell(&id, at, format!("{how:?} in {topic}: {verdict:?}"));
            if how != How::Ack || topic == DEAD {
                self.exempt.ends_elsewhere(&id);
            }
            // What is buried before a loss is noticed may be forwarded, and come back alive as well.
            if how == How::Bury && (is_split || self.lost_at.is_some()) {
                self.exempt.buried_apart(&id);
            }
            match verdict {
                Some("acked") => {
                    if is_split {
                        self.exempt.acked_apart(&id);
                    } else {
                        self.exempt.acked(&id);
                    }
                    self.is_acked(&id, self.brokers[from].identity);
                }
                // After a loss it comes back alive.
                Some("buried") if self.plan.kind == Kind::Durable => drop(self.buried.insert(id)),
                Some("stale" | "buried") => {}
                _ if matches!(how, How::PutOff | How::Bury) => {}
                _ => self.is_perhaps_acked(&id),
            }
        }
        Ok(())
    }

    /// Takes what is due, acks most of it, buries some, and puts off the rest, which is acked late.
    pub(super) async fn take(&mut self, at: usize) -> Result<()> {
        let (mut acked, mut buried, mut put_off) = (Vec::new(), Vec::new(), Vec::new());
        for delivery in self.reserve(at, "0s").await? {
            if self.rng.usize(0..LATER_EACH) == 0 {
                put_off.push(delivery);
            } else if self.rng.usize(0..BURIED_EACH) == 0 {
                buried.push(delivery);
            } else {
                acked.push(delivery);
            }
        }
        self.settle(ORDERS, How::PutOff, at, &put_off).await?;
        self.later.extend(put_off.into_iter().map(|delivery| (at, delivery)));
        self.settle(ORDERS, How::Bury, at, &buried).await?;
        self.ack(at, &acked).await
    }

    /// Acks what was put off, if nobody had it since.
    pub(super) async fn ack_later(&mut self) -> Result<()> {
        for (from, delivery) in std::mem::take(&mut self.later) {
            self.settle(ORDERS, How::AckLate, from, &[delivery]).await?;
        }
        Ok(())
    }

    /// Takes what was forwarded, buries some of it, and acks the rest.
    pub(super) async fn take_forwarded(&mut self, at: usize) -> Result<()> {
        let deliveries = self.reserve_of(DEAD, at, "0s").await?;
        let (buried, acked): (Vec<Value>, Vec<Value>) =
            deliveries.into_iter().partition(|_| self.rng.usize(0..BURIED_AGAIN_EACH) == 0);
        self.settle(DEAD, How::Bury, at, &buried).await?;
        self.buried_again.extend(buried);
        self.settle(DEAD, How::Ack, at, &acked).await
    }

    /// Deletes the dead letters of what was forwarded. After a loss they may be alive.
    pub(super) async fn delete_dead(&mut self, at: usize) -> Result<()> {
        let path = format!("/v1/topics/{DEAD}/groups/default/dead-letters/purge");
        for delivery in std::mem::take(&mut self.buried_again) {
            let id = id_of(&delivery);
            let answer = self.client(at)?.post(&path, &json!({"ids": [delivery["id"]]})).await;
            self.count(answer.as_ref());
            self.tell(&id, at, format!("deleted in {DEAD}: {answer:?}"));
            match answer {
                Some((200, body)) if body["purged"] == 1 => {
                    self.exempt.acked(&id);
                    self.is_acked(&id, self.brokers[at].identity);
                }
                Some((200, _)) => {}
                _ => self.is_perhaps_acked(&id),
            }
        }
        Ok(())
    }

    /// Takes and acks what is left; answers how many came.
    pub(super) async fn drain(&mut self, at: usize) -> Result<usize> {
        let mut count = 0;
        for topic in [ORDERS, DEAD] {
            let deliveries = self.reserve_of(topic, at, "400ms").await?;
            self.settle(topic, How::Ack, at, &deliveries).await?;
            count += deliveries.len();
        }
        Ok(count)
    }

    /// The dead letters of both topics.
    pub(super) async fn dead_letters(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for topic in [ORDERS, DEAD] {
            let path = format!("/v1/topics/{topic}/groups/default/dead-letters?limit=1000");
            let list = async || Ok(self.client(0)?.get(&path).await.filter(|(status, _)| *status == 200));
            let (_, body) = eventually_within(std::time::Duration::from_secs(20), "dead letters", list).await?;
            let dead = body["dead_letters"].as_array().ok_or_else(|| Error::bug("a list of dead letters"))?;
            ids.extend(dead.iter().map(id_of));
        }
        Ok(ids)
    }
}

/// The id of a message, alive or dead, also once it was forwarded.
fn id_of(delivery: &Value) -> String {
    let source = delivery["dead_letter_source"]["id"].as_str();
    source.or(delivery["id"].as_str()).unwrap_or_default().to_owned()
}
