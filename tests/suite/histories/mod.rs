//! Random histories: a client works at several brokers while Redis dies, freezes, fails over, is emptied or goes back, and
//! brokers lose the connection to it, freeze, are killed, or lose their disk. What was acknowledged is compared with what
//! there is in the end. Consumers ack in time, too late or not at all, and bury: what they bury is forwarded to another topic.
//!
//! The client makes one call after the other, each at a random broker, so the order of what was acknowledged is certain.
//! Every story uses the journal, but for the one whose brokers wait for a replica instead. `make histories` is the long form and prints a row for each story: `DWELL_OPERATIONS` is
//! how many operations a story makes, `DWELL_SEED` repeats the choices of a run, if not its timing.

mod consume;
mod dedup;
mod deployment;
mod exemptions;
mod faults;
mod run;

use dwell::model::error::Result;

use self::deployment::Kind;
use self::run::{Plan, Run};
use crate::support::from_environment;

/// Operations of the short form, in each story.
const OPERATIONS: usize = 250;

/// Operations within a fault.
const CALM: std::ops::Range<usize> = 3..25;

/// Operations between two faults, in the short form and in the long one; a failover takes seconds.
const BETWEEN: [std::ops::Range<usize>; 2] = [3..25, 20..200];
const BETWEEN_FAILOVERS: [std::ops::Range<usize>; 2] = [40..100, 150..450];

async fn play(name: &'static str, brokers: usize, kind: Kind, loses_disks: bool) -> Result<()> {
    let operations = from_environment("DWELL_OPERATIONS")?.unwrap_or(OPERATIONS);
    let between =
        if matches!(kind, Kind::Sentinel | Kind::Replicated | Kind::Cluster) { BETWEEN_FAILOVERS } else { BETWEEN };
    let between = &between[usize::from(operations > OPERATIONS)];
    let mut run = Run::begin(Plan { name, brokers, kind, loses_disks }).await?;
    while run.operations() < operations {
        let count = run.rng.usize(between.clone());
        run.pass(count).await?;
        run.fault().await?;
    }
    run.end().await
}

#[tokio::test]
async fn one_broker_keeps_acknowledged_writes_with_a_durable_redis() -> Result<()> {
    play("1 broker, AOF always", 1, Kind::Durable, false).await
}

#[tokio::test]
async fn two_brokers_keep_acknowledged_writes_with_a_durable_redis() -> Result<()> {
    play("2 brokers, AOF always", 2, Kind::Durable, false).await
}

#[tokio::test]
async fn three_brokers_keep_acknowledged_writes_when_one_loses_its_data() -> Result<()> {
    play("3 brokers, AOF always, data directories lost", 3, Kind::Durable, true).await
}

#[tokio::test]
async fn one_broker_keeps_acknowledged_writes_when_redis_loses_data() -> Result<()> {
    play("1 broker, Redis loses data", 1, Kind::Forgetful, false).await
}

#[tokio::test]
async fn two_brokers_keep_acknowledged_writes_when_redis_loses_data() -> Result<()> {
    play("2 brokers, Redis loses data", 2, Kind::Forgetful, false).await
}

#[tokio::test]
async fn three_brokers_keep_acknowledged_writes_when_redis_and_one_lose_data() -> Result<()> {
    play("3 brokers, Redis loses data, data directories lost", 3, Kind::Forgetful, true).await
}

#[tokio::test]
async fn two_brokers_keep_acknowledged_writes_across_sentinel_failovers() -> Result<()> {
    play("2 brokers, Sentinel", 2, Kind::Sentinel, false).await
}

#[tokio::test]
async fn two_brokers_without_a_journal_keep_replicated_writes() -> Result<()> {
    play("2 brokers, Sentinel, min_replicas 1, no journal", 2, Kind::Replicated, false).await
}

#[tokio::test]
async fn two_brokers_keep_acknowledged_writes_when_cluster_nodes_fail() -> Result<()> {
    play("2 brokers, Redis Cluster", 2, Kind::Cluster, false).await
}
