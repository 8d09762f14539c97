//! Datagrams between the brokers that share a store.
//!
//! A datagram may be lost, arrive twice, late, or be written by a stranger: its receiver believes nothing that it cannot
//! check, and its sender repeats it until it is answered. What has arrived and is not taken yet is bounded.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::notifications::Wake;
use crate::model::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_BYTES_MAX};

/// What a datagram counts as, at least: one that is empty takes memory too.
const BYTES_MIN: usize = 512;

/// A datagram that has arrived. It takes its part of the bound until it is dropped.
#[derive(Debug)]
pub struct Datagram {
    /// What was sent.
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Datagrams for this process, in the order in which they arrived, until it is dropped.
#[derive(Debug)]
pub struct Datagrams {
    receiver: mpsc::UnboundedReceiver<Datagram>,
    pub(super) _wake: Wake,
}

impl Datagrams {
    /// The next one, however long it takes.
    pub async fn next(&mut self) -> Datagram {
        match self.receiver.recv().await {
            Some(datagram) => datagram,
            // Another receiver took this one's place.
            None => std::future::pending().await,
        }
    }
}

/// Where datagrams for this process are put. Clones share it.
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
    /// Takes the place of an earlier receiver.
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
