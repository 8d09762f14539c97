//! Dead letters: looked through, redriven, purged.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::overview::timely;
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
    // The newest first.
    browser.reads("gone-02").await?;
    browser.click("Next page").await?;
    browser.reads("busy-00").await?;
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

/// The ids of the list, as they are listed.
async fn listed(console: &Console) -> Result<Vec<String>> {
    let ids = "return [...document.querySelectorAll('tbody input[name=id]')].map((box) => box.value)";
    let ids = console.browser.run(ids, json!([])).await?;
    Ok(ids.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[tokio::test]
async fn dead_letters_of_all_partitions_are_listed_by_age() -> Result<()> {
    let console = timely().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/sms", json!({"partitions": 8})).await?;
    let id = |n: usize| format!("sms-{n:02}");
    for n in 0..60 {
        console.bury("sms", vec![json!({"payload": "x", "id": id(n)})], "smtp: 451").await?;
        console.pass("1s").await?;
    }
    console.open("#/topics/sms/dead").await?;
    browser.reads("Dead letters of all partitions, the newest death first").await?;
    assert_eq!(listed(&console).await?, (10..60).rev().map(id).collect::<Vec<_>>());
    let line = browser.line("dwell dead-letters list").await?;
    let newest: String = in_a_shell(&format!("{line} --json --limit 2")).await?;
    assert!(newest.find("sms-59").is_some_and(|at| newest.find("sms-58") > Some(at)), "{newest}");
    browser.click("Next page").await?;
    browser.reads_no("sms-59").await?;
    browser.reads("sms-00").await?;
    assert_eq!(listed(&console).await?, (0..10).rev().map(id).collect::<Vec<_>>());
    browser.choose("Order", "oldest death first").await?;
    browser.click("Filter").await?;
    browser.reads("Dead letters of all partitions, the oldest death first").await?;
    assert_eq!(listed(&console).await?, (0..50).map(id).collect::<Vec<_>>());
    // A page by partition has another order, and an order that is none is refused.
    let path = "GET /v1/topics/sms/groups/default/dead-letters";
    let by_partition = console.tell(path, Value::Null).await?;
    assert_ne!(by_partition["dead_letters"][0]["id"], "sms-59");
    assert_eq!(console.ask(&format!("{path}?order=sideways"), Value::Null).await?.0, 422);
    console.end().await
}

#[tokio::test]
async fn a_dialog_about_57_dead_letters_shows_a_few_ids() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/sms", json!({"partitions": 1})).await?;
    let ids: Vec<_> = (0..57).map(|n| json!({"payload": "x", "id": format!("sms-{n:02}")})).collect();
    console.bury("sms", ids, "smtp: 451").await?;
    console.open("#/topics/sms/dead").await?;
    browser.click("Redrive those with smtp: 451…").await?;
    browser.reads("57 messages: ").await?;
    browser.reads(" and 54 more.").await?;
    let shown = "return (document.querySelector('dialog').innerText.match(/sms-\\d\\d/g) ?? []).length";
    assert_eq!(browser.run(shown, json!([])).await?, 3);
    // The line names all of them, folded.
    let line = browser.line("dwell dead-letters redrive").await?;
    assert_eq!(line.matches("sms-").count(), 57, "{line}");
    browser.click("All 57 ids").await?;
    assert_eq!(browser.run(shown, json!([])).await?, 60);
    let scrolls = "const list = document.querySelector('dialog .ids');
        return [list.scrollHeight > list.clientHeight, list.tabIndex, document.querySelector('dialog').clientHeight < innerHeight]";
    assert_eq!(browser.run(scrolls, json!([])).await?, json!([true, 0, true]));
    browser.click("Redrive").await?;
    browser.reads("57 redriven.").await?;
    console.end().await
}
