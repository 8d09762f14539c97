//! Dead messages of all partitions of a group.

use std::sync::Arc;

use super::Broker;
use crate::error::{Error, Result};
use crate::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::message::{GroupName, MessageId, TopicName};
use crate::partition::Partition;
use crate::store::{Dead, DeadCursor};
use crate::time::Timestamp;
use crate::topic::{Descriptor, Pair};

/// A page of dead messages over all partitions, and the cursor of the next.
#[derive(Debug, Clone)]
pub struct DeadList {
    /// The messages with their partitions.
    pub dead: Vec<(Partition, Dead)>,
    /// Opaque; `None` at the end.
    pub next: Option<String>,
}

/// What to do with a page of dead messages.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Redrive,
    Purge,
}

impl Broker {
    /// Lists dead messages, partition by partition, oldest death first.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` cursor or limit.
    pub async fn dead(
        &self,
        topic: &TopicName,
        group: &GroupName,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadList> {
        super::check_count("limit", limit)?;
        let descriptor = self.topics.group(topic, group).await?;
        let (mut partition, mut after) = read_cursor(cursor)?;
        let (mut dead, mut bytes) = (Vec::new(), 0);
        while partition.0 < descriptor.settings.partitions.get() {
            let pair = descriptor.pair(partition, group);
            let page = self.store.dead(&pair, after.as_ref(), limit - dead.len()).await?;
            let payload = |dead: &Dead| dead.message.as_ref().map_or(0, |message| message.envelope.payload.len());
            bytes += page.dead.iter().map(payload).sum::<usize>();
            dead.extend(page.dead.into_iter().map(|dead| (partition, dead)));
            after = page.next;
            if after.is_none() {
                partition = Partition(partition.0 + 1);
            }
            // A page of a few large messages is a full page.
            if dead.len() >= limit || bytes >= CALL_BYTES_MAX {
                break;
            }
        }
        let more = partition.0 < descriptor.settings.partitions.get();
        Ok(DeadList { dead, next: more.then(|| write_cursor(partition, after.as_ref())) })
    }

    /// Makes dead messages ready again: these ids, or all that are dead now. Answers how many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn redrive(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<usize> {
        self.deed(topic, group, ids, Deed::Redrive).await
    }

    /// Deletes dead messages: these ids, or all that are dead now. Answers how many.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn purge(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>) -> Result<usize> {
        self.deed(topic, group, ids, Deed::Purge).await
    }

    async fn deed(&self, topic: &TopicName, group: &GroupName, ids: Option<&[MessageId]>, deed: Deed) -> Result<usize> {
        let descriptor = self.topics.group(topic, group).await?;
        match ids {
            Some(ids) => {
                super::check_count("ids", ids.len())?;
                self.deed_ids(&descriptor, group, ids, deed).await
            }
            None => self.deed_all(&descriptor, group, deed).await,
        }
    }

    /// The key of a dead message is not known from its id, so every partition is asked.
    async fn deed_ids(
        &self,
        descriptor: &Arc<Descriptor>,
        group: &GroupName,
        ids: &[MessageId],
        deed: Deed,
    ) -> Result<usize> {
        let mut done = 0;
        for partition in descriptor.partitions() {
            let pair = descriptor.pair(partition, group);
            for page in ids.chunks(RECOVER_IDS_MAX) {
                done += self.deed_page(&pair, page, deed).await?;
            }
        }
        Ok(done)
    }

    async fn deed_all(&self, descriptor: &Arc<Descriptor>, group: &GroupName, deed: Deed) -> Result<usize> {
        // What dies from now on is left alone, so that a message that fails at once does not go round and round.
        let until = self.store.clock().now();
        let mut done = 0;
        for partition in descriptor.partitions() {
            let pair = descriptor.pair(partition, group);
            loop {
                let page = self.store.dead(&pair, None, RECOVER_IDS_MAX).await?;
                let old = page.dead.into_iter().filter(|dead| dead.died_at <= until);
                let ids: Vec<MessageId> = old.map(|dead| dead.id).collect();
                if ids.is_empty() {
                    break;
                }
                done += self.deed_page(&pair, &ids, deed).await?;
            }
        }
        Ok(done)
    }

    async fn deed_page(&self, pair: &Pair, ids: &[MessageId], deed: Deed) -> Result<usize> {
        let answers = match deed {
            Deed::Redrive => self.store.redrive(pair, ids).await?,
            Deed::Purge => self.store.purge(pair, ids).await?,
        };
        Ok(answers.into_iter().filter(|was_dead| *was_dead).count())
    }
}

/// `<partition>` or `<partition>.<died at ms>.<id>`. Opaque to callers.
fn write_cursor(partition: Partition, after: Option<&DeadCursor>) -> String {
    match after {
        Some(after) => format!("{partition}.{}.{}", after.died_at.as_ms(), after.id),
        None => partition.to_string(),
    }
}

fn read_cursor(cursor: Option<&str>) -> Result<(Partition, Option<DeadCursor>)> {
    let Some(text) = cursor else { return Ok((Partition(0), None)) };
    let wrong = || Error::invalid("cursor", "is not one that dwell gave; begin without a cursor");
    let mut parts = text.splitn(3, '.');
    let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
    let after = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some(died_at), Some(id)) => Some(DeadCursor {
            died_at: Timestamp::from_ms(died_at.parse().map_err(|_| wrong())?),
            id: MessageId::new(id).map_err(|_| wrong())?,
        }),
        (Some(_), None) => return Err(wrong()),
    };
    Ok((partition, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_garbage_is_refused() -> Result<()> {
        let after = DeadCursor { died_at: Timestamp::from_ms(5), id: MessageId::new("a.b.c")? };
        for after in [None, Some(after)] {
            let text = write_cursor(Partition(3), after.as_ref());
            assert_eq!(read_cursor(Some(&text))?, (Partition(3), after));
        }
        for bad in ["", "x", "1.2", "1.x.y", "1.2.a b", "70000"] {
            assert!(read_cursor(Some(bad)).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
