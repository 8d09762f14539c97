//! Topics with ordering: what is pushed during and after an outage stands behind what was pushed before.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::time::{Duration, Instant};

use dwell::broker::{Broker, ReserveRequest};
use dwell::delivery::Decision;
use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::topic::{Ordering, Settings};
use dwell::store::Pushed;
use tokio_util::sync::CancellationToken;

use super::{Dwell, Outage, TIMEOUT};
use crate::support::{Mode, PATIENCE, Sequences, eventually};

/// A topic in which the messages of a key come one after the other.
async fn declare(dwell: &Dwell, partitions: u16) -> Result<TopicName> {
    let topic = TopicName::new("ledger")?;
    let partitions = NonZeroU16::new(partitions).ok_or_else(|| Error::bug("no partitions"))?;
    let settings = Settings { partitions, ordering: Ordering::Key, ..Settings::default() };
    dwell.broker().declare(topic.clone(), settings).await?;
    Ok(topic)
}

fn message(key: &str, number: u64) -> Result<NewMessage> {
    let id = format!("{key}-{number}");
    Ok(NewMessage::new(id.clone()).id(MessageId::new(&id)?).key(Key::new(key)?))
}

/// Pushes one message of a key, which is promised.
async fn push(broker: &Broker, topic: &TopicName, key: &str, number: u64, book: &Sequences) -> Result<Pushed> {
    let pushed = broker.push(topic, message(key, number)?).await?.pushed;
    book.pushed(&format!("{key}-{number}"));
    Ok(pushed)
}

/// Takes and acks all that comes until there is nothing more to come.
async fn drain(broker: Broker, topic: TopicName, book: Arc<Sequences>, over: CancellationToken) -> Result<()> {
    let group = GroupName::standard();
    while !over.is_cancelled() {
        let request = ReserveRequest { max: 100, wait: Duration::from_millis(200), visibility_timeout: None };
        let Ok(deliveries) = broker.reserve(&topic, &group, request).await else { continue };
        deliveries.iter().for_each(|delivery| book.came(delivery.message.id.as_str()));
        let acks: Vec<_> = deliveries.iter().map(|d| (d.receipt.to_string(), Decision::Ack)).collect();
        if !acks.is_empty() {
            broker.settle(&topic, &group, acks).await?;
        }
    }
    Ok(())
}

/// Waits until everything has come that was promised.
async fn comes(book: &Sequences) -> Result<()> {
    let came = || book.book().came.len();
    while came() < book.book().promised() {
        let before = came();
        eventually("messages come", async || Ok((came() > before).then_some(()))).await?;
    }
    Ok(())
}

fn holds(book: &Sequences) {
    let book = book.book();
    assert!(book.inversions.is_empty(), "{:?}", book.inversions);
    assert!(book.missing().is_empty(), "{:?}", book.missing());
}

#[tokio::test]
async fn replay_under_constant_load_keeps_key_order_and_ends() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let topic = declare(&dwell, 2).await?;
    let (book, over, rests) = (Arc::new(Sequences::default()), CancellationToken::new(), CancellationToken::new());
    let [buffered, stored] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic.clone(), book.clone(), over.clone()));
    let producers = (0..64).map(|n| {
        let (broker, topic, book, rests) = (dwell.broker().clone(), topic.clone(), book.clone(), rests.clone());
        let (buffered, stored) = (buffered.clone(), stored.clone());
        tokio::spawn(async move {
            let key = format!("k{n}");
            for number in 0.. {
                if rests.is_cancelled() {
                    break;
                }
                let count = if push(&broker, &topic, &key, number, &book).await? == Pushed::Buffered {
                    &buffered
                } else {
                    &stored
                };
                count.fetch_add(1, Atomic::Relaxed);
            }
            Ok::<_, Error>(())
        })
    });
    let producers: Vec<_> = producers.collect();
    let more = async |what: &str, count: &AtomicUsize, pushes: usize| {
        let (goal, began) = (count.load(Atomic::Relaxed) + pushes, Instant::now());
        while count.load(Atomic::Relaxed) < goal {
            assert!(began.elapsed() < PATIENCE, "{what}, too few of them");
            let before = count.load(Atomic::Relaxed);
            eventually(what, async || Ok((count.load(Atomic::Relaxed) > before).then_some(()))).await?;
        }
        Ok::<_, Error>(())
    };
    for _ in 0..2 {
        more("pushes go to Redis", &stored, 400).await?;
        outage.proxy.set(Mode::Refuse);
        // Several pages of the log, with a few messages of each key in a page.
        more("pushes are buffered", &buffered, 1_800).await?;
        outage.proxy.set(Mode::Pass);
    }
    more("pushes go to Redis again", &stored, 400).await?;
    rests.cancel();
    for producer in producers {
        producer.await.map_err(|error| Error::bug(error.to_string()))??;
    }
    comes(&book).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}

#[tokio::test]
async fn records_of_an_earlier_process_are_replayed_first() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let (topic, book) = (declare(&dwell, 1).await?, Arc::new(Sequences::default()));
    let keys: Vec<String> = (0..150).map(|n| format!("k{n}")).collect();
    let round = async |dwell: &Dwell, number: u64| {
        let mut last = Pushed::Stored;
        for key in &keys {
            last = push(dwell.broker(), &topic, key, number, &book).await?;
        }
        Ok::<_, Error>(last)
    };
    outage.proxy.set(Mode::Refuse);
    for number in 0..12 {
        round(&dwell, number).await?;
    }
    dwell.close().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(round(&dwell, 12).await?, Pushed::Buffered);
    let over = CancellationToken::new();
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic.clone(), book.clone(), over.clone()));
    outage.proxy.set(Mode::Pass);
    for number in 13..17 {
        round(&dwell, number).await?;
    }
    dwell.recovered().await?;
    assert_eq!(round(&dwell, 17).await?, Pushed::Stored);
    comes(&book).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}

/// Most of the log is of another topic, so that pushes go to Redis again long before it is empty.
async fn one_at_the_end_of_the_log(restart: bool) -> Result<()> {
    // A push that waits for the end of the log gives up before the log is empty.
    let outage = Outage::begin().await?.hasty();
    let mut dwell = outage.dwell().await?;
    let (topic, book) = (declare(&dwell, 1).await?, Arc::new(Sequences::default()));
    dwell.push_one("other", "first").await?;
    outage.proxy.set(Mode::Refuse);
    let others: Vec<String> = (0..20_000).map(|n| format!("other-{n}")).collect();
    for page in others.chunks(1_000) {
        let page: Vec<&str> = page.iter().map(String::as_str).collect();
        dwell.push("other", &page, Duration::ZERO).await?;
    }
    assert_eq!(push(dwell.broker(), &topic, "a", 0, &book).await?, Pushed::Buffered);
    if restart {
        dwell.close().await?;
        dwell = outage.dwell().await?;
    }
    let over = CancellationToken::new();
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic.clone(), book.clone(), over.clone()));
    outage.proxy.set(Mode::Pass);
    // Each under an id of its own: one that the log holds goes behind it.
    let tries = AtomicUsize::new(0);
    eventually("pushes of others go to Redis", async || {
        let id = format!("last-{}", tries.fetch_add(1, Atomic::Relaxed));
        Ok((dwell.push_one("other", &id).await?.pushed == Pushed::Stored).then_some(()))
    })
    .await?;
    assert_eq!(push(dwell.broker(), &topic, "a", 1, &book).await?, Pushed::Buffered);
    comes(&book).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}

#[tokio::test]
async fn push_follows_the_tail_of_a_long_log() -> Result<()> {
    one_at_the_end_of_the_log(false).await
}

#[tokio::test]
async fn push_follows_the_tail_of_an_inherited_log() -> Result<()> {
    one_at_the_end_of_the_log(true).await
}

#[tokio::test]
async fn rejected_partition_keeps_its_order() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let (topic, book) = (declare(&dwell, 1).await?, Arc::new(Sequences::default()));
    outage.proxy.set(Mode::Refuse);
    for number in 0..700 {
        push(dwell.broker(), &topic, "a", number, &book).await?;
    }
    // Redis comes back, and someone has put something else in the place of the zset.
    outage.redis.ask::<String>("SET {dwell:ledger:0}:default:z nonsense").await?;
    outage.proxy.set(Mode::Pass);
    let tries = AtomicUsize::new(0);
    eventually("others are taken", async || {
        let id = format!("x-{}", tries.fetch_add(1, Atomic::Relaxed));
        Ok((dwell.push_one("other", &id).await?.pushed == Pushed::Stored).then_some(()))
    })
    .await?;
    let began = Instant::now();
    for number in 700..1_400 {
        assert_eq!(push(dwell.broker(), &topic, "a", number, &book).await?, Pushed::Buffered, "{number}");
    }
    // To wait for what cannot go on would be in vain.
    assert!(began.elapsed() < TIMEOUT * 100, "{:?}", began.elapsed());
    outage.redis.ask::<i64>("DEL {dwell:ledger:0}:default:z").await?;
    dwell.recovered().await?;
    push(dwell.broker(), &topic, "a", 1_400, &book).await?;
    let over = CancellationToken::new();
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic, book.clone(), over.clone()));
    comes(&book).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}
