//! The sentence about pushes that are answered as if a message of their id was there.

use dwell_simulated_redis::Time;

use super::super::{Decision, PushFact, Pushed, Span, Verdict};
use super::{Breach, Judge};

const MET: &str = "a push meets only a message that is there";

impl Judge<'_> {
    /// For topics that remember no ids, and out of which nothing is moved. A Redis of others has messages of the same ids.
    pub(super) fn met(&self, push: &PushFact) -> Option<Breach> {
        let (topic, id) = (push.target.topic, &*push.target.id);
        let settings = &self.topics[topic];
        let has_met = matches!(push.outcome, Pushed::Duplicate | Pushed::Debounced | Pushed::Replaced);
        let is_plain = settings.dedup_window_ms == 0
            && settings.forwards_to.is_none()
            && !self.ledger.moves.iter().any(|of| of.topic == topic);
        let is_theirs = !self.is_bound(push.broker) && self.met_others(push.span.end());
        if !has_met
            || !is_plain
            || is_theirs
            || (0..settings.groups.len()).any(|of| self.was_removed(topic, of, Time(0), push.span.end()))
        {
            return None;
        }
        let mut others = self.pushes_of(topic, id).iter().filter(|other| {
            other.tag != push.tag
                && other.span.sent <= push.span.end()
                && !matches!(other.outcome, Pushed::Refused | Pushed::Duplicate)
        });
        if others.any(|other| !(0..settings.groups.len()).all(|group| self.is_over(other, group, push.span))) {
            return None;
        }
        Some(self.breach(MET, topic, id, format!("payload {} was {:?}", push.tag, push.outcome)))
    }

    /// Whether a message was certainly acked in a group before a call, and this is known to all.
    fn is_over(&self, push: &PushFact, group: usize, call: Span) -> bool {
        let deliveries = self.deliveries.get(&(&*push.tag, group)).into_iter().flatten();
        deliveries.filter_map(|number| self.settlements.get(number)).flatten().any(|settled| {
            settled.decision == Decision::Ack
                && settled.verdict == Verdict::Counts
                && settled.span.end() < call.sent
                && self.keeps_ack(push.outcome == Pushed::Journaled, settled.span, call.end())
        })
    }
}
