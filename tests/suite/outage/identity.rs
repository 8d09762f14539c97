//! A store without a name takes the one that is offered first.

use dwell::model::error::Result;

use crate::support::{World, stories};

stories! { the_first_offer_is_taken }

async fn the_first_offer_is_taken(world: World) -> Result<()> {
    assert_eq!(world.store.backend.store_id("first").await?, "first");
    assert_eq!(world.store.backend.store_id("second").await?, "first");
    Ok(())
}
