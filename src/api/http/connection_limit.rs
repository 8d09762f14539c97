//! Limits the number of connections: idle ones are evicted for new ones.
//!
//! Idle connections must not block active ones. A connection beyond the limit is accepted, and one that waits for its
//! client, between two requests or within a body, is evicted: the oldest that never sent a request; otherwise one that
//! never showed a token where tokens are asked for; otherwise one of the address that has most connections, so that no
//! address crowds others out. Of several the one that has waited longest is evicted. A connection whose request is being
//! answered is never evicted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::gate::{Identity, Trust};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    Silent = 0,
    Idle = 1,
    Awaited = 2,
    Answered = 3,
    Gone = 4,
}

const STAGE_BITS: u32 = 3;

#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    max: usize,
    slots: Mutex<Slots>,
    /// Counts changes of stages: orders the waiting connections without a look at the clock.
    changes: AtomicU64,
    room_awaited: AtomicBool,
    room: Notify,
    evictions: RepeatThrottle,
    saturated: RepeatThrottle,
}

#[derive(Debug, Default)]
struct Slots {
    next: u64,
    occupied: BTreeMap<u64, Arc<Slot>>,
    by_peer: BTreeMap<Option<IpAddr>, usize>,
}

#[derive(Debug)]
pub(super) struct Slot {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
    /// `None` for a Unix socket.
    peer: Option<IpAddr>,
    /// Whether a request on it showed a token that is known.
    is_proven: AtomicBool,
    /// The stage, and above it the number of the change that began it.
    state: AtomicU64,
    /// Whether a body is still read, also the rest of a refused one after its answer.
    has_body: AtomicBool,
    /// Reads of its client that wait for messages: one, unless one ends just as the next begins.
    waiting_reads: AtomicUsize,
    evicted: CancellationToken,
}

/// The address that a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The connection that a request came over.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Slot>);

/// A read that waits: if its client closes its sending side now, it has gone.
#[derive(Debug)]
pub(crate) struct WaitingRead(Arc<Slot>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    FirstHeader,
    /// With the state since which it is awaited.
    NextHeader(u64),
    Other,
}

#[derive(Debug)]
pub(super) struct BodyRead(Arc<Slot>);

#[derive(Debug)]
pub(super) struct SlotGuard(Arc<Slot>);

#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Slot>);

impl ConnectionLimiter {
    pub(super) fn new(max: usize) -> Arc<ConnectionLimiter> {
        let (slots, changes) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(ConnectionLimiter {
            max: max.max(1),
            slots,
            changes,
            room_awaited: AtomicBool::new(false),
            room: Notify::new(),
            evictions: RepeatThrottle::default(),
            saturated: RepeatThrottle::default(),
        })
    }

    pub(super) async fn enter(self: &Arc<Self>, peer: Option<Peer>) -> SlotGuard {
        loop {
            if let Some(occupied) = self.try_enter(peer) {
                return occupied;
            }
            // Room made from here on is notified; room made before is seen by the second attempt.
            let room = self.room.notified();
            self.room_awaited.store(true, Ordering::SeqCst);
            if let Some(occupied) = self.try_enter(peer) {
                return occupied;
            }
            room.await;
        }
    }

    fn try_enter(self: &Arc<Self>, peer: Option<Peer>) -> Option<SlotGuard> {
        let mut slots = self.slots();
        if slots.occupied.len() >= self.max {
            let has_evicted = slots.evict();
            self.log_eviction(has_evicted);
            has_evicted.then_some(())?;
        }
        let slot = Arc::new(Slot {
            limiter: self.clone(),
            number: slots.next,
            peer: peer.map(|Peer(address)| address),
            is_proven: AtomicBool::new(false),
            state: AtomicU64::new(Stage::Silent as u64),
            has_body: AtomicBool::new(false),
            waiting_reads: AtomicUsize::new(0),
            evicted: CancellationToken::new(),
        });
        slots.insert(slot.clone());
        Some(SlotGuard(slot))
    }

    /// Evicts one connection, if possible: the process is out of file descriptors.
    pub(super) fn make_room(&self) {
        self.slots().evict();
    }

    fn log_eviction(&self, has_evicted: bool) {
        let (connections, now) = (self.max, Clock::System.instant());
        if has_evicted && self.evictions.is_due(now) {
            tracing::warn!(connections, "connections that wait for their client give way");
        }
        if !has_evicted && self.saturated.is_due(now) {
            tracing::warn!(connections, "all connections are being answered: new ones wait");
        }
    }

    fn left(&self, number: u64) {
        self.slots().remove(number);
        self.notify_room();
    }

    fn notify_room(&self) {
        if self.room_awaited.load(Ordering::SeqCst) && self.room_awaited.swap(false, Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn insert(&mut self, slot: Arc<Slot>) {
        self.next += 1;
        *self.by_peer.entry(slot.peer).or_default() += 1;
        self.occupied.insert(slot.number, slot);
    }

    fn remove(&mut self, number: u64) {
        let Some(slot) = self.occupied.remove(&number) else { return };
        let Some(connections) = self.by_peer.get_mut(&slot.peer) else { return };
        *connections -= 1;
        if *connections == 0 {
            self.by_peer.remove(&slot.peer);
        }
    }

    /// Whether there was one to evict.
    fn evict(&mut self) -> bool {
        // One that sends something between the choice and the change is left alone.
        loop {
            let Some((slot, state)) = self.least_missed() else { return false };
            if slot.change(state, Stage::Gone) {
                slot.evicted.cancel();
                let number = slot.number;
                self.remove(number);
                return true;
            }
        }
    }

    fn least_missed(&self) -> Option<(&Slot, u64)> {
        let waiting = self.occupied.values().filter_map(|slot| {
            let state = slot.state.load(Ordering::SeqCst);
            let is_silent = match stage_of(state) {
                Stage::Silent => true,
                Stage::Idle | Stage::Awaited => false,
                Stage::Answered | Stage::Gone => return None,
            };
            let connections = self.by_peer.get(&slot.peer).copied().unwrap_or_default();
            let rank = match is_silent {
                true => (false, false, Reverse(0), slot.number),
                false => (true, slot.is_proven.load(Ordering::Relaxed), Reverse(connections), state),
            };
            Some((rank, (&**slot, state)))
        });
        waiting.min_by_key(|(rank, _)| *rank).map(|(_, found)| found)
    }
}

impl Slot {
    /// `None` when the connection was evicted: then the request must not be executed.
    pub(super) fn begin(self: &Arc<Self>) -> Option<ActiveRequest> {
        self.go(&[Stage::Silent, Stage::Idle], Stage::Answered).then(|| ActiveRequest(self.clone()))
    }

    pub(super) fn reading(&self) -> Reading {
        let state = self.state.load(Ordering::SeqCst);
        match stage_of(state) {
            _ if self.has_body.load(Ordering::SeqCst) => Reading::Other,
            Stage::Silent => Reading::FirstHeader,
            Stage::Idle => Reading::NextHeader(state),
            Stage::Awaited | Stage::Answered | Stage::Gone => Reading::Other,
        }
    }

    pub(super) fn reads_body(self: &Arc<Self>) -> BodyRead {
        self.has_body.store(true, Ordering::SeqCst);
        BodyRead(self.clone())
    }

    pub(super) fn has_waiting_read(&self) -> bool {
        self.waiting_reads.load(Ordering::SeqCst) > 0
    }

    fn awaits_body(&self) {
        self.go(&[Stage::Answered], Stage::Awaited);
    }

    /// More of the body has arrived. False when the connection was evicted: then the request must not be executed.
    fn has_body(&self) -> bool {
        self.go(&[Stage::Awaited], Stage::Answered) || self.stage() != Stage::Gone
    }

    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    fn stage(&self) -> Stage {
        stage_of(self.state.load(Ordering::SeqCst))
    }

    fn go(&self, from: &[Stage], to: Stage) -> bool {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if !from.contains(&stage_of(state)) {
                return false;
            }
            if self.change(state, to) {
                if to < Stage::Answered {
                    self.limiter.notify_room();
                }
                return true;
            }
        }
    }

    fn change(&self, from: u64, to: Stage) -> bool {
        let at = self.limiter.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let state = at << STAGE_BITS | to as u64;
        self.state.compare_exchange(from, state, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn stage_of(state: u64) -> Stage {
    let stages = [Stage::Silent, Stage::Idle, Stage::Awaited, Stage::Answered];
    let low = state & ((1 << STAGE_BITS) - 1);
    stages.into_iter().find(|stage| *stage as u64 == low).unwrap_or(Stage::Gone)
}

impl Connection {
    pub(super) fn new(slot: &Arc<Slot>) -> Connection {
        Connection(slot.clone())
    }

    /// A request on it is of `identity`.
    pub(crate) fn is_of(&self, identity: &Identity) {
        if identity.trust() == Trust::Known {
            self.0.is_proven.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn wait(&self) -> WaitingRead {
        self.0.waiting_reads.fetch_add(1, Ordering::SeqCst);
        WaitingRead(self.0.clone())
    }
}

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.0.waiting_reads.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SlotGuard {
    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.limiter.left(self.0.number);
    }
}

impl ActiveRequest {
    pub(super) fn answers(&self) {
        self.0.go(&[Stage::Awaited], Stage::Answered);
    }
}

impl Drop for BodyRead {
    fn drop(&mut self) {
        self.0.has_body.store(false, Ordering::SeqCst);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.go(&[Stage::Answered, Stage::Awaited], Stage::Idle);
    }
}

pub(super) struct RequestBody {
    body: Incoming,
    slot: Arc<Slot>,
    _read: BodyRead,
}

pub(super) struct AnswerBody<B> {
    body: B,
    _active: ActiveRequest,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, slot: Arc<Slot>) -> RequestBody {
        let read = slot.reads_body();
        RequestBody { body, slot, _read: read }
    }
}

impl<B> AnswerBody<B> {
    pub(super) fn new(body: B, active: ActiveRequest) -> AnswerBody<B> {
        active.answers();
        AnswerBody { body, _active: active }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            self.slot.awaits_body();
            return Poll::Pending;
        };
        if !self.slot.has_body() {
            return Poll::Ready(Some(Err(Error::unavailable("there are too many connections"))));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| Error::unavailable(error.to_string()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(limiter: &Arc<ConnectionLimiter>) -> Option<SlotGuard> {
        limiter.try_enter(None)
    }

    fn enter_from(limiter: &Arc<ConnectionLimiter>, host: u8) -> Option<SlotGuard> {
        limiter.try_enter(Some(Peer([127, 0, 0, host].into())))
    }

    fn has_asked(occupied: &SlotGuard, identity: &Identity) {
        drop(occupied.slot().begin());
        Connection::new(occupied.slot()).is_of(identity);
    }

    fn hosts(limiter: &ConnectionLimiter) -> Vec<u8> {
        let peers = limiter.slots().occupied.values().map(|slot| slot.peer).collect::<Vec<_>>();
        peers.into_iter().map(|peer| peer.map_or(0, |peer| peer.to_string().as_bytes()[8] - b'0')).collect()
    }

    #[test]
    fn address_with_most_connections_gives_way_first() {
        let limiter = ConnectionLimiter::new(4);
        let mut occupied: Vec<_> = [1, 2, 2, 2].into_iter().filter_map(|host| enter_from(&limiter, host)).collect();
        // The only one of its address has waited longest.
        for connection in &occupied {
            has_asked(connection, &Identity::LOCAL);
        }
        for _ in 0..20 {
            let more = enter_from(&limiter, 2);
            if let Some(more) = &more {
                has_asked(more, &Identity::LOCAL);
            }
            occupied.extend(more);
        }
        assert_eq!(hosts(&limiter), [1, 2, 2, 2]);
        occupied.extend(enter_from(&limiter, 3));
        assert_eq!(hosts(&limiter), [1, 2, 2, 3]);
        drop(occupied);
        assert!(limiter.slots().by_peer.is_empty());
    }

    #[test]
    fn connection_without_a_token_gives_way_before_those_with_one() {
        let limiter = ConnectionLimiter::new(3);
        let mut occupied: Vec<_> = [2, 2, 1].into_iter().filter_map(|host| enter_from(&limiter, host)).collect();
        let known = Identity::new("a".into(), Trust::Known);
        for (connection, identity) in
            occupied.iter().zip([known.clone(), known, Identity::new("".into(), Trust::Anonymous)])
        {
            has_asked(connection, &identity);
        }
        occupied.extend(enter_from(&limiter, 3));
        assert_eq!(hosts(&limiter), [2, 2, 3]);
    }

    fn stages(limiter: &ConnectionLimiter) -> Vec<(u64, Stage)> {
        limiter.slots().occupied.iter().map(|(number, slot)| (*number, slot.stage())).collect()
    }

    #[test]
    fn oldest_silent_connection_is_evicted_first() {
        let limiter = ConnectionLimiter::new(3);
        let occupied: Vec<_> = std::iter::repeat_with(|| enter(&limiter)).take(3).collect();
        // The first one has sent a request before, and has waited longest.
        drop(occupied[0].as_ref().and_then(|occupied| occupied.slot().begin()));
        let more = [enter(&limiter), enter(&limiter)];
        assert!(more.iter().all(Option::is_some));
        assert_eq!(stages(&limiter), [(0, Stage::Idle), (3, Stage::Silent), (4, Stage::Silent)]);
        let gone: Vec<bool> =
            occupied.iter().flatten().map(|occupied| occupied.slot().evicted.is_cancelled()).collect();
        assert_eq!(gone, [false, true, true]);
    }

    #[test]
    fn longest_idle_connection_is_evicted_next() {
        let limiter = ConnectionLimiter::new(3);
        let occupied: Vec<_> = std::iter::repeat_with(|| enter(&limiter)).take(3).flatten().collect();
        let mut requests: Vec<_> = occupied.iter().map(|occupied| occupied.slot().begin()).collect();
        assert!(requests.iter().all(Option::is_some));
        // 2 waits for its body since before 0 is idle; 1 is being answered.
        occupied[2].slot().awaits_body();
        requests[0] = None;
        assert!(enter(&limiter).is_some());
        assert!(occupied[2].slot().evicted.is_cancelled() && !occupied[2].slot().has_body());
        assert!(!occupied[0].slot().evicted.is_cancelled() && !occupied[1].slot().evicted.is_cancelled());
    }

    #[test]
    fn connection_with_a_progressing_body_counts_as_active() {
        let limiter = ConnectionLimiter::new(1);
        let occupied = enter(&limiter);
        let slot = occupied.as_ref().map(SlotGuard::slot);
        let active = slot.and_then(Slot::begin);
        assert!(active.is_some() && enter(&limiter).is_none());
        assert!(slot.is_some_and(|slot| {
            slot.awaits_body();
            slot.has_body()
        }));
        assert!(enter(&limiter).is_none());
        drop(active);
        // Reading the rest of a refused body does not make it busy again.
        assert!(slot.is_some_and(|slot| {
            slot.awaits_body();
            slot.has_body() && slot.stage() == Stage::Idle
        }));
        assert!(enter(&limiter).is_some());
        assert!(slot.is_some_and(|slot| slot.begin().is_none()), "it gave way, and begins nothing");
    }

    #[tokio::test]
    async fn new_connection_waits_while_all_others_are_active() {
        let limiter = ConnectionLimiter::new(2);
        let occupied = [limiter.enter(None).await, limiter.enter(None).await];
        let requests = occupied.each_ref().map(|occupied| occupied.slot().begin());
        let (mut third, [first_request, second_request]) = (std::pin::pin!(limiter.enter(None)), requests);
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(second_request);
        let third = third.await;
        assert!(occupied[1].slot().evicted.is_cancelled() && !occupied[0].slot().evicted.is_cancelled());
        let third_request = third.slot().begin();
        let mut fourth = std::pin::pin!(limiter.enter(None));
        assert!(futures_util::poll!(fourth.as_mut()).is_pending());
        let [first, _] = occupied;
        drop(first);
        fourth.await;
        drop((first_request, third_request));
    }
}
