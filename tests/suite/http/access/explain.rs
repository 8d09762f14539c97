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

/// They name what only lists of messages do.
#[tokio::test]
async fn keys_of_a_fair_group_are_for_those_who_may_list_messages() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let send =
        async |line: String, of: &str, body| dwell.send(dwell.request(&line)?.bearer_auth(token(of)).json(&body)).await;
    let group = format!("{TOPIC}/groups/default");
    send(format!("PUT {TOPIC}"), "admin", json!({})).await?;
    send(format!("PUT {group}"), "admin", json!({"fair": "key"})).await?;
    send(format!("POST {TOPIC}/messages"), "producer", json!({"payload": "x", "key": "customer-7"})).await?;
    send(format!("POST {group}/reserve"), "consumer", json!({"wait": "5s"})).await?;
    for (of, sees) in [("viewer", false), ("producer", false), ("consumer", true), ("both", true), ("admin", true)] {
        let described = send(format!("GET {group}"), of, json!({})).await?.body;
        assert_eq!(described["totals"]["in_flight"], 1, "{of}: {described}");
        assert_eq!(described["keys"]["busiest"][0]["key"] == "customer-7", sees, "{of}: {described}");
        assert_eq!(described["keys"].is_object(), sees, "{of}: {described}");
        let listed = send(format!("GET {TOPIC}/messages"), of, json!({})).await?.status;
        assert_eq!(listed == 200, sees, "{of}: {listed}");
    }
    Ok(())
}

/// An id that several messages have is ambiguous. Which keys they have is for those who may list them.
#[tokio::test]
async fn keys_of_an_ambiguous_id_are_for_those_who_may_list_messages() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let send = async |line: String, of: &str| dwell.send(dwell.request(&line)?.bearer_auth(token(of)).body("x")).await;
    dwell.send(dwell.request(&format!("PUT {TOPIC}"))?.bearer_auth(token("admin"))).await?;
    let mut stored = 0;
    for key in ["alice", "bob", "carol", "dave"] {
        // Two in one partition cannot have one id.
        let pushed = send(format!("POST {TOPIC}/messages?id=m&delay=1h&key={key}"), "producer").await?;
        stored += usize::from(pushed.status < 300);
    }
    assert!(stored > 1);
    for (of, sees) in [("viewer", false), ("producer", false), ("consumer", true), ("both", true), ("admin", true)] {
        for line in [format!("GET {TOPIC}/messages/m/explain"), format!("GET {TOPIC}/messages/m")] {
            let said = send(line.clone(), of).await?;
            if said.status == 403 {
                assert_eq!((of, line.ends_with("/m")), ("viewer", true));
                continue;
            }
            assert_eq!(said.status, 409, "{of}: {said:?}");
            assert_eq!(said.body.to_string().contains("there is one with each of: the key"), sees, "{of}: {said:?}");
        }
    }
    Ok(())
}
