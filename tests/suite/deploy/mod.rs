//! The files of deploy/: what starts dwell is told the truth, and every file is one that its reader takes.

mod redis;
mod supervisor;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::Command;

use dwell::error::{Error, Result};

use crate::support::failed;

/// A file or directory of deploy/.
fn of_deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// The text of a file of deploy/.
fn text(name: &str) -> Result<String> {
    std::fs::read_to_string(of_deploy(name)).map_err(failed(name))
}

/// What a command says; it has to end well.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(failed(&format!("{command:?}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(format!("{}{}", text(&output.stdout), text(&output.stderr))),
        false => Err(Error::bug(format!("{command:?}: {}{}", text(&output.stdout), text(&output.stderr)))),
    }
}
