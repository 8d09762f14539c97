//! Groups: the deliveries that run in this process; creating, changing, pausing and deleting a group; and filling one
//! that begins with a copy of another.
//!
//! A copy remembers nothing: until the descriptor says that it is done nothing is handed out, so a broker that begins
//! it again, after a crash or beside another broker, finds what was copied and leaves it alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Broker, Options, no_group};
use crate::coordination::lease::LeaseKeeper;
use crate::coordination::membership::Timing;
use crate::delivery::{DeliveryOptions, GroupDelivery, Heartbeats, Membership, PrefetchBudget, ReceiptKeys};
use crate::gate::Identity;
use crate::model::error::{Error, Fault, Kind, Result};
use crate::model::limits::{DELAY_MAX, GROUPS_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, show_span};
use crate::model::topic::{
    Descriptor, Fairness, KeyException, KeyPatterns, KeyRate, Pause, Rate, Subscription, Weight,
};
use crate::model::window::DeliveryWindow;
use crate::platform::tasks::Tasks;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Tracer;

const COPY_RETRY_AFTER: Duration = Duration::from_millis(500);
const CHANGE_TRIES_MAX: usize = 5;
/// How long creating a group waits for its copy to complete; the copy continues after the answer.
const COPY_WAIT: Duration = Duration::from_secs(2);

type GroupInTopic = (TopicName, GroupName);

pub(super) struct Groups {
    store: Store,
    keeper: Arc<LeaseKeeper>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    timing: Timing,
    delivery_options: DeliveryOptions,
    tracer: Tracer,
    most: usize,
    joined: Arc<Mutex<HashMap<GroupInTopic, Joined>>>,
}

struct Joined {
    delivery: Arc<GroupDelivery>,
    partitions: usize,
    /// Whose request made this broker a member.
    who: Identity,
}

/// The detail of a 503 while the process stops.
pub const STOPPING: &str = "this broker is stopping; ask another one";

impl Groups {
    pub(super) fn new(
        store: Store,
        keeper: Arc<LeaseKeeper>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
        receipt_keys: Arc<ReceiptKeys>,
        options: &Options,
    ) -> Groups {
        let timing = Timing::new(options.lease_ttl, options.heartbeat);
        let (drain_timeout, idle_timeout) = (options.drain_timeout, options.idle_timeout);
        let heartbeats = Heartbeats::new(store.clone(), keeper.member().clone(), timing.absent_after(), tasks.clone());
        let budget = PrefetchBudget::new(options.prefetch_bytes);
        let delivery_options = DeliveryOptions { drain_timeout, idle_timeout, budget, heartbeats, receipt_keys };
        let most = options.member_partitions;
        let tracer = options.tracer.clone();
        Groups { store, keeper, metrics, tasks, timing, delivery_options, tracer, most, joined: Arc::default() }
    }

    /// Starts the loops the first time. Errors: `NotFound` when the topic has no such group, `Unavailable` while the
    /// process stops, `Full` past [`Options::member_partitions`], or past the share of the token that asks.
    pub(super) fn join(&self, descriptor: &Arc<Descriptor>, group: &GroupName) -> Result<Arc<GroupDelivery>> {
        if self.is_stopping() {
            return Err(Error::unavailable(STOPPING));
        }
        if let Some(delivery) = self.find(descriptor, group)?.filter(|delivery| !delivery.is_closed()) {
            return Ok(delivery);
        }
        let delivery = Arc::new(GroupDelivery::new(
            self.store.clone(),
            self.keeper.clone(),
            descriptor.clone(),
            group.clone(),
            self.delivery_options.clone(),
            self.metrics.clone(),
            self.tracer.clone(),
        ));
        let mut joined = lock(&self.joined);
        // Another call may have joined meanwhile; its loops are running.
        if let Some(there) = joined.get(&place(descriptor, group)).filter(|there| there.is_open(descriptor)) {
            return Ok(there.delivery.clone());
        }
        let partitions = usize::from(descriptor.settings.partitions.get());
        let who = Identity::current();
        make_room(&mut joined, &place(descriptor, group), (&who, partitions), self.most)?;
        let new = Joined { delivery: delivery.clone(), partitions, who };
        if let Some(replaced) = joined.insert(place(descriptor, group), new) {
            // Two of them would take the partitions from each other, since they are the same member.
            replaced.delivery.close();
        }
        let membership = Membership::new(delivery.clone(), self.timing, self.tasks.clone());
        let (stop, all, place, left) =
            (self.tasks.stopping(), self.joined.clone(), place(descriptor, group), delivery.clone());
        self.tasks.start(async move {
            membership.run(stop).await;
            // Unless it has been joined again meanwhile.
            let mut joined = lock(&all);
            if joined.get(&place).is_some_and(|there| Arc::ptr_eq(&there.delivery, &left)) {
                joined.remove(&place);
            }
        });
        tracing::info!(topic = %descriptor.topic, %group, member = %self.keeper.member(), "group joined");
        Ok(delivery)
    }

    pub(super) fn find(&self, descriptor: &Descriptor, group: &GroupName) -> Result<Option<Arc<GroupDelivery>>> {
        if !descriptor.groups.contains(group) {
            return Err(no_group(descriptor, group));
        }
        let joined = lock(&self.joined);
        let there = joined.get(&place(descriptor, group)).filter(|there| there.serves(descriptor));
        Ok(there.map(|there| there.delivery.clone()))
    }

    pub(super) fn all(&self) -> Vec<Arc<GroupDelivery>> {
        lock(&self.joined).values().map(|there| there.delivery.clone()).collect()
    }

    /// Ends the delivery of a deleted topic, but not of one that was created under its name since.
    pub(super) fn close(&self, gone: &Descriptor) {
        lock(&self.joined).retain(|(name, _), there| {
            let is_gone = *name == gone.topic && there.delivery.descriptor().incarnation <= gone.incarnation;
            if is_gone {
                there.delivery.abandon();
            }
            !is_gone
        });
    }

    fn follow(&self, descriptor: &Arc<Descriptor>) {
        lock(&self.joined).retain(|(name, _), there| {
            let stays = *name != descriptor.topic || there.delivery.follow(descriptor);
            if !stays {
                there.delivery.abandon();
            }
            stays
        });
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.tasks.stopping().is_cancelled()
    }
}

fn lock(joined: &Mutex<HashMap<GroupInTopic, Joined>>) -> MutexGuard<'_, HashMap<GroupInTopic, Joined>> {
    joined.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends memberships that nobody uses until there is room for so many partitions: past the share of a token its own, otherwise
/// first those of the token that has most, and of those the one that was asked for longest ago. Errors: `Full`.
fn make_room(
    joined: &mut HashMap<GroupInTopic, Joined>,
    place: &GroupInTopic,
    (who, partitions): (&Identity, usize),
    most: usize,
) -> Result<()> {
    let others = || joined.iter().filter(|(other, _)| *other != place);
    let held_by =
        |who: &Identity| others().filter(|(_, there)| there.who == *who).map(|(_, there)| there.partitions).sum();
    let (mut taken, mut own): (usize, usize) = (others().map(|(_, there)| there.partitions).sum(), held_by(who));
    let share = who.places(most);
    if taken + partitions <= most && own + partitions <= share {
        return Ok(());
    }
    let mut held: HashMap<Option<&Arc<str>>, usize> = HashMap::new();
    others().for_each(|(_, there)| *held.entry(there.who.name()).or_default() += there.partitions);
    let vacant = |(place, there): (&GroupInTopic, &Joined)| {
        let held = held.get(&there.who.name()).copied().unwrap_or(0);
        Some((held, there.delivery.vacant_for()?, there.who == *who, there.partitions, place.clone()))
    };
    let mut vacant: Vec<_> = others().filter_map(vacant).collect();
    vacant.sort_unstable();
    let mut gone = Vec::new();
    while taken + partitions > most || own + partitions > share {
        let is_past_share = own + partitions > share;
        let next = vacant.iter().rposition(|(.., is_own, _, _)| *is_own || !is_past_share);
        let Some(next) = next else { return Err(no_room((taken, own), (most, share))) };
        let (.., is_own, partitions, place) = vacant.remove(next);
        taken -= partitions;
        own -= if is_own { partitions } else { 0 };
        gone.push(place);
    }
    for place in gone {
        if let Some(left) = joined.remove(&place) {
            tracing::info!(topic = %place.0, group = %place.1, "group left: nobody consumes it, and another one needs its room");
            left.delivery.close();
        }
    }
    Ok(())
}

fn no_room((taken, own): (usize, usize), (most, share): (usize, usize)) -> Error {
    let whose = match taken < most && share < most {
        true => format!("groups with {own} partitions together by requests of this token, and {share} are its share"),
        false => format!("groups with {taken} partitions together, and {most} are the limit"),
    };
    let detail = format!(
        "this broker is a member of {whose}: consume from another broker, or try again once it has left groups that nobody \
         consumes (group.idle_timeout)"
    );
    Error::new(Kind::Full, detail)
}

impl Joined {
    /// A topic or a group that was deleted and created again is another one.
    fn serves(&self, descriptor: &Descriptor) -> bool {
        descriptor.has_same(&self.delivery.descriptor(), self.delivery.group())
    }

    fn is_open(&self, descriptor: &Descriptor) -> bool {
        self.serves(descriptor) && !self.delivery.is_closed()
    }
}

fn place(descriptor: &Descriptor, group: &GroupName) -> GroupInTopic {
    (descriptor.topic.clone(), group.clone())
}

pub(super) type Filling = Arc<Mutex<HashSet<(TopicName, GroupName)>>>;

struct Filled {
    filling: Filling,
    place: (TopicName, GroupName),
    done: CancellationToken,
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.place);
        self.done.cancel();
    }
}

impl Broker {
    /// In the background, unless this process does so already. The future ends when nothing is filled here any more.
    pub(super) fn copy_group(
        &self,
        descriptor: &Arc<Descriptor>,
        group: &GroupName,
    ) -> impl Future<Output = ()> + Send + use<> {
        let done = CancellationToken::new();
        let place = (descriptor.topic.clone(), group.clone());
        let is_copy = descriptor.subscription(group).copy_of.is_some();
        let filling = self.filling.clone();
        if is_copy && filling.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone()) {
            let filled = Filled { filling, place, done: done.clone() };
            let (broker, born) = (self.clone(), descriptor.clone());
            self.tasks.start(async move { broker.fill(&filled, &born).await });
        } else {
            done.cancel();
        }
        async move { done.cancelled().await }
    }

    async fn fill(&self, filled: &Filled, born: &Descriptor) {
        let (topic, group) = &filled.place;
        let clock = self.store.backend.clock().local();
        loop {
            let error = match self.fill_once(topic, group, born).await {
                Ok(()) => return,
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt | Kind::Bug) => {
                    return tracing::warn!(%topic, %group, %error, "group copy given up");
                }
                Err(error) => error,
            };
            tracing::debug!(%topic, %group, %error, "group copy tried again");
            if self.tasks.stopping().run_until_cancelled(clock.sleep(COPY_RETRY_AFTER)).await.is_none() {
                return;
            }
        }
    }

    async fn fill_once(&self, topic: &TopicName, group: &GroupName, born: &Descriptor) -> Result<()> {
        let descriptor = self.topics.load(topic).await?;
        if !descriptor.has_same(born, group) {
            return Err(Error::not_found(format!("group {group} of topic {topic} is gone")));
        }
        if descriptor.subscription(group).copy_of.is_none() {
            return Ok(());
        }
        // A push under an older descriptor would not reach the group, and its message might come behind the scan.
        self.store.topics.publish_descriptor(&descriptor).await?;
        let mut messages = 0;
        for partition in descriptor.partitions() {
            messages += self.fill_partition(&descriptor, partition, group).await?;
        }
        self.change(topic, |there| {
            if !there.has_same(&descriptor, group) {
                return Err(Error::not_found(format!("group {group} of topic {topic} is gone")));
            }
            let mut wanted = there.clone();
            wanted.subscription_mut(group).copy_of = None;
            Ok((wanted != *there).then_some(wanted))
        })
        .await?;
        tracing::info!(%topic, %group, messages, "group copied");
        Ok(())
    }

    async fn fill_partition(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) -> Result<usize> {
        let clock = self.store.backend.clock().local();
        let (mut from, mut messages) = (None, 0);
        loop {
            let began = clock.instant();
            let page = self.store.maintenance.copy(descriptor, partition, group, from).await?;
            messages += page.messages;
            from = page.next;
            if from.is_none() {
                return Ok(messages);
            }
            // Live traffic keeps half of the store.
            let rest = clock.sleep(clock.instant().since(began));
            if self.tasks.stopping().run_until_cancelled(rest).await.is_none() {
                return Err(Error::unavailable(STOPPING));
            }
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupRequest {
    /// A new group gets a copy of the messages of this one; without it, only those pushed from now on.
    pub copy_of: Option<GroupName>,
    /// Messages that are handed out in a second, at most; 0 is without a limit. `None` leaves it as it is.
    pub rate: Option<f64>,
    /// Deliveries in flight, at most; 0 is without a limit. `None` leaves it as it is.
    pub max_in_flight: Option<u32>,
    /// `Some(None)` is always open. `None` leaves it as it is.
    pub window: Option<Option<DeliveryWindow>>,
    /// `None` leaves it as it is.
    pub fair: Option<Fairness>,
    /// Deliveries of one key in flight, at most; 0 is without a limit. `None` leaves it as it is.
    pub key_max_in_flight: Option<u32>,
    /// Deliveries of one key in a second, at most; 0 is without a limit. `None` leaves it as it is.
    pub key_rate: Option<f64>,
    /// Deliveries of one key that may be made at once, where it has a rate. `None` leaves it as it is, and is 1 for a new rate.
    pub key_burst: Option<u32>,
    /// Replaces all other limits of some keys. `None` leaves them as they are.
    pub key_limits: Option<KeyPatterns<KeyException>>,
    /// Replaces all weights. `None` leaves them as they are.
    pub weights: Option<KeyPatterns<Weight>>,
}

impl GroupRequest {
    fn key_rate(&self, before: Option<KeyRate>) -> Result<Option<KeyRate>> {
        let per_second = self.key_rate.or(before.map(KeyRate::per_second)).filter(|rate| *rate != 0.0);
        let Some(per_second) = per_second else {
            let why = "is for a rate of each key; give `key_rate` with it";
            let is_alone = self.key_burst.is_some();
            return if is_alone { Err(Error::wrong(Fault::Missing, "key_burst", why)) } else { Ok(None) };
        };
        let burst = self.key_burst.or(before.map(KeyRate::burst)).unwrap_or(1);
        KeyRate::new(per_second, burst).map(Some)
    }

    fn apply(&self, subscription: &mut Subscription) -> Result<()> {
        if let Some(rate) = self.rate {
            subscription.rate = if rate == 0.0 { None } else { Some(Rate::new(rate)?) };
        }
        if let Some(limit) = self.max_in_flight {
            subscription.max_in_flight = (limit > 0).then_some(limit);
        }
        if let Some(window) = &self.window {
            subscription.window = window.clone();
        }
        subscription.fair = self.fair.or(subscription.fair);
        if let Some(limit) = self.key_max_in_flight {
            subscription.key_max_in_flight = (limit > 0).then_some(limit);
        }
        subscription.key_rate = self.key_rate(subscription.key_rate)?;
        if let Some(limits) = &self.key_limits {
            subscription.key_limits = limits.clone();
        }
        if let Some(weights) = &self.weights {
            subscription.weights = weights.clone();
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseFor {
    Ever,
    Span(Duration),
    Until(Timestamp),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subscribed {
    pub descriptor: Arc<Descriptor>,
    pub created: bool,
}

impl Broker {
    /// Creates a group, or changes its limits. Errors: `Invalid` limits; `NotFound`; `Full` past the limit of groups;
    /// `Conflict` for a copy of a group that does not exist, or is being copied itself.
    pub async fn create_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        request: GroupRequest,
    ) -> Result<Subscribed> {
        let (mut created, mut changed) = (false, false);
        let descriptor = self
            .change(topic, |there| {
                created = !there.groups.contains(group);
                let mut wanted = there.clone();
                let mut subscription = there.subscription(group);
                request.apply(&mut subscription)?;
                if created {
                    admit(there, &request)?;
                    wanted.groups.push(group.clone());
                    subscription.copy_of = request.copy_of.clone();
                    subscription.began_as_copy = request.copy_of.is_some();
                }
                if subscription != there.subscription(group) {
                    *wanted.subscription_mut(group) = subscription;
                }
                wanted.check()?;
                changed = wanted != *there;
                Ok(changed.then_some(wanted))
            })
            .await?;
        match (created, changed) {
            (true, _) => tracing::info!(%topic, %group, "group created"),
            (false, true) => tracing::info!(%topic, %group, "group changed"),
            (false, false) => {}
        }
        let copied = self.copy_group(&descriptor, group);
        let clock = self.store.backend.clock().local();
        tokio::select! {
            () = copied => {}
            () = clock.sleep(COPY_WAIT) => {}
        }
        Ok(Subscribed { descriptor: self.topics.get(topic).await?, created })
    }

    /// Deletes a group with all its messages, also those in flight. Errors: `NotFound`; `Conflict` for the only group of a topic, and for one being copied.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        let mut gone = false;
        self.change(topic, |there| {
            if there.leaving.contains(group) {
                gone = true;
                return Ok(Some(there.clone()));
            }
            if !there.groups.contains(group) {
                return if gone { Ok(None) } else { Err(no_group(there, group)) };
            }
            dismiss(there, group)?;
            gone = true;
            let mut wanted = there.clone();
            wanted.groups.retain(|other| other != group);
            Ok(Some(wanted))
        })
        .await?;
        tracing::info!(%topic, %group, "group deleted");
        Ok(())
    }

    /// Messages in flight may still be settled. Errors: `NotFound`, `Invalid` for a pause that ends too late.
    pub async fn pause_group(&self, topic: &TopicName, group: &GroupName, pause: PauseFor) -> Result<Arc<Descriptor>> {
        let until = self.end_of(pause)?;
        self.set_pause(topic, group, Some(Pause { until })).await
    }

    /// `None` is never. Errors: `Invalid` if that is too late, or over already: it would end a pause.
    pub(super) fn end_of(&self, pause: PauseFor) -> Result<Option<Timestamp>> {
        let now = self.store.backend.clock().now();
        let (field, until) = match pause {
            PauseFor::Ever => ("for", None),
            PauseFor::Span(span) => ("for", Some(now.plus(span))),
            PauseFor::Until(until) => ("until", Some(until)),
        };
        if until.is_some_and(|until| until > now.plus(DELAY_MAX)) {
            let why = format!("a pause lasts {} at most", show_span(DELAY_MAX));
            return Err(Error::range(field, why));
        }
        if until.is_some_and(|until| until <= now) {
            return Err(Error::range(field, "a pause ends later than now; resume ends one"));
        }
        Ok(until)
    }

    pub async fn resume_group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        self.set_pause(topic, group, None).await
    }

    async fn set_pause(&self, topic: &TopicName, group: &GroupName, pause: Option<Pause>) -> Result<Arc<Descriptor>> {
        let mut changed = false;
        let change = self.change(topic, |there| {
            if !there.groups.contains(group) {
                return Err(no_group(there, group));
            }
            let mut wanted = there.clone();
            wanted.subscription_mut(group).paused = pause;
            changed = wanted != *there;
            Ok(changed.then_some(wanted))
        });
        let descriptor = change.await?;
        match pause {
            _ if !changed => {}
            Some(Pause { until: Some(until) }) => tracing::info!(%topic, %group, %until, "group paused"),
            Some(Pause { until: None }) => tracing::info!(%topic, %group, "group paused"),
            None => tracing::info!(%topic, %group, "group resumed"),
        }
        Ok(descriptor)
    }

    /// `None` changes nothing. Every partition knows the result once this has answered.
    pub(super) async fn change(
        &self,
        topic: &TopicName,
        mut change: impl FnMut(&Descriptor) -> Result<Option<Descriptor>>,
    ) -> Result<Arc<Descriptor>> {
        let mut outcome = Err(Error::bug("a change was never tried"));
        for _ in 0..CHANGE_TRIES_MAX {
            let there = self.topics.load(topic).await?;
            outcome = match change(&there)? {
                Some(wanted) => self.store.topics.update(&wanted).await,
                // The change that made it so may have been cut short before every partition knew.
                None => self.store.topics.publish_descriptor(&there).await.map(|()| there.as_ref().clone()),
            };
            if !matches!(&outcome, Err(error) if error.kind() == Kind::Stale) {
                break;
            }
        }
        let descriptor = self.topics.cache(outcome?);
        self.groups.follow(&descriptor);
        Ok(descriptor)
    }
}

fn admit(there: &Descriptor, request: &GroupRequest) -> Result<()> {
    if there.groups.len() >= GROUPS_MAX {
        let detail = format!("topic {} has {GROUPS_MAX} groups, which is the limit; delete one first", there.topic);
        return Err(Error::new(Kind::Full, detail));
    }
    let Some(source) = &request.copy_of else { return Ok(()) };
    if !there.groups.contains(source) {
        return Err(Error::new(Kind::Conflict, format!("topic {} has no group {source} to copy", there.topic)));
    }
    if there.subscription(source).copy_of.is_some() {
        return Err(Error::new(Kind::Conflict, format!("group {source} is being copied itself; try again later")));
    }
    Ok(())
}

fn dismiss(there: &Descriptor, group: &GroupName) -> Result<()> {
    if there.groups.len() == 1 {
        let detail =
            format!("{group} is the only group of topic {}; delete the topic, or make another one first", there.topic);
        return Err(Error::new(Kind::Conflict, detail));
    }
    let copies = |(_, subscription): &(_, &Subscription)| subscription.copy_of.as_ref() == Some(group);
    match there.subscriptions.iter().find(copies) {
        None => Ok(()),
        Some((copy, _)) => {
            let detail = format!("group {group} is being copied to {copy}; delete that one, or try again later");
            Err(Error::new(Kind::Conflict, detail))
        }
    }
}
