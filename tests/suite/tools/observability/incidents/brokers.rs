//! Brokers that end.

use dwell::model::error::Result;

use super::fleet::Fleet;

#[tokio::test]
async fn broker_that_is_killed_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellDown"], async {
            fleet.spare().await.kill()?;
            fleet.waits_for("DwellDown").await?;
            fleet.spare().await.restart().await?;
            fleet.is_well().await
        })
        .await
}

/// Each start is quick, so Prometheus finds the broker up.
#[tokio::test]
async fn crash_loop_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellCrashLoop"], async {
            for _ in 0..4 {
                fleet.spare().await.restart().await?;
                // Each start has to be scraped.
                fleet.is_scraped_again().await?;
            }
            fleet.waits_for("DwellCrashLoop").await
        })
        .await
}
