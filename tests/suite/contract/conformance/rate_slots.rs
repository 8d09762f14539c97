use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use dwell::model::message::GroupName;
use dwell::store::{SlotAsk, Slots};

use crate::support::World;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ask(count: u32, within_ms: u64) -> SlotAsk {
    SlotAsk { count, spacing: ms(100), within: ms(within_ms) }
}

fn slots(count: u32, after_ms: u64) -> Slots {
    Slots { count, after: ms(after_ms) }
}

pub(super) async fn rate_slots_are_unique_and_spaced(world: World) -> Result<()> {
    let (topic, group) = (world.topic("orders").await?.descriptor.topic, GroupName::standard());
    let give = async |ask| world.store.groups.slots(&topic, &group, ask).await;
    // Nobody knows what was given before: nothing is, until none of that can be open.
    let hold = SLOT_AHEAD_MAX + SLOT_OPEN;
    assert_eq!(give(ask(3, 1_000)).await?, Slots { count: 0, after: hold });
    world.time.advance(hold);
    assert_eq!(give(ask(3, 0)).await?, slots(1, 0));
    assert_eq!(give(ask(3, 1_000)).await?, slots(3, 100));
    assert_eq!(give(ask(3, 399)).await?, slots(0, 400));
    assert_eq!(give(ask(9, 600)).await?, slots(3, 400));
    world.pass(650);
    assert_eq!(give(ask(1, 1_000)).await?, slots(1, 50));
    // Nothing is saved up while nobody asks, and groups do not share.
    world.pass(10_000);
    assert_eq!(give(ask(2, 1_000)).await?, slots(2, 0));
    assert_eq!(give(ask(1, 1_000)).await?, slots(1, 200));
    let other = GroupName::new("audit")?;
    assert_eq!(world.store.groups.slots(&topic, &other, ask(1, 0)).await?.count, 0);
    // No slot is given farther ahead than may be asked for.
    assert_eq!(give(ask(100, 60_000)).await?, slots(8, 300));
    Ok(())
}
