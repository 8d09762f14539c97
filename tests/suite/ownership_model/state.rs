//! What the world consists of: Redis, two owners, calls under way, and a ledger of what was promised.

use super::bounds::Bounds;

pub(super) const MESSAGES_MAX: usize = 3;

/// A set of message ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ids(u8);

impl Ids {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn first(count: usize) -> Self {
        (0..count).collect()
    }

    pub(super) fn has(self, id: usize) -> bool {
        self.0 & (1 << id) != 0
    }

    pub(super) fn add(&mut self, id: usize) {
        self.0 |= 1 << id;
    }

    pub(super) fn remove(&mut self, id: usize) {
        self.0 &= !(1 << id);
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MESSAGES_MAX).filter(move |&id| self.has(id))
    }
}

impl FromIterator<usize> for Ids {
    fn from_iter<T: IntoIterator<Item = usize>>(ids: T) -> Self {
        let mut set = Self::NONE;
        ids.into_iter().for_each(|id| set.add(id));
        set
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name {
    A,
    B,
}

impl Name {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }
}

/// What the lease holds: an owner, and which process of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Member {
    pub(super) name: Name,
    pub(super) process: u8,
}

/// Token 0 is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Epoch {
    pub(super) number: u8,
    pub(super) token: u8,
}

/// The owner line: field `@` of the reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Line {
    pub(super) epoch: Epoch,
    pub(super) seq: u8,
    pub(super) stamp: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reservation {
    pub(super) epoch: u8,
    pub(super) seq: u8,
    /// Unsettled ids; acked ones stay listed until the field is rewritten or goes.
    pub(super) ids: Ids,
}

/// One partition of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Redis {
    pub(super) scheduled: Ids,
    pub(super) bodies: Ids,
    pub(super) dead: Ids,
    /// Acked within the dedup window.
    pub(super) seen: Ids,
    /// Charged attempts; 0 is no entry.
    pub(super) attempts: [u8; MESSAGES_MAX],
    pub(super) line: Line,
    pub(super) reservations: Vec<Reservation>,
    pub(super) lease: Option<Member>,
    /// Ledger: the epoch that may change the partition.
    pub(super) in_office: Epoch,
    /// Ledger: acked, however long ago.
    pub(super) acked: Ids,
    /// Ledger: a start charged these, and the hand-out has not happened.
    pub(super) started: Ids,
    /// Ledger: charges whose owner was gone before it handed out.
    pub(super) charges_lost: [u8; MESSAGES_MAX],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Decision {
    Ack,
    /// An ack with the receipt of an earlier epoch, which must never count.
    AckOfEarlierEpoch,
    Nack,
    Bury,
    GiveBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Settled {
    pub(super) id: usize,
    pub(super) decision: Decision,
    pub(super) attempts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verb {
    /// `overlapped`: Redis lost data after it was sent.
    Acquire {
        token: u8,
        overlapped: bool,
    },
    Release,
    Recover,
    Reserve,
    /// `left`: the reservations to rewrite (by sequence), and what remains in each.
    Settle {
        settled: Vec<Settled>,
        left: Vec<(u8, Ids)>,
    },
    /// The counts to set.
    Start {
        counts: Vec<(usize, u8)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) member: Member,
    /// The line last seen.
    pub(super) prev: Line,
    pub(super) verb: Verb,
}

/// Where a message in an owner's table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Not yet given to a consumer; with the count Redis had.
    Prefetched(u8),
    /// Charged, not yet given to a consumer.
    Started(u8),
    /// A consumer has it, as this attempt.
    Handed(u8),
    /// To be settled, with the count to leave behind.
    Decided(Decision, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    /// Sequence of the reservation that holds it.
    pub(super) seq: u8,
    pub(super) stage: Stage,
}

/// What an owner remembers of its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) prev: Line,
    pub(super) recovered: bool,
    /// Subscribed anew since its last reserve.
    pub(super) reconnected: bool,
    pub(super) slots: [Option<Slot>; MESSAGES_MAX],
}

impl Table {
    pub(super) fn new(prev: Line) -> Self {
        Self { prev, recovered: false, reconnected: true, slots: [None; MESSAGES_MAX] }
    }

    pub(super) fn select(&self, wanted: impl Fn(Stage) -> bool) -> Ids {
        (0..MESSAGES_MAX).filter(|&id| self.slots[id].is_some_and(|slot| wanted(slot.stage))).collect()
    }

    pub(super) fn stage(&self, id: usize) -> Option<Stage> {
        self.slots[id].map(|slot| slot.stage)
    }

    pub(super) fn set(&mut self, id: usize, stage: Stage) {
        if let Some(slot) = &mut self.slots[id] {
            slot.stage = stage;
        }
    }

    pub(super) fn with_consumers(&self) -> Ids {
        self.select(|stage| matches!(stage, Stage::Handed(_)))
    }
}

/// Whether an owner may hand out, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Validity {
    Lapsed,
    /// By a renewal that Redis may have lost.
    BeforeLoss,
    Valid,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) member: Member,
    pub(super) validity: Validity,
    pub(super) table: Option<Table>,
    pub(super) call: Option<Call>,
    /// Acquires nothing: Redis lost data less than one ttl ago.
    pub(super) holds_back: bool,
    /// Its acquisition overlapped a loss: hands nothing out until the hold ends.
    pub(super) waits: bool,
    pub(super) valid_at_loss: bool,
    /// A renewal was executed and its answer is still under way.
    pub(super) renewal_under_way: bool,
    /// Only for searches without the rule that resuming needs the table.
    pub(super) last_epoch: Option<Epoch>,
    /// Ledger: consumers of this owner have these while its lease holds.
    pub(super) held: Ids,
    /// Ledger: receipts of earlier epochs in the hands of consumers.
    pub(super) old_receipts: Ids,
}

impl Owner {
    fn new(name: Name, process: u8) -> Self {
        Self {
            member: Member { name, process },
            validity: Validity::Lapsed,
            table: None,
            call: None,
            holds_back: false,
            waits: false,
            valid_at_loss: false,
            renewal_under_way: false,
            last_epoch: None,
            held: Ids::NONE,
            old_receipts: Ids::NONE,
        }
    }

    /// The process dies and another one starts.
    pub(super) fn restart(&mut self, holds_back: bool) {
        let last_epoch = self.last_epoch;
        *self = Self { last_epoch, holds_back, ..Self::new(self.member.name, self.member.process + 1) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Push {
    Unsent,
    Unanswered,
    Answered,
}

/// What was promised and what happened, in nobody's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    pub(super) stored: Ids,
    /// A consumer asked for the ack.
    pub(super) ack_asked: Ids,
    /// A consumer was told that the ack counts.
    pub(super) ack_told: Ids,
    pub(super) handed_out: [u8; MESSAGES_MAX],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) redis: Redis,
    pub(super) snapshot: Option<Box<Redis>>,
    pub(super) owners: [Owner; 2],
    pub(super) late_copies: Vec<Call>,
    pub(super) pushes: [Push; MESSAGES_MAX],
    pub(super) late_pushes: Ids,
    /// One ttl after data loss has not passed.
    pub(super) hold: bool,
    pub(super) lost_data: bool,
    pub(super) ledger: Ledger,
    /// What may still happen.
    pub(super) left: Bounds,
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        let mut world = Self {
            redis: Redis::default(),
            snapshot: None,
            owners: [Owner::new(Name::A, 0), Owner::new(Name::B, 0)],
            late_copies: Vec::new(),
            pushes: [Push::Unsent; MESSAGES_MAX],
            late_pushes: Ids::NONE,
            hold: false,
            lost_data: false,
            ledger: Ledger::default(),
            left: bounds,
        };
        let already = Ids::first(bounds.pushed_before);
        world.redis.scheduled = already;
        world.redis.bodies = already;
        world.ledger.stored = already;
        already.iter().for_each(|id| world.pushes[id] = Push::Answered);
        world
    }

    pub(super) fn owner(&self, name: Name) -> &Owner {
        &self.owners[name as usize]
    }

    pub(super) fn owner_mut(&mut self, name: Name) -> &mut Owner {
        &mut self.owners[name as usize]
    }

    pub(super) fn table(&self, name: Name) -> Option<&Table> {
        self.owner(name).table.as_ref()
    }

    /// A stamp that nobody remembers: as good as one that never was.
    pub(super) fn fresh_stamp(&self) -> u8 {
        smallest_absent(|stamp| self.lines().any(|line| line.stamp == stamp))
    }

    /// A token that nobody remembers.
    pub(super) fn fresh_token(&self) -> u8 {
        let sent =
            |token| self.calls().any(|call| matches!(call.verb, Verb::Acquire { token: sent, .. } if sent == token));
        smallest_absent(|token| sent(token) || self.lines().any(|line| line.epoch.token == token))
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.late_copies.iter().chain(self.owners.iter().filter_map(|owner| owner.call.as_ref()))
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        std::iter::once(self.redis.line)
            .chain(self.snapshot.iter().map(|snapshot| snapshot.line))
            .chain(self.owners.iter().filter_map(|owner| owner.table.as_ref()).map(|table| table.prev))
            .chain(self.calls().map(|call| call.prev))
    }
}

fn smallest_absent(present: impl Fn(u8) -> bool) -> u8 {
    (1..u8::MAX).find(|&candidate| !present(candidate)).unwrap_or(u8::MAX)
}
