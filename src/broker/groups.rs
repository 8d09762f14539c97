//! The groups that this process consumes for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Options, no_group};
use crate::dispatch::{Dispatch, Membership, Patience};
use crate::error::{Error, Result};
use crate::group::Timing;
use crate::lease::Keeper;
use crate::message::{GroupName, TopicName};
use crate::metrics::Metrics;
use crate::spans::Tracer;
use crate::store::Store;
use crate::tasks::Tasks;
use crate::topic::{Descriptor, Pair};

type Place = (TopicName, GroupName);

/// One [`Dispatch`] for each group that a local consumer asked for.
pub(super) struct Groups {
    store: Arc<dyn Store>,
    keeper: Arc<Keeper>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    timing: Timing,
    patience: Patience,
    tracer: Tracer,
    joined: Mutex<HashMap<Place, Joined>>,
}

struct Joined {
    dispatch: Arc<Dispatch>,
}

impl Groups {
    pub(super) fn new(
        store: Arc<dyn Store>,
        keeper: Arc<Keeper>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
        options: &Options,
    ) -> Groups {
        let timing = Timing::new(options.lease_ttl, options.heartbeat);
        let patience = Patience { drain_timeout: options.drain_timeout, idle_timeout: options.idle_timeout };
        let tracer = options.tracer.clone();
        Groups { store, keeper, metrics, tasks, timing, patience, tracer, joined: Mutex::default() }
    }

    /// The dispatch of a group; the first time, loops begin that take its pairs.
    ///
    /// # Errors
    /// `NotFound` when the topic has no such group, `Unavailable` while the process stops.
    pub(super) fn join(&self, descriptor: &Arc<Descriptor>, group: &GroupName) -> Result<Arc<Dispatch>> {
        if self.is_stopping() {
            return Err(Error::unavailable("this dwell is stopping; ask another one"));
        }
        if let Some(dispatch) = self.find(descriptor, group)?.filter(|dispatch| !dispatch.is_closed()) {
            return Ok(dispatch);
        }
        let dispatch = Arc::new(Dispatch::new(
            self.store.clone(),
            self.keeper.clone(),
            descriptor.clone(),
            group.clone(),
            self.patience,
            self.metrics.clone(),
            self.tracer.clone(),
        ));
        let mut joined = self.lock();
        // Someone else may have joined meanwhile; its loops are running.
        if let Some(there) = joined.get(&place(descriptor, group)).filter(|there| there.is_open(descriptor)) {
            return Ok(there.dispatch.clone());
        }
        let new = Joined { dispatch: dispatch.clone() };
        if let Some(replaced) = joined.insert(place(descriptor, group), new) {
            // Two of them would take the pairs from each other for ever, since they are the same member.
            replaced.dispatch.close();
        }
        let membership = Membership::new(dispatch.clone(), self.timing, self.tasks.clone());
        self.tasks.start(membership.run(self.tasks.stopping()));
        tracing::info!(topic = %descriptor.topic, %group, member = %self.keeper.member(), "group joined");
        Ok(dispatch)
    }

    /// The dispatch of a group, if this process consumes for it. # Errors: `NotFound` when the topic has no such group.
    pub(super) fn find(&self, descriptor: &Descriptor, group: &GroupName) -> Result<Option<Arc<Dispatch>>> {
        if !descriptor.groups.contains(group) {
            return Err(no_group(&descriptor.topic, group));
        }
        let joined = self.lock();
        let there = joined.get(&place(descriptor, group)).filter(|there| there.serves(descriptor));
        Ok(there.map(|there| there.dispatch.clone()))
    }

    /// How many messages of a pair are reserved here and not handed out.
    pub(super) fn held(&self, pair: &Pair) -> u64 {
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
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
