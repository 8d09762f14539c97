//! The measures, for any peer that can be spoken to from Rust. README.md says what is measured.
//!
//! What is asked for is in the environment, and the result is one line of JSON.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PAYLOAD_BYTES: usize = 100;

/// What a peer can do. A caller is one of its connections, from 0 on.
pub(crate) trait Peer: Send + Sync + 'static {
    /// Messages of a request, unless the environment says otherwise.
    const BATCH: usize;
    /// Callers at the same time, as producers and again as consumers, unless the environment says otherwise.
    const CALLERS: usize;

    fn batch(&self) -> usize {
        batch(Self::BATCH)
    }

    fn callers(&self) -> usize {
        callers(Self::CALLERS)
    }

    /// Pushes payloads with their due times, ms since 1970; every one has to be stored.
    fn push(&self, caller: usize, messages: Vec<(u64, String)>) -> impl Future<Output = Result<()>> + Send;
    /// Takes and acks until so many are acked: [`take_and_ack`], unless its client does that by itself.
    fn consume(self: Arc<Self>, count: u64) -> impl Future<Output = Result<Tally>> + Send;
}

/// A peer from which a caller takes messages, and acks what it took itself.
pub(crate) trait Taker: Peer {
    /// Takes up to a batch; nothing after a moment.
    fn take(&self, caller: usize) -> impl Future<Output = Result<Vec<Taken>>> + Send;
    /// Acks, and says how many of them were.
    fn ack(&self, caller: usize, taken: Vec<Taken>) -> impl Future<Output = Result<usize>> + Send;
}

/// A message in the hands of a consumer.
#[derive(serde::Deserialize)]
pub(crate) struct Taken {
    /// What names it to the peer.
    pub(crate) receipt: String,
    pub(crate) payload: String,
}

/// Runs one measure and prints its result.
pub(crate) async fn run(peer: Arc<impl Peer>, measure: &str) -> Result<()> {
    let (count, lead, rate) = (told("COUNT")?, told("LEAD_MS")?, told("RATE")?);
    match measure {
        "push" => {
            let in_an_hour = now_ms() + 3_600_000;
            let took = push(&peer, count, move |_| in_an_hour).await?;
            println!("{}", json!({"push_per_s": (count as f64 / took.as_secs_f64()).round()}));
        }
        "drain" => {
            let now = now_ms();
            push(&peer, count, move |_| now).await?;
            let began = now_ms();
            let got = peer.consume(count).await?;
            println!("{}", got.with("drain_per_s", count * 1_000 / (got.ended - began).max(1)));
        }
        "lateness" => {
            let consumers = tokio::spawn(peer.clone().consume(count));
            let first = now_ms() + lead;
            push(&peer, count, move |number| first + number * 1_000 / rate).await?;
            in_time(first)?;
            let mut got = consumers.await??;
            let percentiles = json!({"p50": got.permille(500), "p99": got.permille(990), "p99.9": got.permille(999)});
            println!("{}", got.with("lateness_ms", percentiles));
        }
        "burst" => {
            let consumers = tokio::spawn(peer.clone().consume(count));
            let due = now_ms() + lead;
            push(&peer, count, move |_| due).await?;
            in_time(due)?;
            let got = consumers.await??;
            println!("{}", got.with("burst_s", (got.ended - due) as f64 / 1_000.0));
        }
        "idle" => {
            push(&peer, 1, move |_| 0).await?;
            peer.clone().consume(1).await?;
            println!("ready");
            peer.consume(1).await?;
        }
        other => return Err(format!("no measure {other:?}").into()),
    }
    Ok(())
}

/// Messages of a request: as many as the peer likes, unless the environment says otherwise.
fn batch(preferred: usize) -> usize {
    told("BATCH").map_or(preferred, |told| told as usize)
}

/// Connections, likewise.
pub(crate) fn callers(preferred: usize) -> usize {
    told("CALLERS").map_or(preferred, |told| told as usize)
}

fn told(name: &str) -> Result<u64> {
    Ok(std::env::var(name).map_err(|_| format!("{name} is not set"))?.parse()?)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn in_time(due: u64) -> Result<()> {
    if now_ms() < due { Ok(()) } else { Err("the pushes took longer than the lead".into()) }
}

/// Pushes so many, each due when `due` says; the payload says when, and which one it is.
async fn push(
    peer: &Arc<impl Peer>,
    count: u64,
    due: impl Fn(u64) -> u64 + Copy + Send + Sync + 'static,
) -> Result<Duration> {
    let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let producers: Vec<_> = (0..peer.callers())
        .map(|caller| {
            let (peer, next) = (peer.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let from = next.fetch_add(peer.batch(), Ordering::Relaxed) as u64;
                    if from >= count {
                        return Result::Ok(());
                    }
                    let numbers = from..count.min(from + peer.batch() as u64);
                    let payload = |n| format!("{:<PAYLOAD_BYTES$}", format!("{} {n}", due(n)));
                    peer.push(caller, numbers.map(|n| (due(n), payload(n))).collect()).await?;
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await??;
    }
    Ok(began.elapsed())
}

pub(crate) async fn take_and_ack(peer: Arc<impl Taker>, count: u64) -> Result<Tally> {
    let acked = Arc::new(AtomicUsize::new(0));
    let mut consumers = tokio::task::JoinSet::new();
    for caller in 0..peer.callers() {
        let (peer, acked) = (peer.clone(), acked.clone());
        consumers.spawn(async move {
            let mut tally = Tally::default();
            while (acked.load(Ordering::Relaxed) as u64) < count {
                let taken = peer.take(caller).await?;
                if taken.is_empty() {
                    continue;
                }
                taken.iter().try_for_each(|message| tally.received(&message.payload))?;
                let settled = peer.ack(caller, taken).await?;
                acked.fetch_add(settled, Ordering::Relaxed);
                tally.end();
            }
            Result::Ok(tally)
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = consumers.join_next().await {
        let tally = tally??;
        all.lateness.extend(tally.lateness);
        all.numbers.extend(tally.numbers);
        all.ended = all.ended.max(tally.ended);
    }
    Ok(all)
}

/// What came.
#[derive(Default)]
pub(crate) struct Tally {
    /// From the due time to the hand-over, ms, of each delivery.
    lateness: Vec<i64>,
    /// Which messages they were.
    numbers: BTreeSet<u64>,
    /// When the last ack was answered, ms since 1970.
    ended: u64,
}

impl Tally {
    /// A message was handed over just now.
    pub(crate) fn received(&mut self, payload: &str) -> Result<()> {
        let now = now_ms();
        let mut words = payload.split(' ').map(str::parse::<u64>);
        let (Some(due), Some(number)) = (words.next(), words.next()) else {
            return Err("a payload".into());
        };
        self.lateness.push(now as i64 - due? as i64);
        self.numbers.insert(number?);
        Ok(())
    }

    /// An ack was answered just now.
    pub(crate) fn end(&mut self) {
        self.ended = now_ms();
    }

    fn permille(&mut self, permille: usize) -> i64 {
        self.lateness.sort_unstable();
        self.lateness.get((self.lateness.len() * permille).div_ceil(1_000).saturating_sub(1)).copied().unwrap_or(-1)
    }

    fn with(&self, name: &str, value: impl Into<Value>) -> Value {
        let early = self.lateness.iter().filter(|lateness| **lateness < 0).count();
        let repeated = self.lateness.len() - self.numbers.len();
        json!({name: value.into(), "distinct": self.numbers.len(), "repeated": repeated, "early": early})
    }
}
