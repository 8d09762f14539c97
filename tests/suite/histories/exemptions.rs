//! What a history may lose or repeat, because the only copy went with a disk, or because a broker was cut off.
//!
//! Everything here is a limit that docs/internals/outage-path.md names; all else is held to what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

/// A broker with its data directory: another directory is another identity.
pub(super) type Identity = usize;

#[derive(Default)]
pub(super) struct Exemptions {
    /// Identities whose WAL and journal are gone.
    wiped: BTreeSet<Identity>,
    /// Messages that may be missing: only a wiped journal had them when Redis lost everything.
    missing: BTreeSet<String>,
    /// Messages that may come again: only a wiped journal, a silent broker, or one on the other side of a split, had their
    /// ack.
    repeated: BTreeSet<String>,
    /// Ids that may be in any state until they are set or cancelled again.
    unknown: BTreeSet<String>,
    /// Whether acks may be lost by a failover: they do not wait for replicas.
    acks_may_be_lost: bool,
    /// Messages whose end may be in the journal of any broker: they were acked late, or forwarded.
    elsewhere: BTreeSet<String>,
    /// Messages that were buried while a broker used another primary, or before a loss was noticed: what became of them
    /// there, nobody knows.
    buried_apart: BTreeSet<String>,
    /// Dedup keys of which a second message may come.
    keys: BTreeSet<usize>,
    /// Messages that were perhaps moved to another topic by a broker that did not say so.
    perhaps_moved: BTreeSet<String>,
    /// Messages that came again, and were exempt.
    pub(super) again: usize,
}

/// Who acknowledged what, last.
#[derive(Default)]
pub(super) struct Acknowledged {
    pub(super) pushes: BTreeMap<String, Identity>,
    pub(super) acks: BTreeMap<String, Identity>,
    /// The last operation on an id.
    pub(super) ids: BTreeMap<String, Identity>,
    /// The message of each dedup key.
    pub(super) keys: BTreeMap<usize, (String, Identity)>,
    /// Messages that are in other journals as well, since a push was a duplicate of them.
    pub(super) copied: BTreeSet<String>,
}

impl Acknowledged {
    /// What one broker acknowledged is in the journal of another one now, and goes with it.
    pub(super) fn handed_over(&mut self, from: Identity, to: Identity) {
        let all = [&mut self.pushes, &mut self.acks, &mut self.ids];
        let keys = self.keys.values_mut().map(|(_, by)| by);
        all.into_iter().flat_map(BTreeMap::values_mut).chain(keys).filter(|by| **by == from).for_each(|by| *by = to);
    }
}

impl Exemptions {
    pub(super) fn wipe(&mut self, identity: Identity) {
        self.wiped.insert(identity);
    }

    /// Redis lost everything: what only wiped journals had is gone.
    pub(super) fn emptied(&mut self, by: &Acknowledged) {
        let is_wiped = |identity: &Identity| self.wiped.contains(identity);
        let open = by.pushes.iter().filter(|(id, identity)| is_wiped(identity) && !by.acks.contains_key(*id));
        self.missing.extend(open.map(|(id, _)| id.clone()));
        // Another journal has the push.
        let is_elsewhere =
            |id: &String| by.copied.contains(id) || by.pushes.get(id).is_none_or(|identity| !is_wiped(identity));
        let ended = by.acks.iter().filter(|(id, identity)| is_wiped(identity) && is_elsewhere(id));
        self.repeated.extend(ended.map(|(id, _)| id.clone()));
        let changed = by.ids.iter().filter(|(_, identity)| is_wiped(identity));
        self.unknown.extend(changed.map(|(id, _)| id.clone()));
        let keys = by.keys.iter().filter(|(_, (_, identity))| is_wiped(identity));
        self.keys.extend(keys.map(|(key, _)| *key));
        if !self.wiped.is_empty() {
            self.repeated.extend(self.elsewhere.iter().cloned());
        }
    }

    pub(super) fn buried_apart(&mut self, id: &str) {
        self.buried_apart.insert(id.to_owned());
    }

    /// Brokers begin to use different primaries: what is forwarded may be forwarded at each.
    pub(super) fn split(&mut self) {
        self.buried_apart.extend(self.elsewhere.iter().cloned());
    }

    pub(super) fn ends_elsewhere(&mut self, id: &str) {
        self.elsewhere.insert(id.to_owned());
    }

    pub(super) fn perhaps_moved(&mut self, id: &str) {
        self.perhaps_moved.insert(id.to_owned());
    }

    /// It was acked, by a broker whose journal is there.
    pub(super) fn acked(&mut self, id: &str) {
        self.repeated.remove(id);
    }

    /// It was acked at a primary that another broker had left: nobody waits for a broker that is silent for a lease ttl.
    pub(super) fn acked_apart(&mut self, id: &str) {
        self.repeated.insert(id.to_owned());
    }

    /// A broker is silent for longer than a lease ttl, perhaps before it restored what a loss took: nobody waits for it.
    pub(super) fn silent(&mut self, identity: Identity, by: &Acknowledged) {
        self.repeated.extend(by.acks.iter().filter(|(_, acked_by)| **acked_by == identity).map(|(id, _)| id.clone()));
        self.repeated.extend(self.elsewhere.iter().cloned());
        let keys = by.keys.iter().filter(|(_, (_, pushed_by))| *pushed_by == identity);
        self.keys.extend(keys.map(|(key, _)| *key));
    }

    /// A failover, of a Redis whose acks no replica and no journal has for certain.
    pub(super) fn unreplicated(&mut self) {
        self.acks_may_be_lost = true;
    }

    /// Its state is known again.
    pub(super) fn is_set(&mut self, id: &str) {
        self.unknown.remove(id);
    }

    pub(super) fn may_be_missing(&self, id: &str) -> bool {
        self.missing.contains(id)
    }

    pub(super) fn may_come_again(&self, id: &str) -> bool {
        self.acks_may_be_lost
            || [&self.repeated, &self.buried_apart, &self.perhaps_moved].iter().any(|ids| ids.contains(id))
    }

    pub(super) fn may_be_second(&self, key: usize) -> bool {
        self.keys.contains(&key)
    }

    pub(super) fn may_be_anything(&self, id: &str) -> bool {
        self.unknown.contains(id)
    }

    /// How many messages and ids there are to which nothing is owed.
    pub(super) fn count(&self) -> usize {
        self.missing.len() + self.unknown.len()
    }
}
