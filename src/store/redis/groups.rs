//! The members of groups, the leases of their partitions, their rate slots, and datagrams between brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use redis::Value;

use super::failure::ms;
use super::keys::MemberKeys;
use super::owner::RedisOwner;
use super::scripts::{Reply, SCRIPTS, ScriptCall, text};
use super::{Redis, Shared};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::{
    self, Acquired, Claim, Epoch, HeadState, Heartbeat, LiveMember, MemberId, MemberReport, OwnerRecord, Renewal,
    SlotAsk, Slots,
};

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
        let read =
            |reply: &mut Reply| Ok(MemberReport::from_store(MemberId::from_store(&reply.text()?), &reply.text()?));
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

/// How often an acquisition looks at the epoch: an owner may release just between the look and the attempt.
const ACQUIRE_LOOKS_MAX: usize = 3;

#[async_trait]
impl store::Leases for Redis {
    async fn acquire(
        &self,
        partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        for _ in 0..ACQUIRE_LOOKS_MAX {
            if let Some(acquired) = self.acquire_as_seen(partition, member, ttl, generation).await? {
                return Ok(acquired);
            }
        }
        Err(Error::new(Kind::Conflict, format!("others were faster with {partition}, again and again; try again")))
    }

    async fn owner_records(&self, partitions: &[GroupPartition]) -> Result<Vec<Option<OwnerRecord>>> {
        let call = |partition: &GroupPartition| {
            let keys = self.keys.group_partition(partition);
            ScriptCall::new(&SCRIPTS.owner_record, &[&keys.reservations, &keys.lease])
        };
        let answers = self.connection.eval_all(&SCRIPTS.owner_record, partitions.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| owner_record(Reply::of(answer?)?)).collect()
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        let renewal = |claim: &Claim| {
            let keys = self.keys.group_partition(&claim.group_partition);
            let generation =
                self.keys.partition(&claim.group_partition.topic, claim.group_partition.partition).generation;
            ScriptCall::new(&SCRIPTS.renew, &[&keys.lease, &keys.reservations, &keys.zset, &generation])
                .arg(member.as_str())
                .arg(ms(ttl))
                .arg(claim.epoch.to_string())
                .arg(self.time_override())
        };
        let calls = claims.iter().map(renewal).collect();
        let sent = self.clock.local().instant();
        let answers = self.connection.eval_all(&SCRIPTS.renew, calls).await;
        answers.into_iter().map(|answer| self.read_renewal(sent, answer?)).collect()
    }
}

impl Redis {
    /// Looks at the epoch, then takes the lease under the next one; `None` when the epoch was another by then.
    async fn acquire_as_seen(
        &self,
        group_partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Option<Acquired>> {
        let keys = self.keys.group_partition(group_partition);
        let partition = self.keys.partition(&group_partition.topic, group_partition.partition);
        let line = self.connection.call(redis::cmd("HGET").arg(&keys.reservations).arg("@")).await?;
        let expected = match line {
            Value::Nil => String::new(),
            line => text(line)?.split('/').next().unwrap_or_default().to_owned(),
        };
        let epoch = Epoch::after(Epoch::parse(&expected).map_or(0, |epoch| epoch.number()));
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.acquire, &[&partition.generation, &keys.lease, &keys.reservations])
                .arg(known)
                .arg(member.as_str())
                .arg(ms(ttl))
                .arg(&expected)
                .arg(epoch.to_string())
                .arg(self.time_override()))
        };
        let (status, mut reply) =
            self.ask_known(&group_partition.topic, group_partition.partition, generation, make).await?;
        match status.as_str() {
            "OK" => {
                let left = (reply.text()?, reply.number()?);
                Ok(Some(Acquired::Owned(Box::new(RedisOwner::new(
                    self.shared.clone(),
                    group_partition,
                    member.clone(),
                    epoch,
                    left,
                )))))
            }
            "HELD" => {
                let by = MemberId::from_store(&reply.text()?);
                let expires_in = Duration::from_millis(reply.number().unwrap_or(0));
                Ok(Some(Acquired::Held { by, expires_in }))
            }
            "CHANGED" => Ok(None),
            _ => Err(self.overtaken(&group_partition.topic, group_partition.partition).await),
        }
    }
}

impl Shared {
    fn read_renewal(&self, sent: Instant, value: Value) -> Result<Renewal> {
        let (status, mut reply) = self.read(sent, value)?;
        if status == "OK" {
            let head = reply.time()?;
            let (generation, is_moving) = (reply.text()?.parse().unwrap_or(0), reply.number()? == 1);
            return Ok(Renewal::Kept(HeadState { head, generation, is_moving }));
        }
        let holder = reply.text()?;
        Ok(Renewal::Lost { by: (!holder.is_empty()).then(|| MemberId::from_store(&holder)) })
    }
}

fn owner_record(mut reply: Reply) -> Result<Option<OwnerRecord>> {
    reply.text()?;
    let (line, holder) = (reply.text()?, reply.text()?);
    if line.is_empty() {
        return Ok(None);
    }
    let epoch = line.split('/').next().and_then(Epoch::parse).filter(|epoch| !epoch.is_nobodys());
    Ok(Some(OwnerRecord { epoch, member: (!holder.is_empty()).then(|| MemberId::from_store(&holder)) }))
}
