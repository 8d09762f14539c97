//! Announcements: who sleeps until a head is due is woken when an earlier message arrives or a lease is given up, and
//! who waits for its next heartbeat when a member joins or leaves.
//!
//! A wake may be lost and may be false; it only shortens a sleep. A lost one costs at most a third of the lease ttl, or
//! one heartbeat.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::groups::MemberId;
use crate::model::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_BYTES_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::GroupPartition;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// An earlier head in a partition.
    Head(TopicName, Partition),
    /// A lease in a partition that was given up.
    Release(TopicName, Partition),
    /// A change of a topic: its settings, its groups, whether they are paused.
    Changed(TopicName),
    Members(TopicName, GroupName),
    CronJobs,
    Member(MemberId),
}

type Sleepers = HashMap<Channel, Vec<Arc<dyn Sleeper>>>;

/// Woken by announcements.
pub trait Sleeper: fmt::Debug + Send + Sync {
    fn wake(&self, channel: &Channel);
}

impl Sleeper for Notify {
    fn wake(&self, _: &Channel) {
        self.notify_one();
    }
}

#[derive(Debug, Default)]
pub struct Releases {
    partitions: Mutex<BTreeSet<Partition>>,
    notify: Notify,
}

impl Releases {
    pub async fn next(&self) -> Partition {
        loop {
            let next = self.partitions().pop_first();
            match next {
                Some(partition) => return partition,
                None => self.notify.notified().await,
            }
        }
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeSet<Partition>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sleeper for Releases {
    fn wake(&self, channel: &Channel) {
        if let Channel::Release(_, partition) = channel {
            self.partitions().insert(*partition);
            self.notify.notify_one();
        }
    }
}

impl Channel {
    pub fn head(group_partition: &GroupPartition) -> Channel {
        Channel::Head(group_partition.topic.clone(), group_partition.partition)
    }

    pub fn release(group_partition: &GroupPartition) -> Channel {
        Channel::Release(group_partition.topic.clone(), group_partition.partition)
    }

    /// Everything announced in the same place. Changes of a topic are announced in its first partition.
    pub fn beside(&self) -> Vec<Channel> {
        let (topic, partition) = match self {
            Channel::Head(topic, partition) | Channel::Release(topic, partition) => (topic, *partition),
            Channel::Changed(topic) => (topic, Partition(0)),
            Channel::Members(..) | Channel::CronJobs | Channel::Member(_) => return vec![self.clone()],
        };
        let mut all = vec![Channel::Head(topic.clone(), partition), Channel::Release(topic.clone(), partition)];
        if partition == Partition(0) {
            all.push(Channel::Changed(topic.clone()));
        }
        all
    }
}

#[derive(Debug, Clone)]
pub struct Wakes {
    sleepers: Arc<Mutex<Sleepers>>,
    /// Counts changes of the places where someone listens, for a store that has to subscribe to each.
    changes: watch::Sender<u64>,
    inbox: Inbox,
}

impl Default for Wakes {
    fn default() -> Wakes {
        Wakes { sleepers: Arc::default(), changes: watch::Sender::new(0), inbox: Inbox::default() }
    }
}

impl Wakes {
    /// Wakes `sleeper` until the returned guard is dropped.
    pub fn subscribe(&self, channel: Channel, sleeper: Arc<dyn Sleeper>) -> Wake {
        let mut sleepers = self.lock();
        let first = is_silent(&sleepers, &channel);
        // Mostly there is one, and there may be thousands of channels.
        sleepers.entry(channel.clone()).or_insert_with(|| Vec::with_capacity(1)).push(sleeper.clone());
        drop(sleepers);
        if first {
            self.changed();
        }
        Wake { wakes: self.clone(), channel, sleeper }
    }

    pub fn datagrams(&self, member: &MemberId) -> Datagrams {
        self.inbox.open(self.subscribe(Channel::Member(member.clone()), Arc::new(Notify::new())))
    }

    /// A datagram for this process has arrived. False if it was dropped: there is no room, or nobody receives it.
    pub fn deliver(&self, datagram: Bytes) -> bool {
        self.inbox.put(datagram)
    }

    pub fn wake(&self, channel: &Channel) {
        if let Some(sleepers) = self.lock().get(channel) {
            sleepers.iter().for_each(|sleeper| sleeper.wake(channel));
        }
    }

    pub fn channels(&self) -> Vec<Channel> {
        self.lock().keys().cloned().collect()
    }

    /// Changes whenever the places do where one of [`Wakes::channels`] is announced.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nobody listens in that place. The owner and the waiting members of a partition share one, so that a change
/// of owner costs a store that subscribes to it nothing.
fn is_silent(sleepers: &Sleepers, channel: &Channel) -> bool {
    !channel.beside().iter().any(|beside| sleepers.contains_key(beside))
}

/// Until this is dropped, its owner is woken.
#[derive(Debug)]
pub struct Wake {
    wakes: Wakes,
    channel: Channel,
    sleeper: Arc<dyn Sleeper>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        let mut sleepers = self.wakes.lock();
        if let Entry::Occupied(mut here) = sleepers.entry(self.channel.clone()) {
            here.get_mut().retain(|sleeper| !std::ptr::addr_eq(Arc::as_ptr(sleeper), Arc::as_ptr(&self.sleeper)));
            if here.get().is_empty() {
                here.remove();
            }
        }
        // Frees the memory of many sleepers once they are gone.
        if sleepers.len() < sleepers.capacity() / 8 {
            sleepers.shrink_to_fit();
        }
        let gone = is_silent(&sleepers, &self.channel);
        drop(sleepers);
        if gone {
            self.wakes.changed();
        }
    }
}

/// Bytes that a datagram counts as, at least: one that is empty takes memory too.
const BYTES_MIN: usize = 512;

/// A datagram that has arrived. It takes its part of the bound until it is dropped.
#[derive(Debug)]
pub struct Datagram {
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub struct Datagrams {
    receiver: mpsc::UnboundedReceiver<Datagram>,
    pub(super) _wake: Wake,
}

impl Datagrams {
    pub async fn next(&mut self) -> Datagram {
        match self.receiver.recv().await {
            Some(datagram) => datagram,
            // Another receiver took this one's place.
            None => std::future::pending().await,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Inbox {
    sender: Arc<Mutex<Option<mpsc::UnboundedSender<Datagram>>>>,
    room: Arc<Semaphore>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { sender: Arc::default(), room: Arc::new(Semaphore::new(DATAGRAMS_BYTES_MAX)) }
    }
}

impl Inbox {
    pub(super) fn open(&self, wake: Wake) -> Datagrams {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Datagrams { receiver, _wake: wake }
    }

    /// Puts a datagram there. False if there is no room for it, or nobody takes it.
    pub(super) fn put(&self, bytes: Bytes) -> bool {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return false;
        }
        let size = u32::try_from(bytes.len().max(BYTES_MIN)).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().try_acquire_many_owned(size) else { return false };
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_some_and(|sender| sender.send(Datagram { bytes, _room: room }).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::model::error::Result;

    #[tokio::test]
    async fn sleeper_is_woken_until_it_unsubscribes() -> Result<()> {
        let (wakes, notify) = (Wakes::default(), Arc::new(Notify::new()));
        let channel = |n| Ok(Channel::Head(TopicName::new("orders")?, Partition(n)));
        let mut changes = wakes.changes();
        let wake = wakes.subscribe(channel(3)?, notify.clone());
        assert!(changes.has_changed().is_ok_and(|changed| changed));
        changes.mark_unchanged();
        wakes.wake(&channel(2)?);
        wakes.wake(&channel(3)?);
        notify.notified().await;
        drop(wake);
        assert!(wakes.channels().is_empty());
        assert!(changes.has_changed().is_ok_and(|changed| changed));
        Ok(())
    }

    #[tokio::test]
    async fn release_notifications_reach_one_subscriber_per_partition() -> Result<()> {
        let (wakes, releases) = (Wakes::default(), Arc::new(Releases::default()));
        let topic = TopicName::new("orders")?;
        let release = |n| Channel::Release(topic.clone(), Partition(n));
        let mut guards: Vec<_> = (0..3).map(|n| wakes.subscribe(release(n), releases.clone())).collect();
        wakes.wake(&release(2));
        wakes.wake(&release(2));
        wakes.wake(&Channel::Head(topic.clone(), Partition(1)));
        wakes.wake(&release(0));
        assert_eq!((releases.next().await, releases.next().await), (Partition(0), Partition(2)));
        assert!(releases.next().now_or_never().is_none());
        guards.pop();
        wakes.wake(&release(2));
        assert!(releases.next().now_or_never().is_none(), "it is not subscribed to any more");
        assert_eq!(wakes.channels().len(), 2);
        Ok(())
    }

    #[tokio::test]
    async fn combined_announcements_wake_separate_subscribers() -> Result<()> {
        let wakes = Wakes::default();
        let head = Channel::Head(TopicName::new("orders")?, Partition(3));
        let release = Channel::Release(TopicName::new("orders")?, Partition(3));
        assert_eq!((head.beside(), release.beside()), (vec![head.clone(), release.clone()], head.beside()));
        let (earlier, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let _releases = wakes.subscribe(release.clone(), released.clone());
        let changes = wakes.changes();
        let heads = wakes.subscribe(head.clone(), earlier.clone());
        wakes.wake(&head);
        earlier.notified().await;
        assert!(released.notified().now_or_never().is_none());
        wakes.wake(&release);
        released.notified().await;
        drop(heads);
        assert_eq!((wakes.channels(), changes.has_changed().ok()), (vec![release], Some(false)));
        Ok(())
    }

    #[test]
    fn inbox_is_fifo_and_bounded() {
        let wakes = Wakes::default();
        assert!(!wakes.deliver(Bytes::from_static(b"nobody listens")));
        let mut datagrams = wakes.datagrams(&MemberId::from_store("me"));
        assert_eq!(wakes.channels(), [Channel::Member(MemberId::from_store("me"))]);
        assert!(wakes.deliver(Bytes::from_static(b"a")) && wakes.deliver(Bytes::from_static(b"b")));
        let mut next = || datagrams.next().now_or_never();
        let first = next();
        assert_eq!(first.as_ref().map(|datagram| &*datagram.bytes), Some(&b"a"[..]));
        assert_eq!(next().map(|datagram| datagram.bytes), Some(Bytes::from_static(b"b")));
        assert!(next().is_none());

        assert!(!wakes.deliver(Bytes::from(vec![0; DATAGRAM_BYTES_MAX + 1])));
        let fits = DATAGRAMS_BYTES_MAX / DATAGRAM_BYTES_MAX - 1;
        let large = Bytes::from(vec![0; DATAGRAM_BYTES_MAX]);
        assert!((0..fits).all(|_| wakes.deliver(large.clone())));
        assert!(wakes.deliver(Bytes::from(vec![0; DATAGRAM_BYTES_MAX - BYTES_MIN])));
        assert!(!wakes.deliver(Bytes::from_static(b"full: the first one is held")));
        drop(first);
        assert!(wakes.deliver(Bytes::from_static(b"it is not any more")));
        drop(datagrams);
        assert!(!wakes.deliver(Bytes::from_static(b"gone")) && wakes.channels().is_empty());
    }
}
