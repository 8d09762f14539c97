//! The conflict policies while the log still holds earlier pushes of the same ids and dedup keys: what is pushed then goes behind
//! them, so that no two clients are told that they created one message.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{PushOutcome, ReserveRequest};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, DedupKey, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::topic::{Ordering, Settings};
use dwell::store::{MessageState, Peeked, Pushed};

use super::{Dwell, Outage};
use crate::support::{Mode, Strike, eventually, kind_of};

const HOUR: Duration = Duration::from_secs(3_600);

fn topic() -> Result<TopicName> {
    TopicName::new("orders")
}

async fn declare_ordered(dwell: &Dwell, topic: &TopicName) -> Result<()> {
    let settings = Settings { partitions: NonZeroU16::MIN, ordering: Ordering::Key, ..Settings::default() };
    dwell.broker().declare(topic.clone(), settings).await?;
    Ok(())
}

impl Dwell {
    /// A topic of one partition, with a message that a consumer has.
    async fn with_one_in_flight(&self) -> Result<String> {
        let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        self.broker().declare(topic()?, settings).await?;
        self.push_one("orders", "held").await?;
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(20), visibility_timeout: Some(HOUR) };
        let mut deliveries = self.broker().reserve(&topic()?, &GroupName::standard(), request).await?;
        assert_eq!(deliveries.len(), 1);
        Ok(deliveries.remove(0).receipt.to_string())
    }

    async fn ack_receipt(&self, receipt: String) -> Result<()> {
        let decided = self.broker().settle(&topic()?, &GroupName::standard(), vec![(receipt, Decision::Ack)]).await?;
        assert_eq!(decided, [Verdict::Acked]);
        Ok(())
    }

    async fn push_due(&self, id: &str, payload: &str, due_at: Timestamp, conflict: Conflict) -> Result<PushOutcome> {
        let message = NewMessage::new(payload.to_owned()).id(MessageId::new(id)?).at(due_at).on_conflict(conflict);
        self.broker().push(&topic()?, message).await
    }

    async fn push_deduped_at(&self, id: &str, key: &str, due_at: Timestamp) -> Result<PushOutcome> {
        let message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?).at(due_at);
        self.broker().push(&topic()?, message.dedup(DedupKey::new(key)?, HOUR)).await
    }

    async fn stored_as(&self, id: &str) -> Result<Option<Peeked>> {
        let of = self.broker().topic(&topic()?).await?.group_partition(Partition(0), &GroupName::standard());
        self.broker()
            .peek(&of.topic, &of.group, &MessageId::new(id)?, None)
            .await
            .map(|(_, peeked)| Some(peeked))
            .or_else(|error| if error.kind() == Kind::NotFound { Ok(None) } else { Err(error) })
    }

    /// Pushes go to Redis again, whatever the log still holds.
    async fn takes_pushes(&self) -> Result<()> {
        let mut number = 0;
        eventually("pushes go to Redis", async || {
            number += 1;
            Ok((self.push("orders", &[&format!("probe{number}")], HOUR).await?[0].pushed == Pushed::Stored)
                .then_some(()))
        })
        .await
    }
}

/// A consumer has `held`, so its buffered replacement waits in the log, and what was buffered behind it waits there too.
#[tokio::test]
async fn push_of_an_id_that_the_log_holds_goes_behind_it() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let receipt = dwell.with_one_in_flight().await?;
    let base = dwell.broker().now().plus(HOUR);
    let later = base.plus(HOUR);
    outage.proxy.set(Mode::Refuse);
    assert_eq!(dwell.push_due("held", "new", base, Conflict::Replace).await?.pushed, Pushed::Buffered);
    for id in ["keep", "reject", "replace", "debounce", "back"] {
        assert_eq!(dwell.push_due(id, "first", base, Conflict::Keep).await?.pushed, Pushed::Buffered);
    }
    assert_eq!(dwell.push_deduped_at("first", "k", base).await?.pushed, Pushed::Buffered);
    eventually("it is cancelled in the log", async || {
        match dwell.broker().cancel(&topic()?, &MessageId::new("back")?, None).await {
            Err(error) if error.kind() == Kind::Unavailable => Ok(None),
            cancelled => cancelled.map(Some),
        }
    })
    .await?;
    outage.proxy.set(Mode::Pass);
    dwell.takes_pushes().await?;
    let pushes = [
        ("keep", Conflict::Keep),
        ("reject", Conflict::Reject),
        ("replace", Conflict::Replace),
        ("debounce", Conflict::Debounce),
        ("back", Conflict::Reject),
    ];
    for (id, conflict) in pushes {
        assert_eq!(dwell.push_due(id, "second", later, conflict).await?.pushed, Pushed::Buffered, "{id}");
    }
    assert_eq!(dwell.push_deduped_at("second", "k", later).await?.pushed, Pushed::Buffered);
    // What the log does not hold goes to Redis, also beside what it holds.
    let both = dwell.push("orders", &["keep", "fresh", "keep"], HOUR).await?;
    let pushed: Vec<Pushed> = both.into_iter().map(|outcome| outcome.pushed).collect();
    assert_eq!(pushed, [Pushed::Buffered, Pushed::Stored, Pushed::Buffered]);
    dwell.ack_receipt(receipt).await?;
    dwell.recovered().await?;
    let expected = [
        ("keep", "first", base),
        ("reject", "first", base),
        ("replace", "second", later),
        ("debounce", "first", later),
        ("back", "second", later),
        ("first", "first", base),
    ];
    for (id, payload, due_at) in expected {
        let stored = dwell.stored_as(id).await?.ok_or_else(|| Error::not_found(id))?.message;
        assert_eq!((stored.envelope.payload, stored.due_at), (payload.to_owned().into(), due_at), "{id}");
    }
    assert!(dwell.stored_as("second").await?.is_none());
    // Nothing is held any more.
    let outcome = dwell.push_due("keep", "third", later, Conflict::Keep).await?;
    assert_eq!((outcome.pushed, outcome.due_at, outcome.differs), (Pushed::Duplicate, base, true));
    assert_eq!(kind_of(dwell.push_due("reject", "third", later, Conflict::Reject).await), Some(Kind::Conflict));
    dwell.close().await
}

/// A buffered cancel keeps its place in the log although the push that it ended is gone from there: a later push of its id would
/// otherwise find the message of before in Redis, be a duplicate of it, and end with it.
#[tokio::test]
async fn push_of_an_id_whose_cancel_the_log_holds_goes_behind_it() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let receipt = dwell.with_one_in_flight().await?;
    let base = dwell.broker().now().plus(HOUR);
    assert_eq!(dwell.push_due("back", "old", base, Conflict::Keep).await?.pushed, Pushed::Stored);
    outage.proxy.set(Mode::Refuse);
    assert_eq!(dwell.push_due("held", "new", base, Conflict::Replace).await?.pushed, Pushed::Buffered);
    assert_eq!(dwell.push_due("back", "first", base, Conflict::Keep).await?.pushed, Pushed::Buffered);
    dwell.broker().cancel(&topic()?, &MessageId::new("back")?, None).await?;
    // More than a page, so the first one goes to the end of the log and holds up nothing.
    let others: Vec<String> = (0..600).map(|n| format!("other{n}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    dwell.push("orders", &others, HOUR).await?;
    outage.proxy.set(Mode::Pass);
    dwell.takes_pushes().await?;
    dwell.push_due("back", "second", base, Conflict::Keep).await?;
    dwell.ack_receipt(receipt).await?;
    dwell.recovered().await?;
    let stored = dwell.stored_as("back").await?.ok_or_else(|| Error::not_found("back"))?.message;
    assert_eq!(stored.envelope.payload, "second");
    dwell.close().await
}

/// A broker that is started again knows what its log holds before it takes a push.
#[tokio::test]
async fn log_of_an_earlier_process_is_not_overtaken() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
    dwell.broker().declare(topic()?, settings).await?;
    dwell.push_one("orders", "held").await?;
    let base = dwell.broker().now().plus(HOUR);
    outage.proxy.set(Mode::Refuse);
    for (id, conflict) in [("held", Conflict::Replace), ("keep", Conflict::Keep)] {
        assert_eq!(dwell.push_due(id, "first", base, conflict).await?.pushed, Pushed::Buffered);
    }
    let owner = crate::support::scratch()?;
    dwell.close().await?;
    outage.proxy.set(Mode::Pass);
    // Another broker has the message now, and keeps it from being replaced.
    let other = outage.dwell_in(owner.path(), outage.redis.url(), false).await?;
    let request = ReserveRequest { max: 1, wait: Duration::from_secs(20), visibility_timeout: Some(HOUR) };
    let taken = other.broker().reserve(&topic()?, &GroupName::standard(), request).await?;
    assert_eq!(taken.len(), 1);
    let again = outage.dwell().await?;
    again.takes_pushes().await?;
    for conflict in [Conflict::Keep, Conflict::Reject] {
        let pushed = again.push_due("keep", "second", base.plus(HOUR), conflict).await?.pushed;
        assert_eq!(pushed, Pushed::Buffered, "{conflict:?}");
    }
    other.ack_receipt(taken[0].receipt.to_string()).await?;
    again.recovered().await?;
    let stored = again.stored_as("keep").await?.ok_or_else(|| Error::not_found("keep"))?.message;
    assert_eq!((stored.envelope.payload, stored.due_at), ("first".into(), base));
    other.close().await?;
    again.close().await
}

/// What waits at its owner for its next attempt is with no consumer, and nothing else that is buffered waits behind its
/// replacement. The owner is this broker, or another one.
#[tokio::test]
async fn buffered_change_reaches_what_an_owner_holds() -> Result<()> {
    let outage = Outage::begin().await?;
    for is_here in [true, false] {
        let (dir, topic) = (crate::support::scratch()?, TopicName::new(if is_here { "here" } else { "there" })?);
        let buffering = outage.dwell().await?;
        let other = outage.dwell_in(dir.path(), outage.redis.url(), false).await?;
        let owner = if is_here { &buffering } else { &other };
        declare_ordered(&buffering, &topic).await?;
        let message = |id: &str, payload: &str, conflict| -> Result<NewMessage> {
            let message = NewMessage::new(payload.to_owned()).id(MessageId::new(id)?).key(Key::new("k")?);
            Ok(message.on_conflict(conflict))
        };
        for id in ["first", "second"] {
            buffering.broker().push(&topic, message(id, "old", Conflict::Keep)?).await?;
        }
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: Some(HOUR) };
        let taken = owner.broker().reserve(&topic, &GroupName::standard(), request).await?;
        let retry = Decision::Nack { delay: Some(HOUR), reason: None };
        let decisions = vec![(taken[0].receipt.to_string(), retry)];
        owner.broker().settle(&topic, &GroupName::standard(), decisions).await?;
        // A consumer waits, so the owner keeps them.
        let (broker, of) = (owner.broker().clone(), topic.clone());
        let waiting = tokio::spawn(async move { broker.reserve(&of, &GroupName::standard(), request).await });
        for (id, state) in [("first", MessageState::Backoff), ("second", MessageState::Blocked)] {
            let (id, key) = (MessageId::new(id)?, Key::new("k")?);
            eventually("the owner holds it", async || {
                let (_, peeked) = other.broker().peek(&topic, &GroupName::standard(), &id, Some(&key)).await?;
                Ok((peeked.state == state).then_some(()))
            })
            .await?;
        }
        outage.proxy.set(Mode::Refuse);
        for (id, conflict) in [("second", Conflict::Replace), ("first", Conflict::Debounce)] {
            let changed = message(id, "new", conflict)?.after(if id == "first" { 2 * HOUR } else { Duration::ZERO });
            assert_eq!(buffering.broker().push(&topic, changed).await?.pushed, Pushed::Buffered);
        }
        assert_eq!(buffering.push_one("others", "x").await?.pushed, Pushed::Buffered);
        outage.proxy.set(Mode::Pass);
        buffering.recovered().await?;
        // The first is due later now, so the second no longer waits for it.
        let taken = waiting.await.map_err(|error| Error::bug(error.to_string()))??.remove(0);
        assert_eq!((taken.message.id.as_str(), &*taken.message.envelope.payload), ("second", &b"new"[..]));
        let acked = vec![(taken.receipt.to_string(), Decision::Ack)];
        owner.broker().settle(&topic, &GroupName::standard(), acked).await?;
        other.close().await?;
        buffering.close().await?;
    }
    Ok(())
}

/// A delivery whose broker has gone is nobody's: what was buffered behind its replacement does not wait for a consumer to come.
#[tokio::test]
async fn buffered_change_of_a_dead_delivery_holds_up_nothing() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    declare_ordered(&dwell, &topic()?).await?;
    dwell.push_one("orders", "held").await?;
    let request = ReserveRequest { max: 1, wait: Duration::from_secs(20), visibility_timeout: Some(HOUR) };
    assert_eq!(dwell.broker().reserve(&topic()?, &GroupName::standard(), request).await?.len(), 1);
    let due_at = dwell.broker().now();
    outage.proxy.set(Mode::Refuse);
    assert_eq!(dwell.push_due("held", "new", due_at, Conflict::Replace).await?.pushed, Pushed::Buffered);
    assert_eq!(dwell.push_one("others", "x").await?.pushed, Pushed::Buffered);
    // It cannot give back what it has.
    dwell.close().await?;
    outage.proxy.set(Mode::Pass);
    let again = outage.dwell().await?;
    again.recovered().await?;
    let taken = again.broker().reserve(&topic()?, &GroupName::standard(), request).await?;
    assert_eq!(taken[0].message.envelope.payload, "new");
    again.close().await
}

/// A buffered debounce moves a message only to a later time.
#[tokio::test]
async fn buffered_debounce_moves_no_message_to_an_earlier_time() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let base = dwell.broker().now().plus(HOUR);
    for id in ["earlier", "later"] {
        dwell.push_due(id, "first", base, Conflict::Keep).await?;
    }
    outage.proxy.set(Mode::Refuse);
    let half = Duration::from_secs(1_800);
    let pushed = dwell.push_due("later", "second", base.plus(half), Conflict::Debounce).await?.pushed;
    assert_eq!(pushed, Pushed::Buffered);
    dwell.push_due("earlier", "second", base.minus(half), Conflict::Debounce).await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    for (id, due_at) in [("earlier", base), ("later", base.plus(half))] {
        let stored = dwell.stored_as(id).await?.ok_or_else(|| Error::not_found(id))?.message;
        assert_eq!((stored.envelope.payload, stored.due_at), ("first".into(), due_at), "{id}");
    }
    dwell.close().await
}

/// The answer of a duplicate has the due time of the message that is there, in whatever state, also if its call is repeated; it is
/// buffered if nothing answers.
#[tokio::test]
async fn duplicate_has_the_due_time_of_the_message_that_is_there() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let receipt = dwell.with_one_in_flight().await?;
    let base = dwell.broker().now().plus(HOUR);
    let later = base.plus(HOUR);
    dwell.push_due("there", "first", base, Conflict::Keep).await?;
    dwell.push_deduped_at("deduped", "k", base).await?;
    for strike in [Strike::Reply, Strike::Request, Strike::Outage] {
        for id in ["there", "other"] {
            outage.proxy.next_with(strike, id);
            let outcome = match id {
                "there" => dwell.push_due(id, "second", later, Conflict::Keep).await?,
                _ => dwell.push_deduped_at(id, "k", later).await?,
            };
            outage.proxy.struck()?;
            let found = (outcome.pushed.name(), outcome.due_at, outcome.differs);
            match strike {
                Strike::Outage => assert_eq!(found, ("buffered", later, false), "{id}"),
                _ => assert_eq!(found, ("duplicate", base, true), "{strike:?} {id}"),
            }
            outage.proxy.set(Mode::Pass);
            dwell.recovered().await?;
        }
    }
    // Dead is a state, too.
    let bury = vec![(receipt, Decision::Bury { reason: None })];
    assert_eq!(dwell.broker().settle(&topic()?, &GroupName::standard(), bury).await?, [Verdict::Buried]);
    let due_at = dwell.stored_as("held").await?.ok_or_else(|| Error::not_found("held"))?.message.due_at;
    let outcome = dwell.push_due("held", "second", later, Conflict::Keep).await?;
    assert_eq!((outcome.pushed, outcome.due_at, outcome.differs), (Pushed::Duplicate, due_at, true));
    dwell.close().await
}
