//! One budget of prefetched payloads for all partitions that this process owns.
//!
//! A partition asks before it reserves, for at least the largest message, so that the budget holds. It waits in line for bytes that are not
//! waits for in line. When the first in line has waited for a second, the partitions that hold more than their share
//! give back what nobody has taken: so a group whose consumers take nothing does not starve the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::ATTENTION;
use crate::model::limits::{ENVELOPE_BYTES_MAX, PREFETCH_BYTES_MAX};
use crate::platform::clock::Instant;
use crate::store::ReserveLimit;

/// Bytes that a partition may always prefetch: the largest message, and what comes while it is handed out.
const PART_BYTES_MIN: usize = 2 * ENVELOPE_BYTES_MAX;

#[derive(Debug)]
pub struct PrefetchBudget {
    limit: usize,
    state: Mutex<State>,
    pressed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    parts: usize,
    last: u64,
    line: VecDeque<(u64, Arc<LoopSignal>)>,
    press_at: Instant,
}

impl PrefetchBudget {
    pub fn new(limit: usize) -> Arc<PrefetchBudget> {
        Arc::new(PrefetchBudget { limit, state: Mutex::default(), pressed: watch::Sender::new(0) })
    }

    /// Changes when partitions have waited for long: those that hold more than their share are to give it back.
    pub(super) fn pressed(&self) -> watch::Receiver<u64> {
        self.pressed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, state: &State) -> usize {
        self.limit.saturating_sub(state.taken)
    }

    fn notify_first(&self, state: &State) {
        if let Some((_, signal)) = state.line.front()
            && self.free(state) >= ENVELOPE_BYTES_MAX
        {
            signal.notify_one();
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct LoopSignal {
    notify: Notify,
    is_released: AtomicBool,
}

impl LoopSignal {
    pub(super) fn notify_one(&self) {
        self.notify.notify_one();
    }

    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }

    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        self.notify_one();
    }

    pub(super) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Part {
    budget: Arc<PrefetchBudget>,
    number: u64,
    signal: Arc<LoopSignal>,
    held: usize,
    granted: usize,
    asks_at: Option<Instant>,
}

impl Part {
    pub(super) fn new(budget: Arc<PrefetchBudget>, signal: Arc<LoopSignal>) -> Part {
        let mut state = budget.state();
        state.parts += 1;
        state.last += 1;
        let number = state.last;
        drop(state);
        Part { budget, number, signal, held: 0, granted: 0, asks_at: None }
    }

    /// `None` is nothing yet: the loop is kicked when there is room, and asks again at [`Part::asks_at`].
    pub(super) fn grant(&mut self, limit: ReserveLimit, prefetched: usize, now: Instant) -> Option<ReserveLimit> {
        let room = self.share().clamp(PART_BYTES_MIN, PREFETCH_BYTES_MAX).saturating_sub(prefetched);
        if room < ENVELOPE_BYTES_MAX {
            self.leave_line();
            return None;
        }
        let mut state = self.budget.state();
        let free = self.budget.free(&state);
        let is_first = state.line.front().is_none_or(|(first, _)| *first == self.number);
        if !is_first || free < ENVELOPE_BYTES_MAX {
            match self.asks_at {
                None => state.line.push_back((self.number, self.signal.clone())),
                Some(at) if now < at => return None,
                Some(_) if is_first && now >= state.press_at => {
                    state.press_at = now.plus(ATTENTION);
                    self.budget.pressed.send_modify(|times| *times += 1);
                }
                Some(_) => {}
            }
            self.asks_at = Some(now.plus(ATTENTION));
            return None;
        }
        if self.asks_at.take().is_some() {
            state.line.pop_front();
        }
        self.granted = limit.bytes.min(room).min(free).max(ENVELOPE_BYTES_MAX);
        state.taken += self.granted;
        self.budget.notify_first(&state);
        Some(ReserveLimit { bytes: self.granted, ..limit })
    }

    pub(super) fn asks_at(&self) -> Option<Instant> {
        self.asks_at
    }

    pub(super) fn leave_line(&mut self) {
        if self.asks_at.take().is_some() {
            let mut state = self.budget.state();
            state.line.retain(|(number, _)| *number != self.number);
            self.budget.notify_first(&state);
        }
    }

    pub(super) fn arrived(&mut self, held: usize) {
        self.set(held, 0);
    }

    pub(super) fn hold(&mut self, held: usize) {
        self.set(held, self.granted);
    }

    fn set(&mut self, held: usize, granted: usize) {
        let (before, after) = (self.held + self.granted, held + granted);
        (self.held, self.granted) = (held, granted);
        if before != after {
            let mut state = self.budget.state();
            state.taken = (state.taken + after).saturating_sub(before);
            self.budget.notify_first(&state);
        }
    }

    pub(super) fn is_over_share(&self) -> bool {
        self.held > self.share()
    }

    fn share(&self) -> usize {
        self.budget.limit / self.budget.state().parts.max(1)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.leave_line();
        self.set(0, 0);
        self.budget.state().parts -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;
    const ALL: ReserveLimit = ReserveLimit { messages: 1_000, bytes: PREFETCH_BYTES_MAX };

    fn part(budget: &Arc<PrefetchBudget>) -> Part {
        Part::new(budget.clone(), Arc::default())
    }

    fn granted(part: &mut Part, prefetched: usize) -> Option<usize> {
        part.grant(ALL, prefetched, Instant::START).map(|limit| limit.bytes)
    }

    #[test]
    fn partitions_share_the_prefetch_budget_and_wait_for_more() {
        let budget = PrefetchBudget::new(16 * MIB);
        let mut parts: Vec<Part> = (0..40).map(|_| part(&budget)).collect();
        let got: Vec<_> = parts.iter_mut().map(|part| granted(part, 0)).collect();
        let sum: usize = got.iter().flatten().sum();
        assert!(sum <= 16 * MIB && sum > 15 * MIB, "{got:?}");
        let first = got.iter().take_while(|got| got.is_some()).count();
        assert!(got[first..].iter().all(Option::is_none), "{got:?}");
        // Nothing came: the first in line has its turn, and the second has not.
        parts[0].arrived(0);
        assert_eq!(granted(&mut parts[first + 1], 0), None);
        assert!(granted(&mut parts[first], 0).is_some());
        drop(parts);
        assert!(granted(&mut part(&budget), 0).is_some(), "everything was given back");
    }

    #[test]
    fn single_partition_prefetches_up_to_its_limit() {
        let budget = PrefetchBudget::new(256 * MIB);
        let mut alone = part(&budget);
        assert_eq!(granted(&mut alone, 0), Some(PREFETCH_BYTES_MAX));
        alone.arrived(PREFETCH_BYTES_MAX);
        assert_eq!(granted(&mut alone, PREFETCH_BYTES_MAX), None);
        assert_eq!(alone.asks_at(), None, "its own consumers make room");
    }

    #[test]
    fn long_waiter_reclaims_surplus_budget() {
        let budget = PrefetchBudget::new(16 * MIB);
        let (mut hog, mut starved) = (part(&budget), part(&budget));
        let pressed = budget.pressed();
        hog.hold(16 * MIB);
        assert_eq!(starved.grant(ALL, 0, Instant::START), None);
        assert!(!pressed.has_changed().unwrap_or(true));
        let later = Instant::START.plus(ATTENTION);
        assert_eq!(starved.asks_at(), Some(later));
        assert_eq!(starved.grant(ALL, 0, later), None);
        assert!(pressed.has_changed().unwrap_or(false));
        assert!(hog.is_over_share() && !starved.is_over_share());
        hog.hold(0);
        assert!(starved.grant(ALL, 0, later).is_some());
    }

    #[test]
    fn cancelled_waiter_does_not_block_others() {
        let budget = PrefetchBudget::new(16 * MIB);
        let (mut hog, mut first, mut second) = (part(&budget), part(&budget), part(&budget));
        hog.hold(16 * MIB);
        assert_eq!((granted(&mut first, 0), granted(&mut second, 0)), (None, None));
        hog.hold(0);
        assert_eq!(granted(&mut second, 0), None);
        first.leave_line();
        assert!(granted(&mut second, 0).is_some());
    }
}
