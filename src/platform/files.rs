//! The limit on open files, sockets among them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::model::limits::CONNECTIONS_MAX;

/// Files of the stores, Redis, other brokers and webhooks.
const REST: u64 = 1_000;

const ENOUGH: u64 = 65_536;

/// Raises the limit as far as this user may, and returns it: a shell's 1,024 are fewer than the connections of dwell.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// At most [`CONNECTIONS_MAX`], and at least half of the files.
pub fn connections_max(files: u64) -> usize {
    let room = files.saturating_sub(REST).max(files / 2);
    usize::try_from(room).unwrap_or(usize::MAX).min(CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_leaves_file_descriptors() {
        for (files, connections) in [(64, 32), (1_024, 512), (2_500, 1_500), (11_000, 10_000), (u64::MAX, 10_000)] {
            assert_eq!(connections_max(files), connections, "{files}");
        }
    }

    #[test]
    fn file_limit_is_raised_to_the_maximum() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise();
        assert!(raised >= before.maximum.unwrap_or(ENOUGH).min(ENOUGH));
        assert!(before.current.is_none_or(|before| raised >= before));
        assert_eq!((raise(), getrlimit(Resource::Nofile).maximum), (raised, before.maximum));
    }
}
