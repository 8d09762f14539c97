//! A broker on a test clock, and a consumer.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::app::embed::{Dwell, TestTime};
use dwell::broker::{Broker, Moved, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use tempfile::TempDir;

use crate::support::scratch;

pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

pub(super) struct Shop {
    pub(super) dwell: Dwell,
    pub(super) time: TestTime,
    pub(super) dir: TempDir,
}

pub(super) fn orders() -> Result<TopicName> {
    TopicName::new("orders")
}

pub(super) fn message(id: &str, delay: Duration) -> Result<NewMessage> {
    Ok(NewMessage::new(id.to_owned()).id(MessageId::new(id)?).after(delay))
}

pub(super) fn due_of(moved: &Moved) -> u64 {
    moved.due.iter().map(|due| due.messages).sum()
}

impl Shop {
    /// With a topic of one partition, so that its messages have one order.
    pub(super) async fn open(change: impl FnOnce(&mut Settings)) -> Result<Shop> {
        let dir = scratch()?;
        let (dwell, time) = Dwell::open_on_test_clock(dir.path().join("store"), Options::default()).await?;
        let mut settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        change(&mut settings);
        dwell.broker().declare(orders()?, settings).await?;
        Ok(Shop { dwell, time, dir })
    }

    pub(super) fn broker(&self) -> &Broker {
        self.dwell.broker()
    }

    pub(super) async fn push(&self, id: &str, delay: Duration) -> Result<()> {
        self.broker().push(&orders()?, message(id, delay)?).await.map(drop)
    }

    /// Some of what is due now, as soon as there is any: a busy machine may need a while for the first partition.
    pub(super) async fn take(&self) -> Result<Vec<Delivery>> {
        self.wait(Duration::from_secs(20)).await
    }

    pub(super) async fn wait(&self, wait: Duration) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max: 100, wait, visibility_timeout: None };
        self.broker().reserve(&orders()?, &GroupName::standard(), request).await
    }

    /// The only message that is due, and its attempt.
    pub(super) async fn one(&self) -> Result<(String, u32, Delivery)> {
        let mut all = self.take().await?;
        assert_eq!(all.len(), 1, "{all:?}");
        let delivery = all.remove(0);
        Ok((delivery.message.id.to_string(), delivery.attempt, delivery))
    }

    pub(super) async fn decide(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let decisions = vec![(delivery.receipt.to_string(), decision)];
        let verdicts = self.broker().settle(&orders()?, &GroupName::standard(), decisions).await?;
        Ok(verdicts[0])
    }

    pub(super) async fn is_empty(&self) -> Result<bool> {
        Ok(self.wait(Duration::ZERO).await?.is_empty())
    }
}
