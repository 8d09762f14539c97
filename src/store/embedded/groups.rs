//! The members and the rate slots of groups: in memory only, since all of them live in this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::Embedded;
use crate::model::error::Result;
use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{self, Channel, Heartbeat, LiveMember, MemberId, MemberReport, MemberState, SlotAsk, Slots};

#[derive(Debug, Default)]
pub(super) struct Members(Mutex<Groups>);

type Groups = HashMap<Channel, BTreeMap<MemberId, (Timestamp, MemberState)>>;

impl Members {
    /// Records a heartbeat; returns whether the member is new or its demand has changed, and the live members.
    fn heartbeat(
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

    pub(super) fn read(&self, group: &Channel, now: Timestamp, ttl: Duration) -> Vec<MemberReport> {
        let groups = self.lock();
        let live = groups.get(group).into_iter().flatten().filter(|(_, (last, _))| now.since(*last) < ttl);
        live.map(|(id, (last, state))| MemberReport::from_store(id.clone(), *last, &state.to_store())).collect()
    }

    fn leave(&self, group: &Channel, member: &MemberId) -> bool {
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

/// When the next slot of each group may begin. A group without entry waits as long as an earlier slot may be open.
#[derive(Debug, Default)]
pub(super) struct SlotBook(Mutex<HashMap<(TopicName, GroupName), Instant>>);

impl SlotBook {
    pub(super) fn give(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk, now: Instant) -> Slots {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = now.plus(SLOT_AHEAD_MAX + SLOT_OPEN);
        let next = groups.entry((topic.clone(), group.clone())).or_insert(held);
        *next = (*next).max(now);
        let after = next.since(now);
        let room = ask.within.min(SLOT_AHEAD_MAX).checked_sub(after);
        let fitting = room.map_or(0, |room| room.as_nanos() / ask.spacing.as_nanos().max(1) + 1);
        let count = ask.count.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        *next = next.plus(ask.spacing * count);
        Slots { count, after }
    }
}

#[async_trait]
impl store::Groups for Embedded {
    async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        let heartbeat = |Heartbeat { topic, group, state }: &Heartbeat| {
            let channel = Channel::Members(topic.clone(), group.clone());
            let (is_news, live) = self.members.heartbeat(&channel, member, *state, self.clock.now(), ttl);
            if is_news {
                self.wakes.wake(&channel);
            }
            Ok(live)
        };
        heartbeats.iter().map(heartbeat).collect()
    }

    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>> {
        let channel = Channel::Members(topic.clone(), group.clone());
        Ok(self.members.read(&channel, self.clock.now(), ttl))
    }

    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        let channel = Channel::Members(topic.clone(), group.clone());
        if self.members.leave(&channel, member) {
            self.wakes.wake(&channel);
        }
        Ok(())
    }

    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        Ok(self.slots.give(topic, group, ask, self.clock.local().instant()))
    }

    async fn send(&self, _to: &MemberId, _datagram: Bytes) -> Result<bool> {
        Ok(false)
    }
}
