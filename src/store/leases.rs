//! Ownership of a partition of a group: members and leases.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Epoch, HeadState, Owner, random_text};
use crate::model::error::Result;
use crate::model::limits::MEMBER_BYTES_MAX;
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

/// A process that may own partitions. It has a random part, so that a restarted process is another member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// A member of this process, named for people by `name` (cut to 64 of `A-Z a-z 0-9 . _ -`).
    pub fn fresh(name: &str) -> MemberId {
        let name: String = name.chars().filter(is_plain).take(64).collect();
        MemberId(format!("{name}-{}", random_text()).into())
    }

    pub fn from_store(text: &str) -> MemberId {
        MemberId(text.into())
    }

    pub fn is_plausible(&self) -> bool {
        (1..=MEMBER_BYTES_MAX).contains(&self.0.len()) && self.0.chars().all(|c| is_plain(&c))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_id_is_unique_and_sanitized() {
        assert_ne!(MemberId::fresh("host"), MemberId::fresh("host"));
        assert!(MemberId::fresh("a b/{}:@é").as_str().starts_with("ab-"));
    }

    #[test]
    fn only_dwell_owner_records_are_plausible() {
        for name in ["", "host", "a b/{}:@é", &"h".repeat(100)] {
            assert!(MemberId::fresh(name).is_plausible(), "{name}");
        }
        for hostile in ["", "a{b}", "a:b", "a b", "a\nb", "é", &"h".repeat(MEMBER_BYTES_MAX + 1)] {
            assert!(!MemberId::from_store(hostile).is_plausible(), "{hostile}");
        }
    }
}
