//! `update` of topics, groups and cron jobs.

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::Shell;

#[tokio::test]
async fn update_changes_existing_topics_only() -> Result<()> {
    let shell = Shell::start().await?;
    let nightly = ["--cron", "0 3 * * *", "--time-zone", "Europe/Berlin", "--ttl", "1h", "--meta", "a=b", "close"];
    shell.dwell(&[&["cron", "create", "orders", "nightly"], &nightly[..]].concat())?;
    assert!(
        shell.dwell(&["cron", "update", "orders", "nightly", "--every", "1d"])?.out.starts_with("nightly updated;")
    );
    let shown = shell.dwell(&["cron", "get", "orders", "nightly"])?.out;
    assert!(shown.starts_with("nightly\n  occurs   every 1d\n  state    active\n"), "{shown}");
    assert_eq!(shown.matches("T00:00:00.000Z\n").count(), 5, "{shown}");
    let all: Value = serde_json::from_str(&shell.dwell(&["cron", "get", "orders", "nightly", "--json"])?.out)
        .map_err(|error| Error::bug(error.to_string()))?;
    assert_eq!((&all["ttl_ms"], &all["meta"]["a"], &all["payload"]), (&3_600_000.into(), &"b".into(), &"close".into()));
    assert!(shell.dwell(&["topic", "update", "orders", "--max-attempts", "3"])?.out.starts_with("orders updated\n"));
    let noted = ["--annotation", "team=checkout", "--annotation", "tier=1", "--dead-letter-topic", "orders-dead"];
    let updated = shell.dwell(&[&["topic", "update", "orders", "--max-attempts", "0"], &noted[..]].concat())?.out;
    assert!(updated.contains("  max attempts        unlimited\n"), "{updated}");
    assert!(updated.contains("  dead-letter topic   orders-dead\n"), "{updated}");
    assert!(updated.ends_with("  annotation          team=checkout\n  annotation          tier=1\n"), "{updated}");
    let none =
        ["topic", "update", "orders", "--annotation", "team=", "--annotation", "tier=", "--dead-letter-topic", ""];
    assert!(!shell.dwell(&none)?.out.contains("orders-dead"));
    let nothing = shell.dwell(&["topic", "update", "orders"])?;
    assert!(nothing.code == Some(64) && nothing.err.contains("name a setting to change"), "{nothing:?}");
    let limited = shell.dwell(&["group", "update", "orders", "default", "--rate", "5"])?.out;
    assert_eq!(limited, "default updated; active, at most 5 a second\n");
    for absent in [
        &["cron", "update", "orders", "absent", "--every", "1d"][..],
        &["cron", "get", "orders", "absent"],
        &["topic", "update", "absent", "--max-attempts", "3"],
        &["group", "update", "orders", "absent", "--rate", "5"],
    ] {
        let said = shell.dwell(absent)?;
        assert!(said.code == Some(1) && said.err.contains("absent"), "{absent:?}: {said:?}");
    }
    assert_eq!(shell.dwell(&["topic", "list", "--names"])?.out, "orders\n");
    Ok(())
}
