//! Offering the store what a log kept: each record once more, under its id, with the due time it always had.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::again::apply;
use super::{Failover, is_outage};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::message::{Conflict, Message, TopicName};
use crate::partition::Partition;
use crate::store::{PushKind, Pushed, Put, Store};
use crate::topic::{Descriptor, Settings};
use crate::wal::Record;

/// How often a topic is looked up again because it changed on the way.
pub(super) const RELOADS_MAX: usize = 3;

/// What became of the records of a page.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Taken by the store.
    pub(super) stored: u64,
    /// In the store already.
    pub(super) duplicate: u64,
    /// Of topics that were deleted, or cancelled: nobody wants them any more.
    pub(super) dropped: u64,
    /// What cancelled or rescheduled a message, and was said again.
    pub(super) said_again: u64,
    /// Whether the store was sent something and did not answer.
    pub(super) sent: bool,
    /// Not taken for a reason that may pass.
    pub(super) left: Vec<Record>,
    /// The last reason.
    pub(super) why: Option<Error>,
}

impl Offered {
    /// How many need no further try.
    pub(super) fn done(&self) -> u64 {
        self.stored + self.duplicate + self.dropped + self.said_again
    }

    fn left(&mut self, records: impl IntoIterator<Item = Record>, why: Error) {
        let sent = why.kind() == Kind::OutcomeUnknown;
        self.left.extend(records.into_iter().map(|record| if sent { as_sent(record) } else { record }));
        self.sent |= sent;
        self.why = Some(why);
    }
}

/// A push that the store was sent, and did not answer; another record as it is.
pub(super) fn as_sent(record: Record) -> Record {
    match record {
        Record::Push { topic, incarnation, message, conflict, .. } => {
            Record::Push { topic, incarnation, message, sent: true, conflict }
        }
        record => record,
    }
}

/// A push that a log kept.
pub(super) struct Kept {
    pub(super) message: Message,
    sent: bool,
    conflict: Conflict,
}

/// Messages on their way to one incarnation of a topic, in the order in which they were kept.
pub(super) type Batches = BTreeMap<(TopicName, u64), Vec<Kept>>;

impl<S: Store> Failover<S> {
    /// Offers a page of records. Each is answered for itself: one that the store does not take holds up no other.
    pub(super) async fn offer(&self, page: Vec<Record>) -> Offered {
        let (mut offered, mut batches, mut changes) = (Offered::default(), Batches::new(), Vec::new());
        for record in page {
            match record {
                Record::Create(wanted) => match self.limited(self.store.create(&wanted)).await {
                    Ok(descriptor) => {
                        self.known.learn(&descriptor);
                        offered.stored += 1;
                    }
                    Err(error) => offered.left([Record::Create(wanted)], error),
                },
                Record::Push { topic, incarnation, message, sent, conflict } => {
                    batches.entry((topic, incarnation)).or_default().push(Kept { message, sent, conflict });
                }
                change @ (Record::Cancel { .. } | Record::Reschedule { .. }) => {
                    offered.dropped += apply(&change, &mut batches);
                    changes.push(change);
                }
            }
        }
        for ((topic, incarnation), messages) in batches {
            if offered.left.iter().any(|record| *record.topic() == topic) {
                // Nothing overtakes what was left of its topic.
                let record = |Kept { message, sent, conflict }| Record::Push {
                    topic: topic.clone(),
                    incarnation,
                    message,
                    sent,
                    conflict,
                };
                offered.left.extend(messages.into_iter().map(record));
                continue;
            }
            self.offer_topic(&mut offered, &topic, incarnation, messages).await;
        }
        for change in changes {
            match self.say_again(&change).await {
                Ok(()) => offered.said_again += 1,
                Err(error) => offered.left([change], error),
            }
        }
        offered
    }

    async fn offer_topic(&self, offered: &mut Offered, topic: &TopicName, incarnation: u64, messages: Vec<Kept>) {
        let record = |Kept { message, sent, conflict }| Record::Push {
            topic: topic.clone(),
            incarnation,
            message,
            sent,
            conflict,
        };
        let descriptor = match self.destination(topic, incarnation).await {
            Ok(Some(descriptor)) => descriptor,
            Ok(None) => {
                if self.unsaid.dropped.is_due(Clock::System.instant()) {
                    tracing::warn!(%topic, messages = messages.len(), "messages of a deleted topic dropped");
                }
                offered.dropped += messages.len() as u64;
                return;
            }
            Err(error) => return offered.left(messages.into_iter().map(record), error),
        };
        let mut partitions: BTreeMap<Partition, Vec<Kept>> = BTreeMap::new();
        for kept in messages {
            partitions.entry(descriptor.partition_of(kept.message.routing_key())).or_default().push(kept);
        }
        // Side by side: a partition that does not answer holds up no other.
        let offers = partitions.into_iter().map(|(partition, kept)| {
            let descriptor = descriptor.clone();
            async move { self.offer_runs(descriptor, incarnation, partition, kept).await }
        });
        for (puts, unanswered) in join_all(offers).await {
            let stored = puts.iter().filter(|put| is_new(**put)).count() as u64;
            offered.stored += stored;
            offered.duplicate += puts.len() as u64 - stored;
            for (kept, error) in unanswered {
                offered.left(kept.into_iter().map(record), error);
            }
        }
    }

    /// Messages of one policy after the other, so that those of one id meet in their order. Answers what was not taken.
    async fn offer_runs(
        &self,
        descriptor: Descriptor,
        incarnation: u64,
        partition: Partition,
        kept: Vec<Kept>,
    ) -> (Vec<Put>, Vec<(Vec<Kept>, Error)>) {
        let (mut puts, mut unanswered) = (Vec::with_capacity(kept.len()), Vec::new());
        for run in runs(kept) {
            let conflict = run.first().map_or(Conflict::Keep, |kept| kept.conflict);
            let (messages, marks): (Vec<Message>, Vec<bool>) =
                run.into_iter().map(|kept| (kept.message, kept.sent)).unzip();
            match self.offer_partition(descriptor.clone(), incarnation, partition, conflict, &messages).await {
                Ok(taken) => puts.extend(taken),
                Err(error) => {
                    let kept = messages.into_iter().zip(marks);
                    let kept = kept.map(|(message, sent)| Kept { message, sent, conflict }).collect();
                    unanswered.push((kept, error));
                }
            }
        }
        (puts, unanswered)
    }

    /// One call; under a descriptor that turned out to be old it is made again under the new one.
    async fn offer_partition(
        &self,
        mut descriptor: Descriptor,
        incarnation: u64,
        partition: Partition,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        let mut outcome = Err(Error::unavailable("the topic is being changed or deleted"));
        for _ in 0..RELOADS_MAX {
            outcome = self.limited(self.give(&descriptor, partition, PushKind::Replay, conflict, messages)).await;
            if !matches!(&outcome, Err(error) if error.kind() == Kind::Stale) {
                break;
            }
            match self.destination(&descriptor.topic, incarnation).await? {
                Some(found) if found.settings.partitions == descriptor.settings.partitions => descriptor = found,
                _ => break,
            }
        }
        outcome
    }

    /// Where messages of an incarnation of a topic go; `None` when it was deleted. A topic that the store has lost is
    /// made again, as it was when it was last seen.
    pub(super) async fn destination(&self, topic: &TopicName, incarnation: u64) -> Result<Option<Descriptor>> {
        let same = |descriptor: &Descriptor| incarnation == 0 || descriptor.incarnation == incarnation;
        if let Some(found) = self.limited(self.store.topic(topic)).await? {
            return Ok(Some(found).filter(same));
        }
        let unseen = Descriptor { incarnation, ..Descriptor::new(topic.clone(), Settings::default()) };
        let wanted = self.known.last(topic).filter(same).unwrap_or(unseen);
        match self.limited(self.store.create(&wanted)).await {
            Ok(made) => Ok(Some(made).filter(same)),
            Err(error) if error.kind() == Kind::NotFound => {
                self.known.forget(topic);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Cuts messages where their policy changes.
fn runs(kept: Vec<Kept>) -> Vec<Vec<Kept>> {
    let mut runs: Vec<Vec<Kept>> = Vec::new();
    for kept in kept {
        match runs.last_mut() {
            Some(run) if run.first().is_some_and(|first| first.conflict == kept.conflict) => run.push(kept),
            _ => runs.push(vec![kept]),
        }
    }
    runs
}

/// Whether the store changed something. What it refused to replace, because a consumer has it, it has.
fn is_new(put: Put) -> bool {
    match put {
        Put::Pushed(pushed) => pushed != Pushed::Duplicate,
        Put::InFlight | Put::Dead | Put::Expires => false,
    }
}

/// Whether nothing was taken because the store is away.
pub(super) fn outage(offered: &Offered) -> Option<&Error> {
    offered.why.as_ref().filter(|error| offered.done() == 0 && is_outage(error))
}
