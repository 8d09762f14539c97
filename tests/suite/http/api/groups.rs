//! Groups over HTTP.

use serde_json::{Value, json};

use super::served::{Outcome, Served};

#[tokio::test]
async fn group_lifecycle_create_get_pause_delete() -> Outcome {
    let dwell = Served::start().await?;
    let group = "/v1/topics/orders/groups/audit";
    assert_eq!(dwell.ask(&format!("PUT {group}")).await?.status, 404, "a group does not make its topic");
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=a")?.body("x")).await?;
    let made = dwell.send(dwell.request(&format!("PUT {group}"))?.json(&json!({"copy_of": "default"}))).await?;
    assert_eq!((made.status, &made.body), (201, &json!({"group": "audit", "state": "active"})));
    let there = dwell.ask(&format!("PUT {group}")).await?;
    assert_eq!((there.status, &there.body), (200, &made.body));

    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=b&delay=1h")?.body("x")).await?;
    let described = dwell.ask(&format!("GET {group}")).await?.body;
    assert_eq!((&described["totals"]["ready"], &described["totals"]["scheduled"]), (&json!(1), &json!(1)));
    assert_eq!(described["partitions"].as_array().map(Vec::len), Some(8));

    let paused = dwell.tell(&format!("POST {group}/pause"), json!({"for": "10m"})).await?;
    assert_eq!(paused["state"], "paused");
    let until = dwell.now().plus(std::time::Duration::from_secs(600));
    let until: dwell::model::time::Timestamp = until.to_string().parse()?;
    let said: dwell::model::time::Timestamp = paused["paused_until"].as_str().ok_or("no end")?.parse()?;
    assert!(said <= until, "{said} {until}");
    let nothing = dwell.tell(&format!("POST {group}/reserve"), json!({"wait": "5s"})).await?;
    assert_eq!(nothing, json!({"deliveries": [], "visibility_timeout_ms": 30_000}));
    assert_eq!(dwell.ask(&format!("POST {group}/resume")).await?.body, json!({"group": "audit", "state": "active"}));
    let taken = dwell.tell(&format!("POST {group}/reserve"), json!({"wait": "5s"})).await?;
    assert_eq!(taken["deliveries"][0]["id"], "a");

    let list = dwell.ask("GET /v1/topics/orders/groups").await?.body;
    let names = list["groups"].as_array().ok_or("no groups")?.iter().map(|group| group["group"].clone());
    assert_eq!(names.collect::<Vec<Value>>(), [json!("default"), json!("audit")]);

    let limited = dwell.tell(&format!("PUT {group}"), json!({"rate": 2.5, "max_in_flight": 8})).await?;
    assert_eq!(limited, json!({"group": "audit", "state": "active", "rate": 2.5, "max_in_flight": 8}));
    let lifted = dwell.tell(&format!("PUT {group}"), json!({"rate": 0})).await?;
    assert_eq!(lifted, json!({"group": "audit", "state": "active", "max_in_flight": 8}));

    assert_eq!(dwell.ask(&format!("DELETE {group}")).await?.status, 204);
    for gone in [format!("DELETE {group}"), format!("GET {group}"), format!("POST {group}/pause")] {
        assert_eq!(dwell.ask(&gone).await?.status, 404, "{gone}");
    }
    let reserve = dwell.send(dwell.request(&format!("POST {group}/reserve"))?.json(&json!({}))).await?;
    assert_eq!((reserve.status, &reserve.body["type"]), (404, &json!("urn:dwell:error:not-found")));
    assert_eq!(dwell.ask("DELETE /v1/topics/orders/groups/default").await?.status, 409);
    Ok(())
}

#[tokio::test]
async fn group_purge_needs_an_explicit_body() -> Outcome {
    let dwell = Served::start().await?;
    for n in 0..3 {
        dwell.send(dwell.request(&format!("POST /v1/topics/orders/messages?id=m{n}"))?.body("x")).await?;
    }
    let taken = dwell.reserve("orders").await?;
    let purge = "POST /v1/topics/orders/groups/default/purge";
    assert_eq!(dwell.ask(purge).await?.status, 422, "a body that a proxy dropped purges nothing");
    for body in [json!({}), json!({"all": false}), json!({"dry_run": true}), json!({"all": true, "ids": ["m1"]})] {
        assert_eq!(dwell.send(dwell.request(purge)?.json(&body)).await?.status, 422, "{body}");
    }
    let counted = dwell.tell(purge, json!({"all": true, "dry_run": true})).await?;
    assert_eq!(counted, json!({"purged": 0, "matching": 3}));
    assert_eq!(dwell.tell(purge, json!({"all": true})).await?, json!({"purged": 3}));
    assert_eq!(dwell.counts("orders").await?, [0, 0, 0, 0]);
    let ack = json!({"receipts": [taken[0]["receipt"]]});
    let ack = dwell.send(dwell.request("POST /v1/topics/orders/groups/default/ack")?.json(&ack)).await?;
    assert_eq!((ack.status, &ack.body["type"]), (409, &json!("urn:dwell:error:not-settled")), "{ack:?}");
    assert_eq!(dwell.tell(purge, json!({"all": true, "dead_letters": true})).await?, json!({"purged": 0}));
    let nobody = dwell.send(dwell.request("POST /v1/topics/orders/groups/nobody/purge")?.json(&json!({"all": true})));
    assert_eq!(nobody.await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn group_bodies_are_parsed_strictly() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    let refused = async |line: &str, body: Value| -> Outcome<u16> {
        Ok(dwell.send(dwell.request(line)?.json(&body)).await?.status)
    };
    let group = "/v1/topics/orders/groups/audit";
    assert_eq!(refused(&format!("PUT {group}"), json!({"copy": "default"})).await?, 422);
    assert_eq!(refused(&format!("PUT {group}"), json!({"copy_of": null})).await?, 422);
    assert_eq!(refused(&format!("PUT {group}"), json!({"copy_of": "a b"})).await?, 422);
    assert_eq!(refused(&format!("PUT {group}"), json!({"copy_of": "nobody"})).await?, 409);
    assert_eq!(refused(&format!("PUT {group}"), json!({"max_in_flight": 7})).await?, 422);
    assert_eq!(refused(&format!("PUT {group}"), json!({"rate": 100_001})).await?, 422);
    assert_eq!(refused(&format!("PUT {group}"), json!({"rate": "10"})).await?, 422);
    for (rate, status) in [("1e-400", 422), ("-1e-400", 422), ("1e-9", 422), ("null", 422), ("0e9", 201), ("2.5", 200)]
    {
        let body = format!("{{\"rate\": {rate}}}");
        let request = dwell.request(&format!("PUT {group}"))?.header("content-type", "application/json").body(body);
        let answer = dwell.send(request).await?;
        assert_eq!(answer.status, status, "{rate}: {answer:?}");
    }
    let pause = "POST /v1/topics/orders/groups/default/pause";
    assert_eq!(refused(pause, json!({"for": "1m", "until": "2026-01-02T03:04:05Z"})).await?, 422);
    assert_eq!(refused(pause, json!({"for": "-1m"})).await?, 422);
    assert_eq!(refused(pause, json!({"for": "0s"})).await?, 422);
    assert_eq!(refused(pause, json!({"until": "2020-01-02T03:04:05Z"})).await?, 422);
    assert_eq!(refused(pause, json!({"for": "3651d"})).await?, 422);
    assert_eq!(dwell.ask(&format!("{pause}?for=1m")).await?.status, 422);
    assert_eq!(dwell.ask("GET /v1/topics/orders/groups").await?.body["groups"][0]["state"], "active");
    Ok(())
}

/// A window that is closed for the next hour, by the clock of UTC.
fn later(dwell: &Served) -> Value {
    let hour = |ahead: u64| format!("{:02}:30", (dwell.now().as_ms() / 3_600_000 + ahead) % 24);
    json!({"from": hour(2), "to": hour(3)})
}

#[tokio::test]
async fn closed_group_says_when_it_opens() -> Outcome {
    let dwell = Served::start().await?;
    let group = "/v1/topics/orders/groups/default";
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=a")?.body("x")).await?;
    let window = later(&dwell);
    let closed = dwell.tell(&format!("PUT {group}"), json!({"window": window})).await?;
    assert_eq!(closed["state"], "closed");
    let days = json!(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]);
    let whole = json!({"days": days, "from": window["from"], "to": window["to"], "time_zone": "UTC"});
    assert_eq!(closed["window"], whole);
    let opens: dwell::model::time::Timestamp = closed["opens_at"].as_str().ok_or("it never opens")?.parse()?;
    assert!(opens > dwell.now() && closed.get("paused_until").is_none(), "{closed}");

    let nothing = dwell.tell(&format!("POST {group}/reserve"), json!({"wait": "100ms"})).await?;
    assert_eq!(nothing["deliveries"], json!([]));
    let explained = dwell.ask("GET /v1/topics/orders/messages/a/explain").await?.body;
    let why = &explained["groups"][0];
    assert_eq!((&why["reason"], &why["until"]), (&json!("closed"), &closed["opens_at"]), "{explained}");
    assert_eq!(dwell.ask("GET /v1/topics/orders").await?.body["totals"][0]["state"], "closed");
    dwell.send(dwell.request("POST /v1/topics/orders/messages?id=b&delay=10m")?.body("x")).await?;
    let scheduled = dwell.ask("GET /v1/topics/orders/messages/b/explain").await?.body;
    let detail = scheduled["groups"][0]["detail"].as_str().ok_or("no detail")?;
    assert!(detail.contains("it opens at"), "{detail}");

    // What is left out stays, and nothing is always open.
    let limited = dwell.tell(&format!("PUT {group}"), json!({"rate": 2.5})).await?;
    assert_eq!((&limited["window"], &limited["state"]), (&whole, &json!("closed")));
    let open = dwell.tell(&format!("PUT {group}"), json!({"rate": 0, "window": {}})).await?;
    assert_eq!(open, json!({"group": "default", "state": "active"}));
    let taken = dwell.tell(&format!("POST {group}/reserve"), json!({"wait": "5s"})).await?;
    assert_eq!(taken["deliveries"][0]["id"], "a");
    Ok(())
}

#[tokio::test]
async fn fairness_and_its_limit_are_set_kept_and_taken_away() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    let group = "PUT /v1/topics/orders/groups/default";
    let fair = dwell.tell(group, json!({"fair": "key", "key_max_in_flight": 5})).await?;
    assert_eq!(fair, json!({"group": "default", "state": "active", "fair": "key", "key_max_in_flight": 5}));
    let limited = dwell.tell(group, json!({"rate": 10.0})).await?;
    assert_eq!((&limited["fair"], &limited["key_max_in_flight"]), (&json!("key"), &json!(5)));
    assert_eq!(dwell.ask("GET /v1/topics/orders/groups").await?.body["groups"][0], limited);
    let paced = dwell.tell(group, json!({"key_rate": 2.5, "key_burst": 3})).await?;
    assert_eq!((&paced["key_rate"], &paced["key_burst"], &paced["rate"]), (&json!(2.5), &json!(3), &json!(10.0)));
    // The burst stays with another rate, and goes with the rate.
    let faster = dwell.tell(group, json!({"key_rate": 5})).await?;
    assert_eq!((&faster["key_rate"], &faster["key_burst"]), (&json!(5.0), &json!(3)));
    let slower = dwell.tell(group, json!({"key_burst": 1})).await?;
    assert_eq!((&slower["key_rate"], slower.get("key_burst")), (&json!(5.0), None));
    let unpaced = dwell.tell(group, json!({"key_rate": 0})).await?;
    assert_eq!(unpaced, limited);
    let weights = json!({"customer-7": 3, "gold-*": 2});
    let weighed = dwell.tell(group, json!({"weights": weights})).await?;
    assert_eq!((&weighed["weights"], weighed.get("key_limits")), (&weights, None));
    let limits =
        json!({"gold-*": {"max_in_flight": 20, "rate": 50.0, "burst": 5}, "free": {"max_in_flight": 0, "rate": 0.0}});
    let excepted = dwell.tell(group, json!({"key_limits": limits})).await?;
    assert_eq!((&excepted["weights"], &excepted["key_limits"]), (&weights, &limits));
    assert_eq!(dwell.ask("GET /v1/topics/orders/groups").await?.body["groups"][0], excepted);
    // All at once: an entry that is not given is gone.
    let fewer = dwell.tell(group, json!({"weights": {"*": 4}, "key_limits": {"a": {"rate": 1, "burst": 1}}})).await?;
    assert_eq!((&fewer["weights"], &fewer["key_limits"]), (&json!({"*": 4}), &json!({"a": {"rate": 1.0}})));
    assert_eq!(dwell.tell(group, json!({"weights": {}, "key_limits": {}})).await?, limited);
    let plain = dwell.tell(group, json!({"rate": 0, "fair": "none", "key_max_in_flight": 0})).await?;
    assert_eq!(plain, json!({"group": "default", "state": "active"}));
    Ok(())
}

#[tokio::test]
async fn wrong_fairness_is_refused_at_its_field() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    dwell.tell("PUT /v1/topics/ledger", json!({"ordering": "key"})).await?;
    let cases = [
        ("orders", json!({"fair": null}), "/fair", "type"),
        ("orders", json!({"fair": "keys"}), "/fair", "choice"),
        ("orders", json!({"fair": "key", "key_max_in_flight": -1}), "/key_max_in_flight", "range"),
        ("orders", json!({"key_max_in_flight": 5}), "/key_max_in_flight", "missing"),
        ("orders", json!({"key_rate": 5}), "/key_rate", "missing"),
        ("orders", json!({"fair": "key", "key_rate": -1}), "/key_rate", "range"),
        ("orders", json!({"fair": "key", "key_rate": 1e9}), "/key_rate", "range"),
        ("orders", json!({"fair": "key", "key_rate": "5"}), "/key_rate", "type"),
        ("orders", json!({"fair": "key", "key_rate": 5, "key_burst": 0}), "/key_burst", "range"),
        ("orders", json!({"fair": "key", "key_rate": 5, "key_burst": 10_001}), "/key_burst", "range"),
        ("orders", json!({"fair": "key", "key_burst": 5}), "/key_burst", "missing"),
        ("orders", json!({"weights": {"a": 2}}), "/weights", "missing"),
        ("orders", json!({"key_limits": {"a": {"rate": 2}}}), "/key_limits", "missing"),
        ("orders", json!({"fair": "key", "weights": {"a": 0}}), "/weights/a", "range"),
        ("orders", json!({"fair": "key", "weights": {"a": 101}}), "/weights/a", "range"),
        ("orders", json!({"fair": "key", "weights": {"a": 1.5}}), "/weights/a", "type"),
        ("orders", json!({"fair": "key", "weights": {"a*b": 2}}), "/weights", "format"),
        ("orders", json!({"fair": "key", "weights": {"": 2}}), "/weights", "format"),
        ("orders", json!({"fair": "key", "weights": 3}), "/weights", "type"),
        ("orders", json!({"fair": "key", "key_limits": {"a": {"burst": 2}}}), "/key_limits", "missing"),
        ("orders", json!({"fair": "key", "key_limits": {"a": {"rate": -1}}}), "/key_limits/a/rate", "format"),
        ("orders", json!({"fair": "key", "key_limits": {"a": {"rates": 1}}}), "/key_limits/a/rates", "unknown"),
        ("orders", json!({"fair": "key", "key_limits": {"a": [1]}}), "/key_limits/a", "type"),
        ("ledger", json!({"fair": "key"}), "/fair", "exclusive"),
    ];
    for (topic, body, pointer, code) in cases {
        let place = format!("PUT /v1/topics/{topic}/groups/default");
        let answer = dwell.send(dwell.request(&place)?.json(&body)).await?;
        let error = &answer.body["errors"][0];
        let found = (answer.status, &error["pointer"], &error["code"]);
        assert_eq!(found, (422, &json!(pointer), &json!(code)), "{body}: {:?}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn wrong_pause_of_a_key_is_refused() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    let pause = async |key: &str, body: serde_json::Value| {
        let place = format!("POST /v1/topics/orders/groups/default/keys/{key}/pause");
        dwell.send(dwell.request(&place)?.json(&body)).await
    };
    let refused = pause("c7", json!({"for": "10m"})).await?;
    assert_eq!((refused.status, &refused.body["type"]), (409, &json!("urn:dwell:error:conflict")), "{refused:?}");
    dwell.tell("PUT /v1/topics/orders/groups/default", json!({"fair": "key"})).await?;
    for (key, body, pointer, code) in [
        ("c7", json!({}), "/for", "missing"),
        ("c7", json!({"for": "10m", "until": "2036-01-02T03:04:05Z"}), "/for", "exclusive"),
        ("c7", json!({"for": "9999d"}), "/for", "range"),
        ("c7", json!({"until": "2999-01-02T03:04:05Z"}), "/until", "range"),
        ("c7", json!({"for": 10}), "/for", "format"),
    ] {
        let answer = pause(key, body.clone()).await?;
        let error = &answer.body["errors"][0];
        let found = (answer.status, &error["pointer"], &error["code"]);
        assert_eq!(found, (422, &json!(pointer), &json!(code)), "{body}: {:?}", answer.body);
    }
    // A client or a proxy may take it for a step of the path.
    for key in ["..", "%2E%2E", "."] {
        let line = format!("POST /v1/topics/orders/groups/default/keys/{key}/pause HTTP/1.1");
        let head = "host: localhost\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close";
        let answer = dwell.raw(format!("{line}\r\n{head}\r\n\r\n{{\"for\":\"10m\"}}").as_bytes()).await?;
        assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("\"parameter\":\"key\""), "{key}: {answer}");
    }
    let paused = pause("a%2Fb%20%C3%BC", json!({"for": "10m"})).await?;
    assert_eq!((paused.status, &paused.body["key"]), (200, &json!("a/b ü")), "{paused:?}");
    let resumed = dwell.tell("POST /v1/topics/orders/groups/default/keys/a%2Fb%20%C3%BC/resume", json!({})).await?;
    assert_eq!(resumed, json!({"key": "a/b ü"}));
    Ok(())
}

#[tokio::test]
async fn a_nack_pauses_keys_in_a_fair_group_alone() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    dwell.tell("POST /v1/topics/orders/messages", json!({"payload": "x", "key": "c7"})).await?;
    let receipt = dwell.receipt("orders").await?;
    let nack = async |body: serde_json::Value| {
        dwell.send(dwell.request("POST /v1/topics/orders/groups/default/nack")?.json(&body)).await
    };
    let one = json!({"receipts": [{"receipt": receipt, "delay": "30s", "pause_key": true}]});
    let refused = nack(one.clone()).await?;
    let error = &refused.body["errors"][0];
    assert_eq!((refused.status, &error["pointer"]), (422, &json!("/pause_key")), "{refused:?}");
    dwell.tell("PUT /v1/topics/orders/groups/default", json!({"fair": "key"})).await?;
    let both = nack(json!({"receipts": [receipt], "bury": true, "pause_key": true})).await?;
    let error = &both.body["errors"][0];
    assert_eq!((both.status, &error["pointer"], &error["code"]), (422, &json!("/pause_key"), &json!("exclusive")));
    let nacked = nack(one).await?;
    assert_eq!((nacked.status, &nacked.body["results"][0]["status"]), (200, &json!("nacked")), "{nacked:?}");
    let keys = dwell.ask("GET /v1/topics/orders/groups/default").await?.body["keys"].clone();
    assert_eq!((&keys["paused_count"], &keys["paused"][0]["key"]), (&json!(1), &json!("c7")), "{keys}");
    Ok(())
}

#[tokio::test]
async fn wrong_window_is_refused_at_its_field() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    let cases = [
        (json!(null), "/window", "type"),
        (json!("mon-fri 09:00-17:30"), "/window", "type"),
        (json!({"from": "09:00"}), "/window/to", "missing"),
        (json!({"days": ["mon"], "to": "09:00"}), "/window/from", "missing"),
        (json!({"from": "09:00", "to": "09:00"}), "/window/to", "range"),
        (json!({"from": "9:00", "to": "17:00"}), "/window/from", "format"),
        (json!({"from": "09:00", "to": "24:00"}), "/window/to", "format"),
        (json!({"from": 9, "to": "17:00"}), "/window/from", "format"),
        (json!({"days": [], "from": "09:00", "to": "17:00"}), "/window/days", "range"),
        (json!({"days": ["mon", "monday"], "from": "09:00", "to": "17:00"}), "/window/days/1", "choice"),
        (json!({"days": ["mon", "mon"], "from": "09:00", "to": "17:00"}), "/window/days", "repeated"),
        (json!({"from": "09:00", "to": "17:00", "time_zone": "Europe/Berlim"}), "/window/time_zone", "format"),
        (json!({"from": "09:00", "till": "17:00"}), "/window/till", "unknown"),
    ];
    for (window, pointer, code) in cases {
        let body = json!({"window": window});
        let answer = dwell.send(dwell.request("PUT /v1/topics/orders/groups/default")?.json(&body)).await?;
        let error = &answer.body["errors"][0];
        let found = (answer.status, &error["pointer"], &error["code"]);
        assert_eq!(found, (422, &json!(pointer), &json!(code)), "{body}: {:?}", answer.body);
    }
    let groups = dwell.ask("GET /v1/topics/orders/groups").await?.body;
    assert_eq!(groups["groups"][0], json!({"group": "default", "state": "active"}));
    Ok(())
}

/// What is moved to a topic that is made for it is not delivered by that.
#[tokio::test]
async fn limits_and_pauses_move_with_a_topic() -> Outcome {
    let dwell = Served::start().await?;
    let group = "/v1/topics/orders/groups/default";
    for id in ["a", "b", "c", "d"] {
        dwell.tell("POST /v1/topics/orders/messages", json!({"payload": "x", "id": id})).await?;
    }
    dwell.tell(&format!("PUT {group}"), json!({"rate": 1.0, "max_in_flight": 8})).await?;
    dwell.tell(&format!("POST {group}/pause"), json!({})).await?;
    let moved = dwell.tell("POST /v1/topics/orders/move", json!({"to": "moved"})).await?;
    assert_eq!((&moved["done"], &moved["moved"]), (&json!(true), &json!(4)), "{moved}");
    let there = dwell.ask("GET /v1/topics/moved/groups/default").await?.body;
    assert_eq!((&there["state"], &there["rate"], &there["max_in_flight"]), (&json!("paused"), &json!(1.0), &json!(8)));
    let reserved = dwell.tell("POST /v1/topics/moved/groups/default/reserve", json!({"max": 4})).await?;
    assert_eq!(reserved["deliveries"], json!([]));
    let request = dwell.request("POST /v1/topics/orders/move")?.json(&json!({"to": "wide", "partitions": 1_025}));
    let refused = dwell.send(request).await?;
    assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (422, &json!("/partitions")), "{refused:?}");
    Ok(())
}
