//! Moving all messages of a topic into another one, such as one with another number of partitions.

use std::num::NonZeroU16;
use std::sync::Arc;

use super::Broker;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::MOVE_REQUEST_MAX;
use crate::model::message::TopicName;
use crate::model::topic::{Descriptor, Settings};

/// How far a move came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicMoved {
    /// Messages that were moved by this call, scheduled or ready, counted in each group.
    pub waiting: u64,
    /// Dead messages that were moved by this call.
    pub dead: u64,
    /// Of all these, those whose id the other topic had already: they are dropped as duplicates.
    pub there_already: u64,
    /// What consumers still have in flight. It is moved when it comes back, or is gone when it is acked.
    pub in_flight: u64,
    /// Whether nothing is left.
    pub done: bool,
}

impl Broker {
    /// Moves what a topic holds into another one, for a few seconds; repeat it until it is done. Each group moves into the
    /// group of its name, with due times, attempts and histories; dead messages stay dead. The other topic is made if it is
    /// not there, like the first, with so many partitions. Dropping the future ends it; beginning again goes on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for the same topic; `Conflict` when the other topic has not all groups, or another number of
    /// partitions, or a group is being copied, or one of the two has an ordering; `Full`.
    pub async fn move_topic(
        &self,
        topic: &TopicName,
        to: &TopicName,
        partitions: Option<NonZeroU16>,
    ) -> Result<TopicMoved> {
        if topic == to {
            return Err(Error::invalid("to", "is the topic itself"));
        }
        let from = self.topics.load(topic).await?;
        let to = self.receiving(&from, to, partitions).await?;
        let began = self.clock().instant();
        let mut all = TopicMoved::default();
        for partition in from.partitions() {
            for group in &from.groups {
                let pair = from.pair(partition, group);
                loop {
                    if self.clock().instant().since(began) >= MOVE_REQUEST_MAX || self.is_stopping() {
                        return Ok(all);
                    }
                    let page = self.store.maintenance.move_page(&from, &pair, &to).await?;
                    all.waiting += page.waiting;
                    all.dead += page.dead;
                    all.there_already += page.there_already;
                    if !page.more {
                        break;
                    }
                }
            }
        }
        let pairs: Vec<_> = from
            .partitions()
            .flat_map(|p| from.groups.iter().map(move |g| (p, g)))
            .map(|(p, g)| from.pair(p, g))
            .collect();
        let stats = self.store.reads.stats(&pairs).await?;
        all.in_flight = stats.iter().map(|stats| stats.in_flight).sum();
        all.done = stats.iter().all(|s| s.scheduled + s.ready + s.in_flight + s.dead == 0);
        Ok(all)
    }

    /// The topic that messages are moved to, made if it is not there.
    async fn receiving(
        &self,
        from: &Arc<Descriptor>,
        to: &TopicName,
        partitions: Option<NonZeroU16>,
    ) -> Result<Arc<Descriptor>> {
        let conflict = |why: String| Err(Error::new(Kind::Conflict, why));
        if let Some(copy) = from.groups.iter().find(|group| from.subscription(group).copy_of.is_some()) {
            return conflict(format!(
                "group {copy} of topic {} is being copied; try again when it is done",
                from.topic
            ));
        }
        if from.is_ordered() {
            return conflict(format!(
                "topic {} has an ordering, and a key that is on its way would be in two places; let it be consumed instead",
                from.topic
            ));
        }
        let partitions_wanted = partitions.unwrap_or(from.settings.partitions);
        let settings = Settings { partitions: partitions_wanted, ..from.settings.clone() };
        let wanted = Descriptor { groups: from.groups.clone(), ..Descriptor::new(to.clone(), settings) };
        let there = self.store.topics.create(&wanted).await?;
        let is = there.settings.partitions;
        if partitions.is_some_and(|partitions| partitions != is) {
            return conflict(format!("topic {to} has {is} partitions, not {partitions_wanted}"));
        }
        if there.is_ordered() {
            return conflict(format!("topic {to} has an ordering, in which what is moved has no place"));
        }
        if let Some(missing) = from.groups.iter().find(|group| !there.groups.contains(group)) {
            return conflict(format!("topic {to} has no group {missing}; make it first"));
        }
        self.topics.forget(to);
        Ok(Arc::new(there))
    }
}
