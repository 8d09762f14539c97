//! Close unpaid orders: a customer has some time to pay, and then the shop closes the order. `shop_axum.rs` is the same shop as a server.
//!
//!     cargo run --package dwell-client --features client --example shop

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dwell_client::{Bury, Client, Delivery, Error, Failure, NewMessage, Worker, terminated};

/// Stands for the database.
#[derive(Default)]
struct Orders(Mutex<HashMap<u64, &'static str>>);

impl Orders {
    /// `UPDATE orders SET state = to WHERE id = order AND state = from`.
    fn change(&self, order: u64, from: &str, to: &'static str) -> bool {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_changed = orders.get(&order).copied().unwrap_or_default() == from;
        if is_changed {
            orders.insert(order, to);
            println!("{to} order {order}");
        }
        is_changed
    }
}

/// The id and the key are made of the order, so a repeated checkout pushes nothing new.
fn name(order: u64) -> (String, String) {
    (format!("close-{order}"), format!("order-{order}"))
}

async fn checkout(client: &Client, orders: &Orders, order: u64, pay_within: Duration) -> Result<(), Error> {
    orders.change(order, "", "unpaid");
    let (id, key) = name(order);
    client.push("orders", NewMessage::json(&order)?.id(id).key(key).delay(pay_within)).await?;
    Ok(())
}

async fn pay(client: &Client, orders: &Orders, order: u64) -> Result<(), Error> {
    if !orders.change(order, "unpaid", "paid") {
        println!("order {order} cannot be paid");
        return Ok(());
    }
    match client.cancel("orders", name(order)).await {
        // The message is being delivered: the handler finds that the order is paid.
        Err(error) if error.is("conflict") || error.is("not-found") => Ok(()),
        result => result.map(drop),
    }
}

async fn close(orders: Arc<Orders>, delivery: Delivery) -> Result<(), Failure> {
    let order = delivery.json().map_err(|error| Bury::new(error.to_string()))?;
    orders.change(order, "unpaid", "closed");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let seconds = env::var("PAY_WITHIN").ok().and_then(|text| text.trim_end_matches('s').parse().ok());
    let pay_within = Duration::from_secs(seconds.unwrap_or(1_800));
    let (client, orders) = (Client::from_env()?, Arc::new(Orders::default()));
    checkout(&client, &orders, 4711, pay_within).await?;
    checkout(&client, &orders, 4712, pay_within).await?;
    pay(&client, &orders, 4711).await?;
    let worker = Worker::builder(&client, "orders").concurrency(8).build()?;
    worker.run_until(terminated(), move |delivery| close(orders.clone(), delivery)).await
}
