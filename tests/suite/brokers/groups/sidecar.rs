//! One `dwell serve` in a process of its own, and a client that speaks to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use futures_util::future::try_join_all;
use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{SETTINGS, dwell, signal};
use crate::support::{eventually, failed};

/// A process. Killed when the last handle of it is dropped.
#[derive(Clone)]
pub(super) struct Sidecar {
    pub(super) name: String,
    pub(super) client: Client,
    log: PathBuf,
    process: Arc<Mutex<Process>>,
}

struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    /// Prints the log of the broker if the test fails: it says why.
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}:\n{}", self.log.display(), std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// A delivery as far as the stories look at it.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) id: String,
    pub(super) receipt: String,
    pub(super) attempt: u64,
    pub(super) partition: usize,
    pub(super) due_at: String,
}

impl Sidecar {
    /// Starts one and waits until it is ready.
    pub(super) async fn start(dir: &Path, name: &str, redis: &str, with: &[(&str, &str)]) -> Result<Sidecar> {
        let socket = dir.join(format!("{name}.sock"));
        let log = dir.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).map_err(failed("a log"))?;
        let mut command = Command::new(dwell()?);
        command.args(["serve", "--listen", &format!("unix:{}", socket.display()), "--redis", redis]);
        command.env_clear().env("DWELL_DATA_DIR", dir.join(name));
        command.envs(SETTINGS).envs(with.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(failed("dwell serve"))?;
        let process = Process { child, log: log.clone() };
        let client = https::client(&Roots::none())?
            .no_proxy()
            .pool_max_idle_per_host(0)
            .unix_socket(socket.as_path())
            .build()
            .map_err(unsent)?;
        let process = Arc::new(Mutex::new(process));
        let sidecar = Sidecar { name: name.to_owned(), client, log, process };
        eventually("dwell serve is ready", async || Ok(sidecar.ask("GET /readyz").await.ok())).await?;
        Ok(sidecar)
    }

    /// A request without a body; answers the JSON of a 2xx.
    pub(super) async fn ask(&self, line: &str) -> Result<Value> {
        self.send(line, None).await
    }

    /// A request with a JSON body; answers the JSON of a 2xx.
    pub(super) async fn tell(&self, line: &str, body: &Value) -> Result<Value> {
        self.send(line, Some(body)).await
    }

    async fn send(&self, line: &str, body: Option<&Value>) -> Result<Value> {
        let (method, target) = line.split_once(' ').ok_or_else(|| Error::bug("a method and a target"))?;
        let method: Method = method.parse().map_err(|_| Error::bug("a method"))?;
        let mut request = self.client.request(method, format!("http://dwell{target}"));
        request = request.timeout(Duration::from_secs(20));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(unsent)?;
        let status = response.status();
        let text = response.text().await.map_err(unsent)?;
        // A problem with results tells the verdict on a single receipt.
        if !status.is_success() && !text.contains("\"results\":") {
            return Err(Error::unavailable(format!("{line}: {status}: {text}")));
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| Error::bug(format!("{line}: {error}: {text}")))
    }

    /// Pushes messages.
    pub(super) async fn push(&self, topic: &str, messages: &[Value]) -> Result<()> {
        let answer =
            self.tell(&format!("POST /v1/topics/{topic}/messages/batch"), &json!({"messages": messages})).await?;
        let results = answer["results"].as_array().ok_or_else(|| Error::bug("a batch without results"))?;
        match results.iter().find(|result| result["status"] == "error") {
            Some(failed) => Err(Error::unavailable(failed.to_string())),
            None => Ok(()),
        }
    }

    /// Takes up to `max` messages, waiting for the first for so long.
    pub(super) async fn reserve(&self, topic: &str, max: usize, wait: &str) -> Result<Vec<Taken>> {
        let line = format!("POST /v1/topics/{topic}/groups/default/reserve");
        let answer = self.tell(&line, &json!({"max": max, "wait": wait})).await?;
        let deliveries = answer["deliveries"].as_array().ok_or_else(|| Error::bug("no deliveries"))?;
        Ok(deliveries.iter().map(Taken::of).collect())
    }

    /// Takes exactly so many messages, in as many requests as it needs.
    pub(super) async fn take(&self, topic: &str, count: usize) -> Result<Vec<Taken>> {
        let mut taken = Vec::new();
        let what = format!("{} gets {count} messages", self.name);
        eventually(&what, async || {
            taken.extend(self.reserve(topic, count - taken.len(), "1s").await?);
            Ok((taken.len() == count).then_some(()))
        })
        .await?;
        Ok(taken)
    }

    /// Acks; answers the verdicts in order. Nothing that was taken is nothing to ack: a request without receipts is refused.
    pub(super) async fn ack(&self, topic: &str, taken: &[Taken]) -> Result<Vec<String>> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let line = format!("POST /v1/topics/{topic}/groups/default/ack");
        let receipts: Vec<&str> = taken.iter().map(|taken| taken.receipt.as_str()).collect();
        let answer = self.tell(&line, &json!({"receipts": receipts})).await?;
        let results = answer["results"].as_array().ok_or_else(|| Error::bug("no verdicts"))?;
        Ok(results.iter().map(|result| text(&result["status"])).collect())
    }

    /// The sum of a metric over its labels, or over those series that contain `label`.
    pub(super) async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let request = self.client.get("http://dwell/metrics");
        let page = request.send().await.map_err(unsent)?.text().await.map_err(unsent)?;
        let series = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(label));
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Who owns each partition of a topic.
    pub(super) async fn owners(&self, topic: &str) -> Result<Vec<Option<String>>> {
        let answer = self.ask(&format!("GET /v1/topics/{topic}")).await?;
        let partitions = answer["partitions"].as_array().ok_or_else(|| Error::bug("no partitions"))?;
        Ok(partitions.iter().map(|partition| partition["owner"].as_str().map(str::to_owned)).collect())
    }

    /// How many messages are scheduled, ready, in flight and dead.
    pub(super) async fn counts(&self, topic: &str) -> Result<[u64; 4]> {
        let answer = self.ask(&format!("GET /v1/topics/{topic}")).await?;
        Ok(["scheduled", "ready", "in_flight", "dead"]
            .map(|state| answer["totals"][0][state].as_u64().unwrap_or(u64::MAX)))
    }

    /// Waits until the members own so many partitions each, largest first, and nobody owns none; answers how long it took.
    pub(super) async fn shared(&self, topic: &str, shares: &[usize]) -> Result<Duration> {
        let since = Instant::now();
        let mut seen = Vec::new();
        let shared = eventually("shares", async || {
            let owners = self.owners(topic).await?;
            seen = shares_of(&owners);
            Ok((seen == shares && owners.iter().all(Option::is_some)).then_some(()))
        });
        match shared.await {
            Ok(()) => Ok(since.elapsed()),
            Err(error) => Err(Error::unavailable(format!("{shares:?} of {topic}, but {seen:?}: {error}"))),
        }
    }

    /// The same, while a consumer of each of these asks for messages. None may be due.
    pub(super) async fn shared_by(&self, askers: &[&Sidecar], topic: &str, shares: &[usize]) -> Result<Duration> {
        let asking = async {
            loop {
                try_join_all(askers.iter().map(|asker| asker.reserve(topic, 1, "500ms"))).await?;
            }
        };
        tokio::select! {
            shared = self.shared(topic, shares) => shared,
            failed = asking => failed,
        }
    }

    /// Sends a signal.
    pub(super) fn signal(&self, what: Signal) -> Result<()> {
        signal(self.pid(), what)
    }

    /// The id of the process.
    pub(super) fn pid(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).child.id()
    }

    /// Waits for the end of the process.
    pub(super) async fn ended(&self) -> Result<ExitStatus> {
        eventually("the process ends", async || {
            let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            process.child.try_wait().map_err(failed("the end of dwell serve"))
        })
        .await
    }

    /// Whether the process has ended.
    pub(super) fn is_over(&self) -> bool {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// What it logged, for a story that fails.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Taken {
    /// From the JSON of a delivery.
    pub(super) fn of(delivery: &Value) -> Taken {
        Taken {
            id: text(&delivery["id"]),
            receipt: text(&delivery["receipt"]),
            attempt: delivery["attempt"].as_u64().unwrap_or(0),
            partition: delivery["partition"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
            due_at: text(&delivery["due_at"]),
        }
    }
}

/// How many partitions each owner has, largest first.
fn shares_of(owners: &[Option<String>]) -> Vec<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for owner in owners.iter().flatten() {
        *counts.entry(owner).or_default() += 1;
    }
    let mut shares: Vec<usize> = counts.into_values().collect();
    shares.sort_by(|a, b| b.cmp(a));
    shares
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn unsent(error: reqwest::Error) -> Error {
    Error::unavailable(format!("a request: {error:?}"))
}
