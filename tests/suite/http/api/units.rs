//! Durations have a unit, times are milliseconds: a number that could mean something else is refused.

use std::time::Duration;

use dwell::model::time::Timestamp;
use serde_json::json;

use super::served::{Outcome, Served};

/// The detail of the 422 that answers a request.
async fn refusal(dwell: &Served, line: &str, body: serde_json::Value) -> Outcome<String> {
    let request = dwell.request(line)?;
    let answer = dwell.send(if body.is_null() { request.body("x") } else { request.json(&body) }).await?;
    assert_eq!(answer.status, 422, "{line} {body}: {answer:?}");
    Ok(answer.body["detail"].as_str().unwrap_or_default().to_owned())
}

/// Every request with a duration, and the field that holds it.
const DURATIONS: [(&str, &str, &str); 18] = [
    ("PUT /v1/topics/orders", "visibility_timeout", ""),
    ("PUT /v1/topics/orders", "dedup_window", ""),
    ("PUT /v1/topics/orders", "ttl", ""),
    ("PUT /v1/topics/orders", "dead_max_age", ""),
    ("PATCH /v1/topics/orders/messages/a", "delay", ""),
    ("POST /v1/topics/orders/groups/default/reserve", "wait", ""),
    ("POST /v1/topics/orders/groups/default/reserve", "visibility_timeout", ""),
    ("POST /v1/topics/orders/groups/default/reserve", "min_age", ""),
    ("POST /v1/topics/orders/groups/default/reserve", "linger", r#""max": 5, "min": 2"#),
    ("POST /v1/topics/orders/groups/default/extend", "visibility_timeout", r#""receipts": ["a"]"#),
    ("POST /v1/topics/orders/groups/default/pause", "for", ""),
    ("POST /v1/topics/orders/groups/default/dead-letters/redrive", "older_than", ""),
    ("POST /v1/topics/orders/groups/default/dead-letters/redrive", "younger_than", ""),
    (
        "POST /v1/topics/orders/groups/default/bulk",
        "by",
        r#""from": "2026-01-02T00:00:00Z", "to": "2026-01-02T01:00:00Z", "action": "postpone""#,
    ),
    ("PUT /v1/topics/orders/cron/nightly", "every", r#""payload": "x""#),
    ("PUT /v1/topics/orders/cron/nightly", "ttl", r#""payload": "x", "every": "1h""#),
    ("POST /v1/topics/orders/groups/default/nack", "delay", "[item]"),
    ("POST /v1/topics/orders/messages/batch", "ttl", "[item]"),
];

/// A body of one of [`DURATIONS`] with these fields beside the required ones.
fn body(line: &str, required: &str, fields: &str) -> Outcome<serde_json::Value> {
    let text = match (required, line.ends_with("nack")) {
        ("[item]", true) => format!(r#"{{"receipts": [{{"receipt": "a", {fields}}}]}}"#),
        ("[item]", false) => format!(r#"{{"messages": [{{"payload": "a", {fields}}}]}}"#),
        ("", _) => format!("{{{fields}}}"),
        (required, _) => format!("{{{required}, {fields}}}"),
    };
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test]
async fn duration_without_unit_is_refused_in_every_body() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    for (line, field, required) in DURATIONS {
        for (value, number) in [("30", "30"), ("\"30\"", "30"), ("0", "0"), ("1.5", "1.5")] {
            let said = refusal(&dwell, line, body(line, required, &format!(r#""{field}": {value}"#))?).await?;
            let wanted = format!("{field}`: {number} has no unit; write \"{number}s\" or \"{number}ms\"");
            assert!(said.contains(&wanted), "{line} {value}: {said}");
        }
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn duration_in_milliseconds_has_a_field_with_the_unit_in_its_name() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    for (line, field, required) in DURATIONS {
        let both = body(line, required, &format!(r#""{field}": "30s", "{field}_ms": 30000"#))?;
        let said = refusal(&dwell, line, both).await?;
        assert!(said.contains(&format!("{field}`: is given together with `{field}_ms`")), "{line}: {said}");
        for wrong in ["\"30s\"", "-1", "1.5"] {
            let said = refusal(&dwell, line, body(line, required, &format!(r#""{field}_ms": {wrong}"#))?).await?;
            assert!(said.contains(&format!("{field}_ms`: ")), "{line} {wrong}: {said}");
            assert!(said.contains("a whole number of milliseconds"), "{line} {wrong}: {said}");
        }
        let alone = body(line, required, &format!(r#""{field}_ms": 86400000000000"#))?;
        let said = dwell.send(dwell.request(line)?.json(&alone)).await?;
        assert!(!said.body.to_string().contains("unknown field"), "{line}: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn duration_without_unit_is_refused_in_every_query() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let group = "/v1/topics/orders/groups/default";
    let queries = [
        ("POST /v1/topics/orders/messages".to_owned(), "delay"),
        ("POST /v1/topics/orders/messages".to_owned(), "ttl"),
        (format!("GET {group}/forecast"), "step"),
        (format!("GET {group}/dead-letters"), "older_than"),
        (format!("GET {group}/dead-letters"), "younger_than"),
    ];
    for (line, name) in queries {
        let said = refusal(&dwell, &format!("{line}?{name}=30"), json!(null)).await?;
        assert_eq!(said, format!("`{name}`: 30 has no unit; write \"30s\" or \"30ms\""), "{line}");
        let said = refusal(&dwell, &format!("{line}?{name}=30s&{name}_ms=30000"), json!(null)).await?;
        assert_eq!(said, format!("`{name}`: is given together with `{name}_ms`; give one of them"), "{line}");
        let said = refusal(&dwell, &format!("{line}?{name}_ms=30s"), json!(null)).await?;
        assert_eq!(said, format!("`{name}_ms`: \"30s\" is not a whole number of milliseconds, as in 30000"), "{line}");
    }
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    // The clock of the story goes on while a push is answered.
    let due = async |query: &str| -> Outcome {
        let pushed_at = dwell.now();
        let push = dwell.request(&format!("POST /v1/topics/orders/messages?{query}"))?.body("x");
        let due_at: Timestamp = dwell.send(push).await?.body["due_at"].as_str().ok_or("no due time")?.parse()?;
        assert!(due_at >= pushed_at.plus(Duration::from_secs(90)), "{query}");
        assert!(due_at <= dwell.now().plus(Duration::from_secs(90)), "{query}");
        Ok(())
    };
    due("delay_ms=90000").await?;
    due("delay=90s").await?;
    Ok(())
}

#[tokio::test]
async fn settings_are_answered_in_the_form_that_is_accepted() -> Outcome {
    let dwell = Served::start().await?;
    let backoff = json!({"kind": "exponential", "initial": "2s", "max_ms": 60000, "factor": 2.0, "jitter": 0.0});
    let asked = json!({"visibility_timeout": "1m", "dedup_window_ms": 5000, "ttl": "1h", "dead_max_age": "1d", "backoff": backoff});
    let made = dwell.tell("PUT /v1/topics/orders", asked).await?["settings"].clone();
    let numbers =
        ["visibility_timeout_ms", "dedup_window_ms", "ttl_ms", "dead_max_age_ms"].map(|name| made[name].as_u64());
    assert_eq!(numbers, [Some(60_000), Some(5_000), Some(3_600_000), Some(86_400_000)], "{made}");
    let backoff = json!({"kind": "exponential", "initial_ms": 2000, "max_ms": 60000, "factor": 2.0, "jitter": 0.0});
    assert_eq!(made["backoff"], backoff);
    assert_eq!(made.get("ttl"), None);
    assert_eq!(dwell.ask("GET /v1/topics/orders").await?.body["settings"], made);
    assert_eq!(dwell.tell("PUT /v1/topics/orders", made.clone()).await?["settings"], made);
    assert_eq!(dwell.tell("PUT /v1/topics/other", made.clone()).await?["settings"], made);
    let ladder = json!({"backoff": {"kind": "ladder", "steps": ["1s", "1m"]}});
    let made = dwell.tell("PUT /v1/topics/orders", ladder).await?["settings"].clone();
    assert_eq!(made["backoff"], json!({"kind": "ladder", "steps_ms": [1000, 60000]}));
    assert_eq!(dwell.tell("PUT /v1/topics/orders", made.clone()).await?["settings"], made);
    let wrong = json!({"backoff": {"kind": "ladder", "steps": [5]}});
    assert!(refusal(&dwell, "PUT /v1/topics/orders", wrong).await?.contains("5 has no unit"));
    Ok(())
}

#[tokio::test]
async fn durations_in_answers_are_numbers_with_the_unit_in_the_name() -> Outcome {
    let dwell = Served::start().await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?;
    dwell.pass(Duration::from_secs(2));
    let topic = dwell.ask("GET /v1/topics/orders").await?.body;
    assert!(topic["totals"][0]["oldest_ready_age_ms"].as_u64().is_some_and(|age| age >= 2_000), "{topic}");
    assert_eq!(topic["totals"][0].get("oldest_ready_age"), None);
    let forecast = dwell.ask("GET /v1/topics/orders/groups/default/forecast?step=1h").await?.body;
    assert_eq!(forecast["step_ms"], 3_600_000, "{forecast}");
    let schedule = json!({"every": "15m", "ttl_ms": 60000, "payload": "x"});
    let made = dwell.tell("PUT /v1/topics/orders/cron/often", schedule).await?;
    assert_eq!((&made["every_ms"], &made["ttl_ms"]), (&json!(900_000), &json!(60_000)), "{made}");
    Ok(())
}

#[tokio::test]
async fn time_that_looks_like_seconds_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let (seconds, said) = (1_800_000_000_u64, "`due_at`: 1800000000 looks like seconds; this takes milliseconds");
    let push = format!("POST /v1/topics/orders/messages?due_at={seconds}");
    assert_eq!(refusal(&dwell, &push, json!(null)).await?, said);
    let change = "PATCH /v1/topics/orders/messages/a";
    assert!(refusal(&dwell, change, json!({"due_at": seconds})).await?.starts_with(said));
    let batch = json!({"messages": [{"payload": "a", "due_at": seconds}]});
    let told = refusal(&dwell, "POST /v1/topics/orders/messages/batch", batch).await?;
    assert!(told.contains("messages[0].due_at`: 1800000000 looks like seconds"), "{told}");
    let list = format!("GET /v1/topics/orders/messages?from={seconds}");
    assert!(refusal(&dwell, &list, json!(null)).await?.contains("looks like seconds"));
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn past_due_time_is_now_or_refused_as_configured() -> Outcome {
    let dwell = Served::start().await?;
    dwell.ask("PUT /v1/topics/orders").await?;
    let (push, past) = ("POST /v1/topics/orders/messages", "due_at=2001-01-01T00:00:00Z");
    let said = refusal(&dwell, &format!("{push}?{past}&past=reject"), json!(null)).await?;
    assert!(said.starts_with("`due_at`: 2001-01-01T00:00:00.000Z is in the past"), "{said}");
    let said = refusal(&dwell, &format!("{push}?past=never"), json!(null)).await?;
    assert!(said.starts_with("`past`: \"never\" is none of now, reject"), "{said}");
    let batch = json!({"messages": [{"payload": "a", "due_at": "2001-01-01T00:00:00Z", "past": "reject"}]});
    let said = refusal(&dwell, "POST /v1/topics/orders/messages/batch", batch).await?;
    assert!(said.starts_with("`messages[0].due_at`: 2001-01-01"), "{said}");
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    for query in [past.to_owned(), format!("id=b&{past}&past=now"), "id=a&delay=1h&past=reject".to_owned()] {
        let pushed = dwell.send(dwell.request(&format!("{push}?{query}"))?.body("x")).await?;
        assert_eq!(pushed.status, 201, "{query}: {pushed:?}");
    }
    let change = json!({"due_at": "2001-01-01T00:00:00Z", "past": "reject"});
    let said = refusal(&dwell, "PATCH /v1/topics/orders/messages/a", change).await?;
    assert!(said.starts_with("`due_at`: 2001-01-01"), "{said}");
    assert_eq!(dwell.counts("orders").await?, [1, 2, 0, 0]);
    Ok(())
}
