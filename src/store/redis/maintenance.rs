//! Copying a group, moving a topic and verifying a partition, a page at a time; and which member counts for all.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::dead_letters::{destination, read, with_body};
use super::failure::full;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::{Redis, Shared, ms};
use crate::codec::{decode_body, encode_body, newest_version};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, GROUP_PARTITION_MESSAGES_MAX, RECOVER_IDS_MAX};
use crate::model::message::{GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::store::{
    self, Copied, CopyCursor, Defect, Finding, Forwarded, ForwardedMessage, MemberId, MovedPage, StatsClaim,
    VerifyCursor, VerifyPage, other_id, random_text,
};

/// Messages of the first page, before it is known how large they are: all of them may be of the largest size.
const FIRST_PAGE: usize = 16;

#[async_trait]
impl store::Maintenance for Redis {
    /// The cursor is that of Redis, with the number of messages that the next page may have in front.
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        let subscription = descriptor.subscription(group);
        let source = subscription.copy_of.ok_or_else(|| Error::stale(format!("group {group} is no copy")))?;
        let (count, cursor) = match &from {
            None => (FIRST_PAGE, ""),
            Some(CopyCursor(text)) => {
                let (count, cursor) = text.split_once(' ').unwrap_or(("", ""));
                (count.parse().unwrap_or(FIRST_PAGE), cursor)
            }
        };
        let shared = self.keys.partition(&descriptor.topic, partition);
        let source_keys = self.keys.group(&descriptor.topic, partition, &source);
        let keys = self.keys.group(&descriptor.topic, partition, group);
        let keys = [
            &shared.generation,
            &source_keys.zset,
            &source_keys.hash,
            &source_keys.attempts,
            &keys.zset,
            &keys.hash,
            &keys.successors,
        ];
        let call = ScriptCall::new(&SCRIPTS.copy, &keys.map(String::as_str))
            .arg(group.as_str())
            .arg(subscription.born)
            .arg(source.as_str())
            .arg(cursor)
            .arg(count);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        if reply.text()? != "OK" {
            return Err(Error::stale(format!("partition {partition} does not copy {source} to {group} now")));
        }
        let messages = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let bytes = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let cursor = reply.text()?;
        // Pages grow until one has a good part of the bytes that a call may have, and shrink when one had more.
        let count = match bytes {
            ..=GROWING => (count * 2).min(RECOVER_IDS_MAX),
            _ => (count / 2).max(1),
        };
        Ok(Copied { messages, next: (!cursor.is_empty()).then(|| CopyCursor(format!("{count} {cursor}"))) })
    }

    async fn claim_stats_collection(&self, member: &MemberId, ttl: Duration) -> Result<StatsClaim> {
        let (status, mut reply) = self.claim_collection(member, &ms(ttl).to_string()).await?;
        Ok(match status.as_str() {
            "KEPT" => StatsClaim::Kept,
            "TAKEN" => StatsClaim::Taken,
            _ => StatsClaim::Held { expires_in: Duration::from_millis(reply.number()?) },
        })
    }

    async fn yield_stats_collection(&self, member: &MemberId) -> Result<()> {
        self.claim_collection(member, "").await.map(drop)
    }

    async fn audit(&self, partition: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        let keys = self.keys.group_partition(partition);
        let places = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash];
        let from = from.map_or(FIRST, |VerifyCursor(cursor)| cursor);
        if !is_cursor(from) {
            return Err(Error::invalid("cursor", "is not one that dwell gave; begin without a cursor"));
        }
        let call = ScriptCall::new(&SCRIPTS.verify, &places.map(String::as_str))
            .arg(from)
            .arg(if repair { "repair" } else { "" })
            .arg(self.time_override());
        let mut reply = self.reply(&call).await?;
        let (seen, next) = (reply.number()?, reply.maybe_text()?.map(VerifyCursor));
        let findings = reply.each(|reply| {
            let (id, name) = (reply.text()?, reply.text()?);
            let defect = Defect::ALL.into_iter().find(|defect| defect.name() == name);
            let defect = defect.ok_or_else(|| Error::bug(format!("the script found {name:?}")))?;
            Ok(Finding { id, defect })
        })?;
        Ok(VerifyPage { seen, findings, next })
    }

    async fn move_page(
        &self,
        _from: &Descriptor,
        group_partition: &GroupPartition,
        to: &Descriptor,
    ) -> Result<MovedPage> {
        let wanted = format!("{} {}", to.topic, to.incarnation);
        let mut leaving = self.leaving(group_partition, &wanted).await?;
        if leaving.messages.is_empty() {
            return Ok(MovedPage::default());
        }
        if leaving.to != wanted {
            // Of a move to another topic, whose broker died or is overtaken.
            self.call_move_back(group_partition, Some(leaving.page)).await?;
            leaving = self.leaving(group_partition, &wanted).await?;
            if leaving.to != wanted {
                return Err(Error::unavailable("messages are being moved to another topic; try again"));
            }
        }
        let moved = self.place_leaving(group_partition, to, leaving).await?;
        match moved.arrived.refusal {
            // Nothing arrived, so nothing has to be remembered.
            Some(refusal) if moved.arrived.messages.is_empty() => {
                self.call_move_back(group_partition, Some(moved.arrived.page)).await?;
                Err(refusal)
            }
            _ => Ok(moved),
        }
    }

    async fn moved(&self, partition: &GroupPartition, page: &MovedPage) -> Result<()> {
        match page.arrived.refused.is_empty() {
            true => self.end_move(partition, page.arrived.page, &[]).await,
            false => self.call_move_back(partition, Some(page.arrived.page)).await,
        }
    }

    async fn call_back_move(&self, partition: &GroupPartition) -> Result<()> {
        self.call_move_back(partition, None).await
    }
}

/// A page of messages on its way to another topic.
struct Leaving {
    page: u64,
    stream: String,
    to: String,
    messages: Vec<MovedMessage>,
    /// How many losses were suspected before it was read.
    losses: u64,
}

impl Shared {
    async fn claim_collection(&self, member: &MemberId, ttl_ms: &str) -> Result<(String, Reply)> {
        let call =
            ScriptCall::new(&SCRIPTS.claim_stats, &[&self.keys.stats_collector()]).arg(member.as_str()).arg(ttl_ms);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        Ok((reply.text()?, reply))
    }

    /// The page that is on its way, or else the next one to this topic; none is begun with ''.
    async fn leaving(&self, group_partition: &GroupPartition, to: &str) -> Result<Leaving> {
        let (keys, losses) = (self.keys.group_partition(group_partition), self.losses.borrow().count);
        let places = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.moving];
        let generation = self.keys.generation(group_partition);
        let places = [&places[..], &[&keys.reservations, &keys.forwarding, &generation]].concat();
        let places: Vec<&str> = places.into_iter().map(String::as_str).collect();
        let take = ScriptCall::new(&SCRIPTS.move_out, &places)
            .arg(RECOVER_IDS_MAX)
            .arg(CALL_BYTES_MAX)
            .arg(self.time_override())
            .arg(random_text())
            .arg(to);
        let mut reply = Reply::of(self.eval_counted(group_partition, take).await?)?;
        reply.text()?;
        let (page, stream, to) = (reply.number()?, reply.text()?, reply.text()?);
        Ok(Leaving { page, stream, to, messages: read_page(reply)?, losses })
    }

    /// Places the messages of a page in each partition that they belong to.
    async fn place_leaving(
        &self,
        group_partition: &GroupPartition,
        to: &Descriptor,
        leaving: Leaving,
    ) -> Result<MovedPage> {
        let Leaving { page, stream, messages, losses, .. } = leaving;
        let arrived = Forwarded { page, stream: format!("{stream}@{}", self.name), ..Forwarded::default() };
        let mut moved = MovedPage { more: true, arrived, ..MovedPage::default() };
        let mut by_partition: BTreeMap<Partition, Vec<MovedMessage>> = BTreeMap::new();
        for message in messages {
            by_partition.entry(to.partition_of(&message.routing_key())).or_default().push(message);
        }
        for (partition, messages) in by_partition {
            let place = to.group_partition(partition, &group_partition.group);
            let ids: Vec<MessageId> = messages.iter().map(|message| message.id.clone()).collect();
            let dead = messages.iter().filter(|message| message.is_dead).count() as u64;
            match self.move_in(to, &place, (&stream, losses), messages, &mut moved).await {
                Ok(true) => {
                    moved.dead += dead;
                    moved.waiting += ids.len() as u64 - dead;
                }
                Ok(false) => moved.arrived.refused.extend(ids),
                Err(error) if error.is_outage() || error.kind() == Kind::OutcomeUnknown => {
                    if error.kind() == Kind::Unavailable && moved.arrived.messages.is_empty() {
                        // A full Redis takes no bodies, and gives these back. Otherwise the owner does.
                        let _ = self.call_move_back(group_partition, Some(page)).await;
                    }
                    return Err(error);
                }
                Err(error) => {
                    moved.arrived.refused.extend(ids);
                    moved.arrived.refusal = Some(error);
                }
            }
        }
        Ok(moved)
    }

    /// Ends a page: these go back, the others are in the other topic.
    async fn end_move(&self, group_partition: &GroupPartition, page: u64, given_back: &[MessageId]) -> Result<()> {
        let keys = self.keys.group_partition(group_partition);
        let shared = self.keys.partition(&group_partition.topic, group_partition.partition);
        let places = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.moving];
        let places = [&places[..], &[&keys.reservations, &shared.wake, &shared.generation]].concat();
        let places: Vec<&str> = places.into_iter().map(String::as_str).collect();
        let call = ScriptCall::new(&SCRIPTS.move_done, &places).arg(page);
        let call = given_back.iter().fold(call, |call, id| call.arg(id.as_str()));
        self.eval_counted(group_partition, call).await.map(drop)
    }

    /// Gives back what is on its way to another topic, of this page or of any, except for what is there already: first the
    /// other topic is closed to the page, so that no copy of it is placed later. If that topic was deleted, all of it.
    pub(super) async fn call_move_back(&self, group_partition: &GroupPartition, page: Option<u64>) -> Result<()> {
        let leaving = self.leaving(group_partition, "").await?;
        if leaving.messages.is_empty() || page.is_some_and(|page| page != leaving.page) {
            return Ok(());
        }
        let (topic, incarnation) = destination(&leaving.to)?;
        let there = self.topic_or_tombstone(&topic).await?;
        let there = there.filter(|there| !there.deleted && there.incarnation == incarnation);
        let mut by_partition: BTreeMap<Option<Partition>, Vec<MessageId>> = BTreeMap::new();
        for message in &leaving.messages {
            let partition = there.as_ref().map(|there| there.partition_of(&message.routing_key()));
            by_partition.entry(partition).or_default().push(message.id.clone());
        }
        let mut given_back = Vec::new();
        for (partition, ids) in by_partition {
            let is_placed = match partition {
                Some(partition) => self.close_to(&topic, partition, &leaving).await?,
                None => false,
            };
            given_back.extend(ids.into_iter().filter(|_| !is_placed));
        }
        self.end_move(group_partition, leaving.page, &given_back).await
    }

    /// Whether a partition has its part of a page; if not, it never will.
    async fn close_to(&self, topic: &TopicName, partition: Partition, leaving: &Leaving) -> Result<bool> {
        let close = ScriptCall::new(&SCRIPTS.move_close, &[&self.keys.partition(topic, partition).moved])
            .arg(&leaving.stream)
            .arg(leaving.page);
        Ok(self.reply(&close).await?.number()? == 1)
    }

    /// Places messages of a page in a partition, with new versions: the old ones end where the messages were taken. Answers
    /// false if the page was called back, or ended long ago.
    async fn move_in(
        &self,
        to: &Descriptor,
        group_partition: &GroupPartition,
        (stream, losses): (&str, u64),
        taken: Vec<MovedMessage>,
        moved: &mut MovedPage,
    ) -> Result<bool> {
        let (shared, keys) = (
            self.keys.partition(&group_partition.topic, group_partition.partition),
            self.keys.group_partition(group_partition),
        );
        let answered = self.keys.call(&group_partition.topic, group_partition.partition, &moved.arrived.stream);
        let own = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash].map(String::as_str);
        let places =
            [&[shared.generation.as_str(), &shared.moved, &shared.wake][..], &own, &[&answered, &keys.successors]]
                .concat();
        let mut messages = Vec::with_capacity(taken.len());
        let mut entries = Vec::with_capacity(taken.len());
        for MovedMessage { id, is_dead, score, charge, value, found } in taken {
            let value = match found {
                Ok((mut message, version)) => {
                    let new_version = self.clock.versions(1);
                    if let Some(successor) = &mut message.successor {
                        successor.version = self.clock.versions(1);
                        successor.dead_id = other_id(&successor.message, to, group_partition.partition, new_version);
                    }
                    let body = encode_body(&message, new_version)?;
                    messages.push(ForwardedMessage {
                        id: id.clone(),
                        version,
                        message,
                        new_version,
                        was_stored: false,
                    });
                    if is_dead { with_body(&value, &body) } else { body.into() }
                }
                Err(_) => value,
            };
            entries.push((id, if is_dead { "d" } else { "w" }, score, charge, value));
        }
        let make = |known: &str| {
            let call = ScriptCall::new(&SCRIPTS.move_in, &places)
                .after_losses(losses)
                .arg(known)
                .arg(stream)
                .arg(moved.arrived.page)
                .arg(GROUP_PARTITION_MESSAGES_MAX);
            Ok(entries.iter().fold(call, |call, (id, state, score, charge, value)| {
                call.arg(id.as_str()).arg(*state).arg(score).arg(charge).arg(value.as_ref())
            }))
        };
        let mut reply = Reply::of(self.eval_known(&to.topic, group_partition.partition, to.generation, make).await?)?;
        match reply.text()?.as_str() {
            "OK" => {}
            "CLOSED" => return Ok(false),
            "FULL" => return Err(full()),
            _ => return Err(self.overtaken(&group_partition.topic, group_partition.partition).await),
        }
        let was_placed = reply.number()? == 1;
        let there: HashSet<String> = reply.list()?.each(Reply::text)?.into_iter().collect();
        moved.there_already += there.len() as u64;
        for message in &mut messages {
            message.was_stored = was_placed || there.contains(message.id.as_str());
        }
        moved.arrived.messages.append(&mut messages);
        Ok(true)
    }
}

/// Bytes of a page up to which the next one may have twice as many messages.
const GROWING: usize = CALL_BYTES_MAX / 4;

const FIRST: &str = "h0";

fn is_cursor(text: &str) -> bool {
    let number = text.strip_prefix(['h', 'z', 'a', 'd', 'g']).unwrap_or_default();
    !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
}

struct MovedMessage {
    id: MessageId,
    is_dead: bool,
    score: String,
    charge: String,
    value: Bytes,
    /// The message in it and its version. An unreadable one is moved as it is.
    found: Result<(Message, Version)>,
}

impl MovedMessage {
    /// The key or id that decides its partition. One that cannot be read belongs where its id does.
    fn routing_key(&self) -> String {
        self.found.as_ref().map_or(self.id.to_string(), |(message, _)| message.routing_key().to_owned())
    }
}

fn read_page(reply: Reply) -> Result<Vec<MovedMessage>> {
    reply.each(|reply| {
        let id = MessageId::new(reply.text()?)?;
        let (is_dead, score, charge) = (reply.text()? == "d", reply.text()?, reply.text()?);
        let value = reply.bytes()?;
        let found = if is_dead {
            let dead = read(id.clone(), value.clone(), Timestamp::ZERO);
            dead.and_then(|dead| Ok((dead.message?, dead.version)))
        } else {
            // Its successor leaves with it.
            let version = newest_version(&value);
            decode_body(id.clone(), value.clone()).map(|message| (message, version))
        };
        Ok(MovedMessage { id, is_dead, score, charge, value, found })
    })
}
