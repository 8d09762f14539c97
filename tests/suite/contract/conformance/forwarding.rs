use std::num::NonZeroU16;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::RECOVER_IDS_MAX;
use dwell::model::message::{GroupName, Key, Message, MessageId, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Ordering, Settings};
use dwell::store::{Forward, Forwarded, MessageState};

use crate::support::{TestTopic, World, acks, buries, ids, ids_of, no_such_customer, up_to};

/// A topic for dead letters.
async fn dead_topic(world: &World, settings: Settings, groups: &[&str]) -> Result<TestTopic> {
    let mut wanted = Descriptor::new(TopicName::new("orders-dead")?, settings);
    wanted.groups = groups.iter().map(GroupName::new).collect::<Result<_>>()?;
    let descriptor = world.store.topics.create(&wanted).await?;
    Ok(TestTopic { store: world.store.clone(), time: world.time.clone(), descriptor })
}

fn one_partition() -> Settings {
    Settings { partitions: NonZeroU16::MIN, ..Settings::default() }
}

/// Buries messages in the order in which they are given.
async fn bury(orders: &TestTopic, messages: &[Message]) -> Result<()> {
    orders.push_all(messages).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1_000)).await?;
    let ids: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    owner.settle(&buries(taken.reservation, &ids, &[])?).await
}

async fn forward(from: &TestTopic, to: &TestTopic, named: &[&str]) -> Result<Forwarded> {
    match from.store.dead_letters.forward(&from.group_partition(), Some(&to.descriptor), &ids(named)?).await? {
        Forward::Done(page) => Ok(page),
        other => Err(Error::bug(format!("nothing was forwarded: {other:?}"))),
    }
}

async fn forward_all(from: &TestTopic, to: &TestTopic, named: &[&str]) -> Result<Forwarded> {
    let page = forward(from, to, named).await?;
    from.store.dead_letters.forwarded(&from.group_partition(), &page).await?;
    Ok(page)
}

pub(super) async fn forwarded_dead_letter_names_its_source(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let settings = Settings { partitions: NonZeroU16::new(16).unwrap_or(NonZeroU16::MIN), ..Settings::default() };
    let to = dead_topic(&world, settings, &["default", "audit"]).await?;
    let mut message = orders.message("a", 0)?;
    message.envelope.key = Some(Key::new("customer-7")?);
    message.envelope.meta = vec![("source".into(), "checkout".into())];
    (message.envelope.max_attempts, message.envelope.priority) = (Some(1), 7);
    message.envelope.expires_at = Some(world.now().plus(Duration::from_secs(60)));
    bury(&orders, std::slice::from_ref(&message)).await?;
    let died_at = world.now();
    world.pass(7);
    let page = forward_all(&orders, &to, &["a", "unknown"]).await?;
    assert_eq!((page.messages.len(), &page.refused, &page.refusal), (1, &vec![], &None));
    assert_eq!(orders.stats().await?.dead, 0);
    assert_eq!(orders.peek("a").await?, None);
    for group in ["default", "audit"] {
        let group_partition =
            to.descriptor.group_partition(to.descriptor.partition_of("customer-7"), &GroupName::new(group)?);
        let peeked = world.store.reads.peek(&group_partition, &message.id).await?;
        let peeked = peeked.ok_or_else(|| Error::not_found(group))?;
        assert_eq!((&peeked.state, peeked.attempts, peeked.next_at), (&MessageState::Ready, 0, Some(world.now())));
        let envelope = peeked.message.envelope;
        let source = envelope.dead_letter_source.clone().ok_or_else(|| Error::not_found("source"))?;
        assert_eq!((source.topic.as_str(), source.group.as_str(), source.id.as_str()), ("orders", "default", "a"));
        assert_eq!((source.reason.as_str(), source.attempts, source.died_at), ("buried", 1, died_at));
        assert_eq!(source.last_error, Some(no_such_customer()));
        assert_eq!((envelope.expires_at, envelope.max_attempts, envelope.priority), (None, None, 7));
        let kept = |of: &Message| (of.envelope.key.clone(), of.envelope.meta.clone(), of.envelope.payload.clone());
        assert_eq!((envelope.key, envelope.meta, envelope.payload), kept(&message));
    }
    Ok(())
}

pub(super) async fn forwarded_dead_letter_with_a_taken_id_gets_a_new_id(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let settings = Settings { partitions: NonZeroU16::new(3).unwrap_or(NonZeroU16::MIN), ..Settings::default() };
    let to = dead_topic(&world, settings, &["default"]).await?;
    for round in 0..3 {
        world.pass(1);
        bury(&orders, &[orders.message("a", 0)?]).await?;
        let page = forward_all(&orders, &to, &["a"]).await?;
        let id = &page.messages[0].message.id;
        assert_eq!(id.as_str() == "a", round == 0, "{id}");
        let group_partition =
            to.descriptor.group_partition(to.descriptor.partition_of(id.as_str()), &GroupName::standard());
        let peeked =
            world.store.reads.peek(&group_partition, id).await?.ok_or_else(|| Error::not_found(id.to_string()))?;
        assert_eq!(peeked.message.envelope.dead_letter_source.map(|source| source.id), Some(MessageId::new("a")?));
    }
    let group_partitions: Vec<_> = to.descriptor.group_partitions(&to.descriptor.groups).collect();
    assert_eq!(world.store.reads.stats(&group_partitions).await?.iter().map(|stats| stats.ready).sum::<u64>(), 3);
    Ok(())
}

pub(super) async fn consumed_forwarded_dead_letter_is_not_repeated(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let to = dead_topic(&world, one_partition(), &["default"]).await?;
    bury(&orders, &[orders.message("a", 0)?]).await?;
    // The page is not completed: its owner died.
    forward(&orders, &to, &["a"]).await?;
    let mut consumer = to.owner().await?;
    assert_eq!(ids_of(&consumer.reserve(up_to(9)).await?.messages), ["a"]);
    consumer.settle(&acks(&["a"])?).await?;
    let (store, partition) = (&orders.store.dead_letters, orders.group_partition());
    while let Forward::Done(page) = store.forward(&partition, Some(&to.descriptor), &ids(&["a"])?).await? {
        store.forwarded(&partition, &page).await?;
    }
    assert_eq!(store.forward(&partition, None, &[]).await?, Forward::Nothing);
    let stats = to.stats().await?;
    assert_eq!((stats.ready, stats.in_flight, orders.stats().await?.dead), (0, 0, 0));
    Ok(())
}

pub(super) async fn refused_forward_stays_a_dead_letter(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let to = dead_topic(&world, one_partition(), &["default"]).await?;
    bury(&orders, &[orders.message("a", 0)?]).await?;
    world.store.topics.delete(&to.descriptor).await?;
    let refusal = match forward_all(&orders, &to, &["a"]).await {
        Ok(page) => page.refusal,
        Err(error) => Some(error),
    };
    assert_eq!(refusal.map(|error| error.kind()), Some(Kind::Stale));
    assert_eq!(orders.stats().await?.dead, 1);
    let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 9).await?.dead;
    assert_eq!((dead[0].id.as_str(), dead[0].died_at), ("a", world.now()));
    let again = dead_topic(&world, one_partition(), &["default"]).await?;
    forward_all(&orders, &again, &["a"]).await?;
    assert_eq!((orders.stats().await?.dead, again.stats().await?.ready), (0, 1));
    Ok(())
}

pub(super) async fn forwarded_dead_letters_are_ordered_in_an_ordered_topic(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let to = dead_topic(&world, Settings { ordering: Ordering::Key, ..one_partition() }, &["default"]).await?;
    for id in ["c", "a", "b"] {
        bury(&orders, &[orders.message(id, 0)?]).await?;
        forward_all(&orders, &to, &[id]).await?;
    }
    let taken = to.owner().await?.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["c", "a", "b"]);
    Ok(())
}

pub(super) async fn forward_page_size_is_bounded(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let to = dead_topic(&world, Settings::default(), &["default"]).await?;
    let messages: Vec<Message> =
        (0..=RECOVER_IDS_MAX).map(|n| orders.message(&format!("m{n:06}"), 0)).collect::<Result<_>>()?;
    bury(&orders, &messages).await?;
    let names: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    assert!(forward(&orders, &to, &names).await.is_err());
    assert_eq!(orders.stats().await?.dead, names.len() as u64);
    assert_eq!(forward_all(&orders, &to, &names[1..]).await?.messages.len(), RECOVER_IDS_MAX);
    assert_eq!((orders.stats().await?.dead, orders.group_partition().partition), (1, Partition(0)));
    Ok(())
}
