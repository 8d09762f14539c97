//! Plays the vectors of clients/conformance. `clients/run rust` starts it; VECTOR plays those with this in their name.

#[path = "../lab/mod.rs"]
mod lab;
mod values;
mod calls;
mod work;
mod gather;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use calls::invoke;
use dwell_client::Client;
use gather::gather;
use lab::{Outcome, failures, lab, text};
use serde_json::{Value, json};
use values::{Wrong, duration, with_payloads};
use work::work;

async fn play(begun: &Value, wrong: &Arc<Wrong>) -> Outcome {
    let vector = &begun["vector"];
    let server = text(begun, "server");
    let mut builder = Client::builder().server(&server).timeout(Duration::from_secs(10));
    builder = match vector["client"]["retry_for"].as_str() {
        Some("default") => builder,
        Some(retry_for) => builder.retry_for(duration(retry_for)?),
        None => builder.retry_for(Duration::from_secs(30)),
    };
    if vector["token"].is_string() {
        builder = builder.token_file(text(begun, "token_file"));
    }
    let client = builder.build()?;
    if !vector["worker"].is_null() {
        work(&client, &server, vector, wrong).await?;
    }
    if !vector["producer"].is_null() {
        gather(&client, &server, vector, wrong).await?;
    }
    for step in vector["calls"].as_array().into_iter().flatten() {
        let result = invoke(&client, step).await?.map(with_payloads);
        match (result, &step["raises"]) {
            (Err(error), Value::Null) => return Err(error.into()),
            (Err(error), expected) => wrong.unless_raised(expected, &error, &server),
            (Ok(value), Value::Null) => {
                wrong.unless_same("returns", &step["returns"], &value);
                let count = value.as_array().map(Vec::len);
                if step["returns_count"]
                    .as_u64()
                    .is_some_and(|expected| count.map(|count| count as u64) != Some(expected))
                {
                    wrong.add(format!("{count:?} results, expected {}", step["returns_count"]));
                }
            }
            (Ok(value), expected) => wrong.add(format!("{value}, expected {expected}")),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_vector_is_played() -> Outcome {
    let _turn = lab::turn().await;
    let vectors = lab("/vectors", json!({})).await?;
    let only = std::env::var("VECTOR").unwrap_or_default();
    let (mut failed, mut played) = (Vec::new(), 0);
    for name in vectors.as_array().into_iter().flatten().filter(|name| text(name, "name").contains(&only)) {
        let begun = lab("/vector", name.clone()).await?;
        let wrong = Arc::new(Wrong::default());
        if let Err(error) = play(&begun, &wrong).await {
            wrong.add(error.to_string());
        }
        for failure in failures(&lab("/vector/end", json!({})).await?) {
            wrong.add(failure);
        }
        played += 1;
        for why in &*wrong.0.lock().unwrap_or_else(PoisonError::into_inner) {
            failed.push(format!("{}: {why}", text(name, "name")));
        }
    }
    assert!(failed.is_empty(), "{} of {played} vectors:\n{}", failed.len(), failed.join("\n"));
    assert!(played > 0);
    println!("rust: {played} vectors");
    Ok(())
}
