//! FIFO queues by chance: batches whose messages return, time out and are deleted, while the broker is replaced.
//!
//! A delete that is answered with success never comes again, what returned comes before its successors, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Broker, Outcome, Store, text};
use crate::support::RedisServer;

const GROUPS: usize = 3;
const STEPS: usize = 160;
/// Receives and deletes until everything is gone; each receive waits a moment.
const ROUNDS_MAX: usize = 3_000;

/// What the producer and the consumer of a queue know.
struct Book {
    rng: Rng,
    url: String,
    sent: [usize; GROUPS],
    /// The latest receipt handles.
    held: BTreeMap<(usize, usize), String>,
    received: BTreeSet<(usize, usize)>,
    deleted: BTreeSet<(usize, usize)>,
    /// Given back, which was answered, and not received since.
    returned: BTreeSet<(usize, usize)>,
}

impl Book {
    async fn send(&mut self, dwell: &Broker) -> Outcome {
        let group = self.rng.usize(..GROUPS);
        let numbers = self.sent[group]..self.sent[group] + self.rng.usize(1..=5);
        self.sent[group] = numbers.end;
        let entry = |number: usize| {
            let name = format!("{group}-{number}");
            json!({"Id": name, "MessageBody": name, "MessageGroupId": group.to_string(), "MessageDeduplicationId": name})
        };
        let entries: Vec<Value> = numbers.map(entry).collect();
        let sent = dwell.tell("SendMessageBatch", json!({"QueueUrl": self.url, "Entries": entries})).await?;
        assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(entries.len()), "{sent}");
        Ok(())
    }

    async fn receive(&mut self, dwell: &Broker) -> Outcome {
        let max = self.rng.usize(1..=10);
        let ask = json!({"QueueUrl": self.url, "MaxNumberOfMessages": max, "VisibilityTimeout": self.rng.usize(1..=3)});
        let answer = dwell.tell("ReceiveMessage", ask).await?;
        for message in answer["Messages"].as_array().into_iter().flatten() {
            let body = text(&message["Body"]);
            let (group, number) = body.split_once('-').ok_or("a name")?;
            let name: (usize, usize) = (group.parse()?, number.parse()?);
            assert!(!self.deleted.contains(&name), "{name:?} comes again: its delete was answered");
            let before = (name.0, 0)..name;
            assert_eq!(self.returned.range(before.clone()).next(), None, "it returned, and {name:?} came first");
            let is_known =
                |number| self.received.contains(&(name.0, number)) || self.deleted.contains(&(name.0, number));
            assert!((0..name.1).all(is_known), "{name:?} overtakes");
            self.received.insert(name);
            self.returned.remove(&name);
            self.held.insert(name, text(&message["ReceiptHandle"]));
        }
        Ok(())
    }

    fn any_held(&mut self) -> Option<((usize, usize), String)> {
        let at = self.rng.usize(..self.held.len().max(1));
        self.held.iter().nth(at).map(|(name, handle)| (*name, handle.clone()))
    }

    async fn delete(&mut self, dwell: &Broker) -> Outcome {
        let chosen: BTreeMap<_, _> = (0..self.rng.usize(1..=5)).filter_map(|_| self.any_held()).collect();
        if chosen.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = chosen.keys().copied().collect();
        let entry = |(at, handle): (usize, &String)| json!({"Id": at.to_string(), "ReceiptHandle": handle});
        let entries: Vec<Value> = chosen.values().enumerate().map(entry).collect();
        let answer = dwell.tell("DeleteMessageBatch", json!({"QueueUrl": self.url, "Entries": entries})).await?;
        for entry in answer["Successful"].as_array().into_iter().flatten() {
            let name = names[text(&entry["Id"]).parse::<usize>()?];
            self.deleted.insert(name);
            self.returned.remove(&name);
            self.held.remove(&name);
        }
        for entry in answer["Failed"].as_array().into_iter().flatten() {
            // On a busy machine the lease ends before Redis has answered: nobody knows the outcome, and it is deleted once more.
            assert!(["InvalidParameterValue", "ServiceUnavailable"].contains(&&*text(&entry["Code"])), "{entry}");
        }
        Ok(())
    }

    async fn change(&mut self, dwell: &Broker) -> Outcome {
        let Some((name, handle)) = self.any_held() else { return Ok(()) };
        let secs = if self.rng.bool() { 0 } else { self.rng.u64(1..=3) };
        let change = json!({"QueueUrl": self.url, "ReceiptHandle": handle, "VisibilityTimeout": secs});
        let answer = Broker::send(dwell.request("ChangeMessageVisibility", &change)).await?;
        match answer.status {
            200 if secs == 0 => drop(self.returned.insert(name)),
            200 | 400 => {}
            // As with a delete: on a busy machine nobody knows the outcome, so it is not given back by an answer.
            503 if answer.code.as_deref() == Some("ServiceUnavailable;Receiver") => {}
            _ => return Err(format!("{answer:?}").into()),
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.deleted.len() == self.sent.iter().sum::<usize>()
    }
}

async fn start(store: &Store) -> Outcome<Broker> {
    Broker::start_with(store, |options| options.broker.lease_ttl = Duration::from_secs(2)).await
}

async fn history(store: &Store, restarts: usize) -> Outcome {
    let seed = crate::support::from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    println!("DWELL_SEED={seed}");
    let mut dwell = start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "2"})).await?;
    let (sent, held) = ([0; GROUPS], BTreeMap::new());
    let (received, deleted, returned) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut book = Book { rng: Rng::with_seed(seed), url, sent, held, received, deleted, returned };
    for step in 0..STEPS {
        match book.rng.usize(..10) {
            0..2 => book.send(&dwell).await?,
            2..5 => book.receive(&dwell).await?,
            5..8 => book.delete(&dwell).await?,
            _ => book.change(&dwell).await?,
        }
        if restarts > 0 && step % (STEPS / restarts) == STEPS / restarts - 1 {
            drop(dwell);
            dwell = start(store).await?;
            // What was given back without an answer of the store is as good as in flight.
            book.returned.clear();
        }
    }
    for _ in 0..ROUNDS_MAX {
        if book.is_done() {
            return Ok(());
        }
        book.receive(&dwell).await?;
        book.delete(&dwell).await?;
    }
    Err(format!("{} of {:?} were deleted: something is lost", book.deleted.len(), book.sent).into())
}

#[tokio::test]
async fn a_fifo_queue_keeps_its_word() -> Outcome {
    history(&Store::Embedded, 0).await
}

#[tokio::test]
async fn a_fifo_queue_keeps_its_word_while_its_broker_is_replaced() -> Outcome {
    history(&Store::Redis(RedisServer::start().await?), 4).await
}
