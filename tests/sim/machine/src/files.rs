//! The calls of the C library that change files, in place of its own: those below the directory of a [disk](crate::disk) are
//! written down there, and may fail; all others are system calls, as in the C library.

use std::ffi::{CStr, CString};

use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t, off64_t, size_t, ssize_t};

use crate::disk::{self, Errno, Inode};

fn fail<T: From<i8>>(error: Errno) -> T {
    // SAFETY: it points to the error number of this thread.
    unsafe { *libc::__errno_location() = error };
    T::from(-1)
}

/// A system call that answers as the C library does.
fn called(answer: c_long) -> c_int {
    answer as c_int
}

fn text(path: *const c_char) -> String {
    // SAFETY: callers pass a C string, as the C library wants it.
    unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned()
}

/// The absolute path of a name in an open directory. Names in the working directory are no files of a disk.
fn path_at(directory: c_int, name: *const c_char) -> String {
    let name = text(name);
    if directory == libc::AT_FDCWD || name.starts_with('/') {
        return name;
    }
    let link = CString::new(format!("/proc/self/fd/{directory}")).unwrap_or_default();
    let mut base = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer has the length that is said.
    let length = unsafe { libc::readlink(link.as_ptr(), base.as_mut_ptr().cast(), base.len()) };
    let base = String::from_utf8_lossy(&base[..usize::try_from(length).unwrap_or(0)]).into_owned();
    format!("{base}/{name}")
}

fn about(descriptor: c_int) -> Option<(Inode, u64)> {
    // SAFETY: all zeros is a valid `stat64`, which the call fills.
    unsafe {
        let mut there: libc::stat64 = std::mem::zeroed();
        (libc::fstat64(descriptor, &mut there) == 0)
            .then(|| ((there.st_dev, there.st_ino), u64::try_from(there.st_size).unwrap_or(0)))
    }
}

fn about_path(path: &str) -> Option<(Inode, u64)> {
    let path = CString::new(path).ok()?;
    // SAFETY: all zeros is a valid `stat64`, which the call fills.
    unsafe {
        let mut there: libc::stat64 = std::mem::zeroed();
        (libc::lstat64(path.as_ptr(), &mut there) == 0)
            .then(|| ((there.st_dev, there.st_ino), u64::try_from(there.st_size).unwrap_or(0)))
    }
}

fn opened(directory: c_int, name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let open = || called(unsafe { libc::syscall(libc::SYS_openat, directory, name, flags, c_uint::from(mode)) });
    if !disk::is_any() {
        return open();
    }
    let path = path_at(directory, name);
    let looked = disk::at_path(&path, |disk, inside| {
        let before = about_path(&path);
        if flags & libc::O_CREAT != 0 && before.is_none() && !disk.has_room() {
            return fail(libc::ENOSPC);
        }
        let descriptor = open();
        // The error number of a failed call has to stay.
        if descriptor >= 0
            && let Some((inode, _)) = about(descriptor)
        {
            match before {
                None => disk.created(inside, inode, false),
                Some((_, size)) if flags & libc::O_TRUNC != 0 && size > 0 => disk.cut_to(inode, 0),
                Some(_) => {}
            }
            disk.opened(descriptor, inode);
        }
        descriptor
    });
    looked.unwrap_or_else(open)
}

// The C library's own have a variable number of arguments. On Linux the mode is passed as if they had not.

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(libc::AT_FDCWD, path, flags, mode)
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(libc::AT_FDCWD, path, flags, mode)
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(directory, path, flags, mode)
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(directory, path, flags, mode)
}

/// Writes at an offset; without one, where the descriptor stands.
///
/// # Safety
/// As `pwrite(2)`.
unsafe fn written(descriptor: c_int, bytes: *const c_void, count: size_t, offset: Option<off64_t>) -> ssize_t {
    let write = |count: size_t| {
        // SAFETY: the arguments are those of the caller, or fewer bytes.
        let answer = unsafe {
            match offset {
                Some(offset) => libc::syscall(libc::SYS_pwrite64, descriptor, bytes, count, offset),
                None => libc::syscall(libc::SYS_write, descriptor, bytes, count),
            }
        };
        answer as ssize_t
    };
    // A panic is told from wherever it is.
    let is_watched = disk::is_any() && descriptor > libc::STDERR_FILENO;
    let Some((inode, size)) = is_watched.then(|| about(descriptor)).flatten() else { return write(count) };
    let looked = disk::with_inode(inode, |disk| {
        let at = offset.unwrap_or_else(|| {
            // SAFETY: both calls only ask.
            unsafe {
                match libc::fcntl(descriptor, libc::F_GETFL) & libc::O_APPEND {
                    0 => libc::lseek64(descriptor, 0, libc::SEEK_CUR),
                    _ => off64_t::try_from(size).unwrap_or(0),
                }
            }
        });
        let at = u64::try_from(at).unwrap_or(0);
        let count = match disk.takes(inode, size, at, count as u64) {
            Ok(count) => count as size_t,
            Err(error) => return fail(error),
        };
        let wrote = write(count);
        if wrote > 0 {
            // SAFETY: the caller promises that so many bytes can be read.
            disk.wrote(inode, at, unsafe { std::slice::from_raw_parts(bytes.cast(), wrote as usize) });
        }
        wrote
    });
    looked.unwrap_or_else(|| write(count))
}

/// # Safety
/// As `write(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the arguments are those of the caller.
    unsafe { written(descriptor, bytes, count, None) }
}

/// # Safety
/// As `pwrite(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    bytes: *const c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the arguments are those of the caller.
    unsafe { written(descriptor, bytes, count, Some(offset)) }
}

/// # Safety
/// As `writev(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn writev(descriptor: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t {
    let inode = disk::is_any().then(|| about(descriptor)).flatten();
    if inode.is_some_and(|(inode, _)| disk::with_inode(inode, |_| ()).is_some()) {
        // Nothing may be written unseen.
        return fail(libc::ENOTSUP);
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { libc::syscall(libc::SYS_writev, descriptor, parts, count) as ssize_t }
}

/// # Safety
/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ftruncate64(descriptor: c_int, length: off64_t) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let cut = || called(unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, length) });
    let Some((inode, _)) = disk::is_any().then(|| about(descriptor)).flatten() else { return cut() };
    let looked = disk::with_inode(inode, |disk| {
        let done = cut();
        if done == 0 {
            disk.cut_to(inode, u64::try_from(length).unwrap_or(0));
        }
        done
    });
    looked.unwrap_or_else(cut)
}

/// # Safety
/// As `fallocate(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fallocate64(descriptor: c_int, mode: c_int, offset: off64_t, length: off64_t) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let make = || called(unsafe { libc::syscall(libc::SYS_fallocate, descriptor, mode, offset, length) });
    let Some((inode, size)) = disk::is_any().then(|| about(descriptor)).flatten() else { return make() };
    let looked = disk::with_inode(inode, |disk| {
        let end = u64::try_from(offset + length).unwrap_or(0).max(size);
        match disk.takes(inode, size, size, end - size) {
            Ok(count) if count == end - size => {}
            Ok(_) => return fail(libc::ENOSPC),
            Err(error) => return fail(error),
        }
        // As long, and empty: the real disk need not have so much.
        // SAFETY: the descriptor is that of the caller.
        let done = called(unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, end as off64_t) });
        if done == 0 {
            disk.cut_to(inode, end);
        }
        done
    });
    looked.unwrap_or_else(make)
}

fn synced(descriptor: c_int, is_barrier: bool, sync: impl Fn() -> c_int) -> c_int {
    let Some((inode, _)) = disk::is_any().then(|| about(descriptor)).flatten() else { return sync() };
    // The real one would only take time.
    match disk::with_inode(inode, |disk| disk.synced(descriptor, inode, is_barrier)) {
        Some(Ok(())) => 0,
        Some(Err(error)) => fail(error),
        None => sync(),
    }
}

/// # Safety
/// As `fsync(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    // SAFETY: the arguments are those of the caller.
    synced(descriptor, true, || called(unsafe { libc::syscall(libc::SYS_fsync, descriptor) }))
}

/// # Safety
/// As `fdatasync(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    // SAFETY: the arguments are those of the caller.
    synced(descriptor, true, || called(unsafe { libc::syscall(libc::SYS_fdatasync, descriptor) }))
}

/// # Safety
/// As `sync_file_range(2)`, which is no barrier: it says nothing of the cache of the disk.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sync_file_range(
    descriptor: c_int,
    from: off64_t,
    count: off64_t,
    flags: c_uint,
) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let sync = || called(unsafe { libc::syscall(libc::SYS_sync_file_range, descriptor, from, count, flags) });
    synced(descriptor, false, sync)
}

/// # Safety
/// As `rename(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let cwd = libc::AT_FDCWD;
    // SAFETY: the arguments are those of the caller.
    let rename = || called(unsafe { libc::syscall(libc::SYS_renameat2, cwd, from, cwd, to, 0) });
    if !disk::is_any() {
        return rename();
    }
    let (before, after) = (text(from), text(to));
    let looked = disk::at_path(&before, |disk, inside| {
        let done = rename();
        if done == 0 {
            let root = before.len() - inside.len();
            disk.renamed(inside, after.get(root..).unwrap_or_default());
        }
        done
    });
    looked.unwrap_or_else(rename)
}

fn removed(directory: c_int, name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let remove = || called(unsafe { libc::syscall(libc::SYS_unlinkat, directory, name, flags) });
    if !disk::is_any() {
        return remove();
    }
    let path = path_at(directory, name);
    let looked = disk::at_path(&path, |disk, inside| {
        let bytes = about_path(&path).filter(|_| flags & libc::AT_REMOVEDIR == 0).map_or(0, |(_, bytes)| bytes);
        let done = remove();
        if done == 0 {
            disk.removed(inside, bytes);
        }
        done
    });
    looked.unwrap_or_else(remove)
}

/// # Safety
/// As `unlink(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    removed(libc::AT_FDCWD, path, 0)
}

/// # Safety
/// As `rmdir(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    removed(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
}

/// # Safety
/// As `unlinkat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    removed(directory, path, flags)
}

/// # Safety
/// As `mkdir(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mkdir(name: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the arguments are those of the caller.
    let make = || called(unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, name, c_uint::from(mode)) });
    if !disk::is_any() {
        return make();
    }
    let path = text(name);
    let looked = disk::at_path(&path, |disk, inside| {
        if !disk.has_room() && about_path(&path).is_none() {
            return fail(libc::ENOSPC);
        }
        let done = make();
        if done == 0
            && let Some((inode, _)) = about_path(&path)
        {
            disk.created(inside, inode, true);
        }
        done
    });
    looked.unwrap_or_else(make)
}

/// # Safety
/// As `statvfs(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn statvfs64(path: *const c_char, to: *mut libc::statvfs64) -> c_int {
    const BLOCK_BYTES: u64 = 4_096;
    let free = disk::is_any().then(|| disk::at_path(&text(path), |disk, _| disk.free())).flatten();
    // SAFETY: all zeros is a valid `statvfs64` and `statfs64`; the caller promises that `to` can be written.
    unsafe {
        let mut answer: libc::statvfs64 = std::mem::zeroed();
        match free {
            Some(free) => {
                answer.f_bavail = free / BLOCK_BYTES;
                (answer.f_bfree, answer.f_blocks) = (answer.f_bavail, disk::FREE_BYTES / BLOCK_BYTES);
                (answer.f_bsize, answer.f_frsize) = (BLOCK_BYTES, BLOCK_BYTES);
            }
            None => {
                let mut real: libc::statfs64 = std::mem::zeroed();
                if libc::statfs64(path, &mut real) != 0 {
                    return -1;
                }
                (answer.f_bavail, answer.f_bfree, answer.f_blocks) = (real.f_bavail, real.f_bfree, real.f_blocks);
                let bytes = u64::try_from(real.f_bsize).unwrap_or(0);
                (answer.f_bsize, answer.f_frsize) = (bytes, bytes);
                (answer.f_files, answer.f_ffree, answer.f_favail) = (real.f_files, real.f_ffree, real.f_ffree);
            }
        }
        to.write(answer);
    }
    0
}
