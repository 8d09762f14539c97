//! The members of groups: in memory only, since all of them live in this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::{Channel, MemberId};
use crate::time::Timestamp;

/// When each member of each group said last that it lives.
#[derive(Debug, Default)]
pub(super) struct Members(Mutex<HashMap<Channel, BTreeMap<MemberId, Timestamp>>>);

impl Members {
    /// Notes that a member lives; answers whether it is new, and who lives.
    pub(super) fn beat(
        &self,
        group: &Channel,
        member: &MemberId,
        now: Timestamp,
        ttl: Duration,
    ) -> (bool, Vec<MemberId>) {
        let mut groups = self.lock();
        let members = groups.entry(group.clone()).or_default();
        members.retain(|_, last| now.since(*last) < ttl);
        let joined = members.insert(member.clone(), now).is_none();
        (joined, members.keys().cloned().collect())
    }

    /// Notes that a member is gone; answers whether it was there.
    pub(super) fn leave(&self, group: &Channel, member: &MemberId) -> bool {
        self.lock().get_mut(group).is_some_and(|members| members.remove(member).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Channel, BTreeMap<MemberId, Timestamp>>> {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
