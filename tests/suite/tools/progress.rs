//! What a command shows on a terminal while it works: nothing if it is quick, and nothing elsewhere.

use std::process::{Command, Stdio};

use dwell::model::error::Result;
use serde_json::json;

use crate::support::{Process, failed, scratch};
use crate::tools::top::Terminal;

const SLOW: [&str; 4] = ["reserve", "orders", "--wait", "4s"];

#[tokio::test]
async fn slow_command_shows_progress_on_a_terminal() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let broker = Process::serve(dir.path(), &[]).await?;
    let push = broker.client.post("/v1/topics/orders/messages?delay=1h&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(201));
    let mut terminal = Terminal::with(&SLOW, &server, &[])?;
    terminal.shows("waiting for the answer, ").await?;
    terminal.wait().await?;
    let mut quick = Terminal::with(&["topic", "list", "--names"], &server, &[])?;
    quick.shows("orders").await?;
    assert_eq!(quick.wait().await?, "orders\r\n");
    Ok(())
}

#[tokio::test]
async fn no_progress_without_a_terminal() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let broker = Process::serve(dir.path(), &[]).await?;
    let push = broker.client.post("/v1/topics/orders/messages?delay=1h&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(201));
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(SLOW).env_clear().env("DWELL_SERVER", &server).stdin(Stdio::null());
    let output = command.output().map_err(failed("dwell reserve"))?;
    assert_eq!((output.status.code(), output.stdout, output.stderr), (Some(0), Vec::new(), Vec::new()));
    Ok(())
}
