//! `dwell health`: whether a broker is ready, for what can run a command and look at its exit code.

use std::time::Duration;

use clap::Args;

use super::client::Client;
use super::failure::{Failure, UNAVAILABLE};
use super::{ServerArgs, output};
use crate::model::time::{parse_span, show_span};
use crate::platform::clock::Clock;

const EXAMPLES: &str = "\
Examples:
  dwell health                                    exit code 0: pushes are accepted durably
  dwell health --live                             exit code 0: it answers at all
  dwell health --server unix:/run/dwell/dwell.sock

Restart a broker that is not alive. Do not restart one that is not ready: a restart does not bring
its store back.";

/// Ask whether a broker is ready, or alive: for a container without a shell or curl
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthArgs {
    /// Ask only whether it answers: /livez and not /readyz
    #[arg(long)]
    live: bool,
    /// How long it may take to answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    timeout: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &HealthArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    tokio::select! {
        answer = ask(args, &client) => answer,
        // A process that stands still takes connections and says nothing.
        () = Clock::System.sleep(args.timeout) => {
            let message = format!("no answer from {} within {}", args.server.address(), show_span(args.timeout));
            Err(Failure { code: UNAVAILABLE, message })
        }
    }
}

async fn ask(args: &HealthArgs, client: &Client) -> Result<(), Failure> {
    if args.live {
        client.live().await?;
        return output::line("alive");
    }
    match client.readiness().await?.detail {
        Some(detail) => output::line(format_args!("degraded: {detail}")),
        None => output::line("ready"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: HealthArgs,
    }

    #[tokio::test]
    async fn who_takes_a_connection_and_says_nothing_is_not_healthy() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("dwell.sock");
        let _silent = UnixListener::bind(&socket)?;
        let server = format!("unix:{}", socket.display());
        for kind in [&[][..], &["--live"]] {
            let words = [&["health", "--timeout", "50ms", "--server", &server], kind].concat();
            let failure = run(&Line::try_parse_from(words)?.args).await.err().unwrap_or_else(Failure::said);
            assert_eq!(failure.code, UNAVAILABLE);
            assert_eq!(failure.message, format!("no answer from {server} within 50ms"));
        }
        Ok(())
    }
}
