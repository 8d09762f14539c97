//! `push` of a message that follows another one.

use dwell::model::error::Result;

use super::Shell;

#[tokio::test]
async fn message_says_that_another_one_follows_it() -> Result<()> {
    let shell = Shell::start().await?;
    let push = ["push", "orders", "x", "--id", "a", "--conflict", "after"];
    let first = shell.dwell(&push)?;
    assert!(first.code == Some(0) && first.out.starts_with("stored a"), "{first:?}");
    let taken = shell.dwell(&["reserve", "orders", "--wait", "20s"])?;
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let again = shell.dwell(&push)?;
    assert!(again.code == Some(0) && again.out.starts_with("stored a"), "{again:?}");
    let shown = shell.dwell(&["message", "get", "orders", "a"])?;
    assert!(shown.out.contains("followed by one that is due"), "{shown:?}");
    Ok(())
}
