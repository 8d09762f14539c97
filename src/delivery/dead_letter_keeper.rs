//! Dead letters of an owned partition: forwards them to the dead-letter topic, and drops those past the bounds of their topic.
//!
//! Only those that died of their attempts, or were buried by a consumer, are forwarded, and none to a topic that forwards
//! too once [`FORWARD_HOPS_MAX`] topics have forwarded it: such topics may form a circle. The owner knows which ones died;
//! a new owner, and one whose topic has changed, looks through all.

use std::time::Duration;

use super::GroupDelivery;
use crate::codec::DeadLetterReason;
use crate::model::error::{Error, Result};
use crate::model::limits::{FORWARD_HOPS_MAX, RECOVER_IDS_MAX};
use crate::model::message::MessageId;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::clock::Instant;
use crate::platform::log_throttle::RepeatThrottle;
use crate::store::{Buried, Dead, DeadLetterCursor, DeadLetterRetention, Forward, Store, restoring};

/// The shortest span between two looks for what has grown too old, and the pause after a failed one.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause after a forward that an outage ended.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two pages, in which the loop does other work.
const PAGE_PAUSE: Duration = Duration::from_millis(2);
/// Ids that are remembered to be forwarded. If more died, all dead letters are looked through.
const IDS_MAX: usize = 10 * RECOVER_IDS_MAX;

/// A partition without dead letters, or whose topic neither forwards nor bounds them, costs nothing.
#[derive(Debug)]
pub(super) struct DeadLetterKeeper {
    next: Instant,
    generation: u64,
    /// `None` when there is nothing to forward.
    forwarding: Option<Box<Forwarding>>,
}

#[derive(Debug, Default)]
struct Forwarding {
    ids: Vec<MessageId>,
    /// Where looking through all dead letters stands.
    scan: Option<Scan>,
    unforwarded: RepeatThrottle,
}

#[derive(Debug)]
enum Scan {
    /// At the front; an earlier owner may have left a page on its way.
    Begins,
    After(DeadLetterCursor),
}

impl DeadLetterKeeper {
    pub(super) fn new() -> DeadLetterKeeper {
        let mut keeper = DeadLetterKeeper { next: Instant::default(), generation: 0, forwarding: None };
        keeper.forwarding().begin();
        keeper
    }

    fn forwarding(&mut self) -> &mut Forwarding {
        self.forwarding.get_or_insert_default()
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether messages died that are not forwarded yet.
    pub(super) fn has_new(&self) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| !forwarding.ids.is_empty())
    }

    pub(super) fn died(&mut self, descriptor: &Descriptor, buried: &[Buried]) {
        if buried.is_empty() {
            return;
        }
        self.next = Instant::default();
        if descriptor.dead_letter_topic().is_none() {
            return;
        }
        let forwards = buried.iter().filter(|buried| is_forwarded(buried.record.reason));
        let forwarding = self.forwarding();
        forwarding.ids.extend(forwards.map(|buried| buried.id.clone()));
        if forwarding.ids.len() > IDS_MAX {
            forwarding.begin();
        }
    }

    pub(super) fn set_generation(&mut self, generation: u64) {
        if self.generation != generation {
            (self.generation, self.next) = (generation, Instant::default());
            self.forwarding().scan = Some(Scan::Begins);
        }
    }

    /// A failed look is repeated later.
    pub(super) async fn look(&mut self, delivery: &GroupDelivery, group_partition: &GroupPartition) {
        let now = delivery.store.backend.clock().local().elapsed();
        let forwarded = match &mut self.forwarding {
            None => Instant::FAR,
            Some(forwarding) => match forwarding.forward(delivery, group_partition).await {
                Ok(()) if forwarding.ids.is_empty() && forwarding.scan.is_none() => {
                    self.forwarding = None;
                    Instant::FAR
                }
                Ok(()) => now.plus(PAGE_PAUSE),
                Err(error) => {
                    forwarding.report(group_partition, &error, now);
                    now.plus(if error.is_outage() { OUTAGE_PAUSE } else { PAUSE })
                }
            },
        };
        let dropped = drop_past(delivery, group_partition, now).await.unwrap_or_else(|error| {
            tracing::debug!(topic = %group_partition.topic, group = %group_partition.group, partition = group_partition.partition.0, %error, "dead messages past their bounds were not dropped");
            now.plus(PAUSE)
        });
        self.next = forwarded.min(dropped);
    }
}

impl Forwarding {
    /// Looks through all dead letters, also for a page that an earlier owner left on its way.
    fn begin(&mut self) {
        (self.ids, self.scan) = (Vec::new(), Some(Scan::Begins));
    }

    fn report(&self, group_partition: &GroupPartition, error: &Error, now: Instant) {
        let GroupPartition { topic, group, partition, .. } = group_partition;
        let partition = partition.0;
        if error.is_outage() {
            // The store says so itself.
            tracing::debug!(%topic, %group, partition, %error, "dead letters not forwarded yet");
        } else if self.unforwarded.is_due(now) {
            tracing::warn!(%topic, %group, partition, %error, "dead letters not forwarded: they stay in their group, tried again");
        }
    }

    /// Forwards a page, if there is any.
    async fn forward(&mut self, delivery: &GroupDelivery, partition: &GroupPartition) -> Result<()> {
        let descriptor = delivery.descriptor();
        if !descriptor.has_forwarded {
            (self.ids, self.scan) = (Vec::new(), None);
            return Ok(());
        }
        if delivery.store.backend.losses().borrow().is_restoring {
            return Err(restoring());
        }
        let store = &delivery.store;
        if matches!(self.scan, Some(Scan::Begins)) {
            forward_page(store, partition, None, &[]).await?;
        }
        if descriptor.dead_letter_topic().is_none() {
            (self.ids, self.scan) = (Vec::new(), None);
        } else if self.scan.is_some() {
            self.scan_page(delivery, partition, &descriptor).await?;
        } else {
            let count = self.ids.len().min(RECOVER_IDS_MAX);
            let some = self.ids[..count].iter().map(|id| Candidate { id: id.clone(), is_at_limit: None });
            forward_some(delivery, partition, &descriptor, some.collect()).await?;
            self.ids.drain(..count);
        }
        Ok(())
    }

    async fn scan_page(
        &mut self,
        delivery: &GroupDelivery,
        partition: &GroupPartition,
        descriptor: &Descriptor,
    ) -> Result<()> {
        let after = match &self.scan {
            Some(Scan::After(cursor)) => Some(cursor.clone()),
            Some(Scan::Begins) | None => None,
        };
        let page = delivery.store.dead_letters.dead(partition, after.as_ref(), RECOVER_IDS_MAX).await?;
        let is_meant = |dead: &&Dead| is_forwarded(dead.record.reason) && dead.message.is_ok();
        let candidate = |dead: &Dead| Candidate { id: dead.id.clone(), is_at_limit: Some(dead.is_at_hop_limit()) };
        let some = page.dead.iter().filter(is_meant).map(candidate).collect();
        forward_some(delivery, partition, descriptor, some).await?;
        self.scan = page.next.map(Scan::After);
        Ok(())
    }
}

fn is_forwarded(reason: DeadLetterReason) -> bool {
    matches!(reason, DeadLetterReason::MaxAttempts | DeadLetterReason::Buried)
}

/// A dead letter that may be forwarded.
struct Candidate {
    id: MessageId,
    /// Whether it stays if it would go to a topic that forwards too; `None` is not known yet.
    is_at_limit: Option<bool>,
}

/// Forwards dead letters to the topic that the descriptor names. Errors: `NotFound` without that topic; what it refuses.
async fn forward_some(
    delivery: &GroupDelivery,
    partition: &GroupPartition,
    from: &Descriptor,
    some: Vec<Candidate>,
) -> Result<()> {
    let store = &delivery.store;
    let Some(name) = from.dead_letter_topic().filter(|_| !some.is_empty()) else { return Ok(()) };
    let Some(to) = store.topics.topic(name).await? else {
        return Err(Error::not_found(format!("there is no topic {name} for the dead letters of topic {}", from.topic)));
    };
    // Each topic of a circle forwards, so nothing needs to be looked at on the way to one that does not.
    let ids = match to.dead_letter_topic() {
        None => some.into_iter().map(|candidate| candidate.id).collect(),
        Some(_) => within_limit(delivery, partition, some).await?,
    };
    while !ids.is_empty() {
        match forward_page(store, partition, Some(&to), &ids).await? {
            0 => break,
            forwarded => delivery.counts.dead_forwarded.inc_by(forwarded),
        }
    }
    Ok(())
}

async fn within_limit(
    delivery: &GroupDelivery,
    partition: &GroupPartition,
    some: Vec<Candidate>,
) -> Result<Vec<MessageId>> {
    let mut within = Vec::with_capacity(some.len());
    for Candidate { id, is_at_limit } in some {
        let is_at_limit = match is_at_limit {
            Some(known) => known,
            None => {
                let dead = delivery.store.reads.peek(partition, &id).await?;
                dead.is_some_and(|dead| dead.message.envelope.hops() >= FORWARD_HOPS_MAX)
            }
        };
        if !is_at_limit {
            within.push(id);
        } else if delivery.circling.is_due(delivery.store.backend.clock().local().instant()) {
            let GroupPartition { topic, group, .. } = partition;
            tracing::warn!(%topic, %group, %id, hops = FORWARD_HOPS_MAX, "dead letter not forwarded: it has reached the limit of hops");
        }
    }
    Ok(within)
}

/// Forwards a page, or completes one that an earlier owner left. Answers how many dead letters were on it.
pub(crate) async fn forward_page(
    store: &Store,
    partition: &GroupPartition,
    to: Option<&Descriptor>,
    ids: &[MessageId],
) -> Result<u64> {
    let page = match store.dead_letters.forward(partition, to, ids).await? {
        Forward::Nothing => return Ok(0),
        Forward::Done(page) => page,
        Forward::Elsewhere { topic, incarnation, page } => {
            let there = store.topics.topic(&topic).await?.filter(|there| there.incarnation == incarnation);
            match there {
                None => page,
                Some(there) => match store.dead_letters.forward(partition, Some(&there), &[]).await? {
                    Forward::Done(page) => page,
                    Forward::Nothing | Forward::Elsewhere { .. } => return Ok(0),
                },
            }
        }
    };
    store.dead_letters.forwarded(partition, &page).await?;
    match page.refusal {
        Some(refusal) => Err(refusal),
        None => Ok((page.messages.len() + page.refused.len()) as u64),
    }
}

async fn drop_past(delivery: &GroupDelivery, partition: &GroupPartition, now: Instant) -> Result<Instant> {
    let descriptor = delivery.descriptor();
    let (age, count) = (descriptor.settings.dead_max_age, descriptor.settings.dead_max_count);
    let age = (!age.is_zero()).then_some(age);
    let count = (count > 0).then_some(count);
    if age.is_none() && count.is_none() {
        return Ok(Instant::FAR);
    }
    let clock = delivery.store.backend.clock();
    loop {
        let died_before = age.map(|age| clock.now().minus(age));
        let dropped =
            delivery.store.dead_letters.drop_dead(partition, DeadLetterRetention { died_before, count }).await?;
        delivery.counts.dead_aged.inc_by(dropped.aged);
        delivery.counts.dead_surplus.inc_by(dropped.surplus);
        if !dropped.more {
            let too_old = age.zip(dropped.oldest).map(|(age, died_at)| clock.reaches(died_at.plus(age)));
            let too_old = too_old.map(|at| now.plus(at.since(clock.local().instant())));
            return Ok(too_old.map_or(Instant::FAR, |at| at.max(now.plus(PAUSE))));
        }
    }
}
