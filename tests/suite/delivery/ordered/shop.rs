//! Short words for what a producer and a consumer of a topic with ordering do.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest, Selection};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Due, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::{GroupPartition, Ordering, Settings};
use dwell::store::{MessageState, Pushed};

use crate::support::{Running, World};

/// A lease must not lapse when time moves in leaps.
const LEASE_TTL: Duration = Duration::from_secs(86_400);

/// One partition, in which the messages of a key come one after the other, and a failed one is tried again after 5 s.
pub(super) fn by_key() -> Settings {
    let backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(5))] };
    Settings {
        partitions: NonZeroU16::MIN,
        ordering: Ordering::Key,
        visibility_timeout: Duration::from_secs(30),
        backoff,
        ..Settings::default()
    }
}

/// A broker, and the topic `orders`.
pub(super) struct Shop<'a> {
    pub(super) world: &'a World,
    pub(super) broker: Broker,
    pub(super) running: Running,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
}

impl<'a> Shop<'a> {
    pub(super) async fn open(world: &'a World, settings: Settings) -> Result<Shop<'a>> {
        let options = Options { topic_defaults: settings, lease_ttl: LEASE_TTL, ..Options::default() };
        let running = Running::start(world, options)?;
        let (broker, topic) = (running.broker.clone(), TopicName::new("orders")?);
        broker.declare(topic.clone(), broker.topic_defaults().clone()).await?;
        let shop = Shop { world, broker, running, topic, group: GroupName::standard() };
        world.as_time_passes(shop.reserve_for(1, Duration::ZERO)).await?;
        world.until("the partition is owned", async || Ok(shop.owner().await?.is_some())).await?;
        Ok(shop)
    }

    async fn owner(&self) -> Result<Option<dwell::store::MemberId>> {
        let stats = self.broker.stats(&self.topic).await?;
        Ok(stats.into_iter().next().and_then(|(_, stats)| stats.owner))
    }

    /// The only partition there is.
    pub(super) async fn group_partition(&self) -> Result<GroupPartition> {
        Ok(self.broker.topic(&self.topic).await?.group_partition(dwell::model::partition::Partition(0), &self.group))
    }

    /// A message whose id is its key, a dash and the rest; without a dash it has no key.
    pub(super) fn message(id: &str, delay_ms: u64) -> Result<NewMessage> {
        let mut message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?);
        message.key = id.split_once('-').map(|(key, _)| Key::new(key)).transpose()?;
        message.due = Due::In(Duration::from_millis(delay_ms));
        Ok(message)
    }

    pub(super) async fn push(&self, id: &str, delay_ms: u64) -> Result<Pushed> {
        Ok(self.broker.push(&self.topic, Self::message(id, delay_ms)?).await?.pushed)
    }

    /// Pushes messages one after the other, due now.
    pub(super) async fn push_all(&self, ids: &[&str]) -> Result<()> {
        for id in ids {
            self.push(id, 0).await?;
        }
        Ok(())
    }

    /// Pushes messages in one batch, so that the owner reserves them together.
    pub(super) async fn push_together(&self, ids: &[&str]) -> Result<()> {
        let messages = ids.iter().map(|id| Self::message(id, 0)).collect::<Result<_>>()?;
        self.broker.push_batch(&self.topic, messages).await.map(drop)
    }

    pub(super) async fn selected(&self, max: usize, selection: Selection, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        Ok(self.broker.reserve_selected(&self.topic, &self.group, request, selection).await?.deliveries)
    }

    pub(super) async fn reserve_for(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker.reserve(&self.topic, &self.group, request).await
    }

    /// The next ones, in the order of their ids: keys are in no order among each other.
    pub(super) async fn take(&self, count: usize) -> Result<Vec<Delivery>> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let more = self.reserve_for(count - taken.len(), Duration::from_secs(60)).await?;
            if more.is_empty() {
                return Err(Error::unavailable(format!("only {:?} of {count} came", ids(&taken))));
            }
            taken.extend(more);
        }
        taken.sort_by(|a, b| a.message.id.cmp(&b.message.id));
        Ok(taken)
    }

    /// The next one.
    pub(super) async fn one(&self) -> Result<Delivery> {
        self.take(1).await?.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    /// That nothing more comes now.
    pub(super) async fn nothing(&self) -> Result<()> {
        let request = self.reserve_for(10, Duration::ZERO);
        let taken = self.world.as_time_passes(request).await?;
        assert!(taken.is_empty(), "{:?}", ids(&taken));
        Ok(())
    }

    pub(super) async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker.settle(&self.topic, &self.group, decisions).await?[0])
    }

    pub(super) async fn ack(&self, delivery: &Delivery) -> Result<()> {
        assert_eq!(self.settle(delivery, Decision::Ack).await?, Verdict::Acked);
        Ok(())
    }

    pub(super) async fn nack(&self, delivery: &Delivery) -> Result<Verdict> {
        self.settle(delivery, Decision::Nack { delay: None, reason: Some("no".into()) }).await
    }

    /// Acks one after the other until so many came; answers them in the order they came.
    pub(super) async fn drain(&self, count: usize) -> Result<Vec<String>> {
        let mut came = Vec::new();
        while came.len() < count {
            for delivery in self.reserve_for(1_000, Duration::from_secs(60)).await? {
                self.ack(&delivery).await?;
                came.push(delivery.message.id.to_string());
            }
        }
        Ok(came)
    }

    pub(super) async fn state(&self, id: &str) -> Result<Option<(MessageState, u32)>> {
        let key = id.split_once('-').map(|(key, _)| Key::new(key)).transpose()?;
        match self.broker.peek(&self.topic, &self.group, &MessageId::new(id)?, key.as_ref()).await {
            Ok((_, peeked)) => Ok(Some((peeked.state, peeked.attempts))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The ids of deliveries.
pub(super) fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect()
}
