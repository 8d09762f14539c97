//! `push` with a dedup key.

use dwell::model::error::Result;

use super::Shell;

#[tokio::test]
async fn push_with_a_seen_dedup_key_names_the_first_message() -> Result<()> {
    let shell = Shell::start().await?;
    let push = |id| shell.dwell(&["push", "orders", "close", "--id", id, "--dedup-key", "k 1", "--dedup-for", "10m"]);
    let first = push("a")?;
    assert!(first.code == Some(0) && first.out.starts_with("stored a"), "{first:?}");
    let second = push("b")?;
    assert_eq!(second.out, "duplicate of a: it was pushed with this dedup key, nothing changed\n", "{second:?}");
    let alone = shell.dwell(&["push", "orders", "close", "--dedup-key", "k"])?;
    assert!(alone.code == Some(64) && alone.err.contains("--dedup-for"), "{alone:?}");
    let line = |id| format!(r#"{{"payload": "x", {id}"dedup_key": "k 1", "dedup_for": "1m", "attachment": "AP9n"}}"#);
    let lines = [line(r#""id": "c", "#), line("")].join("\n");
    let pushed = shell.pipe(&lines, &["push", "orders", "--file", "-"])?;
    assert_eq!(pushed.out, "2 lines: 0 stored, 2 duplicate, 0 failed\n", "{pushed:?}");
    Ok(())
}
