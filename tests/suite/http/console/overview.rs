//! Whether all is well, the fleet, and what is found.

use std::path::Path;

use dwell::api::http::Listen;
use dwell::app::engine::StoreOptions;
use dwell::app::server::{Server, ServerOptions};
use dwell::broker::Options;
use dwell::model::error::Result;
use dwell::outage::OutageOptions;
use dwell::store::redis::RedisOptions;
use serde_json::{Value, json};

use super::Console;
use super::browser::{ENTER, patiently};
use crate::support::{RedisServer, scratch};

/// A console whose broker has a clock that moves.
pub(super) async fn timely() -> Result<Console> {
    let step = std::time::Duration::from_secs(10);
    Console::start_with(|options, _| (options.test_clock, options.broker.traffic_step) = (true, step)).await
}

impl Console {
    /// Lets time pass for messages.
    pub(super) async fn pass(&self, span: &str) -> Result<()> {
        self.tell("POST /v1/test/clock", json!({"advance": span})).await.map(drop)
    }

    /// Takes what there is, and acks it.
    pub(super) async fn consume(&self, topic: &str) -> Result<()> {
        let group = format!("POST /v1/topics/{topic}/groups/default");
        let taken = self.tell(&format!("{group}/reserve"), json!({"max": 100, "wait": "5s"})).await?;
        let taken = taken["deliveries"].as_array().cloned().unwrap_or_default();
        let receipts: Vec<&Value> = taken.iter().map(|delivery| &delivery["receipt"]).collect();
        self.tell(&format!("{group}/ack"), json!({"receipts": receipts})).await.map(drop)
    }
}

#[tokio::test]
async fn status_is_ok_except_while_a_message_is_late() -> Result<()> {
    let console = timely().await?;
    let browser = &console.browser;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.open("").await?;
    browser.reads("All is well 1 topic looked at").await?;
    console.push("orders", vec![json!({"payload": "x", "id": "a"}), json!({"payload": "x", "id": "b"})]).await?;
    console.pass("1m").await?;
    browser.reads("no consumer orders 2 ready messages, the oldest for 1m").await?;
    browser.click("orders").await?;
    browser.reads("nobody consumes this group").await?;
    console.consume("orders").await?;
    browser.reads_no("nobody consumes this group").await?;
    console.open("").await?;
    browser.reads("All is well").await?;
    console.end().await
}

/// The store of a broker that shares this Redis.
fn shared(redis: &RedisServer, dir: &Path) -> StoreOptions {
    StoreOptions::Redis { redis: RedisOptions::new(redis.url()), outage: OutageOptions::new(dir) }
}

#[tokio::test]
async fn damaged_message_is_listed_in_attention() -> Result<()> {
    let redis = RedisServer::start().await?;
    let console = Console::start_with(|options, dir| options.store = shared(&redis, dir.path())).await?;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.push("orders", vec![json!({"payload": "x", "id": "a"})]).await?;
    assert_eq!(redis.ask::<usize>("HSET {dwell:orders:0}:default:h a damaged").await?, 0, "it was there");
    // It is found once it is late.
    let found = async || {
        let body = console.tell("GET /v1/attention", Value::Null).await?;
        let concerns = body["attention"].as_array().cloned().unwrap_or_default();
        Ok(concerns.into_iter().find(|concern| concern["kind"] == "unreadable"))
    };
    let concern = patiently("the damaged message", found).await?;
    assert_eq!(concern["topic"], "orders");
    console.open("").await?;
    console.browser.reads("unreadable orders").await?;
    console.end().await
}

#[tokio::test]
async fn brokers_are_listed_and_the_serving_one_is_marked() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let console = Console::start_with(|options, dir| options.store = shared(&redis, dir.path())).await?;
    let there = shared(&redis, dir.path());
    let there = Server::start(ServerOptions::new(Listen::ephemeral(), there, Options::default())).await?;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 2})).await?;
    // A broker without consumers sends no heartbeat.
    let reserve = format!("{}/v1/topics/orders/groups/default/reserve", there.url());
    let mut consumers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let request = console.client.post(&reserve).json(&json!({"max": 1, "wait": "60s"}));
        consumers.spawn(request.send());
    }
    let both = async || {
        let brokers = console.tell("GET /v1/brokers", Value::Null).await?;
        let brokers = brokers["brokers"].as_array().cloned().unwrap_or_default();
        Ok((brokers.len() == 2).then_some(brokers))
    };
    let brokers = patiently("two brokers", both).await?;
    let member = |here: bool| {
        let broker = brokers.iter().find(|broker| (broker["here"] == true) == here);
        broker.and_then(|broker| broker["member"].as_str()).unwrap_or_default().to_owned()
    };
    console.open("#/brokers").await?;
    console.browser.reads("2 brokers").await?;
    console.browser.reads(&format!("{} this page talks to it", member(true))).await?;
    console.browser.reads(&member(false)).await?;
    let marked = "return [...document.querySelectorAll('tbody tr')]
        .filter((row) => row.textContent.includes('this page talks to it')).length";
    assert_eq!(console.browser.run(marked, json!([])).await?, 1);
    drop(consumers);
    console.end().await
}

#[tokio::test]
async fn new_tab_shows_earlier_traffic() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", (0..5).map(|n| json!({"payload": "x", "id": format!("m-{n}")})).collect()).await?;
    console.consume("orders").await?;
    let sampled = async || {
        let traffic = console.tell("GET /v1/traffic", Value::Null).await?;
        let delivered = |sample: &Value| sample["delivered"].as_u64() > Some(0);
        Ok(traffic["samples"].as_array().is_some_and(|samples| samples.iter().any(delivered)).then_some(()))
    };
    patiently("a sample", sampled).await?;
    assert_eq!(console.ask("GET /v1/traffic?after=2100-01-01T00:00:00Z", Value::Null).await?.1["samples"], json!([]));
    for wrong in ["?after=soon", "?since=1", "?after=1&after=2"] {
        assert_eq!(console.ask(&format!("GET /v1/traffic{wrong}"), Value::Null).await?.0, 422, "{wrong}");
    }
    console.open("").await?;
    let drawn = [
        ("lines in all charts", "return [...document.querySelectorAll('.chart .line[d]')].length", 5),
        ("sparks of the topic", "return document.querySelectorAll('.spark').length", 2),
    ];
    for (what, count, all) in drawn {
        patiently(what, async || Ok((browser.run(count, json!([])).await? == all).then_some(()))).await?;
    }
    console.end().await
}

#[tokio::test]
async fn fleet_view_names_the_serving_broker() -> Result<()> {
    let console = Console::start().await?;
    let brokers = console.tell("GET /v1/brokers", Value::Null).await?;
    let member = brokers["brokers"][0]["member"].as_str().unwrap_or_default().to_owned();
    console.open("").await?;
    console.browser.click("Fleet").await?;
    console.browser.reads(&format!("{member} this page talks to it")).await?;
    console.browser.reads("survives the death of the process").await?;
    console.end().await
}

#[tokio::test]
async fn search_finds_topics_ids_keys_and_dead_letter_texts() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    let message = json!({"payload": "{\"order\":4711}", "id": "close-4711", "key": "customer-7", "delay": "1h"});
    console.push("orders", vec![message]).await?;
    console.bury("sms", vec![json!({"payload": "x", "id": "sms-1"})], "smtp: 550 no such user").await?;
    console.open("").await?;
    browser.reads("looked at").await?;
    browser.press("/").await?;
    browser.press(&format!("close-4711{ENTER}")).await?;
    browser.reads("customer-7").await?;
    browser.click("close-4711").await?;
    browser.reads("\"order\": 4711").await?;
    browser.click("Hex").await?;
    browser.reads("{\"order\":4711}").await?;
    browser.reads("Time line Pushed").await?;
    for (text, found) in [("customer-7", "close-4711"), ("no such user", "sms-1"), ("order", "Topics Topic orders")] {
        browser.write("Find a topic", text).await?;
        browser.press(ENTER).await?;
        browser.reads(&format!("Find {text}")).await?;
        browser.reads(found).await?;
    }
    browser.write("Find a topic", "nothing has this").await?;
    browser.press(ENTER).await?;
    browser.reads("Nothing has \"nothing has this\".").await?;
    console.end().await
}
