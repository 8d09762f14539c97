//! What the real binary logs: the changes of its state, a line each, and never a secret.

mod journal;
mod state_changes;
mod secrets;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{eventually, failed, scratch};

/// `dwell serve` in a process of its own, with everything that it says. It is killed when dropped.
struct Sidecar {
    child: Child,
    client: Client,
    dir: TempDir,
}

/// The binary, with nothing from the environment that could change what it does.
fn dwell(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(args).env_clear().env("HOME", dir).stdin(Stdio::null());
    command
}

impl Sidecar {
    /// Starts one with a configuration, and waits until it answers.
    async fn start(config: &str) -> Result<Sidecar> {
        let dir = scratch()?;
        let (file, socket) = (dir.path().join("dwell.toml"), dir.path().join("dwell.sock"));
        let listen = format!("listen = 'unix:{}'\ndata_dir = '{}'\n", socket.display(), dir.path().display());
        std::fs::write(&file, listen + config).map_err(failed("a configuration"))?;
        let output = |name| File::create(dir.path().join(name)).map_err(failed("an output"));
        let mut serve = dwell(dir.path(), &["serve", "--config", &file.display().to_string()]);
        let serve = serve.stdout(output("stdout")?).stderr(output("stderr")?).spawn();
        let client =
            https::client(&Roots::none())?.no_proxy().unix_socket(socket.as_path()).timeout(Duration::from_secs(30));
        let client = client.build().map_err(|error| Error::bug(error.to_string()))?;
        let sidecar = Sidecar { child: serve.map_err(failed("dwell serve"))?, client, dir };
        let answers = async || Ok(sidecar.ask("GET /livez", "").await.ok());
        eventually("dwell serve answers", answers).await.map_err(|error| {
            Error::unavailable(format!("{}: {}", error.detail(), sidecar.said().unwrap_or_default()))
        })?;
        Ok(sidecar)
    }

    /// The status and the body of an answer, with its headers in front.
    async fn ask(&self, line: &str, body: &str) -> Result<(u16, String)> {
        let failed = |error: reqwest::Error| Error::unavailable(error.to_string());
        let (method, target) = line.split_once(' ').ok_or_else(|| Error::bug("no target"))?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| Error::bug(error.to_string()))?;
        let request = self.client.request(method, format!("http://dwell{target}")).body(body.to_owned());
        let request = request.header("content-type", "application/json").header("dwell-raw", "true");
        let answer = request.send().await.map_err(failed)?;
        let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        Ok((status, format!("{headers}\n{}", answer.text().await.map_err(failed)?)))
    }

    /// The same, and it is done.
    async fn tell(&self, line: &str, body: &str) -> Result<String> {
        match self.ask(line, body).await? {
            (200..300, answer) => Ok(answer),
            (status, answer) => Err(Error::unavailable(format!("{line}: {status} {answer}"))),
        }
    }

    /// Waits until `/readyz` says this.
    async fn until_ready_says(&self, what: &str) -> Result<String> {
        let looks = async || Ok(Some(self.ask("GET /readyz", "").await?.1).filter(|said| said.contains(what)));
        eventually(&format!("/readyz says {what}"), looks).await
    }

    /// What it wrote to stderr so far.
    fn logged(&self) -> Result<String> {
        std::fs::read_to_string(self.dir.path().join("stderr")).map_err(failed("stderr"))
    }

    /// What it wrote so far.
    fn said(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.path().join("stdout")).map_err(failed("stdout"))? + &self.logged()?)
    }

    /// Sends SIGTERM and waits for the end.
    async fn stop(&mut self) -> Result<ExitStatus> {
        let killed = kill_process(Pid::from_child(&self.child), Signal::TERM);
        killed.map_err(|error| failed("a signal")(error.into()))?;
        eventually("dwell serve ends", async || self.child.try_wait().map_err(failed("the end of dwell serve"))).await
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
