//! What an operator changes: topics, groups, cron jobs, and all that becomes due in a span of time.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::Console;

#[tokio::test]
async fn topics_and_groups_are_created_changed_and_deleted() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.open("").await?;
    browser.click("Create topic…").await?;
    browser.write("Name", "orders").await?;
    browser.write("Partitions", "2").await?;
    browser.write("Max attempts", "7").await?;
    let line = browser.line("dwell topic create").await?;
    assert!(line.starts_with("dwell topic create orders --partitions 2"), "{line}");
    browser.click("Create topic").await?;
    browser.reads("orders is created.").await?;
    browser.click("Change settings…").await?;
    browser.write("Time to live", "soon").await?;
    browser.click("Change settings").await?;
    browser.reads("\"soon\" is not a duration").await?;
    browser.write("Time to live", "1h").await?;
    browser.click("Change settings").await?;
    browser.reads("The settings of orders are changed.").await?;
    let topic = console.tell("GET /v1/topics/orders", Value::Null).await?;
    assert_eq!((&topic["settings"]["max_attempts"], &topic["settings"]["ttl_ms"]), (&json!(7), &json!(3_600_000)));

    browser.click("Create group…").await?;
    browser.write("Name", "audit").await?;
    browser.write("Rate", "5").await?;
    browser.click("Create group").await?;
    browser.reads("audit is created.").await?;
    browser.click("Delete audit…").await?;
    browser.write("Type the name", "default").await?;
    browser.click("Delete for good").await?;
    browser.reads("Nothing is deleted").await?;
    browser.write("Type the name", "audit").await?;
    browser.click("Delete for good").await?;
    browser.reads("audit is deleted.").await?;
    browser.click("Delete topic…").await?;
    browser.write("Type the name", "orders").await?;
    browser.click("Delete for good").await?;
    browser.reads("orders is deleted.").await?;
    browser.reads("There are no topics yet.").await?;
    assert_eq!(console.ask("GET /v1/topics/orders", Value::Null).await?.0, 404);
    console.end().await
}

#[tokio::test]
async fn cron_jobs_are_created_run_changed_and_deleted() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.open("#/topics/orders/cron").await?;
    browser.click("Create cron job…").await?;
    browser.write("Name", "nightly").await?;
    browser.write("Cron expression", "0 3 * * *").await?;
    browser.write("Payload", "close the books").await?;
    browser.click("Create").await?;
    browser.reads("nightly is created.").await?;
    browser.click("Run now nightly…").await?;
    browser.click("Run now").await?;
    browser.reads("Pushed as").await?;
    let list = console.tell("GET /v1/topics/orders/messages", Value::Null).await?;
    assert_eq!(
        (&list["messages"][0]["payload"], &list["messages"][0]["key"]),
        (&json!("close the books"), &json!("nightly"))
    );
    browser.click("Change nightly…").await?;
    browser.choose("Occurs", "at equal intervals").await?;
    browser.write("Every", "15m").await?;
    browser.click("Change").await?;
    browser.reads("every 15 min").await?;
    let job = console.tell("GET /v1/topics/orders/cron/nightly", Value::Null).await?;
    assert_eq!((&job["every_ms"], &job["payload"]), (&json!(900_000), &json!("close the books")));
    browser.click("Delete nightly…").await?;
    browser.click("Delete for good").await?;
    browser.reads("There are no cron jobs.").await?;
    console.end().await
}

/// The ids that the Messages page shows, in its order.
async fn listed(console: &Console) -> Result<Value> {
    let ids = "return [...document.querySelectorAll('tbody tr th a')].map((e) => e.textContent)";
    console.browser.run(ids, json!([])).await
}

#[tokio::test]
async fn messages_are_listed_by_due_time_over_all_partitions() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 8})).await?;
    let later = |n: u64| json!({"payload": "x", "id": format!("m{n:02}"), "delay": format!("{}m", 100 - n)});
    console.push("orders", (0..70).map(later).collect()).await?;
    console.open("#/topics/orders/messages").await?;
    browser.reads("Messages by due time, the earliest first").await?;
    let expected = |range: std::ops::Range<u64>| json!(range.rev().map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    assert_eq!(listed(&console).await?, expected(20..70));
    browser.click("Next page").await?;
    browser.reads("m00").await?;
    assert_eq!(listed(&console).await?, expected(0..20));
    console.end().await
}

#[tokio::test]
async fn selected_messages_are_rescheduled_and_cancelled() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    let later = |n: u64| json!({"payload": "x", "id": format!("m{n}"), "delay": format!("{}m", n + 10)});
    let keyed = json!({"payload": "x", "id": "keyed", "key": "customer 7", "delay": "1h"});
    console.push("orders", (0..5).map(later).chain([keyed]).collect()).await?;
    console.open("#/topics/orders/messages").await?;
    browser.reads("keyed").await?;
    let checked = "return document.querySelectorAll('input[name=id]:checked').length";
    let usable = "return [...document.querySelectorAll('.actions button')].filter((e) => !e.disabled).length";
    assert_eq!(browser.run(checked, json!([])).await?, 0, "nothing is selected beforehand");
    assert_eq!(browser.run(usable, json!([])).await?, 0, "without a selection there is nothing to do");
    let select =
        async |id: &str| browser.run("document.querySelector(`[value=${arguments[0]}]`).click()", json!([id])).await;

    for id in ["m0", "m4", "keyed"] {
        select(id).await?;
    }
    browser.reads("3 selected").await?;
    browser.click("Reschedule selected…").await?;
    browser.write("Delay", "30m").await?;
    let line = browser.line("dwell message reschedule").await?;
    assert!(line.contains(" && dwell message reschedule orders keyed --key 'customer 7' --delay 30m"), "{line}");
    // One is gone by the time the answer is given.
    console.tell("DELETE /v1/topics/orders/messages/m4", Value::Null).await?;
    browser.click("Reschedule 3 messages").await?;
    browser.reads("2 messages rescheduled; 1 passed over.").await?;
    browser.reads_no("3 selected").await?;
    let order = async || {
        let found = console.tell("GET /v1/topics/orders/messages?order=due", Value::Null).await?;
        let ids = found["messages"].as_array().into_iter().flatten().map(|message| message["id"].clone());
        Ok::<_, dwell::model::error::Error>(
            ids.map(|id| id.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(order().await?, ["m1", "m2", "m3", "m0", "keyed"]);
    assert_eq!(browser.run(checked, json!([])).await?, 0, "the next action begins without a selection");

    let all = async || {
        browser.reads("Select all of this page").await?;
        browser.run("document.getElementsByName('every')[0].click()", json!([])).await
    };
    all().await?;
    browser.reads("5 selected").await?;
    select("m2").await?;
    browser.reads("4 selected").await?;
    let state = "const [all] = document.getElementsByName('every'); return [all.checked, all.indeterminate]";
    assert_eq!(browser.run(state, json!([])).await?, json!([false, true]), "some of the page");
    all().await?;
    browser.reads("5 selected").await?;
    all().await?;
    browser.reads_no("5 selected").await?;
    assert_eq!(browser.run(checked, json!([])).await?, 0);

    for id in ["m1", "keyed"] {
        select(id).await?;
    }
    browser.click("Cancel selected…").await?;
    assert!(browser.line("dwell message cancel").await?.starts_with("dwell message cancel orders m1 --server"));
    assert_eq!(order().await?.len(), 5, "the question is not answered yet");
    browser.click("Cancel 2 messages").await?;
    browser.reads("2 messages cancelled.").await?;
    browser.reads_no("keyed").await?;
    assert_eq!(order().await?, ["m2", "m3", "m0"]);
    console.end().await
}

#[tokio::test]
async fn forecast_column_is_counted_and_cancelled() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    let later = |n: u64| json!({"payload": "x", "id": format!("later-{n}"), "delay": "30m"});
    console.push("orders", (0..5).map(later).collect()).await?;
    console.push("orders", vec![json!({"payload": "x", "id": "last", "delay": "50m"})]).await?;
    console.open("#/topics/orders").await?;
    browser.reads("6 become due in this time").await?;
    let pick = "document.querySelector('.can-pick').dispatchEvent(new MouseEvent('click', {bubbles: true}))";
    browser.run(pick, json!([])).await?;
    browser.reads("5 messages of default wait").await?;
    assert!(browser.line("dwell bulk count").await?.starts_with("dwell bulk count orders --from 20"));
    browser.click("Change the messages").await?;
    let waiting = async || {
        Ok::<_, dwell::model::error::Error>(
            console.tell("GET /v1/topics/orders", Value::Null).await?["totals"][0]["scheduled"].clone(),
        )
    };
    assert_eq!(waiting().await?, 6, "nothing is chosen yet");
    browser.choose("Change", "cancel them").await?;
    browser.click("Change the messages").await?;
    browser.reads("5 messages cancelled.").await?;
    assert_eq!(waiting().await?, 1);
    console.end().await
}
