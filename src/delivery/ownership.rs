//! Ownership of a partition: acquires it, recovers what its last owner left, serves it, and releases or loses it. Also the
//! state that the loop and the consumers share, and following changes of the topic.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::owner_loop::{OwnerLoop, call_back_move};
use super::prefetch::{LoopSignal, Part, PrefetchBudget};
use super::receipt::ReceiptMaker;
use super::table::{Now, Table};
use super::verdict::{StaleReason, Verdict};
use super::{GroupDelivery, Policy};
use crate::coordination::lease::Lease;
use crate::model::error::{Error, Kind, Result};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition, Rest};
use crate::platform::clock::{Clock, Instant};
use crate::store::{Acquired, Channel, Claim, KeyCount, MemberId, Owner, Recovered, ReserveLimit, Store, Wake};
use crate::telemetry::metrics::Metrics;

pub(super) enum Acquisition {
    Owned(Box<Ownership>),
    /// The owner, and the time until its lease lapses unless it is renewed.
    Held(MemberId, Duration),
    Gone,
}

pub(super) struct Ownership {
    delivery: Arc<GroupDelivery>,
    partition: Partition,
    owner_loop: OwnerLoop,
    woken: Arc<Notify>,
}

impl Ownership {
    pub(super) async fn acquire(
        delivery: &Arc<GroupDelivery>,
        partition: Partition,
        signal: &Arc<LoopSignal>,
    ) -> Result<Acquisition> {
        let group_partition = delivery.descriptor().group_partition(partition, &delivery.group);
        let keeper = &delivery.keeper;
        let losses = delivery.store.backend.losses().borrow().count;
        let sent = delivery.store.backend.clock().local().instant();
        let generation = delivery.descriptor().generation;
        match delivery.store.leases.acquire(&group_partition, keeper.member(), keeper.ttl(), generation).await {
            Ok(Acquired::Held { by, expires_in }) => Ok(Acquisition::Held(by, expires_in)),
            Ok(Acquired::Owned(mut owner)) => {
                if delivery.descriptor().is_ordered() {
                    owner.keep_positions();
                }
                // A partition that was acquired while the store may have lost something hands nothing out: another may own it too.
                if delivery.store.backend.losses().borrow().count != losses {
                    return Err(Error::unavailable(format!(
                        "{group_partition} was acquired while the store changed; it waits"
                    )));
                }
                let claim = Claim { group_partition: group_partition.clone(), epoch: owner.epoch().clone() };
                let key = delivery.options.receipt_keys.for_epoch(Clock::System.instant()).await?;
                let incarnation = delivery.descriptor().incarnation;
                let receipts = ReceiptMaker::new(&claim, incarnation, keeper.member().clone(), key);
                let mut table = Table::new(receipts, delivery.policy(partition));
                let last_delivery = owner.last_delivery();
                table.found_last_delivery(last_delivery, delivery.surely_now());
                let lease = keeper.keep(claim, sent);
                let recovered = recover(delivery, &group_partition, owner).await;
                let (owner, sorted) = recovered.inspect_err(|_| keeper.forget(&lease))?;
                table.found_sorted(sorted);
                let owned = Arc::new(Owned::new(lease, table, delivery.options.budget.clone(), signal.clone()));
                let woken = Arc::new(Notify::new());
                let owner_loop = OwnerLoop::new(delivery.clone(), owner, owned, woken.clone());
                Ok(Acquisition::Owned(Box::new(Ownership { delivery: delivery.clone(), partition, owner_loop, woken })))
            }
            Err(error) if error.kind() == Kind::Stale => match delivery.reload().await? {
                true => Err(Error::unavailable(format!("the topic of {group_partition} has changed"))),
                false => Ok(Acquisition::Gone),
            },
            Err(error) => Err(error),
        }
    }

    /// Errors: `Stale` when the partition was lost, with whether its lease was valid to the end.
    pub(super) async fn serve(mut self: Box<Self>) -> Result<()> {
        let owned = self.owner_loop.owned();
        let _wake = self.begin(&owned);
        let served = self.owner_loop.serve().await;
        self.end(&owned, served).await
    }

    fn begin(&self, owned: &Arc<Owned>) -> Wake {
        let Claim { group_partition, epoch } = owned.lease.claim();
        let wake = self.delivery.store.backend.wakes().subscribe(Channel::head(group_partition), self.woken.clone());
        self.delivery.enter(self.partition, owned.clone());
        let GroupPartition { topic, group, partition } = group_partition;
        tracing::debug!(%topic, %group, partition = partition.0, %epoch, "lease acquired");
        wake
    }

    async fn end(self: Box<Self>, owned: &Arc<Owned>, served: Result<()>) -> Result<()> {
        let Ownership { delivery, partition, owner_loop, .. } = *self;
        let end = Box::pin(owner_loop.end(served)).await;
        delivery.leave(partition, owned);
        delivery.keeper.forget(&owned.lease);
        let Claim { group_partition: GroupPartition { topic, group, .. }, epoch } = owned.lease.claim();
        match &end {
            Ok(()) => tracing::debug!(%topic, %group, partition = partition.0, %epoch, "lease released"),
            Err(error) => {
                delivery.metrics.ownership.leases_lost.inc();
                delivery.changes.lost(error);
                tracing::debug!(%topic, %group, partition = partition.0, %epoch, %error, "lease lost");
            }
        }
        end
    }
}

/// Schedules again what older epochs hold, before anything is reserved.
async fn recover(
    delivery: &GroupDelivery,
    group_partition: &GroupPartition,
    mut owner: Box<dyn Owner>,
) -> Result<(Box<dyn Owner>, Vec<KeyCount>)> {
    let recovered = take_over(&delivery.store, &delivery.metrics, group_partition, &mut owner).await?;
    if recovered.left_behind {
        delivery.metrics.ownership.takeovers.inc();
        let GroupPartition { topic, group, partition, .. } = group_partition;
        let (partition, epoch, messages) = (partition.0, owner.epoch(), recovered.messages);
        tracing::debug!(%topic, %group, partition, %epoch, messages, "messages of an older epoch recovered");
        delivery.changes.recovered(messages);
    }
    let sorted = if recovered.has_sorted { owner.all_sorted_keys().await? } else { Vec::new() };
    Ok((owner, sorted))
}

/// Schedules again what is reserved in a partition that nobody owns, in a new epoch. False if somebody owns it by now.
/// Errors: `Unavailable` while the store may have lost the lease of an owner.
pub(crate) async fn recover_unowned(
    store: &Store,
    metrics: &Metrics,
    descriptor: &Descriptor,
    group_partition: &GroupPartition,
    ttl: Duration,
) -> Result<bool> {
    let doubt = || Error::unavailable("the store may have lost data; its partitions are taken after a while");
    let loss = *store.backend.losses().borrow();
    if loss.is_restoring || store.backend.clock().local().instant() < loss.hold_until(ttl) {
        return Err(doubt());
    }
    // Not the member of this process: it would take the partition from its own loop.
    let member = MemberId::fresh("recall");
    let mut owner = match store.leases.acquire(group_partition, &member, ttl, descriptor.generation).await? {
        Acquired::Owned(owner) => owner,
        Acquired::Held { .. } => return Ok(false),
    };
    if store.backend.losses().borrow().count != loss.count {
        return Err(doubt());
    }
    if descriptor.is_ordered() {
        owner.keep_positions();
    }
    take_over(store, metrics, group_partition, &mut owner).await?;
    let last_delivery = owner.last_delivery();
    owner.release(last_delivery).await?;
    Ok(true)
}

/// Puts each message of a partition that was just acquired in its place: what older epochs hold, what an interrupted move holds, and what a
/// store that lost data left in no place. Answers how many there were in all.
async fn take_over(
    store: &Store,
    metrics: &Metrics,
    group_partition: &GroupPartition,
    owner: &mut Box<dyn Owner>,
) -> Result<Recovered> {
    let (mut messages, mut left_behind) = (0, false);
    let last = loop {
        let page = owner.recover().await?;
        messages += page.messages;
        left_behind |= page.left_behind;
        if !page.more {
            break page;
        }
    };
    if last.is_moving {
        call_back_move(store, group_partition).await;
    }
    if last.orphans > 0 {
        repair(metrics, group_partition, owner, last.orphans).await?;
    }
    Ok(Recovered { messages, left_behind, ..last })
}

/// Bodies in no place are never delivered. Only a store that lost data, or a change of its keys by others, leaves any.
async fn repair(
    metrics: &Metrics,
    group_partition: &GroupPartition,
    owner: &mut Box<dyn Owner>,
    orphans: u64,
) -> Result<()> {
    let GroupPartition { topic, group, partition, .. } = group_partition;
    let partition = partition.0;
    tracing::error!(%topic, %group, partition, messages = orphans, "bodies without a place, or ids without a body: repairing");
    let mut from = None;
    loop {
        let page = owner.repair(from).await?;
        metrics.ownership.repairs.inc_by(page.messages as u64);
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

impl GroupDelivery {
    fn enter(&self, partition: Partition, owned: Arc<Owned>) {
        self.owned_mut().insert(partition, owned);
        self.counts.leases_owned.inc();
    }

    fn leave(&self, partition: Partition, owned: &Arc<Owned>) {
        let epoch = owned.lease.claim().epoch.clone();
        self.lost.write().unwrap_or_else(PoisonError::into_inner).insert(partition, epoch);
        self.owned_mut().remove(&partition);
        self.counts.leases_owned.dec();
        owned.advance(|progress| progress.over = true);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Every decision up to this ticket is in the store.
    pub(super) settled: u64,
    /// Every later decision up to this ticket is perhaps in the store: the call that carried them was never answered.
    pub(super) in_doubt: u64,
    /// The epoch is over: no call carries a decision any more.
    pub(super) over: bool,
}

impl Progress {
    /// The verdict on the decision with this ticket, which is `made` once it is in the store.
    pub(super) fn verdict(&self, ticket: u64, made: Verdict) -> Verdict {
        match self {
            Progress { settled, .. } if ticket <= *settled => made,
            Progress { over: false, .. } => Verdict::Pending,
            Progress { in_doubt, .. } if ticket <= *in_doubt => Verdict::UnknownOutcome,
            Progress { .. } => Verdict::Stale(StaleReason::LostPartition),
        }
    }
}

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) lease: Arc<Lease>,
    memory: Mutex<Memory>,
    pub(super) signal: Arc<LoopSignal>,
    progress: Mutex<Progress>,
    advanced: Notify,
    /// The lease is being given up: nothing more is handed out, what is out may still be settled.
    draining: AtomicBool,
}

#[derive(Debug)]
struct Memory {
    table: Table,
    part: Part,
}

pub(super) struct TableGuard<'a>(MutexGuard<'a, Memory>);

impl TableGuard<'_> {
    pub(super) fn part(&mut self) -> &mut Part {
        &mut self.0.part
    }

    pub(super) fn grant(&mut self, limit: ReserveLimit, now: Instant) -> Option<ReserveLimit> {
        let prefetched = self.0.table.prefetched_bytes();
        self.0.part.grant(limit, prefetched, now)
    }
}

impl Deref for TableGuard<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0.table
    }
}

impl DerefMut for TableGuard<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.0.table
    }
}

impl Drop for TableGuard<'_> {
    fn drop(&mut self) {
        let bytes = self.0.table.bytes();
        self.0.part.hold(bytes);
    }
}

impl Owned {
    pub(super) fn new(lease: Arc<Lease>, table: Table, budget: Arc<PrefetchBudget>, signal: Arc<LoopSignal>) -> Owned {
        let part = Part::new(budget, signal.clone());
        Owned {
            lease,
            memory: Mutex::new(Memory { table, part }),
            signal,
            progress: Mutex::default(),
            advanced: Notify::new(),
            draining: AtomicBool::new(false),
        }
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        !self.is_draining() && self.lease.is_valid(now)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The memory. A std mutex: it is held for microseconds and never across an await.
    pub(super) fn table(&self) -> TableGuard<'_> {
        // Nothing panics while the lock is held; if it did, the chain in the store would still catch a wrong decision.
        TableGuard(self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns once the ticket is settled: true, or false when the epoch ended before.
    pub(super) async fn settled(&self, ticket: u64) -> bool {
        loop {
            // Listening begins before looking, so that no progress goes unnoticed in between.
            let mut advanced = std::pin::pin!(self.advanced.notified());
            advanced.as_mut().enable();
            let progress = self.progress();
            if progress.settled >= ticket || progress.over {
                return progress.settled >= ticket;
            }
            advanced.await;
        }
    }

    /// Resolves at the next answer of the store, or turn of the loop.
    pub(super) fn progressed(&self) -> Notified<'_> {
        self.advanced.notified()
    }

    /// The loop has looked what to reserve.
    pub(super) fn had_turn(&self) {
        self.table().had_turn();
        self.advanced.notify_waiters();
    }

    pub(super) fn progress(&self) -> Progress {
        *self.progress_mut()
    }

    pub(super) fn advance(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress_mut());
        self.advanced.notify_waiters();
    }

    fn progress_mut(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupDelivery {
    pub(super) fn policy(&self, partition: Partition) -> Policy {
        let descriptor = self.descriptor();
        Policy {
            backoff: descriptor.settings.backoff.clone(),
            max_attempts: descriptor.settings.max_attempts,
            dedup_window: descriptor.settings.dedup_window,
            ordered: descriptor.is_ordered(),
            on_expiry: descriptor.settings.on_expiry,
            in_flight: descriptor.in_flight_share(&self.group, partition),
            fair: descriptor.key_settings(&self.group).map(Box::new),
        }
    }

    /// The time of the store is never ahead of its clock.
    fn surely_now(&self) -> Now {
        let now = self.now();
        Now { store: self.store.backend.clock().surely().unwrap_or(now.store), ..now }
    }

    pub(super) fn rest(&self, now: Timestamp) -> Option<Rest> {
        self.descriptor().subscriptions.get(&self.group)?.rest(now)
    }

    /// When the group's window closes next, if it is open: what is prefetched goes back then.
    pub(super) fn closes_at(&self, now: Timestamp) -> Option<Instant> {
        let closes_at = self.descriptor().subscriptions.get(&self.group)?.closes_at(now)?;
        Some(self.store.backend.clock().reaches(closes_at))
    }

    /// When the rest ends by itself, if nothing is handed out now.
    pub(super) fn rests_until(&self, now: Timestamp) -> Option<Instant> {
        let rest = self.rest(now)?;
        Some(rest.until().map_or(Instant::FAR, |until| self.store.backend.clock().reaches(until)))
    }

    async fn reload(&self) -> Result<bool> {
        let topic = self.descriptor().topic.clone();
        let Some(descriptor) = self.store.topics.topic_there(&topic).await? else { return Ok(false) };
        Ok(self.follow(&Arc::new(descriptor)))
    }

    /// Failing only delays the change to the next renewal.
    pub(super) async fn look_again(&self) {
        match self.reload().await {
            Ok(true) => {}
            Ok(false) => self.abandon(),
            Err(error) => tracing::debug!(%error, "a changed topic was not loaded"),
        }
    }

    /// False when the name belongs to another topic or group by now, or the group is gone.
    pub fn follow(&self, newer: &Arc<Descriptor>) -> bool {
        let mut descriptor = self.descriptor.write().unwrap_or_else(PoisonError::into_inner);
        if newer.generation < descriptor.generation {
            // Two looks at the store came back in the other order.
            return true;
        }
        if !newer.has_same(&descriptor, &self.group) {
            return false;
        }
        *descriptor = newer.clone();
        drop(descriptor);
        for (partition, owned) in self.owned_partitions() {
            owned.table().set_policy(self.policy(partition));
            owned.signal.notify_one();
        }
        true
    }
}
