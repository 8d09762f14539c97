//! What is shown does not contradict itself, and nothing old looks fresh.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::Console;
use super::browser::patiently;
use super::overview::timely;

/// Changes answers of the broker: `change` gets the target and the JSON, and `window.away` takes the broker away.
const ANSWERS: &str = "
    const ask = window.fetch, change = new Function('target', 'found', arguments[0]);
    window.fetch = async (target, ...rest) => {
        if (window.away) throw new TypeError('Failed to fetch');
        const answer = await ask(target, ...rest);
        if (!answer.ok) return answer;
        const found = await answer.clone().json().catch(() => null);
        return new Response(JSON.stringify(change(String(target), found) ?? found));
    };";

impl Console {
    /// From now on answers are changed by the body of this function of `target` and `found`.
    async fn answers(&self, change: &str) -> Result<()> {
        self.browser.run(ANSWERS, json!([change])).await.map(drop)
    }

    /// Waits until a script gives this.
    async fn gives(&self, what: &str, script: &str, expected: Value) -> Result<()> {
        patiently(what, async || Ok((self.browser.run(script, json!([])).await? == expected).then_some(()))).await
    }
}

/// A minute passes for the clock of the page.
const LATER: &str = "
    const Real = window.Date;
    window.Date = class extends Real {
        constructor(...given) { super(...(given.length ? given : [Real.now() + 60000])); }
        static now() { return Real.now() + 60000; }
    };";

/// The state in the row of a group.
const STATE: &str = "return document.querySelector('tr[data-key=\"default\"] .chip')?.textContent";

/// The number of topics in the tile.
const TOPICS: &str = "return [...document.querySelectorAll('.tiles > div')]
    .find((tile) => tile.firstChild.textContent === 'Topics')?.lastChild.textContent";

#[tokio::test]
async fn a_group_without_consumers_is_not_called_active_beside_the_warning() -> Result<()> {
    let console = timely().await?;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.push("orders", vec![json!({"payload": "x", "id": "a"})]).await?;
    console.pass("1m").await?;
    console.open("#/topics/orders").await?;
    console.browser.reads("no consumer default 1 ready message").await?;
    console.gives("the state of the row", STATE, json!("no consumer")).await?;
    console.end().await
}

#[tokio::test]
async fn an_older_answer_does_not_contradict_the_rows() -> Result<()> {
    let console = Console::start().await?;
    for topic in ["invoices", "orders", "reminders", "sms", "webhooks"] {
        console.tell(&format!("PUT /v1/topics/{topic}"), json!({"partitions": 1})).await?;
    }
    console.tell("POST /v1/topics/orders/groups/default/pause", Value::Null).await?;
    console.open("#/").await?;
    console.browser.reads("Counts are of the store").await?;
    // As of a moment before the topics were created, one was deleted, and one group was paused.
    console
        .answers(
            "if (target.includes('/v1/attention')) return {topics: 0, topics_seen: 0, attention: [
                {kind: 'no_consumer', topic: 'orders', group: 'default', cause: 'nobody consumes'},
                {kind: 'late', topic: 'deleted', group: 'default', cause: 'a deleted one is late'},
                {kind: 'paused', topic: 'sms', group: 'default', cause: 'was paused'}]};",
        )
        .await?;
    console.browser.reads("paused orders paused a moment ago").await?;
    console.browser.reads("None of 5 topics was looked at yet.").await?;
    console.gives("the topics of the tile", TOPICS, json!("5")).await?;
    let text = console.browser.text().await?;
    for gone in ["no consumer", "a deleted one is late", "was paused"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    // Without a look at any topic it does not say that all is well.
    console.tell("POST /v1/topics/orders/groups/default/resume", Value::Null).await?;
    console.browser.reads_no("paused a moment ago").await?;
    assert!(!console.browser.text().await?.contains("All is well"));
    // A filter counts what it lets through, and says that it is one.
    console.open("#/?filter=r").await?;
    console.browser.reads("Topics 1 to 2 of 2 with \"r\" in the name").await?;
    console.gives("the topics of the tile", TOPICS, json!("5")).await?;
    console.end().await
}

#[tokio::test]
async fn topics_that_could_not_be_read_are_not_said_to_be_none() -> Result<()> {
    let console = Console::start().await?;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.open("#/").await?;
    console.browser.reads("Counts are of the store").await?;
    // The store is away: the list of topics is refused, and what needs attention knows of none.
    console
        .answers(
            "if (target === '/v1/topics') throw new TypeError('away');
            if (target.includes('/v1/attention')) return {topics: 0, topics_seen: 0, attention: []};",
        )
        .await?;
    console.browser.reads("The topics could not be read, so nothing is known of them.").await?;
    console.gives("the topics of the tile", TOPICS, json!("–")).await?;
    assert!(!console.browser.text().await?.contains("All is well"));
    console.browser.reads("Stale: this was read at").await?;
    console.browser.reads("orders").await?;
    console.end().await
}

#[tokio::test]
async fn what_could_not_be_read_again_looks_stale_and_says_its_age() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    let is_stale = "return document.getElementById('main').hasAttribute('data-stale')";
    let edges = "return getComputedStyle(document.querySelector('main .scroll')).borderTopStyle";
    for (place, there) in [("#/", "Counts are of the store"), ("#/topics/orders/messages", "a scheduled")] {
        console.open(place).await?;
        browser.reads(there).await?;
        console.gives("what is fresh", is_stale, json!(false)).await?;
        console.answers("").await?;
        browser.run("window.away = true; document.getElementById('updated').textContent = 'then'", json!([])).await?;
        browser.reads("Stale: this was read at").await?;
        browser.reads("ago. The broker or its store does not answer since then.").await?;
        console.gives("what is stale", is_stale, json!(true)).await?;
        console.gives("its edges", edges, json!("dashed")).await?;
        let updated = "return document.getElementById('updated').textContent";
        assert_eq!(browser.run(updated, json!([])).await?, "then", "what failed is no update");
        browser.run("window.away = false", json!([])).await?;
        browser.reads_no("Stale: this was read at").await?;
        console.gives("what is fresh again", is_stale, json!(false)).await?;
    }
    // A page that is read once grows old by itself, and so does one whose refreshing is stopped.
    console.open("#/topics/orders/messages").await?;
    browser.reads("a scheduled").await?;
    browser.run(LATER, json!([])).await?;
    browser.reads("\"Refresh\" reads it again.").await?;
    browser.click("Refresh").await?;
    browser.reads_no("Stale: this was read at").await?;
    console.open("#/").await?;
    browser.reads("Counts are of the store").await?;
    browser.click("Stop refreshing").await?;
    browser.run(LATER, json!([])).await?;
    browser.reads("ago. Refreshing is stopped, or slow.").await?;
    console.end().await
}

#[tokio::test]
async fn a_broker_that_is_not_heard_does_not_look_ready() -> Result<()> {
    let console = Console::start().await?;
    console.push("orders", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    console.open("#/brokers").await?;
    console.browser.reads("1 broker").await?;
    // Of a broker that was killed the last heartbeat is left, and of its partitions the leases.
    let silent = "
        const ago = new Date(Date.now() - 40000).toISOString();
        if (target === '/v1/brokers') return {brokers: [...found.brokers, {...found.brokers[0], member: 'silent-1', here: false, heard_at: ago}]};
        if (target === '/v1/topics/orders/groups/default') return {...found,
            partitions: found.partitions.map((part) => ({...part, owner: part.partition % 2 ? 'silent-1' : 'silent-2'})),
            members: [{member: 'silent-1', version: '0.1.0', demand: true, waiting: 1, owned: 1, heard_at: ago}]};";
    console.answers(silent).await?;
    let row = "return [...document.querySelectorAll('tr.stale')].map((row) => row.textContent).join()";
    let stale = async |text: &str| {
        let found = console.browser.run(row, json!([])).await?;
        Ok(found.as_str().filter(|found| found.contains(text)).map(str::to_owned))
    };
    let fleet = patiently("the silent broker", async || stale("silent-1").await).await?;
    assert!(fleet.contains("not heard") && !fleet.contains("ready"), "{fleet}");
    console.browser.run("location.hash = '#/topics/orders'", json!([])).await?;
    let group = patiently("its partitions", async || stale("silent-2").await).await?;
    assert!(group.contains("silent-1not heard") || group.contains("silent-1 not heard"), "{group}");
    console.browser.reads("silent-1 0.1.0 yes 1 1 not heard").await?;
    console.end().await
}

#[tokio::test]
async fn unknown_topic_has_a_page_that_says_so() -> Result<()> {
    let console = Console::start().await?;
    let browser = &console.browser;
    console.open("#/").await?;
    browser.reads("There are no topics yet.").await?;
    browser.log("browser").await?;
    for place in ["", "/messages", "/messages/a?key=b", "/dead", "/cron"] {
        console.open(&format!("#/topics/nope{place}")).await?;
        browser.reads("There is no topic nope. It was deleted, or never created.").await?;
        assert_eq!(browser.log("browser").await?, Vec::<Value>::new(), "{place}: the browser logs no error");
        assert_eq!(browser.run("return document.querySelectorAll('h1').length", json!([])).await?, 1);
    }
    browser.click("All topics").await?;
    browser.reads("There are no topics yet.").await?;
    // It is there once somebody creates it, and gone when somebody deletes it.
    console.open("#/topics/nope").await?;
    browser.reads("There is no topic nope.").await?;
    console.push("nope", vec![json!({"payload": "x", "id": "a", "delay": "1h"})]).await?;
    browser.reads("Partitions of default").await?;
    console.tell("DELETE /v1/topics/nope", Value::Null).await?;
    browser.reads("There is no topic nope.").await?;
    browser.reads_no("Partitions of default").await?;
    console.end().await
}
