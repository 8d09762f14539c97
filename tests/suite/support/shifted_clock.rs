//! A wall clock that is off, for processes that preload it.

use std::path::Path;
use std::process::Command;

use dwell::model::error::Result;

use super::failed;

/// A library that shifts the wall clock of the process that preloads it, by the seconds in a file.
pub(crate) fn shifted_clock(dir: &Path) -> Result<String> {
    let library = dir.join("shifted_clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/support/shifted_clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(built.map_err(failed("cc"))?.success());
    Ok(library.display().to_string())
}
