//! A test clock that is about to be moved, and one that was.

use std::time::Duration;

use futures_util::future::{join_all, select};

use super::GroupDelivery;
use super::table::{Now, Table};
use crate::model::error::{Error, Result};

impl GroupDelivery {
    /// Ends the deliveries whose visibility timeout passes within `span`, each at its own time, and waits until the store has
    /// them back. Answers how many. Errors: `Unavailable` when the store does not take them back within `patience`.
    pub async fn time_out_within(&self, span: Duration, patience: Duration) -> Result<u64> {
        let (now, mut count, mut tickets) = (self.now(), 0, Vec::new());
        for (_, owned) in self.owned_partitions() {
            let mut table = owned.table();
            count += time_out(&mut table, now, span) as u64;
            let last = table.last_ticket();
            drop(table);
            owned.signal.notify_one();
            tickets.push((owned, last));
        }
        self.counts.timed_out.inc_by(count);
        let settled = join_all(tickets.iter().map(|(owned, last)| owned.settled(*last)));
        let late = std::pin::pin!(self.store.backend.clock().local().sleep(patience));
        let _ = select(settled, late).await;
        match tickets.iter().all(|(owned, last)| owned.progress().settled >= *last || owned.progress().over) {
            true => Ok(count),
            false => Err(Error::unavailable("deliveries that time out are not back in the store yet")),
        }
    }

    /// Wakes all that sleep until a time of messages.
    pub fn time_jumped(&self) {
        self.signal_all();
        self.arrivals.notify_all();
    }
}

fn time_out(table: &mut Table, now: Now, span: Duration) -> usize {
    let (last, mut count) = (now.elapsed.plus(span), 0);
    while let Some(deadline) = table.next_deadline().filter(|deadline| *deadline <= last) {
        let store = now.store.plus(deadline.since(now.elapsed));
        count += table.time_out(Now { store, elapsed: now.elapsed.max(deadline), ..now });
    }
    count
}
