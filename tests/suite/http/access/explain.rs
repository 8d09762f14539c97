//! What consumers said with a nack is for those who see payloads.

use serde_json::json;

use super::{asking, token};
use crate::http::api::served::Outcome;

const TOPIC: &str = "/v1/topics/cards";

#[tokio::test]
async fn explain_without_read_scope_hides_error_texts() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let tell = async |line: String, of: &str, body| -> Outcome<_> {
        let answer = dwell.send(dwell.request(&line)?.bearer_auth(token(of)).json(&body)).await?;
        assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
        Ok(answer.body)
    };
    tell(format!("PUT {TOPIC}"), "admin", json!({"max_attempts": 1})).await?;
    tell(format!("POST {TOPIC}/messages?id=a&raw=true"), "producer", json!({"card": "4711"})).await?;
    let group = format!("{TOPIC}/groups/default");
    let taken = tell(format!("POST {group}/reserve"), "consumer", json!({"wait": "5s"})).await?;
    let nack =
        json!({"receipts": [{"receipt": taken["deliveries"][0]["receipt"], "reason": "cannot parse {card: 4711}"}]});
    tell(format!("POST {group}/nack"), "consumer", nack).await?;
    for (of, sees) in [("viewer", false), ("producer", true), ("consumer", true), ("both", true), ("admin", true)] {
        let request = dwell.request(&format!("GET {TOPIC}/messages/a/explain"))?.bearer_auth(token(of));
        let said = dwell.send(request).await?.body["groups"][0].clone();
        let detail = said["detail"].as_str().unwrap_or_default();
        assert!(said["reason"] == "dead" && detail.contains("after 1 attempt,"), "{of}: {said}");
        assert_eq!(detail.contains("4711"), sees, "{of}: {said}");
    }
    Ok(())
}
