//! A broker with a webhook, and short words for what becomes of its messages.

use std::time::Duration;

use dwell::api::webhook::{Subscription, Target, Webhook};
use dwell::broker::{Broker, Options};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::Settings;
use dwell::platform::clock::Clock;
use dwell::store::MessageState;

use crate::support::{Posts, Running, World};

/// Longer than any story.
const LONG: Duration = Duration::from_secs(86_400);

/// A broker with a webhook of the topic `orders`.
pub(super) struct Shop<'a> {
    pub(super) world: &'a World,
    pub(super) running: Running,
    pub(super) broker: Broker,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
}

impl<'a> Shop<'a> {
    /// A shop in which a failed message comes again after an hour.
    pub(super) async fn open(
        world: &'a World,
        url: &str,
        change: impl FnOnce(&mut Webhook, &mut Settings),
    ) -> Result<Shop<'a>> {
        let (shop, subscription) = Shop::before_opening(world, url, change)?;
        shop.broker.declare(shop.topic.clone(), shop.broker.topic_defaults().clone()).await?;
        shop.running.beside(|stop| subscription.run(stop));
        Ok(shop)
    }

    /// A shop without a topic, and a webhook that does not run yet.
    pub(super) fn before_opening(
        world: &'a World,
        url: &str,
        change: impl FnOnce(&mut Webhook, &mut Settings),
    ) -> Result<(Shop<'a>, Subscription)> {
        let mut settings =
            Settings { backoff: Backoff::Ladder { steps: vec![LadderStep(LONG / 24)] }, ..Settings::default() };
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let mut webhook = Webhook {
            topic: topic.clone(),
            group: group.clone(),
            target: Target::parse(url, false).map_err(Error::bug)?,
            concurrency: 8,
            timeout: Duration::from_secs(10),
            secret: None,
            ca_file: None,
            enabled: true,
        };
        change(&mut webhook, &mut settings);
        let options = Options { topic_defaults: settings, lease_ttl: LONG, ..Options::default() };
        let running = Running::start(world, options)?;
        let broker = running.broker.clone();
        let subscription = Subscription::new(broker.clone(), webhook, Clock::Manual(world.time.clone()))?;
        Ok((Shop { world, running, broker, topic, group }, subscription))
    }

    /// The same with one message that has one attempt.
    pub(super) async fn with_one(world: &'a World, url: &str) -> Result<Shop<'a>> {
        let shop = Shop::open(world, url, |_, settings| settings.max_attempts = 1).await?;
        shop.push(&["a"]).await?;
        Ok(shop)
    }

    pub(super) async fn push(&self, ids: &[&str]) -> Result<()> {
        for id in ids {
            let message = NewMessage { id: Some(MessageId::new(id)?), ..NewMessage::new("x") };
            self.broker.push(&self.topic, message).await?;
        }
        Ok(())
    }

    pub(super) async fn state(&self, id: &str) -> Result<Option<(MessageState, u32)>> {
        match self.broker.peek(&self.topic, &self.group, &MessageId::new(id)?, None).await {
            Ok((_, peeked)) => Ok(Some((peeked.state, peeked.attempts))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a message is in a state, or gone.
    pub(super) async fn becomes(&self, id: &str, state: Option<(MessageState, u32)>) -> Result<()> {
        self.world.until(&format!("{id} is {state:?}"), async || Ok(self.state(id).await? == state)).await
    }

    /// Waits until a message is dead, and says why it is.
    pub(super) async fn dead(&self) -> Result<String> {
        let dead = async || Ok(self.broker.dead(&self.topic, &self.group, None, 10).await?.dead);
        self.world.until("a message is dead", async || Ok(!dead().await?.is_empty())).await?;
        Ok(dead().await?[0].1.record.last_error.as_ref().map(ToString::to_string).unwrap_or_default())
    }

    /// That there is no POST while everything else happens.
    pub(super) async fn is_quiet(&self, posts: &Posts) {
        self.world.settled().await;
        assert!(posts.are_none());
    }
}
