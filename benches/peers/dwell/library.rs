//! dwell inside this process.

use std::sync::Arc;
use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::app::embed::Dwell;
use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::time::Timestamp;

use crate::measures::{self, Peer, Result, Taken, Taker, Tally};

/// How long a consumer waits before it asks again.
const WAIT: Duration = Duration::from_millis(500);

pub(crate) struct Library {
    dwell: Dwell,
    topic: TopicName,
    group: GroupName,
}

impl Library {
    pub(crate) async fn open() -> Result<Library> {
        let dir = std::path::PathBuf::from(std::env::var("DATA")?).join("dwell");
        let url = format!("redis://127.0.0.1:{}", std::env::var("REDIS_PORT")?);
        let store = StoreOptions::Redis { redis: RedisOptions::new(url), outage: OutageOptions::new(dir) };
        let dwell = Dwell::open(store, Options::default()).await?;
        let topic = TopicName::new("bench")?;
        dwell.broker().declare(topic.clone(), dwell.broker().topic_defaults().clone()).await?;
        Ok(Library { dwell, topic, group: GroupName::new("default")? })
    }
}

impl Peer for Library {
    const BATCH: usize = 500;
    const CALLERS: usize = 4;

    async fn push(&self, _: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let one = |(due, payload)| NewMessage::new(payload).at(Timestamp::from_ms(due));
        let messages = messages.into_iter().map(one).collect();
        for outcome in self.dwell.broker().push_batch(&self.topic, messages).await? {
            outcome?;
        }
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        measures::take_and_ack(self, count).await
    }
}

impl Taker for Library {
    async fn take(&self, _: usize) -> Result<Vec<Taken>> {
        let request = ReserveRequest { max: self.batch(), wait: WAIT, visibility_timeout: None };
        let deliveries = self.dwell.broker().reserve(&self.topic, &self.group, request).await?;
        let one = |delivery: Delivery| Taken {
            receipt: delivery.receipt,
            payload: String::from_utf8_lossy(&delivery.message.envelope.payload).into_owned(),
        };
        Ok(deliveries.into_iter().map(one).collect())
    }

    async fn ack(&self, _: usize, taken: Vec<Taken>) -> Result<usize> {
        let decisions = taken.into_iter().map(|taken| (taken.receipt, Decision::Ack)).collect();
        let verdicts = self.dwell.broker().settle(&self.topic, &self.group, decisions).await?;
        Ok(verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Acked)).count())
    }
}
