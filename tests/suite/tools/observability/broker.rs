//! `dwell serve` on a port that Prometheus can scrape, and a client that speaks to it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::Value;

use super::free_port;
use crate::support::{eventually, failed, signal_to};

/// A broker. It is killed when dropped.
pub(super) struct Broker {
    pub(super) port: u16,
    pub(super) dir: PathBuf,
    child: Child,
    client: Client,
    access: Access,
}

/// How a client of a broker gets in, and how the broker is started.
#[derive(Debug, Clone, Default)]
pub(super) struct Access {
    /// The token that its requests have.
    pub(super) token: Option<String>,
    /// The authority of its certificate, if it speaks TLS.
    pub(super) authority: Option<PathBuf>,
    /// A command that executes what follows it.
    pub(super) by: Vec<String>,
}

impl Broker {
    /// Starts one whose data and log are in a directory, with this configuration besides.
    pub(super) async fn start(dir: &Path, config: &str) -> Result<Broker> {
        Broker::start_for(Access::default(), dir, config).await
    }

    /// The same with this access.
    pub(super) async fn start_for(access: Access, dir: &Path, config: &str) -> Result<Broker> {
        std::fs::create_dir_all(dir).map_err(failed("a directory"))?;
        let port = free_port()?;
        let address = format!("listen = \"127.0.0.1:{port}\"\ndata_dir = \"{}\"\n", dir.display());
        let whole = format!("{address}{config}").replace("$PORT", &port.to_string());
        std::fs::write(dir.join("dwell.toml"), whole).map_err(failed("a configuration"))?;
        let roots = access.authority.as_deref().map_or_else(|| Ok(Roots::none()), Roots::read).map_err(Error::bug)?;
        let client = https::client(&roots)?.no_proxy().timeout(Duration::from_secs(30)).build();
        let client = client.map_err(|error| Error::bug(error.to_string()))?;
        let broker = Broker { port, dir: dir.to_owned(), child: spawn(dir, &access.by)?, client, access };
        broker.is_ready().await?;
        Ok(broker)
    }

    /// Kills it, and starts it again where it was.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.child = spawn(&self.dir, &self.access.by)?;
        self.is_ready().await
    }

    /// Its process id, for signals.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address.
    pub(super) fn url(&self) -> String {
        let scheme = if self.access.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    async fn is_ready(&self) -> Result<()> {
        let ready = async || Ok(self.send("GET /readyz", &Value::Null).await.ok().filter(|(status, _)| *status == 200));
        eventually("dwell serve is ready", ready).await.map(drop).map_err(|error| {
            let said = std::fs::read_to_string(self.dir.join("dwell.log")).unwrap_or_default();
            Error::unavailable(format!("{}: {said}", error.detail()))
        })
    }

    /// The status and the JSON of an answer.
    pub(super) async fn send(&self, line: &str, body: &Value) -> Result<(u16, Value)> {
        let (method, target) = line.split_once(' ').ok_or_else(|| Error::bug("a method and a target"))?;
        let method: Method = method.parse().map_err(|_| Error::bug("a method"))?;
        let mut request = self.client.request(method, format!("{}{target}", self.url()));
        if let Some(token) = &self.access.token {
            request = request.bearer_auth(token);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let lost = |error: reqwest::Error| Error::unavailable(format!("{line}: {error}"));
        let answer = request.send().await.map_err(lost)?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(lost)?;
        Ok((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    /// The JSON of an answer that has to be a 2xx.
    pub(super) async fn tell(&self, line: &str, body: &Value) -> Result<Value> {
        match self.send(line, body).await? {
            (200..=299, answer) => Ok(answer),
            (status, answer) => Err(Error::unavailable(format!("{line}: {status}: {answer}"))),
        }
    }

    /// Tells it to stop, and waits until it has.
    pub(super) async fn stop(&mut self) -> Result<()> {
        signal_to(self.pid(), Signal::TERM)?;
        let ended = async || self.child.try_wait().map_err(failed("the end of dwell serve"));
        eventually("dwell serve stops", ended).await.map(drop)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(failed("the end of dwell serve"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

fn spawn(dir: &Path, by: &[String]) -> Result<Child> {
    let log = File::options().create(true).append(true).open(dir.join("dwell.log")).map_err(failed("a log"))?;
    let words: Vec<&str> = by.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_dwell")]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    // Nothing from the environment may change what it does.
    command.env_clear().arg("serve").arg("--config").arg(dir.join("dwell.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(failed("dwell serve"))
}
