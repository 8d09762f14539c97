//! The members of groups.

use std::time::Duration;

use redis::Value;

use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, ms};
use crate::error::{Error, Result};
use crate::message::{GroupName, TopicName};
use crate::store::MemberId;

impl Shared {
    pub(super) async fn beat(
        &self,
        topic: &TopicName,
        group: &GroupName,
        member: &MemberId,
        ttl: Duration,
    ) -> Result<Vec<MemberId>> {
        let keys = self.keys.members(topic, group);
        let call = Call::new(&SCRIPTS.beat, &[&keys.members])
            .arg(member.as_str())
            .arg(ms(ttl))
            .arg(keys.wake)
            .arg(self.time_override());
        let (_, mut reply) = self.ask(&call).await?;
        let mut members = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            members.push(MemberId::from_store(&reply.text()?));
        }
        members.sort();
        Ok(members)
    }

    pub(super) async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        let keys = self.keys.members(topic, group);
        let call = Call::new(&SCRIPTS.leave, &[&keys.members]).arg(member.as_str()).arg(keys.wake);
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
