//! What happened to the partitions, and what must never happen.

use std::collections::BTreeMap;

use dwell::model::partition::Partition;

use super::store::{Line, Ms, Who};

pub(super) struct Record {
    /// Who owned each partition last.
    last: Vec<Option<Who>>,
    /// Who was granted each partition lately.
    claims: Vec<Vec<Who>>,
    epochs: BTreeMap<(u64, Partition, u64), Who>,
    /// Acquisitions by another than the last owner.
    pub(super) moves: usize,
    /// Acquisitions that were tried.
    pub(super) acquires: usize,
    /// When someone's ownership changed last.
    pub(super) touched: Ms,
}

impl Record {
    pub(super) fn new(partitions: u16) -> Record {
        let last = vec![None; usize::from(partitions)];
        let claims = vec![Vec::new(); usize::from(partitions)];
        Record { last, claims, epochs: BTreeMap::new(), moves: 0, acquires: 0, touched: 0 }
    }

    /// An epoch of a run of the store has one owner.
    pub(super) fn taken(&mut self, run: u64, who: Who, partition: Partition, line: Line) {
        let before = self.epochs.insert((run, partition, line.number), who);
        assert_eq!(before, None, "epoch {} of {partition} has two owners: {who} and this one", line.number);
    }

    pub(super) fn owned(&mut self, now: Ms, who: Who, partition: Partition) {
        let last = self.last[usize::from(partition.0)].replace(who);
        self.moves += usize::from(last.is_some_and(|last| last != who));
        self.touch(now);
    }

    pub(super) fn claims(&mut self, partition: Partition) -> &mut Vec<Who> {
        &mut self.claims[usize::from(partition.0)]
    }

    pub(super) fn touch(&mut self, now: Ms) {
        self.touched = now;
    }
}
