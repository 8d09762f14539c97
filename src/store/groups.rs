//! Members of a group: their heartbeats, its rate slots, and datagrams between the brokers that share a store.
//!
//! A datagram may be lost, arrive twice, late, or be written by a stranger: its receiver believes nothing that it cannot
//! check, and its sender repeats it until it is answered. Datagrams that have arrived and are not taken yet are bounded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{WalDepth, random_text};
use crate::model::error::Result;
use crate::model::limits::MEMBER_BYTES_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::hash;
use crate::model::spelling::names;
use crate::model::time::Timestamp;

#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Records heartbeats, and returns the live members of each group, sorted: those with a heartbeat within `ttl`.
    /// Announces new members and changes of demand.
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>>;

    /// Reads the live members of a group, those with a heartbeat within `ttl`, sorted.
    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>>;

    /// Leaving again does nothing.
    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()>;

    /// Gives out slots of a group, each one once and at least `spacing` behind the one before.
    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots>;

    /// Sends a datagram to a member, at most [`crate::model::limits::DATAGRAM_BYTES_MAX`] bytes. False if certainly no
    /// process receives what is sent to it now; true promises nothing.
    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAsk {
    pub count: u32,
    /// From the beginning of one to that of the next.
    pub spacing: Duration,
    /// How far from now the last one may begin; at most [`crate::model::limits::SLOT_AHEAD_MAX`].
    pub within: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    /// From the store's time at the answer to the beginning of the first; with none, of the next possible one.
    pub after: Duration,
}

/// Slots of all groups with members: a process sends one call for each, and a cluster spreads them over its nodes.
const SLOTS: u32 = 16;

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveMember {
    pub id: MemberId,
    /// Whether somebody wants messages from it: consumers wait there, or deliveries are in flight.
    pub has_demand: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub topic: TopicName,
    pub group: GroupName,
    pub state: MemberState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberState {
    pub has_demand: bool,
    pub waiting: usize,
    pub owned: usize,
    pub wal: WalDepth,
    /// Only in the heartbeat of the process, which belongs to no group.
    pub process: Option<ProcessState>,
}

/// A process of the fleet, whether it consumes or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessState {
    /// By its clock.
    pub started_at: Timestamp,
    pub doing: Doing,
    /// Records and bytes.
    pub journal: (u64, u64),
    /// How far its clock is ahead of that of the store, ms.
    pub clock_ahead_ms: i64,
}

/// The main thing that a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Pushes go to the store.
    Serving,
    /// Pushes go to its disk, since the store is unavailable.
    Buffering,
    /// The store gets from its disk what it did not take.
    Replaying,
    /// The store gets back what it lost.
    Restoring,
    /// It hands over what it has, and ends.
    Draining,
}

names! { Doing::name:
    Serving => "serving",
    Buffering => "buffering",
    Replaying => "replaying",
    Restoring => "restoring",
    Draining => "draining",
}

/// Where processes record their heartbeats: beside those of groups, under a name that no topic can have.
pub fn of_processes() -> (TopicName, GroupName) {
    (TopicName::of_processes(), GroupName::standard())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    pub id: MemberId,
    pub state: MemberState,
    pub version: String,
    /// When it sent its latest heartbeat, by the clock of the store.
    pub heard_at: Timestamp,
}

pub fn slot_of(topic: &TopicName, group: &GroupName) -> u32 {
    hash(format!("{topic}/{group}").as_bytes()) % SLOTS
}

impl Heartbeat {
    pub fn slot(&self) -> u32 {
        slot_of(&self.topic, &self.group)
    }
}

impl MemberState {
    /// Demand as `0` or `1`, waiting consumers, owned partitions, the write-ahead log (records, bytes, and bytes that it
    /// may have), and the version of the process. Of a process also when it started, what it does, its journal and its clock.
    pub fn to_store(self) -> String {
        let MemberState { has_demand, waiting, owned, wal: WalDepth { records, bytes, limit_bytes }, process } = self;
        let of_member = format!("{} {waiting} {owned} {records} {bytes} {limit_bytes} {VERSION}", u8::from(has_demand));
        let Some(ProcessState { started_at, doing, journal: (records, bytes), clock_ahead_ms }) = process else {
            return of_member;
        };
        format!("{of_member} {} {} {records} {bytes} {clock_ahead_ms}", started_at.as_ms(), doing.name())
    }
}

impl MemberReport {
    pub fn from_store(id: MemberId, heard_at: Timestamp, text: &str) -> MemberReport {
        let mut parts = text.split(' ');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (has_demand, waiting, owned) = (number() == 1, count(number()), count(number()));
        let wal = WalDepth { records: number(), bytes: number(), limit_bytes: number() };
        let version = parts.next().unwrap_or_default().to_owned();
        let state = MemberState { has_demand, waiting, owned, wal, process: ProcessState::read(parts) };
        MemberReport { id, state, version, heard_at }
    }
}

impl ProcessState {
    fn read<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<ProcessState> {
        let started_at = Timestamp::from_ms(parts.next()?.parse().ok()?);
        let doing = parts.next()?;
        let doing = Doing::ALL.into_iter().find(|known| known.name() == doing)?;
        let journal = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(ProcessState { started_at, doing, journal, clock_ahead_ms: parts.next()?.parse().ok()? })
    }
}

/// A process that may own partitions. It has a random part, so that a restarted process is another member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// A member of this process, named for people by `name` (cut to 64 of `A-Z a-z 0-9 . _ -`).
    pub fn fresh(name: &str) -> MemberId {
        let name: String = name.chars().filter(is_plain).take(64).collect();
        MemberId(format!("{name}-{}", random_text()).into())
    }

    pub fn from_store(text: &str) -> MemberId {
        MemberId(text.into())
    }

    pub fn is_plausible(&self) -> bool {
        (1..=MEMBER_BYTES_MAX).contains(&self.0.len()) && self.0.chars().all(|c| is_plain(&c))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_state_round_trips_and_garbage_means_no_demand() {
        let report = |text: &str| MemberReport::from_store(MemberId::from_store("m"), Timestamp::ZERO, text);
        let wal = WalDepth { records: 7, bytes: 4_096, limit_bytes: 1 << 30 };
        let member = MemberState { has_demand: true, waiting: 12, owned: 3, wal, process: None };
        let of_process = Doing::ALL.map(|doing| {
            let started_at = Timestamp::from_ms(1_767_323_045_678);
            let process = ProcessState { started_at, doing, journal: (3, 1 << 40), clock_ahead_ms: -7 };
            MemberState { process: Some(process), ..member }
        });
        for state in of_process.into_iter().chain([member]) {
            assert_eq!((report(&state.to_store()).state, &*report(&state.to_store()).version), (state, VERSION));
        }
        let newer = format!("{} 1 cooking 2 3 4", member.to_store());
        assert_eq!(report(&newer).state, member);
        for garbage in ["", "x", "2 -1 x", "0"] {
            assert_eq!(report(garbage).state, MemberState::default(), "{garbage:?}");
        }
    }

    #[test]
    fn member_id_is_unique_and_sanitized() {
        assert_ne!(MemberId::fresh("host"), MemberId::fresh("host"));
        assert!(MemberId::fresh("a b/{}:@é").as_str().starts_with("ab-"));
    }

    #[test]
    fn only_dwell_owner_records_are_plausible() {
        for name in ["", "host", "a b/{}:@é", &"h".repeat(100)] {
            assert!(MemberId::fresh(name).is_plausible(), "{name}");
        }
        for hostile in ["", "a{b}", "a:b", "a b", "a\nb", "é", &"h".repeat(MEMBER_BYTES_MAX + 1)] {
            assert!(!MemberId::from_store(hostile).is_plausible(), "{hostile}");
        }
    }
}
