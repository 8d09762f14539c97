//! Dead messages: listing, redriving, purging and dropping them.

use async_trait::async_trait;
use bytes::Bytes;

use super::Redis;
use super::owner::check_ids;
use super::scripts::{Call, SCRIPTS};
use crate::codec::{body_version, decode_body, decode_dead};
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{self, Dead, DeadBounds, DeadCursor, DeadDropped, DeadPage};

#[async_trait]
impl store::DeadLetters for Redis {
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        let keys = self.keys.pair(pair);
        let (id, died_at) = after.map_or(("", 0), |cursor| (cursor.id.as_str(), cursor.died_at.as_ms()));
        let call = Call::new(&SCRIPTS.dead, &[&keys.dead_zset, &keys.dead_hash])
            .arg(id)
            .arg(died_at)
            .arg(limit)
            .arg(CALL_BYTES_MAX);
        let mut reply = self.reply(&call).await?;
        let after_page = reply.number()?;
        let dead = reply.each(|reply| {
            let (id, died_at) = (MessageId::new(reply.text()?)?, reply.time()?.unwrap_or_default());
            read(id, reply.bytes()?, died_at)
        })?;
        let last = dead.last().filter(|_| after_page > 0);
        let next = last.map(|last: &Dead| DeadCursor { died_at: last.died_at, id: last.id.clone() });
        Ok(DeadPage { dead, next })
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        check_ids(ids.len(), RECOVER_IDS_MAX)?;
        let keys = self.keys.pair(pair);
        let wake = self.keys.partition(&pair.topic, pair.partition).wake;
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.zset, &keys.hash, &keys.attempts, &wake];
        let call = Call::new(&SCRIPTS.redrive, &places.map(String::as_str)).arg(self.time_override());
        let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
        self.ask(&call).await?.1.each(|reply| Ok(reply.number()? == 1))
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        check_ids(ids.len(), RECOVER_IDS_MAX)?;
        let keys = self.keys.pair(pair);
        let call = Call::new(&SCRIPTS.purge, &[&keys.dead_zset, &keys.dead_hash]);
        let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
        self.reply(&call).await?.each(|reply| Ok(reply.number()? == 1))
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        let keys = self.keys.pair(pair);
        let call = Call::new(&SCRIPTS.drop_dead, &[&keys.dead_zset, &keys.dead_hash])
            .arg(bounds.died_before.map_or(String::new(), |at| at.as_ms().to_string()))
            .arg(bounds.count.map_or(String::new(), |count| count.to_string()))
            .arg(RECOVER_IDS_MAX);
        let mut reply = self.reply(&call).await?;
        let (aged, surplus, more) = (reply.number()?, reply.number()?, reply.number()? == 1);
        Ok(DeadDropped { aged, surplus, more, oldest: reply.time()? })
    }
}

/// Reads a value of the dead hash: the length of the record (4 bytes), the record, the body.
pub(super) fn read(id: MessageId, value: Bytes, died_at: Timestamp) -> Result<Dead> {
    let corrupt = || Error::corrupt(format!("dead message {id} is unreadable"));
    let length: [u8; 4] = value.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(corrupt)?;
    let end = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_add(4);
    let record = decode_dead(value.get(4..end).ok_or_else(corrupt)?)?;
    let body = value.slice(end..);
    let version = body_version(&body);
    let message = decode_body(id.clone(), body);
    Ok(Dead { id, died_at, record, version, message })
}
