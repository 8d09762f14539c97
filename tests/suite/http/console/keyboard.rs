//! With the keyboard alone, and what is read again and again.

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::Console;
use super::browser::{ENTER, ESCAPE, TAB, patiently};

/// The name of what has the focus.
async fn focused(console: &Console) -> Result<String> {
    let name = "const e = document.activeElement;
        return e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent.trim()";
    Ok(console.browser.run(name, json!([])).await?.as_str().unwrap_or_default().to_owned())
}

/// Tabs to what has this name; what has the focus on the way can be seen to have it.
async fn tab_to(console: &Console, name: &str) -> Result<()> {
    let mut way = Vec::new();
    for _ in 0..40 {
        let there = focused(console).await?;
        if there == name {
            return Ok(());
        }
        way.push(there);
        console.browser.press(TAB).await?;
        let ring = "const style = getComputedStyle(document.activeElement);
            return document.activeElement === document.body || style.outlineStyle !== 'none'";
        assert_eq!(console.browser.run(ring, json!([])).await?, true, "{} shows no focus", focused(console).await?);
    }
    Err(Error::unavailable(format!("the focus did not come to {name}: {way:?}")))
}

#[tokio::test]
async fn console_is_usable_by_keyboard_alone() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    console.open("").await?;
    browser.reads("orders").await?;
    browser.press(TAB).await?;
    assert_eq!(focused(&console).await?, "Skip to the page");
    browser.press(ENTER).await?;
    assert_eq!(browser.run("return document.activeElement.id", json!([])).await?, "main");
    tab_to(&console, "orders").await?;
    browser.press(ENTER).await?;
    // The overview has the words of the forecast too.
    browser.reads("Partitions of default").await?;
    browser.reads("become due in this time").await?;
    assert_eq!(browser.run("return document.activeElement.tagName", json!([])).await?, "H1");
    // What has the focus keeps it while the page is read again.
    tab_to(&console, "Pause default…").await?;
    let before = browser.run("return document.getElementById('updated').textContent", json!([])).await?;
    browser.run("document.getElementById('reload').click()", json!([])).await?;
    browser.reads_no(before.as_str().unwrap_or_default()).await?;
    assert_eq!(focused(&console).await?, "Pause default…");
    browser.press(ENTER).await?;
    browser.reads("Nothing is delivered").await?;
    assert_eq!(focused(&console).await?, "For");
    browser.press(ESCAPE).await?;
    browser.reads_no("Nothing is delivered").await?;
    assert_eq!(focused(&console).await?, "Pause default…", "the focus goes back to where the dialog was opened");
    browser.press(ENTER).await?;
    browser.reads("Nothing is delivered").await?;
    browser.press(ENTER).await?;
    browser.reads("default is paused for").await?;
    browser.reads("Resume").await?;

    console.open("#/topics/orders/push").await?;
    browser.reads("What dwell answers").await?;
    tab_to(&console, "Payload").await?;
    browser.press("hello").await?;
    tab_to(&console, "Id").await?;
    browser.press("from-keys").await?;
    browser.press(ENTER).await?;
    browser.reads("Status stored").await?;
    let pushed = console.tell("GET /v1/topics/orders/messages/from-keys", Value::Null).await?;
    assert_eq!(pushed["payload"], "hello");
    console.end().await
}

#[tokio::test]
async fn overview_refreshes_until_paused() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    console.open("").await?;
    browser.reads("orders").await?;
    let late = |n: u64| json!({"payload": "x", "id": format!("m-{n}")});
    console.push("orders", (0..1_000).map(late).collect()).await?;
    browser.reads("1,000").await?;
    // Lateness and rates come with the next sample of the traffic.
    let taken =
        console.tell("POST /v1/topics/orders/groups/default/reserve", json!({"max": 1_000, "wait": "5s"})).await?;
    assert!(taken["deliveries"].as_array().is_some_and(|all| !all.is_empty()));
    let cells = "return [...document.querySelectorAll('tbody td')].map((e) => e.textContent)";
    let lateness = async || {
        Ok(browser.run(cells, json!([])).await?[6].as_str().filter(|text| text.ends_with('s')).map(str::to_owned))
    };
    patiently("a lateness", lateness).await?;

    browser.click("Stop refreshing").await?;
    console
        .push("orders", (0..123).map(|n| json!({"payload": "x", "id": format!("n-{n}"), "delay": "1h"})).collect())
        .await?;
    // Between the two steps no reading ends, so the time that appears is that of this one's end.
    let refresh = "document.getElementById('updated').textContent = ''; document.getElementById('reload').click()";
    browser.run(refresh, json!([])).await?;
    let updated = "return document.getElementById('updated').textContent";
    let has_ended = async || Ok((browser.run(updated, json!([])).await? != "").then_some(()));
    patiently("the reading has ended", has_ended).await?;
    browser.reads(" 123 ").await?;
    // A minute of the browser's own time goes by, and nothing is read.
    let count = "return performance.getEntriesByType('resource').length";
    let before = browser.run(count, json!([])).await?;
    browser.minute().await?;
    assert_eq!(browser.run(count, json!([])).await?, before);
    console.end().await
}

#[tokio::test]
async fn question_mark_shows_the_keys_and_escape_gives_the_focus_back() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    console.open("#/topics/orders").await?;
    browser.reads("Partitions of default").await?;
    tab_to(&console, "Pause default…").await?;
    browser.press("?").await?;
    browser.reads("Show these keys").await?;
    browser.reads("Find a topic, an id, a key or a text").await?;
    browser.press(ESCAPE).await?;
    browser.reads_no("Show these keys").await?;
    assert_eq!(focused(&console).await?, "Pause default…");
    // Each key does what is said of it.
    for (key, there) in [("2", "orders · messages"), ("4", "orders · dead letters"), ("f", "Fleet"), ("o", "Overview")]
    {
        browser.press(key).await?;
        let title = "return document.querySelector('h1').textContent";
        patiently(there, async || Ok((browser.run(title, json!([])).await? == there).then_some(()))).await?;
    }
    browser.press("s").await?;
    let stopped = "return document.getElementById('stop').getAttribute('aria-pressed')";
    assert_eq!(browser.run(stopped, json!([])).await?, "true");
    // A letter in a field is a letter, and a reader who does not want the keys turns them off.
    browser.press("/fo?").await?;
    assert_eq!(browser.run("return document.getElementById('q').value", json!([])).await?, "fo?");
    browser.run("document.activeElement.blur()", json!([])).await?;
    browser.click("Keys of the console").await?;
    browser.click_field("Turn the keys of one letter off").await?;
    browser.click("Close").await?;
    browser.press("f").await?;
    assert_eq!(browser.run("return document.querySelector('h1').textContent", json!([])).await?, "Overview");
    console.end().await
}

#[tokio::test]
async fn members_and_owners_are_explained_by_keyboard_pointer_and_touch() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    console.open("#/topics/orders").await?;
    browser.reads("Partitions of default").await?;
    for (word, text) in
        [("About members", "Brokers that consume for this group"), ("About owners", "The owner of a partition")]
    {
        let described = "const [name] = arguments;
            const button = [...document.querySelectorAll('button')].find((e) => e.ariaLabel === name);
            return document.getElementById(button?.getAttribute('aria-describedby'))?.textContent ?? ''";
        let read_out = browser.run(described, json!([word])).await?;
        assert!(read_out.as_str().is_some_and(|found| found.starts_with(text)), "{word}: {read_out}");
        assert!(!browser.text().await?.contains(text));
        for way in ["keyboard", "mouse", "touch"] {
            match way {
                "keyboard" => {
                    browser.run("document.activeElement.blur()", json!([])).await?;
                    tab_to(&console, word).await?;
                    browser.press(ENTER).await?;
                }
                _ => browser.point(word, way).await?,
            }
            browser.reads(text).await?;
            // It stays while the page is read again.
            browser
                .run(
                    "document.getElementById('updated').textContent = ''; document.getElementById('reload').click()",
                    json!([]),
                )
                .await?;
            let updated = "return document.getElementById('updated').textContent !== ''";
            patiently("a reading", async || Ok((browser.run(updated, json!([])).await? == true).then_some(()))).await?;
            assert!(browser.text().await?.contains(text), "{word} by {way}");
            browser.press(ESCAPE).await?;
            browser.reads_no(text).await?;
        }
    }
    console.end().await
}
