//! Dead letters: the journal keeps which of them were forwarded to another topic. Nothing is buffered.

use async_trait::async_trait;

use super::BufferedStore;
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{self, DeadBounds, DeadCursor, DeadDropped, DeadPage, Forward, Forwarded, LogTarget, restoring};

#[async_trait]
impl<S: LogTarget> store::DeadLetters for BufferedStore<S> {
    async fn dead(&self, partition: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        self.store.dead(partition, after, limit).await
    }

    async fn redrive(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.redrive(partition, ids).await
    }

    async fn purge(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.purge(partition, ids).await
    }

    async fn drop_dead(&self, partition: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        self.store.drop_dead(partition, bounds).await
    }

    /// While a loss is restored nothing is forwarded: what the store has is older than what it answered.
    async fn forward(&self, partition: &GroupPartition, to: Option<&Descriptor>, ids: &[MessageId]) -> Result<Forward> {
        if self.is_giving_back() {
            return Err(restoring());
        }
        let losses = self.losses();
        let forward = self.store.forward(partition, to, ids).await?;
        if let (Forward::Done(page), Some(to)) = (&forward, to) {
            self.keep_forwarded(partition, to, page, losses).await?;
        }
        Ok(forward)
    }

    async fn forwarded(&self, partition: &GroupPartition, page: &Forwarded) -> Result<()> {
        self.store.forwarded(partition, page).await
    }
}
