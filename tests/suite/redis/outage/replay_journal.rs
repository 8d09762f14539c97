//! What became of the records of a WAL is kept in the journal: all of a call or nothing, and nothing that was read after a loss.

use dwell::model::error::Result;
use dwell::model::message::{Key, MessageId, NewMessage, TopicName};
use dwell::store::Pushed;

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, RedisServer, Strike, eventually};

/// Messages of one call: more than a page of the WAL has.
const CALL: usize = 1_000;

impl Dwell {
    /// Pushes messages that are due to one partition, in one call.
    async fn push_together(&self, ids: &[String]) -> Result<Vec<Pushed>> {
        let message = |id: &String| Ok(NewMessage::new("x").id(MessageId::new(id)?).key(Key::new("one")?));
        let messages = ids.iter().map(message).collect::<Result<_>>()?;
        let outcomes = self.broker().push_batch(&TopicName::new("orders")?, messages).await?;
        outcomes.into_iter().map(|outcome| Ok(outcome?.pushed)).collect()
    }
}

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:04}")).collect()
}

/// A broker that has restored what a Redis perhaps lost.
async fn begin() -> Result<(Outage, Dwell)> {
    let outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push_together(&ids("warm", 1)).await?;
    eventually("everything is restored", async || Ok((dwell.metric("dwell_restoring")? == 0.0).then_some(()))).await?;
    Ok((outage, dwell))
}

/// The fence finds that Redis has the first message. The next call breaks, and behind the new connection is a Redis that
/// lost everything: that the message is not there does not say that it is over.
#[tokio::test]
async fn message_missing_in_another_redis_is_not_taken_for_settled() -> Result<()> {
    let (outage, dwell) = begin().await?;
    let emptied = RedisServer::start().await?;
    outage.proxy.next_with(Strike::Outage, "sent");
    for id in ["sent", "later"] {
        assert_eq!(dwell.push_together(&[id.to_owned()]).await?, [Pushed::Buffered]);
    }
    // The next process offers both in one page.
    dwell.close().await?;
    let dwell = outage.dwell().await?;
    outage.proxy.next_leads_to(&emptied, "later");
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    assert!(dwell.metric("dwell_redis_losses_total")? >= 1.0);
    dwell.delivers("orders", &["later", "sent", "warm0000"]).await?;
    dwell.close().await
}

/// What travels with a payload counts for none of the limits of a call, and is many times as large here.
#[tokio::test]
async fn call_with_large_metadata_is_restored_whole() -> Result<()> {
    let (mut outage, dwell) = begin().await?;
    let ids = ids("m", CALL);
    let meta = vec![("note".to_owned(), "x".repeat(8_000))];
    let message = |id: &String| {
        let message = NewMessage::new("x".repeat(3_000)).id(MessageId::new(id)?).key(Key::new("one")?);
        Ok(NewMessage { meta: meta.clone(), ..message })
    };
    let messages = ids.iter().map(message).collect::<Result<_>>()?;
    for outcome in dwell.broker().push_batch(&TopicName::new("orders")?, messages).await? {
        assert_eq!(outcome?.pushed, Pushed::Journaled);
    }
    outage.redis.kill()?;
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let all: Vec<&str> = ids.iter().map(String::as_str).chain(["warm0000"]).collect();
    dwell.delivers("orders", &all).await?;
    dwell.close().await
}

/// The answer to a large batch is lost, so that it is buffered. Redis remembers of a call only its number: if the journal
/// had the call in parts, the first part that is restored would say that all of it was kept.
#[tokio::test]
async fn call_spanning_wal_pages_is_restored_whole() -> Result<()> {
    let (mut outage, dwell) = begin().await?;
    let mut all = ids("m", CALL);
    outage.proxy.next_with(Strike::Outage, "m0999");
    assert!(dwell.push_together(&all).await?.iter().all(|pushed| *pushed == Pushed::Buffered));
    outage.proxy.set(Mode::Pass);
    // Others are pushed, and kept in the journal, between two pages.
    let mut others = ids("other", 2_000).into_iter();
    let mut rest = 0;
    while let Some(id) = others.next().filter(|_| rest < 5) {
        dwell.push_together(std::slice::from_ref(&id)).await?;
        rest += usize::from(dwell.metric("dwell_wal_records{log=\"wal\"}")? == 0.0);
        all.push(id);
    }
    dwell.recovered().await?;
    dwell.close().await?;
    outage.redis.kill()?;
    outage.redis.restart().await?;
    let dwell = outage.dwell().await?;
    dwell.recovered().await?;
    all.push("warm0000".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    dwell.delivers("orders", &all).await?;
    dwell.close().await
}
