//! The pictures of docs/operate/console.md: pages of a broker that is at work. `make screenshots` keeps them.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::Console;
use crate::support::{failed, scratch};

/// What is shown, how high the window is, and in which colours.
const PICTURES: [(&str, &str, &str, u64, &str); 5] = [
    ("console-overview.png", "#/", "become due in this time", 1_130, "light"),
    ("console-topic.png", "#/topics/orders", "become due in this time", 1_120, "light"),
    ("console-dead.png", "#/topics/sms/dead", "Your parcel", 930, "light"),
    ("console-purge.png", "#/topics/sms/dead", "Purge", 930, "light"),
    ("console-dark.png", "#/topics/orders/messages/close-4711?key=customer-7", "due at", 890, "dark"),
];

/// A number from 0 on, below `end`, that looks like chance and is the same each time.
fn scattered(n: u64, end: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 32) % end
}

/// A shop: orders that are closed unless they are paid, reminders, invoices behind a pause, texts that do not arrive.
async fn loaded(console: &Console) -> Result<()> {
    for topic in ["orders", "invoices", "reminders", "sms", "webhooks"] {
        console.tell(&format!("PUT /v1/topics/{topic}"), json!({"partitions": 4, "max_attempts": 5})).await?;
    }
    console.tell("PUT /v1/topics/orders/groups/audit", json!({"rate": 50, "max_in_flight": 200})).await?;
    console.tell("POST /v1/topics/invoices/groups/default/pause", json!({"for": "2h"})).await?;
    let order = |n: u64| {
        // Most orders are closed after half an hour; the shop is busier at some times than at others.
        let delay = 60 + scattered(n, 1_500) + scattered(n + 7, 1_300);
        json!({"payload": format!("close order {n}"), "id": format!("close-{n}"), "key": format!("customer-{}", n % 97), "delay": format!("{delay}s")})
    };
    for part in 0..3 {
        console.push("orders", (part * 800..(part + 1) * 800).map(order).collect()).await?;
    }
    let message = json!({"payload": "{\"order\": 4711, \"action\": \"close\", \"unless\": \"paid\"}", "id": "close-4711", "key": "customer-7",
        "delay": "30m", "content_type": "application/json", "meta": {"trace": "4bf92f3577b34da6"}, "priority": 5});
    console.push("orders", vec![message]).await?;
    let later = |what: &str, n: u64, delay: u64| json!({"payload": format!("{what} {n}"), "id": format!("{what}-{n}"), "delay": format!("{delay}s")});
    console.push("reminders", (0..640).map(|n| later("remind", n, 120 * (n + 1))).collect()).await?;
    console.push("invoices", (0..180).map(|n| later("invoice", n, 0)).collect()).await?;
    let errors = ["smtp: 451 try again later", "smtp: 550 no such user", "timed out after 10 s"];
    for (kind, error) in errors.into_iter().enumerate() {
        let text = |n: u64| json!({"payload": format!("Your parcel {} is on its way", 7_000 + n), "id": format!("sms-{kind}{n:02}"), "key": format!("+49 30 {}", 5_550_100 + n)});
        console.bury("sms", (0..[6, 3, 2][kind]).map(text).collect(), error).await?;
    }
    console.push("sms", (0..25).map(|n| later("text", n, 0)).collect()).await
}

/// A moment of traffic: some are pushed, taken and acked.
async fn traffic(console: &Console, round: u64) -> Result<()> {
    for (topic, count) in [("webhooks", 60 + scattered(round, 40)), ("sms", 10 + scattered(round + 3, 30))] {
        let now = |n: u64| json!({"payload": "hello", "id": format!("now-{round}-{n}")});
        console.push(topic, (0..count).map(now).collect()).await?;
        let group = format!("POST /v1/topics/{topic}/groups/default");
        let taken = console.tell(&format!("{group}/reserve"), json!({"max": count, "wait": "1s"})).await?;
        let taken = taken["deliveries"].as_array().cloned().unwrap_or_default();
        let receipts: Vec<&Value> = taken.iter().map(|delivery| &delivery["receipt"]).collect();
        console.tell(&format!("{group}/ack"), json!({"receipts": receipts})).await?;
    }
    // Some orders are being closed in this moment.
    let now =
        |n: u64| json!({"payload": "close order", "id": format!("unpaid-{round}-{n}"), "key": format!("customer-{n}")});
    console.push("orders", (0..9).map(now).collect()).await?;
    console.tell("POST /v1/topics/orders/groups/default/reserve", json!({"max": 6, "wait": "1s"})).await.map(drop)
}

/// Shows samples of a tenth of a second as if each had taken ten seconds.
const SPREAD: &str = "
    const ask = window.fetch;
    window.fetch = async (target, ...rest) => {
        const answer = await ask(String(target).replace(/\\?after=.*/, ''), ...rest);
        if (!String(target).includes('/v1/traffic')) return answer;
        const found = await answer.json();
        const now = Date.now(), last = found.samples.length - 1;
        found.samples.forEach((sample, at) => (sample.at = new Date(now - (last - at) * 10000).toISOString()));
        return new Response(JSON.stringify({...found, step_ms: 10000}));
    };";

#[tokio::test]
async fn screenshots_of_a_busy_broker() -> Result<()> {
    let step = std::time::Duration::from_millis(100);
    let console = Console::start_with(|options, _| options.broker.traffic_step = step).await?;
    let scratch = scratch()?;
    let dir = std::env::var_os("DWELL_SCREENSHOTS").map_or(scratch.path().to_owned(), PathBuf::from);
    loaded(&console).await?;
    console.browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": SPREAD})).await?;
    for round in 0..120 {
        traffic(&console, round).await?;
    }
    for (round, (name, place, there, height, scheme)) in (120..).zip(PICTURES) {
        let size = json!({"width": 1_240, "height": height, "deviceScaleFactor": 1, "mobile": false});
        console.browser.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        console.browser.devtools("Emulation.setEmulatedMedia", media).await?;
        console.open(place).await?;
        traffic(&console, round).await?;
        console.browser.reads(there).await?;
        if name.contains("purge") {
            console.browser.click("Purge…").await?;
        }
        let picture =
            STANDARD.decode(console.browser.screenshot().await?).map_err(|error| Error::bug(error.to_string()))?;
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{name}: {} bytes", picture.len());
        std::fs::write(dir.join(name), picture).map_err(failed(name))?;
    }
    console.end().await
}
