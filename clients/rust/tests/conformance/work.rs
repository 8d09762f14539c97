//! Workers of vectors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dwell_client::wire::time::parse_span;
use dwell_client::{Bury, Client, Delivery, Error, Failure, Retry, Worker};
use serde_json::{Value, json};

use crate::lab::{Outcome, mark, text};
use crate::values::{Wrong, duration, times, wait, with_payloads};

/// An error of the tests' own.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// A panic below so many calls.
#[allow(clippy::panic, reason = "it is what the worker has to catch")]
fn panic_below(depth: u64, reason: &str) {
    match depth {
        0 => panic!("{reason}"),
        _ => panic_below(std::hint::black_box(depth - 1), reason),
    }
    std::hint::black_box(depth);
}

async fn handle(script: Value, delivery: Delivery, wrong: Arc<Wrong>) -> Result<(), Failure> {
    mark("begun").await.map_err(Failure::boxed)?;
    wrong.unless_same("delivery", &script["delivery"], &with_payloads(json!(*delivery)));
    if !script["when"].is_null() {
        wait(&script["when"], &wrong).await.map_err(Failure::boxed)?;
    }
    if let Some(visibility) = script["extend"].as_str() {
        let visibility = parse_span(visibility).map_err(Failure::new)?;
        match (delivery.extend(visibility).await, &script["raises"]) {
            (Ok(is_ours), Value::Null) => wrong.unless_same("extend", &script["is_ours"], &json!(is_ours)),
            (Err(error), raises) if !raises.is_null() => wrong.unless_raised(raises, &error, ""),
            (extended, _) => wrong.add(format!("extend of {}: {extended:?}", delivery.id)),
        }
    }
    let then = &script["then"];
    if then == "lost" {
        delivery.ended().await;
        mark("lost").await.map_err(Failure::boxed)?;
        return Err(Failure::new("lost"));
    }
    mark("handled").await.map_err(Failure::boxed)?;
    if let Some(reason) = then["raise"].as_str() {
        return Err(Raised(reason.repeat(times(then).map_err(Failure::boxed)?)).into());
    }
    if let Some(reason) = then["panic"].as_str() {
        panic_below(then["depth"].as_u64().unwrap_or_default(), reason);
    }
    if let Some(after) = then["retry"].as_str() {
        let retry = Retry::after(parse_span(after).map_err(Failure::new)?);
        let retry = if then["pause_key"] == true { retry.pause_key() } else { retry };
        return Err(match then["reason"].as_str() {
            Some(reason) => retry.reason(reason).into(),
            None => retry.into(),
        });
    }
    match then["bury"].as_str() {
        Some(reason) => Err(Bury::new(reason).into()),
        None => Ok(()),
    }
}

fn worker(
    client: &Client,
    options: &Value,
    events: &Arc<Mutex<BTreeMap<&'static str, u64>>>,
) -> Outcome<Result<Worker, Error>> {
    let mut builder = Worker::builder(client, &text(options, "topic"));
    for (name, value) in options.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        builder = match name.as_str() {
            "group" => builder.group(text),
            "concurrency" => builder.concurrency(usize::try_from(value.as_u64().unwrap_or_default())?),
            "visibility" => match duration(text) {
                Ok(visibility) => builder.visibility(visibility),
                Err(error) => return Ok(Err(*error.downcast::<Error>()?)),
            },
            "max_runtime" => builder.max_runtime(duration(text)?),
            "drain" => builder.drain(duration(text)?),
            "error_details" => builder.error_details(value == true),
            _ => builder,
        };
    }
    let events = events.clone();
    let builder = builder.on_event(move |event, _| {
        *events.lock().unwrap_or_else(PoisonError::into_inner).entry(event.as_str()).or_default() += 1;
    });
    Ok(builder.build())
}

pub(crate) async fn work(client: &Client, server: &str, vector: &Value, wrong: &Arc<Wrong>) -> Outcome {
    let events = Arc::default();
    let worker = match worker(client, &vector["worker"], &events)? {
        Ok(worker) => worker,
        Err(error) => {
            wrong.unless_raised(&vector["raises"], &error, server);
            return Ok(());
        }
    };
    let (handlers, seen) = (vector["handlers"].clone(), wrong.clone());
    let running = {
        let worker = worker.clone();
        tokio::spawn(async move {
            worker.run(move |delivery| handle(handlers[&delivery.id].clone(), delivery, seen.clone())).await
        })
    };
    if !vector["stop"].is_null() {
        wait(&vector["stop"]["when"], wrong).await?;
        mark("stopping").await?;
        worker.stop();
    }
    let result = running.await?;
    let stats = json!(worker.stats());
    wrong.unless_same("stats", &vector["stats"], &stats);
    for (name, count) in &*events.lock().unwrap_or_else(PoisonError::into_inner) {
        if *name != "settled" && stats[name] != *count {
            wrong.add(format!("{count} events {name}, and stats have {}", stats[name]));
        }
    }
    match (result, &vector["raises"]) {
        (Ok(()), Value::Null) => {}
        (Err(error), expected) if !expected.is_null() => wrong.unless_raised(expected, &error, server),
        (result, expected) => wrong.add(format!("{result:?}, expected {expected}")),
    }
    Ok(())
}
