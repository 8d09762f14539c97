//! Messages that the owner of a partition holds and that no consumer has: bringing a change to them, wherever the owner is.
//!
//! The store says that a reservation has a message. Then its owner is asked to give the message back, and to reserve
//! nothing for a moment; and the store is asked again. So it is the store that changes a message, in one step and for all
//! groups, and its answer is the verdict. A message is in flight only if its owner says that a consumer has it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};

use super::Broker;
use crate::delivery::remote::{Inquiry, InquiryRequest, NoReport, Report, RequestName};
use crate::delivery::{BlockedReason, GroupDelivery, HeldCounts, HeldKeys, Located, RecallGuard, recover_unowned};
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, Key, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::clock::Instant;
use crate::store::{MemberId, MessageState, Owners, PartitionStats};

/// The pause before an owner that was not found is looked for again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(25);

/// Recalls for one change. One is enough unless the call that follows it takes longer than the hold.
pub(super) const ROUNDS_MAX: u32 = 10;
/// How long an owner has to say where messages are.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// How long owners have to say what they hold, when messages are counted.
const COUNT_PATIENCE: Duration = Duration::from_millis(500);

/// Messages of a partition that the store found reserved, by group.
pub(super) type Reserved = BTreeMap<GroupName, Vec<MessageId>>;

/// The keys of a fair group that have messages due or in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKeys {
    pub keys: HeldKeys,
    /// Whether the owners of all partitions with such messages have answered.
    pub is_complete: bool,
}

/// An owner reserves nothing until this ends.
pub(super) enum Recall {
    Here {
        _guard: Option<RecallGuard>,
    },
    Elsewhere {
        owner: MemberId,
        group: GroupName,
        name: RequestName,
    },
    /// Nobody owns the partition: what was reserved is back.
    Unowned,
}

/// Which of the messages consumers have.
pub(super) type Out = HashSet<(GroupName, MessageId)>;

#[async_trait]
impl Owners for Broker {
    async fn while_given_back<'a>(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        change: BoxFuture<'a, ()>,
    ) -> Result<bool> {
        let (recalls, out) = self.given_back(descriptor, partition, id).await?;
        if out.is_empty() {
            change.await;
        }
        self.end_recalls(descriptor, recalls).await;
        Ok(out.is_empty())
    }
}

impl Broker {
    /// Makes a call of a change. If it finds messages reserved that no consumer has, their owners give them back, and it is
    /// made again. Errors: the store's; `Unavailable` if an owner does not answer and nothing was changed,
    /// `OutcomeUnknown` if a part was. The messages in `first` are given back before the first call.
    pub(super) async fn reach<'a, T: Send>(
        &'a self,
        descriptor: &'a Descriptor,
        partition: Partition,
        first: Reserved,
        make: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
        reserved: impl Fn(&T) -> Reserved + Send + Sync,
        is_changed: impl Fn(&T) -> bool + Send + Sync,
    ) -> Result<T> {
        let until = self.clock().instant().plus(self.settle_timeout());
        let (mut out, mut was_changed, mut rounds) = (Out::new(), false, 0);
        let mut recalls = self.recall(descriptor, partition, &first, &mut out, until).await?;
        loop {
            let made = make().await;
            self.end_recalls(descriptor, std::mem::take(&mut recalls)).await;
            let made = made.map_err(|error| again(was_changed, error))?;
            let mut held = reserved(&made);
            remove_out(&mut held, &out);
            if held.is_empty() {
                return Ok(made);
            }
            was_changed |= is_changed(&made);
            // It was reserved again before the call came, or it is in no place at all.
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(again(was_changed, no_answer(None)));
            }
            recalls = self
                .recall(descriptor, partition, &held, &mut out, until)
                .await
                .map_err(|error| again(was_changed, error))?;
            remove_out(&mut held, &out);
            if held.is_empty() {
                self.end_recalls(descriptor, recalls).await;
                return Ok(made);
            }
        }
    }

    /// Lets the owners give messages back, those of all groups at once. Errors: `Unavailable`: an owner did not answer.
    pub(super) async fn recall(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        reserved: &Reserved,
        out: &mut Out,
        until: Instant,
    ) -> Result<Vec<Recall>> {
        let recalls = reserved.iter().map(|(group, ids)| self.recall_in(descriptor, partition, group, ids, until));
        let (mut done, mut failed) = (Vec::new(), None);
        for (group, recalled) in reserved.keys().zip(join_all(recalls).await) {
            match recalled {
                Ok((recall, of_consumers)) => {
                    done.push(recall);
                    out.extend(of_consumers.into_iter().map(|id| (group.clone(), id)));
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(done),
            Some(error) => {
                self.end_recalls(descriptor, done).await;
                Err(error)
            }
        }
    }

    /// Makes sure that no owner has a message, unless a consumer has it. Errors: `Unavailable`: an owner did not answer.
    async fn given_back(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<(Vec<Recall>, Out)> {
        let (until, mut out) = (self.clock().instant().plus(LOOK_PATIENCE), Out::new());
        let reserved = self.reserved_in(descriptor, partition, std::slice::from_ref(id)).await?;
        let recalls = self.recall(descriptor, partition, &reserved, &mut out, until).await?;
        Ok((recalls, out))
    }

    /// Lets the owner of a partition give back all that no consumer has, if anything is reserved.
    pub(super) async fn recall_all(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
    ) -> Result<Vec<Recall>> {
        let stats = self.store.reads.stats(&[descriptor.group_partition(partition, group)]).await?;
        if stats.iter().all(|stats| stats.in_flight == 0) {
            return Ok(Vec::new());
        }
        let until = self.clock().instant().plus(LOOK_PATIENCE);
        let all = Reserved::from([(group.clone(), Vec::new())]);
        self.recall(descriptor, partition, &all, &mut Out::new(), until).await
    }

    pub(super) async fn end_recalls(&self, descriptor: &Descriptor, recalls: Vec<Recall>) {
        for recall in recalls {
            if let Recall::Elsewhere { owner, group, name } = recall {
                self.remote.release(&owner, (&descriptor.topic, &group), name).await;
            }
        }
    }

    /// Without ids everything that no consumer has.
    async fn recall_in(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        ids: &[MessageId],
        until: Instant,
    ) -> Result<(Recall, Vec<MessageId>)> {
        let inquiry = Inquiry::Recall { partition, ids: ids.to_vec() };
        loop {
            if let Some(delivery) = self.owner_here(descriptor, partition, group)? {
                if let Some(answer) = delivery.recall(partition, ids, until).await {
                    return Ok((Recall::Here { _guard: answer.guard }, answer.out));
                }
            } else {
                match self.owner_there(descriptor, partition, group).await? {
                    None => {
                        if self.recover_unowned(descriptor, partition, group).await? {
                            return Ok((Recall::Unowned, Vec::new()));
                        }
                    }
                    Some(owner) if owner == *self.member() => {}
                    Some(owner) => {
                        let place = (&descriptor.topic, group);
                        let (name, report) = self.remote.inquire(&owner, place, inquiry.clone(), until).await;
                        if let Ok(Report::Recalled { out }) = report {
                            return Ok((Recall::Elsewhere { owner, group: group.clone(), name }, out));
                        }
                        if report == Err(NoReport::Silent) {
                            return Err(no_answer(Some(&owner)));
                        }
                    }
                }
            }
            let clock = self.clock();
            if clock.instant() >= until {
                return Err(no_answer(None));
            }
            clock.sleep_until(clock.instant().plus(LOOK_AGAIN_AFTER).min(until)).await;
        }
    }

    /// Lets the owner of a partition, if there is one, follow what the store says by now. Errors: `Unavailable`: it does not answer.
    pub(super) async fn refresh(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) -> Result<()> {
        let clock = self.clock();
        let until = clock.instant().plus(self.settle_timeout());
        loop {
            if let Some(delivery) = self.owner_here(descriptor, partition, group)? {
                if delivery.refresh(partition, until).await == Some(true) {
                    return Ok(());
                }
            } else {
                match self.owner_there(descriptor, partition, group).await? {
                    // An owner whose lease has lapsed may come back and continue with what it holds, until another epoch begins.
                    None => {
                        if self.recover_unowned(descriptor, partition, group).await? {
                            return Ok(());
                        }
                    }
                    Some(owner) if owner == *self.member() => {}
                    Some(owner) => {
                        let place = (&descriptor.topic, group);
                        match self.remote.inquire(&owner, place, Inquiry::Refresh { partition }, until).await.1 {
                            Ok(Report::Refreshed) => return Ok(()),
                            Err(NoReport::Silent) => return Err(silent(&owner)),
                            Ok(_) | Err(_) => {}
                        }
                    }
                }
            }
            if clock.instant() >= until {
                return Err(Error::unavailable("the owner of the partition does not answer"));
            }
            clock.sleep_until(clock.instant().plus(LOOK_AGAIN_AFTER).min(until)).await;
        }
    }

    /// Brings back what is reserved in a partition without an owner, and begins another epoch. False if it has an owner by now.
    async fn recover_unowned(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) -> Result<bool> {
        let group_partition = descriptor.group_partition(partition, group);
        recover_unowned(&self.store, &self.metrics, descriptor, &group_partition, self.options.lease_ttl).await
    }

    fn owner_here(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
    ) -> Result<Option<Arc<GroupDelivery>>> {
        Ok(self.groups.find(descriptor, group)?.filter(|delivery| delivery.owns(partition)))
    }

    /// The member that the store names as owner of a partition.
    async fn owner_there(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
    ) -> Result<Option<MemberId>> {
        let group_partition = descriptor.group_partition(partition, group);
        let record = self.store.leases.owner_records(&[group_partition]).await?.pop().flatten();
        Ok(record.and_then(|record| record.member).filter(MemberId::is_plausible))
    }

    /// The groups in which the store finds messages of a partition reserved.
    pub(super) async fn reserved_in(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        ids: &[MessageId],
    ) -> Result<Reserved> {
        let mut reserved = Reserved::new();
        for group in &descriptor.groups {
            let group_partition = descriptor.group_partition(partition, group);
            for id in ids {
                let peeked = self.store.reads.peek(&group_partition, id).await?;
                if peeked.is_some_and(|peeked| peeked.state == MessageState::InFlight) {
                    reserved.entry(group.clone()).or_default().push(id.clone());
                }
            }
        }
        Ok(reserved)
    }

    /// Where messages are at the owner of their partition, in the order asked; `None` for one that it does not hold. And what
    /// holds up the partition, or this key in it. None at all if the owner does not answer within a second, or nobody owns the partition.
    pub(super) async fn locate_held(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        ids: &[MessageId],
        key: Option<&Key>,
    ) -> Result<Option<(Vec<Option<Located>>, Option<BlockedReason>)>> {
        if let Some(delivery) = self.owner_here(descriptor, partition, group)? {
            let held_up = delivery.blocked_reason(partition, key);
            return Ok(delivery.locate(partition, ids).map(|located| (located, held_up)));
        }
        let Some(owner) = self.owner_there(descriptor, partition, group).await? else { return Ok(None) };
        let (place, until) = ((&descriptor.topic, group), self.clock().instant().plus(LOOK_PATIENCE));
        let inquiry = Inquiry::Locate { partition, ids: ids.to_vec(), key: key.cloned() };
        match self.remote.inquire(&owner, place, inquiry, until).await.1 {
            Ok(Report::Located { located, held_up }) if located.len() == ids.len() => Ok(Some((located, held_up))),
            _ => Ok(None),
        }
    }

    /// The state of reserved messages: with a consumer unless their owner says where else.
    pub(super) async fn held_states(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        ids: &[MessageId],
    ) -> Result<Vec<(MessageState, Option<Timestamp>)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let located = self.locate_held(descriptor, partition, group, ids, None).await?;
        let (located, _) = located.unwrap_or_else(|| (vec![None; ids.len()], None));
        Ok(located.iter().map(|located| located.as_ref().map_or((MessageState::InFlight, None), state_of)).collect())
    }

    /// Moves what owners hold, and no consumer has, from `in_flight` to where it belongs. Counts of an owner that does not
    /// answer in time stay as they are. Time in which the window of a group was closed makes nothing older.
    pub(super) async fn count_held(
        &self,
        descriptor: &Descriptor,
        stats: &mut [(GroupPartition, PartitionStats)],
        unheard: &mut BTreeSet<MemberId>,
    ) -> Result<()> {
        let mut asked = BTreeSet::new();
        for (group_partition, stats) in stats.iter().filter(|(_, stats)| stats.in_flight > 0) {
            if let Some(owner) = stats.owner.clone().filter(MemberId::is_plausible) {
                asked.insert((group_partition.group.clone(), owner));
            }
        }
        asked.retain(|(_, owner)| !unheard.contains(owner));
        let until = self.clock().instant().plus(COUNT_PATIENCE);
        let counts = asked.into_iter().map(|(group, owner)| async move {
            let counts = self.held_counts(descriptor, &group, &owner, until).await;
            (group, owner, counts)
        });
        for (group, owner, counts) in join_all(counts).await {
            let Some(counts) = counts? else {
                unheard.insert(owner);
                continue;
            };
            let now = self.now();
            for (group_partition, stats) in stats.iter_mut().filter(|(partition, _)| partition.group == group) {
                if let Some(held) = counts.get(&group_partition.partition) {
                    add_held(stats, held, now);
                }
            }
        }
        let now = self.now();
        for (group_partition, stats) in stats {
            if let Some(subscription) = descriptor.subscriptions.get(&group_partition.group) {
                stats.oldest_ready_age = stats.oldest_ready_age.map(|age| subscription.open_lateness(age, now));
            }
        }
        Ok(())
    }

    /// `None` if the owner does not answer.
    async fn held_counts(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        owner: &MemberId,
        until: Instant,
    ) -> Result<Option<BTreeMap<Partition, HeldCounts>>> {
        if owner == self.member() {
            let delivery = self.groups.find(descriptor, group)?;
            return Ok(Some(delivery.map(|delivery| delivery.held_counts()).unwrap_or_default()));
        }
        match self.remote.inquire(owner, (&descriptor.topic, group), Inquiry::Counts, until).await.1 {
            Ok(Report::Counts { partitions }) => Ok(Some(partitions.into_iter().collect())),
            Ok(_) => Ok(Some(BTreeMap::new())),
            Err(_) => Ok(None),
        }
    }

    /// The keys of a fair group that have messages due or in flight, as the owners of its partitions know them. `None` if the group
    /// is not fair.
    pub async fn keys(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        stats: &[(GroupPartition, PartitionStats)],
    ) -> Result<Option<GroupKeys>> {
        self.count_keys(descriptor, group, stats, &mut BTreeSet::new()).await
    }

    /// The same, but owners that are `unheard` are not asked, and one that does not answer in time becomes so.
    pub(super) async fn count_keys(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        stats: &[(GroupPartition, PartitionStats)],
        unheard: &mut BTreeSet<MemberId>,
    ) -> Result<Option<GroupKeys>> {
        if !descriptor.is_fair(group) {
            return Ok(None);
        }
        let until = self.clock().instant().plus(COUNT_PATIENCE);
        let mut owners: BTreeSet<_> =
            stats.iter().filter_map(|(_, stats)| stats.owner.clone().filter(MemberId::is_plausible)).collect();
        owners.retain(|owner| !unheard.contains(owner));
        let asked = owners.iter().map(|owner| self.keys_of(descriptor, group, owner, until));
        let (mut keys, mut heard) = (HeldKeys::default(), BTreeSet::new());
        for (owner, answer) in owners.iter().zip(join_all(asked).await) {
            let Some((more, partitions)) = answer? else {
                unheard.insert(owner.clone());
                continue;
            };
            keys.add(more);
            heard.extend(partitions);
        }
        let is_known = |(partition, stats): &(GroupPartition, PartitionStats)| {
            stats.ready + stats.in_flight == 0 || heard.contains(&partition.partition)
        };
        Ok(Some(GroupKeys { keys, is_complete: stats.iter().all(is_known) }))
    }

    /// Those of one owner. `None` if it does not answer.
    async fn keys_of(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        owner: &MemberId,
        until: Instant,
    ) -> Result<Option<(HeldKeys, Vec<Partition>)>> {
        if owner == self.member() {
            let delivery = self.groups.find(descriptor, group)?;
            return Ok(Some(delivery.map(|delivery| delivery.held_keys()).unwrap_or_default()));
        }
        Ok(match self.remote.inquire(owner, (&descriptor.topic, group), Inquiry::Keys, until).await.1 {
            Ok(Report::Keys { keys, partitions }) => Some((keys, partitions)),
            Ok(_) => Some(Default::default()),
            Err(_) => None,
        })
    }

    /// Answers the question of another broker. Nothing is answered if the store does not take a message back in time.
    pub(super) async fn answer_inquiry(&self, request: InquiryRequest) {
        let (topic, group) = &request.place;
        if let Inquiry::Release { recall } = &request.inquiry {
            return self.remote.released(recall);
        }
        let found = match self.topics.group(topic, group).await {
            Ok(descriptor) => self.groups.find(&descriptor, group).ok().flatten(),
            Err(_) => None,
        };
        let Some(delivery) = found else { return self.remote.report(request, Report::NotOwner, None).await };
        let until = self.clock().instant().plus(request.patience);
        let (report, guard) = match &request.inquiry {
            Inquiry::Recall { partition, .. } | Inquiry::Locate { partition, .. } if !delivery.owns(*partition) => {
                (Report::NotOwner, None)
            }
            Inquiry::Recall { partition, ids } => match delivery.recall(*partition, ids, until).await {
                Some(answer) => (Report::Recalled { out: answer.out }, answer.guard),
                None => return,
            },
            Inquiry::Refresh { partition } => match delivery.refresh(*partition, until).await {
                Some(true) => (Report::Refreshed, None),
                Some(false) => (Report::NotOwner, None),
                None => return,
            },
            Inquiry::Locate { partition, ids, key } => match delivery.locate(*partition, ids) {
                Some(located) => {
                    let held_up = delivery.blocked_reason(*partition, key.as_ref());
                    (Report::Located { located, held_up }, None)
                }
                None => (Report::NotOwner, None),
            },
            Inquiry::Counts => (Report::Counts { partitions: delivery.held_counts().into_iter().collect() }, None),
            Inquiry::Keys => {
                let (keys, partitions) = delivery.held_keys();
                (Report::Keys { keys, partitions }, None)
            }
            Inquiry::Release { .. } => return,
        };
        self.remote.report(request, report, guard).await;
    }
}

fn state_of(located: &Located) -> (MessageState, Option<Timestamp>) {
    match located {
        Located::InFlight { .. } | Located::Decided => (MessageState::InFlight, None),
        Located::Ready => (MessageState::Ready, None),
        Located::Backoff { next_at, .. } => (MessageState::Backoff, Some(*next_at)),
        Located::Blocked { .. } => (MessageState::Blocked, None),
    }
}

/// Store and owner count one after the other, so the sum of the store stands.
fn add_held(stats: &mut PartitionStats, held: &HeldCounts, now: Timestamp) {
    let mut take = |count: u64| {
        let taken = count.min(stats.in_flight);
        stats.in_flight -= taken;
        taken
    };
    let (ready, blocked, backoff) = (take(held.ready), take(held.blocked), take(held.backoff));
    stats.ready += ready;
    stats.blocked += blocked;
    stats.backoff += backoff;
    if ready + blocked > 0 {
        stats.oldest_ready_age = stats.oldest_ready_age.max(held.oldest_age(now));
    }
}

fn remove_out(reserved: &mut Reserved, out: &Out) {
    reserved.retain(|group, ids| {
        ids.retain(|id| !out.contains(&(group.clone(), id.clone())));
        !ids.is_empty()
    });
}

/// The error of a change that is to be made again.
fn again(was_changed: bool, error: Error) -> Error {
    if was_changed { Error::outcome_unknown(error.detail().to_owned()) } else { error }
}

fn silent(owner: &MemberId) -> Error {
    Error::unavailable(format!("broker {owner} that owns the partition does not answer"))
}

fn no_answer(owner: Option<&MemberId>) -> Error {
    let owner = owner.map_or("the broker".to_owned(), |owner| format!("broker {owner}"));
    Error::unavailable(format!("{owner} that holds the message does not answer: it is as it was; try again"))
}
