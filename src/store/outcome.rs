//! What goes into a store's verbs and what comes out of them.

use std::fmt;
use std::time::Duration;

use super::{MemberId, Owner};
use crate::codec::{DeadRecord, Failure};
use crate::model::error::Result;
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Message, MessageId};
use crate::model::time::Timestamp;
use crate::model::version::Version;

/// What a store is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `embedded` or `redis`.
    pub kind: &'static str,
    /// Where it is, without secrets.
    pub location: String,
    /// In one sentence: what a 201 survives, and what it does not.
    pub durability: String,
}

/// What became of one pushed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the store.
    Stored,
    /// It is in the store, and for a while on the local disk as well, in case the store loses its last moments.
    Journaled,
    /// It is on the local disk, and goes into the store once that can be reached.
    Buffered,
    /// Its id was there already; nothing changed.
    Duplicate,
    /// It took the place of the message that waited under its id.
    Replaced,
    /// The message that waited under its id has its due time now.
    Debounced,
}

impl Pushed {
    /// The stable name, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Pushed::Stored => "stored",
            Pushed::Journaled => "journaled",
            Pushed::Buffered => "buffered",
            Pushed::Duplicate => "duplicate",
            Pushed::Replaced => "replaced",
            Pushed::Debounced => "debounced",
        }
    }
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Due later.
    Scheduled,
    /// Due and not taken.
    Ready,
    /// Reserved by the owner of its pair.
    InFlight,
    /// Dead since then.
    Dead {
        /// When it died.
        died_at: Timestamp,
        /// Why.
        record: DeadRecord,
    },
}

impl State {
    /// The stable name, as in the API and in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            State::Scheduled => "scheduled",
            State::Ready => "ready",
            State::InFlight => "in_flight",
            State::Dead { .. } => "dead",
        }
    }
}

/// One message, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// The message.
    pub message: Message,
    /// The version of the operation that set it.
    pub version: Version,
    /// Where it is.
    pub state: State,
    /// When it is tried next; only while scheduled or ready.
    pub next_at: Option<Timestamp>,
    /// Attempts that were charged.
    pub attempts: u32,
    /// Whose lease the pair is: who has it while it is in flight.
    pub owner: Option<MemberId>,
    /// How the last attempts failed, oldest first; a dead message has them in its record.
    pub history: Vec<Failure>,
}

/// What a pair holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Due later.
    pub scheduled: u64,
    /// Due and not taken.
    pub ready: u64,
    /// Reserved by the owner.
    pub in_flight: u64,
    /// Dead.
    pub dead: u64,
    /// The earliest due time of what is scheduled or ready.
    pub head: Option<Timestamp>,
    /// For how long the oldest ready message has been due.
    pub oldest_ready_age: Option<Duration>,
    /// Whose lease it is.
    pub owner: Option<MemberId>,
}

/// A page of what waits in a window of due times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// Messages in the whole window.
    pub count: u64,
    /// When they are due, or due again, and their ids; the earliest first.
    pub messages: Vec<(Timestamp, MessageId)>,
}

/// The outcome of one page of moving messages to another topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MovedPage {
    /// Scheduled or ready messages that were moved.
    pub waiting: u64,
    /// Dead messages that were moved.
    pub dead: u64,
    /// Of these, those whose id was there already: dropped. A page that is placed again counts none.
    pub there_already: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// Equal spans of time ahead, to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// Where the first one begins.
    pub from: Timestamp,
    /// How long each is, whole milliseconds.
    pub step: Duration,
    /// How many there are, 1 to [`crate::model::limits::FORECAST_SPANS_MAX`].
    pub count: usize,
}

impl Spans {
    /// The end of a span, from 1 on; that of 0 is where the first begins.
    pub fn end(&self, span: usize) -> Timestamp {
        self.from.plus(self.step.saturating_mul(u32::try_from(span).unwrap_or(u32::MAX)))
    }
}

/// How many messages become due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// They are due where the first span begins.
    pub ready: u64,
    /// In each span, its end included.
    pub spans: Vec<u64>,
    /// After the last one.
    pub later: u64,
}

/// A position in the dead messages of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadCursor {
    /// When the last message before it died.
    pub died_at: Timestamp,
    /// Its id.
    pub id: MessageId,
}

/// A dead message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Its id.
    pub id: MessageId,
    /// When it died.
    pub died_at: Timestamp,
    /// Why, after how many attempts.
    pub record: DeadRecord,
    /// The version of the operation that set the message.
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// A page of dead messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// The messages, oldest death first.
    pub dead: Vec<Dead>,
    /// Where the next page begins, if there is more.
    pub next: Option<DeadCursor>,
}

/// What is asked of the slots of a group, in each of which one message may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAsk {
    /// How many, at most.
    pub count: u32,
    /// From the beginning of one to that of the next.
    pub spacing: Duration,
    /// How far from now the last one may begin; at most [`crate::model::limits::SLOT_AHEAD_MAX`].
    pub within: Duration,
}

/// Slots that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub count: u32,
    /// From the time of the store at the answer to the beginning of the first; with none, to that of the next that could be
    /// given.
    pub after: Duration,
}

/// What a group keeps of dead messages in a partition; what is older or more is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadBounds {
    /// Those that died before then are dropped.
    pub died_before: Option<Timestamp>,
    /// Of the others, so many are kept: the newest.
    pub count: Option<u64>,
}

/// The outcome of one page of dropping dead messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadDropped {
    /// Dropped because of their age.
    pub aged: u64,
    /// Dropped because there were too many.
    pub surplus: u64,
    /// Whether there is more to drop.
    pub more: bool,
    /// When the oldest one that is left died.
    pub oldest: Option<Timestamp>,
}

/// Where a copy goes on. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCursor(pub String);

/// The outcome of one page of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Messages that were copied.
    pub messages: usize,
    /// Where the next page begins, if there is more.
    pub next: Option<CopyCursor>,
}

/// The outcome of an acquisition.
pub enum Acquired {
    /// The lease is taken, under a new epoch.
    Owned(Box<dyn Owner>),
    /// Another member has it.
    Held {
        /// Who has it.
        by: MemberId,
        /// How long its lease still runs, if nobody prolongs it.
        expires_in: Duration,
    },
}

impl fmt::Debug for Acquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acquired::Owned(owner) => write!(f, "Owned({})", owner.epoch()),
            Acquired::Held { by, expires_in } => write!(f, "Held({by}, {expires_in:?})"),
        }
    }
}

/// The outcome of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs on; and what the store saw on the way.
    Kept(Glance),
    /// Another epoch, or another member, has the pair.
    Lost {
        /// Who has the lease now, if anyone.
        by: Option<MemberId>,
    },
}

/// What a renewal sees of a pair: the safety look that makes a lost wake harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// The earliest due time in the zset.
    pub head: Option<Timestamp>,
    /// The generation of the topic that the partition has seen.
    pub generation: u64,
}

/// The outcome of one page of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Messages that were scheduled again. If an answer was lost, only what the repeated call still found.
    pub messages: usize,
    /// Whether older epochs had left reservations, even if this page found none of them any more.
    pub left_behind: bool,
    /// Whether older epochs still hold something.
    pub more: bool,
    /// Once nothing is held: how many bodies are not in the zset, and so in no place, or how many ids have no body.
    /// Anything but 0 is a defect or a data loss, and calls for a repair.
    pub orphans: u64,
}

/// Where a repair goes on. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairCursor(pub String);

/// The outcome of one page of repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Messages that were scheduled again, and ids without body that were dropped.
    pub messages: usize,
    /// Where the next page begins, if there is more.
    pub next: Option<RepairCursor>,
}

/// How much one reservation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveLimit {
    /// Messages, 1 to [`CALL_IDS_MAX`].
    pub messages: usize,
    /// Bytes of bodies; one message is taken even if it is larger.
    pub bytes: usize,
}

impl Default for ReserveLimit {
    fn default() -> ReserveLimit {
        ReserveLimit { messages: CALL_IDS_MAX, bytes: CALL_BYTES_MAX }
    }
}

/// The name of a reservation: its number within the owner's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation(pub u64);

/// The outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Its name, for settling.
    pub reservation: Reservation,
    /// What was due, oldest first; may be empty.
    pub messages: Vec<ReservedMessage>,
    /// The earliest due time of what is left in the zset.
    pub head: Option<Timestamp>,
    /// Ids in the zset that had no body: dropped. Anything but 0 is a defect or a data loss.
    pub dropped: usize,
    /// Bodies in the hash that are not in the zset: what the owner must hold unsettled, or something is amiss.
    pub unsettled: u64,
}

/// One reserved message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedMessage {
    /// Its id.
    pub id: MessageId,
    /// When it became due, or due again after a retry.
    pub ready_at: Timestamp,
    /// Where it stood in the zset. With an ordering that stays so, also after a retry; without one it is `ready_at`.
    pub place: Timestamp,
    /// Attempts charged before.
    pub attempts: u32,
    /// Bytes of its body.
    pub bytes: usize,
    /// The version of the operation that set it.
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// Decisions about reserved messages, applied all or none. At most [`CALL_IDS_MAX`] ids altogether.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Done, or expired: gone for good.
    pub acked: Vec<MessageId>,
    /// Failed: scheduled again.
    pub retried: Vec<Retried>,
    /// Failed, in a topic with ordering: stays reserved, since it holds its key. What is also in `returned` goes back.
    pub kept: Vec<Retried>,
    /// Never handed out: scheduled again without a charge.
    pub returned: Vec<Returned>,
    /// Dead.
    pub buried: Vec<Buried>,
    /// For every reservation that lost a message other than by ack, and for every one with nothing left:
    /// the ids that remain.
    pub remaining: Vec<(Reservation, Vec<MessageId>)>,
    /// How long the acked ids are remembered as duplicates; zero is not at all.
    pub dedup_window: Duration,
}

impl Settlement {
    /// Number of decisions.
    pub fn len(&self) -> usize {
        self.acked.len() + self.retried.len() + self.kept.len() + self.returned.len() + self.buried.len()
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.remaining.is_empty()
    }
}

/// A failed message, to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retried {
    /// Its id.
    pub id: MessageId,
    /// When it is due again.
    pub next_at: Timestamp,
    /// Attempts charged now, absolute, so that a repeat does not count twice.
    pub attempts: u32,
    /// What is added to its history, unless it was only given back.
    pub failure: Option<Failure>,
}

/// A message given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Its id.
    pub id: MessageId,
    /// The due time it goes back to. With an ordering it goes back to its place, which is in this millisecond.
    pub ready_at: Timestamp,
}

/// A message that dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buried {
    /// Its id.
    pub id: MessageId,
    /// Why. Its history is what the store has.
    pub record: DeadRecord,
    /// What is added to its history, if it died of an attempt.
    pub failure: Option<Failure>,
}

/// An attempt that is charged before it is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The message.
    pub id: MessageId,
    /// Attempts charged now, absolute.
    pub attempts: u32,
}
