//! A command as a process: it is told to end by signals, and has a directory while it runs.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use super::output;

/// Signals that ask the process to end. From its making on they do not end the process by themselves.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for some work, unless a signal comes first: then `unfinished` says what was cut off.
    pub(super) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
        unfinished: &str,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            result = work => result,
            signal = self.next() => Err(Failure::interrupted(format!("{signal}: {unfinished}"))),
        }
    }

    /// Returns the name of the next signal. May be dropped and asked again without missing one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

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
