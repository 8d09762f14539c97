//! The same over HTTP, and where there is no test clock.

use std::time::Duration;

use dwell::api::http::Listen;
use dwell::app::engine::{OutageOptions, RedisOptions, StoreOptions};
use dwell::app::server::{Server, ServerOptions};
use dwell::broker::Options;
use dwell::gate::access::{Scope, Scopes, Token};
use dwell::model::error::Kind;
use dwell::model::time::Timestamp;
use serde_json::json;

use crate::http::api::served::{Outcome, Served};
use crate::support::scratch;

async fn start() -> Outcome<Served> {
    Served::start_with(|options| options.test_clock = true).await
}

#[tokio::test]
async fn clients_advance_the_clock_and_get_due_messages() -> Outcome {
    let served = start().await?;
    served.tell("PUT /v1/topics/orders/cron/daily", json!({"every": "1d", "payload": "report"})).await?;
    served.tell("POST /v1/topics/orders/messages", json!({"payload": "reminder", "delay": "30d"})).await?;
    let before: Timestamp = served.ask("GET /v1/test/clock").await?.body["now"].as_str().ok_or("no time")?.parse()?;
    let moved = served.tell("POST /v1/test/clock", json!({"advance": "30d"})).await?;
    assert_eq!(moved["due"], json!([{"topic": "orders", "group": "default", "messages": 31}]));
    assert_eq!(moved["fired"], json!([{"topic": "orders", "name": "daily", "times": 30}]));
    assert_eq!(moved["timed_out"], 0);
    let after: Timestamp = moved["now"].as_str().ok_or("no time")?.parse()?;
    assert!(after.since(before) >= Duration::from_secs(30 * 86_400));
    assert!(!served.reserve("orders").await?.is_empty());
    let ready = served.ask("GET /readyz").await?;
    assert!(
        ready.body["test_clock"].as_str().is_some_and(|now| now.parse::<Timestamp>().is_ok_and(|now| now >= after))
    );
    served.tell("POST /v1/test/clock", json!({"to": after.plus(Duration::from_secs(3_600))})).await?;
    served.tell("POST /v1/test/clock", json!({"advance_ms": 1})).await?;
    Ok(())
}

#[tokio::test]
async fn clock_move_takes_exactly_one_field() -> Outcome {
    let served = start().await?;
    let cases = [
        (json!({}), "advance", "missing"),
        (json!({"advance": "1h", "to": "2999-01-01T00:00:00Z"}), "to", "exclusive"),
        (json!({"advance": "1h", "advance_ms": 5}), "advance", "exclusive"),
        (json!({"advance": "3651d"}), "advance", "range"),
        (json!({"advance": 5}), "advance", "format"),
        (json!({"advance": "-1h"}), "advance", "format"),
        (json!({"to": "2001-01-01T00:00:00Z"}), "to", "range"),
        (json!({"to": "9999-01-01T00:00:00Z"}), "to", "range"),
        (json!({"to": null}), "to", "type"),
        (json!({"forward": "1h"}), "forward", "unknown"),
    ];
    for (body, field, code) in cases {
        let answer = served.send(served.request("POST /v1/test/clock")?.json(&body)).await?;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        let error = &answer.body["errors"][0];
        assert_eq!(
            (error["pointer"].as_str(), error["code"].as_str()),
            (Some(&*format!("/{field}")), Some(code)),
            "{body}: {answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn clock_route_is_404_without_a_test_clock() -> Outcome {
    let served = Served::start().await?;
    assert_eq!(served.ask("GET /v1/test/clock").await?.status, 404);
    let answer = served.send(served.request("POST /v1/test/clock")?.json(&json!({"advance": "1h"}))).await?;
    assert_eq!((answer.status, &answer.body["type"]), (404, &json!("urn:dwell:error:not-found")));
    assert_eq!(served.ask("GET /readyz").await?.body.get("test_clock"), None);
    Ok(())
}

#[tokio::test]
async fn test_clock_is_refused_on_shared_stores_and_networks() -> Outcome {
    let dir = scratch()?;
    let store = StoreOptions::Embedded { dir: dir.path().join("store") };
    let options = |listen: Listen, store: StoreOptions| {
        let options = ServerOptions::new(listen, store, Options::default());
        ServerOptions { test_clock: true, ..options }
    };
    let redis = StoreOptions::Redis {
        redis: RedisOptions::new("redis://127.0.0.1:1"),
        outage: OutageOptions::new(dir.path().to_owned()),
    };
    let token =
        Token { name: "producer".into(), file: dir.path().join("token"), scopes: Scopes::of(&[Scope::Produce]) };
    let beyond = options(Listen::parse("0.0.0.0:0")?, store.clone());
    let tokens = ServerOptions { tokens: vec![token], ..options(Listen::ephemeral(), store) };
    let cases =
        [(options(Listen::ephemeral(), redis), "with Redis"), (beyond, "other machines"), (tokens, "access tokens")];
    for (options, why) in cases {
        let checked = options.check().err().ok_or(why)?;
        let started = Server::start(options).await.err().ok_or(why)?;
        for error in [checked, started] {
            assert!(error.kind() == Kind::Invalid && error.detail().contains(why), "{error}");
        }
    }
    Ok(())
}
