//! A consumer that stays: it has so many deliveries in hand at most, and what is undecided goes back when it goes away.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::owned_partition::now;
use super::receipt::{Decision, Delivery, Receipt};
use super::{GroupDelivery, Want};
use crate::model::error::Result;
use crate::platform::clock::Instant;

/// A consumer that stays. Dropped without [`Session::end`] it went away: what it had in hand is nacked at once.
pub struct Session {
    dispatch: Arc<GroupDelivery>,
    hand: Arc<Hand>,
    max_in_flight: usize,
    /// Overrides the topic's.
    visibility_timeout: Option<Duration>,
    ended: bool,
}

impl Session {
    /// A consumer with empty hands, for at most `max_in_flight` deliveries at a time.
    ///
    /// # Errors
    /// `Full` with too many consumers waiting.
    pub fn open(
        dispatch: Arc<GroupDelivery>,
        max_in_flight: usize,
        visibility_timeout: Option<Duration>,
    ) -> Result<Session> {
        dispatch.admit()?;
        Ok(Session { dispatch, hand: Arc::default(), max_in_flight, visibility_timeout, ended: false })
    }

    /// Waits for the next delivery and for a place for it; `None` after `wait`, or when [`Session::is_over`].
    ///
    /// Nothing is taken unless it is returned.
    pub async fn next(&self, wait: Duration) -> Option<Delivery> {
        let until = self.dispatch.store.backend.clock().local().instant().plus(wait);
        let room = self.room(until).await?;
        let settings = &self.dispatch.descriptor().settings;
        let visibility_timeout = self.visibility_timeout.unwrap_or(settings.visibility_timeout);
        let _waiting = self.dispatch.demand.wait(room);
        let want = Want { max: 1, visibility_timeout, min_age: Duration::ZERO };
        self.dispatch.wait_for(Some(&self.hand), want, until).await.pop()
    }

    /// Whether nothing more is handed out: the process stops or the topic is gone.
    pub fn is_over(&self) -> bool {
        self.dispatch.is_closed()
    }

    /// Ends in order: what is undecided stays with the consumer until its deadline.
    pub fn end(mut self) {
        self.ended = true;
    }

    /// Waits for a place; answers how many there are.
    async fn room(&self, until: Instant) -> Option<usize> {
        // A consumer with full hands wants nothing now and is one all the same.
        let _waiting = self.dispatch.demand.wait(0);
        loop {
            // A place that was freed before now has left its permit, so none is missed.
            match self.max_in_flight.saturating_sub(self.hand.count()) {
                0 => tokio::select! {
                    () = self.hand.freed.notified() => {}
                    () = self.dispatch.store.backend.clock().local().sleep_until(until) => return None,
                    () = self.dispatch.closed.cancelled() => return None,
                },
                room => return Some(room),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Not while the hand is locked: every decision frees a place in it.
        let undecided = std::mem::take(&mut *self.hand.receipts());
        let now = now(self.dispatch.store.backend.clock());
        for receipt in undecided {
            let reason = Some("the stream's client went away".to_owned());
            let nack = Decision::Nack { delay: Some(Duration::ZERO), reason };
            let (verdict, made) = self.dispatch.decide(Some(receipt), nack, now);
            if let Some(made) = made {
                made.owned.kick.notify_one();
                self.dispatch.count(verdict);
            }
        }
    }
}

/// The undecided deliveries of a session.
#[derive(Debug, Default)]
pub struct Hand {
    receipts: Mutex<HashSet<Receipt>>,
    /// Fires when there is one less.
    freed: Notify,
}

impl Hand {
    /// Takes a delivery in hand, until the place is dropped.
    pub(super) fn hold(self: &Arc<Hand>, receipt: Receipt) -> Place {
        self.receipts().insert(receipt.clone());
        Place { hand: self.clone(), receipt }
    }

    fn count(&self) -> usize {
        self.receipts().len()
    }

    fn receipts(&self) -> MutexGuard<'_, HashSet<Receipt>> {
        // Nothing panics while the lock is held; if it did, the set would still be whole.
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one delivery in a hand. It lives in the owner's memory as long as the delivery is undecided, so that a
/// decision, a deadline and the loss of the pair all free it.
#[derive(Debug)]
pub(super) struct Place {
    hand: Arc<Hand>,
    receipt: Receipt,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hand.receipts().remove(&self.receipt);
        self.hand.freed.notify_one();
    }
}
