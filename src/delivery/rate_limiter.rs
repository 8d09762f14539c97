//! Limits the rate of a group: a message is handed out only in a slot, and all members of the group share the slots.
//!
//! The store gives each slot once. A slot is used within its time on the store's clock, whatever the call took: its begin
//! counts from the answer, its end from the send.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::futures::Notified;

use super::{GroupDelivery, Wakeups, Want};
use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::time::Timestamp;
use crate::model::topic::Rate;
use crate::platform::clock::Instant;
use crate::store::{SlotAsk, Slots};

/// The pause before a store is asked again that did not answer.
const TRY_AFTER: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    from: Instant,
    to: Instant,
}

#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    slots: VecDeque<Slot>,
    attended: bool,
    not_before: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextSlot {
    At(Instant),
    Ask,
}

/// Asks for the next slot on behalf of all waiting consumers. When it is dropped another one is woken to continue.
struct AttendGuard<'a> {
    gate: &'a RateLimiter,
    others: &'a Wakeups,
}

impl Drop for AttendGuard<'_> {
    fn drop(&mut self) {
        self.gate.lock().attended = false;
        self.others.notify_one();
    }
}

impl RateLimiter {
    pub(super) fn claim(&self, max: usize, now: Instant) -> Vec<Slot> {
        let mut open = self.lock();
        open.slots.retain(|slot| now < slot.to);
        let usable = open.slots.iter().take_while(|slot| slot.from <= now).count();
        open.slots.drain(..usable.min(max)).collect()
    }

    pub(super) fn put_back(&self, unused: &[Slot]) {
        let mut open = self.lock();
        for slot in unused.iter().rev() {
            open.slots.push_front(*slot);
        }
    }

    fn next_slot(&self, now: Instant) -> NextSlot {
        let open = self.lock();
        match open.slots.iter().find(|slot| now < slot.to) {
            Some(slot) => NextSlot::At(slot.from),
            None => open.not_before.filter(|at| now < *at).map_or(NextSlot::Ask, NextSlot::At),
        }
    }

    fn attend<'a>(&'a self, others: &'a Wakeups) -> Option<AttendGuard<'a>> {
        let was = std::mem::replace(&mut self.lock().attended, true);
        (!was).then_some(AttendGuard { gate: self, others })
    }

    pub(super) fn given(&self, slots: Slots, ask: SlotAsk, (sent, answered): (Instant, Instant)) {
        let mut open = self.lock();
        for number in 0..slots.count {
            let after = slots.after + ask.spacing * number;
            let slot = Slot { from: answered.plus(after), to: sent.plus(after + SLOT_OPEN) };
            if slot.from < slot.to {
                open.slots.push_back(slot);
            }
        }
        open.not_before = (slots.count == 0).then(|| sent.plus(slots.after.saturating_sub(ask.within)));
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many slots to ask for: no more than are wanted, and than are open at the same time, so that few are left unused.
fn slots_to_ask(rate: Rate, wanted: usize, within: Duration) -> SlotAsk {
    let spacing = rate.spacing();
    let together = u32::try_from(SLOT_OPEN.as_nanos() / spacing.as_nanos().max(1)).unwrap_or(u32::MAX).max(1);
    SlotAsk { count: u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, together), spacing, within }
}

impl GroupDelivery {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.descriptor().subscriptions.get(&self.group).and_then(|subscription| subscription.rate)
    }

    /// Returns when a consumer who found nothing, and waits until `until`, should look again: when something
    /// has arrived; or, if something is there and only the rate holds it back, when a slot may be open. One consumer at a time sees
    /// to slots, and does nothing else meanwhile: a call that is given up would waste the slots that it brings.
    pub(super) async fn next_chance(&self, arrival: Pin<&mut Notified<'_>>, want: Want, until: Instant) {
        let clock = self.store.backend.clock().local();
        // A group that is paused gets nothing in a slot either.
        let is_paused = self.rest(self.now().store).is_some();
        let Some(rate) = self.rate().filter(|_| !is_paused && self.has_ready(want)) else { return arrival.await };
        let Some(_porter) = self.gate.attend(&self.arrivals) else { return arrival.await };
        let now = clock.instant();
        if let NextSlot::At(at) = self.gate.next_slot(now) {
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

    fn has_ready(&self, want: Want) -> bool {
        let now = self.now();
        let is_ripe = |at: Timestamp| at <= now.store;
        let open = self.owned_partitions().into_iter().filter(|(_, owned)| owned.is_open(now.instant));
        open.into_iter().any(|(_, owned)| owned.table().ripe_at(want, now).is_some_and(is_ripe))
    }

    pub(super) fn ripe_at(&self, want: Want) -> Instant {
        if !want.is_demanding() {
            return Instant::FAR;
        }
        let (clock, now) = (self.store.backend.clock(), self.now());
        let ripe = self.owned_partitions().into_iter().filter_map(|(_, owned)| owned.table().ripe_at(want, now));
        // A message that is old enough already is not held back by its age.
        ripe.filter(|at| *at > clock.now()).min().map_or(Instant::FAR, |at| clock.reaches(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_slot_is_open_only_while_certain() {
        let ms = |ms| Instant::START.plus(Duration::from_millis(ms));
        let ask = SlotAsk { count: 2, spacing: Duration::from_millis(10), within: Duration::from_secs(1) };
        let gate = RateLimiter::default();
        assert_eq!(gate.next_slot(ms(0)), NextSlot::Ask);
        // Sent at 0, answered at 5: the store said "in 20 ms" somewhere in between.
        gate.given(Slots { count: 2, after: Duration::from_millis(20) }, ask, (ms(0), ms(5)));
        assert_eq!((gate.next_slot(ms(5)), gate.claim(9, ms(24))), (NextSlot::At(ms(25)), vec![]));
        let first = gate.claim(9, ms(25));
        assert_eq!(first, [Slot { from: ms(25), to: ms(70) }]);
        gate.put_back(&first);
        assert_eq!(gate.claim(1, ms(69)).len(), 1);
        assert_eq!(gate.claim(9, ms(69)), [Slot { from: ms(35), to: ms(80) }]);
        // An answer that took too long brings nothing that is certainly still open.
        gate.given(Slots { count: 1, after: Duration::ZERO }, ask, (ms(100), ms(150)));
        assert_eq!(gate.claim(9, ms(150)), []);
        // None before its time: ask again when one could be within reach.
        gate.given(Slots { count: 0, after: Duration::from_millis(1_500) }, ask, (ms(200), ms(201)));
        assert_eq!((gate.next_slot(ms(201)), gate.next_slot(ms(700))), (NextSlot::At(ms(700)), NextSlot::Ask));
    }

    #[tokio::test]
    async fn one_waiter_attends_the_limiter_and_the_next_is_woken() {
        let (gate, others) = (RateLimiter::default(), Wakeups::default());
        let porter = gate.attend(&others);
        assert!(porter.is_some() && gate.attend(&others).is_none());
        drop(porter);
        others.notified(false).await;
        assert!(gate.attend(&others).is_some());
    }
}
