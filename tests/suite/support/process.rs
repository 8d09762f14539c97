//! The real binary as a broker in a process of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::Client;
use serde_json::Value;

use super::{eventually, failed};

/// The real binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dwell");

/// `dwell serve`. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) client: HttpClient,
    log: PathBuf,
}

/// A client of the broker that listens in a directory, whichever process that is. Clones share the connections.
#[derive(Clone)]
pub(crate) struct HttpClient(Client);

impl Process {
    /// Starts one whose data, socket and `dwell.log` (errors only) are in a directory, and waits until it is ready.
    /// `settings` are variables of its environment, as in `REDIS_URL`.
    pub(crate) async fn serve(dir: &Path, settings: &[(&str, &str)]) -> Result<Process> {
        Process::serve_by(Command::new(PROGRAM), dir, settings, &[]).await
    }

    /// The same, started by a command that executes [`PROGRAM`] with the arguments added to it, and with more variables in
    /// its environment.
    pub(crate) async fn serve_by(
        mut command: Command,
        dir: &Path,
        settings: &[(&str, &str)],
        environment: &[(&str, &OsStr)],
    ) -> Result<Process> {
        let socket = dir.join("dwell.sock");
        // Nothing else from the environment may change what it does.
        command.env_clear().arg("serve").env("DWELL_LISTEN", format!("unix:{}", socket.display()));
        command.envs(environment.iter().copied());
        command.env("DWELL_DATA_DIR", dir).env("DWELL_LOG_LEVEL", "error");
        command.envs(settings.iter().map(|(name, value)| (format!("DWELL_{name}"), value)));
        let log = dir.join("dwell.log");
        let file = File::options().create(true).append(true).open(&log).map_err(failed("a log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(failed("dwell serve"))?;
        let client = https::client(&Roots::none())?
            .no_proxy()
            .unix_socket(socket.as_path())
            .timeout(Duration::from_secs(30))
            .build();
        let client = HttpClient(client.map_err(|error| Error::bug(error.to_string()))?);
        let process = Process { child, client, log };
        let ready = async || Ok(process.client.get("/readyz").await.filter(|(status, _)| *status == 200));
        eventually("dwell serve is ready", ready).await.map_err(|error| {
            let said = std::fs::read_to_string(&process.log).unwrap_or_default();
            Error::unavailable(format!("{}: {said}", error.detail()))
        })?;
        Ok(process)
    }

    /// What it logged.
    pub(crate) fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).map_err(failed("a log"))
    }

    /// Its process id, for signals.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of a process that was told to end.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        eventually("the process ends", async || self.child.try_wait().map_err(failed("the end of dwell serve")))
            .await?;
        Ok(())
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(failed("the end of dwell serve"))
    }
}

impl Drop for Process {
    /// Prints the log of the broker if the test fails: it says why.
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
        if std::thread::panicking() {
            println!("{}:\n{}", self.log.display(), std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl HttpClient {
    /// The status and the JSON of an answer; `None` when none came.
    pub(crate) async fn get(&self, target: &str) -> Option<(u16, Value)> {
        self.send(self.0.get(format!("http://dwell{target}"))).await
    }

    /// The status of an answer to the holder of a token; `None` when none came.
    pub(crate) async fn as_holder(&self, token: &str, target: &str) -> Option<u16> {
        self.send(self.0.get(format!("http://dwell{target}")).bearer_auth(token)).await.map(|(status, _)| status)
    }

    /// The text of an answer; `None` when none came.
    pub(crate) async fn text(&self, target: &str) -> Option<String> {
        self.0.get(format!("http://dwell{target}")).send().await.ok()?.text().await.ok()
    }

    /// The same for a `PUT` with a JSON body.
    pub(crate) async fn put(&self, target: &str, body: &Value) -> Option<(u16, Value)> {
        self.send(self.0.put(format!("http://dwell{target}")).json(body)).await
    }

    /// The same for a request with a JSON body.
    pub(crate) async fn post(&self, target: &str, body: &Value) -> Option<(u16, Value)> {
        self.send(self.0.post(format!("http://dwell{target}")).json(body)).await
    }

    /// The same for a page of records of a broker that stops, with these headers.
    pub(crate) async fn hand_over(&self, headers: &[(&str, &str)], page: Vec<u8>) -> Option<(u16, Value)> {
        let request = self.0.post("http://dwell/v1/hand-over").header("content-type", "application/vnd.dwell.records");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(page)).await
    }

    /// The same for a `PATCH` with a JSON body.
    pub(crate) async fn patch(&self, target: &str, body: &Value) -> Option<(u16, Value)> {
        self.send(self.0.patch(format!("http://dwell{target}")).json(body)).await
    }

    /// The same for a `DELETE`.
    pub(crate) async fn delete(&self, target: &str) -> Option<(u16, Value)> {
        self.send(self.0.delete(format!("http://dwell{target}"))).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        // An answer that broke off is none.
        let bytes = answer.bytes().await.ok()?;
        Some((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}
