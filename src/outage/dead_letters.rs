//! Dead letters: the journal keeps which of them were forwarded to another topic. Nothing is buffered.

use async_trait::async_trait;

use super::BufferedStore;
use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{self, DeadBounds, DeadCursor, DeadDropped, DeadPage, Forward, Forwarded, LogTarget, restoring};

#[async_trait]
impl<S: LogTarget> store::DeadLetters for BufferedStore<S> {
    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        self.store.dead(pair, after, limit).await
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.redrive(pair, ids).await
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.purge(pair, ids).await
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        self.store.drop_dead(pair, bounds).await
    }

    /// While a loss is restored nothing is forwarded: what the store has is older than what it answered.
    async fn forward(&self, pair: &GroupPartition, to: Option<&Descriptor>, ids: &[MessageId]) -> Result<Forward> {
        if self.is_giving_back() {
            return Err(restoring());
        }
        let losses = self.losses();
        let forward = self.store.forward(pair, to, ids).await?;
        if let (Forward::Done(page), Some(to)) = (&forward, to) {
            self.keep_forwarded(pair, to, page, losses).await?;
        }
        Ok(forward)
    }

    async fn forwarded(&self, pair: &GroupPartition, page: &Forwarded) -> Result<()> {
        self.store.forwarded(pair, page).await
    }
}
