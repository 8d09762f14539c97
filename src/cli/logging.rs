//! Where events go: stderr, as the configuration says.

use std::io::{IsTerminal, Result, Write};
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;

use crate::app::config::{LogConfig, LogFormat, LogLevel};

/// Characters of what a panic says: it may quote what was worked on.
const PANIC_SHOWN: usize = 200;

/// Starts logging. A second start changes nothing.
pub(super) fn start(config: LogConfig) {
    // Libraries below dwell say little at info and much at debug, so they stay at warn.
    let libraries = match config.level {
        LogLevel::Off | LogLevel::Error => config.level,
        LogLevel::Warn | LogLevel::Info | LogLevel::Debug | LogLevel::Trace => LogLevel::Warn,
    };
    let filter = EnvFilter::new(format!("{},dwell={}", libraries.name(), config.level.name()));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| OneLine(std::io::stderr()));
    let subscriber = subscriber.with_ansi(std::io::stderr().is_terminal());
    let started = match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).try_init(),
    };
    // It fails only when logging was started before.
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// Writes events so that each is one line: what an event quotes must not look like another event.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// An event comes in one piece, with the end of its line. Escape sequences are the formatter's own colours: it takes
    /// those of others out of what it quotes.
    fn write(&mut self, event: &[u8]) -> Result<usize> {
        let (line, end) = event.strip_suffix(b"\n").map_or((event, ""), |line| (line, "\n"));
        let text = String::from_utf8_lossy(line);
        match text.contains(ends_a_line) {
            // In one piece too, or events of two threads could mix.
            true => self.0.write_all(format!("{}{end}", escaped(&text)).as_bytes())?,
            false => self.0.write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> Result<()> {
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
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

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
            let writer = move || OneLine(writer.clone());
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
