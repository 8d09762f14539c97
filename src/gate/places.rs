//! Places of consumers that wait: they hold connections for long, so there are fewer places than connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::identity::Identity;
use crate::model::error::{Error, Kind, Result};

#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    taken: AtomicUsize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    who: Identity,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Places> {
        Arc::new(Places { max: max.max(1), taken: AtomicUsize::new(0) })
    }

    /// Errors: `Full` when all places, or those of one token, are taken.
    pub(crate) fn enter(self: &Arc<Places>, who: &Identity) -> Result<Place> {
        let full = |why: &'static str| Error::new(Kind::Full, why);
        let below = |max: usize| move |taken: usize| (taken < max).then_some(taken + 1);
        if let Some(own) = who.waiting()
            && own.fetch_update(Ordering::SeqCst, Ordering::SeqCst, below(who.places(self.max))).is_err()
        {
            return Err(full("as many consumers wait with this token as may: the other places are for other tokens"));
        }
        if self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, below(self.max)).is_err() {
            if let Some(own) = who.waiting() {
                own.fetch_sub(1, Ordering::SeqCst);
            }
            return Err(full("as many consumers wait as may: the other connections are for those that do not"));
        }
        Ok(Place { places: self.clone(), who: who.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::SeqCst);
        if let Some(own) = self.who.waiting() {
            own.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::identity::Trust;

    #[test]
    fn one_token_leaves_places_to_others() {
        let places = Places::new(10);
        let [a, b] = ["a", "b"].map(|name| Identity::new(name.into(), Trust::Known));
        let mut held: Vec<_> = std::iter::from_fn(|| places.enter(&a).ok()).collect();
        assert_eq!(held.len(), 8);
        held.extend(std::iter::from_fn(|| places.enter(&b).ok()));
        assert_eq!(held.len(), 10);
        assert!(places.enter(&Identity::LOCAL).is_err());
        held.truncate(1);
        assert!(places.enter(&a).is_ok() && places.enter(&Identity::LOCAL).is_ok());
    }
}
