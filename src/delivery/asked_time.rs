//! When consumers of a group have waited for a message at this broker: of a late delivery, the part in which one had asked is
//! dwell's, and the rest is the consumers'.
//!
//! While a group is paused, at its limit of rate or of deliveries in flight, a consumer gets nothing by configuration: that time
//! is nobody's.

use std::collections::VecDeque;
use std::time::Duration;

use crate::platform::clock::Instant;

/// Spans of waiting that are remembered. A delivery that has been due for longer counts the older ones as unasked.
const SPANS: usize = 64;

/// Shorter spans are not remembered: those of consumers that get something at once.
const SPAN_MIN: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct AskedTime {
    waiting: usize,
    /// When the first of those that wait began to.
    since: Instant,
    /// Spans that are over, oldest first.
    past: VecDeque<(Instant, Instant)>,
    is_hindered: bool,
    /// Waiting before this does not count.
    not_before: Instant,
}

impl AskedTime {
    pub(super) fn begin(&mut self, now: Instant) {
        if self.waiting == 0 {
            self.since = now;
        }
        self.waiting += 1;
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 && now.since(self.since) >= SPAN_MIN {
            if self.past.len() == SPANS {
                self.past.pop_front();
            }
            self.past.push_back((self.since, now));
        }
    }

    /// Whether configuration keeps messages from those that wait, from now on.
    pub(super) fn hinder(&mut self, is_hindered: bool, now: Instant) {
        if self.is_hindered || is_hindered {
            self.not_before = now;
        }
        self.is_hindered = is_hindered;
    }

    /// For how long somebody waited, and could have got something, within the last `span`.
    pub(super) fn within(&self, span: Duration, now: Instant) -> Duration {
        let from = now.minus(span).max(self.not_before);
        let open = (self.waiting > 0).then_some((self.since, now));
        let past = self.past.iter().copied().rev().take_while(|(_, end)| *end > from);
        open.into_iter().chain(past).map(|(began, ended)| ended.since(began.max(from))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START.plus(Duration::from_millis(ms))
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_consumer_that_polls_every_two_seconds_has_asked_when_it_polls() {
        let mut asked = AskedTime::default();
        for poll in [0, 2_000, 4_000] {
            asked.begin(at(poll));
            if poll < 4_000 {
                asked.end(at(poll + 100));
            }
        }
        // Due at 2.5 s, taken by the poll of 4 s.
        assert_eq!(asked.within(ms(1_500), at(4_000)), Duration::ZERO);
        // It was there already when the poll of 2 s asked, for 40 ms.
        assert_eq!(asked.within(ms(1_940), at(4_000)), ms(40));
    }

    #[test]
    fn consumers_that_wait_have_asked_all_the_time_and_several_count_once() {
        let mut asked = AskedTime::default();
        asked.begin(at(1_000));
        asked.begin(at(1_500));
        asked.end(at(2_000));
        assert_eq!(asked.within(SECOND, at(3_000)), SECOND);
        assert_eq!(asked.within(5 * SECOND, at(3_000)), 2 * SECOND);
        // A long poll that ends, and the next one.
        asked.end(at(3_000));
        asked.begin(at(3_005));
        assert_eq!(asked.within(SECOND, at(3_500)), ms(995));
    }

    #[test]
    fn requests_that_are_answered_at_once_are_no_waiting() {
        let mut asked = AskedTime::default();
        for request in 0..1_000 {
            asked.begin(at(request * 30));
            asked.end(at(request * 30));
        }
        assert_eq!((asked.within(30 * SECOND, at(30_000)), asked.past.len()), (Duration::ZERO, 0));
    }

    #[test]
    fn time_in_which_a_limit_holds_messages_back_is_nobodys() {
        let mut asked = AskedTime::default();
        asked.begin(at(0));
        asked.hinder(true, at(1_000));
        asked.hinder(false, at(5_000));
        assert_eq!(asked.within(4 * SECOND, at(5_000)), Duration::ZERO);
        assert_eq!(asked.within(4 * SECOND, at(5_200)), ms(200));
    }

    #[test]
    fn only_recent_spans_are_remembered() {
        let mut asked = AskedTime::default();
        for span in 0..SPANS as u64 + 10 {
            asked.begin(at(span * 10));
            asked.end(at(span * 10 + 5));
        }
        assert_eq!((asked.past.len(), asked.past.front()), (SPANS, Some(&(at(100), at(105)))));
    }
}
