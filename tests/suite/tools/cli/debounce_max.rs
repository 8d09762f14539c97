//! `push` with the bound of a debounce.

use dwell::model::error::Result;

use super::Shell;

#[tokio::test]
async fn push_with_a_bound_of_its_debounce_keeps_the_message_within_it() -> Result<()> {
    let shell = Shell::start().await?;
    let push = ["push", "orders", "x", "--id", "a", "--conflict", "debounce", "--delay", "1h", "--debounce-max", "1h"];
    let first = shell.dwell(&push)?;
    assert!(first.code == Some(0) && first.out.starts_with("stored a"), "{first:?}");
    let again = shell.dwell(&push)?;
    assert!(again.code == Some(0) && again.out.starts_with("duplicate a"), "{again:?}");
    let keep = shell.dwell(&["push", "orders", "x", "--conflict", "keep", "--debounce-max", "1h"])?;
    assert!(keep.code == Some(64) && keep.err.contains("`debounce_max`"), "{keep:?}");
    let alone = shell.dwell(&["push", "orders", "x", "--debounce-max", "1h"])?;
    assert!(alone.code == Some(64) && alone.err.contains("--conflict"), "{alone:?}");
    Ok(())
}
