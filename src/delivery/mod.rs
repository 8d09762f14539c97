//! Handing out what is due: one [`GroupDelivery`] for each group of a topic, one loop for each pair it owns.
//!
//! Consumers take from the owners' memories and decide there; the loops carry decisions to the store and fetch what is
//! due. GroupDelivery never looks at a message's payload, never polls, and never touches a pair it does not own.

mod wakeups;
mod changes;
mod dead;
mod receipt;
mod demand;
mod settings_sync;
mod rate_limiter;
mod heartbeats;
mod membership;
mod owned_partition;
mod rate_wait;
mod prefetch;
mod verdict_cache;
pub mod remote;
mod owner_loop;
mod session;
mod settle;
mod table;
mod ownership;
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use heartbeats::Heartbeats;
pub use membership::Membership;
pub use prefetch::PrefetchBudget;
pub use receipt::{Decision, Delivery, GroupTag, Receipt};
pub use session::{Hand, Session};
pub use settle::check_receipt;
pub use table::{MessageLocation, Now, Policy, Table, Want};
pub use verdict::{StaleReason, UnknownReason, Verdict};

use self::changes::Changes;
use self::demand::Demand;
use self::owned_partition::{Owned, now};
use self::rate_limiter::RateLimiter;
use self::wakeups::Wakeups;
use crate::coordination::lease::LeaseKeeper;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::WAITERS_MAX;
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{Epoch, Store};
use crate::telemetry::metrics::{GroupMetrics, Metrics};
use crate::telemetry::spans::{SpanKind, Tracer, about};

/// How long a `reserve` that does not want to wait still looks.
pub const SHORT_POLL: Duration = Duration::from_millis(100);

/// How long prefetched messages stay in memory after the last consumer asked.
const ATTENTION: Duration = Duration::from_secs(1);

/// The deliveries of one group of a topic on this process.
pub struct GroupDelivery {
    store: Store,
    keeper: Arc<LeaseKeeper>,
    group: GroupName,
    descriptor: RwLock<Arc<Descriptor>>,
    pairs: RwLock<BTreeMap<Partition, Arc<Owned>>>,
    /// The last epoch of each partition that this process owned and does not own now.
    lost: RwLock<BTreeMap<Partition, Epoch>>,
    tag: GroupTag,
    arrivals: Wakeups,
    gate: RateLimiter,
    demand: Demand,
    changes: Changes,
    terms: Terms,
    /// No more hand-outs: the process stops or the topic is gone.
    closed: CancellationToken,
    /// The topic is gone, and with it everything that is out.
    gone: CancellationToken,
    /// Says that leases cannot be acquired, for another reason than an outage.
    unacquired: RepeatThrottle,
    counts: Arc<GroupMetrics>,
    metrics: Arc<Metrics>,
    tracer: Tracer,
}

/// What every dispatch of a process keeps to. Clones share the budget and the heartbeats.
#[derive(Clone)]
pub struct Terms {
    /// For deliveries that are out, when a lease is given up.
    pub drain_timeout: Duration,
    /// For the next request, before this process leaves the group.
    pub idle_timeout: Duration,
    /// What is prefetched, of all groups together.
    pub budget: Arc<PrefetchBudget>,
    /// Of all groups together.
    pub heartbeats: Arc<Heartbeats>,
}

/// What holds up messages that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hindrance {
    /// Nobody asks for messages.
    NoConsumer {
        /// Since the last request, or since this process joined the group.
        unasked: Duration,
    },
    /// The partition's share of the deliveries that the group may have in flight is out.
    AtMaxInFlight,
    /// The group's rate.
    RateLimited,
}

/// A consumer that works on what it got is between two requests for a moment.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(1);

impl GroupDelivery {
    /// Nothing owned yet: the [`Membership`] brings pairs in.
    pub fn new(
        store: Store,
        keeper: Arc<LeaseKeeper>,
        descriptor: Arc<Descriptor>,
        group: GroupName,
        terms: Terms,
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
            store,
            keeper,
            group,
            descriptor: RwLock::new(descriptor),
            pairs: RwLock::default(),
            lost: RwLock::default(),
            arrivals: Wakeups::default(),
            gate: RateLimiter::default(),
            demand,
            changes: Changes::default(),
            terms,
            closed: CancellationToken::new(),
            gone: CancellationToken::new(),
            unacquired: RepeatThrottle::default(),
        }
    }

    /// The topic, as far as it is known here.
    pub fn descriptor(&self) -> Arc<Descriptor> {
        self.descriptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// Hands nothing more out, and tells the waiting consumers so.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Hands nothing more out and waits for nothing that is out, since the topic is gone.
    pub fn abandon(&self) {
        self.gone.cancel();
        self.close();
        self.kick_all();
    }

    /// Whether it hands nothing more out.
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// How many messages of a partition are reserved here and not handed out: they count as ready.
    pub fn held(&self, partition: Partition) -> usize {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        pairs.get(&partition).map_or(0, |owned| owned.table().held())
    }

    /// Where a message is in the memory of this process.
    pub fn whereabouts(&self, partition: Partition, id: &MessageId) -> Option<MessageLocation> {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        pairs.get(&partition).and_then(|owned| owned.table().whereabouts(id))
    }

    /// What holds up all messages of a partition that are due; `None` where nothing does, or this process does not own it.
    pub fn hindrance(&self, partition: Partition) -> Option<Hindrance> {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        let (is_full, is_holding) = {
            let table = pairs.get(&partition)?.table();
            (table.is_full(), table.is_holding())
        };
        let unasked = self.demand.unasked(self.store.backend.clock().local().instant());
        match self.demand.waiting() {
            _ if is_full => Some(Hindrance::AtMaxInFlight),
            0 if unasked >= BETWEEN_REQUESTS => Some(Hindrance::NoConsumer { unasked }),
            0 => None,
            _ => (is_holding && self.rate().is_some()).then_some(Hindrance::RateLimited),
        }
    }

    /// Waits for deliveries: up to `max`, empty when `wait` is over or dispatch is closed.
    ///
    /// # Errors
    /// `Full` with too many consumers waiting.
    pub async fn reserve(&self, want: Want, wait: Duration) -> Result<Vec<Delivery>> {
        self.admit()?;
        let until = self.store.backend.clock().local().instant().plus(wait.max(SHORT_POLL));
        let _waiting = self.demand.wait(want.max);
        Ok(self.wait_for(None, want, until).await)
    }

    /// Refuses one consumer more when too many wait.
    fn admit(&self) -> Result<()> {
        match self.demand.waiting() {
            ..WAITERS_MAX => Ok(()),
            _ => Err(Error::new(Kind::Full, format!("{WAITERS_MAX} consumers of this group wait already"))),
        }
    }

    /// Waits for deliveries until an instant. Nothing is taken and then waited with, so a consumer that goes away
    /// meanwhile, and with it this future, strands nothing.
    async fn wait_for(&self, hand: Option<&Arc<Hand>>, want: Want, until: Instant) -> Vec<Delivery> {
        let clock = self.store.backend.clock().local();
        let demanding = !want.min_age.is_zero();
        let mut kicked = false;
        loop {
            // Listening begins before looking, so that nothing arrives unnoticed in between.
            let mut arrival = std::pin::pin!(self.arrivals.notified(demanding));
            arrival.as_mut().enable();
            let deliveries = self.take(hand, want);
            if !deliveries.is_empty() {
                // One arrival wakes one consumer; what it leaves is for the next.
                self.arrivals.notify_one();
                return deliveries;
            }
            if !kicked {
                // The loops may have given everything back, or wait for a consumer before they charge attempts.
                self.kick_all();
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

    fn take(&self, hand: Option<&Arc<Hand>>, want: Want) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let now = now(self.store.backend.clock());
        if self.closed.is_cancelled() || self.rest(now.store).is_some() {
            return deliveries;
        }
        let slots = self.rate().map(|_| self.gate.claim(want.max, now.instant));
        let max = slots.as_ref().map_or(want.max, Vec::len);
        let pairs = self.pairs();
        // Every consumer begins somewhere else, so that no partition starves behind another.
        let first = fastrand::usize(..pairs.len().max(1));
        for (_, owned) in pairs.iter().cycle().skip(first).take(pairs.len()) {
            if deliveries.len() == max {
                break;
            }
            if !owned.is_open(now.instant) {
                continue;
            }
            let mut table = owned.table();
            let before = table.room();
            let expired = table.take(hand, Want { max: max - deliveries.len(), ..want }, now, &mut deliveries);
            // Room that was there before is known to the loop: to say it again would keep both busy for nothing.
            let hungry = table.room().is_some_and(|room| before != Some(room));
            drop(table);
            self.counts.expired.inc_by(expired as u64);
            if hungry || expired > 0 {
                owned.kick.notify_one();
            }
        }
        if let Some(slots) = slots {
            self.gate.put_back(slots.get(deliveries.len()..).unwrap_or_default());
        }
        for delivery in &mut deliveries {
            self.trace(delivery);
            let kind = if delivery.attempt == 1 { &self.counts.first } else { &self.counts.retry };
            kind.inc();
            self.counts.lateness.observe(delivery.lateness.as_secs_f64());
        }
        deliveries
    }

    /// Makes a span of the time from when a message was due to its hand-over, which it names from then on.
    fn trace(&self, delivery: &mut Delivery) {
        let trace = &mut delivery.message.envelope.trace;
        let Some(span) = self.tracer.begin("deliver", SpanKind::Consumer, trace.as_ref()) else { return };
        *trace = Some(span.context().clone());
        let span = span.earlier(delivery.lateness).text("messaging.operation.type", "receive");
        let span = about(span, &self.descriptor().topic, &delivery.message.id, delivery.partition);
        span.text("messaging.consumer.group.name", &self.group).number("dwell.attempt", delivery.attempt).end(None);
    }

    fn pairs(&self) -> Vec<(Partition, Arc<Owned>)> {
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        pairs.iter().map(|(partition, owned)| (*partition, owned.clone())).collect()
    }

    fn pairs_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Partition, Arc<Owned>>> {
        self.pairs.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn kick_all(&self) {
        for (_, owned) in self.pairs() {
            owned.kick.notify_one();
        }
    }

    /// When somebody wanted messages last: now, while consumers wait or deliveries are in flight.
    fn last_wanted(&self, now: Instant) -> Instant {
        let is_working = || self.pairs().iter().any(|(_, owned)| owned.table().is_out());
        let active = self.demand.last_active(now);
        if active < now && is_working() { now } else { active }
    }

    /// Whether nobody has asked for long, and nothing is out.
    fn is_idle(&self, now: Instant) -> bool {
        self.demand.waiting() == 0
            && self.demand.unasked(now) >= self.terms.idle_timeout
            && self.pairs().iter().all(|(_, owned)| owned.table().is_idle())
    }

    /// When to look next whether it is idle.
    fn idle_at(&self) -> Instant {
        let now = self.store.backend.clock().local().instant();
        let asked = self.demand.last_attended().plus(self.terms.idle_timeout);
        asked.max(now.plus(self.terms.idle_timeout / 4))
    }

    /// Until when messages are worth prefetching; `None` when no consumer ever asked.
    fn attended_until(&self) -> Option<Instant> {
        if self.demand.waiting() > 0 {
            return Some(Instant::FAR);
        }
        self.demand.last_asked().map(|asked| asked.plus(ATTENTION))
    }
}
