//! Dead letters: looked through, redriven, purged.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::{Console, in_a_shell};

/// How many are dead, as the API says.
async fn dead(console: &Console) -> Result<u64> {
    let topic = console.tell("GET /v1/topics/sms", Value::Null).await?;
    Ok(topic["totals"][0]["dead"].as_u64().unwrap_or(u64::MAX))
}

#[tokio::test]
async fn dead_letters_are_browsed_redriven_and_purged() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/sms", json!({"partitions": 1})).await?;
    let message = |kind: &str, n: u64| json!({"payload": kind, "id": format!("{kind}-{n:02}")});
    console.bury("sms", (0..60).map(|n| message("busy", n)).collect(), "smtp: 451 busy").await?;
    console.bury("sms", (0..3).map(|n| message("gone", n)).collect(), "smtp: 550 no such user").await?;

    // All of one error; nothing that cannot be undone is chosen beforehand.
    console.bury("sms", (0..3).map(|n| message("lost", n)).collect(), "smtp: 554").await?;
    console.open("#/topics/sms/dead").await?;
    browser.click("Purge those with smtp: 554…").await?;
    browser.write("Type the name", "sms").await?;
    browser.click("Purge for good").await?;
    assert_eq!(dead(&console).await?, 66, "nothing is chosen yet");
    browser.choose("Which", "Purge the 3 with this error").await?;
    browser.click("Purge for good").await?;
    browser.reads("3 purged.").await?;
    assert_eq!(dead(&console).await?, 63);

    console.open("#/topics/sms/dead").await?;
    browser.reads("smtp: 451 busy").await?;
    browser.click("Next page").await?;
    browser.reads("gone-02").await?;
    browser.write("Text", "550").await?;
    browser.choose("Reason", "buried").await?;
    browser.click("Filter").await?;
    browser.reads_no("smtp: 451 busy").await?;
    browser.reads("gone-00").await?;

    // Those that are selected.
    browser.run("document.querySelector('[value=gone-00]').click()", json!([])).await?;
    browser.reads("1 selected").await?;
    browser.click("Redrive…").await?;
    assert!(browser.line("dwell dead-letters redrive").await?.starts_with("dwell dead-letters redrive sms gone-00"));
    browser.click("Redrive").await?;
    browser.reads("1 redriven.").await?;
    browser.reads_no("gone-00").await?;
    assert_eq!(dead(&console).await?, 62);
    // Those that the filter lets through, by hand and by the line that is shown.
    browser.click("Redrive…").await?;
    let line = browser.line("dwell dead-letters redrive").await?;
    assert!(line.starts_with("dwell dead-letters redrive sms --reason buried --text 550 --server"), "{line}");
    browser.click("Redrive").await?;
    browser.reads("2 redriven.").await?;
    browser.reads("No dead letter is like this.").await?;
    assert_eq!(dead(&console).await?, 60);

    // So many, so fast.
    console.open("#/topics/sms/dead").await?;
    browser.click("Redrive…").await?;
    browser.write("Rate", "1000").await?;
    browser.write("At most", "10").await?;
    in_a_shell(&browser.line("dwell dead-letters redrive").await?).await?;
    assert_eq!(dead(&console).await?, 50);
    browser.click("Redrive").await?;
    browser.reads("10 redriven.").await?;
    assert_eq!(dead(&console).await?, 40);

    // For good, once the name of the topic is typed.
    browser.click("Purge…").await?;
    browser.choose("Which", "Purge all of the group").await?;
    browser.write("Type the name", "mms").await?;
    browser.click("Purge for good").await?;
    browser.reads("is not the name of the topic").await?;
    assert_eq!(dead(&console).await?, 40);
    browser.write("Type the name", "sms").await?;
    browser.click("Purge for good").await?;
    browser.reads("40 purged.").await?;
    browser.reads("There are no dead letters.").await?;
    assert_eq!(dead(&console).await?, 0);
    console.end().await
}
