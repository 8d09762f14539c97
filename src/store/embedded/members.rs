//! The members of groups: in memory only, since all of them live in this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::time::Timestamp;
use crate::store::{Channel, LiveMember, MemberId, MemberReport, MemberState};

/// The last heartbeat of each member of each group.
#[derive(Debug, Default)]
pub(super) struct Members(Mutex<Groups>);

type Groups = HashMap<Channel, BTreeMap<MemberId, (Timestamp, MemberState)>>;

impl Members {
    /// Records a heartbeat; returns whether the member is new or its demand has changed, and the live members.
    pub(super) fn heartbeat(
        &self,
        group: &Channel,
        member: &MemberId,
        state: MemberState,
        now: Timestamp,
        ttl: Duration,
    ) -> (bool, Vec<LiveMember>) {
        let mut groups = self.lock();
        let members = groups.entry(group.clone()).or_default();
        members.retain(|_, (last, _)| now.since(*last) < ttl);
        let before = members.insert(member.clone(), (now, state));
        let is_news = before.is_none_or(|(_, before)| before.has_demand != state.has_demand);
        let live = |(id, (_, state)): (&MemberId, &(Timestamp, MemberState))| LiveMember {
            id: id.clone(),
            has_demand: state.has_demand,
        };
        (is_news, members.iter().map(live).collect())
    }

    /// The live members.
    pub(super) fn read(&self, group: &Channel, now: Timestamp, ttl: Duration) -> Vec<MemberReport> {
        let groups = self.lock();
        let live = groups.get(group).into_iter().flatten().filter(|(_, (last, _))| now.since(*last) < ttl);
        live.map(|(id, (_, state))| MemberReport::from_store(id.clone(), &state.to_store())).collect()
    }

    /// Removes a member; returns whether it was there.
    pub(super) fn leave(&self, group: &Channel, member: &MemberId) -> bool {
        let mut groups = self.lock();
        let Some(members) = groups.get_mut(group) else { return false };
        let was_there = members.remove(member).is_some();
        if members.is_empty() {
            groups.remove(group);
        }
        was_there
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
