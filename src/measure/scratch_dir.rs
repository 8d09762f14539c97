//! A directory that goes when the command ends.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;
use crate::cli::output;

/// A directory for temporary files, for this user alone. Dropping it removes it.
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// A new one for a command, and its name.
    pub(super) fn new(command: &str) -> Result<(ScratchDir, String), Failure> {
        let name = format!("dwell-{command}-{}", ulid::Ulid::new().to_string().to_lowercase());
        let dir = std::env::temp_dir().join(&name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| Failure::new(format!("cannot make the directory {}: {error}", dir.display())))?;
        Ok((ScratchDir(dir), name))
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
