//! Refused bodies: every error is listed, in the words of the protocol.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::OF_SERDE;
use crate::api::http::{router, tests};
use crate::platform::clock::thread_cpu_time;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PUSH: &str = "POST /v1/topics/orders/messages";
const BATCH: &str = "POST /v1/topics/orders/messages/batch";
const TOPIC: &str = "PUT /v1/topics/orders";
const GROUP: &str = "PUT /v1/topics/orders/groups/audit";
const PAUSE: &str = "POST /v1/topics/orders/groups/audit/pause";
const MOVE: &str = "POST /v1/topics/orders/move";
const RESERVE: &str = "POST /v1/topics/orders/groups/default/reserve";
const ACK: &str = "POST /v1/topics/orders/groups/default/ack";
const NACK: &str = "POST /v1/topics/orders/groups/default/nack";
const EXTEND: &str = "POST /v1/topics/orders/groups/default/extend";
const RESCHEDULE: &str = "PATCH /v1/topics/orders/messages/a";
const WINDOW: &str = "POST /v1/topics/orders/groups/default/bulk";
const SCHEDULE: &str = "PUT /v1/topics/orders/cron/nightly";
const REDRIVE: &str = "POST /v1/topics/orders/groups/default/dead-letters/redrive";
const PURGE: &str = "POST /v1/topics/orders/groups/default/dead-letters/purge";

thread_local! {
    static ROUTER: Router = tests::app().map(router).unwrap_or_default();
}

async fn send(line: &str, content_type: &str, body: &str) -> Result<(u16, Value), Box<dyn std::error::Error>> {
    let (method, target) = line.split_once(' ').ok_or("no target")?;
    let request = Request::builder().method(method).uri(target).header("host", "localhost:7373");
    let request = request.header("content-type", content_type).body(Body::from(body.to_owned()))?;
    let response = ROUTER.with(Clone::clone).oneshot(request).await?;
    let status = response.status().as_u16();
    Ok((status, serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?))
}

fn faults(problem: &Value) -> Vec<String> {
    let errors = problem["errors"].as_array().into_iter().flatten();
    errors.map(|e| format!("{} {}", e["pointer"].as_str().unwrap_or("?"), e["code"].as_str().unwrap_or("?"))).collect()
}

const CASES: &[(&str, &str, &[&str])] = &[
    (PUSH, r#"{"payload": {"order": 1}}"#, &["/payload type"]),
    (PUSH, r#"{"payload": null, "key": 7, "dely": "1s"}"#, &["/payload type", "/key type", "/dely unknown"]),
    (PUSH, "{}", &["/payload missing"]),
    (PUSH, r#"{"ttl": "0s", "priority": 10}"#, &["/priority range", "/payload missing", "/ttl range"]),
    (
        PUSH,
        r#"{"payload": "a", "payload_json": 1, "delay": "1s", "delay_ms": 5}"#,
        &["/payload exclusive", "/delay exclusive"],
    ),
    (PUSH, r#"{"payload": "a", "delay": "soon", "due_at": "2026-01-02T03:04:05Z"}"#, &["/delay format"]),
    (
        PUSH,
        r#"{"payload": "a", "delay": 5, "ttl": -5, "delay_ms": "5", "max_attempts": 1.5}"#,
        &["/delay format", "/ttl format", "/delay_ms type", "/max_attempts type"],
    ),
    (PUSH, r#"{"payload": "a", "delay": "1s", "delay": "2s"}"#, &["/delay repeated"]),
    (
        PUSH,
        r#"{"payload": "a", "due_at": 5, "past": "maybe", "conflict": "win"}"#,
        &["/due_at format", "/past choice", "/conflict choice"],
    ),
    (PUSH, r#"{"payload": "a", "due_at": "2016-01-02T03:04:05Z", "past": "reject"}"#, &["/due_at range"]),
    (
        PUSH,
        r#"{"payload": "a", "delay": "3651d", "max_attempts": 1001, "content_type": "é"}"#,
        &["/max_attempts range", "/content_type format", "/delay range"],
    ),
    (
        PUSH,
        r#"{"payload": "a", "id": "a b", "key": "\u0000", "payload_base64": "?"}"#,
        &["/id format", "/key format", "/payload_base64 format", "/payload exclusive"],
    ),
    (PUSH, r#"{"payload": "a", "id": "nightly@2026-01-02T03:00:00.000Z"}"#, &["/id format"]),
    (PUSH, r#"{"payload": "a", "meta": {"a": 1, "b": "2", "b": "3"}}"#, &["/meta/a type", "/meta/b repeated"]),
    (
        PUSH,
        r#"{"payload": "a", "meta": {"A/b": "1"}, "traceparent": "0", "tracestate": ""}"#,
        &["/traceparent format", "/meta format"],
    ),
    (PUSH, r#"{"payload": "a", "tracestate": "a=b"}"#, &["/tracestate exclusive"]),
    (PUSH, "[1]", &[" type"]),
    (PUSH, "7", &[" type"]),
    (BATCH, "{}", &["/messages missing"]),
    (BATCH, r#"{"messages": []}"#, &["/messages range"]),
    (BATCH, r#"{"messages": {"payload": "a"}, "more": 1}"#, &["/messages type", "/more unknown"]),
    (
        BATCH,
        r#"{"messages": [{"payload": "a"}, {"dealy": "1s"}, 7, {"payload": "a", "ttl": "0s"}]}"#,
        &["/messages/1/dealy unknown", "/messages/2 type", "/messages/1/payload missing", "/messages/3/ttl range"],
    ),
    (
        TOPIC,
        r#"{"partitions": 0, "visibility_timeout": "1ms", "ordering": "fifo", "retries": 3}"#,
        &["/partitions range", "/ordering choice", "/retries unknown", "/visibility_timeout range"],
    ),
    (
        TOPIC,
        r#"{"ttl": "1h", "ttl_ms": 5, "dedup_window": "8d", "dead_max_age": "9999d"}"#,
        &["/ttl exclusive", "/dedup_window range", "/dead_max_age range"],
    ),
    (
        TOPIC,
        r#"{"backoff": {"kind": "exponential", "initial": "1s", "max": "x", "factor": 0, "jitter": "a", "steps": []}}"#,
        &["/backoff/max format", "/backoff/factor range", "/backoff/jitter type", "/backoff/steps unknown"],
    ),
    (TOPIC, r#"{"backoff": {"kind": "ladder"}}"#, &["/backoff format"]),
    (TOPIC, r#"{"backoff": {"kind": "ladder", "steps": []}}"#, &["/backoff/steps range"]),
    (
        TOPIC,
        r#"{"backoff": {"kind": "linear"}, "max_attempts": 1001}"#,
        &["/backoff/kind choice", "/max_attempts range"],
    ),
    (TOPIC, r#"{"backoff": "1s"}"#, &["/backoff type"]),
    (
        GROUP,
        r#"{"rate": 0.0001, "max_in_flight": -1, "copy_of": "a b"}"#,
        &["/rate format", "/max_in_flight range", "/copy_of format"],
    ),
    (GROUP, r#"{"rate": "10", "copy": "a"}"#, &["/rate type", "/copy unknown"]),
    (PAUSE, r#"{"for": "1h", "until": "2026-01-02T03:04:05Z"}"#, &["/for exclusive"]),
    (PAUSE, r#"{"for": 5, "until": "later"}"#, &["/for format", "/until format"]),
    (MOVE, r#"{"partitions": 2000}"#, &["/partitions range", "/to missing"]),
    (MOVE, r#"{"to": "a b"}"#, &["/to format"]),
    (
        RESERVE,
        r#"{"max": 0, "wait": "61s", "min_age": "3651d", "visibility_timeout_ms": 5}"#,
        &["/max range", "/min_age range", "/wait range", "/visibility_timeout_ms range"],
    ),
    (RESERVE, r#"{"max": "10", "wait": 20}"#, &["/max type", "/wait format"]),
    (RESERVE, r#"{"max": 5, "min": 6, "linger": "1s"}"#, &["/min range"]),
    (RESERVE, r#"{"max": 5, "min": 2}"#, &["/linger missing"]),
    (RESERVE, r#"{"max": 5, "min": 2, "linger": "61s"}"#, &["/linger range"]),
    (RESERVE, r#"{"max": 5, "linger": "1s"}"#, &["/min missing"]),
    (RESERVE, r#"{"max": 5, "per_key": 2, "same_key": true}"#, &["/same_key exclusive"]),
    (RESERVE, r#"{"max": 5, "min": 2, "linger": "1s", "min_age": "1s"}"#, &["/min exclusive"]),
    (RESERVE, r#"{"same_key": 1}"#, &["/same_key type"]),
    (
        ACK,
        r#"{"receipts": ["a", 7, {"receipt": 7}, {}]}"#,
        &["/receipts/1 type", "/receipts/2/receipt type", "/receipts/3/receipt missing"],
    ),
    (ACK, r#"{"receipt": "a"}"#, &["/receipt unknown", "/receipts missing"]),
    (
        NACK,
        r#"{"receipts": [{"receipt": "a", "bury": 1}, {"receipt": "b", "delay": "3651d"}, {"receipt": "c", "bury": true, "delay": "1s"}]}"#,
        &["/receipts/0/bury type", "/receipts/1/delay range", "/receipts/2/delay exclusive"],
    ),
    (
        NACK,
        r#"{"receipts": ["a"], "bury": true, "delay": "5s", "reason": null}"#,
        &["/reason type", "/delay exclusive"],
    ),
    (EXTEND, r#"{"receipts": ["a"]}"#, &["/visibility_timeout missing"]),
    (EXTEND, r#"{"receipts": [], "visibility_timeout": "13h"}"#, &["/receipts range", "/visibility_timeout range"]),
    (RESCHEDULE, "{}", &["/delay missing"]),
    (
        RESCHEDULE,
        r#"{"delay": "1s", "due_at": 5, "when": 1}"#,
        &["/due_at format", "/when unknown", "/delay exclusive"],
    ),
    (WINDOW, r#"{"action": "postpone"}"#, &["/from missing", "/to missing", "/by missing"]),
    (
        WINDOW,
        r#"{"from": "x", "to": 5, "action": "delete", "by": "1"}"#,
        &["/from format", "/to format", "/action choice", "/by format"],
    ),
    (
        WINDOW,
        r#"{"from": "2026-01-02T03:04:05Z", "to": "2026-01-02T04:04:05Z", "action": "park", "by": "1h"}"#,
        &["/by exclusive"],
    ),
    (SCHEDULE, "{}", &["/cron missing", "/payload missing"]),
    (
        SCHEDULE,
        r#"{"cron": "0 3 * * *", "every": "1ms", "payload": "a", "missed": "some"}"#,
        &["/missed choice", "/cron exclusive", "/every range"],
    ),
    (
        SCHEDULE,
        r#"{"cron": "0 3 * *", "time_zone": "localtime", "payload": 7}"#,
        &["/payload type", "/time_zone format", "/cron format"],
    ),
    (
        REDRIVE,
        r#"{"ids": ["a", "b c"], "limit": 0, "rate": 1000000}"#,
        &["/ids/1 format", "/limit range", "/rate range", "/ids exclusive"],
    ),
    (
        REDRIVE,
        r#"{"reason": "boredom", "older_than": "1", "text": ""}"#,
        &["/reason choice", "/older_than format", "/text range"],
    ),
    (PURGE, "{}", &[" missing"]),
    (PURGE, r#"{"all": true, "reason": "buried"}"#, &["/all exclusive"]),
    (PURGE, r#"{"all": "yes"}"#, &["/all type"]),
];

#[tokio::test]
async fn all_errors_of_a_body_are_listed() -> Outcome {
    let mut wrong = Vec::new();
    for (line, body, expected) in CASES {
        let (status, problem) = send(line, "application/json", body).await?;
        let found = faults(&problem);
        if status != 422 || found != *expected {
            wrong.push(format!("{line} {body}\n  {status} {found:?}\n  {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn error_details_use_json_terms() -> Outcome {
    let cases = [
        (PUSH, r#"{"payload": {"order": 1}}"#, "a string is expected; for JSON use `payload_json`"),
        (PUSH, r#"{"payload": "a", "dely": "1s"}"#, "unknown field `dely`; did you mean `delay`?"),
        (PUSH, r#"{"payload": "a", "delay": 5}"#, "5 has no unit; write \"5s\" or \"5ms\""),
        (PUSH, r#"{"payload": "a", "key": 7}"#, "a string is expected, not a number"),
        (PUSH, r#"{"payload": "a", "priority": 12}"#, "12 is not in 0 to 9"),
        (RESERVE, "[]", "an object is expected, not a list"),
        (ACK, r#"{"receipts": [7]}"#, "a string or an object is expected, not a number"),
        (TOPIC, r#"{"on_expiry": "keep"}"#, "\"keep\" is none of drop, bury"),
        ("POST /v1/topics/orders/groups/g/stream", r#"{"max": 1}"#, "unknown field `max`; there are none here"),
    ];
    for (line, body, detail) in cases {
        let (_, problem) = send(line, "application/json", body).await?;
        assert_eq!(problem["errors"][0]["detail"], detail, "{line} {body}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|said| said.contains(detail)), "{problem}");
    }
    let (_, problem) = send(PUSH, "application/json", r#"{"a": 1, "b": 2}"#).await?;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("`a`: unknown field `a`; there are attachment, conflict,"), "{detail}");
    assert!(
        detail.contains("; and 2 more in `errors`; a JSON document as the payload is sent with ?raw=true"),
        "{detail}"
    );
    Ok(())
}

#[tokio::test]
async fn every_invalid_message_of_a_batch_is_named_up_to_a_limit() -> Outcome {
    let item =
        |i: usize| if i.is_multiple_of(2) { json!({"payload": "a"}) } else { json!({"payload": "a", "delay": "soon"}) };
    let batch = |n: usize| (0..n).map(item).collect::<Vec<_>>();
    let (_, problem) = send(BATCH, "application/json", &json!({"messages": batch(20)}).to_string()).await?;
    let expected: Vec<_> = (0..20).skip(1).step_by(2).map(|i| format!("/messages/{i}/delay format")).collect();
    assert_eq!(faults(&problem), expected);
    assert_eq!(problem.get("more_errors"), None);
    let (_, problem) = send(BATCH, "application/json", &json!({"messages": batch(1_000)}).to_string()).await?;
    assert_eq!((faults(&problem).len(), &problem["more_errors"]), (100, &json!(400)));

    let lines: Vec<_> = batch(1_000).iter().map(Value::to_string).collect();
    let (_, problem) = send(BATCH, "application/x-ndjson", &lines.join("\n\n")).await?;
    assert_eq!((faults(&problem).len(), &problem["more_errors"]), (100, &json!(400)));
    let second = json!({"line": 7, "pointer": "/delay", "code": "format", "detail": problem["errors"][0]["detail"]});
    assert_eq!(problem["errors"][1], second);
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.starts_with("line 3: `delay`: \"soon\"")),
        "{problem}"
    );
    Ok(())
}

#[tokio::test]
async fn invalid_json_is_malformed_with_its_position() -> Outcome {
    let cases = [
        ("", "the body is empty; this request takes JSON"),
        ("{", "the body is not JSON: it ends too early"),
        (r#"{"payload": "a"} x"#, "the body is not one JSON value (line 1, column 18)"),
        (r#"{"payload": 'a'}"#, "the body is not JSON in UTF-8 (line 1, column 13)"),
        (r#"{"payload": "\ud800"}"#, "the body is not JSON in UTF-8"),
    ];
    for (body, detail) in cases {
        let (status, problem) = send(PUSH, "application/json", body).await?;
        assert_eq!((status, &problem["type"]), (400, &json!("urn:dwell:error:malformed")), "{body}");
        assert!(problem["detail"].as_str().is_some_and(|said| said.starts_with(detail)), "{body}: {problem}");
    }
    Ok(())
}

/// A seeded generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

fn mutate(body: &mut Value, dice: &mut Dice) {
    let others = json!([
        null, true, -1, 0, 1.5, 1e300, u64::MAX, "", "x y", "5s", [], [1], {}, {"receipt": 1}, {"kind": "ladder"}, "é\u{0}"
    ]);
    let other = others[dice.roll(16)].clone();
    match body {
        Value::Object(fields) if !fields.is_empty() && dice.roll(4) > 0 => {
            let name = fields.keys().nth(dice.roll(fields.len())).cloned().unwrap_or_default();
            match dice.roll(5) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(format!("{name}s"), other)),
                _ => mutate(&mut fields[&name], dice),
            }
        }
        Value::Array(items) if !items.is_empty() && dice.roll(4) > 0 => {
            let i = dice.roll(items.len());
            mutate(&mut items[i], dice);
        }
        part => *part = other,
    }
}

#[tokio::test]
async fn no_mutated_body_gets_an_error_in_serde_terms() -> Outcome {
    let mut dice = Dice(4_711);
    let mut refused = 0;
    for round in 0..3_000 {
        let (line, body, _) = CASES[dice.roll(CASES.len())];
        let mut body: Value = serde_json::from_str(body)?;
        for _ in 0..=round % 3 {
            mutate(&mut body, &mut dice);
        }
        let (status, problem) = send(line, "application/json", &body.to_string()).await?;
        assert!([413, 422, 503, 200].contains(&status), "{line} {body}: {status} {problem}");
        let text = problem.to_string();
        let leaks =
            ["at line", ", expected", "expected one of", "expected struct", "variant", " i64", " u32", "TextOr"];
        assert!(!leaks.iter().any(|leak| text.contains(leak)), "{line} {body}: {text}");
        assert!(!text.contains("is not accepted here"), "{line} {body}: {text}");
        for error in problem["errors"].as_array().into_iter().flatten() {
            refused += 1;
            let detail = error["detail"].as_str().unwrap_or_default();
            let is_ours = error["code"] == "unknown" || !OF_SERDE.iter().any(|words| detail.starts_with(words));
            assert!(is_ours && !detail.is_empty(), "{line} {body}: {text}");
        }
    }
    assert!(refused > 2_000, "{refused}");
    Ok(())
}

/// Bodies of a megabyte that are wrong in as many places as they can be: each is read in a small multiple of the time of a right one.
#[tokio::test]
async fn time_for_a_large_wrong_body_is_bounded() -> Outcome {
    const BYTES: usize = 1_000_000;
    let many = |each: &dyn Fn(usize) -> String| {
        let mut all = String::new();
        for n in 0.. {
            let more = each(n);
            if all.len() + more.len() > BYTES {
                break;
            }
            all.push_str(&more);
        }
        all
    };
    let fields = many(&|n| format!("\"{n:x}\":0,"));
    let meta = many(&|n| format!("\"{n:x}\":0,"));
    let receipts = many(&|n| format!("{n},"));
    let deep = "[".repeat(BYTES / 2);
    let cases = [
        (PUSH, format!("{{{fields}\"payload\":\"\"}}")),
        (PUSH, format!("{{\"meta\":{{{meta}\"z\":0}}}}")),
        (BATCH, format!("{{\"messages\":[{{{fields}\"payload\":\"\"}}]}}")),
        (ACK, format!("{{\"receipts\":[{receipts}0]}}")),
        (NACK, format!("{{\"receipts\":[{receipts}0]}}")),
        (PUSH, format!("{{\"payload_json\":{deep}")),
        (PUSH, format!("{{\"payload\":{deep}{}}}", "]".repeat(BYTES / 2))),
        (TOPIC, format!("{{{fields}\"partitions\":0}}")),
    ];
    for (line, body) in cases {
        let before = thread_cpu_time();
        let (status, _) = send(line, "application/json", &body).await?;
        let took = thread_cpu_time() - before;
        assert!((400..500).contains(&status), "{line}: {status}");
        assert!(took < std::time::Duration::from_secs(3), "{line}: {took:?} for {:.40}", body);
    }
    Ok(())
}
