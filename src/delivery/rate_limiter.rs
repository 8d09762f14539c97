//! The gate of a group with a rate: a message goes out only in a slot, and slots are shared by all members of the group.
//!
//! The store gives slots, each once. When one begins and ends is reckoned from both ends of the call that brought it, so
//! that it is used within its time on the store's clock whatever the call took: not before the answer says that it begins, and not
//! after what it would be had the store answered at the send.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::wakeups::Wakeups;
use crate::model::limits::SLOT_OPEN;
use crate::model::topic::Rate;
use crate::platform::clock::Instant;
use crate::store::{SlotAsk, Slots};

/// When one message may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    from: Instant,
    to: Instant,
}

/// The slots that this member has.
#[derive(Debug, Default)]
pub(super) struct RateLimiter(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    slots: VecDeque<Slot>,
    /// Someone sees to the next slot.
    attended: bool,
    /// Before this no slot is given.
    not_before: Option<Instant>,
}

/// What who waits at the gate can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Wait until then: for the next slot, or to ask again.
    At(Instant),
    /// Ask for slots.
    Ask,
}

/// The one consumer who sees to the next slot, for all that wait. Whatever ends that, another one is woken to go on.
pub(super) struct Porter<'a> {
    gate: &'a RateLimiter,
    others: &'a Wakeups,
}

impl Drop for Porter<'_> {
    fn drop(&mut self) {
        self.gate.lock().attended = false;
        self.others.notify_one();
    }
}

impl RateLimiter {
    /// Takes up to `max` slots that are open now; those that are over are gone.
    pub(super) fn claim(&self, max: usize, now: Instant) -> Vec<Slot> {
        let mut open = self.lock();
        open.slots.retain(|slot| now < slot.to);
        let usable = open.slots.iter().take_while(|slot| slot.from <= now).count();
        open.slots.drain(..usable.min(max)).collect()
    }

    /// Puts slots back that were claimed and not used.
    pub(super) fn put_back(&self, unused: &[Slot]) {
        let mut open = self.lock();
        for slot in unused.iter().rev() {
            open.slots.push_front(*slot);
        }
    }

    /// What to do to get through.
    pub(super) fn outlook(&self, now: Instant) -> Outlook {
        let open = self.lock();
        match open.slots.iter().find(|slot| now < slot.to) {
            Some(slot) => Outlook::At(slot.from),
            None => open.not_before.filter(|at| now < *at).map_or(Outlook::Ask, Outlook::At),
        }
    }

    /// Becomes the porter; `None` while there is one.
    pub(super) fn attend<'a>(&'a self, others: &'a Wakeups) -> Option<Porter<'a>> {
        let was = std::mem::replace(&mut self.lock().attended, true);
        (!was).then_some(Porter { gate: self, others })
    }

    /// Takes the answer to a call that was sent and answered then.
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
        // Nothing panics while the lock is held; if it did, the slots would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many slots to ask for: no more than are wanted, and than are open at the same time, so that few are left unused.
pub(super) fn slots_to_ask(rate: Rate, wanted: usize, within: Duration) -> SlotAsk {
    let spacing = rate.spacing();
    let together = u32::try_from(SLOT_OPEN.as_nanos() / spacing.as_nanos().max(1)).unwrap_or(u32::MAX).max(1);
    SlotAsk { count: u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, together), spacing, within }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_open_for_as_long_as_is_certain() {
        let ms = |ms| Instant::START.plus(Duration::from_millis(ms));
        let ask = SlotAsk { count: 2, spacing: Duration::from_millis(10), within: Duration::from_secs(1) };
        let gate = RateLimiter::default();
        assert_eq!(gate.outlook(ms(0)), Outlook::Ask);
        // Sent at 0, answered at 5: the store said "in 20 ms" somewhere in between.
        gate.given(Slots { count: 2, after: Duration::from_millis(20) }, ask, (ms(0), ms(5)));
        assert_eq!((gate.outlook(ms(5)), gate.claim(9, ms(24))), (Outlook::At(ms(25)), vec![]));
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
        assert_eq!((gate.outlook(ms(201)), gate.outlook(ms(700))), (Outlook::At(ms(700)), Outlook::Ask));
    }

    #[tokio::test]
    async fn there_is_one_porter_and_the_next_one_is_woken() {
        let (gate, others) = (RateLimiter::default(), Wakeups::default());
        let porter = gate.attend(&others);
        assert!(porter.is_some() && gate.attend(&others).is_none());
        drop(porter);
        others.notified(false).await;
        assert!(gate.attend(&others).is_some());
    }
}
