//! Members of a group, rate slots, and datagrams between the brokers that share a store.
//!
//! A datagram may be lost, arrive twice, late, or be written by a stranger: its receiver believes nothing that it cannot
//! check, and its sender repeats it until it is answered. What has arrived and is not taken yet is bounded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::MemberId;
use super::notifications::Wake;
use crate::model::error::Result;
use crate::model::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_BYTES_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::hash;

#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Records heartbeats, and returns the live members of each group, sorted: those with a heartbeat within `ttl`.
    /// Announces new members and changes of demand.
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>>;

    /// Reads the live members of a group, those with a heartbeat within `ttl`, sorted.
    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>>;

    /// Leaving again does nothing.
    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()>;

    /// Gives out slots of a group, each one once and at least `spacing` behind the one before.
    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots>;

    /// Sends a datagram to a member, at most [`crate::model::limits::DATAGRAM_BYTES_MAX`] bytes. False if certainly no
    /// process receives what is sent to it now; true promises nothing.
    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAsk {
    pub count: u32,
    /// From the beginning of one to that of the next.
    pub spacing: Duration,
    /// How far from now the last one may begin; at most [`crate::model::limits::SLOT_AHEAD_MAX`].
    pub within: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    /// From the store's time at the answer to the beginning of the first; with none, of the next possible one.
    pub after: Duration,
}

/// Slots of all groups with members: a process sends one call for each, and a cluster spreads them over its nodes.
const SLOTS: u32 = 16;

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveMember {
    pub id: MemberId,
    /// Whether somebody wants messages from it: consumers wait there, or deliveries are in flight.
    pub has_demand: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub topic: TopicName,
    pub group: GroupName,
    pub state: MemberState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberState {
    pub has_demand: bool,
    pub waiting: usize,
    pub owned: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    pub id: MemberId,
    pub state: MemberState,
    pub version: String,
}

pub fn slot_of(topic: &TopicName, group: &GroupName) -> u32 {
    hash(format!("{topic}/{group}").as_bytes()) % SLOTS
}

impl Heartbeat {
    pub fn slot(&self) -> u32 {
        slot_of(&self.topic, &self.group)
    }
}

impl MemberState {
    /// Demand as `0` or `1`, waiting consumers, owned partitions, and the version of the process.
    pub fn to_store(self) -> String {
        let MemberState { has_demand, waiting, owned } = self;
        format!("{} {waiting} {owned} {VERSION}", u8::from(has_demand))
    }
}

impl MemberReport {
    pub fn from_store(id: MemberId, text: &str) -> MemberReport {
        let mut parts = text.splitn(4, ' ');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let state = MemberState { has_demand: number() == 1, waiting: number(), owned: number() };
        MemberReport { id, state, version: parts.next().unwrap_or_default().to_owned() }
    }
}

/// What a datagram counts as, at least: one that is empty takes memory too.
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
pub(super) struct Mailbox {
    sender: Arc<Mutex<Option<mpsc::UnboundedSender<Datagram>>>>,
    room: Arc<Semaphore>,
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox { sender: Arc::default(), room: Arc::new(Semaphore::new(DATAGRAMS_BYTES_MAX)) }
    }
}

impl Mailbox {
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

    use super::super::{Channel, MemberId, Wakes};
    use super::*;

    #[test]
    fn a_state_is_read_back_and_garbage_is_a_member_without_demand() {
        let report = |text: &str| MemberReport::from_store(MemberId::from_store("m"), text);
        let state = MemberState { has_demand: true, waiting: 12, owned: 3 };
        assert_eq!((report(&state.to_store()).state, &*report(&state.to_store()).version), (state, VERSION));
        for garbage in ["", "x", "2 -1 x", "0"] {
            assert_eq!(report(garbage).state, MemberState::default(), "{garbage:?}");
        }
    }

    #[test]
    fn what_was_put_is_taken_in_order_and_what_is_too_much_is_not_put() {
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
