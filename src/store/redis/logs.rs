//! Applying what a log kept.

use async_trait::async_trait;

use super::keys::GroupPartitionKeys;
use super::messages::{Canceller, dedup_argument, follow_keys, policy_argument, policy_name, read_pushed};
use super::owner::check_ids;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::topics::Answer;
use super::{Redis, Shared};
use crate::codec::encode_body;
use crate::model::error::{Error, Result};
use crate::model::limits::{GROUP_PARTITION_MESSAGES_MAX, POLICY_IDS_MAX, RESTORE_CHANGES_MAX};
use crate::model::message::{Conflict, GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::{CallPart, Version};
use crate::store::{
    BrokerReport, Change, Identity, KeptCronJob, LogTarget, Progress, Purge, Pushed, Refused, Replayed, Reports,
    origin_page,
};

#[async_trait]
impl LogTarget for Redis {
    async fn identity(&self, known: Option<&str>) -> Result<Identity> {
        self.shared.identity(known).await
    }

    async fn topic_or_tombstone(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.shared.topic_or_tombstone(topic).await
    }

    async fn remembers(&self, topics: &[Descriptor]) -> Result<bool> {
        Ok(self.remembers_histories().await? || self.shared.remembers_topics(topics).await?)
    }

    fn accept(&self, identity: &str) {
        self.connection.accept(identity);
    }

    async fn merge(&self, known: &Descriptor) -> Result<(Descriptor, bool)> {
        let (newest, is_missing) = self.shared.merge(known).await?;
        if !newest.deleted {
            self.add_to_list(&newest.topic).await?;
            self.add_all_to_cron_list(&newest).await?;
        }
        Ok((newest, is_missing))
    }

    async fn fence(&self, topic: &TopicName, partition: Partition, part: &CallPart) -> Result<bool> {
        self.fence_call(topic, partition, part).await
    }

    async fn replay(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        log: &str,
        conflict: Conflict,
        messages: &[Replayed],
        losses: u64,
    ) -> Result<Vec<Result<Pushed, Refused>>> {
        check_ids(messages.len(), POLICY_IDS_MAX)?;
        let shared = self.keys.partition(&descriptor.topic, partition);
        let (memory, groups) =
            (self.keys.call(&descriptor.topic, partition, log), self.group_keys(descriptor, partition));
        // Without an origin there is nothing to remember of one.
        let page = messages.first().and_then(|first| first.origin.as_ref()).map(origin_page);
        let (origin, page) = match page {
            Some((log, page)) => (
                self.keys.call(&descriptor.topic, partition, &log),
                self.keys.call(&descriptor.topic, partition, &format!("{log}#{page}")),
            ),
            None => (memory.clone(), memory.clone()),
        };
        let front = [&shared.generation, &memory, &shared.seen, &shared.cancelled, &shared.gone, &shared.wake];
        let front = [&front[..], &[&origin, &page, &shared.purged, &shared.dedup, &shared.dedup_end]].concat();
        let mut keys: Vec<&str> = front.iter().map(|key| key.as_str()).collect();
        keys.extend(groups.iter().flat_map(message_keys));
        keys.extend(follow_keys(conflict, &groups));
        let script = if descriptor.is_ordered() { &SCRIPTS.replay_ordered } else { &SCRIPTS.replay };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let make = |known: &str| {
            let call = ScriptCall::new(script, &keys)
                .after_losses(losses)
                .arg(known)
                .arg(GROUP_PARTITION_MESSAGES_MAX)
                .arg(policy_name(conflict, descriptor))
                .arg(self.time_override());
            messages.iter().try_fold(call, |call, Replayed { number, version, message, origin }| {
                let body = encode_body(message, *version)?;
                let origin = origin.as_ref().map_or(String::new(), |origin| origin.seq.to_string());
                let call = call.arg(*number).arg(origin).arg(message.due_at.as_ms()).arg(message.id.as_str());
                let more = policy_argument(conflict, message, (descriptor, partition), *version);
                Ok(call.arg(body).arg(dedup_argument(message)).arg(more))
            })
        };
        self.apply(descriptor, partition, make).await?.each(|reply| read_pushed(&reply.text()?))
    }

    async fn withdraw(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        version: Version,
    ) -> Result<()> {
        self.cancel_by(descriptor, partition, id, Canceller::Log(version)).await.map(drop)
    }

    async fn reapply_purge(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        purge: &Purge,
        version: Version,
        losses: u64,
    ) -> Result<u64> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let group_partition = self.keys.group(&descriptor.topic, partition, &purge.group);
        let keys = [
            &shared.generation,
            &shared.purged,
            &group_partition.zset,
            &group_partition.hash,
            &group_partition.attempts,
            &group_partition.dead_zset,
            &group_partition.dead_hash,
        ];
        self.call_all_back(&descriptor.group_partition(partition, &purge.group)).await?;
        let (mut cursor, mut deleted) = ("0".to_owned(), 0);
        loop {
            let make = |known: &str| {
                Ok(ScriptCall::new(&SCRIPTS.reapply_purge, &keys.map(String::as_str))
                    .after_losses(losses)
                    .arg(known)
                    .arg(purge.group.as_str())
                    .arg(u8::from(purge.dead_letters))
                    .arg(version.as_us())
                    .arg(&cursor)
                    .arg(self.time_override()))
            };
            let mut reply = self.apply(descriptor, partition, make).await?;
            deleted += reply.number()?;
            cursor = reply.text()?;
            if cursor == "0" {
                return Ok(deleted);
            }
        }
    }

    async fn restore_cron_job(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        cron: &KeptCronJob,
        losses: u64,
    ) -> Result<bool> {
        self.add_to_cron_list(&descriptor.topic, partition).await?;
        let make = |known: &str| {
            let call = self.restore_cron_job_call(&descriptor.topic, partition, cron, known)?;
            Ok(call.after_losses(losses))
        };
        let is_changed = self.apply(descriptor, partition, make).await?.number()? == 1;
        self.announce_cron_jobs().await?;
        Ok(is_changed)
    }

    async fn restore(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        changes: &[Change],
        losses: u64,
    ) -> Result<u64> {
        check_ids(changes.len(), RESTORE_CHANGES_MAX)?;
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.group_keys(descriptor, partition);
        let mut streams: Vec<&str> = changes.iter().filter_map(stream_of).collect();
        streams.sort_unstable();
        streams.dedup();
        let memories: Vec<_> =
            streams.iter().map(|stream| self.keys.call(&descriptor.topic, partition, stream)).collect();
        let mut keys = vec![shared.generation.as_str(), &shared.cancelled, &shared.gone, &shared.wake];
        keys.extend([shared.purged.as_str(), &shared.dedup, &shared.dedup_end]);
        keys.extend(groups.iter().flat_map(|group| message_keys(group).into_iter().chain([group.successors.as_str()])));
        keys.extend(memories.iter().map(String::as_str));
        let script = if descriptor.is_ordered() { &SCRIPTS.restore_ordered } else { &SCRIPTS.restore };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let with_change = |call: ScriptCall, change: &Change| match change {
            Change::Set { message, version, groups, call: id } => {
                let at = streams.binary_search(&id.stream.as_str()).map_err(|_| Error::bug("a call of no stream"))?;
                let call = call.arg(joined(groups)).arg(message.id.as_str()).arg(version.as_us());
                let call = call.arg(message.due_at.as_ms()).arg(encode_body(message, *version)?);
                Ok(call.arg(at + 1).arg(id.seq).arg(dedup_argument(message)))
            }
            Change::End { id, version, groups, is_acked } => {
                let call = call.arg(joined(groups)).arg(id.as_str()).arg(version.as_us());
                Ok(call.arg("").arg(if *is_acked { "acked" } else { "" }).arg("").arg("").arg(""))
            }
        };
        let make = |known: &str| {
            let call = ScriptCall::new(script, &keys)
                .after_losses(losses)
                .arg(known)
                .arg(groups.len())
                .arg(self.time_override());
            changes.iter().try_fold(call, with_change)
        };
        self.apply(descriptor, partition, make).await?.number()
    }

    async fn report(&self, broker: &str, progress: Progress) -> Result<Reports> {
        let began = if let Progress::Settled(began) = progress { began } else { Timestamp::default() };
        let call = ScriptCall::new(&SCRIPTS.restore_progress, &[&self.keys.brokers()])
            .arg(broker)
            .arg(progress.name())
            .arg(began.as_ms())
            .arg(self.time_override());
        let (_, mut reply) = self.ask(&call).await?;
        let (now, lost_at) = (Timestamp::from_ms(reply.number()?), Timestamp::from_ms(reply.number()?));
        let was_listed = reply.number()? == 1;
        let brokers = reply.each(|reply| {
            let (broker, progress, at) = (reply.text()?, reply.text()?, Timestamp::from_ms(reply.number()?));
            let is_settled = progress == Progress::Settled(at).name();
            Ok(BrokerReport { broker, is_settled, at })
        })?;
        Ok(Reports { now, lost_at, was_listed, brokers })
    }

    async fn compare(&self) -> Result<()> {
        self.compare_all().await
    }

    fn may_lack(&self, topic: &TopicName, partition: Partition) -> bool {
        self.histories.of(topic, partition).is_none() || self.histories.lost().contains_key(&(topic.clone(), partition))
    }

    fn has_lost(&self) -> bool {
        !self.histories.lost().is_empty()
    }

    fn suspect_loss(&self) {
        self.shared.suspect_loss();
    }

    fn hold_at_losses(&self, is_heard: bool) {
        self.losses.send_modify(|loss| {
            (loss.restores, loss.is_restoring) = (true, true);
            loss.is_heard |= is_heard;
        });
    }

    fn restored(&self, losses: u64) {
        self.losses.send_if_modified(|loss| {
            let over = loss.is_restoring && loss.count == losses;
            if over {
                self.histories.lost().clear();
                loss.is_restoring = false;
            }
            over
        });
    }
}

impl Shared {
    pub(super) async fn fence_call(&self, topic: &TopicName, partition: Partition, part: &CallPart) -> Result<bool> {
        let key = self.keys.call(topic, partition, &part.call.stream);
        let fence = ScriptCall::new(&SCRIPTS.fence, &[&key]).arg(part.call.seq).arg(part.at);
        let mut reply = Reply::of(self.connection.eval(&fence).await?)?;
        reply.text()?;
        Ok(reply.number()? == 1)
    }

    /// Redis perhaps lost data although its connection never broke: a call or the outage layer found it. The losses that a new connection
    /// finds are counted in `History::look`.
    pub(super) fn suspect_loss(&self) {
        let now = self.clock.local().instant();
        self.losses.send_modify(|loss| {
            loss.count += 1;
            loss.is_restoring |= loss.restores;
            loss.since = Some(now);
        });
        tracing::warn!("Redis does not remember what it answered: it is compared with what brokers know");
    }

    /// Makes a call once, and again after the partition was shown the descriptor.
    async fn apply(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        make: impl Fn(&str) -> Result<ScriptCall>,
    ) -> Result<Reply> {
        loop {
            match self.expire(descriptor, partition, &make).await? {
                Answer::Done(reply) => return Ok(reply),
                Answer::Behind => self.publish_descriptor(descriptor, partition).await?,
                Answer::Late | Answer::Outdated(_) | Answer::Gap => {
                    return Err(Error::corrupt("a script of a log answered as a push"));
                }
            }
        }
    }
}

/// The keys that have the messages of a group in a partition, and its dead letters.
fn message_keys(group: &GroupPartitionKeys) -> [&str; 5] {
    [&group.zset, &group.hash, &group.attempts, &group.dead_zset, &group.dead_hash]
}

fn stream_of(change: &Change) -> Option<&str> {
    match change {
        Change::Set { call, .. } => Some(&call.stream),
        Change::End { .. } => None,
    }
}

fn joined(groups: &[GroupName]) -> String {
    groups.iter().map(GroupName::as_str).collect::<Vec<_>>().join(" ")
}
