//! What is missing or unreadable, and whether the disk or what lies on it is to blame.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::model::error::{Error, Kind};
use crate::platform::disk::{Refusal, free_bytes};

/// Bytes of a disk that is as good as full: what sled says on it is no proof of damage.
const FULL_BYTES: u64 = 1024 * 1024;

/// Records that should be there: from this number to before that one nothing can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// What an error of sled in an open segment means: `Unavailable` when the disk failed, `Corrupt` when what is on it is
/// damaged.
pub(super) fn broken(dir: &Path, error: &sled::Error) -> Error {
    let is_disk = matches!(error, sled::Error::Io(error) if is_of_the_disk(error));
    judge(dir, is_disk, &error.to_string())
}

/// What it means that a segment was not opened.
pub(super) fn refused(dir: &Path, refusal: Refusal) -> Error {
    match refusal {
        Refusal::Locked => judge(dir, true, "another process uses it"),
        Refusal::Io(error) => judge(dir, is_of_the_disk(&error), &error.to_string()),
        Refusal::Damaged(why) => judge(dir, false, &why),
    }
}

fn judge(dir: &Path, is_disk: bool, why: &str) -> Error {
    let is_disk = is_disk || free_bytes(dir).is_some_and(|free| free < FULL_BYTES);
    let kind = if is_disk { Kind::Unavailable } else { Kind::Corrupt };
    Error::new(kind, format!("the log's segment {}: {why}", dir.display()))
}

/// Whether the operating system says that the disk, or the process, is in trouble. Other errors are about what was found,
/// as an end of the file before its time.
fn is_of_the_disk(error: &io::Error) -> bool {
    const TROUBLES: [Errno; 12] = [
        Errno::IO,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
        Errno::ROFS,
        Errno::ACCESS,
        Errno::PERM,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::INTR,
        Errno::AGAIN,
    ];
    Errno::from_io_error(error).is_some_and(|errno| TROUBLES.contains(&errno))
}
