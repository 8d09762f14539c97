//! Which of the ready messages is handed out next.

use std::time::Duration;

use super::{Now, Table};
use crate::model::limits::{PASSED_OVER_MAX, PREFETCH_MESSAGES_MAX};
use crate::model::time::Timestamp;

/// Chooses among messages in order of due time: the first of the highest priority, but in turn the first of all.
#[derive(Debug, Default)]
pub(super) struct NextMessage {
    /// Whether there ever was a message of another priority than 0: without one the first is the next.
    choosy: bool,
    /// How many were handed out since the first one was.
    passed: usize,
}

impl NextMessage {
    /// The place of the next one; of each message its priority, or `None` if it may not be taken.
    fn choose(&mut self, priorities: impl Iterator<Item = Option<u8>>) -> Option<usize> {
        let (mut first, mut best) = (None, None);
        for (place, priority) in priorities.enumerate().filter_map(|(place, priority)| Some((place, priority?))) {
            first.get_or_insert(place);
            if best.is_none_or(|(_, highest)| priority > highest) {
                best = Some((place, priority));
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
    /// Takes note of a message that was reserved. Where priorities are used, more is prefetched: only what is in memory can
    /// be chosen from.
    pub(super) fn note_priority(&mut self, priority: u8) {
        self.chooser.choosy |= priority > 0;
        if self.chooser.choosy {
            self.appetite = PREFETCH_MESSAGES_MAX;
        }
    }

    /// The place among the ready messages of the one to hand out next to who wants them to be so old.
    pub(super) fn choose(&mut self, min_age: Duration, now: Now) -> Option<usize> {
        if !self.chooser.choosy && min_age.is_zero() {
            return (!self.ready.is_empty()).then_some(0);
        }
        let ready = self.ready.iter().map(|held| &held.message.envelope);
        let may = ready.map(|message| (message.pushed_at.plus(min_age) <= now.store).then_some(message.priority));
        self.chooser.choose(may)
    }

    /// When the first of the ready messages is so old; in the past if one is. `None` while nothing could be handed out.
    pub fn ripe_at(&self, min_age: Duration) -> Option<Timestamp> {
        if self.out.len() >= self.policy.in_flight {
            return None;
        }
        self.ready.iter().map(|held| held.message.envelope.pushed_at.plus(min_age)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands all of them out; a letter each, in order of due time, with its priority.
    fn order(messages: &[(char, u8)]) -> String {
        let (mut chooser, mut left, mut out) = (NextMessage::default(), messages.to_vec(), String::new());
        while let Some(place) = chooser.choose(left.iter().map(|(_, priority)| Some(*priority))) {
            out.push(left.remove(place).0);
        }
        out
    }

    #[test]
    fn the_highest_priority_comes_first_and_equals_by_due_time() {
        assert_eq!(order(&[('a', 0), ('b', 0), ('c', 0)]), "abc");
        assert_eq!(order(&[('a', 0), ('b', 9), ('c', 5), ('d', 9), ('e', 5), ('f', 0)]), "bdceaf");
    }

    #[test]
    fn the_first_of_all_is_not_passed_over_more_than_so_often() {
        let mut messages = vec![('x', 0), ('y', 1)];
        messages.extend((0..40).map(|_| ('h', 9)));
        let out = order(&messages);
        assert_eq!((out.find('x'), out.find('y')), (Some(PASSED_OVER_MAX), Some(2 * PASSED_OVER_MAX + 1)));
    }

    #[test]
    fn what_may_not_be_taken_is_left_where_it_is() {
        let mut chooser = NextMessage::default();
        assert_eq!(chooser.choose([None, Some(0), Some(3), None].into_iter()), Some(2));
        assert_eq!(chooser.choose([None, None].into_iter()), None);
        assert_eq!(chooser.choose(std::iter::empty()), None);
    }
}
