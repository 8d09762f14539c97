//! Changes of messages on request: of one by its id (cancel, reschedule), of all that are due in a window, and the purge of every message of a group, also of those in flight.
//!
//! A bulk operation changes every message in its own step, and the message leaves the window by it, so a repeated request
//! changes nothing twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};

use super::Broker;
use super::held::Reserved;
use super::list::Location;
use super::topics::with_group;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_IDS_MAX, DELAY_MAX, PARKED_FOR, RECOVER_IDS_MAX, WINDOW_REQUEST_MAX};
use crate::model::message::{Due, GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::{Timestamp, show_span};
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::store::{
    Call, Cancelled, Expected, Fate, Fates, MessageState, PartitionStats, Purge, Purged, Reschedule, Rescheduled,
    Window, restoring,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescheduleOutcome {
    pub partition: Partition,
    pub due_at: Timestamp,
    pub rescheduled: Rescheduled,
}

impl Broker {
    /// Cancels a message in every group in which it waits; one that is reserved is left alone. Errors: `NotFound`, also
    /// for another key; `Ambiguous`; and the store's. `OutcomeUnknown`: cancel it again, which is answered the same.
    pub async fn cancel(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> Result<(Partition, Cancelled)> {
        self.store.backend.clock().check()?;
        let cancel = |descriptor: Arc<Descriptor>| async move {
            match self.locate(&descriptor, id, key).await? {
                Location::In(partition) => Ok((partition, self.cancel_in(&descriptor, partition, id).await?)),
                Location::Nowhere => self.cancel_anywhere(&descriptor, id).await,
            }
        };
        self.topics.with_descriptor(topic, cancel).await
    }

    /// Reschedules a message in every group in which it waits as expected; attempts stay. Errors: `Invalid` too far
    /// ahead, or not before it expires; `NotFound`, also for another key; `Ambiguous`; and the store's.
    pub async fn reschedule(
        &self,
        topic: &TopicName,
        id: &MessageId,
        key: Option<&Key>,
        due: Due,
        expected: Expected,
    ) -> Result<RescheduleOutcome> {
        self.store.backend.clock().check()?;
        let due_at = due.fix(self.store.backend.clock().now())?;
        let reschedule = &Reschedule { id: id.clone(), due_at, expected };
        let reschedule = |descriptor: Arc<Descriptor>| async move {
            let partition = self.locate(&descriptor, id, key).await?.or_home(&descriptor, id);
            match self.reschedule_at(&descriptor, partition, reschedule).await? {
                Rescheduled::Expires => Err(Error::invalid("due_at", format!("message {id} expires before {due_at}"))),
                rescheduled => Ok(RescheduleOutcome { partition, due_at, rescheduled }),
            }
        };
        self.topics.with_descriptor(topic, reschedule).await
    }

    /// Cancels a message that no partition has: the one that it was cancelled in answers a repeat. While a loss is being
    /// restored this changes nothing, since any partition may still get the message.
    async fn cancel_anywhere(&self, descriptor: &Descriptor, id: &MessageId) -> Result<(Partition, Cancelled)> {
        if self.store.backend.losses().borrow().is_suspected() {
            return Err(restoring());
        }
        let cancels = descriptor
            .partitions()
            .map(|partition| async move { Ok((partition, self.cancel_in(descriptor, partition, id).await?)) });
        let home = descriptor.partition_of(id.as_str());
        // A call that is out is never dropped: it may be applied.
        let (mut cancelled, mut failed): (Vec<(Partition, Cancelled)>, Vec<Error>) = Default::default();
        for answer in join_all(cancels).await {
            match answer {
                Ok(answer) => cancelled.push(answer),
                Err(error) => failed.push(error),
            }
        }
        let is_known =
            |(_, cancelled): &&(Partition, Cancelled)| cancelled.fates.0.iter().any(|(_, fate)| *fate != Fate::Absent);
        let known = cancelled.iter().find(is_known);
        match failed.into_iter().max_by_key(|error| error.kind() == Kind::OutcomeUnknown) {
            Some(error) if known.is_some() => Err(Error::outcome_unknown(error.detail().to_owned())),
            Some(error) => Err(error),
            None => known
                .or_else(|| cancelled.iter().find(|(partition, _)| *partition == home))
                .cloned()
                .ok_or_else(|| Error::bug("a topic without partitions")),
        }
    }

    pub(super) async fn cancel_in(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let make = || {
            async move {
                let make = async |call: &Call| self.store.messages.cancel(descriptor, partition, call, id).await;
                self.topics.call(&descriptor.topic, partition, 1, make, |cancelled| !cancelled.buffered).await
            }
            .boxed()
        };
        let reserved = |cancelled: &Cancelled| reserved_of(&cancelled.fates, id);
        let is_changed = |cancelled: &Cancelled| cancelled.fates.has(Fate::Done);
        self.reach(descriptor, partition, Reserved::new(), make, reserved, is_changed).await
    }

    pub(super) async fn reschedule_at(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let make = || {
            async move {
                let make =
                    async |call: &Call| self.store.messages.reschedule(descriptor, partition, call, reschedule).await;
                self.topics.call(&descriptor.topic, partition, 1, make, |_| true).await
            }
            .boxed()
        };
        let fates = |rescheduled: &Rescheduled| match rescheduled {
            Rescheduled::Done(fates) => Some(fates.clone()),
            Rescheduled::Changed(_) | Rescheduled::Expires => None,
        };
        let reserved = |rescheduled: &Rescheduled| {
            fates(rescheduled).map(|fates| reserved_of(&fates, &reschedule.id)).unwrap_or_default()
        };
        let is_changed = |rescheduled: &Rescheduled| fates(rescheduled).is_some_and(|fates| fates.has(Fate::Done));
        // A group in which it is not as expected changes nothing anywhere: so the store has to see it in all of them at once.
        let is_exact = reschedule.expected == Expected::default() || descriptor.groups.len() == 1;
        let first = match is_exact {
            true => Reserved::new(),
            false => self.reserved_in(descriptor, partition, std::slice::from_ref(&reschedule.id)).await?,
        };
        self.reach(descriptor, partition, first, make, reserved, is_changed).await
    }
}

fn reserved_of(fates: &Fates, id: &MessageId) -> Reserved {
    fates.of(Fate::InFlight).map(|group| (group.clone(), vec![id.clone()])).collect()
}

/// Calls to the store at the same time.
const AT_ONCE: usize = 32;

/// How long a purge waits at most for the store's clock to pass its version.
const SETTLE_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    Cancel,
    Postpone(Duration),
    Advance(Duration),
    Park,
    /// Undoes `Park`: they are due when they were before, or now.
    Unpark,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BulkOutcome {
    pub changed: u64,
    /// Messages that a consumer has, or that expire before the new due time. One that a consumer has is counted again by each
    /// request that meets it.
    pub passed_over: u64,
    /// `None` once every partition is done.
    pub next: Option<String>,
}

impl Broker {
    /// Counts the messages of a group that no consumer has and that are due in a window. Errors: `NotFound`, `Invalid` window, `Full`.
    pub async fn count_window(&self, topic: &TopicName, group: &GroupName, window: Window) -> Result<u64> {
        check(window)?;
        let descriptor = self.topics.peek_group(topic, group).await?;
        let read = self.reads.begin().await?;
        let mut count = 0;
        for partition in descriptor.group_partitions(std::slice::from_ref(group)) {
            count += read.call(self.store.reads.window(&partition, window, None, 0)).await?.count;
            let reserved = self.reserved_in_window(&descriptor, &partition, window).await?;
            count += reserved.iter().filter(|(_, _, is_held)| *is_held).count() as u64;
        }
        Ok(count)
    }

    /// Changes messages for a few seconds, in every group in which they wait, and answers the next cursor. Errors:
    /// `NotFound`; `Invalid` window, cursor, or span that is shorter than the window; and the store's.
    pub async fn change_window(
        &self,
        topic: &TopicName,
        group: &GroupName,
        window: Window,
        action: BulkAction,
        cursor: Option<&str>,
    ) -> Result<BulkOutcome> {
        check(window)?;
        let now = self.store.backend.clock().now();
        let window = action.window(window, now)?;
        let descriptor = with_group(self.topics.load(topic).await?, group)?;
        let (mut partition, mut place) = read_cursor(cursor)?;
        let (began, mut done) = (self.clock().instant(), BulkOutcome::default());
        let is_over = || self.clock().instant().since(began) >= WINDOW_REQUEST_MAX || self.is_stopping();
        while partition.0 < descriptor.settings.partitions.get() {
            if is_over() {
                done.next = Some(write_cursor(partition, &place));
                return Ok(done);
            }
            let group_partition = descriptor.group_partition(partition, group);
            let page = match &place {
                WindowPlace::After(after) => {
                    let page = self.store.reads.window(&group_partition, window, after.as_ref(), RECOVER_IDS_MAX);
                    page.await?.messages
                }
                // All at once, since a change of one lets others go back to the store, where they are not looked for again.
                WindowPlace::Reserved => {
                    let reserved = self.reserved_in_window(&descriptor, &group_partition, window).await?;
                    reserved.into_iter().map(|(due, id, _)| (due, id)).collect()
                }
            };
            for some in page.chunks(AT_ONCE) {
                if place == WindowPlace::Reserved && is_over() {
                    break;
                }
                let changes = some.iter().map(|(due, id)| {
                    let to = action.target(*due).map(|to| to.max(now));
                    self.change_one(&descriptor, partition, group, id, to)
                });
                for changed in join_all(changes).await {
                    *(if changed? { &mut done.changed } else { &mut done.passed_over }) += 1;
                }
            }
            let full = page.len() == RECOVER_IDS_MAX;
            (partition, place) = match place {
                WindowPlace::After(_) if full => (partition, WindowPlace::After(page.into_iter().next_back())),
                WindowPlace::After(_) => (partition, WindowPlace::Reserved),
                WindowPlace::Reserved if is_over() => (partition, WindowPlace::Reserved),
                WindowPlace::Reserved => (Partition(partition.0 + 1), WindowPlace::After(None)),
            };
        }
        Ok(done)
    }

    /// The reserved messages of a partition that are due in a window, and whether no consumer has them.
    async fn reserved_in_window(
        &self,
        descriptor: &Descriptor,
        group_partition: &GroupPartition,
        window: Window,
    ) -> Result<Vec<(Timestamp, MessageId, bool)>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.reads.in_flight(group_partition, after.as_ref(), CALL_IDS_MAX).await?;
            let ids: Vec<MessageId> = page.messages.iter().map(|listed| listed.id.clone()).collect();
            let GroupPartition { partition, group, .. } = group_partition;
            let states = self.held_states(descriptor, *partition, group, &ids).await?;
            for (listed, (state, next_at)) in page.messages.into_iter().zip(states) {
                let due = next_at.or_else(|| listed.message.as_ref().ok().map(|message| message.due_at));
                if let Some(due) = due.filter(|due| window.has(*due)) {
                    found.push((due, listed.id, state != MessageState::InFlight));
                }
            }
            after = page.next;
            if after.is_none() {
                found.sort();
                found.dedup();
                return Ok(found);
            }
        }
    }

    /// Answers whether the message waited in the group.
    async fn change_one(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        id: &MessageId,
        to: Option<Timestamp>,
    ) -> Result<bool> {
        let fates = match to {
            None => self.cancel_in(descriptor, partition, id).await?.fates,
            Some(due_at) => {
                let reschedule = Reschedule { id: id.clone(), due_at, expected: Expected::default() };
                match self.reschedule_at(descriptor, partition, &reschedule).await? {
                    Rescheduled::Done(fates) => fates,
                    Rescheduled::Changed(_) | Rescheduled::Expires => return Ok(false),
                }
            }
        };
        Ok(fates.of(Fate::Done).any(|done| done == group))
    }
}

impl BulkAction {
    /// The window that is gone through. Errors: `Invalid` for one that messages would not leave, or leave too far.
    fn window(self, window: Window, now: Timestamp) -> Result<Window> {
        let length = window.to.since(window.from);
        match self {
            BulkAction::Postpone(by) | BulkAction::Advance(by) if by < length => {
                let why = format!(
                    "{} is shorter than the time from `from` to `to`, {}: messages would stay there and be moved again; \
                     do it in parts of that length, the latest first when postponing",
                    show_span(by),
                    show_span(length)
                );
                Err(Error::range("by", why))
            }
            BulkAction::Postpone(by) if window.to.plus(by) > now.plus(DELAY_MAX) => {
                Err(Error::range("by", format!("would move messages more than {} ahead", show_span(DELAY_MAX))))
            }
            BulkAction::Park if window.to.plus(PARKED_FOR) > now.plus(DELAY_MAX) || length > PARKED_FOR => {
                Err(Error::range("to", format!("is more than {} ahead", show_span(DELAY_MAX - PARKED_FOR))))
            }
            BulkAction::Unpark => Ok(Window { from: window.from.plus(PARKED_FOR), to: window.to.plus(PARKED_FOR) }),
            _ => Ok(window),
        }
    }

    fn target(self, due: Timestamp) -> Option<Timestamp> {
        match self {
            BulkAction::Cancel => None,
            BulkAction::Postpone(by) => Some(due.plus(by)),
            BulkAction::Advance(by) => Some(due.minus(by)),
            BulkAction::Park => Some(due.plus(PARKED_FOR)),
            BulkAction::Unpark => Some(due.minus(PARKED_FOR)),
        }
    }
}

fn check(window: Window) -> Result<()> {
    if window.from < window.to { Ok(()) } else { Err(Error::range("to", "is not after `from`")) }
}

/// A place among the messages of a partition: those that wait come first.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WindowPlace {
    After(Option<(Timestamp, MessageId)>),
    Reserved,
}

/// `<partition>`, `<partition>.<due ms>.<id>` or `<partition>.r`. Opaque to callers.
fn write_cursor(partition: Partition, place: &WindowPlace) -> String {
    match place {
        WindowPlace::After(Some((due, id))) => format!("{partition}.{}.{id}", due.as_ms()),
        WindowPlace::After(None) => partition.to_string(),
        WindowPlace::Reserved => format!("{partition}.r"),
    }
}

fn read_cursor(cursor: Option<&str>) -> Result<(Partition, WindowPlace)> {
    let Some(text) = cursor else { return Ok((Partition(0), WindowPlace::After(None))) };
    let wrong = super::wrong_cursor;
    let mut parts = text.splitn(3, '.');
    let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
    let place = match (parts.next(), parts.next()) {
        (None, _) => WindowPlace::After(None),
        (Some("r"), None) => WindowPlace::Reserved,
        (Some(due), Some(id)) => {
            let due = Timestamp::from_ms(due.parse().map_err(|_| wrong())?);
            WindowPlace::After(Some((due, MessageId::new(id).map_err(|_| wrong())?)))
        }
        (Some(_), None) => return Err(wrong()),
    };
    Ok((partition, place))
}

impl Broker {
    /// Deletes the messages of a group, scheduled, ready or in flight; other groups keep theirs. Messages that were pushed
    /// before are gone once this has answered, also those in a log; later ones stay. Receipts become stale.
    /// Errors: `NotFound`; `Conflict` for a group that is being copied; `OutcomeUnknown` when some partitions are
    /// purged and others are not: purge it again.
    pub async fn purge_group(&self, topic: &TopicName, purge: &Purge) -> Result<Purged> {
        self.store.backend.clock().check()?;
        let descriptor = with_group(self.topics.load(topic).await?, &purge.group)?;
        if descriptor.subscription(&purge.group).copy_of.is_some() {
            let detail = format!("group {} is being copied; purge it once that is done", purge.group);
            return Err(Error::new(Kind::Conflict, detail));
        }
        let partitions: Vec<Partition> = descriptor.partitions().collect();
        let (mut all, mut done) = (Purged::default(), 0);
        for some in partitions.chunks(AT_ONCE) {
            // A call that is out is never dropped: it may be applied.
            let mut failed = None;
            for purged in join_all(some.iter().map(|partition| self.purge_partition(topic, *partition, purge))).await {
                match purged {
                    Ok(purged) => {
                        done += 1;
                        all.messages += purged.messages;
                        all.dead_letters += purged.dead_letters;
                        let counts = self.metrics.group(topic, &purge.group);
                        counts.purged.inc_by(purged.messages);
                        counts.purged_dead.inc_by(purged.dead_letters);
                        all.version = all.version.max(purged.version);
                    }
                    Err(error) if failed.is_none() || error.kind() == Kind::OutcomeUnknown => failed = Some(error),
                    Err(_) => {}
                }
            }
            match failed {
                Some(error) if done == 0 => return Err(error),
                Some(error) => {
                    let detail =
                        format!("{done} of {} purged: {}", counted(partitions.len(), "partition"), error.detail());
                    return Err(Error::outcome_unknown(detail));
                }
                None => {}
            }
        }
        self.pass(all.version).await;
        let (group, messages, dead_letters) = (&purge.group, all.messages, all.dead_letters);
        tracing::info!(%topic, %group, messages, dead_letters, "group purged");
        Ok(all)
    }

    /// How many messages a purge would delete. Errors: `NotFound`, `Full`.
    pub async fn count_purge(&self, topic: &TopicName, purge: &Purge) -> Result<u64> {
        let (_, partitions) = self.group(topic, &purge.group).await?;
        let count = |stats: &PartitionStats| stats.live() + if purge.dead_letters { stats.dead } else { 0 };
        Ok(partitions.iter().map(|(_, stats)| count(stats)).sum())
    }

    async fn purge_partition(&self, topic: &TopicName, partition: Partition, purge: &Purge) -> Result<Purged> {
        let ask = |descriptor: Arc<Descriptor>| async move {
            let descriptor = with_group(descriptor, &purge.group)?;
            let make = async |call: &Call| self.store.messages.purge_group(&descriptor, partition, call, purge).await;
            let purged = self.topics.call(topic, partition, 1, make, |_| true).await?;
            // Messages in the memory of this process are not handed out once this has answered.
            self.check_lease(&descriptor, partition, &purge.group).await;
            Ok(purged)
        };
        self.topics.with_descriptor(topic, ask).await
    }

    async fn check_lease(&self, descriptor: &Descriptor, partition: Partition, group: &GroupName) {
        if let Ok(Some(delivery)) = self.groups.find(descriptor, group) {
            delivery.check_lease(partition).await;
        }
    }

    /// Waits until the store's clock has passed a version, so that other brokers buffer later pushes above it. Their clocks are not
    /// behind the store's.
    pub(super) async fn pass(&self, version: Version) {
        let clock = self.store.backend.clock();
        let passed = clock.reaches(Timestamp::from_ms(version.as_us().div_ceil(1_000)));
        tokio::select! {
            () = clock.local().sleep_until(passed) => {}
            () = Clock::System.sleep(SETTLE_WAIT) => {}
        }
    }
}
