//! A cluster, and a primary behind sentinels.

use dwell::model::error::Result;

use super::Doctor;
use crate::support::{Cluster, Watched};

#[tokio::test]
async fn each_node_of_a_cluster_is_checked() -> Result<()> {
    let (cluster, doctor) = (Cluster::shared().await?, Doctor::new()?);
    let said = doctor.asked(&["--redis", &cluster.url()])?;
    for node in &cluster.primaries {
        let named = |check| said.of(check).iter().any(|finding| finding.found.contains(&format!(":{}", node.port)));
        assert!(named("redis") && named("version") && named("permissions"), "{said:#?}");
    }
    assert!(said.says("cluster", "ok", "every slot") && said.says("clocks", "ok", "3 nodes"), "{said:#?}");
    // They keep nothing on disk.
    assert!(said.code == Some(1) && said.of("persistence").len() == 3, "{said:#?}");
    let alone = doctor.asked(&["--redis", &format!("redis://127.0.0.1:{}", cluster.primaries[0].port)])?;
    assert!(alone.says("cluster", "fail", "redis+cluster://"), "{alone:#?}");
    Ok(())
}

#[tokio::test]
async fn unassigned_slots_are_counted() -> Result<()> {
    let (cluster, doctor) = (Cluster::start(0).await?, Doctor::new()?);
    cluster.primaries[0].server.ask::<()>("CLUSTER DELSLOTS 0 1 2").await?;
    cluster.primaries[0].server.ask::<()>("CONFIG SET cluster-require-full-coverage yes").await?;
    let seed = format!("redis+cluster://127.0.0.1:{}", cluster.primaries[0].port);
    let said = doctor.asked(&["--redis", &seed])?;
    assert!(said.says("cluster", "fail", "3 slots have no node"), "{said:#?}");
    assert!(said.says("cluster", "warn", "config set cluster-require-full-coverage no"), "{said:#?}");
    Ok(())
}

#[tokio::test]
async fn sentinels_and_replicas_are_checked() -> Result<()> {
    let (watched, doctor) = (Watched::start().await?, Doctor::new()?);
    let said = doctor.asked(&["--redis", &watched.url()])?;
    assert_eq!(said.of("sentinels").len(), 3, "{said:#?}");
    assert!(said.says("sentinels", "ok", "3 sentinels, of which 2 have to agree; 1 replica;"), "{said:#?}");
    assert!(said.says("replicas", "warn", "config set min-replicas-to-write 1"), "{said:#?}");
    let replica = doctor.asked(&["--redis", &watched.replica.url()])?;
    assert!(replica.says("role", "fail", "replica of 127.0.0.1:"), "{replica:#?}");
    watched.primary.ask::<()>("CONFIG SET min-replicas-to-write 1").await?;
    let careful = doctor.asked(&["--redis", &watched.url()])?;
    assert!(careful.says("replicas", "ok", "writes wait"), "{careful:#?}");
    Ok(())
}
