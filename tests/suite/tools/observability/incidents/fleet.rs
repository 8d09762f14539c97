//! Three brokers over one Redis, a load that is well, and a Prometheus that watches them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, MutexGuard};

use super::PACE;
use crate::support::{
    Certificates, RedisServer, eventually, eventually_within, failed, pause_of_load, scratch, shifted_clock, signal_to,
};
use crate::tools::observability::broker::{Access, Broker};
use crate::tools::observability::prometheus::{Pace, Prometheus};
use crate::tools::observability::queries::{list, text};

/// How long an alert may take to fire, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long `dwell attention` may take to have the cause of an alert that fires.
const ATTENTION: Duration = Duration::from_secs(20);

/// How the consumers of the load ask.
#[derive(Debug, Clone, Copy)]
pub(super) enum Consumer {
    /// In a long poll.
    Waits,
    /// Every two seconds.
    Polls,
}

/// What brokers did before the incident begins.
pub(super) type Before = for<'a> fn(&'a Broker) -> BoxFuture<'a, Result<()>>;

/// What differs from the usual fleet.
#[derive(Default)]
pub(super) struct Setup<'a> {
    /// Configuration of all brokers besides.
    pub(super) config: &'a str,
    /// Options of Redis besides.
    pub(super) redis: &'a [&'a str],
    /// 3 s without it.
    pub(super) lease_ttl: Option<&'a str>,
    /// What all brokers show to their clients, who speak TLS then.
    pub(super) certificates: Option<&'a Certificates>,
    /// A command that executes the spare broker.
    pub(super) spare_by: &'a [String],
    /// Whether there is a broker that Prometheus does not know.
    pub(super) is_one_unknown: bool,
    /// What was done [`EARLIER`], by the clock of Redis.
    pub(super) before: Option<Before>,
}

/// How long ago, in seconds, what was done before an incident was done: longer than messages may wait without an alert.
const EARLIER: u32 = 420;

/// The token of the operator, of the load and of Prometheus.
const TOKEN: &str = "s3cret-of-the-operator";

pub(super) struct Fleet {
    redis: Mutex<RedisServer>,
    /// Those that the load uses.
    pub(super) brokers: Vec<Broker>,
    spare: Mutex<Broker>,
    unknown: Mutex<Option<Broker>>,
    pub(super) prometheus: Prometheus,
    pub(super) dir: TempDir,
}

impl Fleet {
    /// Three brokers with this configuration besides, of which the load uses two, and whose Redis has these options besides.
    pub(super) async fn start(config: &str, redis: &[&str]) -> Result<Fleet> {
        Setup { config, redis, ..Setup::default() }.start().await
    }
}

impl Setup<'_> {
    /// Three brokers that ask for a token, of which the load uses two, over one Redis.
    pub(super) async fn start(self) -> Result<Fleet> {
        let (dir, home) = (scratch()?, scratch()?);
        let durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"];
        let options = [&durable[..], self.redis].concat();
        std::fs::write(dir.path().join("token"), TOKEN).map_err(failed("a token"))?;
        let mut access = Access { token: Some(TOKEN.to_owned()), ..Access::default() };
        if let Some(certificates) = self.certificates {
            certificates.write(dir.path())?;
            access.authority = Some(dir.path().join("ca"));
        }
        let config = self.config_of(dir.path(), home.path());
        if let Some(before) = self.before {
            self.play_earlier(home.path(), &options, &access, (dir.path(), &config), before).await?;
        }
        let redis = RedisServer::start_in(home, &options).await?;
        let start = async |name: &str, access: &Access| {
            Broker::start_for(access.clone(), &dir.path().join(name), &config).await
        };
        let unknown = if self.is_one_unknown { Some(start("unknown", &access).await?) } else { None };
        let (one, two) = (start("one", &access).await?, start("two", &access).await?);
        let spare = start("spare", &Access { by: self.spare_by.to_vec(), ..access.clone() }).await?;
        let ports = [one.port, two.port, spare.port];
        let prometheus = Prometheus::start_at(dir.path(), &ports, Pace::Faster(PACE), &access).await?;
        one.tell("PUT /v1/topics/orders", &json!({"partitions": 4})).await?;
        let (redis, spare, unknown) = (Mutex::new(redis), Mutex::new(spare), Mutex::new(unknown));
        Ok(Fleet { redis, brokers: vec![one, two], spare, unknown, prometheus, dir })
    }

    fn config_of(&self, dir: &Path, home: &Path) -> String {
        let file = |name: &str| dir.join(name).display().to_string();
        let tls = match self.certificates {
            Some(_) => format!("[tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\n", file("cert"), file("key")),
            None => String::new(),
        };
        format!(
            "{}[log]\nlevel = \"warn\"\n[redis]\nurl = \"redis+unix://{}\"\ntimeout = \"500ms\"\n[lease]\nttl = \"{}\"\n\
             [group]\nheartbeat = \"500ms\"\n{tls}[[auth.token]]\nname = \"operator\"\nfile = \"{}\"\nscopes = [\"admin\"]\n",
            self.config,
            home.join("redis.sock").display(),
            self.lease_ttl.unwrap_or("3s"),
            file("token"),
        )
    }

    /// Plays what came before on a Redis whose clock is behind, which then ends.
    async fn play_earlier(
        &self,
        home: &Path,
        options: &[&str],
        access: &Access,
        (dir, config): (&Path, &str),
        before: Before,
    ) -> Result<()> {
        let (library, shift) = (shifted_clock(dir)?, dir.join("shift"));
        std::fs::write(&shift, format!("-{EARLIER}")).map_err(failed("the shift"))?;
        let socket = home.join("redis.sock");
        let mut server = Command::new("redis-server");
        server.env("LD_PRELOAD", library).env("WALL_SHIFT", &shift).args(["--port", "0", "--unixsocket"]).arg(&socket);
        server.arg("--dir").arg(home).args(options).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = server.spawn().map_err(failed("redis-server"))?;
        eventually("redis-server listens", async || Ok(UnixStream::connect(&socket).await.ok())).await?;
        let played = async {
            let mut broker = Broker::start_for(access.clone(), &dir.join("before"), config).await?;
            before(&broker).await?;
            // What it holds for consumers goes back.
            broker.stop().await
        };
        let played = played.await;
        // With SIGTERM it writes all that it has.
        signal_to(server.id(), Signal::TERM)?;
        server.wait().map_err(failed("the end of redis-server"))?;
        played
    }
}

impl Fleet {
    /// A broker that the load does not use.
    pub(super) async fn spare(&self) -> MutexGuard<'_, Broker> {
        self.spare.lock().await
    }

    /// The broker that Prometheus does not know is killed.
    pub(super) async fn kill_unknown(&self) {
        drop(self.unknown.lock().await.take());
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
            let from = self.is_watched().await?;
            incident.await?;
            self.fired(from, alerts).await
        };
        tokio::select! {
            _ = load => Err(Error::bug("the load ended")),
            played = played => played,
        }
    }

    /// All is well: Prometheus has seen the stats, and nothing fires. Answers since when. A Prometheus that has not scraped yet says that
    /// no broker is there.
    async fn is_watched(&self) -> Result<Timestamp> {
        self.until("sum(up)", |brokers| brokers == 3.0).await?;
        self.until("sum(dwell_stats_collector)", |count| count == 1.0).await?;
        self.is_well().await?;
        Ok(Clock::System.now().plus(Duration::from_secs(2)))
    }

    /// Waits until an alert fires.
    pub(super) async fn waits_for(&self, alert: &str) -> Result<()> {
        let fires = async || Ok(self.firing().await?.contains_key(alert).then_some(()));
        eventually_within(PATIENCE, &format!("{alert} fires"), fires).await
    }

    /// Waits until an alert fires no more.
    pub(super) async fn ends(&self, alert: &str) -> Result<()> {
        let ended = async || Ok((!self.firing().await?.contains_key(alert)).then_some(()));
        eventually_within(PATIENCE, &format!("{alert} ends"), ended).await
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

    /// Since then exactly these alerts have fired; none of them ended and fired again.
    async fn fired(&self, from: Timestamp, alerts: &[&str]) -> Result<()> {
        let at = |time: Timestamp| format!("{}", time.as_ms() / 1_000);
        let query = r#"ALERTS{alertname=~"Dwell.+",alertstate="firing"}"#;
        // An evaluation counts from the next whole second on.
        let (from, to) = (at(from), at(Clock::System.now().plus(Duration::from_secs(1))));
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

    /// Waits until the value of an expression is one of those that are wanted.
    pub(super) async fn until(&self, expression: &str, wanted: impl Fn(f64) -> bool) -> Result<()> {
        self.prometheus.api().until(expression, wanted).await.map(drop)
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
        Fleet::attention_of(&self.brokers[0], kind).await
    }

    /// Waits until `dwell attention` has one cause of this kind, with these words.
    pub(super) async fn attention_says(&self, kind: &str, words: &str) -> Result<()> {
        let says = async || {
            let causes = self.attention(kind).await?;
            Ok((causes.iter().filter(|cause| cause.contains(words)).count() == 1).then_some(()))
        };
        let said = eventually_within(ATTENTION, &format!("attention has {kind}: {words}"), says).await;
        let all = self.brokers[0].tell("GET /v1/attention", &Value::Null).await?;
        said.map_err(|error| Error::unavailable(format!("{}; it has {all:#}", error.detail())))
    }

    /// The same at one broker.
    pub(super) async fn attention_of(broker: &Broker, kind: &str) -> Result<Vec<String>> {
        let answer = broker.tell("GET /v1/attention", &Value::Null).await?;
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
