//! Which connections are open, and which one gives way when there are as many as there may be.
//!
//! Who says nothing must not keep out who does. So one connection too many is taken all the same, and another one gives
//! way that waits for its client: of those that never sent a request the oldest, then of those between two requests, or
//! within the body of one, the one that has waited longest. None gives way whose request is being answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    /// It never sent a whole header.
    Silent = 0,
    /// It is between two requests.
    Idle = 1,
    /// The rest of a body is awaited.
    Awaited = 2,
    /// A request is being answered.
    Answered = 3,
    /// It gave way.
    Gone = 4,
}

/// Bits of a stage in the state of a seat.
const STAGE_BITS: u32 = 3;

/// The open connections.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    max: usize,
    seats: Mutex<Seats>,
    /// Counts changes of stages, so that it is known who has waited longest without a look at a clock.
    moves: AtomicU64,
    /// Whether somebody waits for room.
    is_awaited: AtomicBool,
    room: Notify,
    /// That connections give way, and that there is none that may.
    given_way: RepeatThrottle,
    none_may: RepeatThrottle,
}

/// In the order in which they came.
#[derive(Debug, Default)]
struct Seats {
    next: u64,
    taken: BTreeMap<u64, Arc<Seat>>,
}

/// The place of a connection.
#[derive(Debug)]
pub(super) struct Seat {
    crowd: Arc<ConnectionLimiter>,
    number: u64,
    /// The stage, and above it the move at which it began.
    state: AtomicU64,
    /// Whether the body of a request is still read: also of one that was refused, behind its answer.
    has_body: AtomicBool,
    gives_way: CancellationToken,
}

/// What is awaited from the client of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The header of its first request.
    FirstHeader,
    /// The header of its next request, since this state.
    NextHeader(u64),
    /// A body, or nothing.
    Other,
}

/// A body that is read, until it is dropped.
#[derive(Debug)]
pub(super) struct BodyRead(Arc<Seat>);

/// Holds a place until it is dropped.
#[derive(Debug)]
pub(super) struct Taken(Arc<Seat>);

/// A request that is being answered, until it is dropped: then the connection is idle.
#[derive(Debug)]
pub(super) struct Turn(Arc<Seat>);

impl ConnectionLimiter {
    /// Room for so many, at least one.
    pub(super) fn new(max: usize) -> Arc<ConnectionLimiter> {
        let (seats, moves) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(ConnectionLimiter {
            max: max.max(1),
            seats,
            moves,
            is_awaited: AtomicBool::new(false),
            room: Notify::new(),
            given_way: RepeatThrottle::default(),
            none_may: RepeatThrottle::default(),
        })
    }

    /// A place for a connection. Waits while every other one is being answered.
    pub(super) async fn enter(self: &Arc<Self>) -> Taken {
        loop {
            if let Some(taken) = self.try_enter() {
                return taken;
            }
            // Who makes room from here on says so; who made some before is seen by the second look.
            let room = self.room.notified();
            self.is_awaited.store(true, Ordering::SeqCst);
            if let Some(taken) = self.try_enter() {
                return taken;
            }
            room.await;
        }
    }

    fn try_enter(self: &Arc<Self>) -> Option<Taken> {
        let mut seats = self.seats();
        if seats.taken.len() >= self.max {
            let number = seats.give_way();
            self.say(number.is_some());
            seats.taken.remove(&number?);
        }
        let number = seats.next;
        seats.next += 1;
        let (state, gives_way) = (AtomicU64::new(Stage::Silent as u64), CancellationToken::new());
        let has_body = AtomicBool::new(false);
        let seat = Arc::new(Seat { crowd: self.clone(), number, state, has_body, gives_way });
        seats.taken.insert(number, seat.clone());
        Some(Taken(seat))
    }

    /// Makes one give way, if there is one that may: the process is out of file descriptors.
    pub(super) fn make_room(&self) {
        let mut seats = self.seats();
        if let Some(number) = seats.give_way() {
            seats.taken.remove(&number);
        }
    }

    fn say(&self, has_given_way: bool) {
        let (connections, now) = (self.max, Clock::System.instant());
        if has_given_way && self.given_way.is_due(now) {
            tracing::warn!(connections, "connections that wait for their client give way");
        }
        if !has_given_way && self.none_may.is_due(now) {
            tracing::warn!(connections, "all connections are being answered: new ones wait");
        }
    }

    fn left(&self, number: u64) {
        self.seats().taken.remove(&number);
        self.say_room();
    }

    fn say_room(&self) {
        if self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    /// Who gave way; none if every one is being answered.
    fn give_way(&self) -> Option<u64> {
        // One that sends something between the look and the word is left alone, and another one is looked for.
        loop {
            let (seat, state) = self.most_idle()?;
            if seat.change(state, Stage::Gone) {
                seat.gives_way.cancel();
                return Some(seat.number);
            }
        }
    }

    fn most_idle(&self) -> Option<(&Seat, u64)> {
        let mut found: Option<(&Seat, u64)> = None;
        for seat in self.taken.values() {
            let state = seat.state.load(Ordering::SeqCst);
            match stage_of(state) {
                Stage::Silent => return Some((seat, state)),
                Stage::Idle | Stage::Awaited if found.is_none_or(|(_, longest)| state < longest) => {
                    found = Some((seat, state));
                }
                _ => {}
            }
        }
        found
    }
}

impl Seat {
    /// Begins a request; `None` when the connection has given way, and nothing may be done any more.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Turn> {
        self.go(&[Stage::Silent, Stage::Idle], Stage::Answered).then(|| Turn(self.clone()))
    }

    /// What is awaited now.
    pub(super) fn reading(&self) -> Reading {
        let state = self.state.load(Ordering::SeqCst);
        match stage_of(state) {
            _ if self.has_body.load(Ordering::SeqCst) => Reading::Other,
            Stage::Silent => Reading::FirstHeader,
            Stage::Idle => Reading::NextHeader(state),
            Stage::Awaited | Stage::Answered | Stage::Gone => Reading::Other,
        }
    }

    /// A body begins to be read.
    pub(super) fn reads_body(self: &Arc<Self>) -> BodyRead {
        self.has_body.store(true, Ordering::SeqCst);
        BodyRead(self.clone())
    }

    /// More of the body of the request that is being answered has to come first.
    pub(super) fn awaits_body(&self) {
        self.go(&[Stage::Answered], Stage::Awaited);
    }

    /// Some of it came. False when the connection has given way: then the request is not to be done.
    pub(super) fn has_body(&self) -> bool {
        self.go(&[Stage::Awaited], Stage::Answered) || self.stage() != Stage::Gone
    }

    /// Resolves when it has to give way.
    pub(super) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    fn stage(&self) -> Stage {
        stage_of(self.state.load(Ordering::SeqCst))
    }

    /// Goes to a stage, if it is in one of these.
    fn go(&self, from: &[Stage], to: Stage) -> bool {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if !from.contains(&stage_of(state)) {
                return false;
            }
            if self.change(state, to) {
                if to < Stage::Answered {
                    self.crowd.say_room();
                }
                return true;
            }
        }
    }

    fn change(&self, from: u64, to: Stage) -> bool {
        let at = self.crowd.moves.fetch_add(1, Ordering::Relaxed) + 1;
        let state = at << STAGE_BITS | to as u64;
        self.state.compare_exchange(from, state, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn stage_of(state: u64) -> Stage {
    let stages = [Stage::Silent, Stage::Idle, Stage::Awaited, Stage::Answered];
    let low = state & ((1 << STAGE_BITS) - 1);
    stages.into_iter().find(|stage| *stage as u64 == low).unwrap_or(Stage::Gone)
}

impl Taken {
    /// The place.
    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.0
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.crowd.left(self.0.number);
    }
}

impl Turn {
    /// The answer begins: nothing more is awaited for it.
    pub(super) fn answers(&self) {
        self.0.go(&[Stage::Awaited], Stage::Answered);
    }
}

impl Drop for BodyRead {
    fn drop(&mut self) {
        self.0.has_body.store(false, Ordering::SeqCst);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.go(&[Stage::Answered, Stage::Awaited], Stage::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(crowd: &Arc<ConnectionLimiter>) -> Option<Taken> {
        crowd.try_enter()
    }

    fn stages(crowd: &ConnectionLimiter) -> Vec<(u64, Stage)> {
        crowd.seats().taken.iter().map(|(number, seat)| (*number, seat.stage())).collect()
    }

    #[test]
    fn the_oldest_that_said_nothing_gives_way_first() {
        let crowd = ConnectionLimiter::new(3);
        let taken: Vec<_> = std::iter::repeat_with(|| enter(&crowd)).take(3).collect();
        // The first one has sent a request before, and waits longer than both.
        drop(taken[0].as_ref().and_then(|taken| taken.seat().begin()));
        let more = [enter(&crowd), enter(&crowd)];
        assert!(more.iter().all(Option::is_some));
        assert_eq!(stages(&crowd), [(0, Stage::Idle), (3, Stage::Silent), (4, Stage::Silent)]);
        let gone: Vec<bool> = taken.iter().flatten().map(|taken| taken.seat().gives_way.is_cancelled()).collect();
        assert_eq!(gone, [false, true, true]);
    }

    #[test]
    fn then_the_one_that_has_waited_longest() {
        let crowd = ConnectionLimiter::new(3);
        let taken: Vec<_> = std::iter::repeat_with(|| enter(&crowd)).take(3).flatten().collect();
        let mut turns: Vec<_> = taken.iter().map(|taken| taken.seat().begin()).collect();
        assert!(turns.iter().all(Option::is_some));
        // 2 waits for its body since before 0 is idle; 1 is being answered.
        taken[2].seat().awaits_body();
        turns[0] = None;
        assert!(enter(&crowd).is_some());
        assert!(taken[2].seat().gives_way.is_cancelled() && !taken[2].seat().has_body());
        assert!(!taken[0].seat().gives_way.is_cancelled() && !taken[1].seat().gives_way.is_cancelled());
    }

    #[test]
    fn a_body_that_goes_on_is_being_answered() {
        let crowd = ConnectionLimiter::new(1);
        let taken = enter(&crowd);
        let seat = taken.as_ref().map(Taken::seat);
        let turn = seat.and_then(Seat::begin);
        assert!(turn.is_some() && enter(&crowd).is_none());
        assert!(seat.is_some_and(|seat| {
            seat.awaits_body();
            seat.has_body()
        }));
        assert!(enter(&crowd).is_none());
        drop(turn);
        // What is read of a body that was refused does not make it busy again.
        assert!(seat.is_some_and(|seat| {
            seat.awaits_body();
            seat.has_body() && seat.stage() == Stage::Idle
        }));
        assert!(enter(&crowd).is_some());
        assert!(seat.is_some_and(|seat| seat.begin().is_none()), "it gave way, and begins nothing");
    }

    #[tokio::test]
    async fn who_finds_all_being_answered_waits_for_the_first_that_is_not() {
        let crowd = ConnectionLimiter::new(2);
        let taken = [crowd.enter().await, crowd.enter().await];
        let turns = taken.each_ref().map(|taken| taken.seat().begin());
        let (mut third, [first_turn, second_turn]) = (std::pin::pin!(crowd.enter()), turns);
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(second_turn);
        let third = third.await;
        assert!(taken[1].seat().gives_way.is_cancelled() && !taken[0].seat().gives_way.is_cancelled());
        // Room is also made by one that leaves.
        let third_turn = third.seat().begin();
        let mut fourth = std::pin::pin!(crowd.enter());
        assert!(futures_util::poll!(fourth.as_mut()).is_pending());
        let [first, _] = taken;
        drop(first);
        fourth.await;
        drop((first_turn, third_turn));
    }
}
