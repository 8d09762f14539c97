//! Why a receipt is not settled, below HTTP: the reason is told only when it is known to be true.

use std::time::Duration;

use dwell::broker::{Broker, GroupRequest, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Receipt, StaleReason, UnknownReason, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::limits::RECENT_DECISIONS_MAX;
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::platform::signing_key::SigningKey;

use crate::support::{Running, World, stories};

stories! {
    a_receipt_of_another_topic_or_group_is_unknown, every_settle_verb_returns_the_same_reason,
    receipt_of_a_newer_epoch_belongs_to_another_broker, evicted_outcome_is_reported_as_ended_without_details,
}

const LONG: Duration = Duration::from_secs(86_400);
const NOT_ISSUED: Verdict = Verdict::Unknown(UnknownReason::NotIssued);

/// A group of a topic.
type Place = (TopicName, GroupName);

struct Shop {
    broker: Broker,
    _running: Running,
}

fn place(topic: &str, group: &str) -> Result<Place> {
    Ok((TopicName::new(topic)?, GroupName::new(group)?))
}

impl Shop {
    fn open(world: &World) -> Result<Shop> {
        let partitions = std::num::NonZeroU16::MIN;
        let topic_defaults =
            Settings { partitions, visibility_timeout: Duration::from_secs(30), ..Settings::default() };
        let running = Running::start(world, Options { topic_defaults, lease_ttl: LONG, ..Options::default() })?;
        Ok(Shop { broker: running.broker.clone(), _running: running })
    }

    async fn push(&self, topic: &str) -> Result<()> {
        self.broker.push(&TopicName::new(topic)?, NewMessage::new("x")).await.map(drop)
    }

    async fn take(&self, (topic, group): &Place) -> Result<Delivery> {
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
        let mut taken = self.broker.reserve(topic, group, request).await?;
        taken.pop().ok_or_else(|| Error::bug("no delivery"))
    }

    async fn settle(&self, (topic, group): &Place, receipt: &str, decision: Decision) -> Result<Verdict> {
        Ok(self.broker.settle(topic, group, vec![(receipt.to_owned(), decision)]).await?[0])
    }

    async fn extend(&self, (topic, group): &Place, receipt: &str) -> Result<Verdict> {
        Ok(self.broker.extend(topic, group, &[receipt.to_owned()], Duration::from_secs(60)).await?[0])
    }
}

async fn a_receipt_of_another_topic_or_group_is_unknown(world: World) -> Result<()> {
    let shop = Shop::open(&world)?;
    let (orders, audit, mails) = (place("orders", "default")?, place("orders", "audit")?, place("mails", "default")?);
    shop.push("orders").await?;
    shop.push("mails").await?;
    shop.broker.create_group(&audit.0, &audit.1, GroupRequest::default()).await?;
    let (order, mail) = (shop.take(&orders).await?, shop.take(&mails).await?);
    // Before and after this process consumes for the other group.
    assert_eq!(shop.settle(&audit, &order.receipt, Decision::Ack).await?, NOT_ISSUED);
    shop.push("orders").await?;
    shop.take(&audit).await?;
    for other in [&audit, &mails] {
        assert_eq!(shop.settle(other, &order.receipt, Decision::Ack).await?, NOT_ISSUED);
        assert_eq!(shop.extend(other, &order.receipt).await?, NOT_ISSUED);
    }
    assert_eq!(shop.settle(&orders, &mail.receipt, Decision::Ack).await?, NOT_ISSUED);
    assert_eq!(shop.settle(&orders, &order.receipt, Decision::Ack).await?, Verdict::Acked);
    Ok(())
}

async fn every_settle_verb_returns_the_same_reason(world: World) -> Result<()> {
    let (shop, orders) = (Shop::open(&world)?, place("orders", "default")?);
    let nack = || Decision::Nack { delay: Some(LONG), reason: None };
    for _ in 0..2 {
        shop.push("orders").await?;
    }
    let (late, acked) = (shop.take(&orders).await?.receipt, shop.take(&orders).await?.receipt);
    assert_eq!(shop.settle(&orders, &acked, Decision::Ack).await?, Verdict::Acked);
    let already = Verdict::Stale(StaleReason::AlreadySettled);
    assert_eq!(shop.settle(&orders, &acked, nack()).await?, already);
    assert_eq!(shop.extend(&orders, &acked).await?, already);
    world.pass(30_000);
    let nacked = async || Ok(shop.broker.stats(&orders.0).await?.iter().any(|(_, stats)| stats.scheduled == 1));
    world.until("the deadline has passed", nacked).await?;
    let passed = Verdict::Stale(StaleReason::DeadlinePassed);
    for decision in [Decision::Ack, nack(), Decision::Bury { reason: None }] {
        assert_eq!(shop.settle(&orders, &late, decision).await?, passed);
    }
    assert_eq!(shop.extend(&orders, &late).await?, passed);
    Ok(())
}

/// A broker that stood still still believes in its lease: it must not call the deliveries of the next owner lost.
async fn receipt_of_a_newer_epoch_belongs_to_another_broker(world: World) -> Result<()> {
    let (shop, (topic, group)) = (Shop::open(&world)?, place("orders", "default")?);
    shop.push("orders").await?;
    let taken = shop.take(&(topic.clone(), group.clone())).await?;
    let partition = shop.broker.topic(&topic).await?.group_partition(taken.partition, &group);
    let owner = world.steal(&partition, shop.broker.member()).await?;
    let key = world.store.backend.receipt_key(&SigningKey::fresh()?).await?;
    let older = Receipt::read(&taken.receipt, std::slice::from_ref(&key)).map_err(|_| Error::bug("no receipt"))?;
    let newer = Receipt { epoch: owner.epoch().clone(), ..older };
    let texts = [taken.receipt.as_str(), &newer.signed(&key)];
    let elsewhere = shop.broker.elsewhere(&topic, &group, &texts, false).await?;
    assert_eq!(elsewhere, [(1, newer)]);
    Ok(())
}

async fn evicted_outcome_is_reported_as_ended_without_details(world: World) -> Result<()> {
    let (shop, (topic, group)) = (Shop::open(&world)?, place("orders", "default")?);
    let count = RECENT_DECISIONS_MAX + 1;
    for _ in 0..2 {
        let messages = (0..count.div_ceil(2)).map(|_| NewMessage::new("x")).collect();
        shop.broker.push_batch(&topic, messages).await?;
    }
    let mut receipts = Vec::new();
    while receipts.len() < count {
        let request = ReserveRequest { max: 1_000, wait: Duration::from_secs(60), visibility_timeout: None };
        receipts.extend(shop.broker.reserve(&topic, &group, request).await?.into_iter().map(|taken| taken.receipt));
    }
    for receipt in &receipts[..count] {
        assert_eq!(shop.settle(&(topic.clone(), group.clone()), receipt, Decision::Ack).await?, Verdict::Acked);
    }
    let again = shop.settle(&(topic.clone(), group.clone()), &receipts[0], Decision::Ack).await?;
    assert_eq!(again, Verdict::Stale(StaleReason::DeliveryEnded));
    Ok(())
}
