//! What an operator does: push, look, move, cancel, pause, limit, look ahead.

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::browser::patiently;
use super::{Console, in_a_shell};

#[tokio::test]
async fn a_message_is_pushed_moved_and_cancelled() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.open("").await?;
    browser.reads("There are no topics yet.").await?;
    browser.click("New message…").await?;
    browser.write("Topic", "orders").await?;
    browser.click("Continue").await?;

    browser.write("Payload", "close order 4711").await?;
    browser.write("Key", "customer-7").await?;
    browser.write("Id", "close-4711").await?;
    browser.choose("Due", "After a delay").await?;
    browser.write("Delay", "1h").await?;
    browser.click("Push").await?;
    browser.reads("it survives the death of the process").await?;
    let target = "/v1/topics/orders/messages/close-4711?key=customer-7";
    let pushed = console.tell(&format!("GET {target}"), Value::Null).await?;
    assert_eq!((&pushed["payload"], &pushed["state"]), (&json!("close order 4711"), &json!("scheduled")));
    assert_eq!(pushed["content_type"], "text/plain; charset=utf-8");

    browser.click("close-4711").await?;
    browser.reads("Why it is not delivered yet").await?;
    browser.reads("due at 20").await?;
    browser.click("Reschedule…").await?;
    browser.write("Delay", "soon").await?;
    browser.click("Reschedule").await?;
    browser.reads("\"soon\" is not a duration").await?;
    browser.write("Delay", "2h").await?;
    browser.click("Reschedule").await?;
    browser.reads("default: rescheduled").await?;
    let moved = console.tell(&format!("GET {target}"), Value::Null).await?;
    assert!(moved["due_at"].as_str() > pushed["due_at"].as_str(), "{moved}");

    browser.click("Run now").await?;
    assert!(
        browser.line("dwell message run").await?.starts_with("dwell message run orders close-4711 --key customer-7")
    );
    browser.click("Run now").await?;
    browser.reads("State ready").await?;
    browser.reads("nobody consumes").await?;

    browser.click("Cancel the message…").await?;
    browser.click("Cancel").await?;
    browser.click("Cancel the message…").await?;
    browser.click("Cancel the message").await?;
    browser.reads("default: cancelled").await?;
    browser.reads("default does not have it.").await?;
    assert_eq!(console.ask(&format!("GET {target}"), Value::Null).await?.0, 404);

    // A second look for it, by id alone, says that a key may be missing.
    console.open("#/topics/orders/messages").await?;
    browser.write("Id", "close-4711").await?;
    browser.click("Open").await?;
    browser.reads("give the key, too").await?;
    console.end().await
}

#[tokio::test]
async fn a_message_in_flight_is_followed_by_another_one() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"id": "index-7", "payload": "index product 7"})]).await?;
    console.tell("POST /v1/topics/orders/groups/default/reserve", json!({"wait": "5s"})).await?;
    console.open("#/topics/orders/push").await?;
    browser.write("Payload", "index product 7 again").await?;
    browser.write("Id", "index-7").await?;
    browser.click("More").await?;
    browser.choose("If the id is there", "after: follow one that is in flight").await?;
    browser.click("Push").await?;
    browser.reads("it survives the death of the process").await?;
    browser.click("index-7").await?;
    browser.reads("State in flight").await?;
    browser.reads("Successor due at").await?;
    console.end().await
}

#[tokio::test]
async fn the_busiest_keys_of_a_fair_group_are_shown() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    console.open("#/topics/orders").await?;
    browser.reads("Partitions of default").await?;
    browser.reads_no("Keys of default").await?;
    let fair = json!({"fair": "key", "key_max_in_flight": 1, "key_rate": 0.01});
    console.tell("PUT /v1/topics/orders/groups/default", fair).await?;
    browser.reads("Keys of default").await?;
    browser.reads("0 keys have messages due or in flight.").await?;

    let of = |key: &str, n: u64| json!({"payload": "x", "id": format!("{key}-{n}"), "key": key});
    console.push("orders", (0..30).map(|n| of("<b>busy</b>", n)).chain([of("quiet", 0)]).collect()).await?;
    console.push("orders", vec![json!({"payload": "x", "id": "without"})]).await?;
    browser.reads("Partitions are missing in it: nobody consumes from them").await?;
    let reserve = json!({"max": 10, "wait": "10s", "min": 3, "linger": "10s"});
    let taken = console.tell("POST /v1/topics/orders/groups/default/reserve", reserve).await?;
    assert_eq!(taken["deliveries"].as_array().map(Vec::len), Some(3), "one of each key, and the one without: {taken}");
    browser.reads("<b>busy</b> 29 1 a delivery of it to end").await?;
    browser.reads("messages without a key 0 1").await?;
    browser.reads("3 keys have messages due or in flight.").await?;
    let receipts: Vec<&Value> =
        taken["deliveries"].as_array().into_iter().flatten().map(|each| &each["receipt"]).collect();
    console.tell("POST /v1/topics/orders/groups/default/ack", json!({"receipts": receipts})).await?;
    browser.reads("<b>busy</b> 29 0 its rate").await?;
    browser.reads("1 key has messages due or in flight.").await?;

    browser.click("Pause <b>busy</b>…").await?;
    let line = "dwell group pause orders default --key '<b>busy</b>' --for 10m";
    assert!(browser.line("dwell group pause").await?.starts_with(line));
    browser.click("Pause").await?;
    browser.reads("<b>busy</b> 29 0 the end of its pause").await?;
    browser.reads("1 key paused.").await?;
    browser.click("Resume <b>busy</b>").await?;
    browser.click("Resume").await?;
    browser.reads_no("1 key paused.").await?;
    console.end().await
}

#[tokio::test]
async fn groups_are_paused_and_limited_and_forecast_is_shown() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    console.tell("PUT /v1/topics/orders/groups/audit", json!({})).await?;
    let later = |n: u64| json!({"payload": "x", "id": format!("later-{n}"), "delay": format!("{n}m")});
    console.push("orders", (1..=60).map(later).collect()).await?;
    console.push("orders", vec![json!({"payload": "now", "id": "now"})]).await?;

    console.open("").await?;
    // A row for each group, and no sum over both.
    browser.reads("orders · audit").await?;
    browser.reads_no("120").await?;
    browser.click("orders").await?;
    browser.reads("Partitions of default").await?;
    browser.reads("60 become due in this time").await?;
    let bars = browser.run("return document.querySelectorAll('.plot .column').length", json!([])).await?;
    assert_eq!(bars, 60);
    browser.click("The same as a table").await?;
    let rows = "return document.querySelectorAll('details table tbody tr').length";
    assert_eq!(browser.run(rows, json!([])).await?, 60);
    browser.choose("Ahead", "The next 6 hours").await?;
    assert!(browser.line("dwell forecast").await?.starts_with("dwell forecast orders --step"));

    browser.click("Pause audit…").await?;
    browser.write("For", "2h").await?;
    assert!(browser.line("dwell group pause").await?.starts_with("dwell group pause orders audit --for 2h"));
    browser.click("Pause").await?;
    browser.reads("audit is paused for").await?;
    browser.reads("paused for").await?;
    let group = console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?;
    assert_eq!(group["state"], "paused");
    assert!(group["paused_until"].is_string(), "{group}");
    console.open("#/topics/orders/messages/now?group=audit").await?;
    browser.reads("paused").await?;
    console.open("#/topics/orders").await?;
    browser.click("Resume audit").await?;
    browser.click("Resume").await?;
    browser.reads("audit is resumed").await?;
    assert_eq!(console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?["state"], "active");

    browser.click("Limits of audit…").await?;
    browser.write("Rate", "50").await?;
    browser.write("Max in flight", "1").await?;
    browser.click("Set limits").await?;
    browser.reads("max_in_flight").await?;
    browser.write("Max in flight", "20").await?;
    browser.click("Set limits").await?;
    browser.reads("50/s").await?;
    let group = console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?;
    assert_eq!((&group["rate"], &group["max_in_flight"]), (&json!(50.0), &json!(20)));

    browser.click("Limits of audit…").await?;
    browser.write("Window", "mon-wed,fry 09:00-17:30 Europe/Berlin").await?;
    browser.click("Set limits").await?;
    browser.reads("\"fry\" is none of mon").await?;
    browser.write("Window", "mon-wed,fri 09:00-17:30 Europe/Berlin").await?;
    assert!(browser.line("dwell group create").await?.contains("--window 'mon-wed,fri 09:00-17:30 Europe/Berlin'"));
    browser.click("Set limits").await?;
    browser.reads("mon-wed,fri 09:00-17:30 Europe/Berlin").await?;
    let group = console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?;
    let window =
        json!({"days": ["mon", "tue", "wed", "fri"], "from": "09:00", "to": "17:30", "time_zone": "Europe/Berlin"});
    assert_eq!(group["window"], window);
    browser.click("Limits of audit…").await?;
    browser.write("Window", "").await?;
    browser.click("Set limits").await?;
    browser.reads("always open").await?;

    browser.click("Limits of audit…").await?;
    browser.choose("Fair", "by key: each key has its share").await?;
    browser.write("Weights of keys", r#"{"gold-*": 2"#).await?;
    browser.click("Set limits").await?;
    browser.reads("weights").await?;
    browser.write("Weights of keys", r#"{"gold-*": 2, "customer-7": 3}"#).await?;
    browser.write("Limits of some keys", r#"{"gold-*": {"max_in_flight": 20}}"#).await?;
    assert!(browser.line("dwell group create").await?.contains(r#"--weights '{"gold-*": 2, "customer-7": 3}'"#));
    browser.click("Set limits").await?;
    browser.reads("by key, 1 other limit, 2 weights").await?;
    let group = console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?;
    assert_eq!(group["weights"], json!({"gold-*": 2, "customer-7": 3}));
    assert_eq!(group["key_limits"], json!({"gold-*": {"max_in_flight": 20}}));
    // The dialog shows them, and removes them with fairness.
    browser.click("Limits of audit…").await?;
    browser.choose("Fair", "no: the first due is first").await?;
    browser.write("Weights of keys", "").await?;
    browser.write("Limits of some keys", "").await?;
    browser.click("Set limits").await?;
    browser.reads("The limits of audit are set.").await?;
    let group = console.tell("GET /v1/topics/orders/groups/audit", Value::Null).await?;
    assert_eq!((group.get("fair"), group.get("weights"), group.get("key_limits")), (None, None, None));
    console.end().await
}

#[tokio::test]
async fn group_purge_requires_a_selection() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.bury("orders", vec![json!({"payload": "x"})], "no").await?;
    console.push("orders", (0..3).map(|_| json!({"payload": "x", "delay": "1h"})).collect()).await?;
    let totals =
        async || Ok::<_, Error>(console.tell("GET /v1/topics/orders", Value::Null).await?["totals"][0].clone());

    console.open("#/topics/orders").await?;
    browser.click("Purge default…").await?;
    browser.reads("also those in flight").await?;
    browser.click("Purge for good").await?;
    assert_eq!(totals().await?["scheduled"], 3, "nothing is chosen yet");
    browser.choose("Delete", "3 messages: scheduled, ready, blocked and in flight").await?;
    let line = browser.line("dwell group purge").await?;
    assert!(line.starts_with("dwell group purge orders default --server"), "{line}");
    browser.click("Purge for good").await?;
    browser.reads("3 messages of default purged.").await?;
    let left = totals().await?;
    assert_eq!((&left["scheduled"], &left["dead"]), (&json!(0), &json!(1)));
    browser.click("Purge default…").await?;
    browser.choose("Delete", "0 messages and 1 dead letter").await?;
    assert!(browser.line("dwell group purge").await?.contains("orders default --dead-letters"));
    browser.click("Purge for good").await?;
    browser.reads("1 message of default purged.").await?;
    assert_eq!(totals().await?["dead"], 0);
    console.end().await
}

#[tokio::test]
async fn topic_settings_and_message_details_are_shown() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/buried", json!({"partitions": 1})).await?;
    let settings = json!({
        "partitions": 1, "max_attempts": 0, "visibility_timeout": "90s", "dead_letter": {"topic": "buried"},
        "annotations": {"team": "checkout"}, "backoff": {"kind": "ladder", "steps": ["10s", "1m"]},
    });
    console.tell("PUT /v1/topics/orders", settings).await?;
    console.open("#/topics/orders").await?;
    for text in ["without a limit", "1 min 30 s", "annotation team", "checkout", "ladder: 10 s, 1 min"] {
        browser.reads(text).await?;
    }
    // Once it is forwarded, the dead letter says where it was one.
    console
        .bury("orders", vec![json!({"payload": "x", "id": "o-1", "attachment": "AAECAw=="})], "no such user")
        .await?;
    let forwarded = "GET /v1/topics/buried/messages";
    let found = async || {
        let list = console.tell(forwarded, Value::Null).await?;
        Ok::<_, Error>(list["messages"][0]["id"].as_str().map(str::to_owned))
    };
    let id = patiently("the dead letter is forwarded", found).await?;
    console.open(&format!("#/topics/buried/messages/{id}")).await?;
    for text in ["Dead letter of", "no such user", "Attachment", "4 B of a gateway"] {
        browser.reads(text).await?;
    }
    console.end().await
}

#[tokio::test]
async fn lists_have_pages_filters_and_permalinks() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    let message = |n: u64| json!({"payload": "x", "id": format!("m-{n:03}"), "delay": format!("{}s", 3_600 + n)});
    console.push("orders", (0..120).map(message).collect()).await?;
    let ids = "return [...document.querySelectorAll('tbody th')].map((e) => e.textContent)";
    console.open("#/topics/orders/messages?state=scheduled").await?;
    browser.reads("m-049").await?;
    browser.click("Next page").await?;
    browser.reads("m-099").await?;
    browser.click("Next page").await?;
    browser.reads("m-119").await?;
    assert_eq!(browser.run(ids, json!([])).await?.as_array().map(Vec::len), Some(20));
    browser.run("history.back()", json!([])).await?;
    browser.reads("m-050").await?;
    browser.choose("State", "in flight").await?;
    browser.click("Show").await?;
    browser.reads("No message is like this.").await?;

    console
        .tell("PUT /v1/topics/orders/cron/nightly", json!({"cron": "0 3 * * *", "payload": "close the books"}))
        .await?;
    console.open("#/topics/orders/cron").await?;
    browser.click("Pause nightly…").await?;
    browser.click("Pause").await?;
    browser.reads("nightly is paused").await?;
    let schedule = "GET /v1/topics/orders/cron/nightly";
    assert_eq!(console.tell(schedule, Value::Null).await?["paused"], true);
    browser.click("Resume nightly…").await?;
    in_a_shell(&browser.line("dwell cron resume").await?).await?;
    assert_eq!(console.tell(schedule, Value::Null).await?["paused"], false);
    console.end().await
}

/// The lines that are shown do what the buttons do, whatever is in a key or a payload.
#[tokio::test]
async fn shown_command_lines_are_runnable() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    let (payload, key) = ("it's \"$HOME\" `id`\n\tünd \\n 😀 \u{202e}", "-it's $(id) \u{200f}key");
    console.open("#/topics/orders/push").await?;
    browser.write("Id", "--id").await?;
    browser.choose("Due", "After a delay").await?;
    browser.write("Delay", "1h").await?;
    // A driver types what is on a keyboard; the rest is pasted.
    let paste = "for (const [name, text] of Object.entries(arguments[0])) {
        document.querySelector(`[name=${name}]`).value = text;
        document.querySelector(`[name=${name}]`).dispatchEvent(new Event('input', {bubbles: true}));
    }";
    browser.run(paste, json!([{"payload": payload, "key": key}])).await?;
    let push = browser.line("dwell push").await?;
    in_a_shell(&push).await?;
    browser.click("Push").await?;
    browser.reads("Status duplicate").await?;
    browser.click("--id").await?;
    browser.reads("Payload").await?;
    let get = browser.line("dwell message get").await?;
    assert!(in_a_shell(&get).await?.contains("scheduled"), "{get}");
    assert!(in_a_shell(&browser.line("dwell explain").await?).await?.contains("due at"));
    let list = console.tell("GET /v1/topics/orders/messages", Value::Null).await?;
    let message = &list["messages"][0];
    assert_eq!((&message["payload"], &message["key"]), (&json!(payload), &json!(key)));

    browser.click("Reschedule…").await?;
    browser.write("Delay", "3h").await?;
    in_a_shell(&browser.line("dwell message reschedule").await?).await?;
    let moved = console.tell("GET /v1/topics/orders/messages", Value::Null).await?;
    assert!(moved["messages"][0]["due_at"].as_str() > message["due_at"].as_str(), "{moved}");
    browser.click("Cancel").await?;
    browser.click("Cancel the message…").await?;
    in_a_shell(&browser.line("dwell message cancel").await?).await?;
    let left = console.tell("GET /v1/topics/orders/messages", Value::Null).await?;
    assert_eq!(left["messages"], json!([]));
    console.end().await
}
