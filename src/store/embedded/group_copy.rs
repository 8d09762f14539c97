//! A group that begins with a copy of another one, page by page.

use sled::Batch;

use super::Inner;
use super::pair::{Counts, Stored};
use super::topics::locked;
use crate::codec::body_due_at;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, RECOVER_IDS_MAX};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::disk::ChunkedValue;
use crate::store::{Copied, CopyCursor};

impl Inner {
    pub(super) async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        self.check_storable()?;
        let from = from.map(|CopyCursor(id)| MessageId::new(id)).transpose()?;
        let copied = self.copy_page(descriptor, partition, group, from.as_ref())?;
        self.commit().await?;
        Ok(copied)
    }

    /// Pages go by id: a body stays under its id until its message is settled, so none that is there all the while is
    /// passed over.
    fn copy_page(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<&MessageId>,
    ) -> Result<Copied> {
        let topics = self.topics();
        let stale = || Error::stale(format!("group {group} of topic {} is no copy now", descriptor.topic));
        let topic = topics.live(&descriptor.topic).ok_or_else(stale)?;
        let now = topic.descriptor();
        let source = now.subscription(group).copy_of.filter(|_| now.has_same(descriptor, group)).ok_or_else(stale)?;
        let place = topic.place(partition, group).ok_or_else(stale)?;
        let state = topic.partition(partition);
        let mut state = locked(&state);
        // A group that is deleted while it is copied leaves nothing to copy.
        let Some(source) = topic.place(partition, &source) else { return Ok(Copied { messages: 0, next: None }) };
        let (source, copy) = (Stored::new(&self.tree, source), Stored::new(&self.tree, place));
        let mut counts = state.pairs.get(&place.group).map_or(Counts::default(), |pair| pair.counts);
        let (mut batch, mut messages, mut bytes, mut next) = (Batch::default(), 0, 0, None);
        for (seen, id) in source.hash().ids_after(from).enumerate() {
            let id = id?;
            if !copy.hash().has(&id)? {
                let Some(body) = source.hash().get(&id)? else { continue };
                let due_at = body_due_at(&body).unwrap_or_default();
                // With an ordering it stands where it stands in the source, if that has not tried it.
                let place = if source.attempts(&id)?.is_none() { source.zset().score(&id)? } else { None };
                let place = place.filter(|place| place.tie > 0);
                let score = place.unwrap_or(due_at.into());
                copy.zset().add(&mut batch, &id, score);
                copy.hash().add(&mut batch, id.as_str().as_bytes(), &ChunkedValue::cut(&body)?);
                counts.scheduled(score.at);
                counts.hash += 1;
                (messages, bytes) = (messages + 1, bytes + body.len());
            }
            if seen + 1 == RECOVER_IDS_MAX || bytes >= CALL_BYTES_MAX {
                next = Some(CopyCursor(id.as_str().to_owned()));
                break;
            }
        }
        self.apply(batch)?;
        state.pairs.entry(place.group).or_default().counts = counts;
        Ok(Copied { messages, next })
    }
}
