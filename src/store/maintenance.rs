//! Work on a whole partition, page by page: copies, moves, and verifying that ids and bodies agree.

use std::time::Duration;

use async_trait::async_trait;

use super::{Forwarded, MemberId};
use crate::model::error::Result;
use crate::model::message::GroupName;
use crate::model::partition::Partition;
use crate::model::topic::{Descriptor, GroupPartition};

#[async_trait]
pub trait Maintenance: Send + Sync + 'static {
    /// Gives a group that is a copy of another one a page of what that one holds in a partition, scheduled, ready or in
    /// flight, due when its producer said. Repeat from the cursor until there is none. Messages that the group already
    /// has are left alone, so beginning again copies nothing twice. Errors: `Stale` when the partition does not know that
    /// the group is being copied, or knows that it no longer is.
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied>;

    /// Makes this member the one that counts for all who share the store, for `ttl` from now, unless another one is.
    async fn claim_stats_collection(&self, _member: &MemberId, _ttl: Duration) -> Result<StatsClaim> {
        Ok(StatsClaim::Alone)
    }

    /// Ends that claim. Without one it does nothing.
    async fn yield_stats_collection(&self, _member: &MemberId) -> Result<()> {
        Ok(())
    }

    /// Moves a page of what a partition of the topic `from` holds, but for what is in flight, into the partitions of the same
    /// group of another topic, each message where its key belongs there. A message is in one of the two all the while, and
    /// found there; while its page is on its way it is in flight. Repeating it after a failure continues it, and doubles nothing,
    /// also when what arrived was consumed since. A page on its way to a third topic is called back first.
    /// [`Maintenance::moved`] has to follow. Errors: `Stale` when the other topic has changed or either is gone; `Full`: then
    /// nothing of the page was moved. A page that was moved in part names the messages that the other topic
    /// refused in [`MovedPage::arrived`].
    async fn move_page(&self, from: &Descriptor, partition: &GroupPartition, to: &Descriptor) -> Result<MovedPage>;

    /// Ends a page that arrived, and gives back what was refused of it. A store that moves at once has none.
    async fn moved(&self, _partition: &GroupPartition, _page: &MovedPage) -> Result<()> {
        Ok(())
    }

    /// Gives back the messages of a page that is on its way, perhaps of a broker that died, except for those that arrived.
    /// Without a page, or at a store that moves at once, it does nothing.
    async fn call_back_move(&self, _partition: &GroupPartition) -> Result<()> {
        Ok(())
    }

    /// Looks at a page of what a partition holds, whether ids and bodies agree with each other, and repairs what does not if
    /// asked to. Errors: `Invalid` for a cursor that is not from here.
    async fn audit(&self, partition: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage>;
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct MovedPage {
    pub waiting: u64,
    pub dead: u64,
    /// Of these, those whose id was there already: dropped. A page that is placed again counts none.
    pub there_already: u64,
    pub more: bool,
    /// The messages, if the store may lose them.
    pub arrived: Forwarded,
}

/// Where a copy continues. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCursor(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    pub messages: usize,
    pub next: Option<CopyCursor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsClaim {
    Alone,
    /// It is, and nobody else was since it said so last.
    Kept,
    /// It is from now on; another one may have been until now.
    Taken,
    Held {
        expires_in: Duration,
    },
}

/// How keys of a partition can disagree. dwell makes none of these; a store that lost something, or a hand, may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A body neither in the zset nor reserved. A repair schedules it, not earlier than it was due.
    BodyWithoutId,
    /// An id in the zset whose body is gone. A repair drops it.
    IdWithoutBody,
    /// Attempts charged to a message whose body is gone. A repair drops them.
    ChargeWithoutBody,
    /// The id of a dead message whose body is gone. A repair drops it.
    DeadIdWithoutBody,
    /// A dead message that is in no list. A repair lists it, as if it had died now.
    DeadBodyWithoutId,
}

impl Defect {
    pub const ALL: [Defect; 5] = [
        Defect::BodyWithoutId,
        Defect::IdWithoutBody,
        Defect::ChargeWithoutBody,
        Defect::DeadIdWithoutBody,
        Defect::DeadBodyWithoutId,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Defect::BodyWithoutId => "body_without_id",
            Defect::IdWithoutBody => "id_without_body",
            Defect::ChargeWithoutBody => "charge_without_body",
            Defect::DeadIdWithoutBody => "dead_id_without_body",
            Defect::DeadBodyWithoutId => "dead_body_without_id",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whose keys disagree. Keys that others wrote may hold ids that dwell would refuse.
    pub id: String,
    pub defect: Defect,
}

/// Where a verification continues. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyCursor(pub String);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyPage {
    pub seen: u64,
    /// A finding; repaired, if that was requested.
    pub findings: Vec<Finding>,
    pub next: Option<VerifyCursor>,
}
