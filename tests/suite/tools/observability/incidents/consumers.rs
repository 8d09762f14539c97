//! What consumers do, or do not.

use std::time::Duration;

use dwell::model::error::Result;
use serde_json::json;

use super::fleet::{Consumer, Fleet};
use crate::support::pause_of_load;

/// What is late because of the consumer is no alert about dwell: a poll every two seconds is fine.
#[tokio::test]
async fn consumer_that_polls_every_two_seconds_fires_nothing() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires_under(Consumer::Polls, &[], async {
            pause_of_load(Duration::from_secs(45)).await;
            let late = fleet.value("max(group:dwell_late:ratio_rate1h)").await?;
            assert!(late.is_some_and(|late| late < 0.1), "{late:?}");
            // In all they were late, by a second on average.
            let mean = "sum(dwell_lateness_unasked_seconds_sum) / sum(dwell_lateness_unasked_seconds_count)";
            let mean = fleet.value(mean).await?;
            assert!(mean.is_some_and(|mean| mean > 0.4), "{mean:?}");
            Ok(())
        })
        .await
}

/// Messages were due for minutes before anybody asked for them.
#[tokio::test]
async fn messages_that_nobody_asked_for_in_time_fire_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellUnasked"], async {
            let old = json!({"messages": [{"payload": "old"}]});
            fleet.brokers[0].tell("PUT /v1/topics/seldom", &json!({"partitions": 1})).await?;
            fleet.brokers[0].tell("POST /v1/topics/seldom/messages/batch", &old).await?;
            pause_of_load(Duration::from_secs(63)).await;
            let ask = json!({"max": 1, "wait": "5s"});
            fleet.brokers[0].tell("POST /v1/topics/seldom/groups/default/reserve", &ask).await?;
            fleet.waits_for("DwellUnasked").await
        })
        .await
}
