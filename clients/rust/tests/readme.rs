//! The programs of the README do what it says. Each is here as it is printed there.

mod lab;

use std::time::Duration;

use dwell_client::{
    Bury, Client, DeadLetterFilter, DeadLetterSelector, Delivery, Failure, NewMessage, Producer, Reschedule, Retry,
    TopicSettings, Worker,
};
use lab::{Outcome, broker};
use serde::{Deserialize, Serialize};

const README: &str = include_str!("../README.md");

/// The lines of a text without their indentation.
fn plain(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_program_of_the_readme_is_played() {
    let programs: Vec<String> =
        README.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).map(plain).collect();
    let first = plain(include_str!("../examples/first_program.rs"));
    assert_eq!(programs.first(), Some(&first));
    let others = plain(include_str!("readme.rs"));
    for program in &programs[1..] {
        assert!(others.contains(program), "no test has this program of the README:\n{program}");
    }
    assert_eq!(programs.len(), 6);
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Order {
    order: u64,
}

#[tokio::test]
async fn a_producer() -> Outcome {
    let broker = broker().await?;
    let (client, order) = (broker.client(), Order { order: 4713 });
    let half_an_hour = Duration::from_secs(1800);
    let message = NewMessage::json(&order)?.id("close-4713").key("order-4713").delay(half_an_hour);
    client.push("orders", message).await?;
    client.reschedule("orders", ("close-4713", "order-4713"), Reschedule::after(3 * half_an_hour)).await?;
    client.cancel("orders", ("close-4713", "order-4713")).await?;
    assert!(client.get("orders", ("close-4713", "order-4713")).await.is_err_and(|error| error.is("not-found")));
    Ok(())
}

#[tokio::test]
async fn a_producer_that_gathers() -> Outcome {
    let broker = broker().await?;
    let client = broker.client().clone();
    let producer = Producer::new(&client)?;
    let pushed = producer.push("orders", NewMessage::text("close order 4714")).await?;
    println!("{} is {}", pushed.id, pushed.status);
    producer.close().await;
    assert!(producer.push("orders", NewMessage::text("x")).await.is_err());
    assert_eq!(client.topic("orders").await?.totals[0].counts.live(), 1);
    Ok(())
}

fn is_busy() -> bool {
    false
}

async fn close(order: Order) -> Result<(), std::io::Error> {
    match order.order {
        4713 => Ok(()),
        _ => Err(std::io::Error::other("no such order")),
    }
}

async fn work(client: Client, terminated: impl Fn() -> tokio::sync::futures::OwnedNotified) -> Outcome {
    let worker = Worker::builder(&client, "orders").concurrency(8).build()?;
    let handler = |delivery: Delivery| async move {
        let order: Order = delivery.json().map_err(|error| Bury::new(error.to_string()))?;
        if is_busy() {
            return Err(Retry::after(Duration::from_secs(60)).reason("the bank is closed").into());
        }
        close(order).await?; // also delivery.id, delivery.attempt, delivery.key(), delivery.meta("shop"), delivery.extend(…)
        Ok(())
    };
    worker.run_until(terminated(), handler).await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_and_its_dead_letters() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    client.push("orders", NewMessage::json(&Order { order: 4713 })?).await?;
    client.push("orders", NewMessage::text("no order").id("broken")).await?;
    let stop = std::sync::Arc::new(tokio::sync::Notify::new());
    let working = tokio::spawn(work(client.clone(), {
        let stop = stop.clone();
        move || stop.clone().notified_owned()
    }));
    let dead = async {
        loop {
            let totals = client.topic("orders").await?.totals;
            if totals.iter().any(|total| total.counts.dead == 1 && total.counts.live() == 0) {
                return Ok::<(), dwell_client::Error>(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), dead).await??;
    stop.notify_one();
    working.await??;
    administration(client).await
}

async fn administration(client: &Client) -> Outcome {
    client.create_topic("orders", TopicSettings::default().partitions(8)).await?;
    let mut dead_letters = client.dead_letters("orders", "default", DeadLetterFilter::default());
    assert_eq!(dead_letters.next().await.transpose()?.map(|dead| dead.id), Some("broken".to_owned()));
    let client = &lab::broker().await?;
    let client = client.client();
    client.create_topic("orders", TopicSettings::default().partitions(4).max_attempts(5)).await?;
    let mut dead_letters = client.dead_letters("orders", "default", DeadLetterFilter::default().newest_first());
    while let Some(dead_letter) = dead_letters.next().await.transpose()? {
        println!("{} is dead: {}", dead_letter.id, dead_letter.reason);
    }
    client.redrive("orders", "default", DeadLetterSelector::default().reason("max_attempts")).total().await?;
    Ok(())
}

/// As the fixture, but with the broker that is tested.
struct Broker;

impl Broker {
    async fn start() -> Outcome<dwell_client::testing::Broker> {
        broker().await
    }
}

#[tokio::test]
async fn a_test() -> Outcome {
    let broker = Broker::start().await?;
    let month = Duration::from_secs(30 * 86_400);
    broker.client().push("reminders", NewMessage::text("renew").delay(month)).await?;
    let moved = broker.advance(month).await?;
    assert_eq!(moved.due[0].messages, 1);
    Ok(())
}

/// A handler of a worker may fail with any error.
#[test]
fn every_error_is_a_failure() {
    let failure: Failure = "x".parse::<u8>().map_err(Failure::from).err().unwrap_or_else(|| Failure::new(""));
    assert_eq!(failure.class(), Some("core::num::error::ParseIntError"));
}
