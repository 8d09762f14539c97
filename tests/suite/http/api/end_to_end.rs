//! What a producer and a consumer say to a broker, and what it answers.

use dwell::api::http::Listen;
use serde_json::{Value, json};

use super::served::{Outcome, Served};
use tempfile::tempdir;

#[tokio::test]
async fn message_is_delivered_when_due_and_acked_once() -> Outcome {
    let dwell = Served::start().await?;
    let push = dwell.request("POST /v1/topics/orders/messages?key=customer-7&delay=2s")?.body("close order 4711");
    let pushed = dwell.send(push).await?;
    assert_eq!((pushed.status, pushed.body["status"].as_str()), (201, Some("stored")));
    let due_at = pushed.body["due_at"].as_str().ok_or("no due time")?.parse()?;

    let id = pushed.body["id"].as_str().ok_or("no id")?;
    let looked = dwell.ask(&format!("GET /v1/topics/orders/messages/{id}?key=customer-7")).await?;
    assert_eq!(looked.body["state"], "scheduled", "{looked:?}");

    let early = dwell.tell("POST /v1/topics/orders/groups/default/reserve", json!({})).await?;
    assert!(early["deliveries"].as_array().is_some_and(Vec::is_empty), "{early}");
    assert!(dwell.now() < due_at);
    let deliveries = dwell.reserve("orders").await?;
    assert!(dwell.now() >= due_at);
    let delivery = deliveries.first().ok_or("nothing was delivered")?;
    assert_eq!((&delivery["id"], &delivery["payload"]), (&json!(id), &json!("close order 4711")));
    assert_eq!((&delivery["attempt"], &delivery["key"]), (&json!(1), &json!("customer-7")));

    let receipt = &delivery["receipt"];
    let ack = async || dwell.tell("POST /v1/topics/orders/groups/default/ack", json!({"receipts": [receipt]})).await;
    assert_eq!(ack().await?, json!({"failed": 0, "results": [{"receipt": receipt, "status": "acked"}]}));
    assert_eq!(ack().await?["results"][0]["status"], "acked", "who lost the answer may ask again");
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    assert_eq!(dwell.ask(&format!("GET /v1/topics/orders/messages/{id}?key=customer-7")).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn meta_key_and_content_type_are_delivered() -> Outcome {
    let dwell = Served::start().await?;
    let push = dwell.request("POST /v1/topics/orders/messages?id=a%2Fb&ttl=1h&max_attempts=3")?;
    let push = push.header("content-type", "image/png").header("Dwell-Meta-Trace", "café").body(vec![0xff, 0x00]);
    assert_eq!(dwell.send(push).await?.status, 201);
    let looked = dwell.ask("GET /v1/topics/orders/messages/a%2Fb").await?;
    assert_eq!(looked.body["max_attempts"], 3, "{looked:?}");
    let delivery = dwell.reserve("orders").await?.remove(0);
    assert_eq!((&delivery["id"], &delivery["payload_base64"]), (&json!("a/b"), &json!("/wA=")));
    assert_eq!((&delivery["meta"], &delivery["content_type"]), (&json!({"trace": "café"}), &json!("image/png")));
    assert_eq!(delivery.get("payload"), None);
    assert_eq!(delivery.get("key"), None);
    Ok(())
}

#[tokio::test]
async fn priority_is_first_and_min_age_is_honoured() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    let before = dwell.now();
    let batch = json!({"messages": [{"payload": "a", "id": "a"}, {"payload": "b", "id": "b", "priority": 9}]});
    dwell.tell("POST /v1/topics/orders/messages/batch", batch).await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=c&priority=5")?.body("c")).await?;
    let reserve = "POST /v1/topics/orders/groups/default/reserve";
    let old = dwell.tell(reserve, json!({"max": 1, "wait": "10s", "min_age": "2s"})).await?;
    assert!(dwell.now().since(before) >= std::time::Duration::from_secs(2), "{old}");
    assert_eq!((&old["deliveries"][0]["id"], &old["deliveries"][0]["priority"]), (&json!("b"), &json!(9)));
    let rest = dwell.tell(reserve, json!({"max": 2, "wait": "10s"})).await?;
    let rest = rest["deliveries"].as_array().ok_or("no deliveries")?.clone();
    assert_eq!(rest.iter().map(|it| &it["id"]).collect::<Vec<_>>(), [&json!("c"), &json!("a")]);
    assert_eq!(rest[1].get("priority"), None);
    for wrong in ["priority=10", "priority=-1", "priority=x"] {
        let push = dwell.request(&format!("POST /v1/topics/orders/messages?{wrong}"))?.body("x");
        assert_eq!(dwell.send(push).await?.status, 422, "{wrong}");
    }
    let wrong = json!({"messages": [{"payload": "a", "priority": 10}]});
    assert_eq!(dwell.send(dwell.request("POST /v1/topics/orders/messages/batch")?.json(&wrong)).await?.status, 422);
    assert_eq!(dwell.send(dwell.request(reserve)?.json(&json!({"min_age": "3651d"}))).await?.status, 422);
    Ok(())
}

#[tokio::test]
async fn batch_push_has_one_result_per_message() -> Outcome {
    let dwell = Served::start().await?;
    let batch = "POST /v1/topics/orders/messages/batch";
    let messages = json!({"messages": [
        {"payload": "a", "id": "a"}, {"payload_base64": "/wA=", "id": "b", "key": "k", "delay": "1h"}, {"payload": ""},
    ]});
    let send = async || dwell.send(dwell.request(batch)?.json(&messages)).await;
    let statuses = |answer: &super::served::Answer| {
        let results = answer.body["results"].as_array().cloned().unwrap_or_default();
        results.iter().map(|result| result["status"].clone()).collect::<Vec<_>>()
    };
    let first = send().await?;
    assert_eq!((first.status, statuses(&first)), (201, vec![json!("stored"); 3]));
    let again = send().await?;
    assert_eq!((again.status, statuses(&again)), (200, vec![json!("duplicate"), json!("duplicate"), json!("stored")]));
    let lines = "{\"payload\": \"c\", \"id\": \"c\"}\n\n{\"payload\": \"d\", \"id\": \"batch\"}\n";
    let lines = dwell.request(batch)?.header("content-type", "application/x-ndjson").body(lines);
    assert_eq!(dwell.send(lines).await?.status, 201);
    assert_eq!(dwell.counts("orders").await?, [1, 5, 0, 0]);
    assert_eq!(dwell.ask("GET /v1/topics/orders/messages/batch").await?.body["payload"], "d");
    Ok(())
}

#[tokio::test]
async fn failing_message_is_retried_and_dead_lettered() -> Outcome {
    let dwell = Served::start().await?;
    let group = "/v1/topics/mails/groups/default";
    dwell.tell("PUT /v1/topics/mails", json!({"max_attempts": 2, "partitions": 1})).await?;
    dwell.send(dwell.request("POST /v1/topics/mails/messages?id=m1")?.body("hello")).await?;

    let nack = async |receipt: &str, with: Value| {
        let mut nack = json!({"receipt": receipt});
        if let (Some(nack), Value::Object(with)) = (nack.as_object_mut(), with) {
            nack.extend(with);
        }
        let answer = dwell.tell(&format!("POST {group}/nack"), json!({"receipts": [nack]})).await?;
        Outcome::Ok(answer["results"][0]["status"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(nack(&dwell.receipt("mails").await?, json!({"delay": "1s", "reason": "smtp: 451"})).await?, "nacked");
    let second = dwell.reserve("mails").await?.remove(0);
    assert_eq!(second["attempt"], 2);
    let receipt = second["receipt"].as_str().ok_or("no receipt")?;
    let extend = json!({"receipts": [receipt, "0.17.made-up.1.00000000", "x"], "visibility_timeout": "10m"});
    let extended = dwell.tell(&format!("POST {group}/extend"), extend).await?;
    assert_eq!(extended["results"][0]["status"], "extended");
    assert!(extended["results"][0]["deadline"].as_str() > second["deadline"].as_str());
    assert_eq!(
        (&extended["results"][1]["status"], &extended["results"][2]["status"]),
        (&json!("unknown"), &json!("unknown"))
    );
    assert_eq!(nack(receipt, json!({"reason": "smtp: 550"})).await?, "buried");

    let dead = dwell.ask(&format!("GET {group}/dead-letters?limit=10")).await?.body;
    assert_eq!(
        (&dead["dead_letters"][0]["id"], &dead["dead_letters"][0]["reason"]),
        (&json!("m1"), &json!("max_attempts"))
    );
    assert_eq!(
        (&dead["dead_letters"][0]["last_error"], &dead["dead_letters"][0]["payload"]),
        (&json!({"message": "smtp: 550"}), &json!("hello"))
    );
    let attempts = |n: usize| {
        (
            dead["dead_letters"][0]["history"][n]["attempt"].clone(),
            dead["dead_letters"][0]["history"][n]["reason"].clone(),
        )
    };
    assert_eq!((attempts(0), attempts(1)), ((json!(1), json!("smtp: 451")), (json!(2), json!("smtp: 550"))));
    assert_eq!(dead.get("next_cursor"), None);
    for (query, found) in
        [("reason=max_attempts&text=hell&older_than=0s", 1), ("reason=buried", 0), ("text=smtp%3A%20551", 0)]
    {
        let dead = dwell.ask(&format!("GET {group}/dead-letters?{query}")).await?.body;
        assert_eq!(dead["dead_letters"].as_array().map(Vec::len), Some(found), "{query}");
    }
    assert_eq!(dwell.ask(&format!("GET {group}/dead-letters?reason=boredom")).await?.status, 422);
    let redrive = format!("POST {group}/dead-letters/redrive");
    for wrong in [json!({"ids": ["m1"], "text": "x"}), json!({"rate": 0}), json!({"limit": 0}), json!({"reason": "x"})]
    {
        let refused = dwell.send(dwell.request(&redrive)?.json(&wrong)).await?;
        assert_eq!((refused.status, refused.body["type"].as_str()), (422, Some("urn:dwell:error:invalid")), "{wrong}");
    }
    assert_eq!(dwell.tell(&redrive, json!({"text": "boredom"})).await?, json!({"redriven": 0}));
    assert_eq!(dwell.ask("GET /v1/topics/mails/messages/m1").await?.body["state"], "dead");

    assert_eq!(dwell.send(dwell.request(&redrive)?).await?.status, 422, "an empty body does not say which");
    assert_eq!(dwell.tell(&redrive, json!({"all": true})).await?, json!({"redriven": 1}));
    assert_eq!(nack(&dwell.receipt("mails").await?, json!({"bury": true})).await?, "buried");
    assert_eq!(
        dwell.tell(&format!("POST {group}/dead-letters/purge"), json!({"ids": ["m0"]})).await?,
        json!({"purged": 0})
    );
    assert_eq!(
        dwell.tell(&format!("POST {group}/dead-letters/purge"), json!({"ids": ["m1"]})).await?,
        json!({"purged": 1})
    );
    assert_eq!(dwell.counts("mails").await?, [0, 0, 0, 0]);
    Ok(())
}

#[tokio::test]
async fn topic_lifecycle_create_get_delete() -> Outcome {
    let dwell = Served::start().await?;
    let declare = async |body: Value| dwell.send(dwell.request("PUT /v1/topics/orders")?.json(&body)).await;
    let made = declare(json!({"partitions": 3, "visibility_timeout": "1m"})).await?;
    assert_eq!((made.status, &made.body["settings"]["visibility_timeout_ms"]), (201, &json!(60_000)));
    let again = declare(json!({"max_attempts": 5})).await?;
    assert_eq!((again.status, &again.body["settings"]["max_attempts"]), (200, &json!(5)));
    assert_eq!((&again.body["settings"]["partitions"], &again.body["groups"]), (&json!(3), &json!(["default"])));
    assert_eq!(declare(json!({"partitions": 4})).await?.status, 409);
    assert_eq!(dwell.ask("PUT /v1/topics/orders").await?.body, again.body);

    let described = dwell.ask("GET /v1/topics/orders").await?.body;
    assert_eq!(described["partitions"].as_array().map(Vec::len), Some(3));
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": ["orders"]}));
    assert_eq!(dwell.ask("DELETE /v1/topics/orders").await?.status, 204);
    assert_eq!(dwell.ask("DELETE /v1/topics/orders").await?.status, 404);
    assert_eq!(dwell.ask("GET /v1/topics").await?.body, json!({"topics": []}));
    Ok(())
}

#[tokio::test]
async fn stop_ends_long_polls() -> Outcome {
    let dwell = Served::start().await?;
    dwell.send(dwell.request("POST /v1/topics/orders/messages?delay=1h")?.body("later")).await?;
    let poll = dwell.request("POST /v1/topics/orders/groups/default/reserve")?.json(&json!({"wait": "60s"}));
    let poll = tokio::spawn(poll.send());
    // Somebody owns the partitions as soon as the poll waits.
    let mut owned = false;
    for _ in 0..1_000 {
        owned = owned || dwell.ask("GET /v1/topics/orders").await?.body["partitions"][0]["owner"].is_string();
    }
    assert!(owned && !poll.is_finished());
    dwell.server.stop().await?;
    let answer = poll.await??;
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.json::<Value>().await?, json!({"deliveries": [], "visibility_timeout_ms": 30_000}));
    Ok(())
}

#[tokio::test]
async fn stop_waits_for_deliveries_and_is_not_ready() -> Outcome {
    let dwell = Served::start().await?;
    assert_eq!(dwell.ask("GET /readyz").await?.body["status"], "ready");
    dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?;
    let receipt = dwell.receipt("orders").await?;
    let ready = dwell.request("GET /readyz")?;
    let ack = dwell.request("POST /v1/topics/orders/groups/default/ack")?.json(&json!({"receipts": [receipt]}));
    let consumer = async {
        let ready = ready.send().await?;
        let acked = ack.send().await?.json::<Value>().await?;
        Outcome::Ok((ready.status().as_u16(), acked["results"][0]["status"].clone()))
    };
    let (stopped, consumed) = tokio::join!(dwell.server.stop(), consumer);
    stopped?;
    assert_eq!(consumed?, (503, json!("acked")));
    Ok(())
}

#[tokio::test]
async fn unix_socket_serves_the_same_api() -> Outcome {
    let dir = tempdir()?;
    let path = dir.path().join("dwell.sock");
    let dwell = Served::start_with(|options| options.listen = Listen::Unix(path.clone())).await?;
    assert_eq!(dwell.server.url(), format!("unix:{}", path.display()));
    assert_eq!(dwell.send(dwell.request("POST /v1/topics/orders/messages")?.body("x")).await?.status, 201);
    assert_eq!(dwell.reserve("orders").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn cron_job_lifecycle_create_get_delete() -> Outcome {
    let dwell = Served::start().await?;
    let path = "/v1/topics/orders/cron/nightly";
    let put = async |body: Value| dwell.send(dwell.request(&format!("PUT {path}"))?.json(&body)).await;
    let nightly = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "payload": "close the books"});
    let made = put(nightly.clone()).await?;
    let expected = json!({"name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "last",
        "paused": false, "state": "active", "next_at": "2026-01-03T02:00:00.000Z", "meta": {},
        "payload": "close the books"});
    assert_eq!((made.status, &made.body), (201, &expected));
    assert_eq!(put(nightly).await?.status, 200);
    assert_eq!(dwell.ask(&format!("GET {path}")).await?.body, expected);
    assert_eq!(dwell.ask("GET /v1/topics/orders/cron").await?.body, json!({"cron_jobs": [expected]}));
    let paused = dwell.ask(&format!("POST {path}/pause")).await?.body;
    assert_eq!((&paused["paused"], &paused["state"], paused.get("next_at")), (&json!(true), &json!("paused"), None));
    assert_eq!(dwell.ask(&format!("POST {path}/resume")).await?.body, expected);
    let every =
        put(json!({"every": "15m", "from": "2026-01-01T00:05:00Z", "missed": "skip", "payload_base64": "/wA="}))
            .await?;
    assert_eq!(
        (every.status, &every.body["every_ms"], &every.body["payload_base64"]),
        (200, &json!(900_000), &json!("/wA="))
    );
    assert_eq!(every.body["next_at"], "2026-01-02T03:05:00.000Z");
    for wrong in [
        json!({}),
        json!({"payload": "x"}),
        json!({"cron": "0 3 * * *", "every": "1h", "payload": "x"}),
        json!({"cron": "0 3 * *", "payload": "x"}),
        json!({"cron": "0 3 * * *", "time_zone": "Mars", "payload": "x"}),
        json!({"cron": "0 3 * * *", "from": "2026-01-02T03:04:05Z", "payload": "x"}),
        json!({"every": "1h", "time_zone": "UTC", "payload": "x"}),
        json!({"every": "999ms", "payload": "x"}),
        json!({"every": "1h", "missed": "some", "payload": "x"}),
        json!({"every": "1h"}),
    ] {
        assert_eq!(put(wrong.clone()).await?.status, 422, "{wrong}");
    }
    assert_eq!(put(json!({"every": "1h", "payload": "x".repeat(16_385)})).await?.status, 413);
    assert_eq!(dwell.ask(&format!("DELETE {path}")).await?.status, 204);
    assert_eq!(dwell.ask(&format!("DELETE {path}")).await?.status, 404);
    Ok(())
}
