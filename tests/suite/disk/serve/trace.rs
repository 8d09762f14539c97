//! The trace of `recorder.c`, read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dwell::model::error::Result;

use super::recorded::{Moment, unrecorded};
use crate::support::failed;

/// Bytes of an event before its rest.
const HEAD_BYTES: usize = 25;

/// What a process did to a file. Paths begin at the root.
#[derive(Debug)]
pub(super) enum Event {
    Created { inode: u64, path: PathBuf, is_dir: bool },
    Wrote { inode: u64, offset: usize, bytes: Vec<u8> },
    Cut { inode: u64, length: usize },
    Synced { inode: u64 },
    SyncFailed { inode: u64 },
    Renamed { from: PathBuf, to: PathBuf },
    Removed { path: PathBuf },
}

/// All events, and the inode of the root.
pub(super) struct Trace {
    root: u64,
    events: Vec<(Moment, Event)>,
}

impl Trace {
    /// Reads what is there of a trace that may still grow.
    pub(super) fn read(root: &Path, trace: &Path) -> Result<Trace> {
        let bytes = std::fs::read(trace).map_err(failed("the trace"))?;
        let inode = std::fs::metadata(root).map_err(failed("the root"))?.ino();
        let (mut events, mut rest) = (Vec::new(), bytes.as_slice());
        while let Some((event, behind)) = event(root, rest)? {
            rest = behind;
            events.push((Moment((bytes.len() - rest.len()) as u64), event));
        }
        Ok(Trace { root: inode, events })
    }

    /// Each event, with the moment at which it was done.
    pub(super) fn events(&self) -> impl Iterator<Item = (Moment, &Event)> {
        self.events.iter().map(|(moment, event)| (*moment, event))
    }

    /// Whether this is a directory that was created within the recording.
    pub(super) fn is_directory(&self, wanted: u64) -> bool {
        self.events
            .iter()
            .any(|(_, event)| matches!(event, Event::Created { inode, is_dir: true, .. } if *inode == wanted))
    }

    pub(super) fn root(&self) -> u64 {
        self.root
    }
}

/// The first event of these bytes, and those behind it; `None` when it is not complete.
fn event<'a>(root: &Path, bytes: &'a [u8]) -> Result<Option<(Event, &'a [u8])>> {
    let Some((head, behind)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
    let number = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let (inode, value) = (number(1), number(9) as usize);
    let Some((rest, behind)) = behind.split_at_checked(number(17) as usize) else { return Ok(None) };
    let path = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        Path::new(&text).strip_prefix(root).map(Path::to_owned).map_err(|_| unrecorded(text))
    };
    let event = match head[0] {
        b'C' => Event::Created { inode, path: path(rest)?, is_dir: false },
        b'D' => Event::Created { inode, path: path(rest)?, is_dir: true },
        b'W' => Event::Wrote { inode, offset: value, bytes: rest.to_owned() },
        b'L' => Event::Cut { inode, length: value },
        b'S' => Event::Synced { inode },
        b'F' => Event::SyncFailed { inode },
        b'U' => Event::Removed { path: path(rest)? },
        b'R' => {
            let at = rest.iter().position(|byte| *byte == 0).ok_or_else(|| unrecorded("a rename of one path"))?;
            Event::Renamed { from: path(&rest[..at])?, to: path(&rest[at + 1..])? }
        }
        kind => return Err(unrecorded(kind)),
    };
    Ok(Some((event, behind)))
}
