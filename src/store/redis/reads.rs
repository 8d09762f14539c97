//! Looking at messages without taking them, and counting them.

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::owner::{paused_key, read_charge, read_history};
use super::scripts::{Reply, SCRIPTS, ScriptCall, maybe_text};
use super::{Redis, Shared, dead_letters, ms};
use crate::codec::{body_version, decode_body};
use crate::model::error::{Error, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Key, MessageId, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::{
    self, Forecast, InFlightCursor, Listed, MemberId, MessageState, Outline, OutlinePage, Page, PartitionDepth,
    PartitionStats, PausedKey, Peeked, Spans, WaitingCursor, WaitingRange, Window, WindowPage,
};

/// Ids that one call for messages in flight looks at, after which it begins with no further reservation.
const LOOKS_MAX: usize = 2_000;

#[async_trait]
impl store::Reads for Redis {
    async fn peek(&self, partition: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        let keys = self.keys.group_partition(partition);
        let all = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.lease, &keys.moving];
        let call = ScriptCall::new(&SCRIPTS.peek, &all.map(String::as_str)).arg(id.as_str()).arg(self.time_override());
        let (status, mut reply) = self.ask(&call).await?;
        if status == "NONE" {
            return Ok(None);
        }
        let owner = reply.maybe_text()?.map(|owner| MemberId::from_store(&owner));
        if status == "LIVE" {
            let body = reply.bytes()?;
            let version = body_version(&body);
            let message = decode_body(id.clone(), body)?;
            let next_at = reply.time()?;
            let charge = reply.maybe_text()?.unwrap_or_default();
            let attempts = if charge.is_empty() { 0 } else { read_charge(&charge).0 };
            let history = read_history(&charge)?;
            let moving_to = reply.maybe_text()?.map(TopicName::new).transpose()?;
            let state = state_at(next_at, self.clock.now());
            return Ok(Some(Peeked { message, version, state, next_at, attempts, owner, history, moving_to }));
        }
        let dead = dead_letters::read(id.clone(), reply.bytes()?, reply.time()?.unwrap_or_default())?;
        let (attempts, message) = (dead.record.attempts, dead.message?);
        let state = MessageState::Dead { died_at: dead.died_at, record: dead.record };
        let version = dead.version;
        let (next_at, history, moving_to) = (None, Vec::new(), None);
        Ok(Some(Peeked { message, version, state, next_at, attempts, owner, history, moving_to }))
    }

    async fn check_kept(&self, partition: &GroupPartition) -> Result<()> {
        let GroupPartition { topic, partition, .. } = partition;
        match self.histories.of(topic, *partition) {
            Some(known) => self.compare(topic, *partition, Some(known)).await,
            None => Ok(()),
        }
    }

    async fn waiting(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        let mut reply = self.reply(&self.waiting_call(partition, window, after, limit)).await?;
        let next = read_next(&mut reply)?;
        Ok(Page { messages: reply.each(|reply| listed(reply, true))?, next })
    }

    async fn outlines(&self, ranges: &[WaitingRange]) -> Result<Vec<OutlinePage>> {
        let call = |range: &WaitingRange| {
            self.waiting_call(&range.partition, range.window, range.after.as_ref(), range.limit).arg("sizes")
        };
        let answers = self.connection.eval_all(&SCRIPTS.waiting, ranges.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| read_outlines(Reply::of(answer?)?)).collect()
    }

    async fn in_flight(
        &self,
        partition: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        let keys = self.keys.group_partition(partition);
        let places = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts].map(String::as_str);
        let last = after.and_then(|after| after.after.as_ref()).map_or("", MessageId::as_str);
        let call = ScriptCall::new(&SCRIPTS.in_flight, &places)
            .arg(after.map_or("0", |after| after.step.as_str()))
            .arg(last)
            .arg(limit.clamp(1, CALL_IDS_MAX))
            .arg(CALL_BYTES_MAX)
            .arg(LOOKS_MAX);
        let mut reply = self.reply(&call).await?;
        let (step, last) = (reply.maybe_text()?, reply.maybe_text()?);
        let mut page = Page { messages: reply.each(|reply| listed(reply, false))?, next: None };
        if let Some(step) = step {
            page.next = Some(InFlightCursor { step, after: last.map(MessageId::new).transpose()? });
        }
        Ok(page)
    }

    async fn paused_keys(&self, partition: &GroupPartition, limit: usize) -> Result<(u64, Vec<PausedKey>)> {
        let (paused, now) = (self.keys.group_partition(partition).paused, self.clock.now().as_ms());
        let from = format!("({now}");
        let count = self.connection.call(redis::cmd("ZCOUNT").arg(&paused).arg(&from).arg("+inf")).await?;
        let Value::Int(count) = count else { return Err(Error::corrupt("ZCOUNT answered no number")) };
        let count = u64::try_from(count).unwrap_or_default();
        if count == 0 {
            return Ok((0, Vec::new()));
        }
        let mut range = redis::cmd("ZRANGE");
        range.arg(&paused).arg(&from).arg("+inf").arg("BYSCORE").arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
        let page = Reply::of(self.connection.call(&range).await?)?.each(paused_key)?;
        Ok((count.max(page.len() as u64), page))
    }

    async fn paused_until(&self, partition: &GroupPartition, key: &Key) -> Result<Option<Timestamp>> {
        let paused = self.keys.group_partition(partition).paused;
        let until = self.connection.call(redis::cmd("ZSCORE").arg(&paused).arg(key.as_str())).await?;
        let Some(until) = maybe_text(until)? else { return Ok(None) };
        let until = until.parse().map(Timestamp::from_ms);
        let until = until.map_err(|_| Error::corrupt(format!("the pause of key {key} has no end")))?;
        Ok((until > self.clock.now()).then_some(until))
    }

    async fn stats(&self, partitions: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        Ok(self.depth(partitions, &[]).await?.into_iter().map(|depth| depth.stats).collect())
    }

    async fn depth(&self, partitions: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        let call = |partition| {
            let keys = self.keys.group_partition(partition);
            let call = ScriptCall::new(&SCRIPTS.stats, &[&keys.zset, &keys.hash, &keys.dead_zset, &keys.lease])
                .arg(self.time_override());
            within.iter().fold(call, |call, span| call.arg(ms(*span)))
        };
        let sent = self.clock.local().instant();
        let answers = self.connection.eval_all(&SCRIPTS.stats, partitions.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| self.read_depth(sent, answer?)).collect()
    }

    async fn forecast(&self, partitions: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        let call = |partition| {
            ScriptCall::new(&SCRIPTS.forecast, &[&self.keys.group_partition(partition).zset])
                .arg(spans.from.as_ms())
                .arg(u64::try_from(spans.step.as_millis()).unwrap_or(u64::MAX))
                .arg(spans.count)
        };
        let answers = self.connection.eval_all(&SCRIPTS.forecast, partitions.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| read(Reply::of(answer?)?)).collect()
    }

    async fn window(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        let (due, id) = after.map_or((Timestamp::ZERO, ""), |(due, id)| (*due, id.as_str()));
        let call = ScriptCall::new(&SCRIPTS.bulk_range, &[&self.keys.group_partition(partition).zset])
            .arg(window.from.as_ms())
            .arg(window.to.as_ms())
            .arg(id)
            .arg(due.as_ms())
            .arg(limit);
        let mut reply = self.reply(&call).await?;
        let count = reply.number()?;
        let messages = reply.each(|reply| {
            let id = MessageId::new(reply.text()?)?;
            Ok((reply.time()?.unwrap_or_default(), id))
        })?;
        Ok(WindowPage { count, messages })
    }
}

impl Shared {
    /// Fields of a hash, in the order asked.
    fn waiting_call(
        &self,
        partition: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> ScriptCall {
        let keys = self.keys.group_partition(partition);
        let (id, next_at) = after.map_or(("", 0), |after| (after.id.as_str(), after.next_at.as_ms()));
        ScriptCall::new(&SCRIPTS.waiting, &[&keys.zset, &keys.hash, &keys.attempts])
            .arg(window.from.as_ms())
            .arg(window.to.as_ms())
            .arg(id)
            .arg(next_at)
            .arg(limit.clamp(1, CALL_IDS_MAX))
            .arg(CALL_BYTES_MAX)
    }

    fn read_depth(&self, sent: Instant, value: Value) -> Result<PartitionDepth> {
        let (_, mut reply) = self.read(sent, value)?;
        let (scored, ready, bodies, dead) = (reply.number()?, reply.number()?, reply.number()?, reply.number()?);
        let head = reply.time()?;
        let owner = reply.text()?;
        let stats = PartitionStats {
            scheduled: scored.saturating_sub(ready),
            ready,
            in_flight: bodies.saturating_sub(scored),
            blocked: 0,
            backoff: 0,
            dead,
            head,
            oldest_ready_age: head.filter(|_| ready > 0).map(|head| self.clock.now().since(head)),
            owner: (!owner.is_empty()).then(|| MemberId::from_store(&owner)),
        };
        Ok(PartitionDepth { stats, due: reply.each(Reply::number)? })
    }
}

/// Where the next page of waiting messages begins, if there is more.
fn read_next(reply: &mut Reply) -> Result<Option<WaitingCursor>> {
    let is_more = reply.number()? > 0;
    let (id, next_at) = (reply.maybe_text()?, reply.time()?);
    let (true, Some(id), Some(next_at)) = (is_more, id, next_at) else { return Ok(None) };
    Ok(Some(WaitingCursor { next_at, id: MessageId::new(id)? }))
}

fn read_outlines(mut reply: Reply) -> Result<OutlinePage> {
    reply.text()?;
    let next = read_next(&mut reply)?;
    let messages = reply.each(|reply| {
        let id = MessageId::new(reply.text()?)?;
        let next_at = reply.time()?.unwrap_or_default();
        Ok(Outline { next_at, id, bytes: usize::try_from(reply.number()?).unwrap_or(usize::MAX) })
    })?;
    Ok(OutlinePage { messages, next })
}

fn listed(reply: &mut Reply, waits: bool) -> Result<Listed> {
    let id = MessageId::new(reply.text()?)?;
    let next_at = if waits { reply.time()? } else { None };
    let message = decode_body(id.clone(), reply.bytes()?);
    let charge = reply.maybe_text()?.unwrap_or_default();
    let attempts = if charge.is_empty() { 0 } else { read_charge(&charge).0 };
    Ok(Listed { id, next_at, attempts, history: read_history(&charge)?, message })
}

/// The state of a message that is tried next at this time; a body without a score is in a reservation.
fn state_at(next_at: Option<Timestamp>, now: Timestamp) -> MessageState {
    match next_at {
        Some(at) if at > now => MessageState::Scheduled,
        Some(_) => MessageState::Ready,
        None => MessageState::InFlight,
    }
}

fn read(mut reply: Reply) -> Result<Forecast> {
    reply.text()?;
    let mut forecast = Forecast { ready: reply.number()?, ..Forecast::default() };
    while reply.left() > 1 {
        forecast.spans.push(reply.number()?);
    }
    forecast.later = reply.number()?;
    Ok(forecast)
}
