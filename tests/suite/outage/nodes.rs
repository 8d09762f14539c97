//! One primary of a Redis Cluster dies: the others take pushes and hand out, and what was promised for it comes later.

use std::time::Duration;

use dwell::model::error::Result;

use super::Outage;
use crate::support::{Cluster, RedisServer};

#[tokio::test]
async fn while_one_primary_is_away_no_push_fails_and_the_other_partitions_go_on() -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let outage = Outage::with(RedisServer::start().await?)?;
    let dwell = outage.dwell_on(cluster.url(), false).await?;
    let ids: Vec<String> = (0..400).map(|n| format!("m{n:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (before, during) = ids.split_at(100);
    let placed = dwell.push("orders", before, Duration::ZERO).await?;
    let mut of_the_killed = Vec::new();
    for partition in 0..8 {
        if cluster.place_of(&format!("{{dwell:orders:{partition}}}")).await?.0 == 0 {
            of_the_killed.push(partition);
        }
    }
    assert!(placed.iter().any(|outcome| of_the_killed.contains(&outcome.partition.0)));
    dwell.delivers("orders", before).await?;
    for node in &cluster.primaries {
        node.server.ask::<u64>("WAIT 1 1000").await?;
    }
    cluster.primaries[0].server.kill()?;
    let (mut buffered, mut elsewhere) = (0, Vec::new());
    for ids in during.chunks(10) {
        for outcome in dwell.push("orders", ids, Duration::ZERO).await? {
            buffered += usize::from(outcome.pushed == dwell::store::Pushed::Buffered);
            if !of_the_killed.contains(&outcome.partition.0) {
                elsewhere.push(outcome.id.to_string());
            }
        }
    }
    assert!(buffered > 0, "the primary was not missed");
    let got = dwell.drain("orders", during.len()).await?;
    assert!(elsewhere.iter().all(|id| got.contains_key(id)), "{} of {}", got.len(), elsewhere.len());
    // What waited for the promotion of the replica comes, too.
    dwell.recovered().await?;
    let late = dwell.drain("orders", during.len() - got.len()).await?;
    assert_eq!(got.len() + late.len(), during.len());
    assert!(got.values().chain(late.values()).all(|got| got.times == 1 && !got.early));
    dwell.close().await
}
