//! On a Redis Cluster: slots move under load, and a primary is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, GroupName, Message, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, GroupPartition, Settings};
use dwell::store::{Acquired, Channel, MemberId, Settlement};
use tokio::sync::Notify;

use crate::support::{Cluster, LEASE, World, eventually, up_to};

const TIMEOUT: Duration = Duration::from_millis(500);

/// A topic of eight partitions, whose pushes are counted.
struct Load {
    world: World,
    descriptor: Descriptor,
    stored: BTreeMap<Partition, u64>,
    refused: BTreeMap<Partition, Vec<Error>>,
    /// The latest push that was refused.
    last_refused: BTreeMap<Partition, u64>,
    /// Those of which two pushes in a row were refused: a busy machine may be late with one.
    stalled: BTreeSet<Partition>,
    pushes: u64,
}

impl Load {
    async fn on(cluster: &Cluster, timeout: Duration) -> Result<Load> {
        let world = World::redis_at(cluster.url(), timeout).await?;
        let descriptor = Descriptor::new(TopicName::new("orders")?, Settings::default());
        let descriptor = world.store.topics.create(&descriptor).await?;
        Ok(Load {
            world,
            descriptor,
            stored: BTreeMap::new(),
            refused: BTreeMap::new(),
            last_refused: BTreeMap::new(),
            stalled: BTreeSet::new(),
            pushes: 0,
        })
    }

    fn message(&self) -> Result<Message> {
        let mut new = NewMessage::new("close");
        new.id = Some(MessageId::new(format!("m{}", self.pushes))?);
        new.accept(self.world.store.backend.clock().now())
    }

    /// One push to each partition, all at the same time.
    async fn round(&mut self) -> Result<()> {
        self.pushes += 1;
        let messages = [self.message()?];
        let (store, descriptor) = (&self.world.store, &self.descriptor);
        let pushed = descriptor.partitions().map(async |partition| {
            let call = crate::support::new_call(&*store.backend, 1);
            (partition, store.messages.push(descriptor, partition, &call, Conflict::Keep, &messages).await)
        });
        for (partition, answer) in futures_util::future::join_all(pushed).await {
            match answer {
                Ok(_) => *self.stored.entry(partition).or_default() += 1,
                Err(error) => {
                    assert!(!error.detail().contains("CROSSSLOT"), "{error}");
                    assert!(matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown), "{error}");
                    self.refused.entry(partition).or_default().push(error);
                    if self.last_refused.insert(partition, self.pushes) == Some(self.pushes - 1) {
                        self.stalled.insert(partition);
                    }
                }
            }
        }
        Ok(())
    }

    fn group_partition(&self, partition: Partition) -> GroupPartition {
        GroupPartition { topic: self.descriptor.topic.clone(), partition, group: GroupName::standard() }
    }

    /// Nothing that was stored is lost, and what was refused was not stored, unless nobody could know.
    async fn holds(&self) -> Result<()> {
        for partition in self.descriptor.partitions() {
            let unknown = self
                .refused
                .get(&partition)
                .map_or(0, |errors| errors.iter().filter(|error| error.kind() == Kind::OutcomeUnknown).count() as u64);
            let stats = self.world.store.reads.stats(&[self.group_partition(partition)]).await?;
            let (there, stored) = (
                stats[0].scheduled + stats[0].ready + stats[0].in_flight,
                self.stored.get(&partition).copied().unwrap_or(0),
            );
            assert!((stored..=stored + unknown).contains(&there), "{partition}: {stored} stored, {there} there");
        }
        Ok(())
    }
}

/// Sends a datagram to each of some members until it is received. Their channels are spread over all nodes.
pub(crate) async fn datagrams_are_received(from: &World, to: &World) -> Result<()> {
    for n in 0..6 {
        let member = MemberId::fresh(&format!("broker-{n}"));
        let mut datagrams = to.store.backend.wakes().datagrams(&member);
        let datagram = bytes::Bytes::from(format!("for {n}"));
        let sent =
            async || Ok(from.store.groups.send(&member, datagram.clone()).await.ok().filter(|received| *received));
        eventually("somebody receives datagrams", sent).await?;
        assert_eq!(datagrams.next().await.bytes, datagram);
        drop(datagrams);
        let gone =
            async || Ok(from.store.groups.send(&member, datagram.clone()).await.ok().filter(|received| !received));
        eventually("nobody receives datagrams any more", gone).await?;
    }
    Ok(())
}

#[tokio::test]
async fn brokers_on_a_cluster_reach_each_other_at_every_node() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (from, to) = (World::redis_at(cluster.url(), TIMEOUT).await?, World::redis_at(cluster.url(), TIMEOUT).await?);
    datagrams_are_received(&from, &to).await
}

#[tokio::test]
async fn slot_migration_under_load_loses_nothing() -> Result<()> {
    let cluster = Cluster::start(0).await?;
    let mut load = Load::on(&cluster, 10 * TIMEOUT).await?;
    let (from, slot) = cluster.place_of("{dwell:orders:3}").await?;
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.primaries[from], &cluster.primaries[to]);
    for _ in 0..20 {
        load.round().await?;
    }
    let generation = load.descriptor.generation;
    let member = MemberId::fresh("owner");
    let acquired =
        load.world.store.leases.acquire(&load.group_partition(Partition(3)), &member, LEASE, generation).await?;
    let Acquired::Owned(mut owner) = acquired else { return Err(Error::bug("the group_partition is not free")) };
    let taken = owner.reserve(up_to(5)).await?;
    assert_eq!(taken.messages.len(), 5);
    target.server.ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id)).await?;
    source.server.ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id)).await?;
    load.round().await?;
    let keys: Vec<String> = source.server.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).await?;
    assert!(keys.len() >= 4, "{keys:?}");
    // Half of the partition is elsewhere while this round is pushed, and then all of it.
    for (n, key) in keys.iter().enumerate() {
        source.server.ask::<redis::Value>(&format!("MIGRATE 127.0.0.1 {} {key} 0 1000", target.port)).await?;
        if n == keys.len() / 2 {
            load.round().await?;
        }
    }
    load.round().await?;
    let settled =
        Settlement { acked: taken.messages.into_iter().map(|message| message.id).collect(), ..Settlement::default() };
    let notify = Arc::new(Notify::new());
    let _wake =
        load.world.store.backend.wakes().subscribe(Channel::head(&load.group_partition(Partition(3))), notify.clone());
    let moving = async {
        for node in [target, source] {
            node.server.ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {}", target.id)).await?;
        }
        Ok(())
    };
    futures_util::future::try_join(moving, owner.settle(&settled)).await?;
    *load.stored.entry(Partition(3)).or_default() -= 5;
    for _ in 0..20 {
        load.round().await?;
    }
    while owner.reserve(up_to(1_000)).await?.head.is_some() {}
    // The first may be that of the subscription itself.
    for _ in 0..2 {
        eventually("announcements come from where the slot is now", async || {
            load.round().await?;
            owner.reserve(up_to(1_000)).await?;
            Ok(tokio::time::timeout(TIMEOUT / 10, notify.notified()).await.ok())
        })
        .await?;
    }
    assert_eq!(cluster.place_of("{dwell:orders:3}").await?.1, slot);
    assert!(target.server.keys().await?.iter().any(|key| key == "{dwell:orders:3}:default:h"));
    // Only the partition that moved was ever refused, and only while it was half moved.
    for (partition, errors) in &load.refused {
        assert!(*partition == Partition(3) && errors.len() <= 3, "{partition}: {}", errors.len());
        assert!(errors.iter().all(|error| error.detail().contains("TRYAGAIN")), "{:?}", errors.last());
    }
    load.holds().await
}

#[tokio::test]
async fn killed_primary_stalls_only_its_partitions() -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let mut load = Load::on(&cluster, TIMEOUT).await?;
    for _ in 0..20 {
        load.round().await?;
    }
    let mut of_the_killed = Vec::new();
    for partition in load.descriptor.partitions() {
        if cluster.place_of(&format!("{{dwell:orders:{}}}", partition.0)).await?.0 == 0 {
            of_the_killed.push(partition);
        }
    }
    assert!(!of_the_killed.is_empty() && of_the_killed.len() < 8, "{of_the_killed:?}");
    for node in &cluster.primaries {
        node.server.ask::<u64>("WAIT 1 1000").await?;
    }
    cluster.primaries[0].server.kill()?;
    let before = load.stored.clone();
    eventually("its replica is promoted and its partitions go on", async || {
        load.round().await?;
        Ok(of_the_killed.iter().all(|partition| load.stored.get(partition) > before.get(partition)).then_some(()))
    })
    .await?;
    assert_eq!(load.stalled, of_the_killed.into_iter().collect(), "{:?}", load.refused);
    assert!(load.world.store.backend.losses().borrow().count >= 1, "a failover is suspected to have lost something");
    load.holds().await
}

#[tokio::test]
async fn cluster_node_as_standalone_is_refused_with_advice() -> Result<()> {
    let cluster = Cluster::start(0).await?;
    let url = format!("redis://127.0.0.1:{}", cluster.primaries[0].port);
    let world = World::redis_at(url, TIMEOUT).await?;
    let mut said = Vec::new();
    for n in 0..20 {
        said.extend(world.topic(&format!("topic-{n}")).await.err().map(|error| error.detail().to_owned()));
    }
    assert!(said.iter().any(|error| error.contains("redis+cluster://")), "{said:?}");
    Ok(())
}
