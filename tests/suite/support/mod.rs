//! What the stories share: worlds with a store and a clock in them, and topics to tell the story with.

mod ledger;
mod process;
mod proxy;
mod application;
mod eventually;
mod load;
mod cluster;
mod redis;
mod resp;
mod running;
mod sentinel;
mod sequences;
mod shifted_clock;
mod simulated;
mod tls;
mod topic;
mod world;

use std::path::Path;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};

pub(crate) use self::application::{Application, Posts};
pub(crate) use self::cluster::Cluster;
pub(crate) use self::eventually::{eventually, eventually_within, failed, repeatedly};
pub(crate) use self::ledger::{Bounds, Ledger, Tally};
pub(crate) use self::load::pause_of_load;
pub(crate) use self::process::{HttpClient, PROGRAM, Process};
pub(crate) use self::proxy::{Kept, Mode, Proxy, Strike};
pub(crate) use self::redis::{RedisServer, Snapshot, connect};
pub(crate) use self::running::Running;
pub(crate) use self::sentinel::{Watched, signal};
pub(crate) use self::sequences::Sequences;
pub(crate) use self::shifted_clock::shifted_clock;
pub(crate) use self::tls::{Certificates, free_port};
pub(crate) use self::topic::{
    LEASE, TestTopic, acks, buries, cron_job, every, fates_of, ids, ids_of, member, new_call, no_such_customer,
    retries, returns, up_to,
};
pub(crate) use self::world::{World, scratch};
pub(crate) use crate::brokers::groups::signals::signal as signal_to;

/// How long something may take before a story fails: longer than any machine needs, since no story measures with it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A number from the environment, to make a story longer or to repeat it.
pub(crate) fn from_environment<T: std::str::FromStr>(name: &str) -> Result<Option<T>> {
    let parse = |text: String| text.parse().map_err(|_| Error::invalid(name, format!("{text:?} is not a number")));
    std::env::var(name).ok().map(parse).transpose()
}

/// The kind of an error, for a story in which it has to fail.
pub(crate) fn kind_of<T>(result: Result<T>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

/// Makes a test of every story for every store.
macro_rules! stories {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $story() -> dwell::model::error::Result<()> {
                super::$story(crate::support::World::embedded().await?).await
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $story() -> dwell::model::error::Result<()> {
                super::$story(crate::support::World::redis().await?).await
            })*
        }
    };
}
pub(crate) use stories;

/// Takes everything out of a directory.
pub(crate) fn empty(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(failed("a directory"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(&path).map_err(failed("a directory"))?,
            false => std::fs::remove_file(&path).map_err(failed("a file"))?,
        }
    }
    Ok(())
}
