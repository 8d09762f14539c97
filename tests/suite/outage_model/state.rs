//! The parts of the world: one partition of one topic in Redis, two brokers with their logs, the network, and a ledger.

use std::collections::BTreeSet;

use super::bounds::Bounds;
use super::ledger::Ledger;
use super::rules::{Rule, Rules};

pub(super) const IDS: usize = 2;

/// Microseconds on a broker's clock.
pub(super) type Version = u8;

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

/// The first stream of live calls.
pub(super) const LIVE_STREAMS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A push that leaves an existing message alone.
    Push,
    /// The same, with a dedup key: there is only one such key, and its window does not end.
    Deduped,
    Replace,
    /// To a time that does not come before the search ends.
    Reschedule,
    Cancel,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Push, Self::Replace, Self::Reschedule, Self::Cancel];

    pub(super) fn is_push(self) -> bool {
        matches!(self, Self::Push | Self::Deduped | Self::Replace)
    }

    pub(super) fn leaves_existing_alone(self) -> bool {
        matches!(self, Self::Push | Self::Deduped)
    }
}

/// A version, and which operation of the ledger it belongs to. Scripts compare versions alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Stamp {
    pub(super) version: Version,
    pub(super) op: usize,
}

/// One operation, as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) id: usize,
    pub(super) stamp: Stamp,
}

impl Request {
    /// The message that a push or a replace stores.
    pub(super) fn body(self) -> Body {
        Body { payload: self.stamp, due: self.stamp, changed: self.kind == Kind::Replace }
    }
}

/// The number of a call: what makes it recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallId {
    pub(super) stream: u8,
    pub(super) sequence: u8,
}

/// A stored message. Payload and due time have versions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Body {
    pub(super) payload: Stamp,
    pub(super) due: Stamp,
    /// A replace or a reschedule set it, so an older push of its id may be in some log.
    pub(super) changed: bool,
}

impl Body {
    pub(super) fn version(self) -> Version {
        self.payload.version.max(self.due.version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) body: Body,
    /// The broker that delivers it, and the message as it was reserved.
    pub(super) delivery: Option<(Name, Body)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verdict {
    Stored,
    Replaced,
    Rescheduled,
    Cancelled,
    Duplicate,
    /// Of the first push with the dedup key.
    DuplicateOf,
    InFlight,
    Absent,
    Outdated,
}

impl Verdict {
    pub(super) fn changed(self) -> bool {
        matches!(self, Self::Stored | Self::Replaced | Self::Rescheduled | Self::Cancelled)
    }
}

/// The memory of a stream: its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) stream: u8,
    pub(super) sequence: u8,
    pub(super) verdict: Verdict,
    /// A fence closed it: it takes no call any more.
    pub(super) is_closed: bool,
}

/// One partition and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Redis {
    /// When the topic was created, if it is there.
    pub(super) topic: Option<Version>,
    /// When a topic of the name was last deleted.
    pub(super) deleted_at: Version,
    /// The last purge.
    pub(super) purged: Version,
    pub(super) messages: [Option<Message>; IDS],
    /// Tombstones of cancels and of settlements.
    pub(super) ended: [Version; IDS],
    /// Ids that were cancelled: cancelled again, they are answered the same.
    pub(super) cancelled: [bool; IDS],
    /// The first push with the dedup key.
    pub(super) first_of_key: Option<Request>,
    /// Sorted by stream.
    pub(super) memory: Vec<Memory>,
    /// Brokers that keep a journal.
    pub(super) registered: [bool; 2],
    /// Records that were handed over and replayed, by their place in the first log.
    pub(super) origins: BTreeSet<CallId>,
}

impl Redis {
    pub(super) fn remembered(&self, stream: u8) -> Option<Memory> {
        self.memory.iter().copied().find(|memory| memory.stream == stream)
    }

    pub(super) fn sequence(&self, stream: u8) -> u8 {
        self.remembered(stream).map_or(0, |memory| memory.sequence)
    }

    pub(super) fn remember(&mut self, memory: Memory) {
        self.memory.retain(|old| old.stream != memory.stream);
        self.memory.push(memory);
        self.memory.sort_by_key(|memory| memory.stream);
    }

    pub(super) fn version_of(&self, id: usize) -> Version {
        let there = self.messages[id].map_or(0, |message| message.body.version());
        there.max(self.ended(id)).max(self.deleted_at)
    }

    /// Up to which version an id is over: by a tombstone or a purge.
    pub(super) fn ended(&self, id: usize) -> Version {
        self.ended[id].max(self.purged)
    }
}

/// A live call, repeated unchanged until it is answered or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) call: CallId,
    pub(super) request: Request,
}

/// A record of the WAL: a request that was answered 202.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Buffered {
    pub(super) number: u8,
    pub(super) request: Request,
    /// The live call that was never answered.
    pub(super) call: Option<CallId>,
    /// Its place in the log of the broker that handed it over.
    pub(super) origin: Option<CallId>,
}

impl Buffered {
    /// Whether Redis or another broker may have it.
    pub(super) fn is_elsewhere(self) -> bool {
        self.call.is_some() || self.origin.is_some()
    }
}

/// A page of the WAL on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Page {
    pub(super) stream: u8,
    pub(super) records: Vec<Buffered>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Copy {
    Call(Call),
    Page(Page),
}

/// A record of the journal: what Redis answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answered {
    Set { id: usize, body: Body, call: CallId },
    End { id: usize, version: Version },
    Deleted { version: Version },
    Purged { version: Version },
}

/// A settlement that was sent and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Settling {
    pub(super) id: usize,
    pub(super) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Broker {
    pub(super) name: Name,
    pub(super) up: bool,
    pub(super) reachable: bool,
    /// Looked which Redis it reached since the last loss.
    pub(super) connected: bool,
    /// The highest version it gave or heard of.
    pub(super) clock: Version,
    /// A wall clock that was set back, and nothing to correct it by.
    pub(super) clock_is_wrong: bool,
    pub(super) stream: u8,
    /// Of the last call of the stream.
    pub(super) sequence: u8,
    pub(super) pending: Option<Call>,
    pub(super) wal: Vec<Buffered>,
    /// Of the last record.
    pub(super) wal_number: u8,
    /// The name of the WAL, which is the stream of its pages.
    pub(super) wal_stream: u8,
    /// Earlier names of the WAL, each with the number through which records may have been handed over.
    pub(super) handed_over: Vec<CallId>,
    /// The number of the last record whose call was certainly not applied. Void after a loss.
    pub(super) fenced: u8,
    /// The highest number that was perhaps sent.
    pub(super) sent: u8,
    pub(super) journal: Vec<Answered>,
    /// How much of the journal is durable; less than all of it only where a rule is missing.
    pub(super) durable: usize,
    /// The next record to offer; `None` when nothing is left to offer.
    pub(super) restoring: Option<usize>,
    /// It started, or Redis perhaps lost data: the journal is to be offered.
    pub(super) must_offer: bool,
    /// Other brokers that it knew before the last loss.
    pub(super) knows_other: bool,
    pub(super) settling: Option<Settling>,
}

impl Broker {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            up: true,
            reachable: true,
            connected: true,
            clock: 0,
            clock_is_wrong: false,
            stream: LIVE_STREAMS + name as u8,
            sequence: 0,
            pending: None,
            wal: Vec::new(),
            wal_number: 0,
            wal_stream: name as u8,
            handed_over: Vec::new(),
            fenced: 0,
            sent: 0,
            journal: Vec::new(),
            durable: 0,
            restoring: None,
            must_offer: false,
            knows_other: true,
            settling: None,
        }
    }

    /// The records at the head of the WAL that need no fence.
    pub(super) fn replayable(&self) -> impl Iterator<Item = Buffered> {
        self.wal.iter().copied().take_while(|record| record.call.is_none() || record.number <= self.fenced)
    }

    /// A record with its place in the log under an earlier name, if it may have been handed over.
    pub(super) fn with_origin(&self, record: Buffered) -> Buffered {
        let earlier = self.handed_over.iter().find(|earlier| record.number <= earlier.sequence);
        let origin = earlier.map(|&CallId { stream, .. }| CallId { stream, sequence: record.number });
        Buffered { origin: record.origin.or(origin), ..record }
    }

    /// Whether Redis answers it.
    pub(super) fn is_served(&self) -> bool {
        self.up && self.reachable && self.connected
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: Version,
    pub(super) redis: Redis,
    pub(super) snapshot: Option<Box<Redis>>,
    pub(super) brokers: [Broker; 2],
    pub(super) copies: Vec<Copy>,
    /// The last delivery of each id, if it ended without a decision and nobody had the message since.
    pub(super) too_late: [Option<Body>; IDS],
    pub(super) next_stream: u8,
    /// Redis lost data at some time.
    pub(super) lost_data: bool,
    /// Brokers that restored since the last loss.
    pub(super) restored: [bool; 2],
    /// Brokers that were silent for a lease ttl since the last loss, and have not restored.
    pub(super) silent: [bool; 2],
    /// One lease ttl after the last loss has not passed.
    pub(super) hold: bool,
    pub(super) ledger: Ledger,
    /// The operations and faults that may still happen.
    pub(super) left: Bounds,
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        let redis = Redis { topic: Some(0), registered: [true; 2], ..Redis::default() };
        Self {
            now: 0,
            redis,
            snapshot: None,
            brokers: Name::BOTH.map(Broker::new),
            copies: Vec::new(),
            too_late: [None; IDS],
            next_stream: LIVE_STREAMS + 2,
            lost_data: false,
            restored: [true; 2],
            silent: [false; 2],
            hold: false,
            ledger: Ledger::default(),
            left: bounds,
        }
    }

    pub(super) fn broker(&self, name: Name) -> &Broker {
        &self.brokers[name as usize]
    }

    pub(super) fn broker_mut(&mut self, name: Name) -> &mut Broker {
        &mut self.brokers[name as usize]
    }

    /// The barrier: whether everything is restored that a loss took.
    pub(super) fn is_restored(&self, name: Name, rules: Rules) -> bool {
        let (broker, other) = (self.broker(name), name.other() as usize);
        let restored = self.restored[name as usize] || !rules.has(Rule::HandOutsWaitForOwnJournal);
        let remembers = broker.knows_other && rules.has(Rule::BrokersAreRemembered);
        let others = if self.redis.registered[other] || remembers {
            self.restored[other] || self.silent[other]
        } else {
            broker.knows_other || !self.hold || !rules.has(Rule::NewcomersWait)
        };
        restored && (others || !rules.has(Rule::HandOutsWaitForOthers))
    }

    /// Whether a push stays in the WAL: another journal may have the first one of its dedup key.
    pub(super) fn holds_back(&self, name: Name, kind: Kind, rules: Rules) -> bool {
        kind == Kind::Deduped && rules.has(Rule::DedupWaitsForRestores) && !self.is_restored(name, rules)
    }

    /// A name that no call had.
    pub(super) fn new_stream(&mut self, name: Name) {
        let stream = self.next_stream;
        self.next_stream += 1;
        let broker = self.broker_mut(name);
        broker.stream = stream;
        broker.sequence = 0;
    }
}
