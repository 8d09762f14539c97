//! Moving messages to another topic, a page at a time: taken out of one slot, placed into others, forgotten in the first.
//! Whoever makes these three calls may die between any two, or make them beside another: see the headers of the scripts.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Shared;
use super::dead::read;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::topics::sixteen_digits;
use crate::codec::decode_body;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, PAIR_MESSAGES_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::MovedPage;

/// A message that was taken.
struct Taken {
    id: MessageId,
    is_dead: bool,
    score: String,
    charge: String,
    value: Bytes,
}

impl Taken {
    /// What decides where it belongs. One that cannot be read belongs where its id does.
    fn routing_key(&self) -> String {
        let message = if self.is_dead {
            read(self.id.clone(), self.value.clone(), Timestamp::ZERO).and_then(|dead| dead.message)
        } else {
            decode_body(self.id.clone(), self.value.clone())
        };
        message.map_or(self.id.to_string(), |message| message.routing_key().to_owned())
    }
}

impl Shared {
    pub(super) async fn move_page(
        &self,
        from: &Descriptor,
        pair: &GroupPartition,
        to: &Descriptor,
    ) -> Result<MovedPage> {
        let keys = self.keys.pair(pair);
        let places = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.moving];
        let take = Call::new(&SCRIPTS.take, &places.map(String::as_str))
            .arg(RECOVER_IDS_MAX)
            .arg(CALL_BYTES_MAX)
            .arg(self.time_override());
        let mut reply = Reply::of(self.connection.eval(&take).await?)?;
        reply.text()?;
        let page = reply.number()?;
        let taken = read_page(reply)?;
        if taken.is_empty() {
            return Ok(MovedPage::default());
        }
        let mut moved = MovedPage { more: true, ..MovedPage::default() };
        moved.dead = taken.iter().filter(|taken| taken.is_dead).count() as u64;
        moved.waiting = taken.len() as u64 - moved.dead;
        let source = format!("{}:{}:{}:{}", pair.topic, from.incarnation, pair.partition, pair.group);
        let mut by_partition: BTreeMap<Partition, Vec<Taken>> = BTreeMap::new();
        for taken in taken {
            by_partition.entry(to.partition_of(&taken.routing_key())).or_default().push(taken);
        }
        for (partition, taken) in by_partition {
            moved.there_already += self.place(to, &to.pair(partition, &pair.group), &source, page, &taken).await?;
        }
        let done = Call::new(&SCRIPTS.moved, &[&keys.moving]).arg(page);
        self.connection.eval(&done).await?;
        Ok(moved)
    }

    async fn place(
        &self,
        to: &Descriptor,
        pair: &GroupPartition,
        source: &str,
        page: u64,
        taken: &[Taken],
    ) -> Result<u64> {
        let (shared, keys) = (self.keys.partition(&pair.topic, pair.partition), self.keys.pair(pair));
        let own = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash].map(String::as_str);
        let places = [&[shared.generation.as_str(), &shared.moved, &shared.wake][..], &own].concat();
        let mut call = Call::new(&SCRIPTS.place, &places)
            .arg(sixteen_digits(to.generation))
            .arg(source)
            .arg(page)
            .arg(PAIR_MESSAGES_MAX);
        for Taken { id, is_dead, score, charge, value } in taken {
            call =
                call.arg(id.as_str()).arg(if *is_dead { "d" } else { "w" }).arg(score).arg(charge).arg(value.as_ref());
        }
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        match reply.text()?.as_str() {
            "OK" => reply.number(),
            "FULL" => Err(Error::new(Kind::Full, format!("a partition holds at most {PAIR_MESSAGES_MAX} messages"))),
            _ => Err(Error::stale(format!("topic {} was changed or deleted; load it again", to.topic))),
        }
    }
}

fn read_page(mut reply: Reply) -> Result<Vec<Taken>> {
    let mut taken = Vec::with_capacity(reply.left() / 5);
    while reply.left() > 0 {
        let id = MessageId::new(reply.text()?)?;
        let (is_dead, score, charge) = (reply.text()? == "d", reply.text()?, reply.text()?);
        taken.push(Taken { id, is_dead, score, charge, value: reply.bytes()? });
    }
    Ok(taken)
}
