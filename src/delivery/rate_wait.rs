//! Waiting for the slots of a group with a rate.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::futures::Notified;

use super::owned_partition::now;
use super::rate_limiter::{Outlook, slots_to_ask};
use super::{GroupDelivery, Want};
use crate::model::limits::SLOT_AHEAD_MAX;
use crate::model::time::Timestamp;
use crate::model::topic::Rate;
use crate::platform::clock::Instant;

/// The pause before a store is asked again that did not answer.
const TRY_AFTER: Duration = Duration::from_millis(250);

impl GroupDelivery {
    /// How many messages a second are handed out at most, if there is a limit.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.descriptor().subscriptions.get(&self.group).and_then(|subscription| subscription.rate)
    }

    /// Returns when a consumer who found nothing, and waits until `until`, should look again: when something
    /// has arrived; or, if something is there and only the rate holds it back, when a slot may be open. One consumer at a time sees
    /// to slots, and does nothing else meanwhile: a call that is given up would waste the slots that it brings.
    pub(super) async fn next_chance(&self, arrival: Pin<&mut Notified<'_>>, want: Want, until: Instant) {
        let clock = self.store.backend.clock().local();
        let Some(rate) = self.rate().filter(|_| self.has_ready(want)) else { return arrival.await };
        let Some(_porter) = self.gate.attend(&self.arrivals) else { return arrival.await };
        let now = clock.instant();
        if let Outlook::At(at) = self.gate.outlook(now) {
            return clock.sleep_until(at).await;
        }
        let ask = slots_to_ask(rate, want.max, until.since(now).min(SLOT_AHEAD_MAX));
        let topic = self.descriptor().topic.clone();
        match self.store.groups.slots(&topic, &self.group, ask).await {
            Ok(slots) => self.gate.given(slots, ask, (now, clock.instant())),
            Err(error) => {
                tracing::debug!(%topic, group = %self.group, %error, "no slots");
                clock.sleep(TRY_AFTER).await;
            }
        }
    }

    /// Whether a message could be handed out but for the rate.
    fn has_ready(&self, want: Want) -> bool {
        let now = now(self.store.backend.clock());
        let is_ripe = |at: Timestamp| at <= now.store;
        let open = self.pairs().into_iter().filter(|(_, owned)| owned.is_open(now.instant));
        open.into_iter().any(|(_, owned)| owned.table().ripe_at(want.min_age).is_some_and(is_ripe))
    }

    /// When a ready message that is too young for this consumer is old enough.
    pub(super) fn ripe_at(&self, want: Want) -> Instant {
        if want.min_age.is_zero() {
            return Instant::FAR;
        }
        let clock = self.store.backend.clock();
        let ripe = self.pairs().into_iter().filter_map(|(_, owned)| owned.table().ripe_at(want.min_age));
        // What is old enough already is not held back by its age.
        ripe.filter(|at| *at > clock.now()).min().map_or(Instant::FAR, |at| clock.reaches(at))
    }
}
