//! The sentence about how long a consumer waits for what is due.

use dwell_simulated_redis::Time;

use super::super::{Decision, Delivered, PushFact, Verdict};
use super::{Breach, Judge, PAUSE_SLACK};

const LATE: &str = "a consumer that waits gets what is due";

/// A lease ttl and a few calls: the longest time from when a message is due, a consumer asks, and no other broker has one of the
/// group in flight, until it is there, without a fault. What is in flight keeps the share of its broker.
const LATE_AFTER: u64 = 3_500_000;

impl Judge<'_> {
    /// For the first delivery of messages that nothing held up: not their order, a pause, a limit or a change.
    pub(super) fn late(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let push = *self.by_tag.get(&*delivery.tag)?;
        let at = delivery.span.answered?;
        let begin = push.due.max(push.span.answered?).max(delivery.span.sent);
        if at.since(begin) <= LATE_AFTER {
            return None;
        }
        let opened = self.opened((delivery.topic, delivery.group), at);
        let gathered = self.gathered_until(delivery.place, delivery.group, at);
        let begin = begin.max(self.elsewhere_until(delivery, at)).max(gathered).max(opened);
        if delivery.is_batch || at.since(begin) <= LATE_AFTER || !self.is_free(push, number, delivery, begin) {
            return None;
        }
        let detail = format!("payload {}: {} ms late", delivery.tag, at.since(begin) / 1_000);
        Some(self.breach(LATE, delivery.topic, &delivery.id, detail))
    }

    /// Until when a delivery of the group may have been in flight at another broker that began before this time.
    fn elsewhere_until(&self, delivery: &Delivered, at: Time) -> Time {
        let is_elsewhere = |other: &Delivered| {
            (other.place, other.group) == (delivery.place, delivery.group)
                && other.broker != delivery.broker
                && other.span.sent < at
        };
        let others = self.ledger.deliveries.iter().enumerate().filter(|(_, other)| is_elsewhere(other));
        others.map(|(number, other)| self.in_flight_until(number, other).min(at)).max().unwrap_or(Time(0))
    }

    fn in_flight_until(&self, number: usize, delivery: &Delivered) -> Time {
        let settled = self.settlements.get(&number).into_iter().flatten();
        let mut until = delivery.span.end() + self.topics[delivery.place].visibility_ms * 1_000;
        for settled in settled {
            until = match settled.decision {
                Decision::Extend { visibility_ms } => until.max(settled.span.end() + visibility_ms * 1_000),
                _ if settled.verdict == Verdict::Counts => until.min(settled.span.end()),
                _ => until,
            };
        }
        until
    }

    fn is_free(&self, push: &PushFact, number: usize, delivery: &Delivered, begin: Time) -> bool {
        let (topic, group, at) = (delivery.topic, delivery.group, delivery.span.end());
        let of_group = |other: (usize, usize)| other == (topic, group);
        let pauses = self.ledger.pauses.iter().filter(|pause| of_group((pause.topic, pause.group)));
        let limits =
            || self.ledger.limits.iter().filter(|limited| of_group((limited.limit.topic, limited.limit.group)));
        let is_limited = limits().filter(|limited| limited.limit.is_any()).any(|limited| {
            let mut later = limits().filter(|other| other.is_done && other.span.sent > limited.span.end());
            limited.span.sent <= at && !later.any(|other| other.span.end() + PAUSE_SLACK < begin)
        });
        let mut pauses = pauses.filter(|pause| pause.span.sent <= at);
        self.deliveries.get(&(&*push.tag, group)).is_some_and(|all| all.first() == Some(&number))
            && delivery.place == topic
            && !self.topics[topic].is_ordered
            && push.outcome.is_new()
            && self.pushes_of(topic, &push.target.id).len() == 1
            && self.controls_of(topic, &push.target.id).next().is_none()
            && !self.is_changed_with_others(topic, Time(0), at)
            && !is_limited
            && self.key_paused_until((topic, group), push.target.key.as_deref(), at) < begin
            && !pauses.any(|pause| {
                pause.span.end().0.saturating_add(pause.for_ms * 1_000).saturating_add(PAUSE_SLACK) >= begin.0
            })
            && !self.is_disturbed(begin, at)
            && !self.was_removed(topic, group, push.span.sent, at)
    }
}
