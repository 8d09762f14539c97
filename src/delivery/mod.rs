//! Delivery of due messages: one [`GroupDelivery`] for each group of a topic, one loop for each partition it owns.
//!
//! Consumers take from the owners' memories and decide there; the loops carry decisions to the store and fetch due
//! messages. A GroupDelivery never looks at a payload, never polls, and never touches a partition it does not own.

mod receipt;
mod verdict;
mod receipt_keys;
mod asked_time;
mod demand;
mod prefetch;
mod dead_letter_keeper;
mod owner_loop;
mod table;
mod rate_limiter;
mod session;
mod ownership;
mod membership;
mod traces;
mod settle;
mod recall;
pub mod remote;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use futures_util::future::{join_all, select};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;

pub(crate) use self::dead_letter_keeper::forward_page;
use self::demand::{Demand, Turns};
pub use self::membership::{Heartbeats, Membership};
pub(crate) use self::ownership::recover_unowned;
use self::ownership::{Owned, TableGuard};
pub use self::prefetch::PrefetchBudget;
use self::rate_limiter::RateLimiter;
pub use self::recall::{Located, RecallAnswer, RecallGuard, Waits};
pub use self::receipt::{Decision, Delivery, GroupTag, Late, NoReceipt, Receipt, ReceiptMaker, SessionReceipts};
pub use self::receipt_keys::ReceiptKeys;
pub use self::session::Session;
pub use self::settle::{LateVerdict, Read, check_receipt, is_of};
use self::table::{ByKey, Gathered};
pub use self::table::{Gather, HeldCounts, HeldKey, HeldKeys, KeyLimit, Now, Policy, Table, Want};
use self::traces::Traces;
pub use self::verdict::{StaleReason, UnknownReason, Verdict};
use crate::coordination::lease::LeaseKeeper;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::WAITERS_MAX;
use crate::model::message::{GroupName, Key};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{Epoch, Store};
use crate::telemetry::metrics::{GroupMetrics, Metrics};
use crate::telemetry::spans::{Operation, Tracer, about};

/// How long a `reserve` that does not want to wait still looks.
pub const SHORT_POLL: Duration = Duration::from_millis(100);
/// How long prefetched messages stay in memory after the last consumer asked.
const ATTENTION: Duration = Duration::from_secs(1);

pub struct GroupDelivery {
    store: Store,
    keeper: Arc<LeaseKeeper>,
    group: GroupName,
    descriptor: RwLock<Arc<Descriptor>>,
    owned: RwLock<BTreeMap<Partition, Arc<Owned>>>,
    /// The last epoch of each partition that this process owned and does not own now.
    lost: RwLock<BTreeMap<Partition, Epoch>>,
    tag: GroupTag,
    arrivals: Wakeups,
    gate: RateLimiter,
    demand: Demand,
    turns: Turns,
    changes: Changes,
    options: DeliveryOptions,
    /// No more hand-outs: the process stops or the topic is gone.
    closed: CancellationToken,
    /// The topic is gone, and with it everything in flight.
    gone: CancellationToken,
    unacquired: RepeatThrottle,
    /// Dead letters at the limit of hops.
    circling: RepeatThrottle,
    counts: Arc<GroupMetrics>,
    metrics: Arc<Metrics>,
    tracer: Tracer,
    traces: Traces,
}

#[derive(Clone)]
pub struct DeliveryOptions {
    pub drain_timeout: Duration,
    pub idle_timeout: Duration,
    pub budget: Arc<PrefetchBudget>,
    pub heartbeats: Arc<Heartbeats>,
    pub receipt_keys: Arc<ReceiptKeys>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum BlockedReason {
    NoConsumer {
        /// Since the last request, or since this process joined the group.
        unasked: Duration,
    },
    /// The partition's share of the group's limit is in flight.
    AtMaxInFlight,
    /// Its key is paused until then.
    KeyPaused {
        until: Option<Timestamp>,
    },
    /// As much of its key is in flight as may be.
    KeyAtMaxInFlight,
    /// Its key has had as many deliveries lately as its rate lets it have.
    KeyRateLimited,
    RateLimited,
}

/// A consumer that works on what it got is between two requests for a moment.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(1);

impl GroupDelivery {
    pub fn new(
        store: Store,
        keeper: Arc<LeaseKeeper>,
        descriptor: Arc<Descriptor>,
        group: GroupName,
        options: DeliveryOptions,
        metrics: Arc<Metrics>,
        tracer: Tracer,
    ) -> GroupDelivery {
        let counts = metrics.group(&descriptor.topic, &group);
        let demand = Demand::new(store.backend.clock().local().clone(), counts.clone());
        GroupDelivery {
            counts,
            tag: GroupTag::of(&descriptor.topic, &group),
            metrics,
            tracer,
            traces: Traces::default(),
            store,
            keeper,
            group,
            descriptor: RwLock::new(descriptor),
            owned: RwLock::default(),
            lost: RwLock::default(),
            arrivals: Wakeups::default(),
            gate: RateLimiter::default(),
            demand,
            turns: Turns::default(),
            changes: Changes::default(),
            options,
            closed: CancellationToken::new(),
            gone: CancellationToken::new(),
            unacquired: RepeatThrottle::default(),
            circling: RepeatThrottle::default(),
        }
    }

    /// Both clocks and a random number, for one step.
    pub(super) fn now(&self) -> Now {
        let clock = self.store.backend.clock();
        let (instant, elapsed) = (clock.local().instant(), clock.local().elapsed());
        Now { store: clock.now(), instant, elapsed, chance: fastrand::f64() }
    }

    pub fn descriptor(&self) -> Arc<Descriptor> {
        self.descriptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// Hands nothing more out, and tells the waiting consumers so.
    pub fn close(&self) {
        self.closed.cancel();
    }

    pub fn abandon(&self) {
        self.gone.cancel();
        self.close();
        self.signal_all();
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// The reason that holds up all due messages of a partition, or those of a key; `None` where nothing does, or this process does
    /// not own it.
    pub fn blocked_reason(&self, partition: Partition, key: Option<&Key>) -> Option<BlockedReason> {
        let owned = self.owned(partition)?;
        let (is_full, is_holding, key_limit, until) = {
            let (table, now) = (owned.table(), self.now());
            (table.is_full(), table.is_holding(), table.key_limit(key, now), table.key_opens_at(key, now))
        };
        let unasked = self.demand.unasked(self.store.backend.clock().local().instant());
        let of_key = key_limit.map(|limit| match limit {
            KeyLimit::Pause => BlockedReason::KeyPaused { until },
            KeyLimit::InFlight => BlockedReason::KeyAtMaxInFlight,
            KeyLimit::Rate => BlockedReason::KeyRateLimited,
        });
        match self.demand.waiting() {
            _ if is_full => Some(BlockedReason::AtMaxInFlight),
            _ if of_key.is_some() => of_key,
            0 if unasked >= BETWEEN_REQUESTS => Some(BlockedReason::NoConsumer { unasked }),
            0 => None,
            _ => (is_holding && self.rate().is_some()).then_some(BlockedReason::RateLimited),
        }
    }

    /// How long nobody has asked, while nothing is held or out: this membership may end for another one. `None` while it is used.
    pub fn vacant_for(&self) -> Option<Duration> {
        let unasked = self.demand.unasked(self.store.backend.clock().local().instant());
        let is_used = self.demand.waiting() > 0 || unasked < BETWEEN_REQUESTS;
        let owned = self.owned.read().unwrap_or_else(PoisonError::into_inner);
        (!is_used && owned.values().all(|owned| owned.table().is_idle())).then_some(unasked)
    }

    /// Empty after `wait`, or once this is closed. Errors: `Full` with too many consumers waiting.
    pub async fn reserve(&self, want: Want, wait: Duration) -> Result<Vec<Delivery>> {
        self.admit()?;
        let until = self.store.backend.clock().local().instant().plus(wait.max(SHORT_POLL));
        let _waiting = self.demand.wait(want.max);
        Ok(self.wait_for(None, want, until).await)
    }

    /// Takes part in the group until it is dropped, as with a consumer that waits and takes nothing: so what nobody owns gets an owner.
    pub async fn attend(&self) {
        let _waiting = self.demand.wait(0);
        self.signal_all();
        self.closed.cancelled().await;
    }

    fn admit(&self) -> Result<()> {
        match self.demand.waiting() {
            ..WAITERS_MAX => Ok(()),
            _ => Err(Error::new(Kind::Full, format!("{WAITERS_MAX} consumers of this group wait already"))),
        }
    }

    /// Nothing is taken and then waited with, so a future that is dropped strands nothing.
    async fn wait_for(
        &self,
        session_receipts: Option<&Arc<SessionReceipts>>,
        want: Want,
        until: Instant,
    ) -> Vec<Delivery> {
        let clock = self.store.backend.clock().local();
        let demanding = want.is_demanding();
        let mut kicked = false;
        loop {
            // Listening begins before looking, so that nothing arrives unnoticed in between.
            let mut arrival = std::pin::pin!(self.arrivals.notified(demanding));
            arrival.as_mut().enable();
            let deliveries = self.take(session_receipts, want);
            if !deliveries.is_empty() {
                // One arrival wakes one consumer; what it leaves is for the next. One that begins to wait later looks itself.
                if self.demand.waiting() > 1 && self.is_any_ready() {
                    self.arrivals.notify_one();
                }
                return deliveries;
            }
            if !kicked {
                // The loops may have given everything back, or wait for a consumer before they charge attempts.
                self.signal_all();
                kicked = true;
            }
            tokio::select! {
                () = self.next_chance(arrival, want, until) => {}
                () = clock.sleep_until(self.ripe_at(want)) => {}
                () = clock.sleep_until(until) => return Vec::new(),
                () = self.closed.cancelled() => return Vec::new(),
            }
        }
    }

    fn take(&self, session_receipts: Option<&Arc<SessionReceipts>>, want: Want) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let now = self.now();
        if self.closed.is_cancelled() {
            return deliveries;
        }
        if self.rest(now.store).is_some() {
            self.demand.hinder(true, now.instant);
            return deliveries;
        }
        let slots = self.rate().map(|_| self.gate.claim(want.max, now.instant));
        let max = slots.as_ref().map_or(want.max, Vec::len);
        let partitions = self.owned_partitions();
        let first = self.turns.first(partitions.len(), now.instant);
        let (mut empty, mut is_full) = (0, false);
        let (mut tables, is_complete) = self.gather(&partitions, want, now);
        let max = if is_complete { max } else { 0 };
        for (partition, owned) in partitions.iter().cycle().skip(first).take(partitions.len()) {
            if deliveries.len() == max {
                break;
            }
            if !owned.is_open(now.instant) {
                empty += usize::from(deliveries.is_empty());
                continue;
            }
            let mut table = tables.remove(partition).unwrap_or_else(|| owned.table());
            deliveries.reserve(table.ready().min(max - deliveries.len()));
            let before = table.room();
            let expired =
                table.take(session_receipts, Want { max: max - deliveries.len(), ..want }, now, &mut deliveries);
            // Room that was there before is known to the loop: to say it again would keep both busy for nothing.
            let hungry = table.room().is_some_and(|room| before != Some(room));
            is_full |= table.is_full();
            drop(table);
            empty += usize::from(deliveries.is_empty());
            self.counts.expired.inc_by(expired as u64);
            if hungry || expired > 0 {
                owned.signal.notify_one();
            }
            if want.gather.same_key && !deliveries.is_empty() {
                break;
            }
        }
        self.turns.taken(deliveries.len(), empty);
        if let Some(slots) = slots {
            self.gate.put_back(slots.get(deliveries.len()..).unwrap_or_default());
        }
        // At a limit, with a smallest age or for a batch, a consumer waits for what it may not have yet.
        let is_limited = max < want.max && deliveries.len() == max;
        self.demand.hinder(is_limited || is_full || want.is_demanding(), now.instant);
        let descriptor = self.descriptor();
        let subscription = descriptor.subscriptions.get(&self.group);
        for delivery in &mut deliveries {
            self.trace(delivery);
            if let Some(subscription) = subscription {
                delivery.lateness = subscription.open_lateness(delivery.lateness, now.store);
            }
            let kind = if delivery.attempt == 1 { &self.counts.first } else { &self.counts.retry };
            kind.inc();
            self.counts.lateness.observe(delivery.lateness.as_secs_f64());
            self.attribute(delivery, now.instant);
        }
        deliveries
    }

    /// Whether the batch of several keys that a consumer waits for may be taken, with the memory of all partitions that have messages of it:
    /// no other consumer takes one of those that were counted. Every other consumer may take at once, and needs no memory before.
    fn gather<'a>(
        &self,
        partitions: &'a [(Partition, Arc<Owned>)],
        want: Want,
        now: Now,
    ) -> (BTreeMap<Partition, TableGuard<'a>>, bool) {
        let mut tables = BTreeMap::new();
        if !want.gather.waits() || want.gather.same_key {
            return (tables, true);
        }
        let mut gathered: Option<Gathered> = None;
        for (partition, owned) in partitions.iter().filter(|(_, owned)| owned.is_open(now.instant)) {
            let mut table = owned.table();
            let before = table.room();
            table.read_ahead_for(want.gather);
            let expired = table.expire(now);
            self.counts.expired.inc_by(expired as u64);
            if expired > 0 || table.room() != before {
                owned.signal.notify_one();
            }
            gathered = gathered.into_iter().chain(table.gathered(want, now)).reduce(Gathered::and);
            tables.insert(*partition, table);
        }
        (tables, gathered.is_some_and(|gathered| gathered.complete_at(want.gather) <= now.store))
    }

    /// Divides the lateness of a delivery: the time in which somebody had asked is dwell's, the rest is the consumers'. One that
    /// stood behind another message of its key was late because of that.
    fn attribute(&self, delivery: &Delivery, now: Instant) {
        if delivery.stood_behind {
            return;
        }
        let asked = self.demand.asked_within(delivery.lateness, now);
        self.counts.lateness_asked.observe(asked.as_secs_f64());
        self.counts.lateness_unasked.observe(delivery.lateness.saturating_sub(asked).as_secs_f64());
    }

    /// The span lasts from the due time to the hand-over, and the delivery names it from then on.
    fn trace(&self, delivery: &mut Delivery) {
        if !self.tracer.is_on() {
            return;
        }
        let (trace, descriptor) = (&mut delivery.message.envelope.trace, self.descriptor());
        let Some(span) = self.tracer.begin(Operation::Receive, &descriptor.topic, trace.as_ref()) else { return };
        *trace = Some(span.context().clone());
        self.traces.keep(delivery.partition, &delivery.message.id, delivery.attempt, span.context().clone());
        let span = about(span.earlier(delivery.lateness), &delivery.message.id, delivery.partition);
        span.text("messaging.consumer.group.name", &self.group).number("dwell.attempt", delivery.attempt).end(None);
    }

    /// Asks the store whether this process still owns a partition that was released, unless it gives it up itself.
    pub async fn check_lease(&self, partition: Partition) {
        let Some(owned) = self.owned(partition).filter(|owned| !owned.is_draining()) else { return };
        self.keeper.renew(std::slice::from_ref(&owned.lease)).await;
    }

    fn owned(&self, partition: Partition) -> Option<Arc<Owned>> {
        self.owned.read().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned()
    }

    /// Whether a consumer has had a message of a partition for longer than it takes between two requests.
    fn is_busy(&self, partition: Partition, now: Instant) -> bool {
        let since = now.minus(BETWEEN_REQUESTS);
        self.owned(partition).is_some_and(|owned| owned.table().is_out_since(since))
    }

    fn is_any_ready(&self) -> bool {
        let owned = self.owned.read().unwrap_or_else(PoisonError::into_inner);
        owned.values().any(|owned| owned.table().ready() > 0)
    }

    fn owned_partitions(&self) -> Vec<(Partition, Arc<Owned>)> {
        let owned = self.owned.read().unwrap_or_else(PoisonError::into_inner);
        owned.iter().map(|(partition, owned)| (*partition, owned.clone())).collect()
    }

    fn owned_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Partition, Arc<Owned>>> {
        self.owned.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal_all(&self) {
        for (_, owned) in self.owned_partitions() {
            owned.signal.notify_one();
        }
    }

    /// When messages were last wanted here: now while consumers wait. Deliveries in flight count for a lease ttl after a consumer last asked
    /// or settled: what is due in the other partitions waits no longer for one that works for hours, or died, than for a broker that died.
    fn last_wanted(&self, now: Instant) -> Instant {
        let is_working = || self.owned_partitions().iter().any(|(_, owned)| owned.table().is_out());
        let active = self.demand.last_active(now);
        if active < now && is_working() { now.min(active.plus(self.keeper.ttl())) } else { active }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.demand.waiting() == 0
            && self.demand.unasked(now) >= self.options.idle_timeout
            && self.owned_partitions().iter().all(|(_, owned)| owned.table().is_idle())
    }

    fn idle_at(&self) -> Instant {
        let now = self.store.backend.clock().local().instant();
        let asked = self.demand.last_attended().plus(self.options.idle_timeout);
        asked.max(now.plus(self.options.idle_timeout / 4))
    }

    /// Until when messages are worth prefetching; `None` when no consumer ever asked.
    fn attended_until(&self) -> Option<Instant> {
        if self.demand.waiting() > 0 {
            return Some(Instant::FAR);
        }
        self.demand.last_asked().map(|asked| asked.plus(ATTENTION))
    }
}

/// Lease events since the last log line: one line after each heartbeat instead of one for each partition.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<PendingChanges>);

#[derive(Debug, Default)]
struct PendingChanges {
    lost: usize,
    why: Option<Error>,
    /// Partitions taken over from an owner that was gone, and the messages that it had reserved.
    recovered: usize,
    messages: usize,
}

impl Changes {
    pub(super) fn lost(&self, why: &Error) {
        let mut happened = self.lock();
        happened.lost += 1;
        happened.why.get_or_insert_with(|| why.clone());
    }

    pub(super) fn recovered(&self, messages: usize) {
        let mut happened = self.lock();
        happened.recovered += 1;
        happened.messages += messages;
    }

    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupDelivery {
    pub(super) fn log_changes(&self) {
        let PendingChanges { lost, why, recovered, messages } = std::mem::take(&mut *self.changes.lock());
        let (topic, group) = (&self.descriptor().topic, &self.group);
        if let Some(error) = why {
            tracing::warn!(%topic, %group, partitions = lost, %error, "leases lost");
        }
        if recovered > 0 {
            tracing::info!(%topic, %group, partitions = recovered, messages, "messages of older epochs recovered");
        }
    }
}

/// Wakes one consumer for each arrival, but all that have a minimum age: any of them may be the one that can take it.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    undemanding: Notify,
    demanding: Notify,
}

impl Wakeups {
    pub(super) fn notified(&self, demanding: bool) -> Notified<'_> {
        if demanding { self.demanding.notified() } else { self.undemanding.notified() }
    }

    pub(super) fn notify_all(&self) {
        self.undemanding.notify_waiters();
        self.demanding.notify_waiters();
    }

    pub(super) fn notify_one(&self) {
        self.undemanding.notify_one();
        self.demanding.notify_waiters();
    }
}

/// For a test clock that is about to be moved, and for one that was.
impl GroupDelivery {
    /// Ends the deliveries whose visibility timeout passes within `span`, each at its own time, and waits until the store has
    /// them back. Answers how many. Errors: `Unavailable` when the store does not take them back within `patience`.
    pub async fn time_out_within(&self, span: Duration, patience: Duration) -> Result<u64> {
        let (now, mut count, mut tickets) = (self.now(), 0, Vec::new());
        for (_, owned) in self.owned_partitions() {
            let mut table = owned.table();
            count += time_out(&mut table, now, span) as u64;
            let last = table.last_ticket();
            drop(table);
            owned.signal.notify_one();
            tickets.push((owned, last));
        }
        self.counts.timed_out.inc_by(count);
        let settled = join_all(tickets.iter().map(|(owned, last)| owned.settled(*last)));
        let late = std::pin::pin!(self.store.backend.clock().local().sleep(patience));
        let _ = select(settled, late).await;
        match tickets.iter().all(|(owned, last)| owned.progress().settled >= *last || owned.progress().over) {
            true => Ok(count),
            false => Err(Error::unavailable("deliveries that time out are not back in the store yet")),
        }
    }

    /// Wakes all that sleep until a time of messages.
    pub fn time_jumped(&self) {
        self.signal_all();
        self.arrivals.notify_all();
    }
}

fn time_out(table: &mut Table, now: Now, span: Duration) -> usize {
    let (last, mut count) = (now.elapsed.plus(span), 0);
    while let Some(deadline) = table.next_deadline().filter(|deadline| *deadline <= last) {
        let store = now.store.plus(deadline.since(now.elapsed));
        count += table.time_out(Now { store, elapsed: now.elapsed.max(deadline), ..now });
    }
    count
}
