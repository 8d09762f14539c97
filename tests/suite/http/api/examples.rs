//! The examples of answers in the OpenAPI document are what a broker answers.

use serde_json::{Value, json};

use super::served::{Outcome, Served};

/// A broker, and its document.
struct Documented {
    dwell: Served,
    document: Value,
}

impl Documented {
    /// Sends a request; the answer has every field of the example for its operation, and of the same type.
    async fn answers(&self, line: &str, operation: &str, body: Value) -> Outcome<Value> {
        let request = self.dwell.request(line)?;
        let answer = self.dwell.send(if body.is_null() { request } else { request.json(&body) }).await?;
        let method = line.split(' ').next().unwrap_or_default().to_lowercase();
        let response = &self.document["paths"][operation][method.as_str()]["responses"][answer.status.to_string()];
        let schema = response["content"]["application/json"]["schema"]["$ref"].as_str().unwrap_or_default();
        let name = schema.rsplit('/').next().unwrap_or_default();
        let example = &self.document["components"]["schemas"][name]["examples"][0];
        assert!(example.is_object(), "{line} has no example: {answer:?}");
        let differences = differences(name, example, &answer.body);
        assert!(differences.is_empty(), "{line}: {differences:?} in {}", answer.body);
        Ok(answer.body)
    }
}

/// Fields of an example that an answer lacks, or has with another type. A list is known by its first entry.
fn differences(place: &str, example: &Value, answer: &Value) -> Vec<String> {
    match (example, answer) {
        (Value::Object(example), Value::Object(answer)) => {
            let differ = |(name, value): (&String, &Value)| {
                let place = format!("{place}.{name}");
                answer.get(name).map_or_else(|| vec![place.clone()], |there| differences(&place, value, there))
            };
            example.iter().flat_map(differ).collect()
        }
        (Value::Array(example), Value::Array(answer)) => match (example.first(), answer.first()) {
            (Some(example), Some(answer)) => differences(place, example, answer),
            (Some(_), None) => vec![format!("{place} is empty")],
            (None, _) => Vec::new(),
        },
        _ if std::mem::discriminant(example) == std::mem::discriminant(answer) => Vec::new(),
        _ => vec![format!("{place} is {answer}")],
    }
}

#[tokio::test]
async fn response_examples_match_real_responses() -> Outcome {
    let dwell = Served::start().await?;
    let document = dwell.ask("GET /openapi.json").await?.body;
    let documented = Documented { dwell, document };
    let none = Value::Null;
    let topic = "/v1/topics/{topic}";
    documented.answers("PUT /v1/topics/orders", topic, json!({})).await?;
    documented.answers("GET /v1/topics/orders", topic, none.clone()).await?;
    documented.answers("GET /v1/topics", "/v1/topics", none.clone()).await?;
    let push = json!({"payload": "close order 4711", "id": "order-4711", "delay": "30m"});
    documented.answers("POST /v1/topics/orders/messages", &format!("{topic}/messages"), push).await?;
    let message = format!("{topic}/messages/{{id}}");
    documented.answers("GET /v1/topics/orders/messages/order-4711", &message, none.clone()).await?;
    let explain = format!("{message}/explain");
    documented.answers("GET /v1/topics/orders/messages/order-4711/explain", &explain, none.clone()).await?;
    documented.answers("GET /v1/topics/orders/messages", &format!("{topic}/messages"), none.clone()).await?;
    documented.answers("PATCH /v1/topics/orders/messages/order-4711", &message, json!({"delay": "0s"})).await?;
    groups(&documented).await?;
    let later = json!({"payload": "x", "id": "later", "delay": "30m"});
    documented.dwell.tell("POST /v1/topics/orders/messages", later).await?;
    documented.answers("DELETE /v1/topics/orders/messages/later", &message, none.clone()).await?;
    let (job, jobs) = (format!("{topic}/cron/{{name}}"), format!("{topic}/cron"));
    let nightly = json!({"cron": "0 3 * * *", "payload": "close the books"});
    documented.answers("PUT /v1/topics/orders/cron/nightly", &job, nightly).await?;
    documented.answers("GET /v1/topics/orders/cron/nightly", &job, none.clone()).await?;
    documented.answers("GET /v1/topics/orders/cron", &jobs, none.clone()).await?;
    documented.answers("GET /readyz", "/readyz", none.clone()).await?;
    documented.answers("GET /livez", "/livez", none).await?;
    Ok(())
}

/// What is asked about a group, with one message that is due.
async fn groups(documented: &Documented) -> Outcome {
    let (line, group) = ("/v1/topics/orders/groups/default", "/v1/topics/{topic}/groups/{group}");
    let of = |method: &str, verb: &str| (format!("{method} {line}{verb}"), format!("{group}{verb}"));
    let answers = async |method: &str, verb: &str, body: Value| {
        let (line, operation) = of(method, verb);
        documented.answers(&line, &operation, body).await
    };
    documented.answers("GET /v1/topics/orders/groups", "/v1/topics/{topic}/groups", Value::Null).await?;
    let reserved = answers("POST", "/reserve", json!({"wait": "5s"})).await?;
    let receipt = reserved["deliveries"][0]["receipt"].clone();
    answers("GET", "", Value::Null).await?;
    answers("POST", "/extend", json!({"receipts": [receipt], "visibility_timeout": "5m"})).await?;
    answers("POST", "/nack", json!({"receipts": [receipt], "reason": "smtp: 550", "bury": true})).await?;
    answers("GET", "/dead-letters", Value::Null).await?;
    answers("POST", "/dead-letters/redrive", json!({"all": true})).await?;
    answers("POST", "/dead-letters/purge", json!({"all": true})).await?;
    answers("GET", "/forecast", Value::Null).await?;
    let window = "from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z";
    documented.answers(&format!("GET {line}/bulk?{window}"), &format!("{group}/bulk"), Value::Null).await?;
    let bulk = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z", "action": "postpone", "by": "2h"});
    answers("POST", "/bulk", bulk).await?;
    answers("POST", "/pause", json!({})).await?;
    answers("POST", "/resume", Value::Null).await?;
    Ok(())
}
