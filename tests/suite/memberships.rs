//! How many groups one broker is a member of.

use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::topic::Settings;

use crate::support::{Running, World, kind_of, stories};

stories! { group_memberships_are_limited_and_freed_by_leaving }

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
