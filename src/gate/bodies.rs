//! A memory budget, for the whole process, of request bodies that are still arriving.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::identity::{Identity, Trust};
use crate::model::limits::SMALL_BODY_BYTES_MAX;

/// A memory budget, for the whole process, of request bodies that are still arriving.
///
/// A client may announce a body and send it slowly, or never to its end. When there is no room for another body, the one
/// that has waited longest for its client is evicted, first of those whose senders have proven nothing: they have a half of the
/// budget together. Large bodies leave an eighth of the budget to small ones, and no token has more than half of it. A body that
/// arrives in one piece is not counted.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    max: usize,
    bodies: Mutex<Bodies>,
}

/// In the order of their last bytes: the first has waited longest.
#[derive(Debug, Default)]
struct Bodies {
    next: u64,
    arriving: BTreeMap<u64, Arriving>,
    held: usize,
    large: usize,
    unproven: usize,
    by_name: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Arriving {
    bytes: usize,
    who: Identity,
    evicted: CancellationToken,
}

#[derive(Debug)]
pub(crate) struct Reading<'a> {
    budget: &'a BodyBudget,
    who: Identity,
    place: Option<u64>,
    evicted: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl BodyBudget {
    pub(crate) fn new(max: usize) -> BodyBudget {
        BodyBudget { max, bodies: Mutex::default() }
    }

    pub(crate) fn begin(&self, who: Identity) -> Reading<'_> {
        Reading { budget: self, who, place: None, evicted: CancellationToken::new() }
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading<'_> {
    /// Takes the bytes that have arrived since the beginning; evicts others if that makes room. # Errors: `NoRoom` when
    /// this body was evicted, or is larger than the limit.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let mut bodies = self.budget.bodies();
        if let Some(place) = self.place.take()
            && bodies.remove(place).is_none()
        {
            return Err(NoRoom);
        }
        let body = Arriving { bytes, who: self.who.clone(), evicted: self.evicted.clone() };
        while let Some(scarce) = bodies.lacks(self.budget, &body) {
            let longest = bodies.longest_waiting(scarce, &body).ok_or(NoRoom)?;
            if let Some(other) = bodies.remove(longest) {
                other.evicted.cancel();
            }
        }
        self.place = Some(bodies.insert(body));
        Ok(())
    }

    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.budget.bodies().remove(place);
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Scarce {
    Budget,
    RoomOfLarge,
    RoomOfUnproven,
    Share,
}

impl Arriving {
    fn is_large(&self) -> bool {
        self.bytes > SMALL_BODY_BYTES_MAX
    }

    fn is_unproven(&self) -> bool {
        self.who.trust() != Trust::Known
    }

    fn helps(&self, scarce: Scarce, other: &Arriving) -> bool {
        // A body makes no room for itself with those of senders that have proven more.
        self.who.trust() <= other.who.trust()
            && match scarce {
                Scarce::Budget => true,
                Scarce::RoomOfLarge => self.is_large(),
                Scarce::RoomOfUnproven => self.is_unproven(),
                Scarce::Share => self.who == other.who,
            }
    }
}

impl Bodies {
    fn lacks(&self, budget: &BodyBudget, body: &Arriving) -> Option<Scarce> {
        let own = body.who.name().map(|name| self.by_name.get(name).copied().unwrap_or(0));
        if own.is_some_and(|held| held + body.bytes > body.who.memory(budget.max)) {
            return Some(Scarce::Share);
        }
        if body.is_unproven() && self.unproven + body.bytes > budget.max / 2 {
            return Some(Scarce::RoomOfUnproven);
        }
        if body.is_large() && self.large + body.bytes > budget.max - budget.max / 8 {
            return Some(Scarce::RoomOfLarge);
        }
        (self.held + body.bytes > budget.max).then_some(Scarce::Budget)
    }

    fn longest_waiting(&self, scarce: Scarce, body: &Arriving) -> Option<u64> {
        let helping = self.arriving.iter().filter(|(_, other)| other.helps(scarce, body));
        helping.min_by_key(|(place, other)| (other.who.trust(), **place)).map(|(place, _)| *place)
    }

    fn insert(&mut self, body: Arriving) -> u64 {
        self.held += body.bytes;
        if body.is_large() {
            self.large += body.bytes;
        }
        if body.is_unproven() {
            self.unproven += body.bytes;
        }
        if let Some(name) = body.who.name() {
            *self.by_name.entry(name.clone()).or_default() += body.bytes;
        }
        let place = self.next;
        self.next += 1;
        self.arriving.insert(place, body);
        place
    }

    fn remove(&mut self, place: u64) -> Option<Arriving> {
        let body = self.arriving.remove(&place)?;
        self.held -= body.bytes;
        if body.is_large() {
            self.large -= body.bytes;
        }
        if body.is_unproven() {
            self.unproven -= body.bytes;
        }
        if let Some(name) = body.who.name()
            && let Some(held) = self.by_name.get_mut(name)
        {
            *held -= body.bytes;
            if *held == 0 {
                self.by_name.remove(name);
            }
        }
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = SMALL_BODY_BYTES_MAX + 1;

    fn budget() -> BodyBudget {
        BodyBudget::new(8 * LARGE)
    }

    fn reading<'a>(budget: &'a BodyBudget, who: &Identity, bytes: usize) -> Result<Reading<'a>, NoRoom> {
        let mut reading = budget.begin(who.clone());
        reading.hold(bytes)?;
        Ok(reading)
    }

    fn evictions(readings: &[Reading<'_>]) -> Vec<bool> {
        readings.iter().map(|reading| reading.evicted.is_cancelled()).collect()
    }

    #[test]
    fn longest_stalled_body_is_evicted_and_memory_released() -> Result<(), NoRoom> {
        let budget = budget();
        let mut readings = (0..7).map(|_| reading(&budget, &Identity::LOCAL, LARGE)).collect::<Result<Vec<_>, _>>()?;
        // The first one receives more, so the second has waited longest.
        readings[0].hold(LARGE)?;
        assert_eq!(evictions(&readings), [false; 7]);
        let more = reading(&budget, &Identity::LOCAL, LARGE)?;
        assert_eq!(evictions(&readings), [false, true, false, false, false, false, false]);
        assert_eq!(readings[1].hold(LARGE), Err(NoRoom));
        assert!(reading(&budget, &Identity::LOCAL, 8 * LARGE).is_err(), "more than there may be");
        drop((readings, more));
        let bodies = budget.bodies();
        assert_eq!((bodies.held, bodies.large, bodies.arriving.len()), (0, 0, 0));
        Ok(())
    }

    #[test]
    fn large_bodies_leave_budget_for_small_ones() -> Result<(), NoRoom> {
        let budget = budget();
        let large = (0..7).map(|_| reading(&budget, &Identity::LOCAL, LARGE)).collect::<Result<Vec<_>, _>>()?;
        let small = reading(&budget, &Identity::LOCAL, SMALL_BODY_BYTES_MAX)?;
        assert_eq!(evictions(&large), [false; 7]);
        let mut small = small;
        small.hold(LARGE)?;
        assert_eq!(evictions(&large), [true, false, false, false, false, false, false]);
        Ok(())
    }

    #[test]
    fn one_token_cannot_exceed_its_share_of_the_budget() -> Result<(), NoRoom> {
        let (budget, [a, b]) = (budget(), ["a", "b"].map(|name| Identity::new(name.into(), Trust::Known)));
        let others = [reading(&budget, &b, LARGE)?, reading(&budget, &Identity::LOCAL, LARGE)?];
        let own = (0..5).map(|_| reading(&budget, &a, LARGE)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!((evictions(&others), evictions(&own)), (vec![false; 2], vec![true, false, false, false, false]));
        assert!(reading(&budget, &a, 5 * LARGE).is_err(), "more than its share");
        Ok(())
    }

    #[test]
    fn unproven_bodies_yield_first_and_never_displace_others() -> Result<(), NoRoom> {
        let budget = budget();
        let claimed = |name: &str| Identity::new(name.into(), Trust::Claimed);
        let token = Identity::new("a".into(), Trust::Known);
        let held = (0..3).map(|_| reading(&budget, &token, LARGE)).collect::<Result<Vec<_>, _>>()?;
        let mut stalled = Vec::new();
        for n in 0..30 {
            stalled.extend(reading(&budget, &claimed(&format!("a at 10.0.0.{n}")), LARGE));
        }
        assert_eq!(evictions(&held), [false; 3]);
        assert_eq!(budget.bodies().unproven, 4 * LARGE, "half of it, however many they are");
        let other = Identity::new("b".into(), Trust::Known);
        let more = (0..4).map(|_| reading(&budget, &other, LARGE)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!((evictions(&held), evictions(&more)), (vec![false; 3], vec![false; 4]));
        assert_eq!(budget.bodies().unproven, 0);
        assert!(reading(&budget, &claimed("a at 10.0.0.1"), LARGE).is_err(), "the bodies of others stay");
        drop((held, more, stalled));
        assert!(budget.bodies().by_name.is_empty());
        Ok(())
    }
}
