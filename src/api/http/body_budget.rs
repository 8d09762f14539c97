//! The memory of request bodies that are still arriving: a budget for the whole process.
//!
//! A client may announce a body and send it slowly, or never to its end. So that such bodies keep nobody else out, the one
//! that has waited longest for its client gives way when there is no room for another one; large bodies leave a part of the
//! budget to small ones; and no token has more than half of it. A body that comes in one piece waits for nobody, and is not
//! counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::model::limits::SMALL_BODY_BYTES_MAX;

/// Whose body it is: the name of a token, where tokens are asked for.
pub(crate) type Owner = Option<Arc<str>>;

/// Bytes that bodies may take together, and those that take some.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    max: usize,
    bodies: Mutex<Bodies>,
}

/// The bodies that are arriving, by their last bytes: the first has waited longest.
#[derive(Debug, Default)]
struct Bodies {
    next: u64,
    arriving: BTreeMap<u64, Body>,
    held: usize,
    /// Bytes of large bodies.
    large: usize,
    by_owner: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Body {
    bytes: usize,
    owner: Owner,
    gives_way: CancellationToken,
}

/// A body that is being read, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    budget: &'a BodyBudget,
    owner: Owner,
    /// Its place among the bodies; `None` before its first bytes.
    place: Option<u64>,
    gives_way: CancellationToken,
}

/// There is no room, and none can be made; or the body gave way to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl BodyBudget {
    /// A budget of `max` bytes.
    pub(crate) fn new(max: usize) -> BodyBudget {
        BodyBudget { max, bodies: Mutex::default() }
    }

    /// Begins to read a body.
    pub(crate) fn begin(&self, owner: Owner) -> Reading<'_> {
        Reading { budget: self, owner, place: None, gives_way: CancellationToken::new() }
    }

    /// Large bodies leave an eighth of the budget to small ones.
    fn large_max(&self) -> usize {
        self.max - self.max / 8
    }

    /// What the bodies of one token may take.
    fn share(&self) -> usize {
        self.max / 2
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        // Nothing panics while the lock is held; if it did, the sums would still be those of the bodies.
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading<'_> {
    /// Takes the bytes that have arrived, all of them since the beginning; others give way if that makes room.
    ///
    /// # Errors
    /// `NoRoom` when this body gave way, or when it is larger than what there may be.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let mut bodies = self.budget.bodies();
        if let Some(place) = self.place.take()
            && bodies.remove(place).is_none()
        {
            return Err(NoRoom);
        }
        let body = Body { bytes, owner: self.owner.clone(), gives_way: self.gives_way.clone() };
        while let Some(scarce) = bodies.lacks(self.budget, &body) {
            let longest = bodies.longest_waiting(scarce, &body).ok_or(NoRoom)?;
            if let Some(other) = bodies.remove(longest) {
                other.gives_way.cancel();
            }
        }
        self.place = Some(bodies.insert(body));
        Ok(())
    }

    /// Resolves when the body has to give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.budget.bodies().remove(place);
        }
    }
}

/// What there is not enough of.
#[derive(Debug, Clone, Copy)]
enum Scarce {
    Budget,
    RoomOfLarge,
    Share,
}

impl Body {
    fn is_large(&self) -> bool {
        self.bytes > SMALL_BODY_BYTES_MAX
    }

    /// Whether it gives way, if another body lacks this.
    fn helps(&self, scarce: Scarce, other: &Body) -> bool {
        match scarce {
            Scarce::Budget => true,
            Scarce::RoomOfLarge => self.is_large(),
            Scarce::Share => self.owner == other.owner,
        }
    }
}

impl Bodies {
    fn lacks(&self, budget: &BodyBudget, body: &Body) -> Option<Scarce> {
        let of_owner = body.owner.as_ref().map(|owner| self.by_owner.get(owner).copied().unwrap_or(0));
        if of_owner.is_some_and(|held| held + body.bytes > budget.share()) {
            return Some(Scarce::Share);
        }
        if body.is_large() && self.large + body.bytes > budget.large_max() {
            return Some(Scarce::RoomOfLarge);
        }
        (self.held + body.bytes > budget.max).then_some(Scarce::Budget)
    }

    fn longest_waiting(&self, scarce: Scarce, body: &Body) -> Option<u64> {
        self.arriving.iter().find(|(_, other)| other.helps(scarce, body)).map(|(place, _)| *place)
    }

    fn insert(&mut self, body: Body) -> u64 {
        self.held += body.bytes;
        if body.is_large() {
            self.large += body.bytes;
        }
        if let Some(owner) = &body.owner {
            *self.by_owner.entry(owner.clone()).or_default() += body.bytes;
        }
        let place = self.next;
        self.next += 1;
        self.arriving.insert(place, body);
        place
    }

    fn remove(&mut self, place: u64) -> Option<Body> {
        let body = self.arriving.remove(&place)?;
        self.held -= body.bytes;
        if body.is_large() {
            self.large -= body.bytes;
        }
        if let Some(owner) = &body.owner
            && let Some(held) = self.by_owner.get_mut(owner)
        {
            *held -= body.bytes;
        }
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = SMALL_BODY_BYTES_MAX + 1;

    /// Room for eight large bodies.
    fn budget() -> BodyBudget {
        BodyBudget::new(8 * LARGE)
    }

    fn reading<'a>(budget: &'a BodyBudget, owner: Option<&str>, bytes: usize) -> Result<Reading<'a>, NoRoom> {
        let mut reading = budget.begin(owner.map(Arc::from));
        reading.hold(bytes)?;
        Ok(reading)
    }

    fn gave_way(readings: &[Reading<'_>]) -> Vec<bool> {
        readings.iter().map(|reading| reading.gives_way.is_cancelled()).collect()
    }

    #[test]
    fn the_body_that_waits_longest_gives_way_and_all_is_given_back() -> Result<(), NoRoom> {
        let budget = budget();
        let mut readings = (0..7).map(|_| reading(&budget, None, LARGE)).collect::<Result<Vec<_>, _>>()?;
        // The first one goes on, so the second has waited longest.
        readings[0].hold(LARGE)?;
        assert_eq!(gave_way(&readings), [false; 7]);
        let more = reading(&budget, None, LARGE)?;
        assert_eq!(gave_way(&readings), [false, true, false, false, false, false, false]);
        assert_eq!(readings[1].hold(LARGE), Err(NoRoom));
        assert!(reading(&budget, None, 8 * LARGE).is_err(), "more than there may be");
        drop((readings, more));
        let bodies = budget.bodies();
        assert_eq!((bodies.held, bodies.large, bodies.arriving.len()), (0, 0, 0));
        Ok(())
    }

    #[test]
    fn large_bodies_leave_room_for_small_ones() -> Result<(), NoRoom> {
        let budget = budget();
        let large = (0..7).map(|_| reading(&budget, None, LARGE)).collect::<Result<Vec<_>, _>>()?;
        let small = reading(&budget, None, SMALL_BODY_BYTES_MAX)?;
        assert_eq!(gave_way(&large), [false; 7]);
        // It grows large, and has no more room than the others.
        let mut small = small;
        small.hold(LARGE)?;
        assert_eq!(gave_way(&large), [true, false, false, false, false, false, false]);
        Ok(())
    }

    #[test]
    fn a_token_takes_no_more_than_its_share() -> Result<(), NoRoom> {
        let budget = budget();
        let others = [reading(&budget, Some("b"), LARGE)?, reading(&budget, None, LARGE)?];
        let own = (0..5).map(|_| reading(&budget, Some("a"), LARGE)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!((gave_way(&others), gave_way(&own)), (vec![false; 2], vec![true, false, false, false, false]));
        assert!(reading(&budget, Some("a"), 5 * LARGE).is_err(), "more than its share");
        Ok(())
    }
}
