//! What is wrong with a configuration.

use std::fmt;

use super::Origin;

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, as in `redis.url`, or the name of what was read.
    pub key: String,
    /// Where the value came from.
    pub origin: Origin,
    /// The value, with secrets masked.
    pub value: Option<String>,
    /// What is wrong with it.
    pub problem: String,
    /// What is accepted.
    pub accepted: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, " ({}): {}", self.origin, self.problem)?;
        match &self.accepted {
            Some(accepted) => write!(f, "; accepted: {accepted}"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a configuration, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("1 error in the configuration:")?,
            many => write!(f, "{many} errors in the configuration:")?,
        }
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
