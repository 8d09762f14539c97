//! `dwell reserve`, `ack`, `nack`, `release` and `extend`: what a script has of them.

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::{Said, Shell};

/// The objects that a command printed, one a line.
fn objects(said: &Said) -> Vec<Value> {
    said.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The receipts of up to `max` deliveries.
fn reserved(shell: &Shell, max: &str) -> Result<Vec<String>> {
    let said = shell.dwell(&["reserve", "orders", "--max", max, "--wait", "20s", "--json"])?;
    let receipts = objects(&said).iter().filter_map(|taken| taken["receipt"].as_str().map(str::to_owned)).collect();
    said.ok().map(|_| receipts).ok_or_else(|| Error::bug("reserve failed"))
}

/// A broker with so many messages that are due in one partition.
async fn with_messages(count: usize) -> Result<Shell> {
    let shell = Shell::start().await?;
    shell.dwell(&["topic", "create", "orders", "--partitions", "1"])?;
    let lines: String = (0..count).map(|n| format!("{{\"payload\": \"m{n}\", \"id\": \"m{n}\"}}\n")).collect();
    shell.pipe(&lines, &["push", "orders", "--file", "-"])?;
    Ok(shell)
}

#[tokio::test]
async fn a_script_reserves_and_settles() -> Result<()> {
    let shell = with_messages(4).await?;
    let line = shell.dwell(&["reserve", "orders", "--wait", "20s"])?;
    assert!(line.out.contains(" m0 attempt 1, ") && line.out.ends_with(": m0\n"), "{line:?}");
    let first = line.out.split(' ').next().unwrap_or_default().to_owned();
    let extended = shell.dwell(&["extend", "orders", &first, "--visibility-timeout", "5m"])?;
    assert_eq!((extended.code, extended.out.as_str()), (Some(0), "1 extended\n"), "{extended:?}");
    let acked = shell.dwell(&["ack", "orders", &first, "--json"])?;
    assert_eq!(objects(&acked), [serde_json::json!({"receipt": first, "status": "acked"})], "{acked:?}");
    assert_eq!(shell.dwell(&["ack", "orders", &first])?.ok().as_deref(), Some("1 acked\n"), "a repeat is harmless");

    let mut receipts = Vec::new();
    while receipts.len() < 3 {
        receipts.extend(reserved(&shell, "3")?);
    }
    let released = shell.dwell(&["release", "orders", &receipts[2]])?;
    assert_eq!(released.ok().as_deref(), Some("1 released\n"));
    receipts[2] = reserved(&shell, "1")?.pop().ok_or_else(|| Error::bug("it comes again"))?;
    let nack = ["nack", "orders", &receipts[0], "--delay", "1h", "--reason", "smtp: 451"];
    assert_eq!(shell.dwell(&nack)?.ok().as_deref(), Some("1 nacked\n"));
    let late = shell.dwell(&["ack", "orders", &receipts[0], "--late"])?;
    assert_eq!(late.ok().as_deref(), Some("1 acked\n"), "nobody has had it since");
    let bury = ["nack", "orders", &receipts[1], "--bury", "--reason", "smtp: 550"];
    assert_eq!(shell.dwell(&bury)?.ok().as_deref(), Some("1 buried\n"));
    let dead = shell.dwell(&["dead-letters", "list", "orders"])?;
    assert!(dead.out.contains("smtp: 550"), "{dead:?}");
    let piped = shell.pipe(&format!("\n{}\n", receipts[2]), &["ack", "orders", "-"])?;
    assert_eq!(piped.ok().as_deref(), Some("1 acked\n"));
    let nothing = shell.dwell(&["reserve", "orders"])?;
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
    assert_eq!(shell.pipe("", &["ack", "orders", "-"])?.ok().as_deref(), Some(""), "nothing to settle is no failure");
    Ok(())
}

#[tokio::test]
async fn a_script_reserves_successive_messages_of_a_key() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["topic", "create", "orders", "--partitions", "1", "--ordering", "key"])?;
    let lines: String =
        (0..3).map(|n| format!("{{\"payload\": \"m{n}\", \"id\": \"m{n}\", \"key\": \"k\"}}\n")).collect();
    shell.pipe(&lines, &["push", "orders", "--file", "-"])?;
    let said = shell.dwell(&["reserve", "orders", "--max", "10", "--per-key", "3", "--wait", "20s", "--json"])?;
    let ids: Vec<_> = objects(&said).iter().map(|taken| taken["id"].clone()).collect();
    assert_eq!(ids, ["m0", "m1", "m2"], "{said:?}");
    Ok(())
}

#[tokio::test]
async fn unapplied_receipts_are_listed_with_reasons() -> Result<()> {
    let shell = with_messages(2).await?;
    let mut receipts = Vec::new();
    while receipts.len() < 2 {
        receipts.extend(reserved(&shell, "2")?);
    }
    let settled = format!("{}: stale, already_settled: ", receipts[0]);
    shell.dwell(&["ack", "orders", &receipts[0]])?;
    for verb in [&["nack"][..], &["release"], &["extend", "--visibility-timeout", "1m"]] {
        let said = shell.dwell(&[verb, &["orders", &receipts[0]]].concat())?;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.starts_with(&settled), "{said:?}");
        assert!(said.err.ends_with("dwell: 1 of 1 receipts not applied\n"), "{said:?}");
    }
    let batch = shell.dwell(&["nack", "orders", &receipts[0], &receipts[1], "nonsense", "--delay", "1h"])?;
    assert_eq!((batch.code, batch.out.as_str()), (Some(1), "1 nacked\n"), "{batch:?}");
    assert!(batch.err.contains(&settled) && batch.err.contains("nonsense: unknown, invalid: "), "{batch:?}");
    assert!(batch.err.ends_with("dwell: 2 of 3 receipts not applied\n"), "{batch:?}");
    let json = shell.dwell(&["ack", "orders", "nonsense", "--json"])?;
    let verdict = serde_json::json!({"receipt": "nonsense", "status": "unknown", "reason": "invalid"});
    assert_eq!((json.code, objects(&json)), (Some(1), vec![verdict]), "{json:?}");
    Ok(())
}

#[tokio::test]
async fn invalid_arguments_change_nothing() -> Result<()> {
    let shell = Shell::without_broker()?;
    for (args, said) in [
        (&["ack", "orders"][..], "<RECEIPT>"),
        (&["nack", "orders", "x", "--delay", "10"], "has no unit"),
        (&["nack", "orders", "x", "--delay", "10s", "--bury"], "cannot be used with"),
        (&["extend", "orders", "x"], "--visibility-timeout"),
        (&["extend", "orders", "x", "--visibility-timeout", "13h"], "is not in 100ms to 12h"),
        (&["reserve", "orders", "--max", "1001"], "1001"),
    ] {
        let refused = shell.dwell(args)?;
        assert_eq!(refused.code, Some(64), "{args:?}: {refused:?}");
        assert!(refused.err.contains(said), "{args:?}: {refused:?}");
    }
    let away = shell.dwell(&["ack", "orders", "x"])?;
    assert_eq!(away.code, Some(69), "{away:?}");
    Ok(())
}
