//! Priorities: which of the ready messages comes next.

use super::gather::BatchKey;
use super::{Now, Table, Want};
use crate::model::limits::{PASSED_OVER_MAX, PREFETCH_MESSAGES_MAX};
use crate::model::message::Envelope;

/// Chooses among messages in order of due time: the first of the highest priority, but in turn the first of all.
#[derive(Debug, Default)]
pub(super) struct NextMessage {
    /// Whether there ever was a message of another priority than 0: without one the first is the next.
    pub(super) choosy: bool,
    passed: usize,
}

impl NextMessage {
    /// The position of the next one; of each message its priority, or `None` if it may not be taken.
    pub(super) fn choose(&mut self, priorities: impl Iterator<Item = Option<u8>>) -> Option<usize> {
        let (mut first, mut best) = (None, None);
        for (position, priority) in
            priorities.enumerate().filter_map(|(position, priority)| Some((position, priority?)))
        {
            first.get_or_insert(position);
            if best.is_none_or(|(_, highest)| priority > highest) {
                best = Some((position, priority));
            }
        }
        let (first, (best, _)) = (first?, best?);
        if best == first || self.passed >= PASSED_OVER_MAX {
            self.passed = 0;
            return Some(first);
        }
        self.passed += 1;
        Some(best)
    }
}

impl Table {
    /// Where priorities are used, more is prefetched: only messages in memory can be chosen from.
    pub(super) fn note_priority(&mut self, priority: u8) {
        self.chooser.choosy |= priority > 0;
        if self.chooser.choosy {
            self.appetite = PREFETCH_MESSAGES_MAX;
        }
    }

    pub(super) fn choose(&mut self, Want { min_age, .. }: Want, key: Option<&BatchKey>, now: Now) -> Option<usize> {
        if self.fair.is_none() && !self.chooser.choosy && min_age.is_zero() && key.is_none() {
            return (!self.ready.is_empty()).then_some(0);
        }
        let may = |envelope: &Envelope| {
            envelope.pushed_at.plus(min_age) <= now.store && key.is_none_or(|key| envelope.key == *key)
        };
        if self.fair.is_some() {
            return self.choose_fairly(may, now);
        }
        let ready = self.ready.iter().map(|held| &held.message.envelope);
        self.chooser.choose(ready.map(|envelope| may(envelope).then_some(envelope.priority)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands all of them out; a letter each, in order of due time, with its priority.
    fn order(messages: &[(char, u8)]) -> String {
        let (mut chooser, mut left, mut out) = (NextMessage::default(), messages.to_vec(), String::new());
        while let Some(position) = chooser.choose(left.iter().map(|(_, priority)| Some(*priority))) {
            out.push(left.remove(position).0);
        }
        out
    }

    #[test]
    fn highest_priority_first_then_by_due_time() {
        assert_eq!(order(&[('a', 0), ('b', 0), ('c', 0)]), "abc");
        assert_eq!(order(&[('a', 0), ('b', 9), ('c', 5), ('d', 9), ('e', 5), ('f', 0)]), "bdceaf");
    }

    #[test]
    fn head_message_is_passed_over_a_bounded_number_of_times() {
        let mut messages = vec![('x', 0), ('y', 1)];
        messages.extend((0..40).map(|_| ('h', 9)));
        let out = order(&messages);
        assert_eq!((out.find('x'), out.find('y')), (Some(PASSED_OVER_MAX), Some(2 * PASSED_OVER_MAX + 1)));
    }

    #[test]
    fn ineligible_messages_stay_in_place() {
        let mut chooser = NextMessage::default();
        assert_eq!(chooser.choose([None, Some(0), Some(3), None].into_iter()), Some(2));
        assert_eq!(chooser.choose([None, None].into_iter()), None);
        assert_eq!(chooser.choose(std::iter::empty()), None);
    }
}
