//! `dwell health`: whether a broker is ready, for what can run a command and look at its exit code.

use clap::Args;

use super::failure::Failure;
use super::{ServerArgs, output};

const EXAMPLES: &str = "\
Examples:
  dwell health                                    exit code 0: pushes are accepted durably
  dwell health --live                             exit code 0: it answers at all
  dwell health --server unix:/run/dwell/dwell.sock

Restart a broker that does not live. Do not restart one because it is not ready: that brings no store back.";

/// Ask whether a broker is ready, or lives: for a container without a shell or curl
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthArgs {
    /// Ask only whether it answers: /livez and not /readyz
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &HealthArgs) -> Result<(), Failure> {
    let client = args.server.client()?;
    if args.live {
        client.live().await?;
        return output::line("alive");
    }
    match client.readiness().await?.detail {
        Some(detail) => output::line(format_args!("degraded: {detail}")),
        None => output::line("ready"),
    }
}
