//! Close unpaid orders: a customer has some time to pay, and then the shop closes the order. A server with axum, and the worker beside it
//! in the same program:
//!
//!     PORT=8080 cargo run --package dwell-client --features client --example shop_axum
//!     curl -X POST http://127.0.0.1:8080/orders/4711
//!     curl -X POST http://127.0.0.1:8080/orders/4711/pay

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use dwell_client::{Bury, Client, Delivery, Error, Failure, NewMessage, Worker, terminated};
use tokio::net::TcpListener;

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

#[derive(Clone)]
struct Shop {
    client: Client,
    orders: Arc<Orders>,
    pay_within: Duration,
}

/// The id and the key are made of the order, so a repeated checkout pushes nothing new.
fn name(order: u64) -> (String, String) {
    (format!("close-{order}"), format!("order-{order}"))
}

fn unavailable(error: Error) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

async fn checkout(State(shop): State<Shop>, Path(order): Path<u64>) -> Result<StatusCode, (StatusCode, String)> {
    shop.orders.change(order, "", "unpaid");
    let (id, key) = name(order);
    let message = NewMessage::json(&order).map_err(unavailable)?.id(id).key(key).delay(shop.pay_within);
    shop.client.push("orders", message).await.map_err(unavailable)?;
    Ok(StatusCode::CREATED)
}

async fn pay(State(shop): State<Shop>, Path(order): Path<u64>) -> Result<StatusCode, (StatusCode, String)> {
    if !shop.orders.change(order, "unpaid", "paid") {
        return Err((StatusCode::CONFLICT, format!("order {order} cannot be paid")));
    }
    match shop.client.cancel("orders", name(order)).await {
        Ok(_) => Ok(StatusCode::OK),
        // The message is being delivered: the handler finds that the order is paid.
        Err(error) if error.is("conflict") || error.is("not-found") => Ok(StatusCode::OK),
        Err(error) => Err(unavailable(error)),
    }
}

async fn close(orders: Arc<Orders>, delivery: Delivery) -> Result<(), Failure> {
    let order = delivery.json().map_err(|error| Bury::new(error.to_string()))?;
    orders.change(order, "unpaid", "closed");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = env::var("PAY_WITHIN").ok().and_then(|text| text.trim_end_matches('s').parse().ok());
    let pay_within = Duration::from_secs(seconds.unwrap_or(1_800));
    let shop = Shop { client: Client::from_env()?, orders: Arc::default(), pay_within };
    let worker = Worker::builder(&shop.client, "orders").concurrency(8).build()?;
    let orders = shop.orders.clone();
    let router =
        Router::new().route("/orders/{order}", post(checkout)).route("/orders/{order}/pay", post(pay)).with_state(shop);
    let port = env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let serving = async { axum::serve(listener, router).with_graceful_shutdown(terminated()).await };
    let working = worker.run_until(terminated(), move |delivery| close(orders.clone(), delivery));
    let (served, worked) = tokio::join!(serving, working);
    served?;
    Ok(worked?)
}
