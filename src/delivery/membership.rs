//! Runs the membership of this process in a group: the state machine decides, this loop acts and reports the results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::GroupDelivery;
use super::ownership::{Acquisition, Ownership};
use super::prefetch::LoopSignal;
use crate::coordination::membership::{Action, Event, Member, Timing};
use crate::model::error::Kind;
use crate::model::partition::Partition;
use crate::platform::tasks::Tasks;
use crate::store::{Channel, Heartbeat, Loss, MemberId, MemberState, Releases, Store, Wake};

const TURNS: usize = 4;

pub struct Membership {
    delivery: Arc<GroupDelivery>,
    member: Member,
    tasks: Tasks,
    releases: BTreeMap<Partition, Arc<LoopSignal>>,
    sender: mpsc::UnboundedSender<Event>,
    receiver: mpsc::UnboundedReceiver<Event>,
    changed: Arc<Notify>,
    rewritten: Arc<Notify>,
    freed: Arc<Releases>,
    _wakes: Vec<Wake>,
    members: (usize, usize),
}

impl Membership {
    /// Joins with the first step of [`Membership::run`]. The loops of its partitions run in `tasks`.
    pub fn new(delivery: Arc<GroupDelivery>, timing: Timing, tasks: Tasks) -> Box<Membership> {
        let descriptor = delivery.descriptor();
        let (topic, group) = (descriptor.topic.clone(), delivery.group.clone());
        let wakes = delivery.store.backend.wakes();
        let changed = Arc::new(Notify::new());
        let mut subscriptions = vec![wakes.subscribe(Channel::Members(topic.clone(), group.clone()), changed.clone())];
        let rewritten = Arc::new(Notify::new());
        subscriptions.push(wakes.subscribe(Channel::Changed(topic.clone()), rewritten.clone()));
        let freed = Arc::new(Releases::default());
        let partitions = descriptor.partitions();
        subscriptions.extend(partitions.map(|n| wakes.subscribe(Channel::Release(topic.clone(), n), freed.clone())));
        subscriptions.shrink_to_fit();
        let id = delivery.keeper.member().clone();
        let member = Member::new(topic, group, descriptor.settings.partitions.get(), id, timing);
        let (sender, receiver) = mpsc::unbounded_channel();
        let releases = BTreeMap::new();
        Box::new(Membership {
            delivery,
            member,
            tasks,
            releases,
            sender,
            receiver,
            changed,
            rewritten,
            freed,
            _wakes: subscriptions,
            members: (0, 0),
        })
    }

    /// Is a member until `stop` fires, the topic is gone, or no consumer has asked for long; then leaves.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let (mut losses, mut pressed) = (self.delivery.store.backend.losses(), self.delivery.options.budget.pressed());
        let first = self.hold(*losses.borrow_and_update());
        let mut leaving = false;
        let mut event = first;
        // Moved only when it has come: heartbeats pass more often than anyone looks.
        let mut look_at = self.delivery.idle_at();
        while self.step(event) {
            let clock = self.delivery.store.backend.clock().local();
            event = tokio::select! {
                Some(event) = self.receiver.recv() => event,
                () = self.changed.notified() => Event::MembersChanged,
                () = self.delivery.demand.begun() => Event::Tick,
                () = self.rewritten.notified() => {
                    let delivery = self.delivery.clone();
                    self.tasks.start(async move { delivery.look_again().await });
                    Event::Tick
                }
                partition = self.freed.next() => {
                    if self.delivery.owned(partition).is_some() {
                        let delivery = self.delivery.clone();
                        self.tasks.start(async move { delivery.check_lease(partition).await });
                    }
                    Event::Freed(partition)
                }
                Ok(()) = losses.changed() => {
                    let loss = *losses.borrow_and_update();
                    self.delivery.signal_all();
                    self.hold(loss)
                }
                Ok(()) = pressed.changed() => {
                    pressed.mark_unchanged();
                    self.delivery.signal_all();
                    Event::Tick
                }
                () = clock.sleep_until(self.member.next_wake()) => Event::Tick,
                () = clock.sleep_until(look_at), if !leaving => match self.delivery.is_idle(clock.instant()) {
                    true => Event::Leave,
                    false => {
                        look_at = self.delivery.idle_at();
                        Event::Tick
                    }
                },
                () = stop.cancelled(), if !leaving => Event::Leave,
                () = self.delivery.closed.cancelled(), if !leaving => Event::Leave,
            };
            if event == Event::Leave {
                // A consumer that asks from now on joins anew.
                leaving = true;
                self.delivery.close();
            }
        }
        self.delivery.log_changes();
        self.delivery.counts.waiting.set(0);
        tracing::info!(topic = %self.delivery.descriptor().topic, group = %self.delivery.group, "group left");
    }

    /// Feeds the state machine and does what it says. False once the member is gone.
    fn step(&mut self, event: Event) -> bool {
        if matches!(event, Event::HeartbeatAnswered(_) | Event::HeartbeatFailed | Event::Departed) {
            self.delivery.log_changes();
        }
        let now = self.delivery.store.backend.clock().local().instant();
        self.member.wanted(self.delivery.last_wanted(now));
        let actions = self.member.step(now, event, |partition| self.delivery.is_busy(partition, now));
        self.note();
        let mut is_running = true;
        for action in actions {
            match action {
                Action::Heartbeat => self.heartbeat(),
                Action::Depart => self.depart(),
                Action::Acquire(partition) => self.acquire(partition),
                Action::Release(partition) => {
                    if let Some(release) = self.releases.remove(&partition) {
                        release.release();
                    }
                }
                Action::Gone => is_running = false,
            }
        }
        is_running
    }

    fn note(&mut self) {
        let standing = self.member.standing();
        self.delivery.counts.waiting.set(i64::from(standing.is_waiting));
        self.delivery.demand.announced(standing.has_demand);
        let members = (standing.members, standing.demanding);
        if members != self.members {
            let (is_first, is_new) = (self.members.0 == 0, self.members.0 != standing.members);
            self.members = members;
            self.delivery.metrics.ownership.rebalances.inc();
            if is_first {
                return;
            }
            let ((members, demanding), quota) = (members, standing.quota);
            let topic = &self.delivery.descriptor().topic;
            let group = &self.delivery.group;
            if is_new {
                tracing::info!(%topic, %group, members, demanding, quota, "group members changed");
            } else {
                // A consumer that polls now and then changes it each time.
                tracing::debug!(%topic, %group, members, demanding, quota, "demand of the group changed");
            }
        }
    }

    /// A partition that is not valid at a data loss forgets its epoch by itself; valid ones may be taken again at once.
    fn hold(&self, loss: Loss) -> Event {
        let now = self.delivery.store.backend.clock().local().instant();
        let until = loss.hold_until(self.delivery.keeper.ttl());
        if until <= now {
            return Event::Tick;
        }
        let valid = self.delivery.owned_partitions().into_iter().filter(|(_, owned)| owned.lease.is_valid(now));
        Event::Hold { until, valid: valid.map(|(partition, _)| partition).collect::<BTreeSet<_>>() }
    }

    fn heartbeat(&self) {
        let (delivery, standing) = (&self.delivery, self.member.standing());
        let (has_demand, owned) = (standing.has_demand, standing.owned);
        let wal = delivery.store.backend.wal_depth();
        let state = MemberState { has_demand, waiting: delivery.demand.waiting(), owned, wal, process: None };
        let (topic, group) = (delivery.descriptor().topic.clone(), delivery.group.clone());
        delivery.options.heartbeats.record(Heartbeat { topic, group, state }, self.sender.clone());
    }

    fn depart(&self) {
        let (delivery, sender) = (self.delivery.clone(), self.sender.clone());
        self.tasks.start(async move {
            let topic = delivery.descriptor().topic.clone();
            let left = delivery.store.groups.leave(&topic, &delivery.group, delivery.keeper.member()).await;
            let _ = sender.send(if left.is_ok() { Event::Departed } else { Event::HeartbeatFailed });
        });
    }

    fn acquire(&mut self, partition: Partition) {
        let signal = Arc::new(LoopSignal::default());
        self.releases.insert(partition, signal.clone());
        self.tasks.start(own_partition(self.delivery.clone(), partition, signal, self.sender.clone()));
    }
}

async fn own_partition(
    delivery: Arc<GroupDelivery>,
    partition: Partition,
    signal: Arc<LoopSignal>,
    sender: mpsc::UnboundedSender<Event>,
) {
    let event = match Box::pin(acquire(&delivery, partition, &signal)).await {
        Ok(ownership) => {
            let _ = sender.send(Event::Acquired(partition));
            match ownership.serve().await {
                Ok(()) => Event::Released(partition),
                Err(_) => Event::Lost(partition),
            }
        }
        Err(event) => event,
    };
    let _ = sender.send(event);
}

/// Errors: why the partition is not owned, for the membership.
async fn acquire(
    delivery: &Arc<GroupDelivery>,
    partition: Partition,
    signal: &Arc<LoopSignal>,
) -> Result<Box<Ownership>, Event> {
    // Never given up half-way: the lease would be kept without an owner loop.
    Err(match Ownership::acquire(delivery, partition, signal).await {
        Ok(Acquisition::Owned(ownership)) => return Ok(ownership),
        Ok(Acquisition::Held(by, expires_in)) => Event::Held { partition, by, expires_in },
        Ok(Acquisition::Gone) => {
            delivery.abandon();
            Event::AcquireFailed(partition)
        }
        Err(error) if error.kind() == Kind::Conflict => {
            tracing::debug!(partition = partition.0, group = %delivery.group, %error, "an acquisition came too late");
            Event::AcquireFailed(partition)
        }
        Err(error) if error.is_outage() => {
            // Logged once elsewhere, not for each partition and each attempt.
            tracing::debug!(partition = partition.0, group = %delivery.group, %error, "the store was not asked for a lease");
            Event::AcquireFailed(partition)
        }
        Err(error) => {
            let topic = &delivery.descriptor().topic;
            if delivery.unacquired.is_due(delivery.store.backend.clock().local().instant()) {
                tracing::warn!(%topic, group = %delivery.group, partition = partition.0, %error, "lease not acquired");
            }
            Event::AcquireFailed(partition)
        }
    })
}

pub struct Heartbeats {
    store: Store,
    member: MemberId,
    absent_after: Duration,
    tasks: Tasks,
    /// By the slot of the store: one that does not answer leaves the others alone.
    asked: Mutex<HashMap<u32, Vec<Asked>>>,
}

struct Asked {
    heartbeat: Heartbeat,
    sender: mpsc::UnboundedSender<Event>,
}

impl Heartbeats {
    /// A member whose heartbeat is older than `absent_after` is not live.
    pub fn new(store: Store, member: MemberId, absent_after: Duration, tasks: Tasks) -> Arc<Heartbeats> {
        Arc::new(Heartbeats { store, member, absent_after, tasks, asked: Mutex::default() })
    }

    /// Sends [`Event::HeartbeatAnswered`] or [`Event::HeartbeatFailed`] to `sender`.
    pub(super) fn record(self: &Arc<Heartbeats>, heartbeat: Heartbeat, sender: mpsc::UnboundedSender<Event>) {
        let (slot, mut all) = (heartbeat.slot(), self.asked());
        let asked = all.entry(slot).or_default();
        asked.push(Asked { heartbeat, sender });
        if asked.len() == 1 {
            let all = self.clone();
            self.tasks.start(async move { all.call(slot).await });
        }
    }

    async fn call(&self, slot: u32) {
        let (heartbeats, senders): (Vec<_>, Vec<_>) =
            self.gathered(slot).await.into_iter().map(|asked| (asked.heartbeat, asked.sender)).unzip();
        let answers = self.store.groups.heartbeat(&self.member, &heartbeats, self.absent_after).await;
        for ((answer, sender), heartbeat) in answers.into_iter().zip(senders).zip(heartbeats) {
            let event = answer.map(|members| Event::HeartbeatAnswered(members.into())).unwrap_or_else(|error| {
                tracing::debug!(topic = %heartbeat.topic, group = %heartbeat.group, %error, "no heartbeat");
                Event::HeartbeatFailed
            });
            let _ = sender.send(event);
        }
    }

    /// Memberships whose heartbeats are due at the same instant arrive one by one.
    async fn gathered(&self, slot: u32) -> Vec<Asked> {
        let mut count = 0;
        loop {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let mut all = self.asked();
            let asked = all.get(&slot).map_or(0, Vec::len);
            if asked == count {
                return all.remove(&slot).unwrap_or_default();
            }
            count = asked;
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u32, Vec<Asked>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::lease::Lease;
    use crate::delivery::ownership::Owned;

    fn size_of_future<A, B, C, D, F: Future>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A broker may own 100,000 partitions that wait for an hour, so each has to be small. Box what is used rarely.
    #[test]
    fn idle_owned_partition_is_small() {
        let sizes = [size_of_future(own_partition), size_of::<Ownership>(), size_of::<Owned>(), size_of::<Lease>()];
        let most = [800, 160, 640, 192];
        assert!(sizes.iter().zip(most).all(|(size, most)| *size <= most), "{sizes:?} bytes, at most {most:?}");
        assert!(size_of::<Membership>() <= 1_024, "{}", size_of::<Membership>());
    }
}
