//! The sentence about what was in a group that was purged.

use dwell_simulated_redis::Time;

use super::super::{Control, Delivered, PushFact, Sweep};
use super::{Breach, Judge};

const PURGED: &str = "what was purged is not delivered";

/// A broker that buffers counts its time on from the last answer of Redis, and may be ahead by what that answer took.
const AHEAD: u64 = 2_000_000;

/// Until the owners at other brokers have heard of a purge.
const HEARD: u64 = 100_000;

/// A lease ttl and a call: an owner that does not hear of a purge hands out what it has in memory until its lease lapses.
const LAPSED: u64 = 3_500_000;

impl Judge<'_> {
    /// For messages that were accepted, also into the log of a broker, before the purge.
    pub(super) fn purged(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let push = *self.by_tag.get(&*delivery.tag)?;
        let (topic, group, id) = (delivery.topic, delivery.group, &*delivery.id);
        let purge = self.ledger.sweeps.iter().find(|sweep| {
            (sweep.topic, sweep.group, sweep.sweep) == (topic, group, Sweep::PurgeGroup)
                && sweep.is_done
                && push.span.end() + AHEAD < sweep.span.sent
                && sweep.span.end().0.saturating_add(self.known_after(sweep.span.sent, delivery)) < delivery.span.sent.0
        })?;
        let (sent, at) = (purge.span.sent, delivery.span.end());
        let is_known = !self.forgot_without(purge.broker, sent) && !self.ledger.unjournaled(purge.broker, purge.span);
        let is_certain = push.outcome.is_accepted()
            && delivery.place == topic
            && self.is_one(push, group, at)
            && self.is_alive(push, number, delivery)
            && (!self.forgot(push.span.sent, at) || is_known)
            // A change of a message that a broker has on its disk makes it one of after the purge.
            && !self.controls_of(topic, id).any(|other| {
                matches!(other.control, Control::Reschedule(_)) && other.span.end() >= sent
            })
            && self.bulks_between(topic, sent, at).next().is_none();
        let ms = delivery.span.sent.since(purge.span.end()) / 1_000;
        let detail = format!("payload {}: asked for {ms} ms after the purge", delivery.tag);
        is_certain.then(|| self.breach(PURGED, topic, id, detail))
    }

    /// How long after its answer the broker of a delivery may not know yet of a purge.
    fn known_after(&self, sent: Time, delivery: &Delivered) -> u64 {
        let mut felt = self.ledger.faults.iter().filter(|fault| fault.until >= sent && fault.at <= delivery.span.end());
        if felt.any(|fault| fault.fault.deafens(delivery.broker)) { LAPSED } else { HEARD }
    }

    /// Whether it cannot have been a dead letter at the purge, which leaves those, and have been redriven since.
    fn is_alive(&self, push: &PushFact, number: usize, delivery: &Delivered) -> bool {
        let is_first =
            self.deliveries.get(&(&*push.tag, delivery.group)).is_some_and(|all| all.first() == Some(&number));
        let is_redriven = self.ledger.sweeps.iter().any(|sweep| {
            (sweep.topic, sweep.group, sweep.sweep) == (delivery.topic, delivery.group, Sweep::Redrive)
                && sweep.span.end() >= push.span.sent
                && sweep.span.sent <= delivery.span.end()
        });
        is_first && !push.has_ttl || !is_redriven
    }
}
