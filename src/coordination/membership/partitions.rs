//! What a member has or is about to have.

use std::collections::BTreeMap;

use crate::model::partition::Partition;
use crate::platform::clock::Instant;

/// What a member does with a partition that it has, or that is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// The acquisition is in flight.
    Acquiring {
        /// Beyond the share, since nobody seems to take it.
        orphan: bool,
        /// Announced as free since it was sent: if it comes too early it is repeated.
        freed: bool,
    },
    /// Owned and served.
    Owned {
        /// Since when.
        since: Instant,
        /// Grows with every acquisition of this member.
        serial: u64,
    },
    /// It drains, then the lease is given up.
    Releasing,
}

/// Every partition that is not free for a member to try, with its counts.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    slots: BTreeMap<Partition, Slot>,
    acquisitions: u64,
    owned: usize,
    acquiring: usize,
}

impl Partitions {
    pub(super) fn get(&self, partition: Partition) -> Option<Slot> {
        self.slots.get(&partition).copied()
    }

    pub(super) fn acquire(&mut self, partition: Partition, orphan: bool) {
        self.set(partition, Some(Slot::Acquiring { orphan, freed: false }));
    }

    /// Notes that a partition was announced as free, if its acquisition is in flight.
    pub(super) fn freed(&mut self, partition: Partition) {
        if let Some(Slot::Acquiring { freed, .. }) = self.slots.get_mut(&partition) {
            *freed = true;
        }
    }

    pub(super) fn own(&mut self, partition: Partition, since: Instant) {
        self.acquisitions += 1;
        self.set(partition, Some(Slot::Owned { since, serial: self.acquisitions }));
    }

    pub(super) fn release(&mut self, partition: Partition) {
        self.set(partition, Some(Slot::Releasing));
    }

    /// Returns what it was.
    pub(super) fn remove(&mut self, partition: Partition) -> Option<Slot> {
        self.set(partition, None)
    }

    fn set(&mut self, partition: Partition, slot: Option<Slot>) -> Option<Slot> {
        let old = match slot {
            Some(slot) => self.slots.insert(partition, slot),
            None => self.slots.remove(&partition),
        };
        self.owned += usize::from(matches!(slot, Some(Slot::Owned { .. })));
        self.owned -= usize::from(matches!(old, Some(Slot::Owned { .. })));
        self.acquiring += usize::from(matches!(slot, Some(Slot::Acquiring { .. })));
        self.acquiring -= usize::from(matches!(old, Some(Slot::Acquiring { .. })));
        old
    }

    pub(super) fn owned(&self) -> usize {
        self.owned
    }

    pub(super) fn acquiring(&self) -> usize {
        self.acquiring
    }

    pub(super) fn releasing(&self) -> usize {
        self.slots.len() - self.owned - self.acquiring
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What is owned, the last acquired first.
    pub(super) fn newest(&self) -> Vec<Partition> {
        let serial = |(partition, slot): (&Partition, &Slot)| match slot {
            Slot::Owned { serial, .. } => Some((*serial, *partition)),
            _ => None,
        };
        let mut owned: Vec<(u64, Partition)> = self.slots.iter().filter_map(serial).collect();
        owned.sort_unstable();
        owned.into_iter().rev().map(|(_, partition)| partition).collect()
    }
}
