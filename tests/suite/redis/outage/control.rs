//! Cancelling and rescheduling while Redis is away, while answers are lost, and after it lost what it had.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{RescheduleOutcome, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{Conflict, Due, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::{Ordering, Settings};
use dwell::store::{Cancelled, Expected, Fate, Pushed, Rescheduled};

use super::journal::journaled;
use super::{Dwell, Outage};
use crate::support::{Mode, Proxy, Strike, eventually, fates_of, kind_of, scratch};

const HOUR: Duration = Duration::from_secs(3_600);

impl Dwell {
    async fn cancel(&self, id: &str) -> Result<Cancelled> {
        Ok(self.broker().cancel(&TopicName::new("orders")?, &MessageId::new(id)?, None).await?.1)
    }

    async fn reschedule(&self, id: &str, delay: Duration) -> Result<RescheduleOutcome> {
        let (topic, id, due) = (TopicName::new("orders")?, MessageId::new(id)?, Due::In(delay));
        self.broker().reschedule(&topic, &id, None, due, Expected::default()).await
    }

    async fn push_as(&self, id: &str, payload: &'static str, delay: Duration, conflict: Conflict) -> Result<Pushed> {
        let message = NewMessage::new(payload).id(MessageId::new(id)?).after(delay).on_conflict(conflict);
        Ok(self.broker().push(&TopicName::new("orders")?, message).await?.pushed)
    }
}

/// On a machine that has more to do the time may be up before the repeat is answered: then it is said again.
async fn answered<T>(ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    eventually("an answer", async || match ask().await {
        Err(error) if matches!(error.kind(), Kind::OutcomeUnknown | Kind::Unavailable) => Ok(None),
        answer => answer.map(Some),
    })
    .await
}

fn is_done(cancelled: &Cancelled) -> bool {
    fates_of(&cancelled.fates) == [Fate::Done]
}

#[tokio::test]
async fn buffered_message_is_cancelled_in_the_wal() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["stored"], Duration::ZERO).await?;
    outage.redis.kill()?;
    // The first one meets the outage: perhaps it was on its way.
    dwell.push_one("orders", "first").await?;
    let ids: Vec<String> = (0..1_200).map(|n| format!("m{n}")).collect();
    for ids in ids.chunks(400) {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        dwell.push("orders", &ids, Duration::ZERO).await?;
    }
    let why = dwell.broker().explain(&TopicName::new("orders")?, &MessageId::new("m450")?, None).await?;
    assert_eq!((why.buffered, why.groups[0].1.name), (true, "buffered"));
    for id in ["m0", "m450", "m1199"] {
        let cancelled = eventually("no page is on its way", async || match dwell.cancel(id).await {
            Err(error) if error.kind() == Kind::Unavailable => Ok(None),
            cancelled => cancelled.map(Some),
        })
        .await?;
        assert!(is_done(&cancelled) && cancelled.buffered, "{id}: {cancelled:?}");
    }
    assert_eq!(kind_of(dwell.cancel("stored").await), Some(Kind::Unavailable));
    assert_eq!(kind_of(dwell.reschedule("m1", HOUR).await), Some(Kind::Unavailable));
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let mut left: Vec<&str> =
        ids.iter().map(String::as_str).filter(|id| !["m0", "m450", "m1199"].contains(id)).collect();
    left.extend(["first", "stored"]);
    dwell.delivers("orders", &left).await?;
    dwell.close().await
}

#[tokio::test]
async fn cancel_of_a_possibly_stored_message_is_not_confirmed() -> Result<()> {
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "warm").await?;
    dwell.delivers("orders", &["warm"]).await?;
    outage.proxy.set(Mode::BlackHole);
    for id in ["a", "b"] {
        assert_eq!(dwell.push("orders", &[id], HOUR).await?[0].pushed, Pushed::Buffered);
    }
    // "a" was sent and not answered.
    let refused = kind_of(dwell.cancel("a").await);
    assert!(matches!(refused, Some(Kind::Unavailable | Kind::OutcomeUnknown)), "{refused:?}");
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    let cancelled = dwell.cancel("a").await?;
    assert!(!cancelled.fates.has(Fate::InFlight), "{cancelled:?}");
    assert!(is_done(&dwell.cancel("b").await?));
    for id in ["a", "b"] {
        let gone = dwell.reschedule(id, Duration::ZERO).await?.rescheduled;
        assert!(matches!(&gone, Rescheduled::Done(fates) if fates_of(fates) == [Fate::Absent]), "{gone:?}");
    }
    dwell.close().await
}

/// A page of the WAL is held up by a record that waits for its message: what the store took of it may have ended since, though the WAL
/// still has it.
#[tokio::test]
async fn cancel_of_an_acked_message_that_is_still_in_the_wal_is_not_confirmed() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { ordering: Ordering::Key, partitions: NonZeroU16::MIN, ..Settings::default() };
    dwell.broker().declare(orders.clone(), settings).await?;
    let push = async |id: &str, conflict| {
        let message = NewMessage::new(id.to_owned()).id(MessageId::new(id)?).key(Key::new(id)?).on_conflict(conflict);
        dwell.broker().push(&orders, message).await
    };
    push("first", Conflict::Keep).await?;
    let take = async || {
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(20), visibility_timeout: Some(HOUR) };
        dwell.broker().reserve(&orders, &GroupName::standard(), request).await
    };
    let ack = async |of: &Delivery| {
        let decision = vec![(of.receipt.to_string(), Decision::Ack)];
        dwell.broker().settle(&orders, &GroupName::standard(), decision).await
    };
    let first = take().await?.remove(0);
    outage.redis.kill()?;
    push("second", Conflict::Keep).await?;
    push("first", Conflict::Replace).await?;
    outage.redis.restart().await?;
    let second = take().await?.remove(0);
    assert_eq!(second.message.id.as_str(), "second");
    assert_eq!(ack(&second).await?, [Verdict::Acked]);
    assert!(dwell.metric("dwell_wal_records{log=\"wal\"}")? > 0.0, "the replaced message is in flight");
    assert_eq!(kind_of(dwell.cancel("second").await), Some(Kind::Unavailable));
    ack(&first).await?;
    dwell.recovered().await?;
    assert_eq!(fates_of(&dwell.cancel("second").await?.fates), [Fate::Absent]);
    dwell.close().await
}

#[tokio::test]
async fn lost_reply_is_recovered_by_a_repeat() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    for n in 0..20 {
        let id = format!("m{n}");
        dwell.recovered().await?;
        dwell.push("orders", &[&id], HOUR).await?;
        outage.proxy.next(Strike::Reply);
        let rescheduled = answered(async || dwell.reschedule(&id, HOUR * 2).await).await?.rescheduled;
        assert!(matches!(&rescheduled, Rescheduled::Done(fates) if fates.has(Fate::Done)), "{rescheduled:?}");
        outage.proxy.struck()?;
        dwell.recovered().await?;
        outage.proxy.next(Strike::Reply);
        let cancelled = answered(async || dwell.cancel(&id).await).await?;
        assert!(is_done(&cancelled) && !cancelled.buffered, "{cancelled:?}");
        outage.proxy.struck()?;
    }
    dwell.close().await
}

#[tokio::test]
async fn cancel_and_reschedule_survive_a_journal_restore() -> Result<()> {
    let mut outage = journaled().await?;
    let dwell = outage.dwell().await?;
    dwell.push("orders", &["gone", "later", "sooner", "again"], Duration::from_millis(900)).await?;
    assert!(is_done(&dwell.cancel("gone").await?));
    dwell.reschedule("later", HOUR).await?;
    dwell.reschedule("sooner", Duration::from_millis(100)).await?;
    assert!(is_done(&dwell.cancel("again").await?));
    assert_eq!(dwell.push_as("again", "the second one", Duration::ZERO, Conflict::Keep).await?, Pushed::Journaled);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    eventually("the journal was offered", async || {
        dwell.broker().health().await;
        Ok((dwell.metric("dwell_wal_replayed_total{log=\"journal\"}")? >= 3.0).then_some(()))
    })
    .await?;
    let got = dwell.delivers("orders", &["again", "sooner"]).await?;
    assert_eq!(got.len(), 2);
    assert!(is_done(&dwell.cancel("later").await?), "it waits for its hour");
    dwell.close().await
}

#[tokio::test]
async fn buffered_push_keeps_its_conflict_policy_at_replay() -> Result<()> {
    let mut outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    for id in ["kept", "replaced", "debounced"] {
        dwell.push_as(id, "first", HOUR, Conflict::Keep).await?;
    }
    outage.redis.kill()?;
    let policies = [("kept", Conflict::Reject), ("replaced", Conflict::Replace), ("debounced", Conflict::Debounce)];
    for (id, conflict) in policies {
        assert_eq!(dwell.push_as(id, "second", HOUR * 2, conflict).await?, Pushed::Buffered);
    }
    assert_eq!(dwell.push_as("new", "first", HOUR, Conflict::Keep).await?, Pushed::Buffered);
    assert_eq!(dwell.push_as("new", "second", HOUR * 2, Conflict::Replace).await?, Pushed::Buffered);
    outage.redis.restart().await?;
    dwell.recovered().await?;
    let mut found = Vec::new();
    for id in ["kept", "replaced", "debounced", "new"] {
        let (topic, group) = (TopicName::new("orders")?, dwell::model::message::GroupName::standard());
        let message = dwell.broker().peek(&topic, &group, &MessageId::new(id)?, None).await?.1.message;
        let is_later = message.due_at.since(message.envelope.pushed_at) > HOUR + HOUR / 2;
        found.push((id, String::from_utf8_lossy(&message.envelope.payload).into_owned(), is_later));
    }
    let expected =
        [("kept", "first", false), ("replaced", "second", true), ("debounced", "first", true), ("new", "second", true)];
    let expected: Vec<_> = expected.into_iter().map(|(id, payload, later)| (id, payload.to_owned(), later)).collect();
    assert_eq!(found, expected);
    dwell.close().await
}

#[tokio::test]
async fn cancel_refused_during_a_restore_changes_nothing() -> Result<()> {
    // Another broker, with its own way to Redis and its own directory, has the message in its journal.
    let mut outage = Outage { silence: Duration::from_secs(16), ..journaled().await? };
    let (proxy, dir) = (Proxy::before(&outage.redis)?, scratch()?);
    let beside = outage.dwell_in(dir.path(), proxy.url(), false).await?;
    beside.push("orders", &["m"], HOUR).await?;
    let dwell = outage.dwell().await?;
    assert!(is_done(&dwell.cancel("m").await?), "so its partition remembers a cancel");
    let snapshot = outage.redis.snapshot().await?;
    assert_eq!(beside.push_as("m", "set again", HOUR, Conflict::Keep).await?, Pushed::Journaled);

    proxy.set(Mode::Refuse);
    outage.redis.kill()?;
    outage.redis.restart().await?;
    outage.redis.rewind(&snapshot).await?;
    let refused = async || Ok(dwell.cancel("m").await.err().filter(|error| error.detail().contains("giving it back")));
    let error = eventually("a cancel is refused until everything is restored", refused).await?;
    assert_eq!(error.kind(), Kind::Unavailable);

    proxy.set(Mode::Pass);
    dwell.recovered().await?;
    beside.recovered().await?;
    assert_eq!(outage.stored("orders").await?, 1, "it is restored");
    beside.close().await?;
    dwell.close().await
}
