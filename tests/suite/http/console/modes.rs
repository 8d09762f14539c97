//! Full, read-only and off; tokens; an outage.

use dwell::api::http;
use dwell::app::engine::{OutageOptions, StoreOptions};
use dwell::gate::access::{Scope, Scopes, Token};
use dwell::model::error::Result;
use dwell::store::redis::RedisOptions;
use serde_json::{Value, json};

use super::Console;
use crate::support::{RedisServer, signal};

#[tokio::test]
async fn read_only_mode_offers_no_changes() -> Result<()> {
    let console = Console::start_with(|options, _| options.console = http::Console::ReadOnly).await?;
    let browser = &console.browser;
    console.bury("orders", vec![json!({"payload": "x", "id": "a"})], "no").await?;
    console.push("orders", vec![json!({"payload": "x", "id": "b", "delay": "1h"})]).await?;
    console.tell("PUT /v1/topics/orders/cron/nightly", json!({"cron": "0 3 * * *", "payload": "x"})).await?;
    let places = [
        ("", "orders"),
        ("#/topics/orders/messages", "scheduled"),
        ("#/topics/orders/messages/b", "due at"),
        ("#/topics/orders/dead", "buried"),
        ("#/topics/orders/messages/a", "died"),
        ("#/topics/orders/cron", "nightly"),
        // Not next to the overview, which has these words too.
        ("#/topics/orders", "become due in this time"),
    ];
    let harmless = [
        "Refresh",
        "Stop refreshing",
        "Keys",
        "Filter",
        "Show",
        "Open",
        "Copy",
        "Copy the payload",
        "JSON",
        "Text",
        "Hex",
    ];
    for (place, there) in places {
        console.open(place).await?;
        browser.reads(there).await?;
        let buttons = "return [...document.querySelectorAll('button:not(.sort, .help)')].map((e) => e.textContent)";
        let buttons = browser.run(buttons, json!([])).await?;
        for button in buttons.as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(harmless.contains(&button), "{place} offers {button:?}");
        }
        let others =
            "return document.querySelectorAll('textarea, input[type=checkbox], a[href*=\"/push\"], dialog').length";
        assert_eq!(browser.run(others, json!([])).await?, 0, "{place}");
    }
    console.open("#/topics/orders/push").await?;
    browser.reads("There is no such page.").await?;
    assert!(browser.text().await?.contains("read-only"));
    // It only hides: what a request may do is not the console's to say.
    console.tell("DELETE /v1/topics/orders/messages/b", Value::Null).await?;
    console.end().await
}

#[tokio::test]
async fn console_off_is_404_and_pages_have_a_csp() -> Result<()> {
    let console = Console::start_with(|options, _| options.console = http::Console::Off).await?;
    for target in ["/", "/ui", "/ui/", "/ui/main.js", "/ui/console.css"] {
        let (status, body) = console.ask(&format!("GET {target}"), Value::Null).await?;
        assert_eq!((status, &body["type"]), (404, &json!("urn:dwell:error:not-found")), "{target}");
    }
    console.browser.leave().await?;
    let console = Console::start().await?;
    for target in ["/ui", "/ui/", "/ui/main.js", "/ui/console.css", "/ui/icon.svg", "/ui/other.js", "/ui/index.html"] {
        let there = if target.contains("other") || target.contains("index") { 404 } else { 200 };
        let answer = console.client.get(format!("{}{target}", console.base)).send().await;
        let answer = answer.map_err(|error| dwell::model::error::Error::bug(error.to_string()))?;
        assert_eq!(answer.status().as_u16(), there, "{target}");
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{target}: {policy}");
        }
        assert_eq!((header("x-content-type-options"), header("referrer-policy")), ("nosniff", "no-referrer"));
    }
    assert_eq!(console.ask("POST /ui", Value::Null).await?.0, 405);
    console.browser.leave().await
}

/// What the holders of two tokens say, and what they may do.
const TOKENS: [(&str, &str, &[Scope]); 2] = [
    ("reader", "s3cret-of-the-reader", &[Scope::Consume]),
    ("writer", "s3cret-of-the-writer", &[Scope::Consume, Scope::Produce]),
];

#[tokio::test]
async fn token_is_requested_and_kept_in_session_storage() -> Result<()> {
    let console = Console::start_with(|options, dir| {
        for (name, token, scopes) in TOKENS {
            let file = dir.path().join(name);
            // A broker without the file does not start.
            let _ = std::fs::write(&file, token);
            options.tokens.push(Token { name: name.into(), file, scopes: Scopes::of(scopes) });
        }
    })
    .await?;
    let browser = &console.browser;
    console.open("").await?;
    browser.reads("Token required").await?;
    browser.write("Token", "s3cret-of-nobody-here").await?;
    browser.click("Use it").await?;
    browser.reads("none of those that are known here").await?;
    // Who has none is not asked again and again.
    browser.click("Cancel").await?;
    browser.reads_no("kept in this tab").await?;
    browser.click("Give a token").await?;
    browser.write("Token", "s3cret-of-the-reader").await?;
    browser.click("Use it").await?;
    browser.reads("There are no topics yet.").await?;

    console.open("#/topics/orders/push").await?;
    browser.click("Push").await?;
    browser.reads("this needs a token with the scope produce").await?;
    let kept = "return [Object.values(localStorage).join(), document.cookie, location.href,
        sessionStorage.getItem('dwell-token')]";
    let kept = browser.run(kept, json!([])).await?;
    assert_eq!(kept[3], "s3cret-of-the-reader");
    for place in 0..3 {
        assert!(kept[place].as_str().is_some_and(|text| !text.contains("s3cret")), "{kept}");
    }
    browser.click("Forget the token").await?;
    console.open("#/").await?;
    browser.write("Token", "s3cret-of-the-writer").await?;
    browser.click("Use it").await?;
    browser.reads("There are no topics yet.").await?;
    console.open("#/topics/orders/push").await?;
    browser.click("Push").await?;
    browser.reads("Status stored").await?;
    console.end().await
}

#[tokio::test]
async fn outage_is_shown_and_push_reports_buffered() -> Result<()> {
    let server = RedisServer::start().await?;
    let redis = RedisOptions::new(server.url());
    let console = Console::start_with(|options, dir| {
        options.store = StoreOptions::Redis { redis, outage: OutageOptions::new(dir.path()) };
    })
    .await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    console.open("").await?;
    browser.reads("Fleet ready").await?;
    signal(&server, rustix::process::Signal::STOP)?;
    console.open("#/topics/orders/push").await?;
    browser.write("Payload", "later").await?;
    browser.click("Push").await?;
    browser.reads("Status buffered").await?;
    browser.reads("Fleet degraded").await?;
    // Nobody knows the topics now, and how the broker is does not wait for them.
    console.open("").await?;
    browser.reads("1 record so far").await?;
    signal(&server, rustix::process::Signal::CONT)?;
    browser.reads("Fleet ready").await?;
    console.end().await
}
