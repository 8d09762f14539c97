//! The embedded store: the contract on sled, for one process that owns all partitions.
//!
//! Each pair has its own zset (ids by due time) and hash (id to body), reservations and charged attempts, and a zset and
//! a hash of dead messages. All of it lies in one tree, so that whatever changes together is one atomic batch, made
//! under the lock of its partition. Leases live in memory: opening the store is a takeover, and what older epochs held
//! reserved waits for recovery.
//!
//! A verb that answers a producer or a consumer answers after the group commit. Calls that only this process relies on
//! (acquire, recover, reserve, start) do not wait for it: sled's log is a sequence, so a later commit makes them durable
//! too, and without one they are lost together with the process that relied on them.
//!
//! sled's calls run where they are made: they touch memory, seldom the disk. Only the commit waits, elsewhere.

mod verify;
mod cancelled;
mod commit;
mod changes;
mod group_copy;
mod dead;
mod forecast;
mod hash;
mod keys;
mod lease;
mod get_message;
mod members;
mod topic_move;
mod open;
mod order;
mod owner;
mod pair;
mod push;
mod reservation;
mod put;
mod free_space;
mod scan;
mod schedules;
mod settle;
mod rate_slots;
mod tail;
mod topics;
mod bulk;
mod zset;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sled::{Batch, Tree};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::commit::Committer;
use self::members::Members;
use self::rate_slots::SlotBook;
use self::topics::Topics;
use super::{
    Acquired, Call, Cancelled, Channel, Claim, Copied, CopyCursor, DeadBounds, DeadCursor, DeadDropped, DeadPage,
    Description, Fired, Firing, Forecast, HealthSnapshot, Heartbeat, InFlightCursor, LiveMember, Loss, MemberId,
    MemberReport, MovedPage, Page, PartitionDepth, PartitionStats, Peeked, Pushed, Put, Renewal, Reschedule,
    Rescheduled, ScheduleChange, ScheduleRecord, SlotAsk, Slots, Spans, StoreClock, Tenant, VerifyCursor, VerifyPage,
    WaitingCursor, Wakes, Window, WindowPage,
};
use crate::model::error::{Error, Result};
use crate::model::limits::DISK_RESERVE_BYTES;
use crate::model::message::{Conflict, GroupName, Message, MessageId, ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::clock::Clock;
use crate::platform::disk::{Disk, free_bytes};
use crate::store;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::reservation::rewritten as reservation_rewritten;

/// The store of one process, in one directory. Owners that it handed out keep the directory open until they are dropped.
pub struct Embedded {
    inner: Arc<Inner>,
}

/// What the store and its owners share.
struct Inner {
    tree: Tree,
    dir: PathBuf,
    /// Bytes of its disk that are kept free.
    reserve_bytes: u64,
    clock: StoreClock,
    wakes: Wakes,
    losses: watch::Sender<Loss>,
    members: Members,
    slots: SlotBook,
    /// What the tree lies on. Every change goes through it.
    disk: Arc<Disk>,
    committer: Committer,
    /// Read for every verb and held to its end, so that after an update or a deletion has answered nothing happens under
    /// the older descriptor. Taken before the lock of a partition.
    topics: RwLock<Topics>,
}

impl Embedded {
    /// Opens the store in `dir`, making it if it is not there. Time comes from `clock` alone.
    ///
    /// # Errors
    /// `Conflict` when another process uses the directory, `Unavailable` when the disk does not let it be opened, and
    /// `Corrupt` when it cannot be read; the detail says what to do.
    pub fn open(dir: &Path, clock: Clock) -> Result<Embedded> {
        open::guarded(dir, || {
            let (disk, tail) = open::open(dir)?;
            let tree = disk.tree().clone();
            let topics = Topics::load(&tree)?;
            scan::count(&tree, &topics)?;
            let disk = Arc::new(disk);
            let committer = Committer::start(disk.clone(), tail, dir)?;
            let inner = Inner {
                tree,
                dir: dir.to_owned(),
                reserve_bytes: DISK_RESERVE_BYTES,
                clock: StoreClock::new(clock),
                wakes: Wakes::default(),
                // One process that trusts its disk has nothing to suspect.
                losses: watch::Sender::default(),
                members: Members::default(),
                slots: SlotBook::default(),
                disk,
                committer,
                topics: RwLock::new(topics),
            };
            Ok(Embedded { inner: Arc::new(inner) })
        })
    }
}

impl Inner {
    /// The time at which something is due. Not the store clock's, which is rounded up for those who fix due times.
    fn now(&self) -> Timestamp {
        self.clock.local().now()
    }

    fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        // A panic of another thread leaves nothing half done: memory changes after the tree did, all at once.
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn topics_mut(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a batch, all or nothing, without waiting for the disk.
    ///
    /// # Errors
    /// `Unavailable` when sled failed: a batch that it did not finish is not there after a restart.
    fn apply(&self, batch: Batch) -> Result<()> {
        self.committer.check()?;
        self.disk.apply(batch).map_err(|error| self.committer.fail(&self.dir, &error))
    }

    /// The identity of the data; an offer is taken when there is none.
    fn store_id(&self, offered: &str) -> Result<String> {
        // One call at a time, so that all are answered the same.
        let _one = self.topics_mut();
        let there = self.tree.get(keys::identity()).map_err(|error| self.committer.fail(&self.dir, &error))?;
        if let Some(there) = there {
            return String::from_utf8(there.to_vec()).map_err(|_| Error::corrupt("the store's identity is no text"));
        }
        let mut batch = Batch::default();
        batch.insert(keys::identity(), offered);
        self.apply(batch)?;
        Ok(offered.to_owned())
    }

    /// Waits until what was applied survives a power cut.
    ///
    /// # Errors
    /// `OutcomeUnknown` when the disk failed: it was applied, but perhaps it is not there after a restart.
    async fn commit(&self) -> Result<()> {
        self.committer.commit().await.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))
    }

    /// Deletes every entry whose key begins so, a page at a time. Nothing may write there any more.
    async fn remove_all(&self, prefix: &[u8]) -> Result<()> {
        while let Some(page) = scan::page_to_remove(&self.tree, prefix)? {
            self.apply(page)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[async_trait]
impl store::Backend for Embedded {
    fn describe(&self) -> Description {
        let durability = "a 201 is fsynced (sled flush and fdatasync, in group commit): it survives the death of the \
                          process and a power cut, but not the loss of this disk";
        let location = self.inner.dir.display().to_string();
        Description { kind: "embedded", location, durability: durability.to_owned() }
    }

    fn clock(&self) -> &StoreClock {
        &self.inner.clock
    }

    fn wakes(&self) -> &Wakes {
        &self.inner.wakes
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        self.inner.losses.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }

    async fn ping(&self) -> Result<()> {
        self.inner.committer.check()
    }

    async fn ready(&self) -> Result<Option<String>> {
        self.inner.check_storable().map(|()| None)
    }

    async fn close(&self) -> Result<()> {
        self.inner.committer.commit().await
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        let identity = self.inner.store_id(offered)?;
        self.inner.commit().await?;
        Ok(identity)
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        HealthSnapshot { free_bytes: free_bytes(&self.inner.dir), ..HealthSnapshot::default() }
    }
}

#[async_trait]
impl store::Topics for Embedded {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        Ok(self.inner.topics().live(topic).map(|topic| topic.descriptor().clone()))
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        Ok(self.inner.topics().all().map(|topic| topic.descriptor().topic.clone()).collect())
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        wanted.check()?;
        let now = self.inner.now();
        let made = self.inner.topics_mut().create(&self.inner, wanted, now)?;
        self.inner.commit().await?;
        Ok(made)
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        wanted.check()?;
        let now = self.inner.now();
        let (updated, gone) = self.inner.topics_mut().update(&self.inner, wanted, now)?;
        self.inner.commit().await?;
        self.inner.wakes.wake(&Channel::Changed(wanted.topic.clone()));
        for place in gone {
            self.inner.remove_all(&place.prefix()).await?;
        }
        Ok(updated)
    }

    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()> {
        self.inner.topics().publish_settings(descriptor)
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<()> {
        self.inner.delete(descriptor, false).await
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()> {
        self.inner.delete(descriptor, true).await
    }
}

#[async_trait]
impl store::Messages for Embedded {
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        self.inner.push(descriptor, partition, call, messages).await
    }

    async fn put(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        self.inner.put(descriptor, partition, call, conflict, messages).await
    }

    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        _call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        self.inner.cancel(descriptor, partition, id).await
    }

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        self.inner.reschedule(descriptor, partition, call, reschedule).await
    }
}

#[async_trait]
impl store::Reads for Embedded {
    async fn peek(&self, pair: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        self.inner.peek(pair, id)
    }

    async fn waiting(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        self.inner.waiting(pair, window, after, limit)
    }

    async fn in_flight(
        &self,
        pair: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        self.inner.in_flight(pair, after, limit)
    }

    async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        pairs.iter().map(|pair| self.inner.stats(pair)).collect()
    }

    async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        let mut depths = Vec::with_capacity(pairs.len());
        for pair in pairs {
            depths.push(self.inner.depth(pair, within).await?);
        }
        Ok(depths)
    }

    async fn forecast(&self, pairs: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        let mut forecasts = Vec::with_capacity(pairs.len());
        for pair in pairs {
            forecasts.push(self.inner.forecast(pair, spans).await?);
        }
        Ok(forecasts)
    }

    async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        self.inner.window(pair, window, after, limit).await
    }
}

#[async_trait]
impl store::DeadLetters for Embedded {
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        self.inner.dead(pair, after, limit)
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.inner.redrive(pair, ids).await
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.inner.purge(pair, ids).await
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        self.inner.drop_dead(pair, bounds).await
    }
}

#[async_trait]
impl store::CronJobs for Embedded {
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>> {
        self.inner.schedule_places()
    }

    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>> {
        self.inner.schedules(topic, partition)
    }

    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool> {
        self.inner.put_schedule(descriptor, partition, change).await
    }

    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool> {
        self.inner.remove_schedule(topic, partition, name).await
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        self.inner.fire(descriptor, partition, firing).await
    }
}

#[async_trait]
impl store::Groups for Embedded {
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        let beat = |Heartbeat { topic, group, state }: &Heartbeat| {
            let channel = Channel::Members(topic.clone(), group.clone());
            let (is_news, live) = self.inner.members.heartbeat(&channel, member, *state, self.inner.clock.now(), ttl);
            if is_news {
                self.inner.wakes.wake(&channel);
            }
            Ok(live)
        };
        heartbeats.iter().map(beat).collect()
    }

    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>> {
        let channel = Channel::Members(topic.clone(), group.clone());
        Ok(self.inner.members.read(&channel, self.inner.clock.now(), ttl))
    }

    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        let channel = Channel::Members(topic.clone(), group.clone());
        if self.inner.members.leave(&channel, member) {
            self.inner.wakes.wake(&channel);
        }
        Ok(())
    }

    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        Ok(self.inner.slots.give(topic, group, ask, self.inner.clock.local().instant()))
    }

    async fn send(&self, _to: &MemberId, _datagram: Bytes) -> Result<bool> {
        Ok(false)
    }
}

#[async_trait]
impl store::Leases for Embedded {
    async fn acquire(
        &self,
        pair: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        owner::acquire(&self.inner, pair, member, ttl, generation)
    }

    /// No other process owns anything here.
    async fn tenants(&self, pairs: &[GroupPartition]) -> Result<Vec<Option<Tenant>>> {
        Ok(vec![None; pairs.len()])
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        claims.iter().map(|claim| self.inner.renew(member, claim, ttl)).collect()
    }
}

#[async_trait]
impl store::Maintenance for Embedded {
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        self.inner.copy(descriptor, partition, group, from).await
    }

    async fn audit(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        self.inner.audit(pair, from, repair).await
    }

    async fn move_page(&self, _: &Descriptor, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage> {
        self.inner.move_page(pair, to).await
    }
}
