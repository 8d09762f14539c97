//! `dwell reload`: a broker reads its configuration again.

use clap::Args;
use dwell_client::Reloaded;

use super::ServerArgs;
use super::failure::Failure;
use super::remote::{At as _, Remote};

const EXAMPLES: &str = "\
Examples:
  dwell reload
  dwell reload --server unix:/run/dwell/dwell.sock --json

These take effect at once: tokens, webhooks, log.level, and the password and certificates for Redis.
The other keys that have changed need a restart, and are listed. If the configuration is wrong,
nothing changes, and the exit code is 1. SIGHUP does the same.";

/// Make a broker read its configuration again, without a restart
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: &ReloadArgs) -> Result<(), Failure> {
    let Remote { client, place } = args.server.remote()?;
    let reloaded = client.reload().await.at(&place)?;
    args.server.print.value(&reloaded, |Reloaded { changed, needs_restart }| {
        let listed = |what: &str, keys: &[String]| format!("{what}: {}", keys.join(", "));
        match (changed.is_empty(), needs_restart.is_empty()) {
            (true, true) => "nothing has changed".to_owned(),
            (false, true) => listed("in force", changed),
            (true, false) => listed("needs a restart", needs_restart),
            (false, false) => [listed("in force", changed), listed("needs a restart", needs_restart)].join("\n"),
        }
    })
}
