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
    let group = format!("{TOPIC}/groups/default");
    // One that is dead then, and one that is tried again.
    for (message, reason, why) in
        [("id=a", "dead", "after 1 attempt,"), ("id=b&max_attempts=5", "retrying", "1 attempt failed")]
    {
        tell(format!("POST {TOPIC}/messages?raw=true&{message}"), "producer", json!({"card": "4711"})).await?;
        let taken = tell(format!("POST {group}/reserve"), "consumer", json!({"wait": "5s"})).await?;
        let receipt = &taken["deliveries"][0]["receipt"];
        let nack = json!({"receipts": [{"receipt": receipt, "reason": {"class": "Unreadable", "message": "cannot parse {card: 4711}", "stack": "at 4711"}, "delay": "1h"}]});
        tell(format!("POST {group}/nack"), "consumer", nack).await?;
        let id = &message[3..4];
        for (of, sees) in [("viewer", false), ("producer", true), ("consumer", true), ("both", true), ("admin", true)] {
            let request = dwell.request(&format!("GET {TOPIC}/messages/{id}/explain"))?.bearer_auth(token(of));
            let said = dwell.send(request).await?.body["groups"][0].clone();
            let detail = said["detail"].as_str().unwrap_or_default();
            assert!(said["reason"] == reason && detail.contains(why), "{of}: {said}");
            assert_eq!(detail.contains("Unreadable: cannot parse {card: 4711}"), sees, "{of}: {said}");
            assert_eq!(said["last_error"]["stack"] == "at 4711", sees, "{of}: {said}");
            assert_eq!(said.to_string().contains("4711"), sees, "{of}: {said}");
        }
    }
    Ok(())
}
