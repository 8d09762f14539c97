//! The state of a worker: which deliveries are handled, how they ended, and what is counted. It sends nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::Options;
use super::delivery::Delivery;
use super::outcome::{Failure, Outcome, Reason};
use crate::client::Client;

/// Counters since the start, and the state now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that were handed to this worker.
    pub delivered: u64,
    /// Messages that are done.
    pub acked: u64,
    /// Messages that are delivered again.
    pub nacked: u64,
    /// Messages that became dead letters.
    pub buried: u64,
    /// Messages that were given back unhandled.
    pub released: u64,
    /// Deadlines that were moved.
    pub extended: u64,
    /// Settlements that came too late.
    pub stale: u64,
    /// Deliveries that another consumer may have got.
    pub lost: u64,
    /// Polls that failed.
    pub poll_failures: u64,
    /// Settlements without an answer, which are repeated, and those that the broker refused, which are not.
    pub settle_failures: u64,
    /// Deliveries that this worker has.
    pub in_flight: u64,
    /// From due to the hand-over, of the latest delivery.
    pub lateness_ms: u64,
    /// When a poll was last answered.
    #[serde(skip)]
    pub last_poll: Option<SystemTime>,
}

/// Something that happened to a delivery, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// It was handed to this worker.
    Delivered,
    /// Its message is done.
    Acked,
    /// Its message is delivered again.
    Nacked,
    /// Its message became a dead letter.
    Buried,
    /// Its message was given back unhandled.
    Released,
    /// Its deadline was moved.
    Extended,
    /// Its settlement came too late.
    Stale,
    /// Another consumer may have got it.
    Lost,
    /// A poll failed; there is no delivery.
    PollFailed,
    /// A settlement had no answer, and is repeated; or the broker refused it.
    SettleFailed,
    /// Nothing more happens to it.
    Settled,
}

impl Event {
    /// The name of its counter in [`Stats`], or `settled`.
    pub fn as_str(self) -> &'static str {
        match self {
            Event::Delivered => "delivered",
            Event::Acked => "acked",
            Event::Nacked => "nacked",
            Event::Buried => "buried",
            Event::Released => "released",
            Event::Extended => "extended",
            Event::Stale => "stale",
            Event::Lost => "lost",
            Event::PollFailed => "poll_failures",
            Event::SettleFailed => "settle_failures",
            Event::Settled => "settled",
        }
    }

    fn counter(self, stats: &mut Stats) -> Option<&mut u64> {
        Some(match self {
            Event::Delivered => &mut stats.delivered,
            Event::Acked => &mut stats.acked,
            Event::Nacked => &mut stats.nacked,
            Event::Buried => &mut stats.buried,
            Event::Released => &mut stats.released,
            Event::Extended => &mut stats.extended,
            Event::Stale => &mut stats.stale,
            Event::Lost => &mut stats.lost,
            Event::PollFailed => &mut stats.poll_failures,
            Event::SettleFailed => &mut stats.settle_failures,
            Event::Settled => return None,
        })
    }
}

/// How a delivery is settled.
#[derive(Debug, Clone)]
pub(super) enum Decision {
    Ack,
    Nack { delay: Option<Duration>, reason: Option<Reason>, bury: bool, pause_key: bool },
    Release,
}

impl Decision {
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Decision::Ack => "ack",
            Decision::Nack { .. } => "nack",
            Decision::Release => "release",
        }
    }
}

/// A delivery that this worker has.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) delivery: Delivery,
    end: watch::Sender<bool>,
    pub(super) visibility: Duration,
    pub(super) deadline: Instant,
    pub(super) extend_at: Instant,
    /// Nothing after the broker refused to extend it.
    pub(super) extend_until: Option<Instant>,
    pub(super) decision: Option<Decision>,
    pub(super) decided_at: Instant,
    pub(super) not_before: Instant,
    pub(super) tries: u32,
    /// Its settlement has a separate request, since the broker refused it together with others.
    pub(super) is_alone: bool,
    /// Its extension has a separate request, since the broker refused it together with others.
    pub(super) is_extended_alone: bool,
    pub(super) is_lost: bool,
}

impl Slot {
    pub(super) fn new(
        delivery: Delivery,
        end: watch::Sender<bool>,
        visibility: Duration,
        max_runtime: Duration,
        now: Instant,
    ) -> Slot {
        Slot {
            delivery,
            end,
            visibility,
            deadline: now + visibility,
            extend_at: now + visibility / 3,
            extend_until: Some(now + max_runtime),
            decision: None,
            decided_at: now,
            not_before: now,
            tries: 0,
            is_alone: false,
            is_extended_alone: false,
            is_lost: false,
        }
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        self.decision = Some(decision);
        self.decided_at = Instant::now();
    }

    /// Tells the handler that its answer does not count any more.
    pub(super) fn end(&self) {
        self.end.send_replace(true);
    }
}

/// All deliveries, by their receipts.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) slots: HashMap<String, Slot>,
    pub(super) stats: Stats,
    /// Nothing is sent any more.
    pub(super) is_over: bool,
    pub(super) handlers: JoinSet<()>,
}

pub(super) type Hook = Box<dyn Fn(Event, Option<&Delivery>) + Send + Sync>;

/// A worker, as all parts of it share it.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) options: Options,
    pub(super) hook: Option<Hook>,
    pub(super) stop: watch::Sender<bool>,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("path", &self.path).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(client: Client, path: String, options: Options, hook: Option<Hook>) -> Shared {
        let (stop, _) = watch::channel(false);
        Shared { client, path, options, hook, stop, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes those that wait for a change.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_waiters();
        changed
    }

    /// Counts an event. The hook is called with the state locked, so it must not call the worker.
    pub(super) fn event(&self, state: &mut State, event: Event, delivery: Option<&Delivery>) {
        if let Some(counter) = event.counter(&mut state.stats) {
            *counter += 1;
        }
        if let Some(hook) = &self.hook {
            hook(event, delivery);
        }
    }

    /// Waits until a condition holds, or until a time.
    pub(super) async fn until(&self, end: Instant, holds: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(&self.state()) {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(end) => return,
            }
        }
    }

    /// How many handlers can begin. Settlements may be under way for as many more.
    pub(super) fn free(&self, state: &State) -> usize {
        let running = state.slots.values().filter(|slot| slot.decision.is_none()).count();
        let concurrency = self.options.concurrency;
        let free = concurrency.saturating_sub(running).min((2 * concurrency).saturating_sub(state.slots.len()));
        free.min(1_000)
    }

    /// Another consumer may have the message of this delivery.
    pub(super) fn lose(&self, state: &mut State, receipt: &str) {
        let Some(slot) = state.slots.get_mut(receipt).filter(|slot| !slot.is_lost) else { return };
        slot.is_lost = true;
        slot.end();
        let delivery = slot.delivery.clone();
        warn!(id = delivery.id, "delivery lost: another consumer may have the message");
        self.event(state, Event::Lost, Some(&delivery));
    }

    /// Whether the delivery still belongs to this worker. One that was settled meanwhile did.
    pub(super) fn is_ours(&self, receipt: &str) -> bool {
        self.state().slots.get(receipt).is_none_or(|slot| !slot.is_lost)
    }

    /// A handler has ended.
    pub(super) fn ended(&self, receipt: &str, result: Result<(), Failure>) {
        self.update(|state| {
            let Some(slot) = state.slots.get_mut(receipt) else { return };
            if slot.decision.is_some() {
                return;
            }
            if slot.is_lost {
                state.slots.remove(receipt);
                return;
            }
            let failure = match result {
                Ok(()) => return slot.decide(Decision::Ack),
                Err(failure) => failure,
            };
            if !failure.is_expected() {
                warn!(id = slot.delivery.id, reason = failure.message(), "handler failed");
            }
            let reason = failure.reason(self.options.error_details);
            let (delay, bury, pause_key) = match failure.outcome {
                Outcome::Failed => (None, false, false),
                Outcome::Retry { after, pauses_key } => (Some(after), false, pauses_key),
                Outcome::Bury => (None, true, false),
            };
            slot.decide(Decision::Nack { delay, reason, bury, pause_key });
        });
    }
}

/// Ends all handlers when the future of a worker is dropped.
pub(super) struct Abort(pub(super) Arc<Shared>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.update(|state| {
            state.is_over = true;
            state.handlers.abort_all();
            state.slots.clear();
        });
    }
}
