//! The sentence about a cancel that a broker buffered, and a message of that id that is in Redis.

use super::super::{Control, Delivered, Effect, Pushed};
use super::{Breach, CANCELLED, Judge};

/// The longest time from the end of a fault until a broker has replayed what it had buffered.
const REPLAYED: u64 = 8_000_000;

impl Judge<'_> {
    /// For messages that were not due before the cancel was in Redis, and that nothing else changed since.
    pub(super) fn withdrawn(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let push = *self.by_tag.get(&*delivery.tag)?;
        let (topic, group, id) = (delivery.topic, delivery.group, &*delivery.id);
        let cancelled = self.controls_of(topic, id).find(|other| {
            other.control == Control::Cancel
                && other.is_buffered
                && other.effects[group] == Effect::Done
                && push.outcome.is_new()
                && push.span.end() < other.span.sent
                && other.span.end() + REPLAYED <= push.due
        })?;
        let (sent, at) = (cancelled.span.sent, delivery.span.end());
        let is_changed = self.pushes_of(topic, id).iter().any(|other| {
            // What is on the disk of that broker is cancelled with it.
            let is_cancelled =
                other.outcome == Pushed::Buffered && other.broker == cancelled.broker && other.span.end() < sent;
            other.tag != push.tag
                && other.span.end() >= push.span.sent
                && !is_cancelled
                && !matches!(other.outcome, Pushed::Refused | Pushed::Duplicate)
        });
        let is_certain = self.deliveries.get(&(&*push.tag, group))?.first() == Some(&number)
            && self.is_one(push, group, at)
            && !is_changed
            && !self
                .controls_of(topic, id)
                .any(|other| matches!(other.control, Control::Reschedule(_)) && other.span.end() >= push.span.sent)
            && self.bulks_between(topic, push.span.sent, at).next().is_none()
            && !self.ledger.wiped(cancelled.broker, sent)
            && !self.ledger.unjournaled(cancelled.broker, cancelled.span)
            && !self.forgot(push.span.sent, at)
            && !self.ledger.faults.iter().any(|fault| fault.at <= at && fault.over() + REPLAYED > push.due);
        let detail = format!("payload {}, by a cancel that was buffered", delivery.tag);
        is_certain.then(|| self.breach(CANCELLED, topic, id, detail))
    }
}
