//! Topics: declaring and deleting them, caching their descriptors, retrying under a newer descriptor, and moving all
//! messages to another topic.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU16;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::groups::STOPPING;
use super::{Broker, Options, Precondition, no_group};
use crate::coordination::membership::Timing;
use crate::delivery::forward_page;
use crate::gate::{HeavyRead, PARTITIONS_AT_ONCE};
use crate::model::error::{Error, Kind, Missing, Result};
use crate::model::limits::{MOVE_REQUEST_MAX, TOPICS_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition, Settings, Subscription};
use crate::model::version::Version;
use crate::platform::clock::Instant;
use crate::store::{Call, Calls, MemberReport, PartitionStats, Store};
use crate::telemetry::metrics::{Metrics, TopicMetrics};

/// A change made elsewhere takes effect within it. A push under an older descriptor is refused and loads it at once.
const CACHED_FOR: Duration = Duration::from_secs(5);
const RELOADS_MAX: usize = 3;
/// A consumer that waits for a topic looks whether another broker created it, at first so often, and then each second.
const LOOKS_APART_MIN: Duration = Duration::from_millis(100);
const LOOKS_APART_MAX: Duration = Duration::from_secs(1);
/// Topics that a look at all of them looks at.
pub(super) const TOPICS_SEEN_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    pub descriptor: Descriptor,
    pub created: bool,
}

pub(super) struct Topics {
    pub(super) store: Store,
    metrics: Arc<Metrics>,
    options: Arc<Options>,
    pub(super) calls: Calls,
    known: RwLock<HashMap<TopicName, CachedTopic>>,
    /// A topic is known that was not.
    appeared: Notify,
}

#[derive(Clone)]
struct CachedTopic {
    descriptor: Arc<Descriptor>,
    loaded: Instant,
}

impl Topics {
    pub(super) fn new(store: Store, metrics: Arc<Metrics>, options: Arc<Options>) -> Topics {
        Topics { store, metrics, options, calls: Calls::default(), known: RwLock::default(), appeared: Notify::new() }
    }

    pub(super) async fn get(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.cached(topic) {
            Some(descriptor) => Ok(descriptor),
            None => self.load(topic).await,
        }
    }

    /// Errors: `NotFound`, also for the group.
    pub(super) async fn group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        let descriptor = self.get(topic).await?;
        if descriptor.groups.contains(group) {
            return Ok(descriptor);
        }
        // It may have been created a moment ago, elsewhere.
        with_group(self.load(topic).await?, group)
    }

    /// For a read: a failing store is not taken to be unavailable for pushes, nothing is cached. Errors: `NotFound`.
    pub(super) async fn peek(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.cached(topic) {
            Some(descriptor) => Ok(descriptor),
            None => self.fetch(topic).await,
        }
    }

    pub(super) async fn fetch(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        self.store.topics.topic_uncached(topic).await?.map(Arc::new).ok_or_else(|| self.no_topic(topic))
    }

    pub(super) async fn peek_group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        let descriptor = self.peek(topic).await?;
        if descriptor.groups.contains(group) {
            return Ok(descriptor);
        }
        with_group(self.fetch(topic).await?, group)
    }

    /// Creates the topic if it does not exist and that is allowed; answers whether it did. Errors: `NotFound`, `Full`.
    pub(super) async fn get_or_create(&self, topic: &TopicName) -> Result<(Arc<Descriptor>, bool)> {
        match self.cached(topic) {
            Some(descriptor) => Ok((descriptor, false)),
            None => self.load_or_create(topic).await,
        }
    }

    async fn load_or_create(&self, topic: &TopicName) -> Result<(Arc<Descriptor>, bool)> {
        if !self.options.auto_create {
            return Ok((self.load(topic).await?, false));
        }
        let clock = self.store.backend.clock();
        // The clock rounds up to the millisecond, and a store that tells no time rounds down.
        let asked_at = clock.surely().unwrap_or_else(|| clock.now().minus(Duration::from_millis(1))).as_ms();
        let wanted = Descriptor::new(topic.clone(), self.options.topic_defaults.clone());
        let descriptor = self.cache(self.store.topics.create(&wanted).await?);
        // An incarnation is the time at which the topic was created; one that only the log has does not have any yet.
        let is_new = descriptor.incarnation >= asked_at && descriptor.incarnation == descriptor.generation;
        if is_new {
            let partitions = descriptor.settings.partitions;
            tracing::warn!(%topic, partitions, "topic did not exist and was created; topic.auto_create = false refuses it");
        }
        Ok((descriptor, is_new))
    }

    /// Waits for a topic that does not exist yet: a consumer creates none, and may come before the first push. Errors: `NotFound`
    /// at once for a group that the topic does not have, and at `until` for the topic; `Unavailable` when the broker stops.
    pub(super) async fn awaited(
        &self,
        topic: &TopicName,
        group: &GroupName,
        until: Instant,
        stopping: &CancellationToken,
    ) -> Result<Arc<Descriptor>> {
        let local = self.store.backend.clock().local();
        let mut pause = LOOKS_APART_MIN;
        loop {
            match self.group(topic, group).await {
                Err(error) if is_topic_missing(&error) && local.instant() < until => {}
                found => return found,
            }
            tokio::select! {
                () = self.becomes_known(topic) => {}
                () = local.sleep_until(until.min(local.instant().plus(pause))) => {}
                () = stopping.cancelled() => return Err(Error::unavailable(STOPPING)),
            }
            pause = (pause * 2).min(LOOKS_APART_MAX);
        }
    }

    /// This broker created the topic, or was asked for it.
    async fn becomes_known(&self, topic: &TopicName) {
        loop {
            let appeared = self.appeared.notified();
            if self.cached(topic).is_some() {
                return;
            }
            appeared.await;
        }
    }

    pub(super) async fn load(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.store.topics.topic(topic).await? {
            Some(descriptor) => Ok(self.cache(descriptor)),
            None => Err(self.no_topic(topic)),
        }
    }

    fn no_topic(&self, topic: &TopicName) -> Error {
        self.evict(topic);
        self.metrics.deleted(topic);
        Error::missing(Missing::topic(topic))
    }

    /// The time at which a push to a topic is accepted. With an ordering it never goes back, since it orders what is
    /// pushed. Errors: As [`StoreClock::check`](crate::store::StoreClock::check).
    pub(super) fn accept_time(&self, topic: &TopicName) -> Result<Timestamp> {
        self.store.backend.clock().check()?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(topic) {
            Some(known) if !known.descriptor.is_ordered() => Ok(self.store.backend.clock().now()),
            _ => Ok(self.store.backend.clock().steady()),
        }
    }

    fn cached(&self, topic: &TopicName) -> Option<Arc<Descriptor>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.store.backend.clock().local().instant();
        // A topic that is only promised may be known by the next call.
        let is_fresh = |known: &&CachedTopic| now < known.loaded.plus(CACHED_FOR) && !known.descriptor.is_promised();
        known.get(topic).filter(is_fresh).map(|known| known.descriptor.clone())
    }

    /// Believes a descriptor. Its series are there from now on, so that a rate sees the first event of each.
    pub(super) fn cache(&self, descriptor: Descriptor) -> Arc<Descriptor> {
        self.metrics.exists(&descriptor);
        let loaded = self.store.backend.clock().local().instant();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOPICS_MAX {
            known.clear();
        }
        let descriptor = Arc::new(descriptor);
        let before = known.insert(descriptor.topic.clone(), CachedTopic { descriptor: descriptor.clone(), loaded });
        if before.is_none() {
            self.appeared.notify_waiters();
        }
        descriptor
    }

    /// The topics that this broker knows whose dead letters go to this one.
    fn forwarding_to(&self, topic: &TopicName) -> Vec<TopicName> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let names = |known: &&CachedTopic| known.descriptor.dead_letter_topic() == Some(topic);
        known.values().filter(names).map(|known| known.descriptor.topic.clone()).collect()
    }

    pub(super) fn evict(&self, topic: &TopicName) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }
}

/// Whether it is the topic that does not exist, and not its group.
pub fn is_topic_missing(error: &Error) -> bool {
    error.what_is_missing().is_some_and(Missing::is_topic)
}

impl Broker {
    /// Whether a push to a topic that does not exist creates it.
    pub fn creates_topics(&self) -> bool {
        self.options.auto_create
    }

    pub fn topic_defaults(&self) -> &Settings {
        &self.options.topic_defaults
    }

    /// Creates a topic, or changes the settings of one. Errors: `Invalid` settings; `Conflict` for another number of
    /// partitions; `Full` past the limit of topics.
    pub async fn declare(&self, topic: TopicName, settings: Settings) -> Result<Declared> {
        self.declare_if(topic, settings, Precondition::None).await
    }

    /// Of two changes from the same generation one succeeds. Errors: as [`Broker::declare`]; `Stale`.
    pub async fn declare_if(
        &self,
        topic: TopicName,
        settings: Settings,
        precondition: Precondition,
    ) -> Result<Declared> {
        let wanted = Descriptor::new(topic, settings);
        wanted.check()?;
        let before = self.store.topics.topic(&wanted.topic).await?;
        precondition.check(&wanted.topic, before.as_ref())?;
        let created = before.is_none();
        let there = match before {
            Some(there) => there,
            None => self.store.topics.create(&wanted).await?,
        };
        if there.settings == wanted.settings {
            self.store.topics.assure(&there).await?;
            return Ok(Declared { descriptor: self.topics.cache(there).as_ref().clone(), created });
        }
        if there.settings.partitions != wanted.settings.partitions {
            let (is, asked) = (there.settings.partitions.get(), wanted.settings.partitions);
            let has = counted(is, "partition");
            let detail = format!(
                "topic {} has {has}, not {asked}, and their number is fixed; \
                 ask for {is}, or move its messages to another topic: dwell topic move {} NEW --partitions {asked}",
                there.topic, there.topic
            );
            return Err(Error::new(Kind::Conflict, detail));
        }
        if there.settings.ordering != wanted.settings.ordering {
            let (is, asked) = (there.settings.ordering.name(), wanted.settings.ordering.name());
            let detail = format!(
                "topic {} has the ordering {is}, not {asked}, and that is fixed; \
                 ask for {is}, or make another topic and drain this one",
                there.topic
            );
            return Err(Error::new(Kind::Conflict, detail));
        }
        let has_forwarded = there.has_forwarded || wanted.has_forwarded;
        let updated = Descriptor { settings: wanted.settings, has_forwarded, ..there };
        let updated = self.store.topics.update(&updated).await?;
        tracing::info!(topic = %updated.topic, "topic changed");
        Ok(Declared { descriptor: self.topics.cache(updated).as_ref().clone(), created: false })
    }

    /// Reads the topic from the store. Errors: `NotFound`.
    pub async fn topic(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        self.topics.fetch(topic).await
    }

    /// The topic as this process knows it: a change made elsewhere takes effect within seconds. Errors: `NotFound`.
    pub async fn cached_topic(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        self.topics.get(topic).await
    }

    /// The topic as this process knows it, if it has this group. Errors: `NotFound`; `Unavailable` for a topic that is on its way to the store.
    pub async fn cached_topic_with(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        with_group(self.topics.get(topic).await?, group)
    }

    pub async fn topics(&self) -> Result<Vec<TopicName>> {
        self.store.topics.topics().await
    }

    /// The topics whose dead letters go to this one. It looks at all topics. Errors: `Full`.
    pub async fn dead_letter_sources(&self, topic: &TopicName) -> Result<Vec<TopicName>> {
        let read = self.reads.begin().await?;
        let mut sources = Vec::new();
        for source in self.topics().await? {
            let descriptor = match self.topics.cached(&source) {
                Some(descriptor) => descriptor,
                None => match read.call(self.topics.get(&source)).await {
                    Err(error) if error.kind() == Kind::NotFound => continue,
                    found => found?,
                },
            };
            if descriptor.dead_letter_topic() == Some(topic) {
                sources.push(source);
            }
        }
        Ok(sources)
    }

    /// For a read; `None` if it was deleted meanwhile.
    pub(super) async fn existing(&self, topic: &TopicName) -> Result<Option<Arc<Descriptor>>> {
        match self.topics.peek(topic).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// A message that an owner holds and no consumer has is ready, blocked or in backoff. Errors: `NotFound`, `Full`.
    pub async fn stats(&self, topic: &TopicName) -> Result<Vec<(GroupPartition, PartitionStats)>> {
        let descriptor = self.topics.peek(topic).await?;
        let read = self.reads.begin().await?;
        self.stats_of(&read, &descriptor, &descriptor.groups).await
    }

    /// Reads the topic from the store, and counts every partition. Errors: `NotFound`, `Full`.
    pub async fn group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(Arc<Descriptor>, Vec<(GroupPartition, PartitionStats)>)> {
        let descriptor = with_group(self.topics.fetch(topic).await?, group)?;
        let read = self.reads.begin().await?;
        let stats = self.stats_of(&read, &descriptor, std::slice::from_ref(group)).await?;
        Ok((descriptor, stats))
    }

    /// The live members of a group, as their heartbeats say. Errors: `Unavailable`.
    pub async fn members(&self, topic: &TopicName, group: &GroupName) -> Result<Vec<MemberReport>> {
        let timing = Timing::new(self.options.lease_ttl, self.options.heartbeat);
        self.store.groups.members(topic, group, timing.absent_after()).await
    }

    /// Counts as clients see it. Errors: those of the store.
    pub(super) async fn stats_of(
        &self,
        read: &HeavyRead<'_>,
        descriptor: &Descriptor,
        groups: &[GroupName],
    ) -> Result<Vec<(GroupPartition, PartitionStats)>> {
        let mut stats = self.stats_in_store(read, descriptor, groups).await?;
        self.count_held(descriptor, &mut stats, &mut BTreeSet::new()).await?;
        Ok(stats)
    }

    /// Counts as the store does: what is reserved is in flight. The read is the caller's: a token may make one at a time, so a second one
    /// would wait for the first. Errors: those of the store.
    pub(super) async fn stats_in_store(
        &self,
        read: &HeavyRead<'_>,
        descriptor: &Descriptor,
        groups: &[GroupName],
    ) -> Result<Vec<(GroupPartition, PartitionStats)>> {
        let partitions: Vec<GroupPartition> = descriptor.group_partitions(groups).collect();
        let mut stats = Vec::with_capacity(partitions.len());
        for some in partitions.chunks(PARTITIONS_AT_ONCE) {
            stats.extend(read.call(self.store.reads.stats(some)).await?);
        }
        Ok(partitions.into_iter().zip(stats).collect())
    }

    /// Deletes a topic with all its messages. Errors: `NotFound`; `Unavailable` when others delete and make it meanwhile.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<()> {
        self.delete_topic_if(topic, Precondition::None).await
    }

    /// Errors: those of [`Broker::delete_topic`]; `Stale` when the precondition fails, or another request changes the topic meanwhile.
    pub async fn delete_topic_if(&self, topic: &TopicName, precondition: Precondition) -> Result<()> {
        for _ in 0..RELOADS_MAX {
            let descriptor = self.topics.load(topic).await?;
            precondition.check(topic, Some(&descriptor))?;
            let tombstone = match precondition {
                Precondition::Generation(_) => self.store.topics.delete_unchanged(&descriptor).await?,
                Precondition::None | Precondition::Exists => self.store.topics.delete(&descriptor).await?,
            };
            self.topics.evict(topic);
            self.groups.close(&descriptor);
            if let Some(tombstone) = tombstone {
                self.deleted(topic, &tombstone).await;
                return Ok(());
            }
            // The loaded topic had been deleted, so it was remembered: a topic that others made since may have its name.
        }
        Err(changing(topic))
    }

    async fn deleted(&self, topic: &TopicName, tombstone: &Descriptor) {
        // Later pushes to the name are above it.
        self.pass(Version::from_us(tombstone.generation.saturating_mul(1_000))).await;
        self.metrics.deleted(topic);
        tracing::info!(%topic, "topic deleted");
        for source in self.topics.forwarding_to(topic) {
            tracing::warn!(%topic, %source, "the dead letters of a topic were forwarded to the deleted one: they stay in their groups");
        }
    }

    pub(super) fn topic_metrics(&self, topic: &TopicName) -> Arc<TopicMetrics> {
        self.metrics.topic(topic)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicMoved {
    pub waiting: u64,
    pub dead: u64,
    /// Of all these, those whose id the other topic had already: they are dropped as duplicates.
    pub there_already: u64,
    /// Still in flight: moved when they return, or gone when they are acked.
    pub in_flight: u64,
    pub done: bool,
}

impl Broker {
    /// Moves messages for a few seconds; repeat it until it is done. Groups move into groups of their name, with due
    /// times, attempts and histories. Errors: `NotFound`; `Invalid` for the same topic; `Conflict` when the other topic
    /// lacks a group or has another number of partitions, a group is being copied, or one of the two is ordered;
    /// `Full`.
    pub async fn move_topic(
        &self,
        topic: &TopicName,
        to: &TopicName,
        partitions: Option<NonZeroU16>,
    ) -> Result<TopicMoved> {
        if topic == to {
            return Err(Error::invalid("to", "is the topic itself"));
        }
        let from = self.topics.load(topic).await?;
        let to = self.receiving(&from, to, partitions).await?;
        let began = self.clock().instant();
        let mut all = TopicMoved::default();
        for partition in from.partitions() {
            for group in &from.groups {
                let group_partition = from.group_partition(partition, group);
                if from.has_forwarded {
                    // Dead letters that a broker was forwarding when it died.
                    forward_page(&self.store, &group_partition, None, &[]).await?;
                }
                // A message that an owner does not give back now is moved by a later request.
                let recalls = self.recall_all(&from, partition, group).await.unwrap_or_default();
                loop {
                    if self.clock().instant().since(began) >= MOVE_REQUEST_MAX || self.is_stopping() {
                        return Ok(all);
                    }
                    let page = self.store.maintenance.move_page(&from, &group_partition, &to).await?;
                    all.waiting += page.waiting;
                    all.dead += page.dead;
                    all.there_already += page.there_already;
                    if !page.more {
                        break;
                    }
                    self.store.maintenance.moved(&group_partition, &page).await?;
                    if let Some(refusal) = page.arrived.refusal {
                        return Err(refusal);
                    }
                }
                self.end_recalls(&from, recalls).await;
            }
        }
        let group_partitions: Vec<_> = from.group_partitions(&from.groups).collect();
        let stats = self.store.reads.stats(&group_partitions).await?;
        all.in_flight = stats.iter().map(|stats| stats.in_flight).sum();
        all.done = stats.iter().all(|stats| stats.live() + stats.dead == 0);
        Ok(all)
    }

    async fn receiving(
        &self,
        from: &Arc<Descriptor>,
        to: &TopicName,
        partitions: Option<NonZeroU16>,
    ) -> Result<Arc<Descriptor>> {
        let conflict = |why: String| Err(Error::new(Kind::Conflict, why));
        if let Some(copy) = from.groups.iter().find(|group| from.subscription(group).copy_of.is_some()) {
            return conflict(format!(
                "group {copy} of topic {} is being copied; try again when it is done",
                from.topic
            ));
        }
        if from.is_ordered() {
            return conflict(format!(
                "topic {} has an ordering, and a key that is on its way would be in two places; let it be consumed instead",
                from.topic
            ));
        }
        let partitions_wanted = partitions.unwrap_or(from.settings.partitions);
        let dead_letter = from.settings.dead_letter.clone().filter(|dead_letter| dead_letter.topic != *to);
        let settings = Settings { partitions: partitions_wanted, dead_letter, ..from.settings.clone() };
        // A group that is paused or has limits there has them here, too: what is moved is not delivered by that.
        let born_with_it = |(group, subscription): (&GroupName, &Subscription)| {
            (group.clone(), Subscription { born: 0, ..subscription.clone() })
        };
        let subscriptions = from.subscriptions.iter().map(born_with_it).collect();
        let wanted = Descriptor { groups: from.groups.clone(), subscriptions, ..Descriptor::new(to.clone(), settings) };
        let there = self.store.topics.create(&wanted).await?;
        let is = there.settings.partitions;
        if partitions.is_some_and(|partitions| partitions != is) {
            return conflict(format!("topic {to} has {}, not {partitions_wanted}", counted(is.get(), "partition")));
        }
        if there.is_ordered() {
            return conflict(format!("topic {to} has an ordering, in which what is moved has no place"));
        }
        if let Some(missing) = from.groups.iter().find(|group| !there.groups.contains(group)) {
            return conflict(format!("topic {to} has no group {missing}; make it first"));
        }
        self.topics.evict(to);
        Ok(Arc::new(there))
    }
}

impl Topics {
    /// Errors: `NotFound`, `Unavailable` while the topic is being changed, and the verb's.
    pub(super) async fn with_descriptor<T, F: Future<Output = Result<T>>>(
        &self,
        topic: &TopicName,
        verb: impl Fn(Arc<Descriptor>) -> F,
    ) -> Result<T> {
        let mut descriptor = self.get(topic).await?;
        for _ in 0..RELOADS_MAX {
            match verb(descriptor).await {
                Err(error) if error.kind() == Kind::Stale => descriptor = self.load(topic).await?,
                outcome => return outcome,
            }
        }
        Err(changing(topic))
    }

    /// A deleted topic is created again if allowed, but not with another number of partitions: messages may move there.
    pub(super) async fn push<T, F: Future<Output = Result<T>>>(
        &self,
        mut descriptor: Arc<Descriptor>,
        push: impl Fn(Arc<Descriptor>) -> F,
    ) -> Result<T> {
        for _ in 0..RELOADS_MAX {
            match push(descriptor.clone()).await {
                Err(error) if error.kind() == Kind::Stale => {}
                outcome => return outcome,
            }
            let (newer, _) = self.load_or_create(&descriptor.topic).await?;
            if newer.settings.partitions != descriptor.settings.partitions {
                return Err(Error::unavailable(format!("topic {} was made anew; push again", newer.topic)));
            }
            descriptor = newer;
        }
        Err(changing(&descriptor.topic))
    }

    /// `is_applied` says whether the store applied the call.
    pub(super) async fn call<T>(
        &self,
        topic: &TopicName,
        partition: Partition,
        messages: usize,
        make: impl AsyncFnOnce(&Call) -> Result<T>,
        is_applied: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let call = self.calls.begin(topic, partition, self.store.backend.clock(), messages);
        let answer = make(&call).await?;
        if is_applied(&answer) {
            self.calls.applied(topic, partition, self.store.backend.clock(), call);
        }
        Ok(answer)
    }
}

pub(super) fn with_group(descriptor: Arc<Descriptor>, group: &GroupName) -> Result<Arc<Descriptor>> {
    if descriptor.groups.contains(group) { Ok(descriptor) } else { Err(no_group(&descriptor, group)) }
}

fn changing(topic: &TopicName) -> Error {
    Error::unavailable(format!("topic {topic} is being changed or deleted; try again"))
}
