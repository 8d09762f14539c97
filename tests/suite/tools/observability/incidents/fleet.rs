//! Three brokers over one Redis, a load that is well, and a Prometheus that watches them.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::PACE;
use crate::support::{RedisServer, eventually, eventually_within, pause_of_load, scratch};
use crate::tools::observability::broker::Broker;
use crate::tools::observability::prometheus::{Pace, Prometheus};
use crate::tools::observability::queries::{list, text};

/// How long an alert may take to fire, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the consumers of the load ask.
#[derive(Debug, Clone, Copy)]
pub(super) enum Consumer {
    /// In a long poll.
    Waits,
    /// Every two seconds.
    Polls,
}

pub(super) struct Fleet {
    redis: Mutex<RedisServer>,
    /// Those that the load uses.
    pub(super) brokers: Vec<Broker>,
    spare: Mutex<Broker>,
    prometheus: Prometheus,
    from: Timestamp,
    dir: TempDir,
}

impl Fleet {
    /// Three brokers with this configuration besides, of which the load uses two, and whose Redis has these options besides.
    pub(super) async fn start(config: &str, redis: &[&str]) -> Result<Fleet> {
        let dir = scratch()?;
        let durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"];
        let redis = RedisServer::start_with(&[&durable[..], redis].concat()).await?;
        let config = format!(
            "{config}[log]\nlevel = \"warn\"\n[redis]\nurl = \"{}\"\ntimeout = \"500ms\"\n[lease]\nttl = \"3s\"\n[group]\nheartbeat = \"500ms\"\n",
            redis.url()
        );
        let one = Broker::start(&dir.path().join("one"), &config).await?;
        let two = Broker::start(&dir.path().join("two"), &config).await?;
        let spare = Broker::start(&dir.path().join("spare"), &config).await?;
        let ports = [one.port, two.port, spare.port];
        let prometheus = Prometheus::start_at(dir.path(), &ports, Pace::Faster(PACE)).await?;
        one.tell("PUT /v1/topics/orders", &json!({"partitions": 4})).await?;
        let (redis, spare) = (Mutex::new(redis), Mutex::new(spare));
        Ok(Fleet { redis, brokers: vec![one, two], spare, prometheus, from: Clock::System.now(), dir })
    }

    /// A broker that the load does not use.
    pub(super) async fn spare(&self) -> MutexGuard<'_, Broker> {
        self.spare.lock().await
    }

    pub(super) async fn redis(&self) -> MutexGuard<'_, RedisServer> {
        self.redis.lock().await
    }

    /// Plays an incident under a load of consumers that wait, which has to fire these alerts and no other, each once for whatever
    /// it is about.
    pub(super) async fn fires(&self, alerts: &[&str], incident: impl Future<Output = Result<()>>) -> Result<()> {
        self.fires_under(Consumer::Waits, alerts, incident).await
    }

    /// The same under another load.
    pub(super) async fn fires_under(
        &self,
        consumer: Consumer,
        alerts: &[&str],
        incident: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let work = |broker| async move { tokio::join!(produce(broker), consume(broker, consumer)) };
        let load = async { futures_util::future::join_all(self.brokers.iter().map(work)).await };
        let played = async {
            self.is_watched().await?;
            incident.await?;
            self.fired(alerts).await
        };
        tokio::select! {
            _ = load => Err(Error::bug("the load ended")),
            played = played => played,
        }
    }

    /// All is well: Prometheus has seen the stats, and nothing fires.
    async fn is_watched(&self) -> Result<()> {
        self.prometheus.api().until("sum(dwell_stats_collector)", |count| count == 1.0).await?;
        self.fired(&[]).await
    }

    /// Waits until an alert fires.
    pub(super) async fn waits_for(&self, alert: &str) -> Result<()> {
        let fires = async || Ok(self.firing().await?.contains_key(alert).then_some(()));
        eventually_within(PATIENCE, &format!("{alert} fires"), fires).await
    }

    /// Waits until no alert fires.
    pub(super) async fn is_well(&self) -> Result<()> {
        eventually_within(PATIENCE, "no alert fires", async || Ok(self.firing().await?.is_empty().then_some(()))).await
    }

    /// The alerts that fire now, with the number of what each is about.
    pub(super) async fn firing(&self) -> Result<BTreeMap<String, usize>> {
        let query = r#"ALERTS{alertname=~"Dwell.+",alertstate="firing"}"#;
        let data = self.prometheus.api().ask("query", &[("query", query)]).await?;
        let mut firing = BTreeMap::new();
        for series in list(&data, "result") {
            *firing.entry(text(&series["metric"], "alertname").to_owned()).or_default() += 1;
        }
        Ok(firing)
    }

    /// Since the start exactly these alerts have fired; none of them ended and fired again.
    async fn fired(&self, alerts: &[&str]) -> Result<()> {
        let at = |time: Timestamp| format!("{}", time.as_ms() / 1_000);
        let query = r#"ALERTS{alertname=~"Dwell.+",alertstate="firing"}"#;
        // An evaluation counts from the next whole second on.
        let (from, to) = (at(self.from), at(Clock::System.now().plus(Duration::from_secs(1))));
        let parameters = [("query", query), ("start", &from), ("end", &to), ("step", "1")];
        let data = self.prometheus.api().ask("query_range", &parameters).await?;
        let mut fired: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for series in list(&data, "result") {
            let times = list(series, "values").filter_map(|sample| sample[0].as_u64());
            let times: Vec<u64> = times.collect();
            let again = times.windows(2).filter(|pair| pair[1] - pair[0] > 2).count();
            assert_eq!(again, 0, "it fired again: {}", series["metric"]);
            fired
                .entry(text(&series["metric"], "alertname").to_owned())
                .or_default()
                .push(series["metric"].to_string());
        }
        let names: Vec<&str> = fired.keys().map(String::as_str).collect();
        assert_eq!(names, alerts, "{fired:#?}\n{}", self.logs());
        Ok(())
    }

    fn logs(&self) -> String {
        let of = |name: &str| std::fs::read_to_string(self.dir.path().join(name).join("dwell.log")).unwrap_or_default();
        [of("one"), of("two")].concat()
    }

    /// Waits until Prometheus has scraped all brokers after now.
    pub(super) async fn is_scraped_again(&self) -> Result<()> {
        let now = Clock::System.now().as_ms() as f64 / 1e3;
        self.prometheus.api().until("min(timestamp(dwell_build_info))", |at| at > now).await.map(drop)
    }

    /// The value of an expression that has one series now.
    pub(super) async fn value(&self, expression: &str) -> Result<Option<f64>> {
        self.prometheus.api().value(expression).await
    }

    /// Waits until `/readyz` of each broker says this, with 200.
    pub(super) async fn says(&self, words: &str) -> Result<()> {
        for broker in &self.brokers {
            eventually(&format!("/readyz says {words}"), async || {
                let (status, answer) = broker.send("GET /readyz", &Value::Null).await?;
                Ok((status == 200 && answer["detail"].to_string().contains(words)).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// The causes that `dwell attention` has for this kind.
    pub(super) async fn attention(&self, kind: &str) -> Result<Vec<String>> {
        let answer = self.brokers[0].tell("GET /v1/attention", &Value::Null).await?;
        let items = list(&answer, "attention").filter(|item| text(item, "kind") == kind);
        Ok(items.map(|item| text(item, "cause").to_owned()).collect())
    }
}

/// Pushes a few messages a second, without an end.
async fn produce(broker: &Broker) {
    loop {
        let messages: Vec<Value> =
            (0..5).map(|n| json!({"payload": "close", "delay": format!("{}ms", n * 40)})).collect();
        // During an incident it may be refused.
        let _ = broker.send("POST /v1/topics/orders/messages/batch", &json!({"messages": messages})).await;
        pause_of_load(Duration::from_millis(500)).await;
    }
}

/// Takes and acks messages, without an end.
async fn consume(broker: &Broker, consumer: Consumer) {
    loop {
        let ask = match consumer {
            Consumer::Waits => json!({"max": 20, "wait": "2s"}),
            Consumer::Polls => json!({"max": 100}),
        };
        let taken = broker.send("POST /v1/topics/orders/groups/default/reserve", &ask).await;
        if matches!(consumer, Consumer::Polls) {
            pause_of_load(Duration::from_secs(2)).await;
        }
        let Ok((200, taken)) = taken else {
            pause_of_load(Duration::from_millis(100)).await;
            continue;
        };
        let receipts: Vec<&Value> = list(&taken, "deliveries").map(|delivery| &delivery["receipt"]).collect();
        if !receipts.is_empty() {
            let _ = broker.send("POST /v1/topics/orders/groups/default/ack", &json!({"receipts": receipts})).await;
        }
    }
}
