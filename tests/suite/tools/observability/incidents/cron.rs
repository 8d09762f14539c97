//! Cron jobs that push nothing.

use dwell::model::error::Result;
use serde_json::json;

use super::fleet::Fleet;
use crate::support::eventually;

/// Another version wrote a job whose expression matches no day.
#[tokio::test]
async fn cron_job_that_fails_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellCronFailed"], async {
            let nightly = json!({"cron": "0 3 * * *", "payload": "close"});
            fleet.brokers[0].tell("PUT /v1/topics/books", &json!({"partitions": 1})).await?;
            fleet.brokers[0].tell("PUT /v1/topics/books/cron/nightly", &nightly).await?;
            let never = "local job = redis.call('HGET', KEYS[1], 'nightly')
                local revision, rest = job:match('^(%d+)(.*)$')
                job = string.format('%.0f', revision + 1) .. rest:gsub('0 3 %* %* %*', '0 0 30 2 *')
                return redis.call('HSET', KEYS[1], 'nightly', job)";
            let mut rewrite = redis::cmd("EVAL");
            rewrite.arg(never).arg(1).arg("{dwell:books:0}:s");
            fleet.redis().await.call::<i64>(&rewrite).await?;
            // Brokers look again at all jobs when one is new.
            fleet.brokers[1].tell("PUT /v1/topics/books/cron/weekly", &nightly).await?;
            fleet.waits_for("DwellCronFailed").await?;
            fleet.attention_says("cron_failed", "1 cron job cannot be read or computed").await?;
            let job = [("TOPIC", "books"), ("NAME", "nightly")];
            fleet.types("DwellCronFailed", "dwell topic list", &job).await?.says(&["books"]);
            fleet.types("DwellCronFailed", "dwell cron list TOPIC", &job).await?.says(&["nightly", "failed"]);
            fleet.types("DwellCronFailed", "dwell cron get TOPIC NAME", &job).await?.says(&["failure", "never occurs"]);
            fleet
                .types("DwellCronFailed", "dwell cron update TOPIC NAME --cron '0 3 * * *'", &job)
                .await?
                .says(&["next at"]);
            fleet.is_well().await?;
            eventually("attention is over", async || Ok(fleet.attention("cron_failed").await?.is_empty().then_some(())))
                .await
        })
        .await
}

/// Redis is unavailable for longer than it takes a job to occur again. Nobody pushes afterwards what was passed over.
#[tokio::test]
async fn cron_occurrences_that_are_missed_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellCronMissed", "DwellRedisDown"], async {
            let every_second = json!({"every": "1s", "payload": "look", "missed": "skip"});
            fleet.brokers[0].tell("PUT /v1/topics/orders/cron/look", &every_second).await?;
            fleet.until(r#"sum(dwell_cron_occurrences_total{outcome="fired"})"#, |fired| fired > 1.0).await?;
            fleet.redis().await.kill()?;
            fleet.waits_for("DwellRedisDown").await?;
            fleet.redis().await.restart().await?;
            fleet.waits_for("DwellCronMissed").await?;
            let job = [("TOPIC", "orders"), ("NAME", "look")];
            fleet.types("DwellCronMissed", "dwell cron get TOPIC NAME", &job).await?.says(&["missed", "skip", "next"]);
            fleet
                .types("DwellCronMissed", "dwell cron update TOPIC NAME --missed last", &job)
                .await?
                .says(&["look updated"]);
            Ok(())
        })
        .await
}
