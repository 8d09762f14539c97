//! Every key in Redis. docs/reference/redis-keys.md and docs/internals/redis-keys.md list them for operators.
//!
//! All keys of a partition share the hash tag `{<prefix>:<topic>:<partition>}`, so that a script stays in one slot
//! of a cluster while partitions spread over it. Names have no `:`, `{` or `}`, so keys cannot collide.

use redis::{Arg, Cmd};

use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::GroupPartition;
use crate::store::{MemberId, slot_of};

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

    /// String: which Redis this was when someone last looked, and since when.
    pub(super) fn history(&self) -> String {
        format!("{}:history", self.prefix)
    }

    /// String with expiry: the member that counts the messages of all topics for everybody.
    pub(super) fn stats_collector(&self) -> String {
        format!("{}:stats-collector", self.prefix)
    }

    /// String: the identity of the data, as long as there is any.
    pub(super) fn store_id(&self) -> String {
        format!("{}:id", self.prefix)
    }

    /// String: the key that receipts are signed with.
    pub(super) fn receipt_key(&self) -> String {
        format!("{}:receipt-key", self.prefix)
    }

    /// Set: `<topic>:<partition>`, where there are cron jobs. Channel: one of them changed.
    pub(super) fn cron_partitions(&self) -> String {
        format!("{}:cron", self.prefix)
    }

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
        format!("{}:rate-slots:{topic}:{group}", self.prefix)
    }

    pub(super) fn partition(&self, topic: &TopicName, partition: Partition) -> PartitionKeys {
        let tag = self.partition_tag(topic, partition);
        let key = |suffix: &str| [tag.as_str(), suffix].concat();
        PartitionKeys {
            generation: key(":gen"),
            seen: key(":seen"),
            cancelled: key(":x"),
            gone: key(":gone"),
            purged: key(":purged"),
            dedup: key(":dedup"),
            dedup_end: key(":dedup-end"),
            cron_jobs: key(":s"),
            moved: key(":moved"),
            past: key(":past"),
            wake: key(":wake"),
            order: key(":o"),
        }
    }

    pub(super) fn generation(&self, group_partition: &GroupPartition) -> String {
        format!("{}:gen", self.partition_tag(&group_partition.topic, group_partition.partition))
    }

    pub(super) fn wake(&self, topic: &TopicName, partition: Partition) -> String {
        format!("{}:wake", self.partition_tag(topic, partition))
    }

    /// String with expiry: the last call of a stream that a partition applied, or the last record of a log.
    pub(super) fn call(&self, topic: &TopicName, partition: Partition, stream: &str) -> String {
        format!("{}:c:{stream}", self.partition_tag(topic, partition))
    }

    /// Hash: how far the brokers that keep a journal are with restoring.
    pub(super) fn brokers(&self) -> String {
        format!("{}:brokers", self.prefix)
    }

    pub(super) fn group_partition(&self, group_partition: &GroupPartition) -> GroupPartitionKeys {
        self.group(&group_partition.topic, group_partition.partition, &group_partition.group)
    }

    pub(super) fn group(&self, topic: &TopicName, partition: Partition, group: &GroupName) -> GroupPartitionKeys {
        let tag = format!("{}:{group}", self.partition_tag(topic, partition));
        let key = |suffix: &str| [tag.as_str(), suffix].concat();
        GroupPartitionKeys {
            zset: key(":z"),
            hash: key(":h"),
            reservations: key(":r"),
            attempts: key(":a"),
            dead_zset: key(":dz"),
            dead_hash: key(":dh"),
            moving: key(":m"),
            forwarding: key(":f"),
            by_key: key(":k"),
            paused: key(":p"),
            successors: key(":n"),
            lease: key(":lease"),
        }
    }

    /// A key that no topic has, to look at permissions with: a topic's name is not empty.
    pub(super) fn any_of_a_partition(&self) -> String {
        format!("{{{}::0}}:gen", self.prefix)
    }

    fn partition_tag(&self, topic: &TopicName, partition: Partition) -> String {
        format!("{{{}:{topic}:{partition}}}", self.prefix)
    }
}

#[derive(Debug, Clone)]
pub(super) struct MemberKeys {
    pub(super) slot: u32,
    /// Zset: member id -> when its last heartbeat was recorded, ms.
    pub(super) members: String,
    /// Hash: member id -> what that heartbeat says.
    pub(super) states: String,
    /// Channel: a member joined or left, or its demand has changed.
    pub(super) wake: String,
}

#[derive(Debug, Clone)]
pub(super) struct PartitionKeys {
    /// String: the newest descriptor of the topic that this partition has seen, behind its generation, and the history and
    /// the count of the partition. That of partition 0 is written first, and read.
    pub(super) generation: String,
    /// Zset: settled message id -> until when a push of it is a duplicate, ms.
    pub(super) seen: String,
    /// Zset: cancelled message id -> version of the cancel, us.
    pub(super) cancelled: String,
    /// Zset with expiry: versions up to which messages and cron jobs are over, us; `_tombstones.lua` has the forms.
    pub(super) gone: String,
    /// Hash with expiry: group -> version of its last purge, us.
    pub(super) purged: String,
    /// Zset without scores: `<dedup key> NUL <pushed at, ms> <end of its window, ms> <message id>`.
    pub(super) dedup: String,
    /// Zset: the same -> end of the window, ms.
    pub(super) dedup_end: String,
    /// Hash: name of a schedule -> its revision, up to when its occurrences are done with, ms, and its definition.
    pub(super) cron_jobs: String,
    /// Hash: where messages were taken to be moved here -> the last page of them that was placed.
    pub(super) moved: String,
    /// Hash with expiry: history of before -> its count at the end.
    pub(super) past: String,
    /// Channel: an earlier head arrived.
    pub(super) wake: String,
    /// Zset: millisecond -> the place given last to what is due in it; only with ordering.
    pub(super) order: String,
}

#[derive(Debug, Clone)]
pub(super) struct GroupPartitionKeys {
    /// Zset: message id -> when it is due, ms; more by 2^42 while it is among the sorted ones of its key.
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
    /// Hash: ' ' -> the last page, its stream and where it goes; message id -> a dead letter on its way to another topic.
    pub(super) forwarding: String,
    /// Zset without scores: `<key, if any> NUL <due, ms, 13 digits><message id>`, the sorted messages of a fair group.
    pub(super) by_key: String,
    /// Zset: key -> until when its messages wait, ms.
    pub(super) paused: String,
    /// Zset: id of a message that may have a successor -> when that was looked at last, ms.
    pub(super) successors: String,
    /// String with expiry: the member that owns the partition.
    pub(super) lease: String,
}

impl GroupPartitionKeys {
    pub(super) fn all(&self) -> [&str; 12] {
        [
            &self.zset,
            &self.hash,
            &self.reservations,
            &self.attempts,
            &self.dead_zset,
            &self.dead_hash,
            &self.moving,
            &self.forwarding,
            &self.by_key,
            &self.paused,
            &self.successors,
            &self.lease,
        ]
    }
}

pub(super) const SLOTS: u16 = 16_384;

/// Numbers that are tried for a tag; on average every 16,384th fits.
const TAGS_TRIED: u32 = 1_000_000;

pub(super) fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

pub(super) fn slot_of_command(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().filter_map(|arg| match arg {
        Arg::Simple(word) => Some(word),
        _ => None,
    });
    let name = words.next()?;
    match name {
        b"EVALSHA" => words.nth(2).map(slot_of_key),
        b"TIME" | b"PING" => None,
        _ => words.next().map(slot_of_key),
    }
}

pub(super) fn slot_tag(slot: u16) -> String {
    (0..TAGS_TRIED).map(|n| n.to_string()).find(|tag| slot_of_key(tag.as_bytes()) == slot).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[test]
    fn key_layout_matches_the_protocol() -> Result<()> {
        let keys = Keys::new("dwell");
        let topic = TopicName::new("orders")?;
        let group_partition =
            GroupPartition { topic: topic.clone(), partition: Partition(3), group: GroupName::standard() };
        assert_eq!(keys.group_partition(&group_partition).zset, "{dwell:orders:3}:default:z");
        assert_eq!(keys.group_partition(&group_partition).hash, "{dwell:orders:3}:default:h");
        assert_eq!(keys.group_partition(&group_partition).lease, "{dwell:orders:3}:default:lease");
        assert_eq!(keys.partition(&topic, Partition(3)).generation, "{dwell:orders:3}:gen");
        Ok(())
    }

    /// The first three are of the specification of Redis Cluster.
    #[test]
    fn published_slot_vectors_match_and_hash_tags_are_found() {
        assert_eq!(crc16::State::<crc16::XMODEM>::calculate(b"123456789"), 0x31C3);
        assert_eq!(slot_of_key(b"{user1000}.following"), slot_of_key(b"{user1000}.followers"));
        assert_eq!(slot_of_key(b"foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of_key(b"foo"), 12_182);
        for slot in [0, 1, 5_461, SLOTS - 1] {
            assert_eq!(slot_of_key(format!("dwell:history:{{{}}}", slot_tag(slot)).as_bytes()), slot);
        }
    }

    #[test]
    fn command_is_routed_by_its_first_key() {
        assert_eq!(slot_of_command(redis::cmd("GET").arg("foo")), Some(12_182));
        assert_eq!(slot_of_command(redis::cmd("EVALSHA").arg("digest").arg(2).arg("foo").arg("bar")), Some(12_182));
        assert_eq!(slot_of_command(&redis::cmd("TIME")), None);
    }
}
