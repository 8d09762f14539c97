//! Room on the disk. A write that fails on a full disk stops sled for good, so writing ends before it is full.

use std::path::Path;

use crate::model::error::{Error, Kind, Result};

/// Bytes that are free where this path is. `None` when the file system cannot say.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// # Errors
/// `Full` when fewer bytes are free than are to be kept free. A file system that cannot say is not a reason to refuse.
pub(crate) fn check_room(dir: &Path, reserve_bytes: u64) -> Result<()> {
    free_bytes(dir).map_or(Ok(()), |free| check_free(dir, free, reserve_bytes))
}

/// What is there needs room to be drained.
fn check_free(dir: &Path, free: u64, reserve_bytes: u64) -> Result<()> {
    if free >= reserve_bytes {
        return Ok(());
    }
    let detail = format!(
        "the disk of {} has {free} bytes left, and {reserve_bytes} are kept for draining: free some space",
        dir.display()
    );
    Err(Error::new(Kind::Full, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_of_the_disk_is_not_touched() {
        let kind = |free| check_free(Path::new("/data"), free, 64).map_err(|error| error.kind());
        assert_eq!(kind(64), Ok(()));
        assert_eq!(kind(63), Err(Kind::Full));
    }
}
