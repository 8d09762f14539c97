//! The sentence about groups that begin as a copy.

use dwell_simulated_redis::Time;

use super::super::{PushFact, Pushed};
use super::{Breach, Judge};

const COPIED: &str = "a group that begins as a copy gets all that its source had";

impl Judge<'_> {
    /// For messages that were in the source before the copy was asked for, and that nobody but its consumers touched, and not
    /// before it was there.
    pub(super) fn copied(&self, push: &PushFact) -> Option<Breach> {
        let (topic, id) = (push.target.topic, &*push.target.id);
        let removals = || self.ledger.removals.iter().filter(|removal| removal.topic == topic);
        let of_groups = || removals().filter(|removal| removal.back >= push.span.sent);
        let copy = of_groups().next().filter(|removal| removal.is_copied && of_groups().count() == 1)?;
        let group = copy.group?;
        let deliveries = self.deliveries.get(&(&*push.tag, 0)).into_iter().flatten();
        let is_taken =
            deliveries.map(|number| &self.ledger.deliveries[*number]).any(|first| first.span.sent <= copy.back);
        let is_certain = push.span.end() < copy.span.sent
            && copy.back < Time(u64::MAX)
            && !is_taken
            && matches!(push.outcome, Pushed::Stored | Pushed::Journaled)
            && !push.has_ttl
            && self.pushes_of(topic, id).len() == 1
            && self.controls_of(topic, id).next().is_none()
            && self.topics[topic].forwards_to.is_none()
            && !self.ledger.moves.iter().any(|of| of.topic == topic)
            && (0..self.topics[topic].groups.len()).all(|of| !self.may_be_swept(topic, of, push.span.sent))
            && !self.forgot(push.span.sent, Time(u64::MAX))
            // A consumer of the source took it, and its answer was lost.
            && !self.is_disturbed(push.span.sent, copy.back);
        if !is_certain || self.ended(push, group) {
            return None;
        }
        let detail = format!("payload {} in group {}", push.tag, self.topics[topic].groups[group]);
        Some(self.breach(COPIED, topic, id, detail))
    }
}
