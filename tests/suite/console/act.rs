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
async fn a_column_of_the_forecast_is_counted_and_cancelled() -> Result<()> {
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
