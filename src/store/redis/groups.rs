//! The members of groups, their rate slots, and datagrams between brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use redis::Value;

use super::failure::ms;
use super::keys::MemberKeys;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::{Redis, Shared};
use crate::model::error::{Error, Result};
use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::message::{GroupName, TopicName};
use crate::store::{self, Heartbeat, LiveMember, MemberId, MemberReport, SlotAsk, Slots};

/// Groups in one call: Redis does nothing else meanwhile, for a few milliseconds.
const GROUPS_MAX: usize = 250;

#[async_trait]
impl store::Groups for Redis {
    /// One call for each slot; one that fails leaves the others alone.
    async fn heartbeat(
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
        let calls = slots.values().flat_map(|groups| groups.chunks(GROUPS_MAX));
        let ask = async |groups: &[(usize, MemberKeys)]| {
            let live = self.heartbeat_slot(member, heartbeats, groups, ttl).await;
            groups.iter().map(|(index, _)| *index).zip(live).collect::<Vec<_>>()
        };
        let mut answers: Vec<_> = join_all(calls.map(ask)).await.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, live)| live).collect()
    }

    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>> {
        let keys = self.keys.members(topic, group);
        let call =
            ScriptCall::new(&SCRIPTS.members, &[&keys.members, &keys.states]).arg(ms(ttl)).arg(self.time_override());
        let read = |reply: &mut Reply| {
            let (id, heard_at) = (MemberId::from_store(&reply.text()?), reply.time()?.unwrap_or_default());
            Ok(MemberReport::from_store(id, heard_at, &reply.text()?))
        };
        let mut members = self.ask(&call).await?.1.each(read)?;
        members.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(members)
    }

    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        let keys = self.keys.members(topic, group);
        let call =
            ScriptCall::new(&SCRIPTS.leave_group, &[&keys.members, &keys.states]).arg(member.as_str()).arg(keys.wake);
        Reply::of(self.connection.eval(&call).await?)?.text().map(drop)
    }

    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        let call = ScriptCall::new(&SCRIPTS.rate_slots, &[&self.keys.slots(topic, group)])
            .arg(ask.count)
            .arg(us(ask.spacing))
            .arg(us(ask.within.min(SLOT_AHEAD_MAX)))
            .arg(us(SLOT_AHEAD_MAX + SLOT_OPEN))
            .arg(self.time_override());
        let (_, mut reply) = self.ask(&call).await?;
        let count = u32::try_from(reply.number()?).unwrap_or(0);
        Ok(Slots { count, after: Duration::from_micros(reply.number()?) })
    }

    /// In a cluster the channel of a member is at the node of its slot, where the member listens.
    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool> {
        let mut publish = redis::cmd("SPUBLISH");
        publish.arg(self.keys.member(to)).arg(&*datagram);
        match self.connection.call(&publish).await? {
            Value::Int(receivers) => Ok(receivers > 0),
            _ => Err(Error::corrupt("SPUBLISH answered no number")),
        }
    }
}

impl Shared {
    async fn heartbeat_slot(
        &self,
        member: &MemberId,
        heartbeats: &[Heartbeat],
        groups: &[(usize, MemberKeys)],
        ttl: Duration,
    ) -> Vec<Result<Vec<LiveMember>>> {
        let keys: Vec<&str> = groups.iter().flat_map(|(_, keys)| [&*keys.members, &*keys.states]).collect();
        let mut call =
            ScriptCall::new(&SCRIPTS.heartbeat, &keys).arg(member.as_str()).arg(ms(ttl)).arg(self.time_override());
        for (index, keys) in groups {
            call = call.arg(heartbeats[*index].state.to_store()).arg(&keys.wake);
        }
        match self.ask(&call).await {
            Ok((_, mut reply)) => groups.iter().map(|_| live_members(&mut reply)).collect(),
            Err(error) => groups.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

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

fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
