//! Counting messages, and who counts them for the whole fleet.

use std::time::Duration;

use redis::Value;

use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, ms};
use crate::model::error::Result;
use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::{CensusClaim, MemberId, PartitionDepth, PartitionStats};

impl Shared {
    pub(super) async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        Ok(self.depth(pairs, &[]).await?.into_iter().map(|depth| depth.stats).collect())
    }

    pub(super) async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        let call = |pair| {
            let keys = self.keys.pair(pair);
            let call = Call::new(&SCRIPTS.stats, &[&keys.zset, &keys.hash, &keys.dead_zset, &keys.lease])
                .arg(self.time_override());
            within.iter().fold(call, |call, span| call.arg(ms(*span)))
        };
        let sent = self.clock.local().instant();
        let answers = self.connection.eval_all(&SCRIPTS.stats, pairs.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| self.read_depth(sent, answer?)).collect()
    }

    fn read_depth(&self, sent: Instant, value: Value) -> Result<PartitionDepth> {
        let (_, mut reply) = self.read(sent, value)?;
        let (scored, ready, bodies, dead) = (reply.number()?, reply.number()?, reply.number()?, reply.number()?);
        let head = reply.time()?;
        let owner = reply.text()?;
        let stats = PartitionStats {
            scheduled: scored.saturating_sub(ready),
            ready,
            in_flight: bodies.saturating_sub(scored),
            dead,
            head,
            oldest_ready_age: head.filter(|_| ready > 0).map(|head| self.clock.now().since(head)),
            owner: (!owner.is_empty()).then(|| MemberId::from_store(&owner)),
        };
        let mut due = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            due.push(reply.number()?);
        }
        Ok(PartitionDepth { stats, due })
    }

    pub(super) async fn claim_stats_collection(&self, member: &MemberId, ttl: Duration) -> Result<CensusClaim> {
        let (status, mut reply) = self.ask_about_census(member, &ms(ttl).to_string()).await?;
        Ok(match status.as_str() {
            "KEPT" => CensusClaim::Kept,
            "TAKEN" => CensusClaim::Taken,
            _ => CensusClaim::Held { expires_in: Duration::from_millis(reply.number()?) },
        })
    }

    pub(super) async fn yield_stats_collection(&self, member: &MemberId) -> Result<()> {
        self.ask_about_census(member, "").await.map(drop)
    }

    async fn ask_about_census(&self, member: &MemberId, ttl_ms: &str) -> Result<(String, Reply)> {
        let call = Call::new(&SCRIPTS.census, &[&self.keys.census()]).arg(member.as_str()).arg(ttl_ms);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        Ok((reply.text()?, reply))
    }
}
