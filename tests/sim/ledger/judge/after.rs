//! The sentence about messages that follow another one of their id.

use super::super::{Decision, Delivered, PushFact, Pushed, Sweep};
use super::{Breach, Judge};
use crate::operation::Policy;

const AFTER: &str = "a message that follows another one comes once that has ended";

impl Judge<'_> {
    /// Whether a message was perhaps stored behind another one of its id.
    pub(super) fn may_follow(&self, push: &PushFact) -> bool {
        push.policy == Policy::After && self.pushes_of(push.target.topic, &push.target.id).len() > 1
    }

    /// Whether all that was pushed under the id of a message is journaled, and nothing but pushes that follow was pushed after it.
    pub(super) fn is_followed_alone(&self, push: &PushFact) -> bool {
        self.pushes_of(push.target.topic, &push.target.id).iter().all(|other| {
            let is_journaled = match other.policy {
                Policy::After => matches!(other.outcome, Pushed::Journaled | Pushed::Replaced),
                Policy::Keep | Policy::Reject | Policy::Idempotent => other.outcome == Pushed::Journaled,
                Policy::Replace | Policy::Debounce => false,
            };
            is_journaled || matches!(other.outcome, Pushed::Duplicate | Pushed::Refused)
        })
    }

    /// Nothing of before is delivered any more, whoever dies meanwhile: only a Redis that forgot, and a redrive of what was dead.
    pub(super) fn after(&self, delivery: &Delivered) -> Option<Breach> {
        let push = *self.by_tag.get(&*delivery.tag)?;
        let (topic, group, at) = (delivery.topic, delivery.group, delivery.span.sent);
        let has_come = |follower: &&&PushFact| {
            let first = self.deliveries.get(&(&*follower.tag, group)).into_iter().flatten();
            let ends = first.filter_map(|number| self.ledger.deliveries[*number].span.answered);
            ends.min().is_some_and(|end| end < at)
        };
        let follower = self.pushes_of(topic, &push.target.id).iter().find(|other| {
            other.policy == Policy::After
                && other.outcome.is_new()
                && push.outcome.is_new()
                && push.span.end() < other.span.sent
                && has_come(other)
        })?;
        let is_buried = self.deliveries.get(&(&*push.tag, group)).into_iter().flatten().any(|number| {
            let settled = self.settlements.get(number).into_iter().flatten();
            settled.into_iter().any(|settled| matches!(settled.decision, Decision::Bury | Decision::Nack { .. }))
        });
        let is_redriven = self.ledger.sweeps.iter().any(|sweep| {
            (sweep.topic, sweep.group, sweep.sweep) == (topic, group, Sweep::Redrive)
                && sweep.span.end() >= push.span.sent
                && sweep.span.sent <= delivery.span.end()
        });
        let is_certain = delivery.visibility_ms > 0
            && delivery.place == topic
            && self.is_one(push, group, delivery.span.end())
            && self.topics[topic].forwards_to.is_none()
            && !(is_buried && is_redriven)
            && !self.forgot(push.span.sent, delivery.span.end());
        let detail = format!("payload {} after {}", delivery.tag, follower.tag);
        is_certain.then(|| self.breach(AFTER, topic, &delivery.id, detail))
    }
}
