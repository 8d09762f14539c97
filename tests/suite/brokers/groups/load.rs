//! A producer that pushes all the time, and a consumer on every sidecar that acks what it gets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fleet::ORDERS;
use super::ledger::{Book, Ledger};
use super::sidecar::Sidecar;
use crate::support::{eventually, repeatedly};

/// Messages in a batch, and the time from one batch to the next: 500 messages a second.
const BATCH: usize = 10;
const PACE: Duration = Duration::from_millis(20);

/// The load of a story on the topic `orders`.
pub(super) struct Load {
    pub(super) ledger: Arc<Ledger>,
    /// Whom the producer may ask.
    doors: Arc<Mutex<Vec<Sidecar>>>,
    enough: CancellationToken,
    over: CancellationToken,
    producer: Option<JoinHandle<Result<()>>>,
    consumers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Consumers only.
    pub(super) fn quiet(sidecars: &[Sidecar]) -> Load {
        let (enough, over) = (CancellationToken::new(), CancellationToken::new());
        let doors = Arc::new(Mutex::new(Vec::new()));
        let mut load = Load { ledger: Arc::default(), doors, enough, over, producer: None, consumers: Vec::new() };
        sidecars.iter().for_each(|sidecar| load.join(sidecar));
        load
    }

    /// A producer too.
    pub(super) fn start(sidecars: &[Sidecar]) -> Load {
        let mut load = Load::quiet(sidecars);
        let (ledger, doors, enough) = (load.ledger.clone(), load.doors.clone(), load.enough.clone());
        load.producer = Some(tokio::spawn(produce(ledger, doors, enough)));
        load
    }

    /// A consumer on one sidecar more.
    pub(super) fn join(&mut self, sidecar: &Sidecar) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).push(sidecar.clone());
        self.consumers.push(tokio::spawn(consume(sidecar.clone(), ORDERS, self.ledger.clone(), self.over.clone())));
    }

    /// The producer asks this sidecar no more. Its consumer notices by itself.
    pub(super) fn leave(&self, sidecar: &Sidecar) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).retain(|door| door.name != sidecar.name);
    }

    /// Waits until so many messages more are acked.
    pub(super) async fn flows(&self, more: usize) -> Result<()> {
        let acked = || self.ledger.book().acked.len();
        let goal = acked() + more;
        eventually("messages flow", async || Ok((acked() >= goal).then_some(()))).await
    }

    /// Stops the producer, waits until everything is settled and the topic is empty, and holds it all to the ledger.
    pub(super) async fn drained(mut self, at: &Sidecar, judge: impl FnOnce(&Book)) -> Result<()> {
        self.enough.cancel();
        if let Some(producer) = self.producer.take() {
            producer.await.map_err(|error| Error::bug(error.to_string()))??;
        }
        let open = || self.ledger.book().open().len();
        let empty = eventually("the topic is empty", async || {
            Ok((open() == 0 && at.counts(ORDERS).await? == [0; 4]).then_some(()))
        });
        if let Err(error) = empty.await {
            let counts = at.counts(ORDERS).await?;
            let book = self.ledger.book();
            let open: Vec<_> = book.open().into_iter().map(|id| (id, book.attempts.get(id))).take(20).collect();
            return Err(Error::unavailable(format!("{error}; {counts:?}; open: {open:?}\n{}", at.log())));
        }
        self.over.cancel();
        for consumer in std::mem::take(&mut self.consumers) {
            consumer.await.map_err(|error| Error::bug(error.to_string()))?;
        }
        let book = self.ledger.book();
        println!("{} pushed, {} repeated, {} stale", book.pushed.len(), book.repeated().len(), book.stale.len());
        judge(&book);
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.enough.cancel();
        self.over.cancel();
    }
}

/// Messages with these ids, due within the next 200 ms.
fn batch(ids: &[String]) -> Vec<Value> {
    ids.iter().map(|id| json!({"id": id, "payload": id, "delay": format!("{}ms", fastrand::u64(0..200))})).collect()
}

/// A push that fails is repeated at the next door: an id is stored once.
async fn produce(ledger: Arc<Ledger>, doors: Arc<Mutex<Vec<Sidecar>>>, enough: CancellationToken) -> Result<()> {
    let mut next = Instant::now();
    let mut turn = 0;
    for round in 0.. {
        if enough.is_cancelled() {
            break;
        }
        let ids: Vec<String> = (0..BATCH).map(|n| format!("m-{round:05}-{n}")).collect();
        let messages = Arc::new(batch(&ids));
        repeatedly("a push succeeds", || {
            turn += 1;
            let doors = doors.lock().unwrap_or_else(PoisonError::into_inner);
            let (door, messages) = (doors.get(turn % doors.len().max(1)).cloned(), messages.clone());
            async move {
                let Some(door) = door else { return Ok(None) };
                Ok(door.push(ORDERS, &messages).await.ok())
            }
        })
        .await?;
        ledger.pushed(&ids);
        next = (next + PACE).max(Instant::now());
        repeatedly("it is time for the next batch", || {
            let due = Instant::now() >= next;
            async move { Ok(due.then_some(())) }
        })
        .await?;
    }
    Ok(())
}

/// Until the story is over, or the sidecar.
async fn consume(sidecar: Sidecar, topic: &'static str, ledger: Arc<Ledger>, over: CancellationToken) {
    let is_over = || over.is_cancelled() || sidecar.is_over();
    while !is_over() {
        let reserve = repeatedly("a consumer is served", || {
            let (sidecar, is_over) = (sidecar.clone(), is_over());
            async move {
                Ok(match is_over {
                    true => Some(Vec::new()),
                    false => sidecar.reserve(topic, 50, "500ms").await.ok(),
                })
            }
        });
        let Ok(taken) = reserve.await else { return };
        if taken.is_empty() {
            continue;
        }
        ledger.delivered(&taken);
        let verdicts = sidecar.ack(topic, &taken).await.unwrap_or_default();
        ledger.settled(&taken, &verdicts);
    }
}
