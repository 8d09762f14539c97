//! What stays wrong is not said again and again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Instant;

/// How long what was said is enough, while it stays wrong.
const ENOUGH: Duration = Duration::from_secs(60);

/// How long it is enough once it was over: what comes and goes many times a second is not said each time.
const ENOUGH_ONCE_OVER: Duration = Duration::from_secs(10);

/// Decides whether a line is to be logged that may be true twice a second for hours. One for each thing to be said.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    is_over: bool,
}

impl Seldom {
    /// Whether it is to be said now. It is taken as said then.
    pub fn is_due(&self, now: Instant) -> bool {
        let mut said = self.said();
        let enough = if said.is_over { ENOUGH_ONCE_OVER } else { ENOUGH };
        if said.last.is_some_and(|last| now.since(last) < enough) {
            return false;
        }
        *said = Said { last: Some(now), is_over: false };
        true
    }

    /// It is not wrong any more. Answers whether it was said, so that the end is to be said too.
    pub fn is_over(&self) -> bool {
        let mut said = self.said();
        said.last.is_some() && !std::mem::replace(&mut said.is_over, true)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn what_stays_wrong_is_said_each_minute() {
        let seldom = Seldom::default();
        let said: Vec<u64> = (5..200).filter(|second| seldom.is_due(at(*second))).collect();
        assert_eq!(said, [5, 65, 125, 185]);
    }

    #[test]
    fn what_comes_and_goes_is_said_each_ten_seconds_and_its_end_as_often() {
        let (seldom, mut begun, mut ended) = (Seldom::default(), Vec::new(), Vec::new());
        assert!(!seldom.is_over());
        for second in 0..25 {
            begun.extend(seldom.is_due(at(second)).then_some(second));
            ended.extend(seldom.is_over().then_some(second));
        }
        assert_eq!((&begun, &ended), (&vec![0, 10, 20], &vec![0, 10, 20]));
        // What is not said at once because it was said just before is said when it stays.
        assert!(!seldom.is_due(at(25)) && seldom.is_due(at(30)));
    }
}
