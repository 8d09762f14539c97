//! The bound of a debounce across an outage, and after Redis lost what it had.

use std::time::Duration;

use dwell::broker::PushOutcome;
use dwell::model::error::Result;
use dwell::model::message::{Conflict, GroupName, MessageId, NewMessage, TopicName};
use dwell::store::Pushed;

use super::Dwell;
use super::journal::journaled;

const HOUR: Duration = Duration::from_secs(3_600);

async fn push(dwell: &Dwell, delay: Duration, max: Duration) -> Result<PushOutcome> {
    let message = NewMessage::new("x").id(MessageId::new("a")?).after(delay).on_conflict(Conflict::Debounce);
    dwell.broker().push(&TopicName::new("orders")?, message.debounce_max(max)).await
}

#[tokio::test]
async fn bound_of_a_debounce_counts_from_the_first_push_after_an_outage_and_a_restore() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    let first = push(&dwell, HOUR, HOUR * 2).await?;
    let begun = first.due_at.minus(HOUR);
    assert_eq!(first.pushed, Pushed::Journaled);
    outage.redis.kill()?;
    assert_eq!(push(&dwell, HOUR * 3, HOUR * 2).await?.pushed, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let there = dwell.broker().peek(&topic, &group, &MessageId::new("a")?, None).await?.1.message;
    assert_eq!((there.envelope.pushed_at, there.due_at), (begun, begun.plus(HOUR * 2)));
    let again = push(&dwell, HOUR * 3, HOUR * 2).await?;
    assert_eq!((again.pushed, again.due_at), (Pushed::Duplicate, begun.plus(HOUR * 2)));
    let wider = push(&dwell, HOUR * 5, HOUR * 4).await?;
    assert_eq!((wider.pushed, wider.due_at), (Pushed::Debounced, begun.plus(HOUR * 4)));
    dwell.close().await
}
