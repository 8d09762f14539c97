//! Producers of vectors, that gather.

use std::collections::HashMap;
use std::sync::Arc;

use dwell_client::{Client, Error, Producer};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::lab::{Outcome, mark, text};
use crate::values::{Wrong, duration, message, wait};

type Pushing = JoinHandle<Result<Value, Error>>;

fn producer(client: &Client, options: &Value) -> Outcome<Producer> {
    let mut builder = Producer::builder(client);
    let size = |name: &str, otherwise: u64| usize::try_from(options[name].as_u64().unwrap_or(otherwise));
    if let Some(linger) = options["linger"].as_str() {
        builder = builder.linger(duration(linger)?);
    }
    builder = builder.batch(size("batch", 1_000)?).batches_at_once(size("at_once", 4)?);
    Ok(builder.buffer(size("buffer", 10_000)?, size("buffer_bytes", 32 << 20)?).build()?)
}

pub(crate) async fn gather(client: &Client, server: &str, vector: &Value, wrong: &Arc<Wrong>) -> Outcome {
    let producer = producer(client, &vector["producer"])?;
    let mut pushing: HashMap<String, Pushing> = HashMap::new();
    for step in vector["steps"].as_array().into_iter().flatten() {
        if let Some(args) = step.get("push") {
            let (producer, topic, given) = (producer.clone(), text(args, "topic"), message(args));
            let push = async move {
                let message = match given {
                    Ok(message) => message,
                    Err(error) => return Err(error.downcast::<Error>().map_or(Error::Closed, |error| *error)),
                };
                producer.push(&topic, message).await.map(|result| json!(result))
            };
            pushing.insert(text(step, "as"), begin(push).await?);
            mark("pushed").await?;
        } else if let Some(when) = step.get("wait") {
            wait(when, wrong).await?;
        } else if let Some(name) = step["cancel"].as_str() {
            pushing.get(name).ok_or("nothing to cancel")?.abort();
            mark("cancelled").await?;
        } else if step["flush"] == true {
            producer.flush().await;
        } else if step["close"] == true {
            producer.close().await;
        } else {
            let answer = pushing.remove(&text(step, "answer")).ok_or("no such push")?.await;
            compare(step, answer, server, wrong);
        }
    }
    Ok(())
}

/// Begins a push: the next one comes after it.
async fn begin(push: impl Future<Output = Result<Value, Error>> + Send + 'static) -> Outcome<Pushing> {
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let pushing = tokio::spawn(async move {
        let mut push = std::pin::pin!(push);
        // Polled once, it waits for room or for its answer.
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(push.as_mut().poll(cx))).await;
        let _ = begun.send(());
        match first {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => push.await,
        }
    });
    has_begun.await?;
    Ok(pushing)
}

fn compare(step: &Value, answer: Result<Result<Value, Error>, tokio::task::JoinError>, server: &str, wrong: &Wrong) {
    match (answer, &step["raises"]) {
        (Err(_), expected) => wrong.unless_same("raises", expected, &json!({"kind": "cancelled"})),
        (Ok(Err(error)), Value::Null) => wrong.add(format!("{}: {error}", step["answer"])),
        (Ok(Err(error)), expected) => wrong.unless_raised(expected, &error, server),
        (Ok(Ok(value)), Value::Null) => wrong.unless_same("returns", &step["returns"], &value),
        (Ok(Ok(value)), expected) => wrong.add(format!("{value}, expected {expected}")),
    }
}
