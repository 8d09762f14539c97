//! A stream's session: limits its deliveries in flight, and returns undecided ones when its client disconnects.

use std::sync::Arc;
use std::time::Duration;

use super::receipt::{Decision, Delivery, SessionReceipts};
use super::{Gather, GroupDelivery, Want};
use crate::model::error::Result;
use crate::model::retry::OnFailure;
use crate::platform::clock::Instant;

/// Dropped without [`Session::end`] its client disconnected: undecided deliveries are nacked at once.
pub struct Session {
    delivery: Arc<GroupDelivery>,
    session_receipts: Arc<SessionReceipts>,
    max_in_flight: usize,
    visibility_timeout: Option<Duration>,
    ended: bool,
}

impl Session {
    pub fn open(
        delivery: Arc<GroupDelivery>,
        max_in_flight: usize,
        visibility_timeout: Option<Duration>,
    ) -> Result<Session> {
        delivery.admit()?;
        Ok(Session { delivery, session_receipts: Arc::default(), max_in_flight, visibility_timeout, ended: false })
    }

    /// `None` after `wait`, or when [`Session::is_over`]. Nothing is taken unless it is returned.
    pub async fn next(&self, wait: Duration) -> Option<Delivery> {
        let until = self.delivery.store.backend.clock().local().instant().plus(wait);
        let room = self.room(until).await?;
        let settings = &self.delivery.descriptor().settings;
        let visibility_timeout = self.visibility_timeout.unwrap_or(settings.visibility_timeout);
        let _waiting = self.delivery.demand.wait(room);
        let (min_age, on_failure) = (Duration::ZERO, OnFailure::default());
        let want = Want { max: 1, visibility_timeout, min_age, per_key: 1, on_failure, gather: Gather::default() };
        self.delivery.wait_for(Some(&self.session_receipts), want, until).await.pop()
    }

    /// Whether nothing more is handed out: the process stops or the topic is gone.
    pub fn is_over(&self) -> bool {
        self.delivery.is_closed()
    }

    /// Ends in order: what is undecided stays with the consumer until its deadline.
    pub fn end(mut self) {
        self.ended = true;
    }

    async fn room(&self, until: Instant) -> Option<usize> {
        // A consumer with full hands wants nothing now and is one all the same.
        let _waiting = self.delivery.demand.wait(0);
        loop {
            // A place that was freed before now has left its permit, so none is missed.
            match self.max_in_flight.saturating_sub(self.session_receipts.count()) {
                0 => tokio::select! {
                    () = self.session_receipts.freed.notified() => {}
                    () = self.delivery.store.backend.clock().local().sleep_until(until) => return None,
                    () = self.delivery.closed.cancelled() => return None,
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
        // Not while the receipts are locked: every decision removes one of them.
        let undecided = std::mem::take(&mut *self.session_receipts.receipts());
        let now = self.delivery.now();
        for receipt in undecided {
            let reason = Some("the stream's client went away".into());
            let nack = Decision::Nack { delay: Some(Duration::ZERO), reason };
            let (verdict, made) = self.delivery.decide(Ok(receipt), nack, now);
            if let Some(made) = made {
                made.owned.signal.notify_one();
                self.delivery.count(verdict);
            }
        }
    }
}
