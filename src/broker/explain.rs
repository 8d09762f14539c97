//! Why a message is not delivered yet.

use super::Broker;
use crate::delivery::{Hindrance, MessageLocation};
use crate::model::error::Result;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::show_span;
use crate::model::topic::{Descriptor, Rest};
use crate::store::{Peeked, State};

const BUFFERED: &str = "on this broker's disk, until the store takes it; it is due when it was pushed to be";

const UNKNOWN: &str = "never pushed with this id and key, or acked, cancelled, purged or expired since; \
                       or on the disk of another broker";

/// What keeps a message, in every group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Where it belongs.
    pub partition: Partition,
    /// Whether it is on the disk of this broker, on its way to the store.
    pub buffered: bool,
    /// For each group: a stable name of the reason, and a sentence for people.
    pub groups: Vec<(GroupName, Reason)>,
}

/// Why one group has not delivered it yet, or has not got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// `scheduled`, `retrying`, `paused`, `copying`, `no_consumer`, `rate_limited`, `at_max_in_flight`, `behind_others`, `ready`,
    /// `in_flight`, `decided`, `prefetched`, `behind_its_key`, `elsewhere`, `dead`, `buffered` or `unknown`.
    pub name: &'static str,
    /// The same in a sentence, without anything that a producer or a consumer said.
    pub detail: String,
    /// What the consumer said with the last nack of a dead message.
    pub error: Option<String>,
}

impl Reason {
    fn new(name: &'static str, detail: impl Into<String>) -> Reason {
        Reason { name, detail: detail.into(), error: None }
    }
}

impl Broker {
    /// Says why a message is not delivered yet; without a `key` it is looked for in all partitions.
    ///
    /// # Errors
    /// `NotFound` for a topic that does not exist, or a message that has another key; `Ambiguous`, `Full`.
    pub async fn explain(&self, topic: &TopicName, id: &MessageId, key: Option<&Key>) -> Result<Explanation> {
        let descriptor = self.topics.look(topic).await?;
        let partition = self.locate(&descriptor, id, key).await?.or_home(&descriptor, id);
        let read = self.reads.begin().await?;
        let buffered = !self.store.messages.buffered(topic, id).await?.is_empty();
        let mut groups = Vec::with_capacity(descriptor.groups.len());
        for group in &descriptor.groups {
            let pair = descriptor.pair(partition, group);
            let peeked = match read.call(self.store.reads.peek(&pair, id)).await {
                // The store is away; what is known is where the message is.
                Err(error) if buffered && error.is_outage() => None,
                peeked => peeked?,
            };
            let reason = match peeked {
                Some(peeked) => self.reason(&descriptor, group, partition, &peeked).await?,
                None if buffered => Reason::new("buffered", BUFFERED),
                None => Reason::new("unknown", UNKNOWN),
            };
            groups.push((group.clone(), reason));
        }
        Ok(Explanation { partition, buffered, groups })
    }

    async fn reason(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let next_at = peeked.next_at.unwrap_or_default();
        Ok(match &peeked.state {
            State::Dead { died_at, record } => {
                let (attempts, why) = (record.attempts, record.reason.name());
                let reason = Reason::new("dead", format!("died at {died_at} after {attempts} attempts, reason {why}"));
                Reason { error: record.last_error.clone(), ..reason }
            }
            State::Scheduled if peeked.attempts > 0 => {
                let failed = peeked.history.last().map_or(String::new(), |last| format!(", the last at {}", last.at));
                Reason::new(
                    "retrying",
                    format!("{} attempts failed{failed}; the next is at {next_at}", peeked.attempts),
                )
            }
            State::Scheduled => Reason::new("scheduled", format!("due at {next_at}")),
            State::Ready => self.ready(descriptor, group, partition, peeked).await?,
            State::InFlight => self.in_flight(descriptor, group, partition, peeked)?,
        })
    }

    /// It is due, and still in the store.
    async fn ready(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let now = self.store.backend.clock().now();
        Ok(match (descriptor.subscription(group).rest(now), &peeked.owner) {
            (Some(Rest::Copying), _) => Reason::new("copying", "the group gets a copy of another one first"),
            (Some(Rest::Paused(pause)), _) => {
                let until = pause.until.map_or("it is resumed".to_owned(), |until| until.to_string());
                Reason::new("paused", format!("the group is paused until {until}"))
            }
            (None, None) => {
                Reason::new("no_consumer", "due, and no broker owns its partition: nobody consumes this group")
            }
            (None, Some(owner)) => {
                let here = self.groups.find(descriptor, group)?.filter(|here| here.owns(partition));
                match here.map(|here| here.hindrance(partition)) {
                    Some(Some(hindrance)) => hindered(hindrance),
                    Some(None) => {
                        let stats = self.store.reads.stats(&[descriptor.pair(partition, group)]).await?;
                        let ready = stats.first().map_or(0, |stats| stats.ready);
                        Reason::new("behind_others", format!("due, and its partition has {ready} messages that are"))
                    }
                    None => {
                        let why = format!("due, and owned by {}: ask that broker what it waits for", owner.as_str());
                        Reason::new("ready", why)
                    }
                }
            }
        })
    }

    /// An owner has it in memory.
    fn in_flight(
        &self,
        descriptor: &Descriptor,
        group: &GroupName,
        partition: Partition,
        peeked: &Peeked,
    ) -> Result<Reason> {
        let id = &peeked.message.id;
        let here = self.groups.find(descriptor, group)?;
        let hindrance = here.as_ref().and_then(|dispatch| dispatch.hindrance(partition));
        Ok(match here.and_then(|dispatch| dispatch.whereabouts(partition, id)) {
            Some(MessageLocation::Out { attempt, deadline }) => {
                let clock = self.store.backend.clock();
                let until = clock.now().plus(deadline.since(clock.local().instant()));
                Reason::new("in_flight", format!("a consumer has it as attempt {attempt}, until {until}"))
            }
            Some(MessageLocation::Decided) => {
                Reason::new("decided", "its consumer has decided, and the store has not answered yet")
            }
            Some(MessageLocation::Held) => hindrance.map_or_else(
                || Reason::new("prefetched", "due, and ready for the next consumer who asks this broker"),
                hindered,
            ),
            Some(MessageLocation::InLine) => Reason::new(
                "behind_its_key",
                "an earlier message of its key is not settled yet, or its own next attempt is not due",
            ),
            None => {
                let owner = peeked
                    .owner
                    .as_ref()
                    .map_or("a broker that is gone; the next owner schedules it again", |owner| owner.as_str());
                Reason::new("elsewhere", format!("reserved by {owner}"))
            }
        })
    }
}

fn hindered(hindrance: Hindrance) -> Reason {
    match hindrance {
        Hindrance::NoConsumer { unasked } => {
            let since = show_span(unasked);
            Reason::new("no_consumer", format!("due, and no consumer has asked this broker for messages for {since}"))
        }
        Hindrance::AtMaxInFlight => Reason::new(
            "at_max_in_flight",
            "due, and consumers have as many deliveries as the group may have in flight",
        ),
        Hindrance::RateLimited => Reason::new("rate_limited", "due, and waits for its turn by the group's rate"),
    }
}
