//! Announcements: who sleeps until a head is due is woken when an earlier message arrives or a lease is given up, and
//! who waits for its next heartbeat when a member joins or leaves.
//!
//! A wake may be lost and may be false; it only shortens a sleep. A lost one costs at most a third of the lease ttl, or
//! one heartbeat.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::datagram::{Datagrams, Mailbox};
use super::epoch::MemberId;
use crate::message::{GroupName, TopicName};
use crate::partition::Partition;
use crate::topic::Pair;

/// What is announced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// An earlier head in a partition.
    Head(TopicName, Partition),
    /// A lease in a partition that was given up.
    Release(TopicName, Partition),
    /// A change of a topic: its settings, its groups, whether they are paused.
    Changed(TopicName),
    /// A member that joined or left a group.
    Members(TopicName, GroupName),
    /// A schedule that was made, changed or removed.
    Schedules,
    /// Datagrams for a member.
    Member(MemberId),
}

type Sleepers = HashMap<Channel, Vec<Arc<Notify>>>;

impl Channel {
    /// Where a pair's earlier heads are announced.
    pub fn head(pair: &Pair) -> Channel {
        Channel::Head(pair.topic.clone(), pair.partition)
    }

    /// Where it is announced that a pair's lease was given up.
    pub fn release(pair: &Pair) -> Channel {
        Channel::Release(pair.topic.clone(), pair.partition)
    }

    /// Everything that is announced where this is: a store that listens to one hears them all. Changes of a topic are
    /// announced in its first partition.
    pub fn beside(&self) -> Vec<Channel> {
        let (topic, partition) = match self {
            Channel::Head(topic, partition) | Channel::Release(topic, partition) => (topic, *partition),
            Channel::Changed(topic) => (topic, Partition(0)),
            Channel::Members(..) | Channel::Schedules | Channel::Member(_) => return vec![self.clone()],
        };
        let mut all = vec![Channel::Head(topic.clone(), partition), Channel::Release(topic.clone(), partition)];
        if partition == Partition(0) {
            all.push(Channel::Changed(topic.clone()));
        }
        all
    }
}

/// Who wants to be woken, by topic and partition.
#[derive(Debug, Clone)]
pub struct Wakes {
    sleepers: Arc<Mutex<Sleepers>>,
    /// Counts changes of the places where someone listens, for a store that has to subscribe to each.
    changes: watch::Sender<u64>,
    mailbox: Mailbox,
}

impl Default for Wakes {
    fn default() -> Wakes {
        Wakes { sleepers: Arc::default(), changes: watch::Sender::new(0), mailbox: Mailbox::default() }
    }
}

impl Wakes {
    /// Asks to be woken through `notify` until the returned guard is dropped.
    pub fn subscribe(&self, channel: Channel, notify: Arc<Notify>) -> Wake {
        let mut sleepers = self.lock();
        let first = is_silent(&sleepers, &channel);
        sleepers.entry(channel.clone()).or_default().push(notify.clone());
        drop(sleepers);
        if first {
            self.changed();
        }
        Wake { wakes: self.clone(), channel, notify }
    }

    /// Receives what other processes send to this member, which is this process.
    pub fn datagrams(&self, member: &MemberId) -> Datagrams {
        self.mailbox.open(self.subscribe(Channel::Member(member.clone()), Arc::default()))
    }

    /// A datagram for this process has arrived. False if it was dropped: there is no room, or nobody receives it.
    pub fn deliver(&self, datagram: Bytes) -> bool {
        self.mailbox.put(datagram)
    }

    /// Wakes who sleeps at this channel.
    pub fn wake(&self, channel: &Channel) {
        if let Some(sleepers) = self.lock().get(channel) {
            sleepers.iter().for_each(|notify| notify.notify_one());
        }
    }

    /// The channels where someone sleeps.
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
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nobody listens where this is announced. An owner and the members that wait for its partition listen to one
/// place, so that owners who come and go change nothing for a store that subscribes to it.
fn is_silent(sleepers: &Sleepers, channel: &Channel) -> bool {
    !channel.beside().iter().any(|beside| sleepers.contains_key(beside))
}

/// As long as this lives, its owner is woken.
#[derive(Debug)]
pub struct Wake {
    wakes: Wakes,
    channel: Channel,
    notify: Arc<Notify>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        let mut sleepers = self.wakes.lock();
        if let Entry::Occupied(mut here) = sleepers.entry(self.channel.clone()) {
            here.get_mut().retain(|notify| !Arc::ptr_eq(notify, &self.notify));
            if here.get().is_empty() {
                here.remove();
            }
        }
        let gone = is_silent(&sleepers, &self.channel);
        drop(sleepers);
        if gone {
            self.wakes.changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::error::Result;

    #[tokio::test]
    async fn a_sleeper_is_woken_until_it_leaves() -> Result<()> {
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
    async fn what_is_announced_together_is_woken_apart() -> Result<()> {
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
}
