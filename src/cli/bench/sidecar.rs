//! A broker in a process of its own: this binary, as `dwell serve` on a free port.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::store::Place;
use crate::cli::address::ServerAddress;
use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::platform::clock::Clock;

/// How long it may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running sidecar. Dropping it kills it.
pub(super) struct Sidecar {
    child: Child,
    /// Kept open, so that it can write.
    _stdout: BufReader<ChildStdout>,
    pub(super) pid: u32,
    pub(super) client: Client,
    /// From the start of the process until it said that it is ready.
    pub(super) ready_after: Duration,
}

impl Sidecar {
    pub(super) async fn start(dir: &Path, place: &Place) -> Result<Sidecar, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot start a sidecar: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // Nothing from the environment: every bench is the same. The URL may hold a password, so it is no argument.
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg("--data-dir").arg(dir).env_clear();
        command.env("DWELL_LOG_LEVEL", "warn").env("HOME", dir);
        if let Place::Redis { url, prefix } = place {
            command.env("DWELL_REDIS_URL", url.secret().expose()).env("DWELL_REDIS_PREFIX", prefix);
            command.env("DWELL_REDIS_ALLOW_EVICTION", "true");
        }
        let began = Clock::System.instant();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("a sidecar without stdout"))?;
        let mut stdout = BufReader::new(stdout);
        let address = tokio::select! {
            address = address(&mut stdout) => address?,
            () = Clock::System.sleep(PATIENCE) => return Err(Failure::new("the sidecar did not start")),
        };
        let client = Client::new(&ServerAddress::parse(&address).map_err(Failure::new)?)?;
        client.ready().await?;
        let ready_after = Clock::System.instant().since(began);
        let pid = child.id().ok_or_else(|| Failure::new("the sidecar has ended"))?;
        Ok(Sidecar { child, _stdout: stdout, pid, client, ready_after })
    }

    /// Stops it in order.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself; then waiting says how.
            let _ = kill_process(pid, Signal::TERM);
        }
        tokio::select! {
            ended = self.child.wait() => match ended {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(Failure::new(format!("the sidecar ended with {status}"))),
                Err(error) => Err(Failure::new(format!("cannot wait for the sidecar: {error}"))),
            },
            () = Clock::System.sleep(PATIENCE) => Err(Failure::new("the sidecar did not stop")),
        }
    }
}

/// The address that it prints once it serves.
async fn address(stdout: &mut BufReader<ChildStdout>) -> Result<String, Failure> {
    let mut line = String::new();
    loop {
        line.clear();
        let read = stdout.read_line(&mut line).await;
        match read {
            Ok(0) => return Err(Failure::new("the sidecar ended before it served")),
            Ok(_) => {}
            Err(error) => return Err(Failure::new(format!("cannot read what the sidecar says: {error}"))),
        }
        if let Some(address) = line.trim().strip_prefix("address") {
            return Ok(address.trim().to_owned());
        }
    }
}
