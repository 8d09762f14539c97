//! Offering the store what a log kept: each record once more, under its id, with the due time it always had.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{Failover, is_outage};
use crate::error::{Error, Kind, Result};
use crate::message::{Message, TopicName};
use crate::partition::Partition;
use crate::store::{PushKind, Pushed, Store};
use crate::topic::{Descriptor, Settings};
use crate::wal::Record;

/// How often a topic is looked up again because it changed on the way.
const RELOADS_MAX: usize = 3;

/// What became of the records of a page.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Taken by the store.
    pub(super) stored: u64,
    /// In the store already.
    pub(super) duplicate: u64,
    /// Of topics that were deleted: nobody wants them any more.
    pub(super) dropped: u64,
    /// Not taken for a reason that may pass.
    pub(super) left: Vec<Record>,
    /// The last reason.
    pub(super) why: Option<Error>,
}

impl Offered {
    /// How many need no further try.
    pub(super) fn done(&self) -> u64 {
        self.stored + self.duplicate + self.dropped
    }

    fn left(&mut self, records: impl IntoIterator<Item = Record>, why: Error) {
        self.left.extend(records);
        self.why = Some(why);
    }
}

/// Messages on their way to one incarnation of a topic.
type Batches = BTreeMap<(TopicName, u64), Vec<Message>>;

impl<S: Store> Failover<S> {
    /// Offers a page of records. Each is answered for itself: one that the store does not take holds up no other.
    pub(super) async fn offer(&self, page: Vec<Record>) -> Offered {
        let (mut offered, mut batches) = (Offered::default(), Batches::new());
        for record in page {
            match record {
                Record::Create(wanted) => match self.limited(self.store.create(&wanted)).await {
                    Ok(descriptor) => {
                        self.known.learn(&descriptor);
                        offered.stored += 1;
                    }
                    Err(error) => offered.left([Record::Create(wanted)], error),
                },
                Record::Push { topic, incarnation, message } => {
                    batches.entry((topic, incarnation)).or_default().push(message);
                }
            }
        }
        for ((topic, incarnation), messages) in batches {
            if offered.left.iter().any(|record| *record.topic() == topic) {
                // Nothing overtakes what was left of its topic.
                let record = |message| Record::Push { topic: topic.clone(), incarnation, message };
                offered.left.extend(messages.into_iter().map(record));
                continue;
            }
            self.offer_topic(&mut offered, &topic, incarnation, messages).await;
        }
        offered
    }

    async fn offer_topic(&self, offered: &mut Offered, topic: &TopicName, incarnation: u64, messages: Vec<Message>) {
        let record = |message| Record::Push { topic: topic.clone(), incarnation, message };
        let descriptor = match self.destination(topic, incarnation).await {
            Ok(Some(descriptor)) => descriptor,
            Ok(None) => {
                tracing::warn!(%topic, messages = messages.len(), "dropped what was kept for a deleted topic");
                offered.dropped += messages.len() as u64;
                return;
            }
            Err(error) => return offered.left(messages.into_iter().map(record), error),
        };
        let mut partitions: BTreeMap<Partition, Vec<Message>> = BTreeMap::new();
        for message in messages {
            partitions.entry(descriptor.partition_of(message.routing_key())).or_default().push(message);
        }
        // Side by side: a partition that does not answer holds up no other.
        let offers = partitions.into_iter().map(|(partition, messages)| {
            let descriptor = descriptor.clone();
            async move { (self.offer_partition(descriptor, incarnation, partition, &messages).await, messages) }
        });
        for (pushed, messages) in join_all(offers).await {
            match pushed {
                Ok(pushed) => {
                    let duplicate = pushed.iter().filter(|pushed| **pushed == Pushed::Duplicate).count() as u64;
                    offered.duplicate += duplicate;
                    offered.stored += pushed.len() as u64 - duplicate;
                }
                Err(error) => offered.left(messages.into_iter().map(record), error),
            }
        }
    }

    /// One call; under a descriptor that turned out to be old it is made again under the new one.
    async fn offer_partition(
        &self,
        mut descriptor: Descriptor,
        incarnation: u64,
        partition: Partition,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        let mut outcome = Err(Error::unavailable("the topic is being changed or deleted"));
        for _ in 0..RELOADS_MAX {
            outcome = self.limited(self.store.push(&descriptor, partition, PushKind::Replay, messages)).await;
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
    async fn destination(&self, topic: &TopicName, incarnation: u64) -> Result<Option<Descriptor>> {
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

/// Whether nothing was taken because the store is away.
pub(super) fn outage(offered: &Offered) -> Option<&Error> {
    offered.why.as_ref().filter(|error| offered.done() == 0 && is_outage(error))
}
