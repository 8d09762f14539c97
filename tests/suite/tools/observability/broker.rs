//! `dwell serve` on a port that Prometheus can scrape, and a client that speaks to it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use serde_json::Value;

use super::free_port;
use crate::support::{eventually, failed};

/// A broker. It is killed when dropped.
pub(super) struct Broker {
    pub(super) port: u16,
    dir: PathBuf,
    child: Child,
    client: Client,
}

impl Broker {
    /// Starts one whose data and log are in a directory, with this configuration besides.
    pub(super) async fn start(dir: &Path, config: &str) -> Result<Broker> {
        std::fs::create_dir_all(dir).map_err(failed("a directory"))?;
        let port = free_port()?;
        let address = format!("listen = \"127.0.0.1:{port}\"\ndata_dir = \"{}\"\n", dir.display());
        let whole = format!("{address}{config}").replace("$PORT", &port.to_string());
        std::fs::write(dir.join("dwell.toml"), whole).map_err(failed("a configuration"))?;
        let client = https::client(&Roots::none())?.no_proxy().timeout(Duration::from_secs(30)).build();
        let client = client.map_err(|error| Error::bug(error.to_string()))?;
        let broker = Broker { port, dir: dir.to_owned(), child: spawn(dir)?, client };
        broker.is_ready().await?;
        Ok(broker)
    }

    /// Kills it, and starts it again where it was.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.child = spawn(&self.dir)?;
        self.is_ready().await
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
        let mut request = self.client.request(method, format!("http://127.0.0.1:{}{target}", self.port));
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

fn spawn(dir: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(dir.join("dwell.log")).map_err(failed("a log"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    // Nothing from the environment may change what it does.
    command.env_clear().arg("serve").arg("--config").arg(dir.join("dwell.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(failed("dwell serve"))
}
