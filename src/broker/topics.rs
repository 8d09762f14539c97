//! Topics: declaring them, and remembering their descriptors.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::stats_collector::PAIRS_AT_ONCE;
use super::{Broker, Options, Precondition, no_group};
use crate::coordination::membership::Timing;
use crate::model::error::{Error, Kind, Missing, Result};
use crate::model::limits::TOPICS_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition, Settings};
use crate::platform::clock::Instant;
use crate::store::{Calls, MemberReport, PartitionStats, Store};
use crate::telemetry::metrics::{Metrics, TopicMetrics};

/// How long a descriptor is believed without asking. A change made elsewhere takes effect within it; a push under an old
/// one is refused by the partition and loads it at once.
const BELIEVED: Duration = Duration::from_secs(5);

/// What a declaration did.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The topic as it is now.
    pub descriptor: Descriptor,
    /// Whether it was made by this call.
    pub created: bool,
}

/// The descriptors that this process knows.
pub(super) struct Topics {
    pub(super) store: Store,
    metrics: Arc<Metrics>,
    options: Arc<Options>,
    pub(super) calls: Calls,
    known: RwLock<HashMap<TopicName, Known>>,
}

#[derive(Clone)]
struct Known {
    descriptor: Arc<Descriptor>,
    loaded: Instant,
}

impl Topics {
    pub(super) fn new(store: Store, metrics: Arc<Metrics>, options: Arc<Options>) -> Topics {
        Topics { store, metrics, options, calls: Calls::default(), known: RwLock::default() }
    }

    /// The descriptor of a topic. # Errors: `NotFound`.
    pub(super) async fn get(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.believed(topic) {
            Some(descriptor) => Ok(descriptor),
            None => self.load(topic).await,
        }
    }

    /// The descriptor of a topic that has this group. # Errors: `NotFound`.
    pub(super) async fn group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        let descriptor = self.get(topic).await?;
        if descriptor.groups.contains(group) {
            return Ok(descriptor);
        }
        // Perhaps it was made a moment ago, elsewhere.
        let descriptor = self.load(topic).await?;
        if descriptor.groups.contains(group) { Ok(descriptor) } else { Err(no_group(topic, group)) }
    }

    /// The descriptor of a topic, for a read: a store that fails to answer it is not taken to be unavailable for pushes,
    /// and nothing is remembered of the topic. # Errors: `NotFound`.
    pub(super) async fn look(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.believed(topic) {
            Some(descriptor) => Ok(descriptor),
            None => self.look_again(topic).await,
        }
    }

    /// The same, asked of the store.
    pub(super) async fn look_again(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        self.store.topics.topic_uncached(topic).await?.map(Arc::new).ok_or_else(|| self.no_topic(topic))
    }

    /// The descriptor of a topic that has this group, for a read. # Errors: `NotFound`.
    pub(super) async fn look_at_group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        let descriptor = self.look(topic).await?;
        if descriptor.groups.contains(group) {
            return Ok(descriptor);
        }
        // Perhaps it was made a moment ago, elsewhere.
        let descriptor = self.look_again(topic).await?;
        if descriptor.groups.contains(group) { Ok(descriptor) } else { Err(no_group(topic, group)) }
    }

    /// The descriptor of a topic, created now if it does not exist and that is allowed; and whether it was created.
    /// # Errors: `NotFound`, `Full`.
    pub(super) async fn get_or_create(&self, topic: &TopicName) -> Result<(Arc<Descriptor>, bool)> {
        match self.believed(topic) {
            Some(descriptor) => Ok((descriptor, false)),
            None => self.load_or_create(topic).await,
        }
    }

    /// The same, asked of the store.
    pub(super) async fn load_or_create(&self, topic: &TopicName) -> Result<(Arc<Descriptor>, bool)> {
        if !self.options.auto_create {
            return Ok((self.load(topic).await?, false));
        }
        let clock = self.store.backend.clock();
        // The clock rounds up to the millisecond, and a store that tells no time rounds down.
        let asked_at = clock.surely().unwrap_or_else(|| clock.now().minus(Duration::from_millis(1))).as_ms();
        let wanted = Descriptor::new(topic.clone(), self.options.topic_defaults.clone());
        let descriptor = self.learn(self.store.topics.create(&wanted).await?);
        // An incarnation is the time at which the topic was created; one that only the log has does not have any yet.
        let is_new = descriptor.incarnation >= asked_at && descriptor.incarnation == descriptor.generation;
        if is_new {
            let partitions = descriptor.settings.partitions;
            tracing::warn!(%topic, partitions, "topic did not exist and was created; topic.auto_create = false refuses it");
        }
        Ok((descriptor, is_new))
    }

    /// The descriptor of a topic that has this group, for a consumer: with `auto_create` the topic is created, as by a
    /// push, and with it the group `default`. # Errors: `NotFound`, `Full`.
    pub(super) async fn group_or_create(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        match self.group(topic, group).await {
            Err(error)
                if error.kind() == Kind::NotFound && self.options.auto_create && *group == GroupName::standard() =>
            {
                self.load_or_create(topic).await?;
                self.group(topic, group).await
            }
            found => found,
        }
    }

    /// The descriptor of a topic, read from the store.
    pub(super) async fn load(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        match self.store.topics.topic(topic).await? {
            Some(descriptor) => Ok(self.learn(descriptor)),
            None => Err(self.no_topic(topic)),
        }
    }

    fn no_topic(&self, topic: &TopicName) -> Error {
        self.forget(topic);
        Error::missing(Missing::topic(topic))
    }

    /// The time at which a push to a topic is accepted. With an ordering it never goes back, since it orders what is pushed.
    ///
    /// # Errors
    /// As [`StoreClock::check`](crate::store::StoreClock::check).
    pub(super) fn accept_time(&self, topic: &TopicName) -> Result<Timestamp> {
        self.store.backend.clock().check()?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(topic) {
            Some(known) if !known.descriptor.is_ordered() => Ok(self.store.backend.clock().now()),
            _ => Ok(self.store.backend.clock().steady()),
        }
    }

    /// The descriptor of a topic as it was when it was last seen, however long ago that is.
    pub(super) fn known(&self, topic: &TopicName) -> Option<Arc<Descriptor>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).map(|known| known.descriptor.clone())
    }

    fn believed(&self, topic: &TopicName) -> Option<Arc<Descriptor>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.store.backend.clock().local().instant();
        known.get(topic).filter(|known| now < known.loaded.plus(BELIEVED)).map(|known| known.descriptor.clone())
    }

    /// Believes a descriptor. Its series are there from now on, so that a rate sees the first event of each.
    pub(super) fn learn(&self, descriptor: Descriptor) -> Arc<Descriptor> {
        self.metrics.topic(&descriptor.topic);
        for group in &descriptor.groups {
            self.metrics.group(&descriptor.topic, group);
        }
        let loaded = self.store.backend.clock().local().instant();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOPICS_MAX {
            known.clear();
        }
        let descriptor = Arc::new(descriptor);
        known.insert(descriptor.topic.clone(), Known { descriptor: descriptor.clone(), loaded });
        descriptor
    }

    pub(super) fn forget(&self, topic: &TopicName) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }
}

impl Broker {
    /// The settings of new topics.
    pub fn topic_defaults(&self) -> &Settings {
        &self.options.topic_defaults
    }

    /// Makes a topic, or changes the settings of one. Declaring what is there already does nothing.
    ///
    /// # Errors
    /// `Invalid` settings; `Conflict` for another number of partitions; `Full` past the limit of topics.
    pub async fn declare(&self, topic: TopicName, settings: Settings) -> Result<Declared> {
        self.declare_if(topic, settings, Precondition::None).await
    }

    /// The same if the topic is as expected. Of two that change it at once from the same generation, at whichever brokers,
    /// one succeeds.
    ///
    /// # Errors
    /// As [`Broker::declare`]; `Stale` when the topic is another one, or does not exist.
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
            return Ok(Declared { descriptor: self.topics.learn(there).as_ref().clone(), created });
        }
        if there.settings.partitions != wanted.settings.partitions {
            let (is, asked) = (there.settings.partitions, wanted.settings.partitions);
            let detail = format!(
                "topic {} has {is} partitions, not {asked}, and their number is fixed; \
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
        let updated = self.store.topics.update(&Descriptor { settings: wanted.settings, ..there }).await?;
        tracing::info!(topic = %updated.topic, "topic changed");
        Ok(Declared { descriptor: self.topics.learn(updated).as_ref().clone(), created: false })
    }

    /// A topic, as the store has it now.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn topic(&self, topic: &TopicName) -> Result<Arc<Descriptor>> {
        self.topics.look_again(topic).await
    }

    /// The names of all topics, sorted.
    pub async fn topics(&self) -> Result<Vec<TopicName>> {
        self.store.topics.topics().await
    }

    /// Counts the messages of every partition and group of a topic. What this process holds prefetched counts as ready.
    ///
    /// # Errors
    /// `NotFound`, `Full`.
    pub async fn stats(&self, topic: &TopicName) -> Result<Vec<(GroupPartition, PartitionStats)>> {
        let descriptor = self.topics.look(topic).await?;
        self.stats_of(&descriptor, &descriptor.groups).await
    }

    /// A group's topic, as the store has it now, and the counts of every partition of the group.
    ///
    /// # Errors
    /// `NotFound`, `Full`.
    pub async fn group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(Arc<Descriptor>, Vec<(GroupPartition, PartitionStats)>)> {
        let descriptor = self.topics.look_again(topic).await?;
        if !descriptor.groups.contains(group) {
            return Err(no_group(topic, group));
        }
        let stats = self.stats_of(&descriptor, std::slice::from_ref(group)).await?;
        Ok((descriptor, stats))
    }

    /// The live members of a group, as their heartbeats say.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn members(&self, topic: &TopicName, group: &GroupName) -> Result<Vec<MemberReport>> {
        let timing = Timing::new(self.options.lease_ttl, self.options.heartbeat);
        self.store.groups.members(topic, group, timing.absent_after()).await
    }

    async fn stats_of(
        &self,
        descriptor: &Descriptor,
        groups: &[GroupName],
    ) -> Result<Vec<(GroupPartition, PartitionStats)>> {
        let pairs: Vec<GroupPartition> = descriptor
            .partitions()
            .flat_map(|p| groups.iter().map(move |g| (p, g)))
            .map(|(p, g)| descriptor.pair(p, g))
            .collect();
        let read = self.reads.begin().await?;
        let mut stats = Vec::with_capacity(pairs.len());
        for some in pairs.chunks(PAIRS_AT_ONCE) {
            stats.extend(read.call(self.store.reads.stats(some)).await?);
        }
        for (pair, stats) in pairs.iter().zip(&mut stats) {
            let held = self.groups.held(pair).min(stats.in_flight);
            stats.in_flight -= held;
            stats.ready += held;
        }
        Ok(pairs.into_iter().zip(stats).collect())
    }

    /// Deletes a topic with all its messages.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<()> {
        self.delete_topic_if(topic, Precondition::None).await
    }

    /// The same if the topic is as expected, and is not changed by another request at the same time.
    ///
    /// # Errors
    /// `NotFound`; `Stale` when the topic is another one.
    pub async fn delete_topic_if(&self, topic: &TopicName, precondition: Precondition) -> Result<()> {
        let descriptor = self.topics.load(topic).await?;
        precondition.check(topic, Some(&descriptor))?;
        match precondition {
            Precondition::Generation(_) => self.store.topics.delete_unchanged(&descriptor).await?,
            Precondition::None | Precondition::Exists => self.store.topics.delete(&descriptor).await?,
        }
        self.topics.forget(topic);
        self.groups.close(&descriptor);
        tracing::info!(%topic, "topic deleted");
        Ok(())
    }

    pub(super) fn topic_metrics(&self, topic: &TopicName) -> Arc<TopicMetrics> {
        self.metrics.topic(topic)
    }
}
