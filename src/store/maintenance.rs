//! Work on a whole partition, page by page.

use super::{MemberId, VerifyCursor, VerifyPage};
use crate::model::error::Result;
use crate::model::message::GroupName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::topic::GroupPartition;
use async_trait::async_trait;
use std::time::Duration;

/// Work on a whole partition, page by page.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Maintenance: Send + Sync + 'static {
    /// Gives a group that is a copy of another one a page of what that one holds in a partition, scheduled, ready or in
    /// flight, due when its producer said. Repeat from the cursor until there is none. What the group has already is left
    /// alone, so that beginning again copies nothing twice.
    ///
    /// # Errors
    /// `Stale` when the partition does not know that the group is being copied, or knows that it no longer is.
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied>;

    /// Makes this member the one that counts for all who share the store, for `ttl` from now, unless another one is.
    async fn claim_stats_collection(&self, _member: &MemberId, _ttl: Duration) -> Result<CensusClaim> {
        Ok(CensusClaim::Alone)
    }

    /// Lets another one count for all. Saying it again, or of what this member does not have, does nothing.
    async fn yield_stats_collection(&self, _member: &MemberId) -> Result<()> {
        Ok(())
    }

    /// Moves a page of what a pair of the topic `from` holds, but for what is in flight, into the pairs of the same group of
    /// another topic, each message where its key belongs there. A message is in one of the two all the while; saying it
    /// again after a failure goes on with it, and doubles nothing, also when what arrived was consumed since.
    ///
    /// # Errors
    /// `Stale` when the other topic has changed or either is gone; `Full`.
    async fn move_page(&self, from: &Descriptor, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage>;

    /// Looks at a page of what a pair holds, whether ids and bodies agree with each other, and mends what does not if
    /// asked to.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from here.
    async fn audit(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage>;
}

/// The outcome of one page of moving messages to another topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MovedPage {
    /// Scheduled or ready messages that were moved.
    pub waiting: u64,
    /// Dead messages that were moved.
    pub dead: u64,
    /// Of these, those whose id was there already: dropped. A page that is placed again counts none.
    pub there_already: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// Where a copy goes on. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCursor(pub String);

/// The outcome of one page of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Messages that were copied.
    pub messages: usize,
    /// Where the next page begins, if there is more.
    pub next: Option<CopyCursor>,
}

/// Whether a member is the one that counts for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CensusClaim {
    /// It is the only one there can be: the store is of one process.
    Alone,
    /// It is, and nobody else was since it said so last.
    Kept,
    /// It is from now on; another one may have been until now.
    Taken,
    /// Another one is.
    Held {
        /// How long that runs, if it is not prolonged.
        expires_in: Duration,
    },
}
