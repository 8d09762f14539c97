//! Topics with ordering: what is pushed during and after an outage stands behind what was pushed before.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::time::Duration;

use dwell::broker::{Broker, ReserveRequest};
use dwell::dispatch::Decision;
use dwell::error::{Error, Result};
use dwell::message::{GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::store::Pushed;
use dwell::topic::{Ordering, Settings};
use tokio_util::sync::CancellationToken;

use super::{Dwell, Outage};
use crate::support::{Mode, Sequences, eventually};

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

fn holds(book: &Sequences) {
    let book = book.book();
    println!("{} pushed, {} came again", book.promised(), book.repeated);
    assert!(book.inversions.is_empty(), "{:?}", book.inversions);
    assert!(book.missing().is_empty(), "{:?}", book.missing());
}

#[tokio::test]
async fn under_a_load_that_never_rests_keys_keep_their_order_and_pushes_go_to_redis_again() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let topic = declare(&dwell, 2).await?;
    let (book, over, rests) = (Arc::new(Sequences::default()), CancellationToken::new(), CancellationToken::new());
    let [buffered, stored] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic.clone(), book.clone(), over.clone()));
    let producers = (0..8).map(|n| {
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
    let more = async |what: &str, count: &AtomicUsize| {
        let goal = count.load(Atomic::Relaxed) + 200;
        eventually(what, async || Ok((count.load(Atomic::Relaxed) >= goal).then_some(()))).await
    };
    for _ in 0..3 {
        more("pushes go to Redis", &stored).await?;
        outage.proxy.set(Mode::Refuse);
        more("pushes are buffered", &buffered).await?;
        outage.proxy.set(Mode::Pass);
    }
    more("pushes go to Redis again", &stored).await?;
    rests.cancel();
    for producer in producers {
        producer.await.map_err(|error| Error::bug(error.to_string()))??;
    }
    let all = || book.book().missing().is_empty();
    eventually("everything comes", async || Ok(all().then_some(()))).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}

#[tokio::test]
async fn what_an_earlier_process_left_goes_first() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    let (topic, book) = (declare(&dwell, 1).await?, Arc::new(Sequences::default()));
    outage.proxy.set(Mode::Refuse);
    for number in 0..1_200 {
        push(dwell.broker(), &topic, "a", number, &book).await?;
    }
    dwell.close().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(push(dwell.broker(), &topic, "a", 1_200, &book).await?, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    for number in 1_201..1_500 {
        push(dwell.broker(), &topic, "a", number, &book).await?;
    }
    dwell.recovered().await?;
    assert_eq!(push(dwell.broker(), &topic, "a", 1_500, &book).await?, Pushed::Stored);
    let over = CancellationToken::new();
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic, book.clone(), over.clone()));
    eventually("everything comes", async || Ok(book.book().missing().is_empty().then_some(()))).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}

#[tokio::test]
async fn a_partition_that_redis_does_not_take_keeps_its_order() -> Result<()> {
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
    eventually("others are taken", async || {
        Ok((dwell.push_one("other", "x").await?.pushed == Pushed::Stored).then_some(()))
    })
    .await?;
    for number in 700..1_400 {
        assert_eq!(push(dwell.broker(), &topic, "a", number, &book).await?, Pushed::Buffered, "{number}");
    }
    outage.redis.ask::<i64>("DEL {dwell:ledger:0}:default:z").await?;
    dwell.recovered().await?;
    push(dwell.broker(), &topic, "a", 1_400, &book).await?;
    let over = CancellationToken::new();
    let consumer = tokio::spawn(drain(dwell.broker().clone(), topic, book.clone(), over.clone()));
    eventually("everything comes", async || Ok(book.book().missing().is_empty().then_some(()))).await?;
    over.cancel();
    consumer.await.map_err(|error| Error::bug(error.to_string()))??;
    holds(&book);
    dwell.close().await
}
