//! A directory whose process is recorded: each write and each sync, in order, and what a power cut leaves of them.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell::model::error::{Error, Result};
use fastrand::Rng;
use tempfile::TempDir;

use super::image::Disk;
use super::trace::Trace;
use crate::support::{PROGRAM, Process, failed, scratch};

/// What the next calls to the disk shall do.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    None,
    /// fsync, fdatasync and sync_file_range fail: what was written since the last one is lost.
    Sync,
    /// fsync and fdatasync fail alone.
    Barrier,
    Write,
    /// Writes fail as on a full disk.
    Full,
    /// The process is killed at its next call.
    Die,
}

/// A data directory, and what a preloaded library writes down of it.
pub(super) struct Recorded {
    data: TempDir,
    /// The library, the trace and the control file: nothing of it is recorded.
    beside: TempDir,
    generation: AtomicU64,
}

/// How far the trace had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

impl Recorded {
    /// Builds the library.
    pub(super) fn new() -> Result<Recorded> {
        let beside = scratch()?;
        let source = beside.path().join("recorder.c");
        std::fs::write(&source, include_str!("recorder.c")).map_err(failed("the recorder"))?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(beside.path().join("recorder.so")).arg(source);
        let built = cc.output().map_err(failed("cc"))?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let recorded = Recorded { data: scratch()?, beside, generation: AtomicU64::new(0) };
        recorded.set(Fault::None, 0, "/")?;
        Ok(recorded)
    }

    /// `dwell serve` on this directory.
    pub(super) async fn serve(&self, settings: &[(&str, &str)]) -> Result<Process> {
        let path = |name| self.beside.path().join(name).into_os_string();
        let environment: [(&str, OsString); 4] = [
            ("LD_PRELOAD", path("recorder.so")),
            ("DISK_ROOT", self.data.path().into()),
            ("DISK_TRACE", path("trace")),
            ("DISK_CONTROL", path("control")),
        ];
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
        Process::serve_by(Command::new(PROGRAM), self.data.path(), settings, &environment).await
    }

    /// From now on so many calls fail whose path contains a part.
    pub(super) fn set(&self, fault: Fault, times: u32, part: &str) -> Result<()> {
        self.set_between(0, fault, times, part)
    }

    /// The same; between the first one and the others so many succeed.
    pub(super) fn set_between(&self, good: u32, fault: Fault, times: u32, part: &str) -> Result<()> {
        let kind = match fault {
            Fault::None => "none",
            Fault::Sync => "sync",
            Fault::Barrier => "barrier",
            Fault::Write => "write",
            Fault::Full => "full",
            Fault::Die => "die",
        };
        let generation = self.generation.fetch_add(1, Ordering::SeqCst);
        let (new, control) = (self.beside.path().join("control.new"), self.beside.path().join("control"));
        let write = || {
            let mut file = std::fs::File::create(&new)?;
            file.write_all(format!("{generation} {kind} {times} {part} {good}").as_bytes())?;
            std::fs::rename(&new, &control)
        };
        write().map_err(failed("the control file"))
    }

    /// Everything that was recorded so far happened before this.
    pub(super) fn moment(&self) -> Result<Moment> {
        let trace = std::fs::metadata(self.trace_path()).map_err(failed("the trace"))?;
        Ok(Moment(trace.len()))
    }

    /// What was recorded.
    pub(super) fn trace(&self) -> Result<Trace> {
        Trace::read(self.data.path(), &self.trace_path())
    }

    fn trace_path(&self) -> PathBuf {
        self.beside.path().join("trace")
    }
}

/// The directory that a power cut at a moment leaves: what was synced, and any part of the rest.
pub(super) fn after_cut(trace: &Trace, at: Moment, rng: &mut Rng) -> Result<TempDir> {
    let mut disk = Disk::new(trace.root());
    // How much of what was not synced got there, in eighths.
    let share = rng.u8(0..=8);
    for (moment, event) in trace.events() {
        if moment > at {
            break;
        }
        disk.apply(event, rng, share)?;
    }
    let dir = scratch()?;
    disk.cut(dir.path(), rng, share)?;
    Ok(dir)
}

/// An error of the recorded disk itself.
pub(super) fn unrecorded(what: impl std::fmt::Display) -> Error {
    Error::bug(format!("the trace: {what}"))
}
