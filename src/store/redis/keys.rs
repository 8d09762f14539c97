//! Every key in Redis. docs/reference/redis-keys.md and docs/internals/redis-keys.md list them for operators.
//!
//! All keys of a partition share the hash tag `{<prefix>:<topic>:<partition>}`, so that a script stays in one slot
//! of a cluster while partitions spread over it. Names have no `:`, `{` or `}`, so keys cannot collide.

use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::GroupPartition;
use crate::store::MemberId;
use crate::store::slot_of;

/// Makes keys that begin with the configured prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    /// Set: the names of all topics.
    pub(super) fn topics(&self) -> String {
        format!("{}:topics", self.prefix)
    }

    /// String: the descriptor of a topic.
    pub(super) fn topic(&self, topic: &TopicName) -> String {
        format!("{}:topic:{topic}", self.prefix)
    }

    /// String: which Redis this was when someone last looked, and since when.
    pub(super) fn history(&self) -> String {
        format!("{}:history", self.prefix)
    }

    /// String with expiry: the member that counts the messages of all topics for everybody.
    pub(super) fn census(&self) -> String {
        format!("{}:census", self.prefix)
    }

    /// String: the identity of the data, as long as there is any.
    pub(super) fn store_id(&self) -> String {
        format!("{}:id", self.prefix)
    }

    /// Set: `<topic>:<partition>`, where there are schedules. Channel: one of them changed.
    pub(super) fn schedules(&self) -> String {
        format!("{}:cron", self.prefix)
    }

    /// The keys of a group that its members share.
    pub(super) fn members(&self, topic: &TopicName, group: &GroupName) -> MemberKeys {
        let slot = slot_of(topic, group);
        let members = format!("{{{}:members-{slot}}}:{topic}:{group}", self.prefix);
        // A channel is in the slot of its name, and has to be in that of the key.
        MemberKeys { slot, wake: members.clone(), states: format!("{members}:state"), members }
    }

    /// Channel: datagrams for a broker.
    pub(super) fn member(&self, member: &MemberId) -> String {
        format!("{}:broker:{member}", self.prefix)
    }

    /// String: when the next slot of a group may begin.
    pub(super) fn slots(&self, topic: &TopicName, group: &GroupName) -> String {
        format!("{}:slots:{topic}:{group}", self.prefix)
    }

    /// The keys of a partition that its groups share.
    pub(super) fn partition(&self, topic: &TopicName, partition: Partition) -> PartitionKeys {
        let tag = self.tag(topic, partition);
        PartitionKeys {
            generation: format!("{tag}:gen"),
            seen: self.seen(topic, partition),
            cancelled: format!("{tag}:x"),
            gone: format!("{tag}:gone"),
            schedules: format!("{tag}:s"),
            moved: format!("{tag}:moved"),
            wake: self.wake(topic, partition),
            order: format!("{tag}:o"),
        }
    }

    /// [`PartitionKeys::seen`] alone.
    pub(super) fn seen(&self, topic: &TopicName, partition: Partition) -> String {
        format!("{}:seen", self.tag(topic, partition))
    }

    /// [`PartitionKeys::wake`] alone.
    pub(super) fn wake(&self, topic: &TopicName, partition: Partition) -> String {
        format!("{}:wake", self.tag(topic, partition))
    }

    /// String with expiry: the last call of a stream that a partition applied, or the last record of a log.
    pub(super) fn call(&self, topic: &TopicName, partition: Partition, stream: &str) -> String {
        format!("{}:c:{stream}", self.tag(topic, partition))
    }

    /// Hash: how far the brokers that keep a journal are with restoring.
    pub(super) fn brokers(&self) -> String {
        format!("{}:brokers", self.prefix)
    }

    /// The keys of a group in a partition.
    pub(super) fn pair(&self, pair: &GroupPartition) -> PairKeys {
        self.group(&pair.topic, pair.partition, &pair.group)
    }

    /// The same, by its parts.
    pub(super) fn group(&self, topic: &TopicName, partition: Partition, group: &GroupName) -> PairKeys {
        let tag = self.tag(topic, partition);
        PairKeys {
            zset: format!("{tag}:{group}:z"),
            hash: format!("{tag}:{group}:h"),
            reservations: format!("{tag}:{group}:r"),
            attempts: format!("{tag}:{group}:a"),
            dead_zset: format!("{tag}:{group}:dz"),
            dead_hash: format!("{tag}:{group}:dh"),
            moving: format!("{tag}:{group}:m"),
            lease: format!("{tag}:{group}:lease"),
        }
    }

    /// A key that no topic has, to look at permissions with: a topic's name is not empty.
    pub(super) fn any_of_a_partition(&self) -> String {
        format!("{{{}::0}}:gen", self.prefix)
    }

    fn tag(&self, topic: &TopicName, partition: Partition) -> String {
        format!("{{{}:{topic}:{partition}}}", self.prefix)
    }
}

/// What the members of a group share.
#[derive(Debug, Clone)]
pub(super) struct MemberKeys {
    /// The slot that the group shares with others.
    pub(super) slot: u32,
    /// Zset: member id -> when its last heartbeat was recorded, ms.
    pub(super) members: String,
    /// Hash: member id -> what that heartbeat says.
    pub(super) states: String,
    /// Channel: a member joined or left, or its demand has changed.
    pub(super) wake: String,
}

/// What the groups of a partition share.
#[derive(Debug, Clone)]
pub(super) struct PartitionKeys {
    /// String: the generation of the descriptor that this partition has seen, and a copy of it.
    pub(super) generation: String,
    /// Zset: settled message id -> until when a push of it is a duplicate, ms.
    pub(super) seen: String,
    /// Zset: cancelled message id -> version of the cancel, us.
    pub(super) cancelled: String,
    /// Zset with expiry, while a journal is restored: `<message id> <group>` -> version up to which it is over, us.
    pub(super) gone: String,
    /// Hash: name of a schedule -> its revision, up to when its occurrences are done with, ms, and its definition.
    pub(super) schedules: String,
    /// Hash: where messages were taken to be moved here -> the last page of them that was placed.
    pub(super) moved: String,
    /// Channel: an earlier head arrived.
    pub(super) wake: String,
    /// Zset: millisecond -> the place given last to what is due in it; only with ordering.
    pub(super) order: String,
}

/// What belongs to one group in one partition.
#[derive(Debug, Clone)]
pub(super) struct PairKeys {
    /// Zset: message id -> when it is due, ms.
    pub(super) zset: String,
    /// Hash: message id -> body.
    pub(super) hash: String,
    /// Hash: `@` -> the owner line; reservation -> its unsettled message ids.
    pub(super) reservations: String,
    /// Hash: message id -> charged attempts.
    pub(super) attempts: String,
    /// Zset: dead message id -> when it died, ms.
    pub(super) dead_zset: String,
    /// Hash: dead message id -> dead record and body.
    pub(super) dead_hash: String,
    /// Hash: ' ' -> the last page that was taken; message id -> what was taken to be moved to another topic.
    pub(super) moving: String,
    /// String with expiry: the member that owns the pair.
    pub(super) lease: String,
}

impl PairKeys {
    /// All of them, for deletion.
    pub(super) fn all(&self) -> [&str; 8] {
        [
            &self.zset,
            &self.hash,
            &self.reservations,
            &self.attempts,
            &self.dead_zset,
            &self.dead_hash,
            &self.moving,
            &self.lease,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[test]
    fn the_layout_is_what_the_protocol_says() -> Result<()> {
        let keys = Keys::new("dwell");
        let topic = TopicName::new("orders")?;
        let pair = GroupPartition { topic: topic.clone(), partition: Partition(3), group: GroupName::standard() };
        assert_eq!(keys.pair(&pair).zset, "{dwell:orders:3}:default:z");
        assert_eq!(keys.pair(&pair).hash, "{dwell:orders:3}:default:h");
        assert_eq!(keys.pair(&pair).lease, "{dwell:orders:3}:default:lease");
        assert_eq!(keys.partition(&topic, Partition(3)).generation, "{dwell:orders:3}:gen");
        assert_eq!(keys.topic(&topic), "dwell:topic:orders");
        Ok(())
    }
}
