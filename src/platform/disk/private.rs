//! Directories and files of this process alone: what another user made or linked is not used.
//!
//! Root is trusted, and so is the group that root gave a directory to, as Kubernetes does with volumes.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

const ROOT: u32 = 0;

/// Checks that no other user can have put something into a directory.
///
/// # Errors
/// `PermissionDenied` when it is a symbolic link, belongs to another user, or lets others write.
pub(crate) fn check_owner(dir: &Path) -> io::Result<()> {
    check(&std::fs::symlink_metadata(dir)?, geteuid().as_raw())
}

/// Keeps others from reading a directory, if it is this user's.
///
/// # Errors
/// `PermissionDenied` when there is a symbolic link in it.
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
        let why = format!("belongs to user {owner}, and dwell runs as user {user}: use a directory of its own");
        return Err(refused(why));
    }
    // Root may give a directory to a group.
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

/// Opens a new or emptied file for this user alone, and not where a link leads.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    private().write(true).create(true).truncate(true).open(path)
}

/// Opens a file to read and write, making it for this user alone if it is not there, and not where a link leads.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    private().read(true).write(true).create(true).truncate(false).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn kind(outcome: io::Result<()>) -> Option<ErrorKind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn a_directory_that_others_can_read_is_closed_and_one_they_can_write_is_refused() -> io::Result<()> {
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
        // It is another user's for everyone but root itself.
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
    fn no_link_is_followed() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (victim, data) = (dir.path().join("victim"), dir.path().join("data"));
        std::fs::write(&victim, "untouched")?;
        std::fs::create_dir(&data)?;
        close_directory(&data)?;
        symlink(&victim, data.join("topics.json.new"))?;
        assert_eq!(kind(close_directory(&data)), Some(ErrorKind::PermissionDenied));
        assert!(
            create(&data.join("topics.json.new")).is_err() && open_or_create(&data.join("topics.json.new")).is_err()
        );
        assert_eq!(std::fs::read_to_string(&victim)?, "untouched");
        symlink(&data, dir.path().join("link"))?;
        assert_eq!(kind(check_owner(&dir.path().join("link"))), Some(ErrorKind::PermissionDenied));
        let file = create(&data.join("new"))?;
        assert_eq!(file.metadata()?.mode() & 0o077, 0);
        Ok(())
    }
}
