//! What a client reads of an answer is all of it: written again, it has the same fields in the same order. `--json` prints answers so.

use std::time::Duration;

use dwell_client::wire::bulk::{BulkChanged, BulkCount, GroupForecast};
use dwell_client::wire::consume::Deliveries;
use dwell_client::wire::cron::{CronJob, CronJobs};
use dwell_client::wire::dead_letters::{DeadLetterMessages, Purged, Redriven};
use dwell_client::wire::groups::{Findings, Group, GroupDescription, GroupList};
use dwell_client::wire::messages::{Control, Explained, ListedMessages, Message};
use dwell_client::wire::operations::{Alive, AttentionList, BrokerList, Ready};
use dwell_client::wire::problem::Problem;
use dwell_client::wire::push::{BatchResults, PushResult};
use dwell_client::wire::settle::Verdicts;
use dwell_client::wire::topics::{Moved, Topic, TopicDescription, TopicList};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::served::{Outcome, Served};

const TOPIC: &str = "/v1/topics/orders";
const GROUP: &str = "/v1/topics/orders/groups/default";

/// Sends a request, reads its answer as this type, and compares what the type writes with what was answered.
async fn answered<T: DeserializeOwned + Serialize>(dwell: &Served, line: &str, body: Value) -> Outcome<Value> {
    let request = dwell.request(line)?;
    let request = if body.is_null() { request } else { request.json(&body) };
    let response = dwell.driven(request.send()).await??;
    let text = response.text().await?;
    let read: T = serde_json::from_str(&text).map_err(|error| format!("{line}: {error}: {text}"))?;
    assert_eq!(serde_json::to_value(&read)?, serde_json::from_str::<Value>(&text)?, "{line}");
    assert_eq!(serde_json::to_string(&read)?, text.trim_end(), "{line}");
    Ok(serde_json::from_str(&text)?)
}

async fn fill(dwell: &Served) -> Outcome {
    let settings = json!({"partitions": 2, "backoff": {"kind": "exponential", "initial": "1s", "max": "10m", "factor": 1.1, "jitter": 0.3},
        "annotations": {"team": "billing"}, "ttl": "30d", "dead_letter": {"topic": ""}});
    answered::<Topic>(dwell, &format!("PUT {TOPIC}"), settings).await?;
    answered::<Group>(dwell, &format!("PUT {TOPIC}/groups/audit"), json!({"rate": 2.55, "max_in_flight": 7})).await?;
    answered::<Group>(dwell, &format!("POST {TOPIC}/groups/audit/pause"), json!({"for": "1h"})).await?;
    let full = json!({"payload_base64": "/wA=", "id": "full", "key": "k", "ttl": "1h", "priority": 3, "max_attempts": 2,
        "dedup_key": "cart-9", "dedup_for": "1h", "content_type": "application/json", "meta": {"b": "2", "a": "1"},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "x=y", "attachment": "YQ=="});
    answered::<PushResult>(dwell, &format!("POST {TOPIC}/messages"), full.clone()).await?;
    answered::<PushResult>(dwell, &format!("POST {TOPIC}/messages"), full).await?;
    let later = json!({"payload": "x", "id": "later", "delay": "2h"});
    let batch = json!({"messages": [later, {"payload": "x", "id": "dies"}, {"payload": "x", "id": "acked"}]});
    answered::<BatchResults>(dwell, &format!("POST {TOPIC}/messages/batch"), batch).await?;
    Ok(())
}

/// Deliveries are settled in each way.
async fn consume(dwell: &Served) -> Outcome {
    dwell.pass(Duration::from_secs(1));
    let mut settled = 0;
    while settled < 3 {
        let wanted = json!({"max": 10, "wait": "20s"});
        let reserved = answered::<Deliveries>(dwell, &format!("POST {GROUP}/reserve"), wanted).await?;
        for delivery in reserved["deliveries"].as_array().ok_or("no deliveries")? {
            settled += 1;
            let (id, receipt) = (delivery["id"].as_str().unwrap_or_default(), &delivery["receipt"]);
            let extend = json!({"receipts": [receipt], "visibility_timeout": "1m"});
            answered::<Verdicts>(dwell, &format!("POST {GROUP}/extend"), extend).await?;
            let reason = json!({"class": "Smtp", "message": "451", "stack": "at a\nat b"});
            let (verb, body) = match id {
                "full" => ("nack", json!({"receipts": [{"receipt": receipt, "reason": reason, "delay": "1h"}]})),
                "dies" => ("nack", json!({"receipts": [receipt, "nonsense"], "reason": reason, "bury": true})),
                _ => ("ack", json!({"receipts": [receipt]})),
            };
            answered::<Verdicts>(dwell, &format!("POST {GROUP}/{verb}"), body).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_answer_is_written_again_as_it_was_read() -> Outcome {
    let dwell = &Served::start().await?;
    fill(dwell).await?;
    consume(dwell).await?;
    let cron =
        json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "payload": "x", "ttl": "1h", "meta": {"a": "1"}});
    answered::<CronJob>(dwell, &format!("PUT {TOPIC}/cron/nightly"), cron).await?;
    answered::<CronJob>(dwell, &format!("PUT {TOPIC}/cron/pulse"), json!({"every": "15m", "payload_base64": "/wA="}))
        .await?;
    answered::<CronJob>(dwell, &format!("POST {TOPIC}/cron/pulse/pause"), Value::Null).await?;
    answered::<CronJobs>(dwell, &format!("GET {TOPIC}/cron"), Value::Null).await?;
    let get = |path: &str| format!("GET {TOPIC}{path}");
    answered::<TopicList>(dwell, "GET /v1/topics", Value::Null).await?;
    answered::<TopicDescription>(dwell, &get(""), Value::Null).await?;
    answered::<GroupList>(dwell, &get("/groups"), Value::Null).await?;
    answered::<GroupDescription>(dwell, &get("/groups/default"), Value::Null).await?;
    answered::<GroupForecast>(dwell, &get("/groups/default/forecast?step=1h&spans=3"), Value::Null).await?;
    answered::<Findings>(dwell, &get("/groups/default/verify"), Value::Null).await?;
    answered::<Message>(dwell, &get("/messages/dies"), Value::Null).await?;
    for id in ["full", "later"] {
        answered::<Message>(dwell, &get(&format!("/messages/{id}")), Value::Null).await?;
        answered::<Explained>(dwell, &get(&format!("/messages/{id}/explain")), Value::Null).await?;
    }
    for state in ["scheduled", "ready", "backoff", "blocked", "in_flight", "dead"] {
        answered::<ListedMessages>(dwell, &get(&format!("/messages?limit=1&state={state}")), Value::Null).await?;
    }
    answered::<DeadLetterMessages>(dwell, &get("/groups/default/dead-letters"), Value::Null).await?;
    let window = json!({"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z", "action": "park"});
    answered::<BulkCount>(dwell, &get("/groups/default/bulk?from=1577836800000&to=1577923200000"), Value::Null).await?;
    answered::<BulkChanged>(dwell, &format!("POST {GROUP}/bulk"), window).await?;
    answered::<Redriven>(dwell, &format!("POST {GROUP}/dead-letters/redrive"), json!({"all": true, "dry_run": true}))
        .await?;
    answered::<Purged>(dwell, &format!("POST {GROUP}/dead-letters/purge"), json!({"ids": ["dies"]})).await?;
    answered::<Control>(dwell, &format!("PATCH {TOPIC}/messages/later"), json!({"delay": "3h"})).await?;
    answered::<Control>(dwell, &format!("DELETE {TOPIC}/messages/later"), Value::Null).await?;
    answered::<Problem>(dwell, &format!("DELETE {TOPIC}/messages/later?key="), Value::Null).await?;
    answered::<Problem>(dwell, &get("/groups/nobody"), Value::Null).await?;
    answered::<Moved>(dwell, &format!("POST {TOPIC}/move"), json!({"to": "others"})).await?;
    answered::<Alive>(dwell, "GET /livez", Value::Null).await?;
    answered::<Ready>(dwell, "GET /readyz", Value::Null).await?;
    answered::<AttentionList>(dwell, "GET /v1/attention", Value::Null).await?;
    answered::<BrokerList>(dwell, "GET /v1/brokers", Value::Null).await?;
    Ok(())
}
