//! `dwell drain`: a broker hands over what it has, and ends.

use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use super::failure::{CallError, Failure};
use super::remote::{At as _, Remote};
use super::{ServerArgs, output};
use crate::model::time::{parse_span, show_span};
use crate::platform::clock::Clock;

const EXAMPLES: &str = "\
Examples:
  dwell drain                              the broker on http://127.0.0.1:7373, and wait for its end
  dwell drain --server http://10.0.0.4:7373 --token-file /etc/dwell/admin
  dwell drain --pid 1                      in a container, also with TLS: it needs no token

The broker is not ready any more, gives its partitions to other brokers, and waits until consumers
have settled their deliveries (group.drain_timeout). Then it sends its buffered messages to Redis or
to another broker, and ends. SIGTERM does the same. If it is killed meanwhile, nothing is lost:
messages in flight are delivered again.";

/// How often it is looked whether the broker has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Stop a broker gracefully: it gives its partitions and messages to others, and ends
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DrainArgs {
    /// Stop the process with this id on this machine, by SIGTERM, instead of the broker at an address
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// How long to wait for its end
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_span)]
    timeout: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: &DrainArgs) -> Result<(), Failure> {
    tokio::select! {
        ended = drained(args) => ended?,
        () = Clock::System.sleep(args.timeout) => {
            return Err(Failure::new(format!("it has not ended within {}", show_span(args.timeout))));
        }
    }
    args.server.print.value(&json!({"drained": true}), |_| "drained: it has ended")
}

/// Whether a process is gone, or only its parent has not heard of its end yet.
fn has_ended(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    // The name before it is in parentheses, and may have any character.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    test_kill_process(process).is_err() || state.is_some_and(|state| state.starts_with('Z'))
}

async fn drained(args: &DrainArgs) -> Result<(), Failure> {
    if let Some(pid) = args.pid {
        let process = Pid::from_raw(pid).filter(|_| pid > 0);
        let process = process.ok_or_else(|| Failure::usage(format!("{pid} is no id of a process")))?;
        let failed = |error: Errno| Failure::new(format!("process {pid} cannot be told to end: {error}"));
        kill_process(process, Signal::TERM).map_err(failed)?;
        output::progress("waiting for its end");
        while !has_ended(process) {
            Clock::System.sleep(LOOK).await;
        }
        return Ok(());
    }
    let Remote { client, place } = args.server.remote()?;
    let member = client.drain().await.at(&place)?.member;
    output::progress(format_args!("waiting for the end of {member}"));
    loop {
        match client.live().await.at(&place) {
            Err(CallError::Unreachable(_)) => return Ok(()),
            Ok(_) | Err(_) => Clock::System.sleep(LOOK).await,
        }
    }
}
