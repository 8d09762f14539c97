//! The owner of a partition: the handle of one epoch, with its sequence of numbered calls.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use super::Shared;
use super::histories::{Answered, Known, is_another};
use super::keys::GroupPartitionKeys;
use super::scripts::{Reply, SCRIPTS, Script, ScriptCall, time_of};
use crate::codec::{Failure, body_version, decode_first, decode_history, encode_attempt, encode_dead, encode_failure};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_IDS_MAX, DUE_LOOKED_AT_MAX, RECOVER_IDS_MAX, SORTED_KEYS_MAX};
use crate::model::message::{Key, MessageId};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::platform::clock::{Clock, Instant};
use crate::store::{
    Channel, Charge, Epoch, KeyCount, MemberId, Owner, PausedKey, Recovered, RepairCursor, Repaired, Reservation,
    ReserveLimit, Reserved, ReservedMessage, Returned, SORTED, Settlement, Sorted, SortedKeys,
};

const REPEAT_AFTER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

const BODY_BYTES_GUESS: usize = 512;

/// Bodies that a reservation reads at a time to see whether they still fit: all may be of the largest size.
const BODIES_READ_MAX: usize = 32;

pub(super) struct RedisOwner {
    shared: Arc<Shared>,
    /// Its keys are made for each call: there may be thousands of owners that make none.
    group_partition: GroupPartition,
    member: MemberId,
    epoch: Epoch,
    last_delivery: Timestamp,
    /// The owner line that Redis answered last: `<epoch>/<seq>/<stamp>`.
    line: String,
    seq: u64,
    left_behind: bool,
    /// True while a call is out. It stays true when the call is abandoned: then the line is unknown for good.
    out: bool,
    /// Whether Redis may have applied the last call although it never answered a copy of it.
    in_doubt: bool,
    /// Moving mean of body sizes: how many bodies fit into the byte limit of a reservation.
    body_bytes: usize,
    positions: ReservationOrder,
}

impl RedisOwner {
    pub(super) fn new(
        shared: Arc<Shared>,
        group_partition: &GroupPartition,
        member: MemberId,
        epoch: Epoch,
        last_delivery: Timestamp,
        (line, reservations): (String, u64),
    ) -> RedisOwner {
        let (group_partition, left_behind, positions) =
            (group_partition.clone(), reservations > 0, ReservationOrder::default());
        let (seq, out, in_doubt, body_bytes) = (0, false, false, BODY_BYTES_GUESS);
        RedisOwner {
            shared,
            group_partition,
            member,
            epoch,
            last_delivery,
            line,
            seq,
            left_behind,
            out,
            in_doubt,
            body_bytes,
            positions,
        }
    }

    fn keys(&self) -> GroupPartitionKeys {
        self.shared.keys.group_partition(&self.group_partition)
    }

    fn numbered_call(&self, script: &'static Script, keys: &[&str]) -> ScriptCall {
        ScriptCall::new(script, keys)
            .arg(&self.line)
            .arg(format!("{}/{}/", self.epoch, self.seq + 1))
            .arg(self.shared.time_override())
    }

    fn reserve_call(&self, script: &'static Script, keys: &[&str], limit: ReserveLimit) -> ScriptCall {
        self.numbered_call(script, keys)
            .arg(field(&self.epoch, Reservation(self.seq + 1)))
            .arg(limit.messages.min(CALL_IDS_MAX))
            .arg(limit.bytes)
            .arg((limit.bytes / self.body_bytes.max(1)).clamp(1, BODIES_READ_MAX))
    }

    /// Makes the call of a reservation, and reads what it took. Answers also the rest of the answer.
    async fn taken(&mut self, call: ScriptCall) -> Result<(Reserved, Reply)> {
        let reservation = Reservation(self.seq + 1);
        let mut reply = self.answer(call).await?;
        let head = reply.head()?;
        let unsettled = reply.number()?;
        let dropped = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let (mut messages, charged) = reserved_messages(&reply.text()?, reply.list()?, reply.list()?)?;
        if self.positions.are_kept() {
            self.positions.note(&mut messages, &charged, reply.list()?)?;
        }
        if !messages.is_empty() {
            let mean = messages.iter().map(|message| message.bytes).sum::<usize>() / messages.len();
            self.body_bytes = (self.body_bytes * 3 + mean) / 4;
        }
        let (sorted_left, sorted, paused) = (Vec::new(), Vec::new(), Vec::new());
        Ok((Reserved { reservation, messages, head, sorted_left, sorted, paused, dropped, unsettled }, reply))
    }

    /// Counts the sorted messages of these keys, and of all others that have some.
    async fn count_sorted(&mut self, asked: &[KeyCount]) -> Result<(Vec<u64>, Vec<KeyCount>)> {
        let mut sorted = self.all_sorted_keys().await?;
        let count =
            |asked: &KeyCount| sorted.iter().find(|sorted| sorted.key == asked.key).map_or(0, |sorted| sorted.messages);
        let left = asked.iter().map(count).collect();
        sorted.retain(|sorted| asked.iter().all(|asked| asked.key != sorted.key));
        Ok((left, sorted))
    }

    /// Makes a call of the sequence, again and again until it is answered.
    async fn answer(&mut self, call: ScriptCall) -> Result<Reply> {
        Ok(self.known_answer(call).await?.0)
    }

    /// Makes a call of the sequence until it is answered. Answers also what was known of the partition when the call was made.
    async fn known_answer(&mut self, mut call: ScriptCall) -> Result<(Reply, Option<Arc<Known>>)> {
        if self.out {
            return Err(Error::stale("a call of this owner was abandoned, so nobody knows whether the store made it"));
        }
        self.out = true;
        let Repeated { mut reply, sent, known } = self.repeat(&mut call).await?;
        let (status, line) = (reply.text()?, reply.text()?);
        if status != "OK" {
            let detail = format!("{} found the owner line {line:?}: {status}", call.script.verb);
            return Err(Error::stale(format!("epoch {} owns the partition no more; {detail}", self.epoch)));
        }
        // The stamp of a repeated call may be that of its first copy, which says nothing about the time now.
        if let (Some(sent), Some(stamp)) = (sent, stamp(&line)) {
            self.shared.clock.observe(sent, stamp);
        }
        self.line = line;
        self.seq += 1;
        self.out = false;
        self.in_doubt = false;
        Ok((reply, known))
    }

    fn lost(&self) -> Error {
        Error::stale(format!("epoch {} owns the partition no more", self.epoch))
    }

    /// Makes a call in the process of Redis in which the partition is known; `None` if there is another one: then the partition was
    /// compared, and nothing was sent. The owner line says whether the store still has what this owner did.
    async fn call_known(&self, call: &mut ScriptCall) -> Result<Option<(Value, Option<Arc<Known>>)>> {
        let GroupPartition { topic, partition, .. } = &self.group_partition;
        let known = self.shared.histories.of(topic, *partition);
        call.only_in(known.as_ref().map(|known| known.process()));
        let value = self.shared.connection.eval(call).await?;
        if !is_another(&value) {
            return Ok(Some((value, known)));
        }
        match self.shared.compare(topic, *partition, known).await {
            Err(error) if error.kind() != Kind::Stale => Err(error),
            _ => Ok(None),
        }
    }

    /// Makes a call until it is answered, each time in the process of Redis in which the partition is known.
    async fn repeat(&mut self, call: &mut ScriptCall) -> Result<Repeated> {
        let mut pause = REPEAT_AFTER.0;
        let mut unanswered = false;
        let mut sent = Some(self.shared.clock.local().instant());
        loop {
            // This future may be dropped while the copy is out.
            self.in_doubt = true;
            match self.call_known(call).await {
                Ok(Some((value, known))) => {
                    self.in_doubt = unanswered;
                    return Ok(Repeated { reply: Reply::of(value)?, sent, known });
                }
                Ok(None) => {}
                Err(error) if error.is_outage() => {
                    unanswered |= error.kind() == Kind::OutcomeUnknown;
                    self.in_doubt = unanswered;
                    tracing::debug!(verb = call.script.verb, epoch = %self.epoch, %error, "a call is repeated");
                    Clock::System.sleep(pause).await;
                    pause = (pause * 2).min(REPEAT_AFTER.1);
                    sent = None;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[async_trait]
impl Owner for RedisOwner {
    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    fn keep_positions(&mut self) {
        self.positions.keep();
    }

    async fn recover(&mut self) -> Result<Recovered> {
        let keys = self.keys();
        let keys = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts, &keys.by_key].map(String::as_str);
        let mut call = ScriptCall::new(&SCRIPTS.recover, &keys)
            .arg(self.epoch.to_string())
            .arg(RECOVER_IDS_MAX)
            .arg(self.shared.time_override());
        let mut reply = self.repeat(&mut call).await?.reply;
        if reply.text()? != "OK" {
            return Err(self.lost());
        }
        reply.number()?;
        let messages = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let (more, orphans, is_moving) = (reply.number()? == 1, reply.number()?, reply.number()? == 1);
        let has_sorted = reply.number()? == 1;
        Ok(Recovered { messages, left_behind: self.left_behind, more, orphans, is_moving, has_sorted })
    }

    async fn repair(&mut self, from: Option<RepairCursor>) -> Result<Repaired> {
        let keys = self.keys();
        let keys = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts].map(String::as_str);
        let mut call = ScriptCall::new(&SCRIPTS.repair, &keys)
            .arg(self.epoch.to_string())
            .arg(from.map_or("0".to_owned(), |RepairCursor(cursor)| cursor))
            .arg(self.shared.time_override());
        let mut reply = self.repeat(&mut call).await?.reply;
        if reply.text()? != "OK" {
            return Err(self.lost());
        }
        reply.number()?;
        let messages = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let next = Some(reply.text()?).filter(|cursor| cursor != "0").map(RepairCursor);
        Ok(Repaired { messages, next })
    }

    async fn reserve(&mut self, limit: ReserveLimit) -> Result<Reserved> {
        let keys = self.keys();
        let keys = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts].map(String::as_str);
        let script = if self.positions.are_kept() { &SCRIPTS.reserve_ordered } else { &SCRIPTS.reserve };
        let call = self.reserve_call(script, &keys, limit);
        Ok(self.taken(call).await?.0)
    }

    async fn reserve_by_key(
        &mut self,
        limit: ReserveLimit,
        asked: &[KeyCount],
        share: Option<usize>,
    ) -> Result<Reserved> {
        if self.positions.are_kept() {
            return Err(Error::bug("a topic with ordering has no sorted messages"));
        }
        let sorted = asked.iter().map(|asked| usize::try_from(asked.messages).unwrap_or(usize::MAX));
        let sorted = sorted.fold(0, usize::saturating_add);
        check_ids(sorted, CALL_IDS_MAX)?;
        check_ids(asked.len(), SORTED_KEYS_MAX)?;
        let limit = ReserveLimit { messages: limit.messages.min(CALL_IDS_MAX - sorted), ..limit };
        let keys = self.keys();
        let keys = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts, &keys.by_key, &keys.paused];
        let keys = keys.map(String::as_str);
        let looks = share.map_or(limit.messages, |_| DUE_LOOKED_AT_MAX);
        let call = self
            .reserve_call(&SCRIPTS.reserve_by_key, &keys, limit)
            .arg(share.map_or_else(String::new, |share| share.to_string()))
            .arg(looks);
        let call = asked.iter().fold(call, |call, asked| call.arg(asked.messages).arg(key_text(asked.key.as_ref())));
        let (mut reserved, mut reply) = self.taken(call).await?;
        // A repeat does not say what its first copy has sorted.
        if reply.left() == 0 {
            (reserved.sorted_left, reserved.sorted) = self.count_sorted(asked).await?;
        } else {
            reserved.sorted_left = reply.list()?.each(Reply::number)?;
            reserved.sorted = reply.list()?.each(key_count)?;
            reserved.paused = reply.list()?.each(paused_key)?;
        }
        Ok(reserved)
    }

    async fn sorted_keys(&mut self, after: Option<&KeyCount>) -> Result<SortedKeys> {
        let keys = self.keys();
        let mut call = ScriptCall::new(&SCRIPTS.sorted_keys, &[&keys.by_key]).arg(SORTED_KEYS_MAX);
        if let Some(after) = after {
            call = call.arg(key_text(after.key.as_ref()));
        }
        let mut reply = self.repeat(&mut call).await?.reply;
        reply.text()?;
        let more = reply.number()? == 1;
        Ok(SortedKeys { keys: reply.each(key_count)?, more })
    }

    async fn settle(&mut self, settlement: &Settlement) -> Result<()> {
        check_ids(settlement.len(), CALL_IDS_MAX)?;
        let GroupPartition { topic, partition, .. } = self.group_partition.clone();
        let (own, shared) = (self.keys(), self.shared.keys.partition(&topic, partition));
        let keys = [&own.reservations, &own.zset, &own.hash, &own.attempts, &own.dead_zset, &own.dead_hash];
        let seen: &[&String] = if settlement.dedup_window.is_zero() { &[] } else { &[&shared.seen] };
        let by_key: &[&String] = if is_by_key(settlement) { &[&own.by_key, &own.paused] } else { &[] };
        let keys = [&keys[..], &[&own.successors], seen, by_key, &[&shared.generation]].concat();
        let keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
        let call = self.numbered_call(&SCRIPTS.settle, &keys);
        let call = settlement_args(call, &self.epoch, settlement, &self.positions)?;
        let losses = self.shared.losses.borrow().count;
        let (mut reply, known) = self.known_answer(call).await?;
        self.positions.forget(settlement);
        let count = reply.maybe_number()?.unwrap_or_default();
        if reply.left() > 0 {
            // A successor may be due before all that waits.
            self.shared.wakes.wake(&Channel::head(&self.group_partition));
        }
        self.shared.answered(&topic, partition, known, Answered { count, losses, generation: 0 }).await
    }

    async fn start(&mut self, charges: &[Charge]) -> Result<()> {
        check_ids(charges.len(), CALL_IDS_MAX)?;
        let keys = self.keys();
        let keys = [&keys.reservations, &keys.attempts, &keys.hash].map(String::as_str);
        let call = self.numbered_call(&SCRIPTS.start, &keys);
        let call = charges.iter().fold(call, |call, charge| call.arg(charge.id.as_str()).arg(charge.attempts));
        self.answer(call).await.map(drop)
    }

    fn last_delivery(&self) -> Timestamp {
        self.last_delivery
    }

    async fn release(self: Box<Self>, last_delivery: Timestamp) -> Result<()> {
        let (keys, wake) =
            (self.keys(), self.shared.keys.wake(&self.group_partition.topic, self.group_partition.partition));
        let call = ScriptCall::new(&SCRIPTS.release, &[&keys.lease, &keys.reservations, &wake])
            .arg(self.member.as_str())
            .arg(self.epoch.to_string())
            .arg(format!("{}.-/{}/", self.epoch.number(), last_delivery.as_ms()))
            .arg(self.shared.time_override());
        match self.shared.ask(&call).await?.0.as_str() {
            "OK" => Ok(()),
            _ => Err(self.lost()),
        }
    }
}

/// An answer to a call, when it was sent, if it was sent only once, and what was known of the partition then.
struct Repeated {
    reply: Reply,
    sent: Option<Instant>,
    known: Option<Arc<Known>>,
}

pub(super) fn check_ids(count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::bug(format!("a call with {count} message ids, at most {most} are allowed")));
    }
    Ok(())
}

/// The microsecond at the end of an owner line.
fn stamp(line: &str) -> Option<u64> {
    line.rsplit_once('/')?.1.parse().ok()
}

fn field(epoch: &Epoch, reservation: Reservation) -> String {
    format!("{epoch}.{}", reservation.0)
}

/// With each whether it has a charge, which says when it is due again.
fn reserved_messages(ids: &str, mut bodies: Reply, mut attempts: Reply) -> Result<(Vec<ReservedMessage>, Vec<bool>)> {
    let (mut messages, mut are_charged) = (Vec::with_capacity(bodies.left()), Vec::with_capacity(bodies.left()));
    for id in ids.split_ascii_whitespace() {
        let id = MessageId::new(id)?;
        let body: Bytes = bodies.bytes()?;
        let charged = if attempts.left() > 0 { attempts.maybe_text()? } else { None };
        are_charged.push(charged.is_some());
        let (attempts, retry_at) = charged.as_deref().map_or((0, None), read_charge);
        let (bytes, version) = (body.len(), body_version(&body));
        let message = decode_first(id.clone(), body);
        let ready_at = retry_at.or(message.as_ref().ok().map(|message| message.due_at)).unwrap_or_default();
        messages.push(ReservedMessage { id, ready_at, position: ready_at, attempts, bytes, version, message });
    }
    Ok((messages, are_charged))
}

fn settlement_args(
    mut call: ScriptCall,
    epoch: &Epoch,
    settlement: &Settlement,
    positions: &ReservationOrder,
) -> Result<ScriptCall> {
    call = call.arg(u64::try_from(settlement.dedup_window.as_millis()).unwrap_or(u64::MAX));
    call = call.arg(settlement.acked.len());
    for id in &settlement.acked {
        call = call.arg(id.as_str());
    }
    call = call.arg(2 * (settlement.retried.len() + settlement.returned.len()));
    for retried in &settlement.retried {
        call = call.arg(retried.next_at.as_ms()).arg(retried.id.as_str());
    }
    for returned in &settlement.returned {
        call = call.arg(positions.score(returned)).arg(returned.id.as_str());
    }
    let line =
        |failure: &Option<Failure>, encode: fn(&Failure) -> String| failure.as_ref().map_or(String::new(), encode);
    call = call.arg(3 * (settlement.retried.len() + settlement.kept.len()));
    for retried in settlement.retried.iter().chain(&settlement.kept) {
        let charge = write_charge(retried.attempts, retried.next_at);
        call = call.arg(retried.id.as_str()).arg(charge).arg(line(&retried.failure, encode_attempt));
    }
    call = call.arg(3 * settlement.buried.len());
    for buried in &settlement.buried {
        // Its record has the error.
        let line = line(&buried.failure, encode_failure);
        call = call.arg(buried.id.as_str()).arg(encode_dead(&buried.record)?).arg(line);
    }
    let (kept, gone): (Vec<_>, Vec<_>) = settlement.remaining.iter().partition(|(_, ids)| !ids.is_empty());
    call = call.arg(2 * kept.len());
    for (reservation, ids) in kept {
        let ids: Vec<_> = ids.iter().map(|id| positions.entry(id)).collect();
        call = call.arg(field(epoch, *reservation)).arg(ids.join(" "));
    }
    call = call.arg(gone.len());
    for (reservation, _) in gone {
        call = call.arg(field(epoch, *reservation));
    }
    if is_by_key(settlement) {
        call = call.arg(3 * settlement.sorted.len());
    }
    for sorted in &settlement.sorted {
        let score = SORTED.saturating_add(sorted.ready_at.as_ms());
        call = call.arg(score).arg(sorted.id.as_str()).arg(sorted_entry(sorted));
    }
    if is_by_key(settlement) {
        call = call.arg(2 * settlement.paused.len());
    }
    for PausedKey { key, until } in &settlement.paused {
        call = call.arg(until.as_ms()).arg(key.as_str());
    }
    Ok(call)
}

/// Whether its call has a part about keys.
fn is_by_key(settlement: &Settlement) -> bool {
    !settlement.sorted.is_empty() || !settlement.paused.is_empty()
}

/// The entry of a sorted message among those of its key. No key has a NUL.
fn sorted_entry(Sorted { id, key, ready_at }: &Sorted) -> String {
    format!("{}\0{:013}{id}", key_text(key.as_ref()), ready_at.as_ms())
}

fn key_count(reply: &mut Reply) -> Result<KeyCount> {
    let key = reply.maybe_text()?.map(Key::new).transpose()?;
    Ok(KeyCount { key, messages: reply.number()? })
}

pub(super) fn paused_key(reply: &mut Reply) -> Result<PausedKey> {
    let key = Key::new(reply.text()?)?;
    Ok(PausedKey { key, until: reply.time()?.unwrap_or_default() })
}

/// The messages without a key are those of an empty one, which none has.
fn key_text(key: Option<&Key>) -> &str {
    key.map_or("", Key::as_str)
}

/// The attempts, and when the message is due again. The scripts keep its history behind them.
fn write_charge(attempts: u32, next_at: Timestamp) -> String {
    format!("{attempts} {}", next_at.as_ms())
}

pub(super) fn read_charge(text: &str) -> (u32, Option<Timestamp>) {
    let mut parts = text.splitn(3, ' ');
    let (attempts, next_at) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    (attempts.parse().unwrap_or(1), next_at.parse().ok().map(Timestamp::from_ms))
}

pub(super) fn read_history(charge: &str) -> Result<Vec<Failure>> {
    charge.splitn(3, ' ').nth(2).map_or(Ok(Vec::new()), |lines| decode_history(lines.as_bytes()))
}

/// Positions of unsettled messages; none in a topic without ordering. A position is a score that Redis gave, kept as text so
/// that no digit is lost: the millisecond and so many 2048ths.
#[derive(Debug, Default)]
pub(super) struct ReservationOrder(Option<HashMap<MessageId, String>>);

impl ReservationOrder {
    pub(super) fn keep(&mut self) {
        self.0.get_or_insert_default();
    }

    fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// A message without a charge is due at its position.
    pub(super) fn note(
        &mut self,
        messages: &mut [ReservedMessage],
        are_charged: &[bool],
        mut positions: Reply,
    ) -> Result<()> {
        let Some(known) = &mut self.0 else { return Ok(()) };
        for (message, is_charged) in messages.iter_mut().zip(are_charged) {
            let position = positions.text()?;
            message.position = time_of(&position)
                .ok_or_else(|| Error::corrupt(format!("Redis answered {position:?} as a position")))?;
            if !is_charged {
                message.ready_at = message.position;
            }
            known.insert(message.id.clone(), position);
        }
        Ok(())
    }

    pub(super) fn score<'a>(&'a self, returned: &Returned) -> Cow<'a, str> {
        match self.of(&returned.id) {
            Some(position) => position.into(),
            None => returned.ready_at.as_ms().to_string().into(),
        }
    }

    /// The entry of a message in its reservation: the id and, if kept, its position behind a byte that no id has.
    pub(super) fn entry<'a>(&self, id: &'a MessageId) -> Cow<'a, str> {
        match self.of(id) {
            Some(position) => format!("{id}\u{1}{position}").into(),
            None => id.as_str().into(),
        }
    }

    pub(super) fn forget(&mut self, settlement: &Settlement) {
        let Some(known) = &mut self.0 else { return };
        let gone = settlement.acked.iter().chain(settlement.returned.iter().map(|returned| &returned.id));
        for id in gone.chain(settlement.buried.iter().map(|buried| &buried.id)) {
            known.remove(id);
        }
    }

    fn of(&self, id: &MessageId) -> Option<&str> {
        self.0.as_ref()?.get(id).map(String::as_str)
    }
}
