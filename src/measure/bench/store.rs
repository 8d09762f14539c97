//! Where a bench keeps its messages (directories that go at the end, or prefixes of a Redis that it empties), and the sidecar
//! that it measures.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::app::config::RedisUrl;
use crate::app::embed::Dwell;
use crate::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use crate::broker;
use crate::cli::failure::Failure;
use crate::cli::remote::{At as _, Remote};
use crate::measure::baseline::BaselineRedis;
use crate::measure::scratch_dir::ScratchDir;
use crate::platform::clock::Clock;

/// How long one call to Redis may take. A bench loads it on purpose.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// Suffix of the prefix: brokers that are measured beside each other share nothing.
const PARTS: [&str; 6] = ["library", "http", "pending", "scale", "fleet", "bare"];

/// The store of a broker that is measured.
#[derive(Debug, Clone)]
pub(super) enum BenchStore {
    Embedded,
    Redis { url: RedisUrl, prefix: String },
}

pub(super) struct Stores {
    pub(super) scratch: ScratchDir,
    redis: Option<(RedisUrl, String)>,
    pub(super) bare: Option<BaselineRedis>,
}

impl Stores {
    /// # Errors: also when there are keys under the prefix already.
    pub(super) async fn open(redis: Option<&RedisUrl>, prefix: Option<&str>) -> Result<Stores, Failure> {
        let (scratch, name) = ScratchDir::new("bench")?;
        let Some(url) = redis else { return Ok(Stores { scratch, redis: None, bare: None }) };
        let prefix = prefix.unwrap_or(&name).to_owned();
        let bare = BaselineRedis::open(url).await?;
        for part in PARTS {
            let prefix = format!("{prefix}-{part}");
            if bare.holds(&prefix).await? {
                let why = format!(
                    "there are keys under {prefix} already; a bench deletes what is there, so it needs another"
                );
                return Err(Failure::usage(format!("--prefix: {why}")));
            }
        }
        Ok(Stores { scratch, redis: Some((url.clone(), prefix)), bare: Some(bare) })
    }

    pub(super) fn place(&self, part: &str) -> BenchStore {
        match &self.redis {
            None => BenchStore::Embedded,
            Some((url, prefix)) => BenchStore::Redis { url: url.clone(), prefix: format!("{prefix}-{part}") },
        }
    }

    pub(super) async fn library(&self, part: &str, name: &str) -> Result<Dwell, Failure> {
        let dir = self.scratch.path().join(name);
        let store = match self.place(part) {
            BenchStore::Embedded => StoreOptions::Embedded { dir: dir.join("store") },
            BenchStore::Redis { url, prefix } => {
                std::fs::create_dir_all(&dir)
                    .map_err(|error| Failure::new(format!("cannot make {}: {error}", dir.display())))?;
                let options = RedisOptions::new(url.secret().clone());
                let redis = RedisOptions { prefix, timeout: REDIS_TIMEOUT, allow_eviction: true, ..options };
                StoreOptions::Redis { redis, outage: OutageOptions::new(&dir) }
            }
        };
        let options = broker::Options { drain_timeout: Duration::from_secs(1), ..broker::Options::default() };
        Ok(Dwell::open(store, options).await?)
    }

    pub(super) async fn clear(&self) -> Result<(), Failure> {
        if let (Some(bare), Some((_, prefix))) = (&self.bare, &self.redis) {
            for part in PARTS {
                bare.clear(&format!("{prefix}-{part}")).await?;
            }
        }
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// A running sidecar. Dropping it kills it.
pub(super) struct Sidecar {
    child: Child,
    /// Kept open, so that it can write.
    _stdout: BufReader<ChildStdout>,
    pub(super) pid: u32,
    pub(super) remote: Remote,
    pub(super) ready_after: Duration,
}

impl Sidecar {
    pub(super) async fn start(dir: &Path, place: &BenchStore) -> Result<Sidecar, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot start a sidecar: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // Nothing from the environment: every bench is the same. The URL may hold a password, so it is no argument.
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg("--data-dir").arg(dir).env_clear();
        command.env("DWELL_LOG_LEVEL", "warn").env("HOME", dir);
        if let BenchStore::Redis { url, prefix } = place {
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
        let remote = Remote::started(&address)?;
        remote.client.ready().await.at(&remote.place)?;
        let ready_after = Clock::System.instant().since(began);
        let pid = child.id().ok_or_else(|| Failure::new("the sidecar has ended"))?;
        Ok(Sidecar { child, _stdout: stdout, pid, remote, ready_after })
    }

    /// Asks for as little as a request can ask for.
    pub(super) async fn live(&self) -> Result<(), Failure> {
        Ok(self.remote.client.live().await.at(&self.remote.place).map(drop)?)
    }

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

pub(super) fn cpu(pid: u32) -> Result<Duration, Failure> {
    let threads = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for thread in std::fs::read_dir(&threads).map_err(unreadable(&threads))? {
        let path = thread.map_err(unreadable(&threads))?.path().join("schedstat");
        // A thread may have ended since the directory was read.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

pub(super) fn resident(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
    let field = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    field
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
        .map(|kilobytes| kilobytes * 1_024)
        .ok_or_else(|| Failure::new(format!("{path} does not say how much memory it has")))
}

fn unreadable(path: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot read {path}: {error}"))
}
