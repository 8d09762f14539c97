//! More members than partitions, members without consumers, and several topics in one sidecar.

use std::time::Instant;

use dwell::model::error::Result;
use dwell::model::partition::hash;
use rustix::process::Signal;

use super::fleet::{Fleet, ORDERS, declare};
use super::load::Load;
use super::sidecar::Sidecar;
use crate::support::{RedisServer, eventually};

/// How many of these sidecars say that they wait for a partition.
async fn waiting(members: &[Sidecar]) -> Result<Vec<usize>> {
    let mut waiting = Vec::new();
    for (index, member) in members.iter().enumerate() {
        if member.metric("dwell_members_waiting", "").await? == 1.0 {
            waiting.push(index);
        }
    }
    Ok(waiting)
}

#[tokio::test]
async fn standby_member_takes_over() -> Result<()> {
    let (_fleet, members) = Fleet::with(2, &["a", "b", "c"]).await?;
    let load = Load::start(&members);
    members[0].shared(ORDERS, &[1, 1]).await?;
    let extra = eventually("one of three waits", async || {
        let waiting = waiting(&members).await?;
        Ok((waiting.len() == 1).then(|| waiting[0]))
    })
    .await?;
    assert_eq!(members[extra].metric("dwell_leases_owned", "").await?, 0.0);
    load.flows(100).await?;

    let (leaves, stays) = (members[(extra + 1) % 3].clone(), members[extra].clone());
    load.leave(&leaves);
    let since = Instant::now();
    leaves.signal(Signal::TERM)?;
    eventually("the one that waited owns", async || {
        Ok((stays.metric("dwell_leases_owned", "").await? == 1.0).then_some(()))
    })
    .await?;
    println!("a waiting member took over in {:?}", since.elapsed());
    eventually("nobody waits", async || Ok((stays.metric("dwell_members_waiting", "").await? == 0.0).then_some(())))
        .await?;
    assert!(leaves.ended().await?.success());
    load.drained(&stays, |book| book.is_exactly_once()).await
}

#[tokio::test]
async fn idle_member_leaves_and_rejoins_on_demand() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let idle = [("DWELL_GROUP_IDLE_TIMEOUT", "1s")];
    let (a, b) = (fleet.start_with("a", &idle).await?, fleet.start_with("b", &idle).await?);
    declare(&a, ORDERS, 8).await?;
    let load = Load::quiet(std::slice::from_ref(&a));
    a.shared_by(&[&b], ORDERS, &[4, 4]).await?;
    // From here on nobody asks b.
    a.shared(ORDERS, &[8]).await?;
    assert_eq!(b.metric("dwell_leases_owned", "").await?, 0.0);
    let members = format!("ZCARD {{dwell:members-{}}}:orders:default", hash(b"orders/default") % 16);
    eventually("it has left", async || Ok((fleet.redis.ask::<usize>(&members).await? == 1).then_some(()))).await?;
    let back = a.shared_by(&[&b], ORDERS, &[4, 4]).await?;
    println!("was back in {back:?}");
    load.drained(&a, |book| book.is_exactly_once()).await
}

#[tokio::test]
async fn two_topics_are_assigned_independently() -> Result<()> {
    let (_fleet, members) = Fleet::with(8, &["a", "b"]).await?;
    declare(&members[0], "mails", 3).await?;
    members[0].reserve("mails", 1, "0s").await?;
    members[0].reserve(ORDERS, 1, "0s").await?;
    members[0].shared("mails", &[3]).await?;
    members[0].shared(ORDERS, &[8]).await?;
    // The second sidecar has consumers of one of the topics only.
    members[0].shared_by(&[&members[0], &members[1]], ORDERS, &[4, 4]).await?;
    members[0].shared("mails", &[3]).await?;
    assert_eq!(members[0].metric("dwell_leases_owned", "topic=\"mails\"").await?, 3.0);
    assert_eq!(members[1].metric("dwell_leases_owned", "topic=\"mails\"").await?, 0.0);
    Ok(())
}
