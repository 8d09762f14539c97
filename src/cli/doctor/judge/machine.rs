//! The machine, and the broker that may be running on it.

use super::super::finding::Finding;
use crate::model::limits::CONNECTIONS_MAX;

/// Files that a broker opens besides its connections: logs, sockets to Redis, and a margin.
const OTHER_FILES: u64 = 100;

/// What a broker said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum BrokerFacts {
    /// Nobody answers there.
    Absent,
    /// It is not ready, and why.
    NotReady(String),
    /// It is ready.
    Ready {
        /// What is degraded.
        degraded: Option<String>,
        /// Its version, if it says so.
        version: Option<String>,
    },
}

/// The limit of open files, of the process with this number or of this one.
pub(in super::super) fn open_files(limit: Option<u64>, of: Option<u32>) -> Finding {
    let whose = of.map_or("here; a service has limits of its own".to_owned(), |pid| format!("of process {pid}"));
    match limit {
        Some(limit) if limit < CONNECTIONS_MAX as u64 + OTHER_FILES => {
            let found = format!(
                "{limit} {whose}, and dwell takes up to {CONNECTIONS_MAX} connections: those past the limit wait"
            );
            Finding::warn(
                "open-files",
                found,
                "LimitNOFILE=20000 in its systemd unit, or `ulimit -n 20000` before it is started",
            )
        }
        Some(limit) => Finding::ok("open-files", format!("{limit} {whose}")),
        None => Finding::ok("open-files", format!("no limit {whose}")),
    }
}

/// Whether anybody keeps the clock of this machine in time, if that can be seen.
pub(in super::super) fn time(is_synchronised: Option<bool>) -> Finding {
    match is_synchronised {
        Some(true) => Finding::ok("time", "this machine's clock is kept in time"),
        Some(false) => {
            Finding::warn("time", "this machine's clock has not been set yet", "timedatectl timesync-status")
        }
        None => Finding::skip("time", "no systemd-timesyncd here; `chronyc tracking` or the like says it"),
    }
}

/// A broker that should be of this version.
pub(in super::super) fn broker(place: &str, facts: &BrokerFacts, version: &str) -> Finding {
    match facts {
        BrokerFacts::Absent => Finding::skip("broker", format!("none answers at {place}")),
        BrokerFacts::NotReady(why) => Finding::fail(
            "broker",
            format!("{place} accepts no pushes: {why}"),
            "look at the lines above, and at its log",
        ),
        BrokerFacts::Ready { degraded: Some(why), .. } => {
            Finding::warn("broker", format!("{place} is degraded: {why}"), "look at the lines above, and at its log")
        }
        BrokerFacts::Ready { version: Some(running), .. } if running != version => {
            let found = format!("{place} is dwell {running}, this is {version}");
            Finding::warn("broker", found, "restart it with the newer of the two")
        }
        BrokerFacts::Ready { .. } => Finding::ok("broker", format!("{place} is ready, dwell {version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::*;

    #[test]
    fn a_limit_below_what_dwell_may_need_is_a_warning() {
        let status = |limit| open_files(limit, None).status;
        assert_eq!([status(Some(10_099)), status(Some(10_100)), status(None)], [Status::Warn, Status::Ok, Status::Ok]);
        assert!(open_files(Some(1_024), Some(7)).found.starts_with("1024 of process 7"));
        assert_eq!([Some(true), Some(false), None].map(|is| time(is).status), [Status::Ok, Status::Warn, Status::Skip]);
    }

    #[test]
    fn a_broker_is_ready_degraded_not_ready_or_another() {
        let status = |facts: BrokerFacts| broker("here", &facts, "1.2.3").status;
        let ready = |degraded: Option<&str>, version: &str| BrokerFacts::Ready {
            degraded: degraded.map(str::to_owned),
            version: Some(version.to_owned()),
        };
        assert_eq!(status(BrokerFacts::Absent), Status::Skip);
        assert_eq!(status(BrokerFacts::NotReady("full".to_owned())), Status::Fail);
        assert_eq!(status(ready(Some("the store is away"), "1.2.3")), Status::Warn);
        assert_eq!(status(ready(None, "1.2.2")), Status::Warn);
        assert_eq!(status(ready(None, "1.2.3")), Status::Ok);
    }
}
