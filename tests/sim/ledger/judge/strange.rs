//! The sentence about a Redis of others.

use std::collections::BTreeMap;

use dwell_simulated_redis::Time;

use super::super::{Delivered, Pushed};
use super::{Breach, Judge};
use crate::client::THEIRS;
use crate::plan::Fault;

const GIVEN: &str = "what was kept for one Redis is given to no other";

/// The words of a key with its content, without what is only in the bytes of a message.
fn words(line: &str) -> Vec<String> {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                if chars.next() == Some('x') {
                    chars.nth(1);
                }
                text.push(' ');
            }
            char => text.push(char),
        }
    }
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '-').map(str::to_owned).collect()
}

impl Judge<'_> {
    /// When a Redis of others came for the first time.
    fn others_came(&self) -> Option<Time> {
        let strangers = self.ledger.faults.iter().filter(|fault| matches!(fault.fault, Fault::Stranger { .. }));
        strangers.map(|fault| fault.at).min()
    }

    /// Whether brokers may have asked a Redis of others at any of these times.
    pub(super) fn is_with_others(&self, from: Time, to: Time) -> bool {
        let mut strangers = self.ledger.faults.iter().filter(|fault| matches!(fault.fault, Fault::Stranger { .. }));
        strangers.any(|fault| fault.at <= to && fault.until >= from)
    }

    /// Whether a Redis of others had come by then.
    pub(super) fn met_others(&self, by: Time) -> bool {
        self.others_came().is_some_and(|came| came <= by)
    }

    /// Whether a broker had something for its Redis when one of others came for the first time. One that had nothing may stay
    /// with the other one.
    pub(super) fn is_bound(&self, broker: usize) -> bool {
        let Some(first) = self.others_came() else { return true };
        self.ledger.pushes.iter().any(|push| {
            push.broker == broker
                && matches!(push.outcome, Pushed::Journaled | Pushed::Buffered)
                && push.span.end() < first
        })
    }

    /// A message of the others, from a broker that stays with them.
    pub(super) fn is_of_others(&self, delivery: &Delivered) -> bool {
        delivery.tag.starts_with(THEIRS) && !self.is_bound(delivery.broker)
    }

    pub(super) fn strange(&self) -> Vec<Breach> {
        let mut given = BTreeMap::new();
        for strange in &self.ledger.strange {
            let found = strange.given.iter().flat_map(|line| words(line).into_iter().map(move |word| (word, line)));
            for (word, line) in found {
                given.entry(word).or_insert((strange, line));
            }
        }
        let bound = self.ledger.pushes.iter().filter(|push| self.is_bound(push.broker));
        bound
            .filter_map(|push| {
                let (strange, line) = given.get(&push.tag)?;
                let is_kept = match push.outcome {
                    Pushed::Buffered => push.span.end() < strange.until,
                    Pushed::Journaled => push.span.end() < strange.from,
                    _ => false,
                };
                let key = line.split(' ').next().unwrap_or_default();
                let detail = format!("payload {} of broker {} is in {key}", push.tag, push.broker);
                let push = is_kept.then_some(push)?;
                Some(self.breach(GIVEN, push.target.topic, &push.target.id, detail))
            })
            .collect()
    }
}
