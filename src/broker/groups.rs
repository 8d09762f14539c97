//! The groups that this process consumes for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Options, no_group};
use crate::coordination::lease::LeaseKeeper;
use crate::coordination::membership::Timing;
use crate::delivery::{GroupDelivery, Heartbeats, Membership, PrefetchBudget, Terms};
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::tasks::Tasks;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Tracer;

type Place = (TopicName, GroupName);

/// One [`GroupDelivery`] for each group that a local consumer asked for.
pub(super) struct Groups {
    store: Store,
    keeper: Arc<LeaseKeeper>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    timing: Timing,
    terms: Terms,
    tracer: Tracer,
    /// Partitions of all groups together, at most.
    most: usize,
    joined: Arc<Mutex<HashMap<Place, Joined>>>,
}

struct Joined {
    dispatch: Arc<GroupDelivery>,
    partitions: usize,
}

impl Groups {
    pub(super) fn new(
        store: Store,
        keeper: Arc<LeaseKeeper>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
        options: &Options,
    ) -> Groups {
        let timing = Timing::new(options.lease_ttl, options.heartbeat);
        let (drain_timeout, idle_timeout) = (options.drain_timeout, options.idle_timeout);
        let heartbeats = Heartbeats::new(store.clone(), keeper.member().clone(), timing.absent_after(), tasks.clone());
        let budget = PrefetchBudget::new(options.prefetch_bytes);
        let terms = Terms { drain_timeout, idle_timeout, budget, heartbeats };
        let most = options.member_partitions;
        let tracer = options.tracer.clone();
        Groups { store, keeper, metrics, tasks, timing, terms, tracer, most, joined: Arc::default() }
    }

    /// The dispatch of a group; the first time, loops begin that take its pairs.
    ///
    /// # Errors
    /// `NotFound` when the topic has no such group, `Unavailable` while the process stops, `Full` past
    /// [`Options::member_partitions`].
    pub(super) fn join(&self, descriptor: &Arc<Descriptor>, group: &GroupName) -> Result<Arc<GroupDelivery>> {
        if self.is_stopping() {
            return Err(Error::unavailable("this dwell is stopping; ask another one"));
        }
        if let Some(dispatch) = self.find(descriptor, group)?.filter(|dispatch| !dispatch.is_closed()) {
            return Ok(dispatch);
        }
        let dispatch = Arc::new(GroupDelivery::new(
            self.store.clone(),
            self.keeper.clone(),
            descriptor.clone(),
            group.clone(),
            self.terms.clone(),
            self.metrics.clone(),
            self.tracer.clone(),
        ));
        let mut joined = self.lock();
        // Someone else may have joined meanwhile; its loops are running.
        if let Some(there) = joined.get(&place(descriptor, group)).filter(|there| there.is_open(descriptor)) {
            return Ok(there.dispatch.clone());
        }
        let partitions = usize::from(descriptor.settings.partitions.get());
        let others = joined.iter().filter(|(other, _)| **other != place(descriptor, group));
        check_room(others.map(|(_, there)| there.partitions).sum(), partitions, self.most)?;
        let new = Joined { dispatch: dispatch.clone(), partitions };
        if let Some(replaced) = joined.insert(place(descriptor, group), new) {
            // Two of them would take the pairs from each other for ever, since they are the same member.
            replaced.dispatch.close();
        }
        let membership = Membership::new(dispatch.clone(), self.timing, self.tasks.clone());
        let (stop, all, place, left) =
            (self.tasks.stopping(), self.joined.clone(), place(descriptor, group), dispatch.clone());
        self.tasks.start(async move {
            membership.run(stop).await;
            // Unless it has been joined again meanwhile.
            let mut joined = lock(&all);
            if joined.get(&place).is_some_and(|there| Arc::ptr_eq(&there.dispatch, &left)) {
                joined.remove(&place);
            }
        });
        tracing::info!(topic = %descriptor.topic, %group, member = %self.keeper.member(), "group joined");
        Ok(dispatch)
    }

    /// The dispatch of a group, if this process consumes for it. # Errors: `NotFound` when the topic has no such group.
    pub(super) fn find(&self, descriptor: &Descriptor, group: &GroupName) -> Result<Option<Arc<GroupDelivery>>> {
        if !descriptor.groups.contains(group) {
            return Err(no_group(&descriptor.topic, group));
        }
        let joined = self.lock();
        let there = joined.get(&place(descriptor, group)).filter(|there| there.serves(descriptor));
        Ok(there.map(|there| there.dispatch.clone()))
    }

    /// How many messages of a pair are reserved here and not handed out.
    pub(super) fn held(&self, pair: &GroupPartition) -> u64 {
        let joined = self.lock();
        let held =
            joined.get(&(pair.topic.clone(), pair.group.clone())).map(|there| there.dispatch.held(pair.partition));
        held.unwrap_or(0) as u64
    }

    /// Ends the dispatch of a topic that is gone, and not of one that was made under its name meanwhile.
    pub(super) fn close(&self, gone: &Descriptor) {
        self.lock().retain(|(name, _), there| {
            let is_gone = *name == gone.topic && there.dispatch.descriptor().incarnation <= gone.incarnation;
            if is_gone {
                there.dispatch.abandon();
            }
            !is_gone
        });
    }

    /// Lets the dispatches of a topic know that it changed; those of groups that are gone end.
    pub(super) fn follow(&self, descriptor: &Arc<Descriptor>) {
        self.lock().retain(|(name, _), there| {
            let stays = *name != descriptor.topic || there.dispatch.follow(descriptor);
            if !stays {
                there.dispatch.abandon();
            }
            stays
        });
    }

    /// Whether the loops have to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.tasks.stopping().is_cancelled()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Joined>> {
        lock(&self.joined)
    }
}

fn lock(joined: &Mutex<HashMap<Place, Joined>>) -> MutexGuard<'_, HashMap<Place, Joined>> {
    // Nothing panics while the lock is held; if it did, the map would still be whole.
    joined.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Errors
/// `Full` when this process is a member of too many groups to join one with so many partitions.
fn check_room(taken: usize, partitions: usize, most: usize) -> Result<()> {
    if taken + partitions <= most {
        return Ok(());
    }
    let detail = format!(
        "this broker is a member of groups with {taken} partitions together, and {most} are the limit: consume from another \
         broker, or try again once it has left groups that nobody consumes (group.idle_timeout)"
    );
    Err(Error::new(Kind::Full, detail))
}

impl Joined {
    /// A topic, or a group, that was deleted and made again is another one.
    fn serves(&self, descriptor: &Descriptor) -> bool {
        descriptor.has_same(&self.dispatch.descriptor(), self.dispatch.group())
    }

    fn is_open(&self, descriptor: &Descriptor) -> bool {
        self.serves(descriptor) && !self.dispatch.is_closed()
    }
}

fn place(descriptor: &Descriptor, group: &GroupName) -> Place {
    (descriptor.topic.clone(), group.clone())
}
