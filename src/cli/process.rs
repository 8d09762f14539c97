//! A command as a process: it is told to end by signals, has a directory while it runs, and tells the process manager (systemd)
//! when it serves, that it works, and when it stops.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use super::output;
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;

/// Signals that ask the process to end. From its making on they do not end the process by themselves.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for some work, unless a signal comes first: then `unfinished` says what was cut off.
    pub(super) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
        unfinished: &str,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            result = work => result,
            signal = self.next() => Err(Failure::interrupted(format!("{signal}: {unfinished}"))),
        }
    }

    /// Returns the name of the next signal. May be dropped and asked again without missing one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// A new one for a command, and its name.
    pub(super) fn new(command: &str) -> Result<(ScratchDir, String), Failure> {
        let name = format!("dwell-{command}-{}", ulid::Ulid::new().to_string().to_lowercase());
        let dir = std::env::temp_dir().join(&name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| Failure::new(format!("cannot make the directory {}: {error}", dir.display())))?;
        Ok((ScratchDir(dir), name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            output::note(format_args!("the directory {} could not be removed: {error}", self.0.display()));
        }
    }
}

/// How often dwell says in each span of the watchdog that it works: one that comes late is not the last.
const BEATS_PER_SPAN: u32 = 3;

/// Tells the process manager when dwell serves, that it works, and when it stops.
///
/// `NOTIFY_SOCKET` names its socket, and `WATCHDOG_USEC` the span after which it takes silence for a failure. Without them it
/// is told nothing.
pub(super) struct Supervisor {
    /// The path of a socket, or behind an `@` its abstract name.
    socket: Option<OsString>,
    span: Option<Duration>,
    tasks: Tasks,
}

impl Supervisor {
    pub(super) fn of_this_process() -> Supervisor {
        let text = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        let number = |name| text(name)?.to_str()?.parse::<u64>().ok();
        // The variables are inherited: what another process was told is not for this one.
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let span = number("WATCHDOG_USEC").filter(|span| mine && *span > 0).map(Duration::from_micros);
        Supervisor { socket: text("NOTIFY_SOCKET"), span, tasks: Tasks::new() }
    }

    pub(super) async fn serving(&self, status: &str) -> Infallible {
        self.notify(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " "))).await;
        self.keep_alive().await
    }

    /// Says that dwell stops in order, and until it has that it works.
    pub(super) async fn stopping(&self) -> Infallible {
        self.notify("STOPPING=1\nSTATUS=stopping in order\n").await;
        self.keep_alive().await
    }

    /// Says again and again that dwell works, and only while it does: each time after the timer has fired and a thread of
    /// the runtime has taken up something new. It reports also while the store is unavailable: a restart would not bring the store back.
    async fn keep_alive(&self) -> Infallible {
        let Some(span) = self.span else { return pending().await };
        loop {
            self.tasks.lap().await;
            self.notify("WATCHDOG=1\n").await;
            Clock::System.sleep(span / BEATS_PER_SPAN).await;
        }
    }

    async fn notify(&self, text: &str) {
        let Some(name) = &self.socket else { return };
        if let Err(error) = send(name, text).await {
            tracing::warn!(%error, "what is in NOTIFY_SOCKET cannot be told anything");
        }
    }
}

/// Sends a datagram as soon as there is room for it. A socket that blocks would hold up the signals when nobody reads.
async fn send(name: &OsString, text: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address_of(name)?)?;
    socket.set_nonblocking(true)?;
    tokio::net::UnixDatagram::from_std(socket)?.send(text.as_bytes()).await.map(drop)
}

fn address_of(name: &OsString) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}
