//! Where events go: stderr, as the configuration says.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

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
    // It fails only when logging was started before.
    let _ = match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
}
