//! Looks at this machine and at a broker that may be running, and judges them.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::app::config::Config;
use crate::cli::address::ServerAddress;
use crate::cli::failure::CallError;
use crate::cli::place::{Files, Place};
use crate::cli::remote::Remote;
use crate::cli::{ServerArgs, figures};
use crate::model::limits::CONNECTIONS_MAX;
use crate::model::time::Timestamp;
use crate::platform::clock::Clock;

const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// How many files a process may have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenFiles {
    Unlimited,
    UpTo(u64),
}

/// How many files a process may have open, and its id; if its limit cannot be read, the limit of this process, without an id.
pub(super) fn open_files_of(of: Option<u32>) -> (OpenFiles, Option<u32>) {
    let seen = of.and_then(|pid| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        Some((soft_limit(&limits)?, Some(pid)))
    });
    seen.unwrap_or_else(|| (own_open_files(), None))
}

fn own_open_files() -> OpenFiles {
    getrlimit(Resource::Nofile).current.map_or(OpenFiles::Unlimited, OpenFiles::UpTo)
}

/// The limit in a text of `/proc/PID/limits`; `None` if it has none that can be read.
fn soft_limit(limits: &str) -> Option<OpenFiles> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(OpenFiles::Unlimited),
        number => number.parse().ok().map(OpenFiles::UpTo),
    }
}

/// Whether the clock was set by systemd-timesyncd; `None` where that does not run.
pub(super) fn is_synchronised() -> Option<bool> {
    let mark = Path::new(SYNCHRONISED);
    mark.parent().filter(|dir| dir.is_dir()).map(|_| mark.exists())
}

/// Files that a broker opens besides its connections: logs, sockets to Redis, and a margin.
const OTHER_FILES: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BrokerFacts {
    Absent,
    NotReady(String),
    Ready { degraded: Option<String>, version: Option<String> },
}

pub(super) fn open_files(limit: OpenFiles, of: Option<u32>) -> Finding {
    let whose = of.map_or("here; a service has its own limits".to_owned(), |pid| format!("of process {pid}"));
    match limit {
        OpenFiles::UpTo(limit) if limit < CONNECTIONS_MAX as u64 + OTHER_FILES => {
            let found = format!(
                "{limit} {whose}, and dwell takes up to {CONNECTIONS_MAX} connections: those past the limit wait"
            );
            let advice = "LimitNOFILE=20000 in its systemd unit, or `ulimit -n 20000` before it is started";
            Finding::warn("open-files", found, advice)
        }
        OpenFiles::UpTo(limit) => Finding::ok("open-files", format!("{limit} {whose}")),
        OpenFiles::Unlimited => Finding::ok("open-files", format!("no limit {whose}")),
    }
}

pub(super) fn time(is_synchronised: Option<bool>) -> Finding {
    match is_synchronised {
        Some(true) => Finding::ok("time", "this machine's clock is kept in time"),
        Some(false) => {
            Finding::warn("time", "this machine's clock has not been set yet", "timedatectl timesync-status")
        }
        None => Finding::skip("time", "no systemd-timesyncd here; `chronyc tracking` or the like says it"),
    }
}

/// Time before its end at which a certificate should have been renewed.
const CERTIFICATE_MARGIN: Duration = Duration::from_secs(14 * 86_400);

/// The certificate that clients are shown, which ends then.
pub(super) fn certificate(file: &Path, end: Option<Timestamp>, now: Timestamp) -> Finding {
    let (file, advice) = (file.display(), "renew it: dwell reads the new one by itself");
    match end {
        None => Finding::skip("certificate", format!("{file}: its end cannot be read")),
        Some(end) if end <= now => {
            let found = format!("{file} expired at {end}: clients that verify it do not connect");
            Finding::fail("certificate", found, advice)
        }
        Some(end) if end <= now.plus(CERTIFICATE_MARGIN) => {
            Finding::warn("certificate", format!("{file} ends at {end}"), advice)
        }
        Some(end) => Finding::ok("certificate", format!("{file} ends at {end}")),
    }
}

pub(super) fn broker(place: &str, facts: &BrokerFacts, version: &str) -> Finding {
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

const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn look(server: &ServerArgs, config: &Config) -> Finding {
    let advice = "--server, --token-file and --ca-file name another broker, and what to show to it";
    let place = if server.is_named() { server.place() } else { Ok(of_config(server, config)) };
    let place = match place {
        Ok(place) => place,
        Err(failure) => return Finding::fail("broker", failure.message, advice),
    };
    let address = place.address.to_string();
    match Remote::at(place) {
        Ok(remote) => broker(&address, &facts(&remote).await, env!("CARGO_PKG_VERSION")),
        Err(failure) => Finding::fail("broker", format!("{address} cannot be asked: {}", failure.message), advice),
    }
}

/// The broker that runs with this configuration: the context that is used says nothing about this machine.
fn of_config(server: &ServerArgs, config: &Config) -> Place {
    let token = server.token_file.as_ref().or(config.tokens.first().map(|token| &token.file));
    let files = Files { token: token.cloned(), ca: server.ca_file.clone() };
    Place::named(address(config), files)
}

fn address(config: &Config) -> ServerAddress {
    ServerAddress::parse(&config.listen.on_this_machine().url(config.tls.is_some())).unwrap_or_default()
}

async fn facts(remote: &Remote) -> BrokerFacts {
    tokio::select! {
        facts = ask(remote) => facts,
        () = Clock::System.sleep(PATIENCE) => {
            BrokerFacts::NotReady(format!("it did not answer within {} s", PATIENCE.as_secs()))
        }
    }
}

async fn ask(Remote { client, place }: &Remote) -> BrokerFacts {
    let ready = match client.ready().await.map_err(|error| place.unready(error)) {
        Ok(ready) => ready,
        Err(CallError::Unreachable(_)) => return BrokerFacts::Absent,
        Err(error) => return BrokerFacts::NotReady(error.to_string()),
    };
    let metrics = client.metrics().await.unwrap_or_default();
    let build = figures::read(&metrics).into_iter().find(|sample| sample.name == "dwell_build_info");
    BrokerFacts::Ready { degraded: ready.detail, version: build.map(|build| build.label("version").to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn the_limit_of_another_process_is_read() {
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288     files\n";
        assert_eq!(soft_limit(limits), Some(OpenFiles::UpTo(1_024)));
        assert_eq!(soft_limit("Max open files  unlimited unlimited files"), Some(OpenFiles::Unlimited));
        assert_eq!(soft_limit(""), None);
        assert_eq!(open_files_of(Some(std::process::id())).1, Some(std::process::id()));
        assert_eq!(open_files_of(None), (own_open_files(), None));
    }

    #[test]
    fn a_certificate_is_renewed_two_weeks_before_its_end() {
        let (now, day) = (Timestamp::from_ms(1_000_000_000), Duration::from_secs(86_400));
        let status = |end| certificate(Path::new("tls.crt"), end, now).status;
        let ends = [Some(now), Some(now.plus(day)), Some(now.plus(day * 14)), Some(now.plus(day * 15)), None];
        let said = [Status::Fail, Status::Warn, Status::Warn, Status::Ok, Status::Skip];
        assert_eq!(ends.map(status), said);
    }

    #[test]
    fn a_limit_below_what_dwell_may_need_is_a_warning() {
        let status = |limit| open_files(limit, None).status;
        assert_eq!(
            [OpenFiles::UpTo(10_099), OpenFiles::UpTo(10_100), OpenFiles::Unlimited].map(status),
            [Status::Warn, Status::Ok, Status::Ok]
        );
        assert!(open_files(OpenFiles::UpTo(1_024), Some(7)).found.starts_with("1024 of process 7"));
        assert_eq!([Some(true), Some(false), None].map(|is| time(is).status), [Status::Ok, Status::Warn, Status::Skip]);
    }

    #[test]
    fn broker_check_distinguishes_ready_degraded_and_foreign() {
        let status = |facts: BrokerFacts| broker("here", &facts, "1.2.3").status;
        let ready = |degraded: Option<&str>, version: &str| BrokerFacts::Ready {
            degraded: degraded.map(str::to_owned),
            version: Some(version.to_owned()),
        };
        assert_eq!(status(BrokerFacts::Absent), Status::Skip);
        assert_eq!(status(BrokerFacts::NotReady("full".to_owned())), Status::Fail);
        assert_eq!(status(ready(Some("the store is unavailable"), "1.2.3")), Status::Warn);
        assert_eq!(status(ready(None, "1.2.2")), Status::Warn);
        assert_eq!(status(ready(None, "1.2.3")), Status::Ok);
    }
}
