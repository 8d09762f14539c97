//! Under the journal of systemd each line has its priority, and nowhere else.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use dwell::model::error::Result;

use super::dwell;
use crate::support::{eventually, failed, scratch};

/// The stream that a file is, as systemd names it.
fn stream_of(file: &File) -> Result<String> {
    let stat = file.metadata().map_err(failed("a file"))?;
    Ok(format!("{}:{}", stat.dev(), stat.ino()))
}

#[tokio::test]
async fn lines_have_their_priority_where_stderr_is_the_journal() -> Result<()> {
    for (is_journal, format) in [(true, "text"), (true, "json"), (false, "text")] {
        let dir = scratch()?;
        let path = dir.path().join("stderr");
        let stderr = File::create(&path).map_err(failed("a file"))?;
        let stream = if is_journal { stream_of(&stderr)? } else { "1:2".to_owned() };
        let socket = format!("unix:{}", dir.path().join("dwell.sock").display());
        let data = dir.path().display().to_string();
        let args = ["serve", "--listen", &socket, "--data-dir", &data, "--log-format", format];
        let mut serve = dwell(dir.path(), &args);
        serve.env("JOURNAL_STREAM", stream).env("DWELL_LOG_LEVEL", "debug").stdout(Stdio::null()).stderr(stderr);
        let mut child = serve.spawn().map_err(failed("dwell serve"))?;
        let log = || std::fs::read_to_string(&path).unwrap_or_default();
        let said = async || Ok(log().contains("started").then_some(()));
        let started = eventually("it has started", said).await;
        child.kill().and_then(|()| child.wait()).map_err(failed("dwell serve"))?;
        started?;
        for line in log().lines() {
            let level = ["ERROR", "WARN", "INFO", "DEBUG"].into_iter().find(|level| line.contains(level));
            let expected = match level.filter(|_| is_journal) {
                Some("ERROR") => "<3>",
                Some("WARN") => "<4>",
                Some("INFO") => "<6>",
                Some(_) => "<7>",
                None => "",
            };
            let rest = line.strip_prefix(expected).unwrap_or_default();
            let first = if format == "json" { '{' } else { '2' };
            assert!(rest.starts_with(first), "{format} {is_journal}: {line}");
        }
        assert!(log().lines().count() > 0, "nothing was logged");
    }
    Ok(())
}

#[tokio::test]
async fn a_start_that_fails_is_an_error_of_the_journal() -> Result<()> {
    let dir = scratch()?;
    let path = dir.path().join("stderr");
    let stderr = File::create(&path).map_err(failed("a file"))?;
    let mut serve = dwell(dir.path(), &["serve", "--log-level", "loud", "--listen", "nowhere"]);
    serve.env("JOURNAL_STREAM", stream_of(&stderr)?).stdout(Stdio::null()).stderr(stderr);
    let ended = serve.status().map_err(failed("dwell serve"))?;
    assert_eq!(ended.code(), Some(64));
    let said = std::fs::read_to_string(&path).map_err(failed("a file"))?;
    assert!(said.lines().count() > 1 && said.lines().all(|line| line.starts_with("<3>")), "{said}");
    Ok(())
}
