//! A message is identified by its id and its key: every verb finds it by the id alone, and none takes another for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dwell::broker::{Broker, Options, PushOutcome};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, DedupKey, Due, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::topic::GroupPartition;
use dwell::store::{
    Expected, Fate, Forecast, InFlightCursor, OutlinePage, Page, PartitionDepth, PartitionStats, PausedKey, Peeked,
    Pushed, Reads, Spans, WaitingCursor, WaitingRange, Window, WindowPage,
};

use crate::support::{Running, World, kind_of, stories};

stories! {
    a_message_is_found_by_its_id_alone, another_key_matches_nothing_in_the_same_partition,
    two_messages_of_one_id_are_ambiguous_without_a_key, repeated_cancel_by_id_alone_gets_the_same_result,
    duplicate_reports_the_stored_message, duplicate_is_answered_without_a_second_look,
    another_message_of_the_id_in_the_partition_is_refused,
}

fn place() -> Result<(TopicName, GroupName)> {
    Ok((TopicName::new("orders")?, GroupName::standard()))
}

async fn push(broker: &Broker, id: &str, key: &str) -> Result<PushOutcome> {
    let message = NewMessage::new("close").id(MessageId::new(id)?).key(Key::new(key)?);
    broker.push(&place()?.0, message.after(Duration::from_secs(3_600))).await
}

/// The ids `m0` to `m39`, each with the key `customer-<n>`.
async fn shop(world: &World) -> Result<Running> {
    let running = Running::start(world, Options::default())?;
    for n in 0..40 {
        push(&running.broker, &format!("m{n}"), &format!("customer-{n}")).await?;
    }
    Ok(running)
}

async fn a_message_is_found_by_its_id_alone(world: World) -> Result<()> {
    let running = shop(&world).await?;
    let (broker, (topic, group)) = (&running.broker, place()?);
    for n in 0..40 {
        let id = MessageId::new(format!("m{n}"))?;
        let (partition, peeked) = broker.peek(&topic, &group, &id, None).await?;
        assert_eq!(peeked.message.envelope.key, Some(Key::new(format!("customer-{n}"))?));
        let explained = broker.explain(&topic, &id, None).await?;
        assert_eq!((explained.partition, explained.groups[0].1.name), (partition, "scheduled"));
        let later = Due::In(Duration::from_secs(7_200));
        let outcome = broker.reschedule(&topic, &id, None, later, Expected::default()).await?;
        assert_eq!(outcome.partition, partition);
        let (at, cancelled) = broker.cancel(&topic, &id, None).await?;
        assert_eq!((at, cancelled.fates.has(Fate::Done)), (partition, true), "{id}");
        assert_eq!(kind_of(broker.peek(&topic, &group, &id, None).await), Some(Kind::NotFound));
    }
    Ok(())
}

/// A key other than `key` with the same partition.
async fn neighbour(broker: &Broker, id: &str, key: &str) -> Result<Key> {
    let topic = broker.topic(&place()?.0).await?;
    let same = |other: &String| other != key && topic.partition_of(other) == topic.partition_of(key);
    let other = (0..).map(|n| format!("other-{id}-{n}")).find(same).ok_or_else(|| Error::bug("no key"))?;
    Key::new(other)
}

async fn another_key_matches_nothing_in_the_same_partition(world: World) -> Result<()> {
    let running = shop(&world).await?;
    let (broker, (topic, group)) = (&running.broker, place()?);
    let (id, other) = (MessageId::new("m7")?, neighbour(broker, "m7", "customer-7").await?);
    let not_found = Some(Kind::NotFound);
    assert_eq!(kind_of(broker.peek(&topic, &group, &id, Some(&other)).await), not_found);
    assert_eq!(kind_of(broker.explain(&topic, &id, Some(&other)).await), not_found);
    assert_eq!(kind_of(broker.cancel(&topic, &id, Some(&other)).await), not_found);
    let now = Due::In(Duration::ZERO);
    assert_eq!(kind_of(broker.reschedule(&topic, &id, Some(&other), now, Expected::default()).await), not_found);
    assert_eq!(broker.explain(&topic, &id, None).await?.groups[0].1.name, "scheduled");
    Ok(())
}

async fn two_messages_of_one_id_are_ambiguous_without_a_key(world: World) -> Result<()> {
    let running = shop(&world).await?;
    let (broker, (topic, group)) = (&running.broker, place()?);
    let there = broker.topic(&topic).await?;
    let elsewhere = |key: &String| there.partition_of(key) != there.partition_of("customer-7");
    let other = (0..).map(|n| format!("other-{n}")).find(elsewhere).ok_or_else(|| Error::bug("no key"))?;
    push(broker, "m7", &other).await?;
    let id = MessageId::new("m7")?;
    let error = broker.cancel(&topic, &id, None).await.err().ok_or_else(|| Error::bug("cancelled"))?;
    assert_eq!(error.kind(), Kind::Ambiguous);
    assert!(error.detail().contains("\"customer-7\"") && error.detail().contains(&other), "{error}");
    assert_eq!(kind_of(broker.peek(&topic, &group, &id, None).await), Some(Kind::Ambiguous));
    assert_eq!(kind_of(broker.explain(&topic, &id, None).await), Some(Kind::Ambiguous));
    let now = Due::In(Duration::ZERO);
    assert_eq!(kind_of(broker.reschedule(&topic, &id, None, now, Expected::default()).await), Some(Kind::Ambiguous));
    broker.cancel(&topic, &id, Some(&Key::new(other)?)).await?;
    broker.cancel(&topic, &id, None).await?;
    Ok(())
}

async fn repeated_cancel_by_id_alone_gets_the_same_result(world: World) -> Result<()> {
    let running = shop(&world).await?;
    let (broker, topic, id) = (&running.broker, place()?.0, MessageId::new("m7")?);
    let first = broker.cancel(&topic, &id, None).await?;
    assert!(first.1.fates.has(Fate::Done));
    let again = broker.cancel(&topic, &id, None).await?;
    assert_eq!((again.0, again.1.fates), (first.0, first.1.fates));
    let (_, never) = broker.cancel(&topic, &MessageId::new("never")?, None).await?;
    assert!(never.fates.0.iter().all(|(_, fate)| *fate == Fate::Absent));
    Ok(())
}

async fn duplicate_reports_the_stored_message(world: World) -> Result<()> {
    let running = Running::start(&world, Options::default())?;
    let (broker, topic) = (&running.broker, place()?.0);
    let due_at = world.now().plus(Duration::from_secs(60));
    let message = |payload: &str, due: Due| -> Result<NewMessage> {
        Ok(NewMessage { due, ..NewMessage::new(payload.to_owned()).id(MessageId::new("a")?) })
    };
    let first = broker.push(&topic, message("close", Due::At(due_at))?).await?;
    assert_eq!((first.pushed, first.differs, first.due_at), (Pushed::Stored, false, due_at));
    let later = due_at.plus(Duration::from_secs(60));
    for (payload, due, differs) in [
        ("close", Due::At(due_at), false),
        ("close", Due::At(later), true),
        ("open", Due::At(due_at), true),
        // A repeat of a push with a delay is due a little later each time.
        ("close", Due::In(Duration::from_secs(61)), false),
    ] {
        let again = broker.push(&topic, message(payload, due)?).await?;
        assert_eq!(
            (again.pushed, again.differs, again.due_at),
            (Pushed::Duplicate, differs, due_at),
            "{payload} {due:?}"
        );
    }
    Ok(())
}

/// Reads of a store that fail, as they do for a message that was settled just before.
struct NoReads;

fn not_read<T>() -> Result<T> {
    Err(Error::unavailable("a push reads nothing after its verdict"))
}

#[async_trait]
impl Reads for NoReads {
    async fn peek(&self, _: &GroupPartition, _: &MessageId) -> Result<Option<Peeked>> {
        not_read()
    }

    async fn check_kept(&self, _: &GroupPartition) -> Result<()> {
        not_read()
    }

    async fn waiting(
        &self,
        _: &GroupPartition,
        _: Window,
        _: Option<&WaitingCursor>,
        _: usize,
    ) -> Result<Page<WaitingCursor>> {
        not_read()
    }

    async fn outlines(&self, _: &[WaitingRange]) -> Result<Vec<OutlinePage>> {
        not_read()
    }

    async fn in_flight(
        &self,
        _: &GroupPartition,
        _: Option<&InFlightCursor>,
        _: usize,
    ) -> Result<Page<InFlightCursor>> {
        not_read()
    }

    async fn paused_keys(&self, _: &GroupPartition, _: usize) -> Result<(u64, Vec<PausedKey>)> {
        not_read()
    }

    async fn paused_until(&self, _: &GroupPartition, _: &Key) -> Result<Option<Timestamp>> {
        not_read()
    }

    async fn stats(&self, _: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        not_read()
    }

    async fn depth(&self, _: &[GroupPartition], _: &[Duration]) -> Result<Vec<PartitionDepth>> {
        not_read()
    }

    async fn forecast(&self, _: &[GroupPartition], _: Spans) -> Result<Vec<Forecast>> {
        not_read()
    }

    async fn window(
        &self,
        _: &GroupPartition,
        _: Window,
        _: Option<&(Timestamp, MessageId)>,
        _: usize,
    ) -> Result<WindowPage> {
        not_read()
    }
}

/// What is there may be settled at any moment after the verdict, so the verdict itself says what it found.
async fn duplicate_is_answered_without_a_second_look(mut world: World) -> Result<()> {
    world.store.reads = Arc::new(NoReads);
    let running = Running::start(&world, Options::default())?;
    let (broker, topic) = (&running.broker, place()?.0);
    let due_at = world.now().plus(Duration::from_secs(60));
    let message = |id: &str, due_at| -> Result<NewMessage> {
        let message = NewMessage::new("close").id(MessageId::new(id)?).at(due_at);
        Ok(message.dedup(DedupKey::new("k")?, Duration::from_secs(3_600)))
    };
    broker.push(&topic, message("a", due_at)?).await?;
    let later = due_at.plus(Duration::from_secs(60));
    for id in ["a", "b"] {
        let again = broker.push(&topic, message(id, later)?).await?;
        assert_eq!((again.pushed.name(), again.differs, again.due_at), ("duplicate", true, due_at), "{id}");
    }
    // Also of a message of the same call.
    let batch = [("c", "l", due_at), ("c", "m", later), ("d", "l", later)].map(|(id, key, due_at)| {
        Ok(NewMessage::new("close")
            .id(MessageId::new(id)?)
            .key(Key::new("one")?)
            .at(due_at)
            .dedup(DedupKey::new(key)?, Duration::from_secs(3_600)))
    });
    let outcomes = broker.push_batch(&topic, batch.into_iter().collect::<Result<_>>()?).await?;
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let found: Vec<_> =
        outcomes.iter().map(|outcome| (outcome.pushed.name(), outcome.due_at, outcome.differs)).collect();
    assert_eq!(found, [("stored", due_at, false), ("duplicate", due_at, true), ("duplicate", due_at, true)]);
    Ok(())
}

async fn another_message_of_the_id_in_the_partition_is_refused(world: World) -> Result<()> {
    let running = shop(&world).await?;
    let (broker, (topic, group)) = (&running.broker, place()?);
    let other = neighbour(broker, "m7", "customer-7").await?;
    assert_eq!(kind_of(push(broker, "m7", other.as_str()).await), Some(Kind::Conflict));
    for conflict in [Conflict::Replace, Conflict::Debounce, Conflict::Reject] {
        let message = NewMessage::new("open").id(MessageId::new("m7")?).key(other.clone());
        let refused = broker.push(&topic, NewMessage { conflict, ..message }).await;
        assert_eq!(kind_of(refused), Some(Kind::Conflict), "{conflict:?}");
    }
    let (_, there) = broker.peek(&topic, &group, &MessageId::new("m7")?, None).await?;
    assert_eq!(there.message.envelope.key, Some(Key::new("customer-7")?));
    assert_eq!(there.message.envelope.payload, "close");
    Ok(())
}
