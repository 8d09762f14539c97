//! The membership of this process in a group, carried out: the state machine of [`crate::coordination::membership`] says what to do, this
//! loop does it and tells what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::GroupDelivery;
use super::owned_partition::Kick;
use super::ownership::{Acquisition, Ownership};
use crate::coordination::membership::{Action, Event, Member, Timing};
use crate::model::error::Kind;
use crate::model::partition::Partition;
use crate::platform::tasks::Tasks;
use crate::store::{Channel, Heartbeat, Loss, MemberState, Releases, Wake};

/// The loop of one membership.
pub struct Membership {
    dispatch: Arc<GroupDelivery>,
    member: Member,
    tasks: Tasks,
    /// Tells a tenure to give its pair up.
    releases: BTreeMap<Partition, Arc<Kick>>,
    tell: mpsc::UnboundedSender<Event>,
    told: mpsc::UnboundedReceiver<Event>,
    /// A member joined or left, or its demand has changed.
    changed: Arc<Notify>,
    /// The topic was changed.
    rewritten: Arc<Notify>,
    /// Partitions in which a lease was given up.
    freed: Arc<Releases>,
    _wakes: Vec<Wake>,
    /// Members, and those among them with demand.
    members: (usize, usize),
}

impl Membership {
    /// Joins with the first step of [`Membership::run`]. Its tenures run in `tasks`.
    pub fn new(dispatch: Arc<GroupDelivery>, timing: Timing, tasks: Tasks) -> Box<Membership> {
        let descriptor = dispatch.descriptor();
        let (topic, group) = (descriptor.topic.clone(), dispatch.group.clone());
        let wakes = dispatch.store.backend.wakes();
        let changed = Arc::new(Notify::new());
        let mut subscriptions = vec![wakes.subscribe(Channel::Members(topic.clone(), group.clone()), changed.clone())];
        let rewritten = Arc::new(Notify::new());
        subscriptions.push(wakes.subscribe(Channel::Changed(topic.clone()), rewritten.clone()));
        let freed = Arc::new(Releases::default());
        let partitions = descriptor.partitions();
        subscriptions.extend(partitions.map(|n| wakes.subscribe(Channel::Release(topic.clone(), n), freed.clone())));
        subscriptions.shrink_to_fit();
        let id = dispatch.keeper.member().clone();
        let member = Member::new(topic, group, descriptor.settings.partitions.get(), id, timing);
        let (tell, told) = mpsc::unbounded_channel();
        let releases = BTreeMap::new();
        Box::new(Membership {
            dispatch,
            member,
            tasks,
            releases,
            tell,
            told,
            changed,
            rewritten,
            freed,
            _wakes: subscriptions,
            members: (0, 0),
        })
    }

    /// Is a member until `stop` fires, the topic is gone, or no consumer has asked for long; then leaves.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let (mut losses, mut pressed) = (self.dispatch.store.backend.losses(), self.dispatch.terms.budget.pressed());
        let first = self.hold(*losses.borrow_and_update());
        let mut leaving = false;
        let mut event = first;
        // Moved only when it has come: heartbeats pass more often than anyone looks.
        let mut look_at = self.dispatch.idle_at();
        while self.step(event) {
            let clock = self.dispatch.store.backend.clock().local();
            event = tokio::select! {
                Some(event) = self.told.recv() => event,
                () = self.changed.notified() => Event::MembersChanged,
                () = self.dispatch.demand.begun() => Event::Tick,
                () = self.rewritten.notified() => {
                    let dispatch = self.dispatch.clone();
                    self.tasks.start(async move { dispatch.look_again().await });
                    Event::Tick
                }
                partition = self.freed.next() => Event::Freed(partition),
                Ok(()) = losses.changed() => {
                    let loss = *losses.borrow_and_update();
                    self.dispatch.kick_all();
                    self.hold(loss)
                }
                Ok(()) = pressed.changed() => {
                    pressed.mark_unchanged();
                    self.dispatch.kick_all();
                    Event::Tick
                }
                () = clock.sleep_until(self.member.next_wake()) => Event::Tick,
                () = clock.sleep_until(look_at), if !leaving => match self.dispatch.is_idle(clock.instant()) {
                    true => Event::Leave,
                    false => {
                        look_at = self.dispatch.idle_at();
                        Event::Tick
                    }
                },
                () = stop.cancelled(), if !leaving => Event::Leave,
                () = self.dispatch.closed.cancelled(), if !leaving => Event::Leave,
            };
            if event == Event::Leave {
                // Who asks from now on begins anew.
                leaving = true;
                self.dispatch.close();
            }
        }
        self.dispatch.log_changes();
        self.dispatch.counts.waiting.set(0);
        tracing::info!(topic = %self.dispatch.descriptor().topic, group = %self.dispatch.group, "group left");
    }

    /// Feeds the state machine and does what it says. False once the member is gone.
    fn step(&mut self, event: Event) -> bool {
        if matches!(event, Event::Beaten(_) | Event::BeatFailed | Event::Departed) {
            self.dispatch.log_changes();
        }
        let now = self.dispatch.store.backend.clock().local().instant();
        self.member.wanted(self.dispatch.last_wanted(now));
        let actions = self.member.step(now, event);
        self.note();
        let mut lives = true;
        for action in actions {
            match action {
                Action::Beat => self.heartbeat(),
                Action::Depart => self.depart(),
                Action::Acquire(partition) => self.acquire(partition),
                Action::Release(partition) => {
                    if let Some(release) = self.releases.remove(&partition) {
                        release.release();
                    }
                }
                Action::Gone => lives = false,
            }
        }
        lives
    }

    fn note(&mut self) {
        let standing = self.member.standing();
        self.dispatch.counts.waiting.set(i64::from(standing.is_waiting));
        self.dispatch.demand.announced(standing.has_demand);
        let members = (standing.members, standing.demanding);
        if members != self.members {
            let (is_first, is_new) = (self.members.0 == 0, self.members.0 != standing.members);
            self.members = members;
            self.dispatch.metrics.ownership.rebalances.inc();
            if is_first {
                // Joining was logged.
                return;
            }
            let ((members, demanding), quota) = (members, standing.quota);
            let topic = &self.dispatch.descriptor().topic;
            let group = &self.dispatch.group;
            if is_new {
                tracing::info!(%topic, %group, members, demanding, quota, "group members changed");
            } else {
                // A consumer that polls now and then changes it each time.
                tracing::debug!(%topic, %group, members, demanding, quota, "demand of the group changed");
            }
        }
    }

    /// Who is not valid at a data loss forgets its epoch by itself; who is may take its own pairs again at once.
    fn hold(&self, loss: Loss) -> Event {
        let now = self.dispatch.store.backend.clock().local().instant();
        let until = loss.hold_until(self.dispatch.keeper.ttl());
        if until <= now {
            return Event::Tick;
        }
        let valid = self.dispatch.pairs().into_iter().filter(|(_, owned)| owned.lease.is_valid(now));
        Event::Hold { until, valid: valid.map(|(partition, _)| partition).collect::<BTreeSet<_>>() }
    }

    fn heartbeat(&self) {
        let (dispatch, standing) = (&self.dispatch, self.member.standing());
        let (has_demand, owned) = (standing.has_demand, standing.owned);
        let state = MemberState { has_demand, waiting: dispatch.demand.waiting(), owned };
        let (topic, group) = (dispatch.descriptor().topic.clone(), dispatch.group.clone());
        dispatch.terms.heartbeats.record(Heartbeat { topic, group, state }, self.tell.clone());
    }

    fn depart(&self) {
        let (dispatch, tell) = (self.dispatch.clone(), self.tell.clone());
        self.tasks.start(async move {
            let topic = dispatch.descriptor().topic.clone();
            let left = dispatch.store.groups.leave(&topic, &dispatch.group, dispatch.keeper.member()).await;
            let _ = tell.send(if left.is_ok() { Event::Departed } else { Event::BeatFailed });
        });
    }

    fn acquire(&mut self, partition: Partition) {
        let kick = Arc::new(Kick::default());
        self.releases.insert(partition, kick.clone());
        self.tasks.start(tenure(self.dispatch.clone(), partition, kick, self.tell.clone()));
    }
}

/// One tenure, from the acquisition to its end. There is one for each owned pair, so it is to be small.
async fn tenure(
    dispatch: Arc<GroupDelivery>,
    partition: Partition,
    kick: Arc<Kick>,
    tell: mpsc::UnboundedSender<Event>,
) {
    let event = match Box::pin(acquire(&dispatch, partition, &kick)).await {
        Ok(tenure) => {
            let _ = tell.send(Event::Acquired(partition));
            match tenure.serve().await {
                Ok(()) => Event::Released(partition),
                Err(_) => Event::Lost(partition),
            }
        }
        Err(event) => event,
    };
    // Nobody listens any more once the membership is over.
    let _ = tell.send(event);
}

/// # Errors
/// Why there is no tenure, for the membership.
async fn acquire(
    dispatch: &Arc<GroupDelivery>,
    partition: Partition,
    kick: &Arc<Kick>,
) -> Result<Box<Ownership>, Event> {
    // Never given up half-way: its lease would be kept without anyone who serves.
    Err(match Ownership::acquire(dispatch, partition, kick).await {
        Ok(Acquisition::Owned(tenure)) => return Ok(tenure),
        Ok(Acquisition::Held(by, expires_in)) => Event::Held { partition, by, expires_in },
        Ok(Acquisition::Gone) => {
            dispatch.abandon();
            Event::AcquireFailed(partition)
        }
        Err(error) if error.kind() == Kind::Conflict => {
            // Two members that want the same pair: one of them gets it.
            tracing::debug!(partition = partition.0, group = %dispatch.group, %error, "an acquisition came too late");
            Event::AcquireFailed(partition)
        }
        Err(error) if error.is_outage() => {
            // Said once elsewhere, and not for each partition and each attempt.
            tracing::debug!(partition = partition.0, group = %dispatch.group, %error, "the store was not asked for a lease");
            Event::AcquireFailed(partition)
        }
        Err(error) => {
            let topic = &dispatch.descriptor().topic;
            if dispatch.unacquired.is_due(dispatch.store.backend.clock().local().instant()) {
                tracing::warn!(%topic, group = %dispatch.group, partition = partition.0, %error, "lease not acquired");
            }
            Event::AcquireFailed(partition)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::lease::Lease;
    use crate::delivery::owned_partition::Owned;

    fn size_of_future<A, B, C, D, F: Future>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A broker may own 100,000 pairs that wait for an hour: what each of them takes meanwhile is bounded here. Box what is
    /// waited for seldom, and what most pairs do not have.
    #[test]
    fn an_owned_pair_that_waits_is_small() {
        let sizes = [size_of_future(tenure), size_of::<Ownership>(), size_of::<Owned>(), size_of::<Lease>()];
        let most = [800, 160, 640, 192];
        assert!(sizes.iter().zip(most).all(|(size, most)| *size <= most), "{sizes:?} bytes, at most {most:?}");
        assert!(size_of::<Membership>() <= 1_024, "{}", size_of::<Membership>());
    }
}
