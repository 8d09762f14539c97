//! A group that begins with a copy of another one, page by page.

use super::Shared;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::model::message::GroupName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::store::{Copied, CopyCursor};

/// Messages of the first page, before it is known how large they are: all of them may be of the largest size.
const FIRST_PAGE: usize = 16;

impl Shared {
    /// The cursor is that of Redis, with the number of messages that the next page may have in front.
    pub(super) async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        let subscription = descriptor.subscription(group);
        let source = subscription.copy_of.ok_or_else(|| Error::stale(format!("group {group} is no copy")))?;
        let (count, cursor) = match &from {
            None => (FIRST_PAGE, ""),
            Some(CopyCursor(text)) => {
                let (count, cursor) = text.split_once(' ').unwrap_or(("", ""));
                (count.parse().unwrap_or(FIRST_PAGE), cursor)
            }
        };
        let shared = self.keys.partition(&descriptor.topic, partition);
        let source_keys = self.keys.group(&descriptor.topic, partition, &source);
        let keys = self.keys.group(&descriptor.topic, partition, group);
        let keys =
            [&shared.generation, &source_keys.zset, &source_keys.hash, &source_keys.attempts, &keys.zset, &keys.hash];
        let call = Call::new(&SCRIPTS.copy, &keys.map(String::as_str))
            .arg(group.as_str())
            .arg(subscription.born)
            .arg(source.as_str())
            .arg(cursor)
            .arg(count);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        if reply.text()? != "OK" {
            return Err(Error::stale(format!("partition {partition} does not copy {source} to {group} now")));
        }
        let messages = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let bytes = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let cursor = reply.text()?;
        // Pages grow until one has a good part of the bytes that a call may have, and shrink when one had more.
        let count = match bytes {
            ..=GROWING => (count * 2).min(RECOVER_IDS_MAX),
            _ => (count / 2).max(1),
        };
        Ok(Copied { messages, next: (!cursor.is_empty()).then(|| CopyCursor(format!("{count} {cursor}"))) })
    }
}

/// Bytes of a page up to which the next one may have twice as many messages.
const GROWING: usize = CALL_BYTES_MAX / 4;
