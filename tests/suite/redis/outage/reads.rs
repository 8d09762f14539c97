//! Reads that fail, which say nothing of the pushes of others.

use std::time::Duration;

use dwell::broker::ListedState;
use dwell::model::error::Result;
use dwell::model::message::{GroupName, MessageId, TopicName};
use dwell::store::{Pushed, Window};

use super::Outage;
use crate::support::Mode;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn failed_read_does_not_buffer_pushes() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["a"], HOUR).await?;
    let (topic, group, id) = (TopicName::new("orders")?, GroupName::standard(), MessageId::new("a")?);
    let broker = dwell.broker();
    outage.proxy.set(Mode::BlackHole);
    assert_eq!(broker.topic(&topic).await?.topic, topic, "as it was seen last");
    // All at once, since each of them waits.
    let failed: [bool; 10] = tokio::join!(
        async { broker.group(&topic, &group).await.is_err() },
        async { broker.stats(&topic).await.is_err() },
        async { broker.forecast(&topic, &group, HOUR, 2).await.is_err() },
        async { broker.count_window(&topic, &group, Window::ALL).await.is_err() },
        async { broker.peek(&topic, &group, &id, None).await.is_err() },
        async { broker.explain(&topic, &id, None).await.is_err() },
        async { broker.list(&topic, &group, ListedState::Waiting, Window::ALL, None, 1).await.is_err() },
        async { broker.dead(&topic, &group, None, 1).await.is_err() },
        async { broker.audit(&topic, &group, None, false).await.is_err() },
        async { broker.cron_jobs(&topic, None).await.is_err() },
    )
    .into();
    assert!(failed.into_iter().all(|failed| failed), "{failed:?}");
    outage.proxy.set(Mode::Pass);
    assert_eq!(dwell.push("orders", &["b"], HOUR).await?[0].pushed, Pushed::Stored);
    dwell.close().await
}

/// Whoever looks at a buffered message must not keep its producer from cancelling it.
#[tokio::test]
async fn message_explained_as_buffered_is_cancelled_in_the_wal() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["stored"], HOUR).await?;
    outage.redis.kill()?;
    let (topic, id) = (TopicName::new("orders")?, MessageId::new("b")?);
    // The first one meets the outage.
    for id in ["a", "b"] {
        assert_eq!(dwell.push("orders", &[id], HOUR).await?[0].pushed, Pushed::Buffered);
    }
    let why = dwell.broker().explain(&topic, &id, None).await?;
    assert_eq!((why.buffered, why.groups[0].1.name), (true, "buffered"));
    outage.redis.restart().await?;
    dwell.recovered().await?;
    dwell.close().await
}
