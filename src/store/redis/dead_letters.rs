//! Dead messages: listing, redriving, purging, forwarding and dropping them.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;

use super::failure::full;
use super::owner::check_ids;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::{Redis, Shared};
use crate::codec::{body_version, decode_body, decode_dead, encode_body};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, GROUP_PARTITION_MESSAGES_MAX, RECOVER_IDS_MAX};
use crate::model::message::{MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::{CallId, CallPart, Version};
use crate::platform::clock::Clock;
use crate::store::{
    self, AgeOrder, Dead, DeadLetterCursor, DeadLetterOutline, DeadLetterOutlinePage, DeadLetterPage, DeadLetterRange,
    DeadLetterRetention, DroppedDeadLetters, Forward, Forwarded, ForwardedMessage, other_id, random_text,
};

#[async_trait]
impl store::DeadLetters for Redis {
    async fn dead_by_age(&self, range: &DeadLetterRange) -> Result<DeadLetterPage> {
        let mut reply = self.reply(&self.dead_call(range)).await?;
        let after_page = reply.number()?;
        let dead = reply.each(|reply| {
            let (id, died_at) = (MessageId::new(reply.text()?)?, reply.time()?.unwrap_or_default());
            read(id, reply.bytes()?, died_at)
        })?;
        let last = dead.last().filter(|_| after_page > 0);
        let next = last.map(|last: &Dead| DeadLetterCursor { died_at: last.died_at, id: last.id.clone() });
        Ok(DeadLetterPage { dead, next })
    }

    async fn dead_outlines(&self, ranges: &[DeadLetterRange]) -> Result<Vec<DeadLetterOutlinePage>> {
        let calls = ranges.iter().map(|range| self.dead_call(range).arg("sizes")).collect();
        let answers = self.connection.eval_all(&SCRIPTS.dead_letters, calls).await;
        answers.into_iter().map(|answer| read_outlines(Reply::of(answer?)?)).collect()
    }

    async fn redrive(&self, group_partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        check_ids(ids.len(), RECOVER_IDS_MAX)?;
        let keys = self.keys.group_partition(group_partition);
        let shared = self.keys.partition(&group_partition.topic, group_partition.partition);
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.zset, &keys.hash, &keys.attempts, &shared.wake];
        let places = [&places[..], &[&keys.moving, &keys.forwarding, &shared.generation]].concat();
        let places: Vec<&str> = places.into_iter().map(String::as_str).collect();
        for _ in 0..CALL_BACKS_MAX {
            let call = ScriptCall::new(&SCRIPTS.redrive, &places).arg(self.time_override());
            let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
            let (status, reply) = self.ask_counted(group_partition, call).await?;
            if status == "OK" {
                return reply.each(|reply| Ok(reply.number()? == 1));
            }
            self.call_all_back(group_partition).await?;
        }
        Err(on_their_way())
    }

    async fn purge(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Version>>> {
        check_ids(ids.len(), RECOVER_IDS_MAX)?;
        let (keys, generation) = (self.keys.group_partition(partition), self.keys.generation(partition));
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.moving, &keys.forwarding, &generation];
        let places = places.map(String::as_str);
        for _ in 0..CALL_BACKS_MAX {
            let call = ScriptCall::new(&SCRIPTS.purge_dead_letters, &places);
            let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
            let mut reply = Reply::of(self.eval_counted(partition, call).await?)?;
            if reply.text()? == "OK" {
                return reply.each(|reply| Ok(reply.text()?.parse().ok().map(Version::from_us)));
            }
            self.call_all_back(partition).await?;
        }
        Err(on_their_way())
    }

    async fn forward(&self, partition: &GroupPartition, to: Option<&Descriptor>, ids: &[MessageId]) -> Result<Forward> {
        check_ids(ids.len(), RECOVER_IDS_MAX)?;
        let wanted = to.map_or(String::new(), |to| format!("{} {}", to.topic, to.incarnation));
        let staged = self.stage(partition, &wanted, ids).await?;
        match to {
            _ if staged.dead.is_empty() => Ok(Forward::Nothing),
            Some(to) if staged.to == wanted => self.place_staged(partition, to, staged).await.map(Forward::Done),
            _ => {
                let (topic, incarnation) = staged.destination()?;
                let page = Forwarded { page: staged.page, refused: staged.ids(), ..Forwarded::default() };
                Ok(Forward::Elsewhere { topic, incarnation, page })
            }
        }
    }

    async fn forwarded(&self, partition: &GroupPartition, page: &Forwarded) -> Result<()> {
        if page.refused.is_empty() {
            return self.unstage(partition, page.page, None).await;
        }
        self.call_back(partition, Some(page.page)).await
    }

    async fn drop_dead(&self, partition: &GroupPartition, bounds: DeadLetterRetention) -> Result<DroppedDeadLetters> {
        let keys = self.keys.group_partition(partition);
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.moving, &keys.forwarding].map(String::as_str);
        let call = ScriptCall::new(&SCRIPTS.trim_dead_letters, &places)
            .arg(bounds.died_before.map_or(String::new(), |at| at.as_ms().to_string()))
            .arg(bounds.count.map_or(String::new(), |count| count.to_string()))
            .arg(RECOVER_IDS_MAX);
        let mut reply = self.reply(&call).await?;
        let (aged, surplus, more) = (reply.number()?, reply.number()?, reply.number()? == 1);
        Ok(DroppedDeadLetters { aged, surplus, more, oldest: reply.time()? })
    }
}

/// How often a verb calls back what is on its way to another topic, before others who begin pages win.
const CALL_BACKS_MAX: usize = 10;

fn read_outlines(mut reply: Reply) -> Result<DeadLetterOutlinePage> {
    reply.text()?;
    let after_page = reply.number()?;
    let dead = reply.each(|reply| {
        let (id, died_at) = (MessageId::new(reply.text()?)?, reply.time()?.unwrap_or_default());
        Ok(DeadLetterOutline { died_at, id, bytes: usize::try_from(reply.number()?).unwrap_or(usize::MAX) })
    })?;
    let last = dead.last().filter(|_| after_page > 0);
    let next = last.map(|last: &DeadLetterOutline| DeadLetterCursor { died_at: last.died_at, id: last.id.clone() });
    Ok(DeadLetterOutlinePage { dead, next })
}

fn on_their_way() -> Error {
    Error::unavailable("dead letters are being moved or forwarded to another topic; try again")
}

/// A page of dead letters on its way to another topic.
struct Staged {
    page: u64,
    stream: String,
    to: String,
    dead: Vec<(MessageId, Result<Dead>)>,
    /// How many losses were suspected before it was read.
    losses: u64,
}

impl Staged {
    fn ids(&self) -> Vec<MessageId> {
        self.dead.iter().map(|(id, _)| id.clone()).collect()
    }

    fn destination(&self) -> Result<(TopicName, u64)> {
        destination(&self.to)
    }
}

/// The topic that a page goes to, and its incarnation.
pub(super) fn destination(to: &str) -> Result<(TopicName, u64)> {
    let read = |text: &str| {
        let (topic, incarnation) = text.split_once(' ')?;
        Some((TopicName::new(topic).ok()?, incarnation.parse().ok()?))
    };
    read(to).ok_or_else(|| Error::corrupt(format!("messages are on their way to {to:?}")))
}

impl Shared {
    fn dead_call(&self, range: &DeadLetterRange) -> ScriptCall {
        let DeadLetterRange { partition, order, after, limit } = range;
        let keys = self.keys.group_partition(partition);
        let (id, died_at) = after.as_ref().map_or(("", 0), |after| (after.id.as_str(), after.died_at.as_ms()));
        let first = match order {
            AgeOrder::OldestFirst => "oldest",
            AgeOrder::NewestFirst => "newest",
        };
        ScriptCall::new(&SCRIPTS.dead_letters, &[&keys.dead_zset, &keys.dead_hash])
            .arg(id)
            .arg(died_at)
            .arg(*limit)
            .arg(CALL_BYTES_MAX)
            .arg(first)
    }

    async fn stage(&self, partition: &GroupPartition, to: &str, ids: &[MessageId]) -> Result<Staged> {
        let (keys, losses) = (self.keys.group_partition(partition), self.losses.borrow().count);
        let generation = self.keys.generation(partition);
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.forwarding, &keys.moving, &generation];
        let call = ScriptCall::new(&SCRIPTS.stage, &places.map(String::as_str))
            .arg(CALL_BYTES_MAX)
            .arg(random_text())
            .arg(to)
            .arg(self.time_override());
        let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
        let mut reply = Reply::of(self.eval_counted(partition, call).await?)?;
        reply.text()?;
        let (page, stream, to) = (reply.number()?, reply.text()?, reply.text()?);
        let dead = reply.each(|reply| {
            let id = MessageId::new(reply.text()?)?;
            let died_at = reply.time()?.unwrap_or_default();
            Ok((id.clone(), read(id, reply.bytes()?, died_at)))
        })?;
        Ok(Staged { page, stream, to, dead, losses })
    }

    /// Ends a page; what is not stored of one whose stream is closed stays.
    async fn unstage(&self, partition: &GroupPartition, page: u64, given_back: Option<&[MessageId]>) -> Result<()> {
        let (keys, generation) = (self.keys.group_partition(partition), self.keys.generation(partition));
        let places = [&keys.dead_zset, &keys.dead_hash, &keys.forwarding, &generation];
        let call = ScriptCall::new(&SCRIPTS.unstage, &places.map(String::as_str)).arg(page);
        let call = call.arg(u8::from(given_back.is_some()));
        let call = given_back.unwrap_or_default().iter().fold(call, |call, id| call.arg(id.as_str()));
        self.eval_counted(partition, call).await.map(drop)
    }

    /// Ends what is on its way to another topic: messages that are moved, and dead letters that are forwarded.
    pub(super) async fn call_all_back(&self, group_partition: &GroupPartition) -> Result<()> {
        self.call_move_back(group_partition, None).await?;
        self.call_back(group_partition, None).await
    }

    /// Keeps the dead letters that are on their way to another topic, of this page or of any, except for what is stored there
    /// already: first the other topic is closed to the page, so that no copy of it is stored later.
    pub(super) async fn call_back(&self, group_partition: &GroupPartition, page: Option<u64>) -> Result<()> {
        let staged = self.stage(group_partition, "", &[]).await?;
        if staged.dead.is_empty() || page.is_some_and(|page| page != staged.page) {
            return Ok(());
        }
        let (topic, incarnation) = staged.destination()?;
        let there = self.topic_or_tombstone(&topic).await?;
        let there = there.filter(|there| !there.deleted && there.incarnation == incarnation);
        let partition_of = |dead: &Result<Dead>| {
            let message = dead.as_ref().ok()?.message.as_ref().ok()?;
            Some(there.as_ref()?.partition_of(message.routing_key()))
        };
        let partitions: BTreeSet<Partition> = staged.dead.iter().filter_map(|(_, dead)| partition_of(dead)).collect();
        let part = CallPart { call: CallId { stream: staged.stream.clone(), seq: staged.page }, at: 1 };
        let fences = partitions
            .into_iter()
            .map(async |partition| Ok((partition, self.fence_call(&topic, partition, &part).await?)));
        let is_stored: BTreeMap<Partition, bool> = try_join_all(fences).await?.into_iter().collect();
        let is_given_back = |dead| partition_of(dead).is_none_or(|partition| is_stored.get(&partition) != Some(&true));
        let given_back: Vec<MessageId> =
            staged.dead.iter().filter(|(_, dead)| is_given_back(dead)).map(|(id, _)| id.clone()).collect();
        self.unstage(group_partition, staged.page, Some(&given_back)).await
    }

    /// Stores the messages of a page in each partition that they belong to, up to the first refusal.
    async fn place_staged(
        &self,
        group_partition: &GroupPartition,
        to: &Descriptor,
        staged: Staged,
    ) -> Result<Forwarded> {
        let now = self.clock.now();
        let stream = format!("{}@{}", staged.stream, self.name);
        let mut forwarded = Forwarded { page: staged.page, stream, ..Forwarded::default() };
        let mut partitions: BTreeMap<Partition, Vec<ForwardedMessage>> = BTreeMap::new();
        for (id, dead) in staged.dead {
            let version = dead.as_ref().map_or(Version::default(), |dead| dead.version);
            match dead.and_then(|dead| dead.forwarded(group_partition, to, now)) {
                Ok(message) => {
                    let new_version = self.clock.versions(1);
                    let partition = to.partition_of(message.routing_key());
                    partitions.entry(partition).or_default().push(ForwardedMessage {
                        id,
                        version,
                        message,
                        new_version,
                        was_stored: false,
                    });
                }
                Err(error) => {
                    forwarded.refused.push(id);
                    forwarded.refusal = Some(error);
                }
            }
        }
        for (partition, mut messages) in partitions {
            match self
                .store_forwarded(to, partition, (&staged.stream, staged.losses, &forwarded), &mut messages, now)
                .await
            {
                Ok(()) => forwarded.messages.append(&mut messages),
                Err(error) if error.is_outage() || error.kind() == Kind::OutcomeUnknown => return Err(error),
                Err(error) => {
                    forwarded.refused.extend(messages.into_iter().map(|message| message.id));
                    forwarded.refusal = Some(error);
                }
            }
        }
        Ok(forwarded)
    }

    /// Those whose id is taken have another one afterwards.
    async fn store_forwarded(
        &self,
        to: &Descriptor,
        partition: Partition,
        (stream, losses, page): (&str, u64, &Forwarded),
        messages: &mut [ForwardedMessage],
        due_at: Timestamp,
    ) -> Result<()> {
        let shared = self.keys.partition(&to.topic, partition);
        let memory = self.keys.call(&to.topic, partition, stream);
        let answered = self.keys.call(&to.topic, partition, &page.stream);
        let groups = self.group_keys(to, partition);
        let mut keys = vec![shared.generation.as_str(), &memory, &shared.cancelled, &shared.wake, &answered];
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let script = if to.is_ordered() { &SCRIPTS.forward_ordered } else { &SCRIPTS.forward };
        keys.extend(to.is_ordered().then_some(shared.order.as_str()));
        let until = Clock::System.instant().plus(self.connection.timeout());
        let others: Vec<MessageId> = messages
            .iter()
            .map(|forwarded| other_id(&forwarded.message, to, partition, forwarded.new_version))
            .collect();
        let make = |known: &str| {
            let call = ScriptCall::new(script, &keys)
                .after_losses(losses)
                .arg(known)
                .arg(page.page)
                .arg(GROUP_PARTITION_MESSAGES_MAX)
                .arg(due_at.as_ms())
                .arg(self.time_override())
                .arg(self.valid_until(until));
            messages.iter().zip(&others).try_fold(
                call,
                |call, (ForwardedMessage { message, new_version, .. }, other)| {
                    let body = encode_body(message, *new_version)?;
                    Ok(call.arg(message.id.as_str()).arg(other.as_str()).arg(body))
                },
            )
        };
        let mut reply = Reply::of(self.eval_known(&to.topic, partition, to.generation, make).await?)?;
        match reply.text()?.as_str() {
            "OK" => {}
            "LATE" => return Err(Error::unavailable("Redis answered too late")),
            "CLOSED" => return Err(Error::stale("these dead letters were called back")),
            "FULL" => return Err(full()),
            _ => return Err(self.overtaken(&to.topic, partition).await),
        }
        let renamed = reply.list()?.each(|index| index.number())?;
        let was_stored = reply.number()? == 1;
        messages.iter_mut().for_each(|message| message.was_stored = was_stored);
        for index in renamed {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            if let (Some(renamed), Some(other)) = (messages.get_mut(index), others.get(index)) {
                renamed.message.id = other.clone();
            }
        }
        Ok(())
    }
}

/// Reads a value of the dead hash: the length of the record (4 bytes), the record, the body.
pub(super) fn read(id: MessageId, value: Bytes, died_at: Timestamp) -> Result<Dead> {
    let corrupt = || Error::corrupt(format!("dead message {id} is unreadable"));
    let end = body_at(&value).ok_or_else(corrupt)?;
    let record = decode_dead(value.get(4..end).ok_or_else(corrupt)?)?;
    let body = value.slice(end..);
    let version = body_version(&body);
    let message = decode_body(id.clone(), body);
    Ok(Dead { id, died_at, record, version, message })
}

fn body_at(value: &[u8]) -> Option<usize> {
    let length: [u8; 4] = value.get(..4)?.try_into().ok()?;
    Some(usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_add(4))
}

/// A value of the dead hash that could be read, with another body.
pub(super) fn with_body(value: &[u8], body: &[u8]) -> Bytes {
    let front = body_at(value).and_then(|end| value.get(..end)).unwrap_or_default();
    Bytes::from([front, body].concat())
}
