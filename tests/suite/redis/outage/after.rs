//! A message that follows another one, while Redis is away and after it has lost something.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::ReserveRequest;
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::Result;
use dwell::model::message::{Conflict, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::store::Pushed;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, eventually};

fn topic() -> Result<TopicName> {
    TopicName::new("orders")
}

impl Dwell {
    async fn push_saying(&self, payload: &'static str, conflict: Conflict) -> Result<Pushed> {
        let message = NewMessage::new(payload).id(MessageId::new("a")?).on_conflict(conflict);
        Ok(self.broker().push(&topic()?, message).await?.pushed)
    }

    /// The one message that is due, with its receipt.
    async fn take_saying(&self, payload: &str) -> Result<String> {
        let request = ReserveRequest { max: 9, wait: Duration::from_secs(20), visibility_timeout: None };
        let mut deliveries = self.broker().reserve(&topic()?, &GroupName::standard(), request).await?;
        let payloads: Vec<_> = deliveries.iter().map(|delivery| &*delivery.message.envelope.payload).collect();
        assert_eq!(payloads, [payload.as_bytes()]);
        Ok(deliveries.remove(0).receipt.to_string())
    }

    async fn ack_taken(&self, receipt: String) -> Result<()> {
        let decided = self.broker().settle(&topic()?, &GroupName::standard(), vec![(receipt, Decision::Ack)]).await?;
        assert_eq!(decided, [Verdict::Acked]);
        Ok(())
    }

    /// Nothing else is there.
    async fn has_no_more(&self) -> Result<()> {
        let request = ReserveRequest { max: 9, wait: Duration::from_millis(300), visibility_timeout: None };
        assert_eq!(self.broker().reserve(&topic()?, &GroupName::standard(), request).await?.len(), 0);
        Ok(())
    }

    async fn begins(&self) -> Result<()> {
        let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        self.broker().declare(topic()?, settings).await?;
        Ok(())
    }
}

#[tokio::test]
async fn buffered_push_follows_the_message_that_a_consumer_has() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.begins().await?;
    assert_eq!(dwell.push_saying("first", Conflict::After).await?, Pushed::Stored);
    let receipt = dwell.take_saying("first").await?;
    outage.proxy.set(Mode::Refuse);
    for payload in ["second", "third"] {
        assert_eq!(dwell.push_saying(payload, Conflict::After).await?, Pushed::Buffered);
    }
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    dwell.ack_taken(receipt).await?;
    let receipt = dwell.take_saying("third").await?;
    dwell.ack_taken(receipt).await?;
    dwell.has_no_more().await?;
    dwell.close().await
}

/// The journal has both, and brings both back, in their order.
#[tokio::test]
async fn emptied_redis_gets_a_message_and_its_successor_back() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.begins().await?;
    assert_eq!(dwell.push_saying("first", Conflict::Keep).await?, Pushed::Journaled);
    dwell.take_saying("first").await?;
    assert_eq!(dwell.push_saying("second", Conflict::After).await?, Pushed::Journaled);
    assert_eq!(dwell.push_saying("third", Conflict::After).await?, Pushed::Replaced);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 1.0).then_some(()))
    })
    .await?;
    for payload in ["first", "third"] {
        let receipt = dwell.take_saying(payload).await?;
        dwell.ack_taken(receipt).await?;
    }
    dwell.has_no_more().await?;
    dwell.close().await
}

/// The first one was acked, which the journal knows: what followed it comes back alone.
#[tokio::test]
async fn rewound_redis_gets_only_the_successor_back() -> Result<()> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.begins().await?;
    assert_eq!(dwell.push_saying("first", Conflict::Keep).await?, Pushed::Journaled);
    let snapshot = outage.redis.snapshot().await?;
    let receipt = dwell.take_saying("first").await?;
    assert_eq!(dwell.push_saying("second", Conflict::After).await?, Pushed::Journaled);
    dwell.ack_taken(receipt).await?;
    dwell.close().await?;
    outage.redis.rewind(&snapshot).await?;
    let dwell = outage.dwell().await?;
    let receipt = dwell.take_saying("second").await?;
    dwell.ack_taken(receipt).await?;
    dwell.has_no_more().await?;
    dwell.close().await
}
