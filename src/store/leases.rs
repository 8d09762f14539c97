//! Who owns a partition of a group.

use super::{Claim, Glance, MemberId, Owner, Tenant};
use crate::model::error::Result;
use crate::model::topic::GroupPartition;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// Who owns a partition of a group.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes the lease of a pair for `ttl`, if it is free or this member's. Every acquisition is a new epoch.
    ///
    /// # Errors
    /// `Stale` when the topic has a newer generation than `generation` in that partition, or was deleted; `Conflict` when
    /// another acquisition came first, and changed nothing: try again.
    async fn acquire(
        &self,
        pair: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired>;

    /// Who owns pairs now, in the order asked; `None` for a pair without an epoch, and in a store of one process.
    async fn tenants(&self, pairs: &[GroupPartition]) -> Result<Vec<Option<Tenant>>>;

    /// Prolongs leases to `ttl` from now, each answered for itself. A lease that lapsed and that nobody took is resumed
    /// under the same epoch.
    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>>;
}

/// The outcome of an acquisition.
pub enum Acquired {
    /// The lease is taken, under a new epoch.
    Owned(Box<dyn Owner>),
    /// Another member has it.
    Held {
        /// Who has it.
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

/// The outcome of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs on; and what the store saw on the way.
    Kept(Glance),
    /// Another epoch, or another member, has the pair.
    Lost {
        /// Who has the lease now, if anyone.
        by: Option<MemberId>,
    },
}
