//! Who caused a message: what W3C's headers say of a push comes with every delivery of it, whatever happened in between.

use serde_json::{Value, json};

use super::served::{Outcome, Served};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";

const PUSH: &str = "POST /v1/topics/orders/messages";

impl Served {
    /// Pushes with these headers.
    async fn push_from(&self, id: &str, headers: &[(&str, &str)]) -> Outcome {
        let mut push = self.request(&format!("{PUSH}?id={id}"))?;
        for (name, value) in headers {
            push = push.header(*name, *value);
        }
        assert_eq!(self.send(push.body("x")).await?.status, 201, "{headers:?}");
        Ok(())
    }

    /// The place in a trace of a message that waits.
    async fn trace_of(&self, id: &str) -> Outcome<(Option<String>, Option<String>)> {
        Ok(traces(&self.ask(&format!("GET /v1/topics/orders/messages/{id}")).await?.body))
    }
}

fn traces(message: &Value) -> (Option<String>, Option<String>) {
    let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
    (text("traceparent"), text("tracestate"))
}

fn whole() -> (Option<String>, Option<String>) {
    (Some(PARENT.to_owned()), Some(STATE.to_owned()))
}

fn parent(traceparent: &str) -> (Option<String>, Option<String>) {
    (Some(traceparent.to_owned()), None)
}

#[tokio::test]
async fn trace_context_is_kept_through_every_operation() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1, "max_attempts": 2})).await?;
    dwell.push_from("a", &[("traceparent", PARENT), ("tracestate", STATE)]).await?;
    dwell.tell("PUT /v1/topics/orders/groups/copy", json!({"copy_of": "default"})).await?;
    let reschedule = dwell.request("PATCH /v1/topics/orders/messages/a")?.json(&json!({"delay": "1s"}));
    assert_eq!(dwell.send(reschedule).await?.status, 200);

    let group = "POST /v1/topics/orders/groups/default";
    for attempt in 1..=2 {
        let delivery = dwell.reserve("orders").await?.remove(0);
        assert_eq!((&delivery["attempt"], traces(&delivery)), (&json!(attempt), whole()));
        let nack = json!({"receipts": [{"receipt": delivery["receipt"], "delay": "0s"}]});
        dwell.tell(&format!("{group}/nack"), nack).await?;
    }
    let dead = dwell.ask("GET /v1/topics/orders/groups/default/dead-letters").await?;
    assert_eq!(traces(&dead.body["dead_letters"][0]), whole(), "{dead:?}");
    dwell.tell(&format!("{group}/dead-letters/redrive"), json!({"all": true})).await?;
    assert_eq!(traces(&dwell.reserve("orders").await?[0]), whole());
    let copied = dwell.tell("POST /v1/topics/orders/groups/copy/reserve", json!({"wait": "10s"})).await?;
    assert_eq!(traces(&copied["deliveries"][0]), whole(), "{copied}");
    Ok(())
}

#[tokio::test]
async fn invalid_traceparent_header_is_ignored() -> Outcome {
    let dwell = Served::start().await?;
    let bad = [
        vec![("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01")],
        vec![("traceparent", "nonsense"), ("tracestate", STATE)],
        vec![("tracestate", STATE)],
        vec![("traceparent", PARENT), ("traceparent", OTHER)],
        vec![],
    ];
    for (n, headers) in bad.iter().enumerate() {
        dwell.push_from(&format!("bad-{n}"), headers).await?;
        assert_eq!(dwell.trace_of(&format!("bad-{n}")).await?, (None, None), "{headers:?}");
    }
    dwell.push_from("state", &[("traceparent", PARENT), ("tracestate", "no state")]).await?;
    assert_eq!(dwell.trace_of("state").await?, parent(PARENT));
    let (first, second) = STATE.split_once(',').ok_or("two entries")?;
    dwell.push_from("parts", &[("traceparent", PARENT), ("tracestate", first), ("tracestate", second)]).await?;
    assert_eq!(dwell.trace_of("parts").await?, whole());
    Ok(())
}

#[tokio::test]
async fn trace_field_of_a_batch_is_strict_and_overrides_the_header() -> Outcome {
    let dwell = Served::start().await?;
    let batch = "POST /v1/topics/orders/messages/batch";
    let own = json!({"payload": "x", "id": "own", "traceparent": OTHER});
    let none = json!({"payload": "x", "id": "none"});
    let push = dwell.request(batch)?.header("traceparent", PARENT).header("tracestate", STATE);
    assert_eq!(dwell.send(push.json(&json!({"messages": [own, none]}))).await?.status, 201);
    assert_eq!(dwell.trace_of("own").await?, parent(OTHER));
    assert_eq!(dwell.trace_of("none").await?, whole());

    let line = json!({"payload": "x", "id": "line", "traceparent": PARENT, "tracestate": STATE});
    let lines = dwell.request(batch)?.header("content-type", "application/x-ndjson").body(format!("{line}\n"));
    assert_eq!(dwell.send(lines).await?.status, 201);
    assert_eq!(dwell.trace_of("line").await?, whole());

    for (field, value) in [("traceparent", PARENT.to_uppercase()), ("tracestate", STATE.to_owned())] {
        let message = json!({"payload": "x", "id": "wrong", field: value});
        let refused = dwell.send(dwell.request(batch)?.json(&json!({"messages": [message]}))).await?;
        let detail = refused.body["detail"].as_str().unwrap_or_default();
        assert!(refused.status == 422 && detail.starts_with(&format!("`messages[0].{field}`")), "{refused:?}");
    }
    Ok(())
}
