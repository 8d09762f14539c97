//! The reasons why a key waits.

use serde::{Deserialize, Serialize};

/// A pause or a limit that holds up all messages of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLimit {
    Pause,
    InFlight,
    Rate,
}

impl KeyLimit {
    /// Its name as the reason why a message waits.
    pub fn reason(self) -> &'static str {
        match self {
            KeyLimit::Pause => "key_paused",
            KeyLimit::InFlight => "key_at_max_in_flight",
            KeyLimit::Rate => "key_rate_limited",
        }
    }
}
