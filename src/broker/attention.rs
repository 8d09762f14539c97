//! The reasons for an operator to act, each with its cause in words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::Broker;
use super::overview::Point;
use super::topics::TOPICS_SEEN_MAX;
use crate::model::error::{Kind, Result};
use crate::model::message::{GroupName, LATE, MessageId, TopicName};
use crate::model::spelling::{counted, names, thousands};
use crate::model::time::short_span;
use crate::model::topic::{Descriptor, Expiry, GroupPartition, Rest};
use crate::platform::clock::Instant;
use crate::store::{DeadLetterCursor, Eviction, Fullness, MemberId, MessageState, NodeMemory, PartitionStats, Window};

/// Dead letters, retries and takeovers of so long ago still matter.
const RECENT: Duration = Duration::from_secs(30 * 60);
/// Retries of fewer deliveries are no storm.
const STORM_DELIVERIES_MIN: u64 = 20;
/// How long an answer is given again.
const BELIEVED: Duration = Duration::from_secs(2);
const CONCERNS_MAX: usize = 200;

// As in grafana/prometheus/rules.yml.
const BLOCKED_MIN: u64 = 100;
const LONG: Duration = Duration::from_secs(300);
const DISK_LOW_BYTES: u64 = 512 * 1024 * 1024;
const OPEN_FILES_PERCENT: u64 = 80;
const CLOCK_OFFSET_MAX_S: f64 = 5.0;

/// Reserved messages of a late partition that are looked at.
const RESERVED_LOOKED_AT: usize = 50;

/// The kinds of concerns, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConcernKind {
    NotReady,
    Evicting,
    Unreadable,
    Restoring,
    MemoryFilling,
    WalFilling,
    Degraded,
    DiskLow,
    BrokerGone,
    NoConsumer,
    Late,
    Blocked,
    RetryStorm,
    DeadLetters,
    Expired,
    CronFailed,
    Paused,
    OpenFiles,
    ClockOffset,
}

names! { ConcernKind::name:
    NotReady => "not_ready",
    Evicting => "evicting",
    Unreadable => "unreadable",
    Restoring => "restoring",
    MemoryFilling => "memory_filling",
    WalFilling => "wal_filling",
    Degraded => "degraded",
    DiskLow => "disk_low",
    BrokerGone => "broker_gone",
    NoConsumer => "no_consumer",
    Late => "late",
    Blocked => "blocked",
    RetryStorm => "retry_storm",
    DeadLetters => "dead_letters",
    Expired => "expired",
    CronFailed => "cron_failed",
    Paused => "paused",
    OpenFiles => "open_files",
    ClockOffset => "clock_offset",
}

/// A reason to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concern {
    pub kind: ConcernKind,
    pub place: Option<(TopicName, Option<GroupName>)>,
    /// A sentence without anything that a producer or a consumer said.
    pub cause: String,
}

/// All reasons to act, the most urgent first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attention {
    pub concerns: Vec<Concern>,
    /// Topics that were looked at, and all; none while the store is unavailable.
    pub topics_seen: usize,
    pub topics: usize,
}

/// The latest answer: many who ask at once cost the store no more than one.
#[derive(Default)]
pub(super) struct LatestAttention(Mutex<Option<(Instant, Arc<Attention>)>>);

impl Concern {
    fn here(kind: ConcernKind, cause: impl Into<String>) -> Concern {
        Concern { kind, place: None, cause: cause.into() }
    }

    fn of(kind: ConcernKind, topic: &TopicName, group: Option<&GroupName>, cause: String) -> Concern {
        Concern { kind, place: Some((topic.clone(), group.cloned())), cause }
    }
}

/// Messages that a broker had when it ended without a stop, and that nobody has taken over: only a consumer makes another broker do that.
fn left_behind(topic: &TopicName, group: &GroupName, stats: &[&(GroupPartition, PartitionStats)]) -> Option<Concern> {
    let unowned = stats.iter().filter(|(_, stats)| stats.owner.is_none());
    let left = unowned.map(|(_, stats)| stats.in_flight).sum::<u64>();
    (left > 0).then(|| {
        let left = counted(left, "message");
        let cause = format!("{left} were in flight at a broker that is gone: delivered again once a consumer asks");
        Concern::of(ConcernKind::NoConsumer, topic, Some(group), cause)
    })
}

/// Facts about a process and its machine.
#[derive(Debug, Clone, Copy)]
struct ProcessFacts {
    /// Of the disk of `data_dir`.
    free_bytes: Option<u64>,
    cron_jobs_failed: u64,
    /// Of those that it may have; `None` without a limit.
    open_files_percent: Option<u64>,
    /// How far the clock of the machine is ahead of that of the store, in seconds.
    clock_ahead_s: f64,
}

impl ProcessFacts {
    fn concerns(&self) -> Vec<Concern> {
        let disk = self.free_bytes.filter(|free| *free < DISK_LOW_BYTES).map(|free| {
            let cause =
                format!("{} MiB are free at `data_dir`; below 64 MiB nothing is buffered", free / (1024 * 1024));
            Concern::here(ConcernKind::DiskLow, cause)
        });
        let cron = (self.cron_jobs_failed > 0).then(|| {
            let failed = counted(self.cron_jobs_failed, "cron job");
            let cause = format!("{failed} cannot be read or computed: `dwell cron list TOPIC`");
            Concern::here(ConcernKind::CronFailed, cause)
        });
        let files = self.open_files_percent.filter(|percent| *percent >= OPEN_FILES_PERCENT).map(|percent| {
            let cause = format!("this broker has {percent} % of the files open that it may; each connection is one");
            Concern::here(ConcernKind::OpenFiles, cause)
        });
        let off = self.clock_ahead_s.abs();
        let clock = (off > CLOCK_OFFSET_MAX_S).then(|| {
            let side = if self.clock_ahead_s > 0.0 { "ahead of" } else { "behind" };
            let cause = format!("the clock of this machine is {off:.1} s {side} that of Redis, which messages go by");
            Concern::here(ConcernKind::ClockOffset, cause)
        });
        [disk, cron, files, clock].into_iter().flatten().collect()
    }
}

/// Why the memory of a server is a reason to act.
fn memory_concern(node: &NodeMemory) -> Option<Concern> {
    let NodeMemory { location, policy, evicted_keys, .. } = node;
    match (node.eviction(), node.fullness()) {
        (Eviction::Possible, _) if node.is_unfit() => {
            let cause = format!(
                "Redis at {location} has maxmemory-policy {policy} and may delete messages without an error: it is not used; set noeviction"
            );
            Some(Concern::here(ConcernKind::Evicting, cause))
        }
        _ if *evicted_keys > 0 => {
            let evicted = counted(*evicted_keys, "key");
            let cause = format!(
                "Redis at {location} deleted {evicted} to make room since it started: `dwell verify TOPIC` says whether messages were among them"
            );
            Some(Concern::here(ConcernKind::Evicting, cause))
        }
        (_, Fullness::NearlyFull(percent) | Fullness::Full(percent)) => {
            let cause = format!(
                "Redis at {location} uses {percent} % of its maxmemory; when it is full it refuses pushes, which are then buffered on disk"
            );
            Some(Concern::here(ConcernKind::MemoryFilling, cause))
        }
        (_, Fullness::NoLimit | Fullness::Room(_)) => None,
    }
}

impl Broker {
    /// The reasons to act, at most 2 s old. Of more than 500 topics those with recent traffic here and
    /// then the first are looked at. Errors: `Full`, the store's.
    pub async fn attention(&self) -> Result<Arc<Attention>> {
        let mut latest = self.attention.0.lock().await;
        let now = self.clock().instant();
        if let Some((at, attention)) = &*latest
            && now.since(*at) < BELIEVED
        {
            return Ok(attention.clone());
        }
        let attention = Arc::new(self.collect_attention().await?);
        *latest = Some((self.clock().instant(), attention.clone()));
        Ok(attention)
    }

    async fn collect_attention(&self) -> Result<Attention> {
        let mut concerns = self.own_concerns().await;
        let topics = match self.topics().await {
            // An embedded store cannot be read either while its disk is full.
            Err(error) if error.is_outage() || error.kind() == Kind::Full => {
                return Ok(Attention { concerns, ..Attention::default() });
            }
            topics => self.busiest_first(topics?),
        };
        let (mut topics_seen, mut unheard) = (0, BTreeSet::new());
        for topic in topics.iter().take(TOPICS_SEEN_MAX) {
            match self.concerns_of(topic, &mut concerns, &mut unheard).await {
                Err(error) if error.is_outage() => break,
                Err(error) if error.kind() == Kind::Corrupt => {
                    concerns.push(Concern::of(ConcernKind::Unreadable, topic, None, error.detail().to_owned()));
                }
                looked => looked?,
            }
            topics_seen += 1;
        }
        concerns.extend(self.retry_storms());
        concerns.extend(self.expiries().await);
        concerns.sort_by_key(|concern| concern.kind);
        concerns.truncate(CONCERNS_MAX);
        Ok(Attention { concerns, topics_seen, topics: topics.len() })
    }

    /// The reasons that are about this broker and its store.
    async fn own_concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        let health = self.health().await;
        let memory = self.store.backend.memory();
        // Then the detail of the health names the same cause.
        let is_unfit = memory.iter().any(NodeMemory::is_unfit);
        concerns.extend(memory.iter().filter_map(memory_concern));
        if let Some(detail) = health.detail.filter(|_| !is_unfit) {
            concerns
                .push(Concern::here(if health.ready { ConcernKind::Degraded } else { ConcernKind::NotReady }, detail));
        }
        if self.metrics.store.restoring.get() > 0 {
            concerns.push(Concern::here(
                ConcernKind::Restoring,
                "Redis lost data, and the brokers give it back; nothing is delivered meanwhile",
            ));
        }
        let wal = self.store.backend.wal_depth();
        if wal.limit_bytes > 0 && wal.bytes * 2 > wal.limit_bytes {
            let part = wal.bytes * 100 / wal.limit_bytes;
            let records = counted(wal.records, "record");
            let cause = format!(
                "the write-ahead log of this broker is {part} % full, with {records} that wait; when it is full, pushes are refused"
            );
            concerns.push(Concern::here(ConcernKind::WalFilling, cause));
        }
        concerns.extend(self.process_facts().concerns());
        let takeovers: u64 = self.recent(RECENT).iter().map(|sample| u64::from(sample.takeovers)).sum();
        if takeovers > 0 {
            let cause = format!(
                "a broker ended without a stop: this one took over {} with messages in flight in the last 30 minutes",
                counted(takeovers, "partition")
            );
            concerns.push(Concern::here(ConcernKind::BrokerGone, cause));
        }
        concerns
    }

    fn process_facts(&self) -> ProcessFacts {
        let process = &self.metrics.process;
        process.observe();
        ProcessFacts {
            free_bytes: self.store.backend.health_snapshot().free_bytes,
            cron_jobs_failed: u64::try_from(process.cron_jobs_failed.get()).unwrap_or(0),
            open_files_percent: process.open_files_percent(),
            clock_ahead_s: self.metrics.store.clock_offset.get(),
        }
    }

    async fn concerns_of(
        &self,
        topic: &TopicName,
        concerns: &mut Vec<Concern>,
        unheard: &mut BTreeSet<MemberId>,
    ) -> Result<()> {
        let Some(descriptor) = &self.existing(topic).await? else { return Ok(()) };
        let read = self.reads.begin().await?;
        let mut stats = self.stats_in_store(&read, descriptor, &descriptor.groups).await?;
        drop(read);
        self.count_held(descriptor, &mut stats, unheard).await?;
        for group in &descriptor.groups {
            let of_group = stats.iter().filter(|(partition, _)| partition.group == *group);
            let of_group: Vec<&(GroupPartition, PartitionStats)> = of_group.collect();
            let ready = of_group.iter().map(|(_, stats)| stats.ready).sum::<u64>();
            match descriptor.subscription(group).rest(self.now()) {
                // A closed window is as somebody wanted it, every day.
                Some(Rest::Copying | Rest::Closed { .. }) => {}
                Some(Rest::Paused(pause)) => {
                    let until = pause.until.map_or("it is resumed".to_owned(), |until| until.to_string());
                    let cause = format!("paused until {until}, with {}", counted(ready, "ready message"));
                    concerns.push(Concern::of(ConcernKind::Paused, topic, Some(group), cause));
                }
                None => {
                    let late = self.lateness_of(descriptor, group, &of_group, ready).await?;
                    concerns.extend(late.or_else(|| left_behind(topic, group, &of_group)));
                }
            }
            concerns.extend(self.recent_deaths(group, &of_group).await?);
        }
        Ok(())
    }

    /// The reason of the oldest ready message, if it is late.
    async fn lateness_of(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        stats: &[&(GroupPartition, PartitionStats)],
        ready: u64,
    ) -> Result<Option<Concern>> {
        let oldest = stats.iter().max_by_key(|(_, stats)| stats.oldest_ready_age);
        let Some((partition, age)) = oldest.and_then(|(partition, stats)| Some((partition, stats.oldest_ready_age?)))
        else {
            return Ok(None);
        };
        if age < LATE {
            return Ok(None);
        }
        let Some(first) = self.oldest_due(descriptor, partition).await? else { return Ok(None) };
        let Some(peeked) = self.store.reads.peek(partition, &first).await? else { return Ok(None) };
        let reason = self.reason(descriptor, group, partition.partition, &peeked).await?;
        let blocked: u64 = stats.iter().map(|(_, stats)| stats.blocked).sum();
        let kind = match reason.name {
            "no_consumer" => ConcernKind::NoConsumer,
            _ if blocked >= BLOCKED_MIN && blocked >= 10 * ready && age >= LONG => ConcernKind::Blocked,
            _ => ConcernKind::Late,
        };
        let blocked = if blocked > 0 { format!(" and {} blocked", thousands(blocked)) } else { String::new() };
        let (ready, age) = (counted(ready, "ready message"), short_span(age));
        let cause = format!("{ready}{blocked}, the oldest for {age}: {}", reason.detail);
        Ok(Some(Concern::of(kind, &descriptor.topic, Some(group), cause)))
    }

    /// One of the oldest messages of a partition that are ready or blocked.
    async fn oldest_due(&self, descriptor: &Descriptor, partition: &GroupPartition) -> Result<Option<MessageId>> {
        let reserved = self.store.reads.in_flight(partition, None, RESERVED_LOOKED_AT).await?.messages;
        let ids: Vec<MessageId> = reserved.iter().map(|listed| listed.id.clone()).collect();
        let states = self.held_states(descriptor, partition.partition, &partition.group, &ids).await?;
        let held = reserved
            .into_iter()
            .zip(states)
            .filter(|(_, (state, _))| matches!(state, MessageState::Ready | MessageState::Blocked));
        let held = held.filter_map(|(listed, _)| Some((listed.message.ok()?.due_at, listed.id)));
        let first = self.store.reads.waiting(partition, Window::ALL, None, 1).await?.messages.into_iter().next();
        let first = first.and_then(|listed| Some((listed.next_at?, listed.id)));
        Ok(held.chain(first).min().map(|(_, id)| id))
    }

    async fn recent_deaths(
        &self,
        group: &GroupName,
        stats: &[&(GroupPartition, PartitionStats)],
    ) -> Result<Option<Concern>> {
        let since = DeadLetterCursor { died_at: self.now().minus(RECENT), id: MessageId::new("0")? };
        for (partition, _) in stats.iter().filter(|(_, stats)| stats.dead > 0) {
            if let Some(died) = self.store.dead_letters.dead(partition, Some(&since), 1).await?.dead.first() {
                let dead = counted(stats.iter().map(|(_, stats)| stats.dead).sum::<u64>(), "dead letter");
                let cause = format!(
                    "{dead}; the first of the last 30 minutes died at {} ({})",
                    died.died_at,
                    died.record.reason.name()
                );
                return Ok(Some(Concern::of(ConcernKind::DeadLetters, &partition.topic, Some(group), cause)));
            }
        }
        Ok(None)
    }

    /// Topics whose recent deliveries at this broker were mostly retries, or given back unhandled.
    fn retry_storms(&self) -> Vec<Concern> {
        let counts = self.recent_of_topics(RECENT / 3, |point| [point.delivered, point.retried, point.released]);
        let storm = |(topic, [delivered, retried, released]): (TopicName, [u64; 3])| {
            if delivered < STORM_DELIVERIES_MIN || (retried + released) * 2 <= delivered {
                return None;
            }
            let (delivered, retried, released) = (thousands(delivered), thousands(retried), thousands(released));
            let cause = format!(
                "of {delivered} deliveries at this broker in the last 10 minutes {retried} were retries and {released} were given back unhandled: consumers fail, or do not settle in time"
            );
            Some(Concern::of(ConcernKind::RetryStorm, &topic, None, cause))
        };
        counts.into_iter().filter_map(storm).collect()
    }

    /// Topics whose messages expired at this broker lately and were dropped. Elsewhere they are dead letters.
    async fn expiries(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        for (topic, [expired]) in self.recent_of_topics(RECENT, |point| [point.expired]) {
            if expired == 0 {
                continue;
            }
            let Ok(Some(descriptor)) = self.existing(&topic).await else { continue };
            if descriptor.settings.on_expiry == Expiry::Drop {
                let expired = counted(expired, "message");
                let cause = format!(
                    "{expired} expired at this broker in the last 30 minutes, and nobody gets them: their `ttl` was over"
                );
                concerns.push(Concern::of(ConcernKind::Expired, &topic, None, cause));
            }
        }
        concerns
    }

    /// Sums over the samples of the last `span` of each topic with traffic here.
    fn recent_of_topics<const N: usize>(
        &self,
        span: Duration,
        counts: impl Fn(&Point) -> [u32; N],
    ) -> BTreeMap<TopicName, [u64; N]> {
        let mut topics = BTreeMap::<Arc<str>, [u64; N]>::new();
        for (topic, point) in self.recent(span).iter().flat_map(|sample| &sample.topics) {
            let sums = topics.entry(topic.clone()).or_insert([0; N]);
            sums.iter_mut().zip(counts(point)).for_each(|(sum, count)| *sum += u64::from(count));
        }
        // Topics past the limit of series share a label that names none.
        topics.into_iter().filter_map(|(topic, sums)| Some((TopicName::new(topic.as_ref()).ok()?, sums))).collect()
    }

    fn busiest_first(&self, mut topics: Vec<TopicName>) -> Vec<TopicName> {
        if topics.len() > TOPICS_SEEN_MAX {
            let recent = self.recent(RECENT);
            let busy: BTreeSet<&str> =
                recent.iter().flat_map(|sample| &sample.topics).map(|(topic, _)| topic.as_ref()).collect();
            topics.sort_by_key(|topic| !busy.contains(topic.as_str()));
        }
        topics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: ProcessFacts = ProcessFacts {
        free_bytes: Some(DISK_LOW_BYTES),
        cron_jobs_failed: 0,
        open_files_percent: Some(79),
        clock_ahead_s: -5.0,
    };

    /// The kinds of the concerns with the words of each.
    fn said(facts: ProcessFacts) -> Vec<(&'static str, String)> {
        facts.concerns().into_iter().map(|concern| (concern.kind.name(), concern.cause)).collect()
    }

    #[test]
    fn process_and_machine_are_concerns_past_their_limits() {
        assert_eq!(said(SOUND), []);
        assert_eq!(said(ProcessFacts { free_bytes: None, open_files_percent: None, clock_ahead_s: 5.0, ..SOUND }), []);
        let cases = [
            (ProcessFacts { free_bytes: Some(DISK_LOW_BYTES - 1), ..SOUND }, "disk_low", "511 MiB are free"),
            (ProcessFacts { cron_jobs_failed: 2, ..SOUND }, "cron_failed", "2 cron jobs cannot be read"),
            (ProcessFacts { open_files_percent: Some(80), ..SOUND }, "open_files", "80 % of the files open"),
            (ProcessFacts { clock_ahead_s: 5.1, ..SOUND }, "clock_offset", "is 5.1 s ahead of that of Redis"),
            (ProcessFacts { clock_ahead_s: -6.0, ..SOUND }, "clock_offset", "is 6.0 s behind that of Redis"),
        ];
        for (facts, kind, words) in cases {
            let said = said(facts);
            assert!(said.len() == 1 && said[0].0 == kind && said[0].1.contains(words), "{kind}: {said:?}");
        }
    }
}
