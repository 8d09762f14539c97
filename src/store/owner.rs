//! The owner of a partition of a group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::codec::{DeadLetterRecord, Failure};
use crate::model::error::Result;
#[cfg(doc)]
use crate::model::limits::DUE_LOOKED_AT_MAX;
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Key, Message, MessageId};
use crate::model::time::Timestamp;
use crate::model::version::Version;

/// The operations of the owner of a partition: the handle of one epoch. The methods take `&mut self`, so that a second call in
/// flight does not compile. Calls are numbered and repeated unchanged until they are answered, so none of them ever
/// ends in `OutcomeUnknown`; they may take as long as an outage. Dropping a handle gives nothing up: what it reserved
/// waits for the next epoch's recovery. Errors: `Stale` when another epoch owns the partition, or the store lost data that
/// this epoch had written: the owner has to forget what it holds and acquire anew. `Corrupt` when the keys are not what
/// dwell wrote.
#[async_trait]
pub trait Owner: Send {
    fn epoch(&self) -> &Epoch;

    /// Whether the last call may have been applied without success: a copy went unanswered, or its future was dropped.
    fn is_in_doubt(&self) -> bool;

    /// Says that the topic has an ordering: reservations keep the positions of their messages, so that what is given back,
    /// or recovered by the next epoch, stands where it stood. Before the first reservation.
    fn keep_positions(&mut self);

    /// Schedules again a page of what older epochs hold reserved. Repeat until nothing is left, before reserving.
    async fn recover(&mut self) -> Result<Recovered>;

    /// Schedules again a page of the bodies that are in no zset, not earlier than they were due, and drops ids without
    /// body, after `from`. Only after recovery found either, and before anything is reserved.
    async fn repair(&mut self, from: Option<RepairCursor>) -> Result<Repaired>;

    /// Takes messages that are due, oldest due time first.
    async fn reserve(&mut self, limit: ReserveLimit) -> Result<Reserved>;

    /// Takes messages of a group that is or was fair: so many of the sorted ones of each key, oldest first, and if some of a key are due
    /// before all that is not sorted, only these; and those that are due and not sorted, as [`Owner::reserve`] does. With a share it
    /// looks at up to [`DUE_LOOKED_AT_MAX`] of the oldest due ones, and if there are more, at as many of the newest: of each key without
    /// sorted messages it takes a share, and the others it sorts; those of a paused key it sorts all, and takes no sorted ones. The limit of messages is for those that are due and taken, that
    /// of bytes for all that it looks at. Not with an ordering.
    async fn reserve_by_key(
        &mut self,
        limit: ReserveLimit,
        keys: &[KeyCount],
        share: Option<usize>,
    ) -> Result<Reserved>;

    /// A page of the keys of which messages are sorted, in their order, after a key: what an earlier epoch sorted. Every key with
    /// sorted messages is there; the counts are upper bounds, see [`KeyCount`]. It only reads: a store need not find out that
    /// another epoch owns the partition, and the next call that changes something does.
    async fn sorted_keys(&mut self, after: Option<&KeyCount>) -> Result<SortedKeys>;

    /// All of them, page by page.
    async fn all_sorted_keys(&mut self) -> Result<Vec<KeyCount>> {
        let mut keys: Vec<KeyCount> = Vec::new();
        loop {
            let page = self.sorted_keys(keys.last()).await?;
            keys.extend(page.keys);
            if !page.more {
                return Ok(keys);
            }
        }
    }

    /// Applies decisions about reserved messages, all or none.
    async fn settle(&mut self, settlement: &Settlement) -> Result<()>;

    /// Charges attempts before messages are handed out again.
    async fn start(&mut self, charges: &[Charge]) -> Result<()>;

    /// When an earlier epoch may have made its last delivery: as its release said, or when this epoch began if the one before ended without
    /// a release. 0 if none is known.
    fn last_delivery(&self) -> Timestamp;

    /// Gives the lease up, so that another member may take it at once, and says when the last delivery may have been made, which the
    /// next owner learns.
    async fn release(self: Box<Self>, last_delivery: Timestamp) -> Result<()>;
}

/// State of a partition, read at a renewal: the safety look that makes a lost wake harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadState {
    pub head: Option<Timestamp>,
    pub generation: u64,
    /// A page of its messages is on its way to another topic: of a move that is going on, or of one whose broker died.
    pub is_moving: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Messages that were scheduled again. If an answer was lost, only what the repeated call still found.
    pub messages: usize,
    /// Whether older epochs had left reservations, even if this page found none of them any more.
    pub left_behind: bool,
    pub more: bool,
    /// Once nothing is held: bodies in no zset, or ids without body. Not 0 after a defect or data loss: repair.
    pub orphans: u64,
    /// As in [`HeadState`].
    pub is_moving: bool,
    /// Whether there may be sorted messages: true if there are, and perhaps if there were, as in [`KeyCount`].
    pub has_sorted: bool,
}

/// Sorted messages of one key, or those without a key. A count that a store answers is an upper bound: a message that was sorted
/// and then cancelled, rescheduled, replaced, settled late, or moved may count until a reservation of its key comes upon its place.
/// Reserving the key until 0 is left finds exactly the messages that are sorted, and after that the count is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCount {
    pub key: Option<Key>,
    pub messages: u64,
}

/// A key whose messages wait until a time, on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedKey {
    pub key: Key,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedKeys {
    pub keys: Vec<KeyCount>,
    pub more: bool,
}

/// Where a repair continues. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairCursor(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Messages that were scheduled again, and ids without body that were dropped.
    pub messages: usize,
    pub next: Option<RepairCursor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveLimit {
    /// Messages, 1 to [`CALL_IDS_MAX`].
    pub messages: usize,
    /// At least one message is taken, even if it is larger.
    pub bytes: usize,
}

impl Default for ReserveLimit {
    fn default() -> ReserveLimit {
        ReserveLimit { messages: CALL_IDS_MAX, bytes: CALL_BYTES_MAX }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub reservation: Reservation,
    /// The due messages, oldest first; may be empty. Those that were sorted come first, key by key.
    pub messages: Vec<ReservedMessage>,
    /// The earliest due time that is left, but for sorted messages.
    pub head: Option<Timestamp>,
    /// For each key that was asked for, how many sorted messages are left at most, see [`KeyCount`]. A call does a bounded amount of
    /// work, so that fewer messages may come than were asked for, or none, while some are left: ask again. None are left at 0.
    pub sorted_left: Vec<u64>,
    /// The other keys of which this call sorted messages, with how many are sorted now at most. A call that was repeated does not know
    /// which these are, and answers all keys with sorted messages.
    pub sorted: Vec<KeyCount>,
    /// The paused keys that were asked for, or of which this call sorted messages. A repeat answers none.
    pub paused: Vec<PausedKey>,
    /// Ids in the zset that had no body: dropped. Anything but 0 is a defect or a data loss.
    pub dropped: usize,
    /// Bodies in the hash that are not in the zset: what the owner must hold unsettled, or something is amiss.
    pub unsettled: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedMessage {
    pub id: MessageId,
    /// When it became due, or due again after a retry.
    pub ready_at: Timestamp,
    /// Where it stood in the zset. With an ordering that stays so, also after a retry; without one it is `ready_at`.
    pub position: Timestamp,
    pub attempts: u32,
    pub bytes: usize,
    pub version: Version,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// Decisions about reserved messages, applied all or none. At most [`CALL_IDS_MAX`] ids altogether.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Done, or expired: gone for good.
    pub acked: Vec<MessageId>,
    pub retried: Vec<Retried>,
    /// Failed, in a topic with ordering: stays reserved, since it holds its key. Messages that are also in `returned` go back.
    pub kept: Vec<Retried>,
    /// Never handed out: scheduled again without a charge.
    pub returned: Vec<Returned>,
    /// Never handed out, and in turn after others: due as before, among the sorted messages of its key. None with an ordering.
    pub sorted: Vec<Sorted>,
    pub buried: Vec<Buried>,
    /// Keys that wait at least until then; a longer pause of one stays. None with an ordering.
    pub paused: Vec<PausedKey>,
    /// The ids that remain in each reservation that lost a message other than by ack, or is empty now.
    pub remaining: Vec<(Reservation, Vec<MessageId>)>,
    /// How long the acked ids are remembered as duplicates; zero is not at all.
    pub dedup_window: Duration,
}

impl Settlement {
    pub fn len(&self) -> usize {
        self.acked.len()
            + self.retried.len()
            + self.kept.len()
            + self.returned.len()
            + self.sorted.len()
            + self.buried.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.remaining.is_empty() && self.paused.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retried {
    pub id: MessageId,
    pub next_at: Timestamp,
    /// Attempts charged now, absolute, so that a repeat does not count twice.
    pub attempts: u32,
    /// Added to its history, unless it was only given back.
    pub failure: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    pub id: MessageId,
    /// The due time it goes back to. With an ordering it goes back to its position, which is in this millisecond.
    pub ready_at: Timestamp,
}

/// Added to the due time of a sorted message, in ms: so it is found among all that wait, and stands behind all that is not
/// sorted. No due time reaches it: it is the year 2109.
pub(crate) const SORTED: u64 = 1 << 42;

/// A message of a fair group that waits beside the others of its key, so that those of other keys have their turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted {
    pub id: MessageId,
    pub key: Option<Key>,
    pub ready_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buried {
    pub id: MessageId,
    /// Why. Its history is what the store has.
    pub record: DeadLetterRecord,
    pub failure: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub id: MessageId,
    /// Attempts charged now, absolute.
    pub attempts: u32,
}

/// One acquisition of a partition. Compare for equality only: after a data loss a number may recur, its random token never.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Epoch {
    number: u64,
    token: Arc<str>,
}

impl Epoch {
    pub fn after(number: u64) -> Epoch {
        Epoch { number: number.saturating_add(1), token: random_text().into() }
    }

    /// Its number, for people; tokens tell epochs apart.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is what an owner leaves that gave its lease up: nobody has it.
    pub fn is_nobodys(&self) -> bool {
        &*self.token == "-"
    }

    pub fn parse(text: &str) -> Option<Epoch> {
        let (number, token) = text.split_once('.')?;
        Epoch::of(number, token)
    }

    /// Of the two parts of its text. `None` for what dwell never wrote.
    pub fn of(number: &str, token: &str) -> Option<Epoch> {
        let plain = !token.is_empty() && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        plain.then_some(Epoch { number: number.parse().ok()?, token: token.into() })
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.token)
    }
}

/// 12 random characters: 62 bits, never used twice in practice.
pub(crate) fn random_text() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_round_trips_and_is_unique() {
        let epoch = Epoch::after(16);
        assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch.clone()));
        assert_ne!(Epoch::after(16), epoch);
        for bad in ["", "17", "17.", ".a", "x.a", "17.a/b", "17.a b"] {
            assert_eq!(Epoch::parse(bad), None, "{bad:?}");
        }
    }
}
