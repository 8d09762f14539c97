//! Private files and directories, marker files, lock owners and free space.
//!
//! Files that other users created or linked are not used. Root is trusted, and so is the group that root gave a directory
//! to, as Kubernetes does with volumes.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::model::error::{Error, Kind, Result};

const ROOT: u32 = 0;

/// # Errors: `PermissionDenied` when it is a symbolic link, belongs to another user, or others may write to it.
pub(crate) fn check_owner(dir: &Path) -> io::Result<()> {
    check(&std::fs::symlink_metadata(dir)?, geteuid().as_raw())
}

/// Removes the access of others, if the directory is this user's. # Errors: `PermissionDenied` when it contains a
/// symbolic link.
pub(super) fn close_directory(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            let path = entry.path();
            let why = format!("{} is a symbolic link, and dwell follows none in its data: remove it", path.display());
            return Err(refused(why));
        }
    }
    let found = std::fs::symlink_metadata(dir)?;
    if found.uid() == geteuid().as_raw() && found.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn check(found: &Metadata, user: u32) -> io::Result<()> {
    if found.is_symlink() {
        return Err(refused("is a symbolic link: name the directory itself"));
    }
    let owner = found.uid();
    if owner != user && owner != ROOT {
        let why = format!("belongs to user {owner}, and dwell runs as user {user}: use a separate directory");
        return Err(refused(why));
    }
    let others = if owner == user { 0o022 } else { 0o002 };
    if found.mode() & others != 0 {
        let mode = found.mode() & 0o7777;
        let why = format!("lets other users write (mode {mode:04o}): look what is in it, then chmod 700");
        return Err(refused(why));
    }
    Ok(())
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.into())
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    private().write(true).create(true).truncate(true).open(path)
}

/// Replaces a file as a whole, so that a crash leaves the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = PathBuf::from([path.as_os_str(), OsStr::new(".new")].into_iter().collect::<OsString>());
    let mut file = create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn open_or_create(path: &Path) -> io::Result<File> {
    private().read(true).write(true).create(true).truncate(false).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// A number in a small file, rewritten in place, so that updating it needs no free space.
///
/// The format is `number (8 bytes, big endian) | crc32 of it (4)`. It lies within one sector, so a power cut leaves the
/// older or the newer number.
#[derive(Debug)]
pub(crate) struct MarkerFile {
    file: File,
}

impl MarkerFile {
    pub(crate) fn open(path: &Path) -> io::Result<(MarkerFile, Option<u64>)> {
        let mut file = open_or_create(path)?;
        let number = read(&mut file)?;
        Ok((MarkerFile { file }, number))
    }

    pub(crate) fn peek(path: &Path) -> io::Result<Option<u64>> {
        match File::open(path) {
            Ok(mut file) => read(&mut file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The new number survives the death of the process, but a power cut only after [`MarkerFile::sync`].
    pub(crate) fn set(&self, number: u64) -> io::Result<()> {
        let number = number.to_be_bytes();
        self.file.write_all_at(&[&number[..], &crc32fast::hash(&number).to_be_bytes()].concat(), 0)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn read(file: &mut File) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (number, sum) = bytes.split_first_chunk::<8>()?;
    (sum == crc32fast::hash(number).to_be_bytes()).then_some(u64::from_be_bytes(*number))
}

/// The process that holds a lock, as the kernel lists it: trying the lock may keep another process from starting. `None`
/// when no process does, when it runs in another container, or when the kernel does not tell.
pub(crate) fn lock_holder(path: &Path) -> Option<u32> {
    let (locks, file) = (std::fs::read_to_string("/proc/locks").ok()?, std::fs::metadata(path).ok()?);
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    holder_in(&locks, device, file.ino())
}

/// A line is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131090 0 EOF`; a waiting one has an arrow before the kind.
fn holder_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()? == place).then_some(pid)
    })
}

pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    free_of(path).ok()
}

fn free_of(path: &Path) -> rustix::io::Result<u64> {
    rustix::fs::statvfs(path).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes of a disk that are set aside in a file, and given up when it is so full that not even a drain could write.
#[derive(Debug)]
pub(crate) struct ReserveFile {
    path: PathBuf,
    bytes: u64,
}

impl ReserveFile {
    pub(crate) fn new(dir: &Path, bytes: u64) -> ReserveFile {
        ReserveFile { path: dir.join("reserve"), bytes }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.path.exists()
    }

    /// Whether there is more space than that and the disk's own reserve.
    pub(crate) fn has_room(&self, disk_reserve_bytes: u64) -> bool {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        check_room(dir, disk_reserve_bytes.saturating_add(2 * self.bytes)).is_ok()
    }

    /// Sets the space aside, if there is room.
    pub(crate) fn keep(&self, disk_reserve_bytes: u64) {
        if self.is_kept() || !self.has_room(disk_reserve_bytes) {
            return;
        }
        let made = create(&self.path)
            .and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, self.bytes).map_err(io::Error::from));
        if made.is_err() {
            self.give();
        }
    }

    /// Whether there was any.
    pub(crate) fn give(&self) -> bool {
        std::fs::remove_file(&self.path).is_ok()
    }
}

/// # Errors: `Full` when fewer bytes are free than reserved: a failed write on a full disk stops sled until it is opened
/// again, and draining needs space too. `Unavailable` when the directory was removed: its open files can be written, and are gone with this
/// process. An unknown amount is not refused.
pub(crate) fn check_room(dir: &Path, reserve_bytes: u64) -> Result<()> {
    match free_of(dir) {
        Err(Errno::NOENT) => {
            let why =
                format!("{} was removed, and what is written to it now is lost: restart this broker", dir.display());
            Err(Error::unavailable(why))
        }
        Err(_) => Ok(()),
        Ok(free) => check_free(dir, free, reserve_bytes),
    }
}

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
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    fn kind(outcome: io::Result<()>) -> Option<ErrorKind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn removed_directory_takes_nothing() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        assert_eq!(check_room(dir.path(), 0), Ok(()));
        let refused = check_room(&dir.path().join("wal"), 0).map_err(|error| error.detail().to_owned());
        assert!(refused.is_err_and(|why| why.contains("was removed")));
        Ok(())
    }

    #[test]
    fn readable_directory_is_tightened_and_writable_refused() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let set = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode));
        set(0o755)?;
        check_owner(dir.path())?;
        close_directory(dir.path())?;
        assert_eq!(std::fs::metadata(dir.path())?.mode() & 0o777, 0o700);
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            set(mode)?;
            assert_eq!(kind(check_owner(dir.path())), Some(ErrorKind::PermissionDenied), "{mode:o}");
            assert_eq!(std::fs::metadata(dir.path())?.mode() & 0o7777, mode);
        }
        Ok(())
    }

    #[test]
    fn the_owner_is_this_user_or_root_with_its_group() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let found = |mode| {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(mode))?;
            std::fs::metadata(dir.path())
        };
        let owner = found(0o700)?.uid();
        assert!(check(&found(0o700)?, owner).is_ok());
        let other = check(&found(0o700)?, owner + 1);
        assert_eq!(other.is_ok(), owner == ROOT);
        if owner == ROOT {
            assert!(check(&found(0o2775)?, 65_532).is_ok());
            assert_eq!(kind(check(&found(0o2777)?, 65_532)), Some(ErrorKind::PermissionDenied));
            assert_eq!(kind(check(&found(0o2775)?, ROOT)), Some(ErrorKind::PermissionDenied));
        }
        Ok(())
    }

    #[test]
    fn symbolic_links_are_not_followed() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (victim, data) = (dir.path().join("victim"), dir.path().join("data"));
        std::fs::write(&victim, "untouched")?;
        std::fs::create_dir(&data)?;
        close_directory(&data)?;
        symlink(&victim, data.join("topics.new"))?;
        assert_eq!(kind(close_directory(&data)), Some(ErrorKind::PermissionDenied));
        assert!(create(&data.join("topics.new")).is_err() && open_or_create(&data.join("topics.new")).is_err());
        assert_eq!(std::fs::read_to_string(&victim)?, "untouched");
        symlink(&data, dir.path().join("link"))?;
        assert_eq!(kind(check_owner(&dir.path().join("link"))), Some(ErrorKind::PermissionDenied));
        let file = create(&data.join("new"))?;
        assert_eq!(file.metadata()?.mode() & 0o077, 0);
        Ok(())
    }

    #[test]
    fn lock_owner_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:9 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 fe:00:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 4712 fe:00:8 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfe, 0), 9), Some(4_711));
        assert_eq!((holder_in(locks, (0xfe, 1), 9), holder_in(locks, (0xfe, 0), 8)), (None, None));
    }

    #[test]
    fn own_lock_is_visible_until_released() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = File::open(dir.path())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        assert_eq!(lock_holder(dir.path()), Some(std::process::id()));
        drop(file);
        assert_eq!(lock_holder(dir.path()), None);
        Ok(())
    }

    #[test]
    fn disk_reserve_is_not_used() {
        let kind = |free| check_free(Path::new("/data"), free, 64).map_err(|error| error.kind());
        assert_eq!(kind(64), Ok(()));
        assert_eq!(kind(63), Err(Kind::Full));
    }
}
