//! Who counts for everybody: at most one member at a time.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::store::{StatsClaim, Store};

use crate::support::{World, eventually, member};

const LONG: Duration = Duration::from_secs(600);

async fn is_held(store: &Store, by: &str) -> Result<bool> {
    Ok(matches!(store.maintenance.claim_stats_collection(&member(by), LONG).await?, StatsClaim::Held { .. }))
}

#[tokio::test]
async fn claim_is_renewed_and_released() -> Result<()> {
    let world = World::redis().await?;
    let store = &world.store;
    assert_eq!(store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Taken);
    assert_eq!(store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Kept);
    match store.maintenance.claim_stats_collection(&member("b"), LONG).await? {
        StatsClaim::Held { expires_in } => assert!(expires_in > LONG / 2 && expires_in <= LONG, "{expires_in:?}"),
        claim => assert_eq!(claim, StatsClaim::Held { expires_in: LONG }),
    }
    // What one does not have, one cannot give back.
    store.maintenance.yield_stats_collection(&member("b")).await?;
    assert!(is_held(store, "b").await?);
    store.maintenance.yield_stats_collection(&member("a")).await?;
    store.maintenance.yield_stats_collection(&member("a")).await?;
    assert_eq!(store.maintenance.claim_stats_collection(&member("b"), LONG).await?, StatsClaim::Taken);
    assert!(is_held(store, "a").await?);
    Ok(())
}

#[tokio::test]
async fn expired_claim_is_free_and_not_renewed() -> Result<()> {
    let world = World::redis().await?;
    let store = &world.store;
    assert_eq!(
        store.maintenance.claim_stats_collection(&member("a"), Duration::from_millis(1)).await?,
        StatsClaim::Taken
    );
    world
        .until("it lapses", async || {
            Ok(world.meddle(&["EXISTS".to_owned(), "dwell:stats-collector".to_owned()]).await? == "0")
        })
        .await?;
    assert_eq!(
        store.maintenance.claim_stats_collection(&member("a"), Duration::from_millis(1)).await?,
        StatsClaim::Taken
    );
    let taken = eventually("another one takes it", async || {
        let claim = store.maintenance.claim_stats_collection(&member("b"), LONG).await?;
        Ok((!matches!(claim, StatsClaim::Held { .. })).then_some(claim))
    });
    assert_eq!(taken.await?, StatsClaim::Taken);
    Ok(())
}

#[tokio::test]
async fn claim_works_on_a_cluster_and_with_minimal_permissions() -> Result<()> {
    for world in [World::redis_cluster().await?, World::redis_as_user().await?, World::buffered().await?] {
        assert_eq!(world.store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Taken);
        assert!(is_held(&world.store, "b").await?);
        world.store.maintenance.yield_stats_collection(&member("a")).await?;
        assert_eq!(world.store.maintenance.claim_stats_collection(&member("b"), LONG).await?, StatsClaim::Taken);
    }
    Ok(())
}

#[tokio::test]
async fn embedded_store_always_holds_the_claim() -> Result<()> {
    let world = World::embedded().await?;
    assert_eq!(world.store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Alone);
    world.store.maintenance.yield_stats_collection(&member("a")).await
}
