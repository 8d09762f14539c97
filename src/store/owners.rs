//! How the background work of a store reaches the owners of partitions.

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::model::error::Result;
use crate::model::message::MessageId;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;

/// The owners of all partitions, here and at other brokers.
#[async_trait]
pub trait Owners: Send + Sync {
    /// Has the owners of a partition give a message back, runs `change`, and then lets them go on. Answers whether it ran: not if
    /// a consumer has the message.
    ///
    /// # Errors
    /// `Unavailable` when an owner does not answer; `change` did not run.
    async fn while_given_back<'a>(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        change: BoxFuture<'a, ()>,
    ) -> Result<bool>;
}

/// No owner can be reached: nothing delivers.
#[derive(Debug, Clone, Copy)]
pub struct NoOwners;

#[async_trait]
impl Owners for NoOwners {
    async fn while_given_back<'a>(
        &self,
        _: &Descriptor,
        _: Partition,
        _: &MessageId,
        _: BoxFuture<'a, ()>,
    ) -> Result<bool> {
        Ok(false)
    }
}
