//! The members of groups.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;

use super::keys::MemberKeys;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, ms};
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, TopicName};
use crate::store::{Heartbeat, LiveMember, MemberId, MemberReport};

/// Groups in one call: Redis does nothing else meanwhile, for a few milliseconds.
const GROUPS_MAX: usize = 250;

impl Shared {
    /// One call for each slot; one that fails leaves the others alone.
    pub(super) async fn heartbeat(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        let mut slots: BTreeMap<u32, Vec<(usize, MemberKeys)>> = BTreeMap::new();
        for (index, heartbeat) in heartbeats.iter().enumerate() {
            let keys = self.keys.members(&heartbeat.topic, &heartbeat.group);
            slots.entry(keys.slot).or_default().push((index, keys));
        }
        let calls = slots.into_values().flat_map(|groups| chunks(groups, GROUPS_MAX));
        let ask = async |groups: Vec<(usize, MemberKeys)>| {
            let live = self.beat_slot(member, heartbeats, &groups, ttl).await;
            groups.into_iter().map(|(index, _)| index).zip(live).collect::<Vec<_>>()
        };
        let mut answers: Vec<_> = join_all(calls.map(ask)).await.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, live)| live).collect()
    }

    /// Groups of one slot.
    async fn beat_slot(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        groups: &[(usize, MemberKeys)],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        let keys: Vec<&str> = groups.iter().flat_map(|(_, keys)| [&*keys.members, &*keys.states]).collect();
        let mut call = Call::new(&SCRIPTS.beat, &keys).arg(member.as_str()).arg(ms(ttl)).arg(self.time_override());
        for (index, keys) in groups {
            call = call.arg(heartbeats[*index].state.to_store()).arg(&keys.wake);
        }
        match self.ask(&call).await {
            Ok((_, mut reply)) => groups.iter().map(|_| live_members(&mut reply)).collect(),
            Err(error) => groups.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    pub(super) async fn members(
        &self,
        topic: &TopicName,
        group: &GroupName,
        ttl: Duration,
    ) -> Result<Vec<MemberReport>> {
        let keys = self.keys.members(topic, group);
        let call = Call::new(&SCRIPTS.members, &[&keys.members, &keys.states]).arg(ms(ttl)).arg(self.time_override());
        let (_, mut reply) = self.ask(&call).await?;
        let mut members = Vec::new();
        while reply.left() > 0 {
            let id = MemberId::from_store(&reply.text()?);
            members.push(MemberReport::from_store(id, &reply.text()?));
        }
        members.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(members)
    }

    pub(super) async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        let keys = self.keys.members(topic, group);
        let call = Call::new(&SCRIPTS.leave, &[&keys.members, &keys.states]).arg(member.as_str()).arg(keys.wake);
        Reply::of(self.connection.eval(&call).await?)?.text().map(drop)
    }

    /// In a cluster the channel of a member is at the node of its slot, where the member listens.
    pub(super) async fn send(&self, to: &MemberId, datagram: &[u8]) -> Result<bool> {
        let mut publish = redis::cmd("SPUBLISH");
        publish.arg(self.keys.member(to)).arg(datagram);
        match self.connection.call(&publish).await? {
            Value::Int(receivers) => Ok(receivers > 0),
            _ => Err(Error::corrupt("SPUBLISH answered no number")),
        }
    }
}

/// Parts of at most so many.
fn chunks<T>(mut all: Vec<T>, most: usize) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    while all.len() > most {
        let rest = all.split_off(most);
        parts.push(std::mem::replace(&mut all, rest));
    }
    parts.push(all);
    parts
}

/// Reads the members of the next group.
fn live_members(reply: &mut Reply) -> Result<Vec<LiveMember>> {
    let mut left = reply.number()?;
    let mut live = Vec::new();
    while left > 0 {
        live.push(LiveMember { id: MemberId::from_store(&reply.text()?), has_demand: reply.text()? == "1" });
        left = left.checked_sub(2).ok_or_else(|| Error::unavailable("an answer ends within a member"))?;
    }
    live.sort();
    Ok(live)
}
