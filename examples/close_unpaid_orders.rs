//! A shop closes unpaid orders: `cargo run --example close_unpaid_orders`.
//!
//! The whole of dwell in one process, on the embedded store. Each order is closed a while after it was made (30 minutes in
//! a shop, less than a second here), unless it is paid: then its closing is cancelled. A callback that fails is tried
//! again. With `REDIS_URL` set it runs on that Redis, beside any number of others.

use std::time::Duration;

use dwell::app::embed::Dwell;
use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use dwell::broker::Options;
use dwell::model::error::Result;
use dwell::model::message::{Key, MessageId, NewMessage};
use dwell::store::Fate;

#[tokio::main]
async fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("dwell-example-{}", std::process::id()));
    let store = match std::env::var("REDIS_URL") {
        Ok(url) => StoreOptions::Redis {
            redis: RedisOptions { prefix: format!("dwell-example-{}", std::process::id()), ..RedisOptions::new(url) },
            outage: OutageOptions::new(&dir),
        },
        Err(_) => StoreOptions::Embedded { dir: dir.clone() },
    };
    let dwell = Dwell::open(store, Options::default()).await?;
    let producer = dwell.producer("orders")?;
    for number in 1..=5 {
        // The id makes the push repeatable, the key keeps everything about an order in one partition.
        let message = NewMessage::new(format!("close order {number}"))
            .id(MessageId::new(format!("close-{number}"))?)
            .key(Key::new(format!("order-{number}"))?)
            .after(Duration::from_millis(200 * number));
        let outcome = producer.push(message).await?;
        println!("pushed {}, due {}", outcome.id, outcome.due_at);
    }

    // Two customers pay. The id of the closing follows from the order, so nothing had to be remembered.
    for number in [2, 4] {
        let (id, key) = (MessageId::new(format!("close-{number}"))?, Key::new(format!("order-{number}"))?);
        let cancelled = producer.cancel(&id, Some(&key)).await?;
        match cancelled.fates.has(Fate::Done) {
            true => println!("order {number} is paid: {id} is cancelled"),
            // Somebody is closing it, or has: now it is up to the shop to undo that.
            false => println!("order {number} is paid too late: {:?}", cancelled.fates),
        }
    }

    let mut consumer = dwell.consumer("orders", "default")?;
    let mut closed = 0;
    while closed < 3 {
        let Some(received) = consumer.next().await? else { break };
        let delivery = received.delivery();
        let (id, attempt, lateness) = (delivery.message.id.clone(), delivery.attempt, delivery.lateness);
        println!("{id}: attempt {attempt}, {} ms late", lateness.as_millis());
        let settled = if id.as_str() == "close-3" && attempt == 1 {
            received.nack(Some(Duration::from_millis(300)), "the payment service is busy").await
        } else {
            closed += 1;
            received.ack().await
        };
        settled.map_err(|unsettled| unsettled.error)?;
    }
    let topic = "orders".parse()?;
    dwell.broker().delete_topic(&topic).await?;
    dwell.close().await?;
    // The example leaves nothing behind.
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
