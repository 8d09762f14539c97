//! `dwell serve`: runs a broker until it is told to stop.

use clap::Args;
use rustix::fs::Mode;
use rustix::process::umask;

use super::config::{ConfigArgs, data_dir, options};
use super::failure::Failure;
use super::output;
use super::process::{Asked, Hangups, Signals, Supervisor, start_logging};
use crate::api::http::Listen;
use crate::app::config::Config;
use crate::app::engine::claim_directory;
use crate::app::reload::ReloadOptions;
use crate::app::server::Server;
use crate::model::limits::CONNECTIONS_MAX;
use crate::platform::files;

const EXAMPLES: &str = "\
Examples:
  dwell serve                                          the embedded store, http://127.0.0.1:7373
  dwell serve --redis redis://127.0.0.1:6379           messages in Redis
  dwell serve --listen unix:/run/dwell/dwell.sock
  dwell serve --test-clock --data-dir /tmp/test        a broker whose time tests move
  dwell serve --sqs                                    also for clients of Amazon SQS
  dwell serve --config dwell.toml --log-format json

SIGTERM or SIGINT stops it gracefully: it hands out nothing more, consumers may settle their
deliveries until group.drain_timeout, then it ends with exit code 0. A second signal ends it at
once: nothing is lost, and messages in flight are delivered again. SIGHUP reads the configuration
again, as `dwell reload` does.";

/// Run a broker
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Replay messages that were buffered for another Redis to this one
    #[arg(long)]
    adopt: bool,
    /// For tests: clients may move time forward, in an empty data directory (POST /v1/test/clock)
    #[arg(long)]
    test_clock: bool,
}

pub(crate) async fn run(args: &ServeArgs) -> Result<(), Failure> {
    // First of all: it must never end a broker.
    let mut hangups = Hangups::listen()?;
    let sources = args.config.sources();
    let config = Config::load(&sources)?;
    let set_level = start_logging(config.log);
    // Overrides the shell's umask: payloads are for this user alone.
    umask(Mode::RWXG | Mode::RWXO);
    let mut signals = Signals::listen()?;
    let mut options = options(&config, args.adopt)?;
    options.test_clock = args.test_clock;
    options.reload = Some(ReloadOptions { sources, config: config.clone(), set_level });
    options.check()?;
    claim_directory(&data_dir(&config)?)?;
    options.connections.max = connections_max();
    let server = tokio::select! {
        server = Server::start(options) => server?,
        signal = signals.next() => return Err(Failure::interrupted(format!("{signal} during the start"))),
    };
    if output::line(banner(&server, &config, args.test_clock)).is_err() {
        tracing::warn!("stdout is closed: the banner was not printed");
    }
    let supervisor = Supervisor::of_this_process();
    let status = format!("{}; {}", server.url(), server.describe().durability);
    let until_told = async {
        loop {
            let asked = tokio::select! {
                asked = hangups.or_end(&mut signals) => asked,
                () = server.drain_asked() => Asked::End("POST /v1/drain"),
            };
            match asked {
                Asked::End(signal) => return signal,
                Asked::Reload => {
                    tracing::info!(signal = "SIGHUP", "told to reload");
                    server.reload().await;
                }
            }
        }
    };
    let signal = tokio::select! {
        signal = until_told => signal,
        never = supervisor.serving(&status) => match never {},
    };
    tracing::info!(signal, "told to stop");
    tokio::select! {
        biased;
        never = supervisor.stopping() => match never {},
        stopped = server.stop() => Ok(stopped?),
        signal = signals.next() => Err(Failure::interrupted(format!("{signal} while stopping: ended at once"))),
    }
}

/// As many connections as docs/reference/limits.md says, unless the user may not open so many files.
fn connections_max() -> usize {
    let files = files::raise();
    let connections = files::connections_max(files);
    if connections < CONNECTIONS_MAX {
        tracing::warn!(files, connections, "few connections are taken: raise the limit of open files");
    }
    connections
}

fn banner(server: &Server, config: &Config, test_clock: bool) -> String {
    let store = server.describe();
    let (curl, url) = match &config.listen {
        Listen::Tcp(_) => ("curl".to_owned(), server.open_url()),
        Listen::Unix(path) => (format!("curl --unix-socket {}", path.display()), "http://localhost".to_owned()),
    };
    let curl = match (&config.tokens[..], server.url().starts_with("https:")) {
        ([], false) => curl,
        ([], true) => format!("{curl} --cacert CA"),
        ([token, ..], tls) => {
            let shown = format!("-H \"Authorization: Bearer $(cat {})\"", token.file.display());
            format!("{curl} {}{shown}", if tls { "--cacert CA " } else { "" })
        }
    };
    format!(
        "dwell {version}
  store    {kind}: {location}
           {durability}
  address  {address}{admin}{sqs}{clock}
  try      {curl} -i '{url}/v1/topics/hello/messages?delay=2s' -d 'hello, later'
           {curl} --json '{{\"wait\": \"10s\"}}' {url}/v1/topics/hello/groups/default/reserve",
        version = env!("CARGO_PKG_VERSION"),
        kind = store.kind,
        location = store.location,
        durability = store.durability,
        address = server.open_url(),
        admin = server.admin_url().map(|url| format!("\n  admin    {url}")).unwrap_or_default(),
        clock = if test_clock {
            "\n  clock    moved by tests: POST /v1/test/clock. Not for messages that count"
        } else {
            ""
        },
        sqs = if config.sqs.enabled { format!("\n  sqs      AWS_ENDPOINT_URL_SQS={url}") } else { String::new() },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::app::config::{Flag, Sources};

    #[test]
    fn connections_are_idle_for_as_long_as_configured() -> Result<(), Failure> {
        let flag = |key, value: &str| Flag { key, flag: "--flag", value: value.to_owned() };
        let flags = vec![flag("http.idle_timeout", "2m"), flag("data_dir", "/var/lib/dwell")];
        let config = Config::load(&Sources { flags, ..Sources::default() })?;
        assert_eq!(options(&config, false)?.connections.idle_timeout, Duration::from_secs(120));
        Ok(())
    }
}
