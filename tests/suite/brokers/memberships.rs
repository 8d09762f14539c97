//! How many groups one broker is a member of.

use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::gate::{Identity, Trust};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::topic::Settings;

use crate::support::{Running, World, kind_of, stories};

stories! { group_memberships_are_limited_and_freed_by_leaving, one_token_leaves_memberships_to_others }

const IDLE: Duration = Duration::from_secs(60);

/// Makes this broker a member of the group of a topic with so many partitions.
async fn join(world: &World, broker: &Broker, name: &str, partitions: u16) -> Result<()> {
    let topic = TopicName::new(name)?;
    let partitions = partitions.try_into().map_err(|_| Error::bug("no partitions"))?;
    broker.declare(topic.clone(), Settings { partitions, ..Settings::default() }).await?;
    let request = ReserveRequest { max: 1, wait: Duration::ZERO, visibility_timeout: None };
    world.as_time_passes(broker.reserve(&topic, &GroupName::standard(), request)).await.map(drop)
}

async fn group_memberships_are_limited_and_freed_by_leaving(world: World) -> Result<()> {
    let options = Options { member_partitions: 8, idle_timeout: IDLE, ..Options::default() };
    let running = Running::start(&world, options)?;
    let broker = &running.broker;
    for name in ["a", "b"] {
        join(&world, broker, name, 4).await?;
    }
    // Those that it is a member of already are served.
    join(&world, broker, "a", 4).await?;
    let refused = join(&world, broker, "small", 1).await;
    assert!(refused.as_ref().is_err_and(|error| error.detail().contains("8 are the limit")), "{refused:?}");
    assert_eq!(kind_of(refused), Some(Kind::Full));
    broker.delete_topic(&TopicName::new("a")?).await?;
    join(&world, broker, "late", 4).await?;
    assert_eq!(kind_of(join(&world, broker, "later", 8).await), Some(Kind::Full));
    // Nobody asks any more, so they are left.
    world
        .until("there is room again", async || {
            world.settled().await;
            world.pass(1_000);
            Ok(join(&world, broker, "later", 8).await.is_ok())
        })
        .await?;
    running.stop().await;
    Ok(())
}

/// One token has its share, and what it does not use any more ends when it, or another one, needs the room.
async fn one_token_leaves_memberships_to_others(world: World) -> Result<()> {
    let options = Options { member_partitions: 10, idle_timeout: IDLE, ..Options::default() };
    let running = Running::start(&world, options)?;
    let broker = &running.broker;
    let [many, few] = ["many", "few"].map(|name| Identity::new(name.into(), Trust::Known));
    let join =
        async |who: &Identity, name: &str, partitions| who.clone().scope(join(&world, broker, name, partitions)).await;
    for n in 0..8 {
        join(&many, &format!("a{n}"), 1).await?;
    }
    let refused = join(&many, "a8", 1).await;
    assert!(refused.as_ref().is_err_and(|error| error.detail().contains("8 are its share")), "{refused:?}");
    join(&few, "b0", 2).await?;
    assert_eq!(kind_of(join(&few, "b1", 1).await), Some(Kind::Full), "all are used");
    // A moment later nobody asks in them any more.
    let is_room = async |who: &Identity, name: &str, partitions| {
        let joined = async || {
            world.settled().await;
            world.pass(1_000);
            Ok(join(who, name, partitions).await.is_ok())
        };
        world.until("there is room", joined).await
    };
    is_room(&few, "b2", 4).await?;
    is_room(&many, "a9", 4).await?;
    running.stop().await;
    Ok(())
}
