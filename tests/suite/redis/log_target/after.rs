//! Pushes that follow a message, out of a log: later content counts, a later due time does not.

use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::message::{Conflict, Envelope, Message, MessageId, Successor};
use dwell::store::Fate::Done;
use dwell::store::{Owner, Pushed, Refused, Retried, Settlement};

use super::{DUPLICATE, REPLACED, Story, set};
use crate::support::{acks, buries, new_call, retries, up_to};

const BEHIND: Result<Pushed, Refused> = Ok(Pushed::Behind);

impl Story {
    fn saying(&self, payload: &'static str) -> Result<Message> {
        let mut message = self.orders.message("a", 0)?;
        message.envelope.payload = payload.into();
        Ok(message)
    }

    async fn in_flight(&self) -> Result<Box<dyn Owner>> {
        self.orders.push_all(&[self.saying("first")?]).await?;
        let mut owner = self.orders.owner().await?;
        assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 1);
        self.world.pass(1);
        Ok(owner)
    }

    async fn nacked(&self) -> Result<()> {
        self.orders.push_all(&[self.saying("first")?]).await?;
        let mut owner = self.orders.owner().await?;
        let taken = owner.reserve(up_to(9)).await?;
        self.world.pass(1);
        assert_eq!(self.push_over(Conflict::After, &self.saying("second")?).await?, BEHIND);
        self.world.pass(1);
        let next_at = self.world.now().plus(Duration::from_secs(5));
        let retried = Retried { id: MessageId::new("a")?, next_at, attempts: 1, failure: None };
        owner.settle(&retries(taken.reservation, retried, &[])?).await
    }

    /// The payload of the message, and that of its successor.
    async fn texts(&self, id: &str) -> Result<Option<(String, Option<String>)>> {
        let text = |message: &Message| String::from_utf8_lossy(&message.envelope.payload).into_owned();
        let peeked = self.orders.peek(id).await?;
        Ok(peeked.map(|peeked| {
            let successor = peeked.message.successor.as_ref().map(|successor| text(&successor.message));
            (text(&peeked.message), successor)
        }))
    }
}

fn both(first: &str, second: &str) -> Option<(String, Option<String>)> {
    Some((first.to_owned(), Some(second.to_owned())))
}

#[tokio::test]
async fn buffered_push_follows_though_the_dedup_window_remembers_the_id() -> Result<()> {
    let story = Story::begin().await?;
    let mut owner = story.in_flight().await?;
    assert_eq!(story.push_over(Conflict::After, &story.saying("second")?).await?, BEHIND);
    owner.settle(&Settlement { dedup_window: Duration::from_secs(3_600), ..acks(&["a"])? }).await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 1);
    story.world.pass(1);
    let third = story.saying("third")?;
    assert_eq!(story.replay(Conflict::After, &[(1, story.version(), &third)]).await?, [BEHIND]);
    assert_eq!(story.texts("a").await?, both("second", "third"));
    owner.settle(&Settlement { dedup_window: Duration::from_secs(3_600), ..acks(&["a"])? }).await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&Settlement { dedup_window: Duration::from_secs(3_600), ..acks(&["a"])? }).await?;
    story.world.pass(1);
    let late = story.saying("late")?;
    assert_eq!(story.replay(Conflict::After, &[(2, story.version(), &late)]).await?, [DUPLICATE], "it is gone");
    Ok(())
}

#[tokio::test]
async fn reschedule_of_a_message_does_not_end_a_buffered_successor() -> Result<()> {
    let story = Story::begin().await?;
    story.nacked().await?;
    let (version, third) = (story.version(), story.saying("third")?);
    story.world.pass(1);
    assert_eq!(story.orders.reschedule("a", 9_000).await?, [Done]);
    assert_eq!(story.replay(Conflict::After, &[(1, version, &third)]).await?, [REPLACED]);
    assert_eq!(story.texts("a").await?, both("first", "third"));
    Ok(())
}

#[tokio::test]
async fn later_successor_stays_behind_a_buffered_replacement() -> Result<()> {
    let story = Story::begin().await?;
    let mut owner = story.in_flight().await?;
    let (version, replacement) = (story.version(), story.saying("replacement")?);
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &replacement)]).await?, [Err(Refused::InFlight)]);
    story.world.pass(1);
    assert_eq!(story.push_over(Conflict::After, &story.saying("second")?).await?, BEHIND);
    let (id, next_at) = (MessageId::new("a")?, story.world.now().plus(Duration::from_secs(5)));
    let retried = Retried { id, next_at, attempts: 1, failure: None };
    owner.settle(&Settlement { retried: vec![retried], ..Settlement::default() }).await?;
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &replacement)]).await?, [REPLACED]);
    assert_eq!(story.texts("a").await?, both("replacement", "second"));
    // What was pushed before the successor does not take its place.
    let older = story.saying("older")?;
    let envelope = Envelope { pushed_at: replacement.envelope.pushed_at, ..older.envelope };
    let older = Message { envelope, ..older };
    assert_eq!(story.replay(Conflict::After, &[(2, version.plus(1), &older)]).await?, [DUPLICATE]);
    Ok(())
}

/// The store lost that it was followed, and then it died.
#[tokio::test]
async fn restored_successor_leaves_the_dead_letter_of_its_message() -> Result<()> {
    let story = Story::begin().await?;
    story.orders.push_all(&[story.saying("first")?]).await?;
    let mut owner = story.orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let version = taken.messages[0].version;
    story.world.pass(1);
    let (dead_id, second) = (MessageId::new("a~1")?, story.saying("second")?);
    let successor = Successor { message: second, version: story.version(), dead_id };
    let followed = Message { successor: Some(Box::new(successor)), ..story.saying("first")? };
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    let call = new_call(&*story.orders.store.backend, 1);
    assert_eq!(story.restore(&[set(&followed, version, &call.id)]).await?, 1);
    assert_eq!(story.texts("a").await?, Some(("second".to_owned(), None)));
    let dead = story.orders.peek("a~1").await?.ok_or_else(|| Error::not_found("a~1"))?;
    assert_eq!((dead.state.name(), &*dead.message.envelope.payload), ("dead", &b"first"[..]));
    let stats = story.orders.stats().await?;
    assert_eq!((stats.ready, stats.dead), (1, 1));
    assert_eq!(story.restore(&[set(&followed, version, &call.id)]).await?, 0, "and once");
    Ok(())
}
