//! What an operator asks at night: each answer is at most two clicks from the overview.

use dwell::model::error::Result;
use serde_json::json;

use super::Console;
use super::overview::timely;

/// The question, what is clicked, and what can be read then.
const QUESTIONS: [(&str, &[&str], &str); 12] = [
    ("Is all well?", &[], "Attention no consumer orders"),
    ("Why is orders late?", &[], "3 ready messages, the oldest for 2h"),
    ("Which group is paused, and until when?", &[], "paused invoices paused until 20"),
    ("How much is delivered, and how late?", &[], "/s Lateness p99"),
    ("What becomes due in the next hour?", &[], "20 become due in this time"),
    ("Who consumes emails?", &["emails"], "Members of default Member Version Demand"),
    ("Which messages were lost to expiry today?", &["1 dead of reminders"], "expired expired 1"),
    ("Why do messages of sms die?", &["2 dead of sms"], "smtp: 550 no such user buried 2"),
    ("Which message is dead?", &["2 dead of sms", "sms-1"], "Time line Pushed"),
    ("Is the write-ahead log filling?", &["Fleet"], "Write-ahead log"),
    ("Which brokers are there, of which version?", &["Fleet"], concat!("ready ", env!("CARGO_PKG_VERSION"))),
    ("When does the nightly job run?", &["invoices", "Cron jobs"], "nightly active 0 3 * * *"),
];

/// A night: late orders, a pause, an expired reminder, and texts that died.
async fn fallen() -> Result<Console> {
    let console = timely().await?;
    console.tell("PUT /v1/topics/orders", json!({"partitions": 1})).await?;
    console.tell("PUT /v1/topics/reminders", json!({"partitions": 1, "on_expiry": "bury"})).await?;
    console.push("reminders", vec![json!({"payload": "x", "id": "r-1", "ttl": "1s"})]).await?;
    console.push("orders", (0..3).map(|n| json!({"payload": "x", "id": format!("o-{n}")})).collect()).await?;
    console.pass("2h").await?;
    console.push("reminders", vec![json!({"payload": "x", "id": "r-2"})]).await?;
    console.consume("reminders").await?;
    console.push("emails", vec![json!({"payload": "x", "id": "e-1"})]).await?;
    console.consume("emails").await?;
    let texts = (1..=2).map(|n| json!({"payload": "x", "id": format!("sms-{n}")})).collect();
    console.bury("sms", texts, "smtp: 550 no such user").await?;
    console
        .push("sms", (0..20).map(|n| json!({"payload": "x", "id": format!("t-{n}"), "delay": "30m"})).collect())
        .await?;
    console.tell("PUT /v1/topics/invoices", json!({"partitions": 1})).await?;
    console.tell("POST /v1/topics/invoices/groups/default/pause", json!({"for": "8h"})).await?;
    // At whatever hour the test runs, the job pushes nothing that is counted above: its topic is paused.
    console
        .tell("PUT /v1/topics/invoices/cron/nightly", json!({"cron": "0 3 * * *", "payload": "x", "missed": "skip"}))
        .await?;
    Ok(console)
}

#[tokio::test]
async fn on_call_questions_are_answered_within_two_clicks() -> Result<()> {
    let console = fallen().await?;
    for (question, clicks, answer) in QUESTIONS {
        assert!(clicks.len() <= 2, "{question}");
        console.open("#/").await?;
        console.browser.reads("Counts are of the store").await?;
        for click in clicks {
            console.browser.click(click).await?;
        }
        console
            .browser
            .reads(answer)
            .await
            .map_err(|error| dwell::model::error::Error::unavailable(format!("{question} {}", error.detail())))?;
    }
    console.end().await
}
