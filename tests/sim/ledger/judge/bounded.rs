//! The sentence about debounces with a bound.

use dwell_simulated_redis::Time;

use super::super::{Delivered, Effect, PushFact, Pushed, Sweep};
use super::admin::CLOCK_SLACK;
use super::{Breach, Judge};
use crate::operation::Policy;

const BOUNDED: &str = "a debounce moves a message no further from its first push than its bound";

impl Judge<'_> {
    /// The earliest due time that a debounce may give a message.
    pub(super) fn debounced_due(&self, debounce: &PushFact, push: &PushFact) -> Time {
        let Some(max) = debounce.debounce_max_ms else { return debounce.due };
        // One that was buffered may be the newer content of an older message, whose due time stays.
        let is_certain = push.policy != Policy::Replace || push.outcome.is_new();
        let all = self.pushes_of(push.target.topic, &push.target.id).iter();
        let first = all.map(|other| other.span.sent).min().filter(|_| !is_certain).unwrap_or(push.span.sent);
        debounce.due.min(Time::from_ms((first + max * 1_000).as_ms()))
    }

    /// For messages that nothing but debounces with a bound moved since they were pushed.
    pub(super) fn bounded(&self, delivery: &Delivered) -> Option<Breach> {
        let (push, due) = (*self.by_tag.get(&*delivery.tag)?, delivery.due?);
        let (topic, id, until) = (delivery.topic, &*delivery.id, delivery.span.end());
        let others = self.pushes_of(topic, id).iter().filter(|other| other.tag != push.tag && other.span.sent <= until);
        let debounces: Vec<_> = others
            .filter(|other| {
                other.policy == Policy::Debounce && !matches!(other.outcome, Pushed::Refused | Pushed::Duplicate)
            })
            .collect();
        let pushed = push.span.answered?;
        let own = (push.due + pushed.since(push.span.sent)).max(pushed);
        let bound = |other: &&&PushFact| Some(pushed + other.debounce_max_ms? * 1_000);
        let bounds = debounces.iter().map(bound).collect::<Option<Vec<_>>>()?;
        let latest = bounds.into_iter().fold(own, Time::max);
        let is_moved = self.controls_of(topic, id).any(|other| {
            other.effects[delivery.group] != Effect::None
                && other.span.sent <= until
                && other.span.end() >= push.span.sent
        });
        let is_redriven =
            self.ledger.sweeps.iter().any(|sweep| {
                (sweep.topic, sweep.sweep) == (topic, Sweep::Redrive) && sweep.span.end() >= push.span.sent
            });
        let is_certain = push.outcome.is_accepted()
            && delivery.place == topic
            && !is_moved
            && !is_redriven
            && self.is_one(push, delivery.group, until)
            && !self.is_changed_with_others(topic, push.span.sent, until);
        (is_certain && due > latest + CLOCK_SLACK).then(|| {
            let late = due.since(latest) / 1_000;
            let detail = format!("payload {}: due {late} ms after what its pushes allow", delivery.tag);
            self.breach(BOUNDED, topic, id, detail)
        })
    }
}
