//! Pausing a key of a fair group: its messages wait, and those of other keys do not.
//!
//! The store keeps until when, beside the messages of the key, and gives none of them to a reservation. An owner may have reserved some
//! before, so it is asked to give back what no consumer has. Once that is done nothing of the key is handed out, whoever owns the
//! partition next.

use std::sync::Arc;

use futures_util::future::join_all;

use super::topics::with_group;
use super::{Broker, PauseFor};
use crate::gate::PARTITIONS_AT_ONCE;
use crate::model::error::{Error, Fault, Kind, Result};
use crate::model::limits::KEYS_SHOWN_MAX;
use crate::model::message::{GroupName, Key, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{Call, KeyPause, PausedKey};

/// The paused keys of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PausedKeys {
    pub count: u64,
    /// Those that are free first; at most [`KEYS_SHOWN_MAX`].
    pub first: Vec<PausedKey>,
}

impl Broker {
    /// Hands out no message of a key from when this has answered until the pause ends, and answers when that is. Messages in flight may still be
    /// settled. Errors: `NotFound`; `Invalid` for a pause without an end, or with one that is too late; `Conflict` if the group is not fair;
    /// `Full`; `OutcomeUnknown` if the owner of the partition does not answer: it may hand out what it has; try again.
    pub async fn pause_key(
        &self,
        topic: &TopicName,
        group: &GroupName,
        key: &Key,
        pause: PauseFor,
    ) -> Result<Timestamp> {
        let until = self.end_of(pause)?;
        let missing = || {
            Error::wrong(Fault::Missing, "for", "is missing: the pause of a key has an end, as in {\"for\": \"10m\"}")
        };
        let until = until.ok_or_else(missing)?;
        self.set_key_pause(topic, group, key, Some(until)).await?;
        tracing::info!(%topic, %group, %key, %until, "key paused");
        Ok(until)
    }

    /// Ends the pause of a key. One that is not paused stays as it is. Errors: as [`Broker::pause_key`].
    pub async fn resume_key(&self, topic: &TopicName, group: &GroupName, key: &Key) -> Result<()> {
        self.set_key_pause(topic, group, key, None).await?;
        tracing::info!(%topic, %group, %key, "key resumed");
        Ok(())
    }

    async fn set_key_pause(
        &self,
        topic: &TopicName,
        group: &GroupName,
        key: &Key,
        until: Option<Timestamp>,
    ) -> Result<()> {
        self.store.backend.clock().check()?;
        if !with_group(self.topics.load(topic).await?, group)?.is_fair(group) {
            return Err(not_fair(group));
        }
        let pause = &KeyPause { group: group.clone(), key: key.clone(), until };
        let set = |descriptor: Arc<Descriptor>| async move {
            let descriptor = with_group(descriptor, group)?;
            let partition = descriptor.partition_of(key.as_str());
            let make = async |call: &Call| self.store.messages.pause_key(&descriptor, partition, call, pause).await;
            self.topics.call(topic, partition, 1, make, |_| true).await?;
            let refreshed = self.refresh(&descriptor, partition, group).await;
            refreshed.map_err(|error| Error::outcome_unknown(format!("the store knows, and {}", error.detail())))
        };
        self.topics.with_descriptor(topic, set).await
    }

    /// Whether a nack may pause the key of its message. Errors: `NotFound`, `Invalid` if the group is not fair.
    pub async fn check_pauses_keys(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        // Another broker may have made it fair just now.
        if self.topics.group(topic, group).await?.is_fair(group) || self.topics.load(topic).await?.is_fair(group) {
            return Ok(());
        }
        Err(Error::wrong(
            Fault::Invalid,
            "pause_key",
            "is for a fair group; make this one fair with {\"fair\": \"key\"}",
        ))
    }

    /// The paused keys of a fair group; of another one none, since no pause counts there.
    pub async fn paused_keys(&self, descriptor: &Descriptor, group: &GroupName) -> Result<PausedKeys> {
        let mut paused = PausedKeys::default();
        if !descriptor.is_fair(group) {
            return Ok(paused);
        }
        let partitions: Vec<_> = descriptor.partitions().map(|of| descriptor.group_partition(of, group)).collect();
        for some in partitions.chunks(PARTITIONS_AT_ONCE) {
            let reads = some.iter().map(|partition| self.store.reads.paused_keys(partition, KEYS_SHOWN_MAX));
            for read in join_all(reads).await {
                let (count, first) = read?;
                paused.count += count;
                paused.first.extend(first);
            }
        }
        paused.first.sort_by(|one, other| (one.until, &one.key).cmp(&(other.until, &other.key)));
        paused.first.truncate(KEYS_SHOWN_MAX);
        Ok(paused)
    }
}

fn not_fair(group: &GroupName) -> Error {
    let why = "is not fair, so its keys cannot be paused; make it fair with {\"fair\": \"key\"}, or pause the group";
    Error::new(Kind::Conflict, format!("group {group} {why}"))
}
