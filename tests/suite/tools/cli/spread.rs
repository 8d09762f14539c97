//! `push` with a spread.

use std::time::{Duration, SystemTime};

use dwell::model::error::Result;
use dwell::model::time::Timestamp;

use super::Shell;

#[tokio::test]
async fn push_with_a_spread_is_due_at_the_time_that_its_id_decides() -> Result<()> {
    let shell = Shell::start().await?;
    let tomorrow = Timestamp::from(SystemTime::now()).plus(Duration::from_secs(86_400));
    let time = tomorrow.to_string();
    let at = ["push", "orders", "x", "--at", &time, "--id", "order-1", "--json"];
    let pushed = shell.dwell(&[&at[..], &["--spread", "10m"]].concat())?;
    let answer: serde_json::Value = serde_json::from_str(&pushed.out).unwrap_or_default();
    assert!(
        pushed.code == Some(0) && answer["due_at"] == tomorrow.plus(Duration::from_millis(253_017)).to_string(),
        "{pushed:?}"
    );
    let wrong = shell.dwell(&[&at[..], &["--spread", "0s"]].concat())?;
    assert!(wrong.code == Some(64) && wrong.err.contains("`spread`"), "{wrong:?}");
    let lines = r#"{"payload": "x", "id": "order-2", "delay": "1h", "spread": "10m"}"#;
    let pushed = shell.pipe(lines, &["push", "orders", "--file", "-"])?;
    assert_eq!(pushed.out, "1 line: 1 stored, 0 duplicate, 0 failed\n", "{pushed:?}");
    let both = shell.pipe(lines, &["push", "orders", "--file", "-", "--spread", "10m"])?;
    assert!(both.code == Some(64) && both.err.contains("--spread"), "{both:?}");
    Ok(())
}
