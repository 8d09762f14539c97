//! Versions and call ids, which tell operations apart: versions say which of two on a message came later, ids of calls whether a call is a repeat.

use std::fmt;

/// Microseconds since the epoch on the store's clock, as the broker that gave the version knew it. A broker never gives
/// one twice, and never an earlier one later.
///
/// The body of a message carries the version of the operation that set it, a cancelled id that of its cancel. A record
/// of a log changes only messages that have a lower version, so the order in which logs arrive does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    pub const fn from_us(us: u64) -> Version {
        Version(us)
    }

    pub fn as_us(self) -> u64 {
        self.0
    }

    /// The version `n` after this one: the messages of a call count up from the version of the call.
    pub fn plus(self, n: usize) -> Version {
        Version(self.0.saturating_add(n as u64))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPart {
    pub call: CallId,
    /// From 1.
    pub at: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// Unique to the process that began it.
    pub stream: String,
    /// From 1.
    pub seq: u64,
}
