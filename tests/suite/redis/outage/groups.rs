//! Groups that were created after messages were pushed, when the journal gives those messages back.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::broker::{GroupRequest, ReserveRequest};
use dwell::model::error::Result;
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::store::{Expected, Pushed};

use super::Dwell;
use super::journal::journaled;
use crate::support::{Proxy, scratch};

impl Dwell {
    async fn create_group(&self, name: &str, copy_of: Option<GroupName>) -> Result<()> {
        let request = GroupRequest { copy_of, ..GroupRequest::default() };
        self.broker().create_group(&TopicName::new("orders")?, &GroupName::new(name)?, request).await.map(drop)
    }

    /// The messages that a group gets: so many, and then no more for a moment.
    async fn reserved(&self, group: &str, count: usize) -> Result<BTreeSet<String>> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::new(group)?);
        let mut got = BTreeSet::new();
        loop {
            let wait = Duration::from_millis(if got.len() < count { 20_000 } else { 300 });
            let request = ReserveRequest { max: 100, wait, visibility_timeout: None };
            let deliveries = self.broker().reserve(&topic, &group, request).await?;
            if deliveries.is_empty() {
                return Ok(got);
            }
            got.extend(deliveries.iter().map(|delivery| delivery.message.id.to_string()));
        }
    }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn restore_gives_a_group_only_its_own_messages() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "acked").await?;
    dwell.delivers("orders", &["acked"]).await?;
    dwell.create_group("fresh", None).await?;
    dwell.push_one("orders", "waits").await?;
    dwell.create_group("copy", Some(GroupName::new("fresh")?)).await?;
    dwell.push_one("orders", "last").await?;
    assert_eq!(dwell.reserved("copy", 2).await?, set(&["last", "waits"]));
    dwell.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.recovered().await?;
    dwell.delivers("orders", &["last", "waits"]).await?;
    assert_eq!(dwell.reserved("fresh", 2).await?, set(&["last", "waits"]));
    assert!(dwell.reserved("copy", 2).await?.is_superset(&set(&["last", "waits"])));
    dwell.close().await
}

/// A message that is in flight in one group, and was rescheduled in the other one by the only broker that is left.
async fn loss_of_two_versions(is_pushed_again: bool) -> Result<()> {
    let mut outage = journaled().await?;
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let beside = outage.dwell_in(dir.path(), proxy.url(), false).await?;
    beside.push_one("orders", "first").await?;
    beside.delivers("orders", &["first"]).await?;
    beside.create_group("in-flight", None).await?;
    beside.push_one("orders", "m").await?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.reserved("in-flight", 1).await?, set(&["m"]));
    let (topic, id) = (TopicName::new("orders")?, MessageId::new("m")?);
    let due = Due::In(Duration::from_secs(3_600));
    dwell.broker().reschedule(&topic, &id, None, due, Expected::default()).await?;
    if is_pushed_again {
        let again = NewMessage::new("m").id(id);
        assert_eq!(
            dwell.broker().push(&topic, again).await?.pushed,
            Pushed::Duplicate,
            "so this broker promises it too"
        );
    }
    beside.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    dwell.recovered().await?;
    assert_eq!(dwell.reserved("in-flight", 1).await?, set(&["m"]));
    dwell.close().await
}

#[tokio::test]
async fn restore_gives_each_group_the_version_that_it_had() -> Result<()> {
    loss_of_two_versions(false).await
}

#[tokio::test]
async fn restore_gives_each_group_the_version_that_a_duplicate_met() -> Result<()> {
    loss_of_two_versions(true).await
}
