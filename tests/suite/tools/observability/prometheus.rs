//! A real Prometheus for one test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use dwell::platform::https::{self, Roots};
use reqwest::Client;
use rustix::process::Signal;
use serde_json::Value;

use super::broker::Access;
use super::queries::list;
use super::{free_port, grafana, read};
use crate::support::{eventually_within, failed, signal_to};

/// How long Prometheus may take until it has seen something. It scrapes each second, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A Prometheus on a port of its own, with the rules of grafana/prometheus. It is killed when dropped.
pub(super) struct Prometheus {
    child: Child,
    api: Api,
}

/// How fast time passes for the rules.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// What has to last before an alert fires lasts for a second.
    NoPatience,
    /// All spans are so many times as short.
    Faster(u32),
}

impl Pace {
    /// A line of the rules at this pace.
    fn of(self, line: &str) -> String {
        let indent = &line[..line.len() - line.trim_start().len()];
        match (self, line.trim_start().split_once(": ")) {
            (Pace::NoPatience, Some(("for", _))) => format!("{indent}for: 1s"),
            (_, Some(("interval", _))) => format!("{indent}interval: 1s"),
            (Pace::Faster(_), Some(("for", "1h"))) => format!("{indent}for: {LASTS_MAX}"),
            (Pace::Faster(times), Some((key @ ("for" | "keep_firing_for"), span))) => {
                format!("{indent}{key}: {}", shorter(span, times))
            }
            (Pace::Faster(times), _) => ranges_shorter(line, times),
            (Pace::NoPatience, _) => line.to_owned(),
        }
    }
}

/// A line of an expression whose ranges, such as `[5m]`, are so many times as short.
fn ranges_shorter(line: &str, times: u32) -> String {
    let mut parts = line.split('[');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((span, rest)) => made += &format!("[{}]{rest}", shorter(span, times)),
            None => made += &format!("[{part}"),
        }
    }
    made
}

/// What has to last for longer than this before an alert fires lasts for this, at a faster pace.
const LASTS_MAX: &str = "30s";

/// A span such as `5m` that is so many times as short; a subquery such as `1h:1m` stays as it is.
fn shorter(span: &str, times: u32) -> String {
    let unit = span.trim_start_matches(|c: char| c.is_ascii_digit());
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return span.to_owned(),
    };
    let number: u32 = span[..span.len() - unit.len()].parse().unwrap_or(1);
    format!("{}ms", number * seconds * 1_000 / times)
}

/// A client of a Prometheus.
pub(super) struct Api {
    client: Client,
    url: String,
}

/// A series with its samples, those left out that are not numbers.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) samples: Vec<f64>,
}

impl Prometheus {
    /// Starts one that scrapes these ports each second and evaluates the rules as often, also those that are evaluated
    /// less often. What has to last for minutes before an alert fires lasts for a second here.
    pub(super) async fn start(dir: &Path, ports: &[u16]) -> Result<Prometheus> {
        Prometheus::start_at(dir, ports, Pace::NoPatience, &Access::default()).await
    }

    /// The same at another pace, where brokers ask for a token, which is in the file `token` of the directory, or speak TLS.
    pub(super) async fn start_at(dir: &Path, ports: &[u16], pace: Pace, access: &Access) -> Result<Prometheus> {
        let rules = read(&grafana("prometheus/rules.yml"))?;
        write(dir, "rules.yml", &rules.lines().map(|line| pace.of(line) + "\n").collect::<String>())?;
        let targets: Vec<_> = ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let mut config = read(&grafana("prometheus/prometheus.yml"))?
            .replace("_interval: 5s", "_interval: 1s")
            .replace("'127.0.0.1:7373'", &targets.join(", "));
        if access.token.is_some() {
            let file = dir.join("token").display().to_string();
            config = config.replace("# authorization:", "authorization:").replace("/run/secrets/dwell-token", &file);
        }
        if let Some(authority) = &access.authority {
            let tls = format!("scheme: https\n    tls_config: {{ca_file: {}}}\n    static", authority.display());
            config = config.replace("static", &tls);
        }
        write(dir, "prometheus.yml", &config)?;
        let port = free_port()?;
        let log = File::create(dir.join("prometheus.log")).map_err(failed("a log"))?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.map_err(failed("prometheus, of Debian's package prometheus; `make tools` installs it"))?;
        let prometheus = Prometheus { child, api: Api::at(&format!("http://127.0.0.1:{port}"))? };
        prometheus.api.is_ready().await.map_err(|error| {
            let said = std::fs::read_to_string(dir.join("prometheus.log")).unwrap_or_default();
            Error::unavailable(format!("{}: {said}", error.detail()))
        })?;
        Ok(prometheus)
    }

    /// From now on it knows nothing of this port, as when a pod leaves discovery.
    pub(super) fn forget(&self, dir: &Path, port: u16) -> Result<()> {
        let file = dir.join("prometheus.yml");
        let config = read(&file)?.replace(&format!(", '127.0.0.1:{port}'"), "");
        write(dir, "prometheus.yml", &config)?;
        signal_to(self.child.id(), Signal::HUP)
    }

    pub(super) fn api(&self) -> &Api {
        &self.api
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(dir.join(name), text).map_err(failed(name))
}

impl Api {
    pub(super) fn at(url: &str) -> Result<Api> {
        let client = https::client(&Roots::none())?.no_proxy().timeout(Duration::from_secs(30)).build();
        Ok(Api { client: client.map_err(|error| Error::bug(error.to_string()))?, url: url.to_owned() })
    }

    /// Waits until it answers queries.
    pub(super) async fn is_ready(&self) -> Result<()> {
        let ready = format!("{}/-/ready", self.url);
        let ask = async || Ok(self.client.get(&ready).send().await.ok().filter(|answer| answer.status().is_success()));
        eventually_within(PATIENCE, "prometheus is ready", ask).await.map(drop)
    }

    /// The data of an answer. # Errors: what Prometheus says is wrong with the question.
    pub(super) async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let lost = |error: reqwest::Error| Error::unavailable(format!("{path}: {error}"));
        let url = format!("{}/api/v1/{path}", self.url);
        let answer = self.client.get(url).query(parameters).send().await.map_err(lost)?;
        let mut answer: Value = answer.json().await.map_err(lost)?;
        match answer["status"] == "success" {
            true => Ok(answer["data"].take()),
            false => Err(Error::bug(format!("{parameters:?}: {}", answer["error"]))),
        }
    }

    /// The series of an expression from then until now, each second.
    pub(super) async fn range(&self, expression: &str, from: Timestamp) -> Result<Vec<Series>> {
        let (from, to) = (seconds(from), seconds(Clock::System.now()));
        let parameters = [("query", expression), ("start", &from), ("end", &to), ("step", "1")];
        let data = self.ask("query_range", &parameters).await?;
        let number = |sample: &Value| sample[1].as_str()?.parse::<f64>().ok().filter(|number| !number.is_nan());
        let series = list(&data, "result").map(|series| list(series, "values").filter_map(number).collect());
        Ok(series.map(|samples| Series { samples }).filter(|series| !series.samples.is_empty()).collect())
    }

    /// The value of an expression that has one series now.
    pub(super) async fn value(&self, expression: &str) -> Result<Option<f64>> {
        let data = self.ask("query", &[("query", expression)]).await?;
        let samples: Vec<f64> =
            list(&data, "result").filter_map(|series| series["value"][1].as_str()?.parse().ok()).collect();
        Ok(<[f64; 1]>::try_from(samples).ok().map(|[value]| value))
    }

    /// Waits until the value is one of those that are wanted.
    pub(super) async fn until(&self, expression: &str, wanted: impl Fn(f64) -> bool) -> Result<f64> {
        let mut last = None;
        let ask = async || {
            last = self.value(expression).await?;
            Ok(last.filter(|value| wanted(*value)))
        };
        let found = eventually_within(PATIENCE, expression, ask).await;
        found.map_err(|error| Error::unavailable(format!("{}; it is {last:?}", error.detail())))
    }

    /// Waits until an alert fires, or fires no more.
    pub(super) async fn alert(&self, name: &str, fires: bool) -> Result<()> {
        let firing = format!(r#"count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)"#);
        self.until(&firing, |count| (count > 0.0) == fires).await.map(drop)
    }
}

fn seconds(at: Timestamp) -> String {
    format!("{}.{:03}", at.as_ms() / 1_000, at.as_ms() % 1_000)
}
