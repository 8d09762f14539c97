//! Listing the messages of a group by state and due window, and finding one by its id.
//!
//! A message is identified by its id and its key. The key decides the partition, so without it every partition is
//! asked.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::Broker;
use crate::codec::DeadLetterRecord;
use crate::gate::PARTITIONS_AT_ONCE;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::CALL_BYTES_MAX;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{Dead, DeadLetterCursor, InFlightCursor, Listed, MessageState, Peeked, WaitingCursor, Window};

/// Calls to the store for one page: a window that few messages are in must not keep a request for long.
const CALLS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedState {
    Waiting,
    Scheduled,
    Ready,
    Blocked,
    Backoff,
    InFlight,
    Dead,
}

impl ListedState {
    pub const NAMED: [ListedState; 6] = [
        ListedState::Scheduled,
        ListedState::Ready,
        ListedState::Blocked,
        ListedState::Backoff,
        ListedState::InFlight,
        ListedState::Dead,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ListedState::Waiting => "waiting",
            ListedState::Scheduled => "scheduled",
            ListedState::Ready => "ready",
            ListedState::Blocked => "blocked",
            ListedState::Backoff => "backoff",
            ListedState::InFlight => "in_flight",
            ListedState::Dead => "dead",
        }
    }

    /// The part of a window in which a waiting message is in this state. One that is due in this millisecond is ready.
    pub(super) fn narrowed(self, window: Window, now: Timestamp) -> Window {
        let later = Timestamp::from_ms(now.as_ms().saturating_add(1));
        match self {
            ListedState::Scheduled => Window { from: window.from.max(later), ..window },
            ListedState::Ready => Window { to: window.to.min(later), ..window },
            ListedState::Waiting
            | ListedState::Blocked
            | ListedState::Backoff
            | ListedState::InFlight
            | ListedState::Dead => window,
        }
    }

    /// Whether some of these wait in the store, where no owner has reserved them.
    fn waits_in_store(self) -> bool {
        matches!(self, ListedState::Waiting | ListedState::Scheduled | ListedState::Ready)
    }

    /// Whether some of these are reserved.
    fn may_be_reserved(self) -> bool {
        !matches!(self, ListedState::Scheduled | ListedState::Dead)
    }

    fn has_reserved(self, state: &MessageState) -> bool {
        match self {
            ListedState::Waiting => *state != MessageState::InFlight,
            ListedState::Ready => *state == MessageState::Ready,
            ListedState::Blocked => *state == MessageState::Blocked,
            ListedState::Backoff => *state == MessageState::Backoff,
            ListedState::InFlight => *state == MessageState::InFlight,
            ListedState::Scheduled | ListedState::Dead => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    pub partition: Partition,
    pub state: MessageState,
    pub listed: Listed,
}

impl ListEntry {
    pub(super) fn waiting(partition: Partition, listed: Listed, now: Timestamp) -> ListEntry {
        let state =
            if listed.next_at.is_some_and(|at| at > now) { MessageState::Scheduled } else { MessageState::Ready };
        ListEntry { partition, state, listed }
    }
}

#[derive(Debug, Clone, Default)]
pub struct MessageList {
    pub messages: Vec<ListEntry>,
    pub next: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum ListCursor {
    #[default]
    Beginning,
    Waiting(WaitingCursor),
    /// Where those that are reserved begin.
    Reserved,
    InFlight(InFlightCursor),
    Dead(DeadLetterCursor),
}

impl ListCursor {
    fn is_of(&self, which: ListedState) -> bool {
        match self {
            ListCursor::Beginning => true,
            ListCursor::Waiting(_) => which.waits_in_store(),
            ListCursor::Reserved | ListCursor::InFlight(_) => which.may_be_reserved(),
            ListCursor::Dead(_) => which == ListedState::Dead,
        }
    }
}

impl Broker {
    /// Waiting messages by the time of their next attempt, if that is in the window; others if their due time is. Reserved
    /// messages come behind those that wait in the store, in the state that their owner says.
    /// Errors: `NotFound`, `Invalid` cursor or limit.
    pub async fn list(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: ListedState,
        window: Window,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<MessageList> {
        super::check_count("limit", limit)?;
        let descriptor = self.topics.peek_group(topic, group).await?;
        let (mut partition, mut place) = read_cursor(cursor)?;
        if !place.is_of(which) {
            return Err(wrong_cursor());
        }
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for _ in 0..CALLS_MAX {
            if partition.0 >= descriptor.settings.partitions.get() {
                return Ok(MessageList { messages, next: None });
            }
            let group_partition = descriptor.group_partition(partition, group);
            let (page, next) =
                self.list_page(&descriptor, &group_partition, (which, window), &place, limit - messages.len()).await?;
            let size = |entry: &ListEntry| entry.listed.message.as_ref().map_or(0, |message| message.envelope.size());
            bytes += page.iter().map(size).sum::<usize>();
            messages.extend(page);
            match next {
                Some(next) => place = next,
                None => (partition, place) = (Partition(partition.0 + 1), ListCursor::Beginning),
            }
            if messages.len() >= limit || bytes >= CALL_BYTES_MAX {
                break;
            }
        }
        let is_more = partition.0 < descriptor.settings.partitions.get();
        Ok(MessageList { messages, next: is_more.then(|| write_cursor(partition, &place)) })
    }

    async fn list_page(
        &self,
        descriptor: &Descriptor,
        group_partition: &GroupPartition,
        (which, window): (ListedState, Window),
        place: &ListCursor,
        limit: usize,
    ) -> Result<(Vec<ListEntry>, Option<ListCursor>)> {
        let now = self.store.backend.clock().now();
        let window = which.narrowed(window, now);
        let partition = group_partition.partition;
        if which == ListedState::Dead {
            let after = if let ListCursor::Dead(after) = place { Some(after) } else { None };
            let page = self.store.dead_letters.dead(group_partition, after, limit).await?;
            let entries = page.dead.into_iter().map(|dead| of_dead(partition, dead));
            let entries = entries.filter(|entry| is_due_in(&entry.listed, window));
            return Ok((entries.collect(), page.next.map(ListCursor::Dead)));
        }
        let after = match place {
            ListCursor::Beginning if which.waits_in_store() => None,
            ListCursor::Waiting(after) => Some(after),
            _ => return self.list_reserved(descriptor, group_partition, (which, window), place, limit).await,
        };
        let page = self.store.reads.waiting(group_partition, window, after, limit).await?;
        let entries = page.messages.into_iter().map(|listed| ListEntry::waiting(partition, listed, now));
        let end = which.may_be_reserved().then_some(ListCursor::Reserved);
        Ok((entries.collect(), page.next.map(ListCursor::Waiting).or(end)))
    }

    async fn list_reserved(
        &self,
        descriptor: &Descriptor,
        group_partition: &GroupPartition,
        (which, window): (ListedState, Window),
        place: &ListCursor,
        limit: usize,
    ) -> Result<(Vec<ListEntry>, Option<ListCursor>)> {
        let after = if let ListCursor::InFlight(after) = place { Some(after) } else { None };
        let GroupPartition { partition, group, .. } = group_partition;
        let page = self.store.reads.in_flight(group_partition, after, limit).await?;
        let ids: Vec<MessageId> = page.messages.iter().map(|listed| listed.id.clone()).collect();
        let states = self.held_states(descriptor, *partition, group, &ids).await?;
        let entry = |(listed, (state, next_at)): (Listed, (MessageState, Option<Timestamp>))| ListEntry {
            partition: *partition,
            state,
            listed: Listed { next_at, ..listed },
        };
        let is_wanted = |entry: &ListEntry| {
            let is_due = match entry.listed.next_at {
                Some(next_at) => window.has(next_at),
                None => is_due_in(&entry.listed, window),
            };
            which.has_reserved(&entry.state) && is_due
        };
        let entries = page.messages.into_iter().zip(states).map(entry).filter(is_wanted);
        Ok((entries.collect(), page.next.map(ListCursor::InFlight)))
    }
}

/// An unreadable message has no due time, and is in every window.
fn is_due_in(listed: &Listed, window: Window) -> bool {
    listed.message.as_ref().map_or(true, |message| window.has(message.due_at))
}

fn of_dead(partition: Partition, dead: Dead) -> ListEntry {
    let DeadLetterRecord { attempts, .. } = dead.record;
    let listed = Listed { id: dead.id, next_at: None, attempts, history: Vec::new(), message: dead.message };
    ListEntry { partition, state: MessageState::Dead { died_at: dead.died_at, record: dead.record }, listed }
}

/// `<partition>`, or behind it `.w.<next at ms>.<id>`, `.r`, `.i.<step>.<id or nothing>` or `.d.<died at ms>.<id>`.
fn write_cursor(partition: Partition, place: &ListCursor) -> String {
    match place {
        ListCursor::Beginning => partition.to_string(),
        ListCursor::Waiting(after) => format!("{partition}.w.{}.{}", after.next_at.as_ms(), after.id),
        ListCursor::Reserved => format!("{partition}.r"),
        ListCursor::InFlight(after) => {
            let id = after.after.as_ref().map_or("", MessageId::as_str);
            format!("{partition}.i.{}.{id}", after.step)
        }
        ListCursor::Dead(after) => format!("{partition}.d.{}.{}", after.died_at.as_ms(), after.id),
    }
}

fn read_cursor(cursor: Option<&str>) -> Result<(Partition, ListCursor)> {
    let Some(text) = cursor else { return Ok((Partition(0), ListCursor::Beginning)) };
    let wrong = wrong_cursor;
    let mut parts = text.splitn(4, '.');
    let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
    let Some(kind) = parts.next() else { return Ok((partition, ListCursor::Beginning)) };
    if kind == "r" {
        return if parts.next().is_none() { Ok((partition, ListCursor::Reserved)) } else { Err(wrong()) };
    }
    let (Some(at), Some(id)) = (parts.next(), parts.next()) else { return Err(wrong()) };
    let number: u64 = at.parse().map_err(|_| wrong())?;
    let named = || MessageId::new(id).map_err(|_| wrong());
    let time = Timestamp::from_ms(number);
    let place = match kind {
        "w" => ListCursor::Waiting(WaitingCursor { next_at: time, id: named()? }),
        "d" => ListCursor::Dead(DeadLetterCursor { died_at: time, id: named()? }),
        "i" => {
            let after = if id.is_empty() { None } else { Some(named()?) };
            ListCursor::InFlight(InFlightCursor { step: number.to_string(), after })
        }
        _ => return Err(wrong()),
    };
    Ok((partition, place))
}

/// The index of the last entry of a page that partitions share, if there are more than it has: at most `limit` entries, and one
/// more than fits into [`CALL_BYTES_MAX`]. `is_more`: there are others than these.
pub(super) fn last_of_page(bytes: impl ExactSizeIterator<Item = usize>, limit: usize, is_more: bool) -> Option<usize> {
    let (all, mut sum) = (bytes.len(), 0);
    for (index, bytes) in bytes.enumerate() {
        sum += bytes;
        if index + 1 == limit || sum >= CALL_BYTES_MAX {
            return Some(index).filter(|index| index + 1 < all || is_more);
        }
    }
    None
}

pub(super) fn wrong_cursor() -> Error {
    Error::invalid("cursor", "is not one that dwell gave for this; begin without a cursor")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    In(Partition),
    /// No partition has it, and nothing says in which it was.
    Nowhere,
}

impl Location {
    /// The partition, or the one in which the message is if it has no key.
    pub(super) fn or_home(self, descriptor: &Descriptor, id: &MessageId) -> Partition {
        match self {
            Location::In(partition) => partition,
            Location::Nowhere => descriptor.partition_of(id.as_str()),
        }
    }
}

impl Broker {
    /// Errors: `NotFound` when the message of this id has another key, `Ambiguous` for several without a key, the
    /// store's.
    pub(super) async fn locate(&self, descriptor: &Descriptor, id: &MessageId, key: Option<&Key>) -> Result<Location> {
        let home = |key: Option<&Key>| descriptor.partition_of(key.map_or(id.as_str(), Key::as_str));
        let buffered = self.store.messages.buffered(&descriptor.topic, id).await?;
        let is_buffered = !buffered.is_empty();
        let mut found: BTreeSet<(Partition, Option<Key>)> =
            buffered.into_iter().map(|of| (descriptor.partition_of(&of.routing_key), of.key)).collect();
        let partitions = match key {
            Some(key) => vec![home(Some(key))],
            None => descriptor.partitions().collect(),
        };
        let is_certain = partitions.len() == 1;
        match self.find_message(descriptor, &partitions, id).await {
            Ok(stored) => found.extend(stored.into_iter().map(|(at, peeked)| (at, peeked.message.envelope.key))),
            // The verb says what is wrong, or finds what it needs on the disk.
            Err(error) if error.is_outage() && (is_buffered || is_certain) => {}
            Err(error) => return Err(error),
        }
        let Some(key) = key else {
            return match found.first() {
                Some(_) if found.len() > 1 => Err(ambiguous(id, found.iter().map(|(_, key)| key.as_ref()))),
                Some((partition, _)) => Ok(Location::In(*partition)),
                None if is_certain => Ok(Location::In(home(None))),
                None => Ok(Location::Nowhere),
            };
        };
        let partition = home(Some(key));
        let has_other = found.iter().any(|(at, other)| *at == partition && other.as_ref() != Some(key));
        let has_it = found.iter().any(|(_, other)| other.as_ref() == Some(key));
        if has_other && !has_it {
            return Err(Error::not_found(format!(
                "there is no message {id} with this `key`: one of this id has another"
            )));
        }
        Ok(Location::In(partition))
    }

    /// Asks the groups of each partition one by one until one holds the message.
    async fn find_message(
        &self,
        descriptor: &Descriptor,
        partitions: &[Partition],
        id: &MessageId,
    ) -> Result<Vec<(Partition, Peeked)>> {
        let mut found = Vec::new();
        for partitions in partitions.chunks(PARTITIONS_AT_ONCE) {
            let looks = partitions.iter().map(|partition| async move {
                for group in &descriptor.groups {
                    if let Some(peeked) =
                        self.store.reads.peek(&descriptor.group_partition(*partition, group), id).await?
                    {
                        return Ok(Some((*partition, peeked)));
                    }
                }
                Ok(None)
            });
            let looks = join_all(looks);
            let read = self.reads.begin_for(descriptor.settings.partitions).await?;
            for look in read.call(looks).await {
                found.extend(look?);
            }
        }
        Ok(found)
    }
}

/// Stands before the keys in the error of an id that several messages have.
const KEYS_ARE: &str = "; there is one with each of: ";

fn ambiguous<'a>(id: &MessageId, keys: impl Iterator<Item = Option<&'a Key>>) -> Error {
    let named = keys.map(|key| key.map_or("no key".to_owned(), |key| format!("the key {:?}", key.as_str())));
    let named = named.collect::<Vec<_>>().join(", ");
    Error::new(Kind::Ambiguous, format!("say with `key` which message {id} is meant{KEYS_ARE}{named}"))
}

/// The error for somebody who may not see the keys of messages.
pub fn without_keys(error: Error) -> Error {
    match error.detail().split_once(KEYS_ARE).filter(|_| error.kind() == Kind::Ambiguous) {
        Some((detail, _)) => Error::new(Kind::Ambiguous, detail.to_owned()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_and_garbage_is_refused() -> Result<()> {
        let (at, id) = (Timestamp::from_ms(5), MessageId::new("a.b.c")?);
        let places = [
            ListCursor::Beginning,
            ListCursor::Reserved,
            ListCursor::Waiting(WaitingCursor { next_at: at, id: id.clone() }),
            ListCursor::Dead(DeadLetterCursor { died_at: at, id: id.clone() }),
            ListCursor::InFlight(InFlightCursor { step: "18446744073709551615".to_owned(), after: Some(id) }),
            ListCursor::InFlight(InFlightCursor { step: "7".to_owned(), after: None }),
        ];
        for place in places {
            let text = write_cursor(Partition(3), &place);
            assert_eq!(read_cursor(Some(&text))?, (Partition(3), place));
        }
        for bad in ["", "x", "1.w", "1.w.2", "1.w.x.y", "1.w.2.a b", "1.w.2.", "1.x.2.a", "1.i.x.a", "1.r.2", "70000"] {
            assert!(read_cursor(Some(bad)).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
