//! Questions to the owner of a partition about messages that it holds, and its reports.

use serde::{Deserialize, Serialize};

use super::name::RequestName;
use crate::delivery::{BlockedReason, HeldCounts, HeldKeys, Located};
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::store::MemberId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Inquiry {
    /// Gives messages back to the store, without ids all that no consumer has. Nothing is reserved until a release.
    Recall { partition: Partition, ids: Vec<MessageId> },
    /// The recall with this name is over. It is not answered.
    Release { recall: RequestName },
    /// Gives back all that no consumer has, and asks the store anew.
    Refresh { partition: Partition },
    /// Where messages are, and what holds up the partition, or this key in it.
    Locate { partition: Partition, ids: Vec<MessageId>, key: Option<Key> },
    /// How many messages the owner holds, of each partition.
    Counts,
    /// Which keys have messages, in a fair group.
    Keys,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Report {
    NotOwner,
    /// Messages that a consumer has. The store has all others, or they are gone.
    Recalled {
        out: Vec<MessageId>,
    },
    /// Nothing is handed out that was reserved before.
    Refreshed,
    /// In the order asked; nothing for a message that the owner does not hold. And what holds up the partition.
    Located {
        located: Vec<Option<Located>>,
        held_up: Option<BlockedReason>,
    },
    Counts {
        partitions: Vec<(Partition, HeldCounts)>,
    },
    /// With the partitions that they are of.
    Keys {
        keys: HeldKeys,
        partitions: Vec<Partition>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InquiryMessage {
    pub(super) name: RequestName,
    pub(super) from: MemberId,
    pub(super) until: Timestamp,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) inquiry: Inquiry,
}

impl Inquiry {
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Inquiry::Recall { ids, .. } | Inquiry::Locate { ids, .. } => ids.len() <= BATCH_MESSAGES_MAX,
            Inquiry::Refresh { .. } | Inquiry::Release { .. } | Inquiry::Counts | Inquiry::Keys => true,
        }
    }
}
