//! A command as a process: it is told to end by signals, writes its log to stderr as the configuration says, and
//! tells the process manager (systemd) when it serves, that it works, and when it stops.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::failure::Failure;
use super::journal;
use super::log_writer::{flush_log, log};
use crate::app::config::{LogConfig, LogFormat, LogLevel};
use crate::app::reload::SetLevel;
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;

/// The wish of whoever sends a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end, with the name of the signal.
    End(&'static str),
    /// To read the configuration again.
    Reload,
}

/// SIGHUP of a process that reads its configuration again. From its making on it does not end the process.
pub(crate) struct Hangups(Signal);

impl Hangups {
    pub(crate) fn listen() -> Result<Hangups, Failure> {
        let listening = signal(SignalKind::hangup());
        listening.map(Hangups).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
    }

    /// The next one, or a signal to end. May be dropped and asked again without missing one.
    pub(crate) async fn or_end(&mut self, signals: &mut Signals) -> Asked {
        tokio::select! {
            signal = signals.next() => Asked::End(signal),
            _ = self.0.recv() => Asked::Reload,
        }
    }
}

/// Signals that ask the process to end. From its making on they do not end the process by themselves.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for some work, unless a signal comes first: then `unfinished` says what was cut off.
    pub(crate) async fn or<T>(
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
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// How often dwell says in each span of the watchdog that it works: one that comes late is not the last.
const BEATS_PER_SPAN: u32 = 3;

/// Tells the process manager when dwell serves, that it works, and when it stops.
///
/// `NOTIFY_SOCKET` names its socket, and `WATCHDOG_USEC` the span after which it takes silence for a failure. Without them it
/// is told nothing.
pub(crate) struct Supervisor {
    /// The path of a socket, or behind an `@` its abstract name.
    socket: Option<OsString>,
    span: Option<Duration>,
    tasks: Tasks,
}

impl Supervisor {
    pub(crate) fn of_this_process() -> Supervisor {
        let text = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        let number = |name| text(name)?.to_str()?.parse::<u64>().ok();
        // The variables are inherited: what another process was told is not for this one.
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let span = number("WATCHDOG_USEC").filter(|span| mine && *span > 0).map(Duration::from_micros);
        Supervisor { socket: text("NOTIFY_SOCKET"), span, tasks: Tasks::new() }
    }

    pub(crate) async fn serving(&self, status: &str) -> Infallible {
        self.notify(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " "))).await;
        self.keep_alive().await
    }

    /// Says that dwell stops in order, and until it has that it works.
    pub(crate) async fn stopping(&self) -> Infallible {
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
    // At once where there is room, so that a stop which takes no time is announced too.
    match socket.send(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        sent => return sent.map(drop),
    }
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

/// Characters of what a panic says: it may quote what was worked on.
const PANIC_SHOWN: usize = 200;

fn filter(level: LogLevel) -> EnvFilter {
    // Libraries below dwell say little at info and much at debug, so they stay at warn.
    let libraries = match level {
        LogLevel::Off | LogLevel::Error => level,
        LogLevel::Warn | LogLevel::Info | LogLevel::Debug | LogLevel::Trace => LogLevel::Warn,
    };
    EnvFilter::new(format!("{},dwell={}", libraries.name(), level.name()))
}

/// It fails only once the log has ended with the process.
fn set(_: Result<(), tracing_subscriber::reload::Error>) {}

/// Starts logging, and returns what changes its level later. A second start changes nothing.
pub(crate) fn start_logging(config: LogConfig) -> SetLevel {
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter(config.level));
    let subscriber = subscriber.with_writer(Lines(log)).with_ansi(std::io::stderr().is_terminal());
    let (started, set_level): (_, SetLevel) = match config.format {
        LogFormat::Text => {
            let subscriber = subscriber.with_filter_reloading();
            let handle = subscriber.reload_handle();
            (subscriber.try_init(), Arc::new(move |level| set(handle.reload(filter(level)))))
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_span_list(false).with_filter_reloading();
            let handle = subscriber.reload_handle();
            (subscriber.try_init(), Arc::new(move |level| set(handle.reload(filter(level)))))
        }
    };
    // It fails only when logging was started before.
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    set_level
}

/// Makes the writer of each event.
struct Lines<M>(M);

impl<W: Write, M: Fn() -> W> MakeWriter<'_> for Lines<M> {
    type Writer = OneLine<W>;

    fn make_writer(&self) -> OneLine<W> {
        OneLine(self.0(), "")
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> OneLine<W> {
        OneLine(self.0(), journal::prefix(*event.level()))
    }
}

/// Writes events so that each is one line: what an event quotes must not look like another event. The second part begins it.
struct OneLine<W>(W, &'static str);

impl<W: Write> Write for OneLine<W> {
    /// An event comes in one piece, with the end of its line. Escape sequences are the formatter's own colours: it takes
    /// those of others out of what it quotes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (line, end) = event.strip_suffix(b"\n").map_or((event, ""), |line| (line, "\n"));
        let text = String::from_utf8_lossy(line);
        match (text.contains(ends_a_line), self.1) {
            // In one piece too, or events of two threads could mix.
            (true, prefix) => self.0.write_all(format!("{prefix}{}{end}", escaped(&text)).as_bytes())?,
            (false, "") => self.0.write_all(event)?,
            (false, prefix) => self.0.write_all(&[prefix.as_bytes(), event].concat())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn ends_a_line(char: char) -> bool {
    char.is_control() && char != '\u{1b}' || ['\u{2028}', '\u{2029}'].contains(&char)
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, char| {
        if ends_a_line(char) {
            line.extend(char.escape_default())
        } else {
            line.push(char)
        }
        line
    })
}

/// A panic is a line of the log like any other, in its form and with its request.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let payload =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let error: String = payload.unwrap_or_default().chars().take(PANIC_SHOWN).collect();
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(at, error, "panicked: a defect in dwell, please report it");
    // The process may end with it.
    flush_log();
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_event_is_one_line_whatever_it_contains() {
        for ansi in [false, true] {
            let heard = Heard::default();
            let writer = heard.clone();
            let writer = Lines(move || writer.clone());
            let subscriber = tracing_subscriber::fmt().with_ansi(ansi).with_writer(writer).finish();
            let forged = "gone\r\n2026-01-02T03:04:05Z  INFO dwell::audit: forged\u{85}\u{2028}\u{9b}1m";
            tracing::subscriber::with_default(subscriber, || {
                let _span = tracing::info_span!("request", id = %forged).entered();
                tracing::info!(error = %forged, text = forged);
            });
            let lines = String::from_utf8_lossy(&heard.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
            let line = lines.strip_suffix('\n').unwrap_or_default();
            assert!(!line.is_empty() && !line.contains(ends_a_line), "{line:?}");
            assert!(line.contains("forged"), "{line:?}");
        }
    }
}
