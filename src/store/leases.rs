//! Leases of partitions: who owns a partition of a group, and under which epoch. Each acquisition begins a new epoch.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Epoch, HeadState, MemberId, Owner};
use crate::model::error::Result;
use crate::model::topic::GroupPartition;

#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes the lease of a partition for `ttl`, if it is free or this member's. Every acquisition is a new epoch. Errors:
    /// `Stale` when the topic has a newer generation than `generation` in that partition, or was deleted; `Conflict`
    /// when another acquisition came first, and changed nothing: try again.
    async fn acquire(
        &self,
        partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired>;

    /// The owners of partitions, in the order asked; `None` for a partition without an epoch, and in a store of one process.
    async fn owner_records(&self, partitions: &[GroupPartition]) -> Result<Vec<Option<OwnerRecord>>>;

    /// Prolongs leases to `ttl` from now. A lapsed lease that nobody took is resumed under the same epoch.
    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>>;
}

pub enum Acquired {
    Owned(Box<dyn Owner>),
    Held {
        by: MemberId,
        /// How long its lease still runs, if nobody prolongs it.
        expires_in: Duration,
    },
}

impl fmt::Debug for Acquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acquired::Owned(owner) => write!(f, "Owned({})", owner.epoch()),
            Acquired::Held { by, expires_in } => write!(f, "Held({by}, {expires_in:?})"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs on; and what the store saw on the way.
    Kept(HeadState),
    Lost {
        by: Option<MemberId>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The epoch; `None` if the last one was given up.
    pub epoch: Option<Epoch>,
    pub member: Option<MemberId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub group_partition: GroupPartition,
    pub epoch: Epoch,
}
