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
async fn a_claim_is_kept_by_saying_it_again_and_ends_by_giving_it_back() -> Result<()> {
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
async fn a_claim_that_lapsed_is_anybodys_and_is_not_said_to_be_kept() -> Result<()> {
    let world = World::redis().await?;
    let store = &world.store;
    assert_eq!(
        store.maintenance.claim_stats_collection(&member("a"), Duration::from_millis(1)).await?,
        StatsClaim::Taken
    );
    world
        .until("it lapses", async || Ok(world.meddle(&["EXISTS".to_owned(), "dwell:census".to_owned()]).await? == "0"))
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
async fn on_a_cluster_and_with_few_permissions_there_is_one_as_well() -> Result<()> {
    for world in [World::redis_cluster().await?, World::redis_as_user().await?, World::failover().await?] {
        assert_eq!(world.store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Taken);
        assert!(is_held(&world.store, "b").await?);
        world.store.maintenance.yield_stats_collection(&member("a")).await?;
        assert_eq!(world.store.maintenance.claim_stats_collection(&member("b"), LONG).await?, StatsClaim::Taken);
    }
    Ok(())
}

#[tokio::test]
async fn a_store_of_one_process_has_no_other() -> Result<()> {
    let world = World::embedded().await?;
    assert_eq!(world.store.maintenance.claim_stats_collection(&member("a"), LONG).await?, StatsClaim::Alone);
    world.store.maintenance.yield_stats_collection(&member("a")).await
}
