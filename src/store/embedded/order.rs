//! The order within a millisecond, in a topic with ordering: places that are given once, later pushes later ones.
//!
//! What is pushed before its millisecond has come gets a place in the first half of it, behind the last one in a zset:
//! nothing of that millisecond is reserved yet. What comes later gets one in the second half, behind the last one that was
//! given, which may be reserved by now. So nobody who comes back to a place finds it taken. A half that is full goes on in
//! the next millisecond.

use std::collections::BTreeMap;
use std::time::Duration;

use super::keys::{Score, TIES};
use super::zset::Zset;
use crate::model::error::Result;
use crate::model::time::Timestamp;

/// The first place of the second half.
const HALF: u16 = TIES / 2;

/// Milliseconds of which the last place is remembered. Past them the earliest are forgotten.
const REMEMBERED: usize = 2_000;

/// The places given last in a partition. In memory: who dies with it has nothing reserved that could come back while
/// someone still has an older due time in hand.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Millisecond -> the place given last to what is due in it.
    last: BTreeMap<Timestamp, Score>,
}

impl Order {
    /// Gives a place to each message that is pushed now and has a due time here, in this order.
    pub(super) fn give(
        &mut self,
        zsets: &[Zset<'_>],
        now: Timestamp,
        due: impl Iterator<Item = Option<Timestamp>>,
    ) -> Result<Vec<Option<Score>>> {
        let places = due.map(|due| due.map(|due| self.place(zsets, now, due)).transpose()).collect();
        // What is in the zsets can be found there.
        self.last.retain(|at, last| *at <= now || last.at > *at);
        while self.last.len() > REMEMBERED {
            self.last.pop_first();
        }
        places
    }

    fn place(&mut self, zsets: &[Zset<'_>], now: Timestamp, due: Timestamp) -> Result<Score> {
        let mut at = due;
        let place = loop {
            let last = match self.last.get(&at) {
                Some(last) if last.at > at => {
                    at = last.at;
                    continue;
                }
                Some(last) => last.tie,
                None => held_last(zsets, at)?,
            };
            let (first, full) = if at <= now { (HALF, TIES) } else { (1, HALF) };
            let tie = first.max(last + 1);
            if tie < full {
                break Score { at, tie };
            }
            at = at.plus(Duration::from_millis(1));
        };
        self.last.insert(place.at, place);
        self.last.insert(due, place);
        Ok(place)
    }
}

/// The last place in a millisecond that one of the zsets holds.
fn held_last(zsets: &[Zset<'_>], at: Timestamp) -> Result<u16> {
    let mut last = 0;
    for zset in zsets {
        last = last.max(zset.last_in(at)?.map_or(0, |score| score.tie));
    }
    Ok(last)
}
