//! What is logged, and how.

/// The least important events that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What lost or may lose something.
    Error,
    /// What an operator should look at.
    Warn,
    /// What changed.
    Info,
    /// What happened.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// Every level.
    pub const ALL: &[LogLevel] =
        &[LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// Every format.
    pub const ALL: &[LogFormat] = &[LogFormat::Text, LogFormat::Json];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}
