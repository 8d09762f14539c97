//! The store of the simulation: leases, owner lines and heartbeats, by its own clock. Every verb is atomic.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell::model::partition::Partition;

/// A process, by its number.
pub(super) type Who = usize;

/// A live member, and whether somebody wants messages there.
pub(super) type Live = (Who, bool);

/// Milliseconds.
pub(super) type Ms = u64;

/// An owner line: never the same twice, since the token is new each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) token: u64,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    who: Who,
    until: Ms,
}

/// What an acquisition finds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    /// Free, or its own, under this line.
    Free(Line),
    Held {
        by: Who,
        expires_in: Ms,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Store {
    leases: Vec<Option<Lease>>,
    lines: Vec<Line>,
    /// When each was recorded, and whether it says that somebody wants messages there.
    heartbeats: BTreeMap<Who, (Ms, bool)>,
    /// Who is there, until that changes.
    members: Option<Arc<[Live]>>,
    /// No heartbeat is too old before.
    oldest_ends: Ms,
    /// Another number after each data loss.
    pub(super) run: u64,
    pub(super) lost_at: Option<Ms>,
    pub(super) ttl: Ms,
    pub(super) absent_after: Ms,
}

impl Store {
    pub(super) fn new(partitions: u16, ttl: Ms, absent_after: Ms) -> Store {
        let count = usize::from(partitions);
        let (leases, lines) = (vec![None; count], vec![Line::default(); count]);
        Store {
            leases,
            lines,
            heartbeats: BTreeMap::new(),
            members: None,
            oldest_ends: 0,
            run: 0,
            lost_at: None,
            ttl,
            absent_after,
        }
    }

    pub(super) fn line(&self, partition: Partition) -> Line {
        self.lines[usize::from(partition.0)]
    }

    fn look(&self, now: Ms, who: Who, partition: Partition) -> Found {
        let at = usize::from(partition.0);
        match self.leases[at].filter(|lease| lease.until > now && lease.who != who) {
            Some(lease) => Found::Held { by: lease.who, expires_in: lease.until - now },
            None => Found::Free(self.lines[at]),
        }
    }

    /// Compare and set: takes the lease under a new line, if it is free and the line is the expected one.
    pub(super) fn take(
        &mut self,
        now: Ms,
        who: Who,
        partition: Partition,
        expected: Line,
        token: u64,
    ) -> Result<Line, Found> {
        match self.look(now, who, partition) {
            Found::Free(line) if line == expected => {
                let line = Line { number: line.number + 1, token };
                self.put(now, who, partition);
                self.lines[usize::from(partition.0)] = line;
                Ok(line)
            }
            found => Err(found),
        }
    }

    /// Prolongs or resumes, if the line is still this one.
    pub(super) fn renew(&mut self, now: Ms, who: Who, partition: Partition, line: Line) -> bool {
        let is_ours =
            self.lines[usize::from(partition.0)] == line && matches!(self.look(now, who, partition), Found::Free(_));
        if is_ours {
            self.put(now, who, partition);
        }
        is_ours
    }

    /// Gives the lease up; the line is nobody's then.
    pub(super) fn release(&mut self, partition: Partition, line: Line) -> bool {
        let at = usize::from(partition.0);
        let is_ours = self.lines[at] == line;
        if is_ours {
            self.lines[at].token = 0;
            self.leases[at] = None;
        }
        is_ours
    }

    fn put(&mut self, now: Ms, who: Who, partition: Partition) {
        self.leases[usize::from(partition.0)] = Some(Lease { who, until: now + self.ttl });
    }

    /// Writes a heartbeat, then reads who is there. True if it was not there before, or said otherwise.
    pub(super) fn beat(&mut self, now: Ms, who: Who, has_demand: bool) -> (bool, Arc<[Live]>) {
        let absent_after = self.absent_after;
        if now >= self.oldest_ends {
            self.heartbeats.retain(|_, (at, _)| *at + absent_after > now);
            self.oldest_ends = self.heartbeats.values().map(|(at, _)| *at).min().unwrap_or(now) + absent_after;
            self.members = None;
        }
        let before = self.heartbeats.insert(who, (now, has_demand));
        let is_news = before.is_none_or(|(_, said)| said != has_demand);
        if is_news {
            self.members = None;
        }
        let live = |(who, (_, has_demand)): (&Who, &(Ms, bool))| (*who, *has_demand);
        let members = self.members.get_or_insert_with(|| self.heartbeats.iter().map(live).collect());
        (is_news, members.clone())
    }

    pub(super) fn depart(&mut self, who: Who) -> bool {
        self.members = None;
        self.heartbeats.remove(&who).is_some()
    }

    /// Comes back as it was when `saved` was written.
    pub(super) fn rewind(&mut self, now: Ms, saved: &Store) {
        let run = self.run + 1;
        *self = Store { run, lost_at: Some(now), ..saved.clone() };
    }
}
