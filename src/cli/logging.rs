//! Where events go: stderr, as the configuration says.

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

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
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let subscriber = subscriber.with_ansi(std::io::stderr().is_terminal());
    let started = match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_span_list(false).try_init(),
    };
    // It fails only when logging was started before.
    if started.is_ok() {
        std::panic::set_hook(Box::new(tell));
    }
}

/// A panic is a line of the log like any other, in its form and with its request.
fn tell(panic: &PanicHookInfo<'_>) {
    let said = panic.payload();
    let said = said.downcast_ref::<&str>().copied().or_else(|| said.downcast_ref::<String>().map(String::as_str));
    let error: String = said.unwrap_or_default().chars().take(PANIC_SHOWN).collect();
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(at, error, "panicked: a defect in dwell, please report it");
}
