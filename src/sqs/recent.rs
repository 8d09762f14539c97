//! Events of the last minute at this broker, for the limits that AWS sets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::platform::clock::Instant;

const KEPT: Duration = Duration::from_secs(60);
/// Past it everything is forgotten.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<BTreeMap<(&'static str, String), Instant>>);

impl Recent {
    pub(crate) fn note(&self, what: &'static str, name: &str, now: Instant) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|_, at| now.since(*at) < KEPT);
        if events.len() >= EVENTS_MAX {
            events.clear();
        }
        events.insert((what, name.to_owned()), now);
    }

    pub(crate) fn is_recent(&self, what: &'static str, name: &str, now: Instant) -> bool {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.get(&(what, name.to_owned())).is_some_and(|at| now.since(*at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_recent_for_a_minute() {
        let (recent, now) = (Recent::default(), Instant::START.plus(KEPT));
        recent.note("purged", "orders", now);
        assert!(recent.is_recent("purged", "orders", now.plus(KEPT - Duration::from_millis(1))));
        assert!(!recent.is_recent("purged", "orders", now.plus(KEPT)));
        assert!(!recent.is_recent("deleted", "orders", now));
        (0..2 * EVENTS_MAX).for_each(|n| recent.note("purged", &n.to_string(), now));
        assert!(recent.0.lock().is_ok_and(|events| events.len() <= EVENTS_MAX));
    }
}
