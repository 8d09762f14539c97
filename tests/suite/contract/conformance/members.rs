//! Members of a group: who is alive, who has demand, and how the others hear of it.

use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::message::{GroupName, TopicName};
use dwell::store::{Channel, Heartbeat, LiveMember, MemberState};
use tokio::sync::Notify;

use crate::support::{World, member};

const TTL: Duration = Duration::from_secs(10);

fn heartbeat(topic: &TopicName, group: &GroupName, has_demand: bool) -> Heartbeat {
    let state = MemberState { has_demand, waiting: 3, owned: 4, ..MemberState::default() };
    Heartbeat { topic: topic.clone(), group: group.clone(), state }
}

fn live(name: &str, has_demand: bool) -> LiveMember {
    LiveMember { id: member(name), has_demand }
}

/// One heartbeat for one group.
async fn beat(world: &World, name: &str, heartbeat: Heartbeat) -> Result<Vec<LiveMember>> {
    world.store.groups.heartbeat(&member(name), &[heartbeat], TTL).await.remove(0)
}

pub(super) async fn member_is_alive_until_its_ttl_passes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (topic, group) = (orders.descriptor.topic.clone(), GroupName::standard());
    let here = async |name: &str| beat(&world, name, heartbeat(&topic, &group, true)).await;
    assert_eq!(here("b").await?, [live("b", true)]);
    world.pass(6_000);
    assert_eq!(here("a").await?, [live("a", true), live("b", true)]);
    world.pass(4_000);
    assert_eq!(here("a").await?, [live("a", true)]);
    // Who was away for too long joins again, and other groups are none of its business.
    assert_eq!(here("b").await?, [live("a", true), live("b", true)]);
    // What is told of a member says when it was heard.
    world.pass(1_500);
    let heard = world.store.groups.members(&topic, &group, TTL).await?;
    let heard: Vec<_> = heard.into_iter().map(|report| (report.id, world.now().since(report.heard_at))).collect();
    let ago = Duration::from_millis(1_500);
    assert_eq!(heard, [(member("a"), ago), (member("b"), ago)]);
    let other = beat(&world, "c", heartbeat(&topic, &GroupName::new("other")?, true)).await?;
    assert_eq!(other, [live("c", true)]);
    Ok(())
}

pub(super) async fn one_call_records_the_heartbeats_of_many_groups(world: World) -> Result<()> {
    let group = GroupName::standard();
    let topics: Vec<TopicName> = (0..40).map(|n| TopicName::new(format!("t{n}"))).collect::<Result<_>>()?;
    // Every third has demand, and another member is in every second.
    let heartbeats: Vec<Heartbeat> =
        topics.iter().enumerate().map(|(n, topic)| heartbeat(topic, &group, n % 3 == 0)).collect();
    for topic in topics.iter().step_by(2) {
        beat(&world, "b", heartbeat(topic, &group, true)).await?;
    }
    let answers = world.store.groups.heartbeat(&member("a"), &heartbeats, TTL).await;
    assert_eq!(answers.len(), 40);
    for (n, answer) in answers.into_iter().enumerate() {
        let mut expected = vec![live("a", n % 3 == 0)];
        expected.extend((n % 2 == 0).then(|| live("b", true)));
        assert_eq!(answer?, expected, "{n}");
    }
    Ok(())
}

pub(super) async fn join_leave_and_demand_are_announced(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (topic, group) = (orders.descriptor.topic.clone(), GroupName::standard());
    let heard = Arc::new(Notify::new());
    let channel = Channel::Members(topic.clone(), group.clone());
    let _wake = world.store.backend.wakes().subscribe(channel, heard.clone());
    // A subscription wakes once when it stands, so that nothing before it is missed.
    if world.store.backend.describe().kind == "redis" {
        heard.notified().await;
    }
    let say = async |has_demand: bool| beat(&world, "a", heartbeat(&topic, &group, has_demand)).await;
    assert_eq!(say(true).await?, [live("a", true)]);
    heard.notified().await;
    assert_eq!(say(true).await?, [live("a", true)]);
    assert_eq!(say(false).await?, [live("a", false)]);
    heard.notified().await;
    assert_eq!(say(true).await?, [live("a", true)]);
    heard.notified().await;
    world.store.groups.leave(&topic, &group, &member("a")).await?;
    heard.notified().await;
    world.store.groups.leave(&topic, &group, &member("a")).await?;
    assert_eq!(beat(&world, "b", heartbeat(&topic, &group, true)).await?, [live("b", true)]);
    Ok(())
}
