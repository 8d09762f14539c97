//! The leases of partitions: a key that expires and names the owner, and the epoch in the owner record.

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::failure::ms;
use super::owner::RedisOwner;
use super::scripts::{Reply, SCRIPTS, ScriptCall, text};
use super::{Redis, Shared};
use crate::model::error::{Error, Kind, Result};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::{self, Acquired, Claim, Epoch, HeadState, MemberId, OwnerRecord, Renewal};

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
        let before = if line == Value::Nil { String::new() } else { text(line)? };
        let expected = before.split('/').next().unwrap_or_default();
        let epoch = Epoch::after(Epoch::parse(expected).map_or(0, |epoch| epoch.number()));
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.acquire, &[&partition.generation, &keys.lease, &keys.reservations])
                .arg(known)
                .arg(member.as_str())
                .arg(ms(ttl))
                .arg(expected)
                .arg(epoch.to_string())
                .arg(self.time_override()))
        };
        let (status, mut reply) =
            self.ask_known(&group_partition.topic, group_partition.partition, generation, make).await?;
        match status.as_str() {
            "OK" => {
                let (line, reservations) = (reply.text()?, reply.number()?);
                let last_delivery = last_delivery(&before, &line);
                let owner = RedisOwner::new(
                    self.shared.clone(),
                    group_partition,
                    member.clone(),
                    epoch,
                    last_delivery,
                    (line, reservations),
                );
                Ok(Some(Acquired::Owned(Box::new(owner))))
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
            let head = reply.head()?;
            let (generation, is_moving) = (reply.text()?.parse().unwrap_or(0), reply.number()? == 1);
            return Ok(Renewal::Kept(HeadState { head, generation, is_moving }));
        }
        let holder = reply.text()?;
        Ok(Renewal::Lost { by: (!holder.is_empty()).then(|| MemberId::from_store(&holder)) })
    }
}

/// As the release of the epoch before says, `<number>.-/<last delivery, ms>/`; if that epoch lapsed, when this one began.
fn last_delivery(before: &str, line: &str) -> Timestamp {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut parts = before.split('/');
    let ms = match parts.next().and_then(Epoch::parse) {
        None => 0,
        Some(epoch) if epoch.is_nobodys() => number(parts.next()),
        Some(_) => number(line.rsplit('/').next()).div_ceil(1_000),
    };
    Timestamp::from_ms(ms)
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
