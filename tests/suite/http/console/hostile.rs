//! What producers put into ids, keys, payloads and reasons is shown, and nothing more.

use dwell::model::error::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream::iter;
use serde_json::{Value, json};

use super::Console;
use super::browser::patiently;

/// Markup that would run something if it were taken for markup.
const MARKUP: &str =
    "<img src=x onerror=\"window.hurt=1\"><script>window.hurt=1</script><a href=javascript:hurt()>x</a>";

/// A key that turns what follows around, and one in a script that is written from right to left.
const KEYS: [&str; 2] = ["evil\u{202e}gpj.exe\u{2066}", "שלום-עולם"];

#[tokio::test]
async fn markup_and_bidi_controls_are_shown_as_text() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    let id = "<img/src=x/onerror=window.hurt=1>%2F..#?&";
    let message =
        json!({"payload": MARKUP, "id": id, "key": KEYS[0], "content_type": "text/html", "meta": {"m": MARKUP}});
    console.bury("orders", vec![message], MARKUP).await?;
    console.push("orders", vec![json!({"payload": KEYS[1], "id": "b", "key": KEYS[1], "delay": "1h"})]).await?;
    for place in ["#/topics/orders/dead", "#/topics/orders/messages?state=dead"] {
        console.open(place).await?;
        browser.reads("<img src=x onerror=").await?;
        browser.reads("evil⟨U+202E⟩gpj.exe⟨U+2066⟩").await?;
    }
    browser.click(id).await?;
    browser.reads("Payload").await?;
    browser.reads(&format!("m {MARKUP}")).await?;
    browser.reads("died").await?;
    console.open("#/topics/orders/messages").await?;
    browser.reads(KEYS[1]).await?;
    // A place that is none, or that cannot be read, is said to be so.
    for place in ["#/topics/%zz", "#/<img src=x onerror=window.hurt=1>", "#/topics/a/b/c/d/e"] {
        console.open(place).await?;
        browser.reads("There is no such page.").await?;
    }
    let markup = "return [document.querySelectorAll('main img, main script, main [onerror]').length, window.hurt ?? 0]";
    assert_eq!(browser.run(markup, json!([])).await?, json!([0, 0]));
    console.end().await
}

/// A browser takes `..` for a step up: asking for the group `.` would reach another one.
#[tokio::test]
async fn dot_segment_names_are_not_requested() -> Result<()> {
    let console = Console::start().await?;
    console.tell("PUT /v1/topics/orders", json!({})).await?;
    console.tell("PUT /v1/topics/orders/groups/dead", json!({})).await?;
    for place in ["#/topics/orders/dead?group=.", "#/topics/orders/messages/.."] {
        console.open(place).await?;
        console.browser.reads("A browser cannot ask for this").await?;
    }
    // The list of topics has no such name, so nothing more is requested.
    console.open("#/topics/../dead").await?;
    console.browser.reads("There is no topic ...").await?;
    console.open("#/topics/orders/dead?group=.").await?;
    console.browser.click("Purge…").await?;
    console.browser.choose("Which", "Purge all of the group").await?;
    console.browser.write("Type the name", "orders").await?;
    console.browser.click("Purge for good").await?;
    console.browser.reads("nothing has this name").await?;
    console.tell("GET /v1/topics/orders/groups/dead", Value::Null).await?;
    console.end().await
}

#[tokio::test]
async fn large_and_binary_payloads_are_truncated() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    let text = format!("{}end of it", "0123456789abcde\n".repeat(65_000));
    // Each byte once, and then much more of them.
    let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    console
        .push(
            "orders",
            vec![json!({"payload": text, "id": "large"}), json!({"payload_base64": base64, "id": "binary"})],
        )
        .await?;
    console.open("#/topics/orders/messages").await?;
    browser.reads("binary, 4 KiB").await?;
    console.open("#/topics/orders/messages/binary").await?;
    browser.reads("Not UTF-8, 4 KiB").await?;
    browser.reads("000040  40 41 42 43 44 45 46 47 48 49 4A 4B 4C 4D 4E 4F  @ABCDEFGHIJKLMNO").await?;
    let shown = "return document.querySelector('.payload').textContent.length";
    let part = browser.run(shown, json!([])).await?;
    browser.click("Show all of it").await?;
    assert!(browser.run(shown, json!([])).await?.as_u64() > part.as_u64(), "{part}");
    console.open("#/topics/orders/messages/large").await?;
    browser.reads("Text, 1,020 KiB").await?;
    assert_eq!(browser.run(shown, json!([])).await?, 16_384);
    browser.click("Show all of it").await?;
    assert_eq!(browser.run(shown, json!([])).await?, text.len());
    console.end().await
}

#[tokio::test]
async fn ten_thousand_topics_are_paged() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    let make = |n: u64| {
        let put = console.client.put(format!("{}/v1/topics/topic-{n:05}", console.base));
        async move { put.json(&json!({"partitions": 1})).send().await.map(|answer| answer.status().as_u16()) }
    };
    let made: Vec<_> = iter(0..10_000).map(make).buffer_unordered(64).collect().await;
    assert!(made.iter().all(|status| status.as_ref().is_ok_and(|status| *status == 201)), "{:?}", made.first());
    console.open("").await?;
    browser.reads("Topics 1 to 50 of 10,000").await?;
    browser.reads("Page 1 of 200").await?;
    console.open("#/?page=200").await?;
    browser.reads("topic-09999").await?;
    browser.write("Name contains", "999").await?;
    browser.click("Filter").await?;
    browser.reads("Topics 1 to 19 of 19").await?;
    // A page costs a request for each topic that it shows, and some for the broker: not one for each that there is.
    let asked = browser.run("return performance.getEntriesByType('resource').length", json!([])).await?;
    assert!(asked.as_u64().is_some_and(|asked| asked < 1_000), "{asked}");
    console.end().await
}

/// An image is asked for without an `Origin`, and a stream takes messages from whoever asks.
#[tokio::test]
async fn cross_site_image_reserves_no_messages() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a"})]).await?;
    // To the browser this is another site, and as near: farther ones it keeps from loopback addresses by itself.
    let site = console.base.replace("127.0.0.1", "localhost");
    browser.open(&format!("{site}/livez")).await?;
    let image = "let image = new Image(); image.onerror = () => document.title = 'refused'; image.src = arguments[0]";
    let stream = format!("{}/v1/topics/orders/groups/default/stream", console.base);
    browser.run(image, json!([stream])).await?;
    let title = async || Ok(browser.run("return document.title", json!([])).await?.as_str().map(str::to_owned));
    patiently("the image is refused", async || Ok(title().await?.filter(|title| title == "refused"))).await?;
    let metrics = console.client.get(format!("{}/metrics", console.base)).send().await;
    let metrics = metrics.map_err(|error| Error::unavailable(error.to_string()))?.text().await.unwrap_or_default();
    let refusals = "dwell_http_requests_total{code=\"403\",route=\"/v1/topics/{topic}/groups/{group}/stream\"} 1";
    assert!(metrics.contains(refusals), "{metrics}");
    let taken = console.tell("POST /v1/topics/orders/groups/default/reserve", json!({"wait": "10s"})).await?;
    assert_eq!(taken["deliveries"][0]["attempt"], 1, "{taken}");
    // A link of theirs may lead to the console.
    browser.run("location.href = arguments[0]", json!([format!("{}/ui", console.base)])).await?;
    browser.reads("Fleet ready").await?;
    console.browser.leave().await
}
