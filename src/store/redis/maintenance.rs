//! Copying a group, moving a topic and verifying a partition, a page at a time; and which member counts for all.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::dead_letters::read;
use super::failure::full;
use super::scripts::{Call, Reply, SCRIPTS};
use super::topics::sixteen_digits;
use super::{Redis, Shared, ms};
use crate::codec::decode_body;
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, GROUP_PARTITION_MESSAGES_MAX, RECOVER_IDS_MAX};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{
    self, Copied, CopyCursor, Defect, Finding, MemberId, MovedPage, StatsClaim, VerifyCursor, VerifyPage,
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
        let keys =
            [&shared.generation, &source_keys.zset, &source_keys.hash, &source_keys.attempts, &keys.zset, &keys.hash];
        let call = Call::new(&SCRIPTS.copy, &keys.map(String::as_str))
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
        let call = Call::new(&SCRIPTS.audit, &places.map(String::as_str))
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
        from: &Descriptor,
        group_partition: &GroupPartition,
        to: &Descriptor,
    ) -> Result<MovedPage> {
        let keys = self.keys.group_partition(group_partition);
        let places = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.moving];
        let take = Call::new(&SCRIPTS.take, &places.map(String::as_str))
            .arg(RECOVER_IDS_MAX)
            .arg(CALL_BYTES_MAX)
            .arg(self.time_override());
        let mut reply = self.reply(&take).await?;
        let page = reply.number()?;
        let taken = read_page(reply)?;
        if taken.is_empty() {
            return Ok(MovedPage::default());
        }
        let mut moved = MovedPage { more: true, ..MovedPage::default() };
        moved.dead = taken.iter().filter(|taken| taken.is_dead).count() as u64;
        moved.waiting = taken.len() as u64 - moved.dead;
        let source = format!(
            "{}:{}:{}:{}",
            group_partition.topic, from.incarnation, group_partition.partition, group_partition.group
        );
        let mut by_partition: BTreeMap<Partition, Vec<Taken>> = BTreeMap::new();
        for taken in taken {
            by_partition.entry(to.partition_of(&taken.routing_key())).or_default().push(taken);
        }
        for (partition, taken) in by_partition {
            moved.there_already +=
                self.place(to, &to.group_partition(partition, &group_partition.group), &source, page, &taken).await?;
        }
        let done = Call::new(&SCRIPTS.moved, &[&keys.moving]).arg(page);
        self.connection.eval(&done).await?;
        Ok(moved)
    }
}

impl Shared {
    async fn claim_collection(&self, member: &MemberId, ttl_ms: &str) -> Result<(String, Reply)> {
        let call = Call::new(&SCRIPTS.census, &[&self.keys.stats_collector()]).arg(member.as_str()).arg(ttl_ms);
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        Ok((reply.text()?, reply))
    }

    async fn place(
        &self,
        to: &Descriptor,
        group_partition: &GroupPartition,
        source: &str,
        page: u64,
        taken: &[Taken],
    ) -> Result<u64> {
        let (shared, keys) = (
            self.keys.partition(&group_partition.topic, group_partition.partition),
            self.keys.group_partition(group_partition),
        );
        let own = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash].map(String::as_str);
        let places = [&[shared.generation.as_str(), &shared.moved, &shared.wake][..], &own].concat();
        let mut call = Call::new(&SCRIPTS.place, &places)
            .arg(sixteen_digits(to.generation))
            .arg(source)
            .arg(page)
            .arg(GROUP_PARTITION_MESSAGES_MAX);
        for Taken { id, is_dead, score, charge, value } in taken {
            call =
                call.arg(id.as_str()).arg(if *is_dead { "d" } else { "w" }).arg(score).arg(charge).arg(value.as_ref());
        }
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        match reply.text()?.as_str() {
            "OK" => reply.number(),
            "FULL" => Err(full()),
            _ => Err(Error::stale(format!("topic {} was changed or deleted; load it again", to.topic))),
        }
    }
}

/// Bytes of a page up to which the next one may have twice as many messages.
const GROWING: usize = CALL_BYTES_MAX / 4;

const FIRST: &str = "h0";

fn is_cursor(text: &str) -> bool {
    let number = text.strip_prefix(['h', 'z', 'a', 'd', 'g']).unwrap_or_default();
    !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
}

struct Taken {
    id: MessageId,
    is_dead: bool,
    score: String,
    charge: String,
    value: Bytes,
}

impl Taken {
    /// The key or id that decides its partition. One that cannot be read belongs where its id does.
    fn routing_key(&self) -> String {
        let message = if self.is_dead {
            read(self.id.clone(), self.value.clone(), Timestamp::ZERO).and_then(|dead| dead.message)
        } else {
            decode_body(self.id.clone(), self.value.clone())
        };
        message.map_or(self.id.to_string(), |message| message.routing_key().to_owned())
    }
}

fn read_page(reply: Reply) -> Result<Vec<Taken>> {
    reply.each(|reply| {
        let id = MessageId::new(reply.text()?)?;
        let (is_dead, score, charge) = (reply.text()? == "d", reply.text()?, reply.text()?);
        Ok(Taken { id, is_dead, score, charge, value: reply.bytes()? })
    })
}
