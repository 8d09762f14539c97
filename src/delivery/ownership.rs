//! One tenure of a pair: acquire it, recover what its last owner left, serve it, and give it up or lose it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::owned_partition::Kick;
use super::owner_loop::OwnerLoop;
use super::{GroupDelivery, Owned, Table};
use crate::model::error::{Error, Kind, Result};
use crate::model::partition::Partition;
use crate::model::topic::GroupPartition;
use crate::store::{Acquired, Channel, Claim, MemberId, Owner, Wake};

/// How an acquisition ended.
pub(super) enum Acquisition {
    /// The pair is ours, and recovered.
    Owned(Box<Ownership>),
    /// Someone else has it, for so long if it is not renewed.
    Held(MemberId, Duration),
    /// The topic or the group is gone.
    Gone,
}

/// A pair that is owned and ready to be served.
pub(super) struct Ownership {
    dispatch: Arc<GroupDelivery>,
    partition: Partition,
    serving: OwnerLoop,
    woken: Arc<Notify>,
}

impl Ownership {
    /// One try to acquire the pair, whose loop is woken and released by `kick`.
    pub(super) async fn acquire(
        dispatch: &Arc<GroupDelivery>,
        partition: Partition,
        kick: &Arc<Kick>,
    ) -> Result<Acquisition> {
        let pair = dispatch.descriptor().pair(partition, &dispatch.group);
        let keeper = &dispatch.keeper;
        let losses = dispatch.store.backend.losses().borrow().count;
        let sent = dispatch.store.backend.clock().local().instant();
        let generation = dispatch.descriptor().generation;
        match dispatch.store.leases.acquire(&pair, keeper.member(), keeper.ttl(), generation).await {
            Ok(Acquired::Held { by, expires_in }) => Ok(Acquisition::Held(by, expires_in)),
            Ok(Acquired::Owned(mut owner)) => {
                if dispatch.descriptor().is_ordered() {
                    owner.keep_places();
                }
                // What was acquired while the store may have lost something hands nothing out: another may own it too.
                if dispatch.store.backend.losses().borrow().count != losses {
                    return Err(Error::unavailable(format!("{pair} was acquired while the store changed; it waits")));
                }
                let claim = Claim { pair: pair.clone(), epoch: owner.epoch().clone() };
                let table = Table::new(&claim, dispatch.policy(partition));
                let lease = keeper.keep(claim, sent);
                let owner = recover(dispatch, &pair, owner).await.inspect_err(|_| keeper.forget(&lease))?;
                let owned = Arc::new(Owned::new(lease, table, dispatch.terms.budget.clone(), kick.clone()));
                let woken = Arc::new(Notify::new());
                let serving = OwnerLoop::new(dispatch.clone(), owner, owned, woken.clone());
                Ok(Acquisition::Owned(Box::new(Ownership { dispatch: dispatch.clone(), partition, serving, woken })))
            }
            Err(error) if error.kind() == Kind::Stale => match dispatch.reload().await? {
                true => Err(Error::unavailable(format!("the topic of {pair} has changed"))),
                false => Ok(Acquisition::Gone),
            },
            Err(error) => Err(error),
        }
    }

    /// Serves until it is released, then drains and gives the lease up.
    ///
    /// # Errors
    /// `Stale` when the pair was lost, with whether its lease was valid to the end.
    pub(super) async fn serve(mut self: Box<Self>) -> Result<()> {
        let owned = self.serving.owned();
        let _wake = self.begin(&owned);
        let served = self.serving.serve().await;
        self.end(&owned, served).await
    }

    fn begin(&self, owned: &Arc<Owned>) -> Wake {
        let Claim { pair, epoch } = owned.lease.claim();
        let wake = self.dispatch.store.backend.wakes().subscribe(Channel::head(pair), self.woken.clone());
        self.dispatch.enter(self.partition, owned.clone());
        let GroupPartition { topic, group, partition } = pair;
        tracing::debug!(%topic, %group, partition = partition.0, %epoch, "lease acquired");
        wake
    }

    async fn end(self: Box<Self>, owned: &Arc<Owned>, served: Result<()>) -> Result<()> {
        let Ownership { dispatch, partition, serving, .. } = *self;
        let end = Box::pin(serving.end(served)).await;
        dispatch.leave(partition, owned);
        dispatch.keeper.forget(&owned.lease);
        let Claim { pair: GroupPartition { topic, group, .. }, epoch } = owned.lease.claim();
        match &end {
            Ok(()) => tracing::debug!(%topic, %group, partition = partition.0, %epoch, "lease released"),
            Err(error) => {
                dispatch.metrics.ownership.leases_lost.inc();
                dispatch.changes.lost(error);
                tracing::debug!(%topic, %group, partition = partition.0, %epoch, %error, "lease lost");
            }
        }
        end
    }
}

/// Schedules again what older epochs hold, before anything is reserved.
async fn recover(dispatch: &GroupDelivery, pair: &GroupPartition, mut owner: Box<dyn Owner>) -> Result<Box<dyn Owner>> {
    let (mut recovered, mut left_behind) = (0, false);
    let orphans = loop {
        let page = owner.recover().await?;
        recovered += page.messages;
        left_behind |= page.left_behind;
        if !page.more {
            break page.orphans;
        }
    };
    if orphans > 0 {
        repair(dispatch, pair, &mut owner, orphans).await?;
    }
    if left_behind {
        dispatch.metrics.ownership.takeovers.inc();
        let GroupPartition { topic, group, partition, .. } = pair;
        let (partition, epoch, messages) = (partition.0, owner.epoch(), recovered);
        tracing::debug!(%topic, %group, partition, %epoch, messages, "messages of an older epoch recovered");
        dispatch.changes.recovered(messages);
    }
    Ok(owner)
}

/// Bodies that are in no place would never be delivered. No rule of the protocol leaves any; a store that lost data, or
/// someone who changed its keys, may.
async fn repair(
    dispatch: &GroupDelivery,
    pair: &GroupPartition,
    owner: &mut Box<dyn Owner>,
    orphans: u64,
) -> Result<()> {
    let GroupPartition { topic, group, partition, .. } = pair;
    let partition = partition.0;
    tracing::error!(%topic, %group, partition, messages = orphans, "bodies without a place, or ids without a body: repairing");
    let mut from = None;
    loop {
        let page = owner.repair(from).await?;
        dispatch.metrics.ownership.repairs.inc_by(page.messages as u64);
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

impl GroupDelivery {
    fn enter(&self, partition: Partition, owned: Arc<Owned>) {
        self.pairs_mut().insert(partition, owned);
        self.counts.leases_owned.inc();
    }

    fn leave(&self, partition: Partition, owned: &Arc<Owned>) {
        let epoch = owned.lease.claim().epoch.clone();
        self.lost.write().unwrap_or_else(PoisonError::into_inner).insert(partition, epoch);
        self.pairs_mut().remove(&partition);
        self.counts.leases_owned.dec();
        owned.advance(|progress| progress.over = true);
    }
}
