//! Who has locked a file, without trying its lock: who tries it may keep another process from starting.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds a lock on a file or a directory, as the kernel lists it. `None` when nobody does, when the
/// holder is of another container, or when the kernel does not say.
pub(crate) fn lock_holder(path: &Path) -> Option<u32> {
    let (locks, file) = (std::fs::read_to_string("/proc/locks").ok()?, std::fs::metadata(path).ok()?);
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    holder_in(&locks, device, file.ino())
}

/// A line is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131090 0 EOF`; one that waits has an arrow before the kind.
fn holder_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()? == place).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn the_holder_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:9 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 fe:00:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 4712 fe:00:8 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfe, 0), 9), Some(4_711));
        assert_eq!((holder_in(locks, (0xfe, 1), 9), holder_in(locks, (0xfe, 0), 8)), (None, None));
    }

    #[test]
    fn a_lock_of_this_process_is_seen_and_then_is_not() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = File::open(dir.path())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        assert_eq!(lock_holder(dir.path()), Some(std::process::id()));
        drop(file);
        assert_eq!(lock_holder(dir.path()), None);
        Ok(())
    }
}
