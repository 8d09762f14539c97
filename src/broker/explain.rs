//! Why a message is not delivered yet; how many messages become due; and whether the keys of a group agree.

use std::time::Duration;

use super::Broker;
use crate::codec::Failure;
use crate::delivery::{BlockedReason, Located, Waits};
use crate::model::error::{Error, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{AUDIT_FINDINGS_MAX, DELAY_MAX, FORECAST_COUNTS_MAX, FORECAST_SPANS_MAX};
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::{Timestamp, ms_up, short_span, show_span};
use crate::model::topic::{Descriptor, Rest};
use crate::model::window::Phase;
use crate::store::{Finding, Forecast, MemberId, MessageState, Peeked, Spans, VerifyCursor};

/// Counts in one call to the store: a millisecond or two, in which it does nothing else.
const COUNTS_AT_ONCE: usize = 2_000;
/// Time until one call answers with a cursor.
const TURN: Duration = Duration::from_millis(500);

const BUFFERED: &str = "on this broker's disk, until the store takes it; it is due when it was pushed to be";

const UNKNOWN: &str = "never pushed with this id and key, or acked, cancelled, purged or expired since; \
                       or on the disk of another broker";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub partition: Partition,
    /// It is on the disk of this broker, on its way to the store.
    pub buffered: bool,
    pub groups: Vec<(GroupName, Reason)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// `scheduled`, `retrying`, `paused`, `closed`, `copying`, `no_consumer`, `rate_limited`, `at_max_in_flight`, `key_paused`, `key_at_max_in_flight`, `key_rate_limited`, `behind_others`,
    /// `ready`,    /// `in_flight`, `decided`, `prefetched`, `backoff`, `behind_its_key`, `moving`, `elsewhere`, `dead`, `buffered` or `unknown`.
    pub name: &'static str,
    /// A sentence without anything that a producer or a consumer said, but ids.
    pub detail: String,
    pub error: Option<LastError>,
    /// The first message of its key, if it is behind that.
    pub blocker: Option<MessageId>,
    /// When what it waits for is over at the latest, if that is known.
    pub until: Option<Timestamp>,
    /// The broker that owns its partition, if it is due.
    pub owner: Option<MemberId>,
}

impl Reason {
    fn new(name: &'static str, detail: impl Into<String>) -> Reason {
        Reason { name, detail: detail.into(), error: None, blocker: None, until: None, owner: None }
    }
}

impl Broker {
    /// Errors: `NotFound`, also for another key; `Ambiguous`, `Full`.
    pub async fn explain(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> Result<Explanation> {
        let descriptor = self.topics.peek(topic).await?;
        let partition = self.locate(&descriptor, id, key).await?.or_home(&descriptor, id);
        let read = self.reads.begin().await?;
        let buffered = !self.store.messages.buffered(topic, id).await?.is_empty();
        let mut groups = Vec::with_capacity(descriptor.groups.len());
        for group in &descriptor.groups {
            let group_partition = descriptor.group_partition(partition, group);
            let peeked = match read.call(self.store.reads.peek(&group_partition, id)).await {
                // The store is unavailable, but the message is on the local disk.
                Err(error) if buffered && error.is_outage() => None,
                peeked => peeked?,
            };
            let reason = match peeked {
                Some(peeked) => self.reason(&descriptor, group, partition, &peeked).await?,
                None if buffered => Reason::new("buffered", BUFFERED),
                None => Reason::new("unknown", UNKNOWN),
            };
            groups.push((group.clone(), reason));
        }
        Ok(Explanation { partition, buffered, groups })
    }

    pub(super) async fn reason(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let next_at = peeked.next_at.unwrap_or_default();
        Ok(match &peeked.state {
            MessageState::Dead { died_at, record } => {
                let (attempts, why) = (counted(record.attempts, "attempt"), record.reason.name());
                let reason = Reason::new("dead", format!("died at {died_at} after {attempts}, reason {why}"));
                Reason { error: record.last_error.clone(), ..reason }
            }
            MessageState::Scheduled if peeked.attempts > 0 => {
                let failed = peeked.history.last().map_or(String::new(), |last| format!(", the last at {}", last.at));
                let attempts = counted(peeked.attempts, "attempt");
                let closed = closed_at(next_at, descriptor, group);
                let why = format!("{attempts} failed{failed}; the next is at {next_at}{closed}");
                Reason { until: Some(next_at), error: last_error(peeked), ..Reason::new("retrying", why) }
            }
            MessageState::Scheduled => {
                let why = format!("due at {next_at}{}", closed_at(next_at, descriptor, group));
                Reason { until: Some(next_at), ..Reason::new("scheduled", why) }
            }
            MessageState::Ready => self.ready(descriptor, group, partition, peeked).await?,
            MessageState::InFlight if peeked.moving_to.is_some() => {
                let to = peeked.moving_to.as_ref().map_or("", TopicName::as_str);
                Reason::new("moving", format!("on its way to topic {to}: it arrives there, or comes back"))
            }
            MessageState::InFlight | MessageState::Blocked | MessageState::Backoff => {
                self.reserved(descriptor, group, partition, peeked).await?
            }
        })
    }

    async fn ready(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let now = self.store.backend.clock().now();
        Ok(match (descriptor.subscription(group).rest(now), &peeked.owner) {
            (Some(Rest::Copying), _) => Reason::new("copying", "the group gets a copy of another one first"),
            (Some(Rest::Paused(pause)), _) => {
                let until = pause.until.map_or("it is resumed".to_owned(), |until| until.to_string());
                Reason { until: pause.until, ..Reason::new("paused", format!("the group is paused until {until}")) }
            }
            (Some(Rest::Closed { opens_at }), _) => {
                let opens = opens_at
                    .map_or("in a time zone that this version does not know".to_owned(), |at| format!("at {at}"));
                Reason {
                    until: opens_at,
                    ..Reason::new("closed", format!("the window of the group is closed; it opens {opens}"))
                }
            }
            (None, owner) if let Some(until) = self.key_paused_until(descriptor, group, partition, peeked).await? => {
                let reason = held_up_by(BlockedReason::KeyPaused { until: Some(until) }, descriptor, (group, None));
                Reason { owner: owner.clone(), ..reason }
            }
            (None, None) => {
                Reason::new("no_consumer", "due, and no broker owns its partition: nobody consumes this group")
            }
            (None, Some(owner)) => {
                let key = peeked.message.envelope.key.as_ref();
                let reason = match self.locate_held(descriptor, partition, group, &[], key).await? {
                    Some((_, Some(held_up))) => held_up_by(held_up, descriptor, (group, key)),
                    Some((_, None)) => {
                        let stats = self.store.reads.stats(&[descriptor.group_partition(partition, group)]).await?;
                        let ready = stats.first().map_or(0, |stats| stats.ready);
                        let why = format!("due, as are {} of its partition", counted(ready, "message"));
                        Reason::new("behind_others", why)
                    }
                    None => Reason::new("ready", format!("due, and owned by {owner}, which does not answer")),
                };
                Reason { owner: Some(owner.clone()), ..reason }
            }
        })
    }

    /// As the store knows: the owner may not have heard of it yet, and without a consumer there is none.
    async fn key_paused_until(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Option<Timestamp>> {
        match &peeked.message.envelope.key {
            Some(key) if descriptor.is_fair(group) => {
                self.store.reads.paused_until(&descriptor.group_partition(partition, group), key).await
            }
            _ => Ok(None),
        }
    }

    async fn reserved(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let (ids, key) = (std::slice::from_ref(&peeked.message.id), peeked.message.envelope.key.as_ref());
        let (located, held_up) = self.locate_held(descriptor, partition, group, ids, key).await?.unwrap_or_default();
        let owner = peeked.owner.clone();
        let reason = match located.into_iter().next().flatten() {
            Some(Located::InFlight { attempt, until }) => {
                let why = format!("a consumer has it as attempt {attempt}, until {until}");
                Reason { until: Some(until), ..Reason::new("in_flight", why) }
            }
            Some(Located::Decided) => {
                Reason::new("decided", "its consumer has decided, and the store has not answered yet")
            }
            Some(Located::Ready) => match held_up {
                Some(held_up) => held_up_by(held_up, descriptor, (group, key)),
                None => Reason::new("prefetched", "due, and ready for the next consumer who asks its broker"),
            },
            Some(Located::Backoff { next_at, attempts }) => {
                let attempts = counted(attempts, "attempt");
                let why = format!("{attempts} failed; the next is at {next_at}, and its key waits for it");
                Reason { until: Some(next_at), error: last_error(peeked), ..Reason::new("backoff", why) }
            }
            Some(Located::Blocked { blocker, waits }) => behind(blocker, waits),
            None => {
                let by = owner.as_ref().map_or_else(
                    || "a broker that is gone; the next owner schedules it again".to_owned(),
                    |owner| format!("{owner}, which does not answer or has just let it go"),
                );
                Reason::new("elsewhere", format!("reserved by {by}"))
            }
        };
        Ok(Reason { owner, ..reason })
    }
}

/// Says when the window of the group opens, if it is closed when a message becomes due.
fn closed_at(at: Timestamp, descriptor: &Descriptor, group: &GroupName) -> String {
    let window = descriptor.subscriptions.get(group).and_then(|subscription| subscription.window.as_ref());
    match window.map(|window| window.phase(at)) {
        Some(Phase::Closed { opens_at: Some(opens) }) => {
            format!(", when the window of the group is closed; it opens at {opens}")
        }
        _ => String::new(),
    }
}

/// The reason of the last nack, if its consumer gave one.
fn last_error(peeked: &Peeked) -> Option<LastError> {
    peeked.history.last().and_then(Failure::last_error)
}

fn behind(blocker: MessageId, waits: Waits) -> Reason {
    let (until, why) = match waits {
        Waits::Consumer { until } => (Some(until), format!("a consumer has it until {until}")),
        Waits::Attempt { at } => (Some(at), format!("its next attempt is at {at}")),
        Waits::Turn => (None, "it waits for a consumer, or the store has not answered that it is settled".to_owned()),
    };
    let why = format!("behind message {blocker} of its key: {why}");
    Reason { until, blocker: Some(blocker), ..Reason::new("behind_its_key", why) }
}

fn held_up_by(
    blocked_reason: BlockedReason,
    descriptor: &Descriptor,
    (group, key): (&GroupName, Option<&Key>),
) -> Reason {
    let key_limits = || {
        let settings = descriptor.key_settings(group).unwrap_or_default();
        key.map_or(settings.limits, |key| settings.limits_of(key))
    };
    match blocked_reason {
        BlockedReason::NoConsumer { unasked } => {
            let since = short_span(unasked);
            let why = format!("due, and no consumer has asked its broker for messages for {since}");
            Reason::new("no_consumer", why)
        }
        BlockedReason::AtMaxInFlight => Reason::new(
            "at_max_in_flight",
            "due, and consumers have as many deliveries as the group may have in flight",
        ),
        BlockedReason::KeyPaused { until } => {
            let end = until.map_or(String::new(), |until| format!(" until {until}"));
            Reason { until, ..Reason::new("key_paused", format!("due, and its key is paused{end}")) }
        }
        BlockedReason::KeyAtMaxInFlight => {
            let limit = key_limits().in_flight.map_or(String::new(), |limit| format!(": {limit}"));
            let why = format!("due, and consumers have as many deliveries of its key as it may have in flight{limit}");
            Reason::new("key_at_max_in_flight", why)
        }
        BlockedReason::KeyRateLimited => {
            let rate = key_limits().rate.map_or(String::new(), |rate| format!(", {} a second", rate.per_second()));
            Reason::new("key_rate_limited", format!("due, and waits for the rate of its key{rate}"))
        }
        BlockedReason::RateLimited => {
            let rate = descriptor
                .subscription(group)
                .rate
                .map_or(String::new(), |rate| format!(", {} a second", f64::from(rate)));
            Reason::new("rate_limited", format!("due, and waits for its turn by the group's rate{rate}"))
        }
    }
}

impl Broker {
    /// Messages in flight are not counted, those behind their key are ready, and those in backoff are in no span. Errors: `NotFound`; `Invalid` out of range, or past [`FORECAST_COUNTS_MAX`]
    /// spans of all partitions together; `Full`.
    pub async fn forecast(
        &self,
        topic: &TopicName,
        group: &GroupName,
        step: Duration,
        count: usize,
    ) -> Result<(Spans, Forecast)> {
        if !(Duration::from_millis(1)..=DELAY_MAX).contains(&step) {
            return Err(Error::range("step", format!("is not in 1ms to {}", show_span(DELAY_MAX))));
        }
        if !(1..=FORECAST_SPANS_MAX).contains(&count) {
            return Err(Error::range("spans", format!("{count} is not in 1 to {FORECAST_SPANS_MAX}")));
        }
        let descriptor = self.topics.peek_group(topic, group).await?;
        let partitions = usize::from(descriptor.settings.partitions.get());
        if count * partitions > FORECAST_COUNTS_MAX {
            let most = FORECAST_COUNTS_MAX / partitions;
            let partitions = counted(partitions, "partition");
            let why = format!("{count} is too many for a topic of {partitions}; it has at most {most}");
            return Err(Error::range("spans", why));
        }
        let read = self.reads.begin().await?;
        let step = Duration::from_millis(ms_up(step));
        let spans = Spans { from: self.store.backend.clock().now(), step, count };
        let group_partitions: Vec<_> = descriptor.group_partitions(std::slice::from_ref(group)).collect();
        let mut all = Forecast { spans: vec![0; count], ..Forecast::default() };
        for some in group_partitions.chunks((COUNTS_AT_ONCE / count).max(1)) {
            for part in read.call(self.store.reads.forecast(some, spans)).await? {
                all.ready += part.ready;
                all.later += part.later;
                all.spans.iter_mut().zip(part.spans).for_each(|(sum, part)| *sum += part);
            }
        }
        let stats = self.stats_of(&read, &descriptor, std::slice::from_ref(group)).await?;
        all.ready = all.ready.max(stats.iter().map(|(_, stats)| stats.ready + stats.blocked).sum());
        all.backoff = stats.iter().map(|(_, stats)| stats.backoff).sum();
        Ok((spans, all))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    pub seen: u64,
    pub findings: Vec<(Partition, Finding)>,
    pub next: Option<String>,
}

impl Broker {
    /// Verifies for half a second, beside live traffic, that ids and bodies of a group agree; `repair` repairs. Errors:
    /// `NotFound`, `Invalid` cursor, `Full`.
    pub async fn audit(
        &self,
        topic: &TopicName,
        group: &GroupName,
        cursor: Option<&str>,
        repair: bool,
    ) -> Result<Audit> {
        let descriptor = self.topics.peek_group(topic, group).await?;
        let (mut partition, mut from) = cursor.map_or(Ok((Partition(0), None)), read)?;
        if partition.0 >= descriptor.settings.partitions.get() {
            return Err(super::wrong_cursor());
        }
        let read = self.reads.begin().await?;
        let until = self.clock().instant().plus(TURN);
        let mut audit = Audit::default();
        while partition.0 < descriptor.settings.partitions.get() {
            if audit.findings.len() >= AUDIT_FINDINGS_MAX || self.clock().instant() >= until {
                audit.next = Some(cursor_of(partition, from.as_ref()));
                break;
            }
            let page = read
                .call(self.store.maintenance.audit(
                    &descriptor.group_partition(partition, group),
                    from.as_ref(),
                    repair,
                ))
                .await?;
            audit.seen += page.seen;
            audit.findings.extend(page.findings.into_iter().map(|finding| (partition, finding)));
            from = page.next;
            if from.is_none() {
                partition.0 += 1;
            }
        }
        if repair {
            self.metrics.ownership.repairs.inc_by(audit.findings.len() as u64);
        }
        Ok(audit)
    }
}

/// `<partition>` or `<partition>:<cursor of the store>`.
fn cursor_of(partition: Partition, from: Option<&VerifyCursor>) -> String {
    from.map_or_else(|| partition.to_string(), |VerifyCursor(from)| format!("{partition}:{from}"))
}

fn read(cursor: &str) -> Result<(Partition, Option<VerifyCursor>)> {
    let (partition, from) = cursor.split_once(':').map_or((cursor, None), |(partition, from)| (partition, Some(from)));
    let partition = partition.parse().map(Partition).map_err(|_| super::wrong_cursor())?;
    Ok((partition, from.map(|from| VerifyCursor(from.to_owned()))))
}
