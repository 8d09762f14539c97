//! The sentence about the errors of attempts.

use super::super::{Decision, ErrorSeen, Settled, Sweep, Verdict};
use super::{Breach, Judge};
use crate::errors::Shown;

const ERROR: &str = "the error that is shown is that of the last attempt";

impl<'a> Judge<'a> {
    pub(super) fn error(&self, seen: &ErrorSeen) -> Option<Breach> {
        let breach = |why: &str| {
            let detail = format!("payload {}: {:?} {why}", seen.tag, seen.error);
            self.breach(ERROR, seen.topic, &seen.id, detail)
        };
        let nacks = || self.nacks_of(seen).into_iter().filter(|nack| nack.verdict != Verdict::Stale);
        match &seen.error {
            Shown::Strange(_) => return Some(breach("is nobody's")),
            Shown::Of(delivery) if !nacks().any(|nack| nack.delivery == *delivery && nack.is_told) => {
                return Some(breach("is that of another message"));
            }
            _ => {}
        }
        let counted = nacks().filter(|nack| nack.verdict == Verdict::Counts && nack.span.end() < seen.span.sent);
        let last = counted.max_by_key(|nack| nack.span.sent)?;
        // A nack that may have come after that one.
        let may_be_later = |nack: &&Settled| nack.span.end() >= last.span.sent && nack.span.sent <= seen.span.end();
        let is_right = match &seen.error {
            Shown::OfTheBroker => true,
            Shown::Nothing => nacks().filter(may_be_later).any(|nack| !nack.is_told),
            Shown::Of(delivery) => nacks().filter(may_be_later).any(|nack| nack.delivery == *delivery),
            Shown::Strange(_) => false,
        };
        (!is_right && self.is_plain_since(seen, last)).then(|| breach(&format!("after that of {}", last.delivery)))
    }

    fn nacks_of(&self, seen: &ErrorSeen) -> Vec<&'a Settled> {
        let deliveries = self.deliveries.get(&(&*seen.tag, seen.group)).into_iter().flatten();
        let settled = deliveries.filter_map(|number| self.settlements.get(number)).flatten().copied();
        settled.filter(|settled| matches!(settled.decision, Decision::Nack { .. } | Decision::Bury)).collect()
    }

    /// Whether nothing but its consumers changed the message since a nack, and Redis lost nothing.
    fn is_plain_since(&self, seen: &ErrorSeen, nack: &Settled) -> bool {
        let (topic, group, from, to) = (seen.topic, seen.group, nack.span.sent, seen.span.end());
        let mut sweeps = self.ledger.sweeps.iter();
        let is_redriven = sweeps.any(|sweep| {
            (sweep.topic, sweep.group, sweep.sweep) == (topic, group, Sweep::Redrive) && sweep.span.end() >= from
        });
        self.by_tag.get(&*seen.tag).is_some_and(|push| self.is_one(push, group, to))
            && self.topics[topic].forwards_to.is_none()
            && !is_redriven
            && !self.is_disturbed(from, to)
            && !self.forgot(from, to)
    }
}
