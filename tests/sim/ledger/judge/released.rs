//! The sentence about deliveries that are given back.

use super::super::{Decision, Delivered, Settled, Sweep, Verdict};
use super::admin::occurrence;
use super::{Breach, Judge};

const RELEASED: &str = "a released delivery counts as no attempt";

impl Judge<'_> {
    /// For messages which nothing but consumers changed meanwhile: the next delivery has the number of the released one.
    pub(super) fn released(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let released = self.settlements.get(&number)?.iter().find(|settled| counts(settled))?;
        let had = delivery.span.answered?;
        let others = self.deliveries.get(&(&*delivery.tag, delivery.group))?.iter().filter(|other| **other != number);
        let others = others.map(|other| &self.ledger.deliveries[*other]);
        let next = others
            .filter(|other| other.span.answered.is_some_and(|at| at > had))
            .min_by_key(|other| other.span.answered)?;
        let (topic, group) = (delivery.topic, delivery.group);
        let (from, to) = (delivery.span.sent, next.span.end());
        // What a stream still had when it was closed was delivered, and nobody has seen it.
        let mut streams = self.ledger.streams.iter();
        let may_be_unseen = streams.any(|stream| {
            (stream.topic, stream.group) == (delivery.place, group)
                && stream.span.sent <= to
                && stream.span.end() >= from
        });
        let mut sweeps = self.ledger.sweeps.iter();
        let is_swept = sweeps.any(|sweep| {
            (sweep.topic, sweep.group, sweep.sweep) == (topic, group, Sweep::Redrive) && sweep.span.end() >= from
        });
        // SQS adds the attempts in the topic where it died, and says no partition.
        let counts_alike = delivery.place == topic || delivery.partition.is_some() == next.partition.is_some();
        let is_unnamed = occurrence(&delivery.tag).is_some() && self.is_unnamed((topic, group), from, to);
        let is_plain = delivery.place == next.place
            && !is_unnamed
            && counts_alike
            && released.span.end() <= to
            && !may_be_unseen
            && !is_swept
            && !self.is_disturbed(from, to)
            && !self.forgot(from, to)
            && !self.was_removed(topic, group, from, to)
            && !self.was_removed(delivery.place, group, from, to);
        (is_plain && next.attempt != delivery.attempt).then(|| {
            let detail = format!("payload {}: attempt {} after {}", delivery.tag, next.attempt, delivery.attempt);
            self.breach(RELEASED, topic, &delivery.id, detail)
        })
    }
}

fn counts(settled: &Settled) -> bool {
    settled.decision == Decision::Release && settled.verdict == Verdict::Counts
}
