//! Messages that wait for their batch, and which pushes have no answer yet. It sends nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::{Options, Pending};

/// While a batch of a topic is under way, the next one gathers for so long at most.
const GATHER: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Buffer {
    open: Arc<Open>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the path of their topic; each has messages that wait or are under way.
    lanes: BTreeMap<String, Lane>,
    is_closed: bool,
    /// Somebody waits for all answers, so nothing waits for others.
    flushes: usize,
}

/// Messages that wait for one topic, the oldest first.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Pending>,
    bytes: usize,
    /// Batches without an answer.
    under_way: usize,
}

/// Pushes without an answer.
#[derive(Debug, Default)]
struct Open {
    numbers: Mutex<(u64, BTreeSet<u64>)>,
    /// Something was added, answered or closed.
    changed: Notify,
}

/// A push that has no answer yet, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u64,
    open: Arc<Open>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.open.numbers).1.remove(&self.number);
        self.open.changed.notify_waiters();
    }
}

/// The next step of the dispatcher.
pub(super) enum Next {
    /// The path of a topic, and messages for it.
    Batch(String, Vec<Pending>),
    Wait(Option<Instant>),
    Closed,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a flush for as long as somebody waits for it.
struct Flushing<'a>(&'a Buffer);

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).flushes -= 1;
    }
}

impl Buffer {
    /// Begins a push; `None` once the buffer is closed.
    pub(super) fn enter(&self) -> Option<Ticket> {
        let state = lock(&self.state);
        if state.is_closed {
            return None;
        }
        let mut numbers = lock(&self.open.numbers);
        numbers.0 += 1;
        let number = numbers.0;
        numbers.1.insert(number);
        Some(Ticket { number, open: self.open.clone() })
    }

    pub(super) fn add(&self, path: String, pending: Pending) {
        let mut state = lock(&self.state);
        let lane = state.lanes.entry(path).or_default();
        lane.bytes += pending.body.len() + 1;
        lane.waiting.push_back(pending);
        drop(state);
        self.open.changed.notify_waiters();
    }

    /// A batch of this topic has its answer, so the next one need not gather any longer.
    pub(super) fn answered(&self, path: &str) {
        let mut state = lock(&self.state);
        if let Some(lane) = state.lanes.get_mut(path) {
            lane.under_way -= 1;
            if lane.under_way == 0 && lane.waiting.is_empty() {
                state.lanes.remove(path);
            }
        }
        drop(state);
        self.open.changed.notify_waiters();
    }

    /// Ready once something was added, answered or closed after this call.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.open.changed.notified()
    }

    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.open.changed.notify_waiters();
    }

    /// Waits until all pushes that began before have their answers.
    pub(super) async fn flush(&self) {
        lock(&self.state).flushes += 1;
        let _flushing = Flushing(self);
        self.open.changed.notify_waiters();
        let last = lock(&self.open.numbers).0;
        loop {
            let changed = self.open.changed.notified();
            if lock(&self.open.numbers).1.first().is_none_or(|first| *first > last) {
                return;
            }
            changed.await;
        }
    }

    /// The next batch, once one is full or has waited for long enough: the one whose oldest message is the oldest.
    pub(super) fn take(&self, options: &Options) -> Next {
        let mut state = lock(&self.state);
        let (now, is_urgent) = (Instant::now(), state.flushes > 0 || state.is_closed);
        let is_over = state.is_closed && lock(&self.open.numbers).1.is_empty();
        let (mut next, mut chosen) = (None::<Instant>, None::<(Instant, &String)>);
        for (path, lane) in &state.lanes {
            let Some(first) = lane.waiting.front() else { continue };
            let is_full = lane.waiting.len() >= options.batch || lane.bytes >= options.batch_bytes;
            let gathers = if lane.under_way > 0 { options.linger.max(GATHER) } else { options.linger };
            let due = first.since + gathers;
            if is_urgent || is_full || due <= now {
                chosen = chosen.filter(|(since, _)| *since <= first.since).or(Some((first.since, path)));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        let Some(path) = chosen.map(|(_, path)| path.clone()) else {
            return if is_over { Next::Closed } else { Next::Wait(next) };
        };
        let Some(lane) = state.lanes.get_mut(&path) else { return Next::Wait(next) };
        let batch = lane.take(options);
        lane.under_way += 1;
        Next::Batch(path, batch)
    }
}

impl Lane {
    /// As many as a batch holds, without those whose callers have gone.
    fn take(&mut self, options: &Options) -> Vec<Pending> {
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(pending) = self.waiting.front() {
            let bytes = pending.body.len() + 1;
            let is_wanted = !pending.answer.is_closed();
            if is_wanted && (batch.len() == options.batch || (size + bytes > options.batch_bytes && size > 0)) {
                break;
            }
            let pending = self.waiting.pop_front();
            self.bytes -= bytes;
            if is_wanted {
                size += bytes;
                batch.extend(pending);
            }
        }
        batch
    }
}
