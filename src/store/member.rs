//! What a member of a group says of itself with its heartbeat.

use super::MemberId;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::hash;

/// Slots in which the members of all groups are: a process records its heartbeats with one call for each, and a cluster
/// spreads them over its nodes.
const SLOTS: u32 = 16;

/// The version of this process.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A live member of a group, as its last heartbeat says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveMember {
    /// Which one.
    pub id: MemberId,
    /// Whether somebody wants messages from it: consumers wait there, or deliveries are in flight.
    pub has_demand: bool,
}

/// A heartbeat of a member in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
    /// What it says.
    pub state: MemberState,
}

/// The state of a member of a group, for the others and for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberState {
    /// Whether somebody wants messages from it.
    pub has_demand: bool,
    /// Consumers that wait there.
    pub waiting: usize,
    /// Partitions that it owns.
    pub owned: usize,
}

/// A live member of a group, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    /// Which one.
    pub id: MemberId,
    /// What its last heartbeat says.
    pub state: MemberState,
    /// The version of its process.
    pub version: String,
}

/// The slot of a group among those that have members.
pub fn slot_of(topic: &TopicName, group: &GroupName) -> u32 {
    hash(format!("{topic}/{group}").as_bytes()) % SLOTS
}

impl Heartbeat {
    /// The slot of the group.
    pub fn slot(&self) -> u32 {
        slot_of(&self.topic, &self.group)
    }
}

impl MemberState {
    /// The text in the store: demand as `0` or `1`, waiting consumers, owned partitions, and the version of the process.
    pub fn to_store(self) -> String {
        let MemberState { has_demand, waiting, owned } = self;
        format!("{} {waiting} {owned} {VERSION}", u8::from(has_demand))
    }
}

impl MemberReport {
    /// Reads the text in the store. What dwell never wrote is a member without demand.
    pub fn from_store(id: MemberId, text: &str) -> MemberReport {
        let mut parts = text.splitn(4, ' ');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let state = MemberState { has_demand: number() == 1, waiting: number(), owned: number() };
        MemberReport { id, state, version: parts.next().unwrap_or_default().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_and_garbage_is_a_member_without_demand() {
        let report = |text: &str| MemberReport::from_store(MemberId::from_store("m"), text);
        let state = MemberState { has_demand: true, waiting: 12, owned: 3 };
        assert_eq!((report(&state.to_store()).state, &*report(&state.to_store()).version), (state, VERSION));
        for garbage in ["", "x", "2 -1 x", "0"] {
            assert_eq!(report(garbage).state, MemberState::default(), "{garbage:?}");
        }
    }
}
