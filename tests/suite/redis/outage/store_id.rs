//! A store without a name takes the one that is offered first.

use dwell::model::error::Result;

use crate::support::{World, stories};

stories! { first_proposed_store_id_is_kept }

async fn first_proposed_store_id_is_kept(world: World) -> Result<()> {
    assert_eq!(world.store.backend.store_id("first").await?, "first");
    assert_eq!(world.store.backend.store_id("second").await?, "first");
    Ok(())
}
