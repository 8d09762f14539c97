//! A directory for one command.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::output;

/// A directory that is removed with what is in it.
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    pub(super) fn new(name: &str) -> Result<ScratchDir, Failure> {
        let dir = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| Failure::new(format!("cannot make the directory {}: {error}", dir.display())))?;
        Ok(ScratchDir(dir))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            output::note(format_args!("the directory {} could not be removed: {error}", self.0.display()));
        }
    }
}
