// Preloaded into a broker. Writes down, in order, what the process does to the files below DISK_ROOT, and fails what the
// file DISK_CONTROL asks for.
//
// DISK_TRACE is a sequence of events: kind (1 byte), inode, number, length of the rest (8 bytes each, in the order of the
// machine), the rest.
//   C  a file was created           rest: its path       D  the same for a directory
//   W  bytes were written           number: the offset   L  the length was set             number: the length
//   S  everything is on the disk                         F  a sync failed: what was written since the last one is lost
//   R  a name was changed           rest: both paths with a zero between
//   U  a name was removed           rest: the path
//
// DISK_CONTROL is "<generation> <kind> <times> <part> <good>": calls of that kind on paths that contain the part fail so many
// times; between the first one and the others so many succeed; a new generation begins to count anew. Kinds: `sync` (fsync, fdatasync, sync_file_range), `barrier` (the first
// two alone), `write`, `die` (SIGKILL at the next event of any kind), `none`.
//
// As Linux does it, a failed sync is told once to each descriptor that was open, whoever of them asked first.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 65536

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static const char *root, *control;

// Failed syncs of each inode, and how many of them each descriptor was told.
static struct { ino_t inode; unsigned count; } failures[1024];
static unsigned told[FILES];

__attribute__((constructor)) static void begin(void) {
    root = getenv("DISK_ROOT");
    control = getenv("DISK_CONTROL");
    const char *path = getenv("DISK_TRACE");
    if (root && control && path) trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int below(const char *path) {
    size_t length = root ? strlen(root) : 0;
    return trace >= 0 && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

// The path of a descriptor, if it is a file or a directory below the root.
static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = trace < 0 ? -1 : readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return below(path);
}

static int path_at(int dir, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char base[PATH_MAX];
        if (dir == AT_FDCWD || !path_of(dir, base)) return 0;
        snprintf(path, PATH_MAX, "%.*s/%s", (int)(PATH_MAX / 2), base, name);
    }
    return below(path);
}

static void append(char kind, ino_t inode, uint64_t number, const void *rest, size_t length) {
    uint64_t head[3] = {inode, number, length};
    struct iovec parts[3] = {{&kind, 1}, {head, sizeof head}, {(void *)rest, length}};
    if (syscall(SYS_writev, trace, parts, 3) != (long)(1 + sizeof head + length)) abort();
}

// What a refused write says: an error of the disk, or that it is full.
static int refusal = EIO;

static int asks(const char *kind, const char *path, int *times, char *wanted, char *part) {
    static long generation = -1;
    static int used = 0, passed = 0;
    char text[256] = "";
    int fd = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    long found = -1;
    int good = 0;
    if (length <= 0 || sscanf(text, "%ld %31s %d %127s %d", &found, wanted, times, part, &good) != 5) return 0;
    if (found != generation) generation = found, used = 0, passed = 0;
    if (strcmp(wanted, "die") == 0) kill(getpid(), SIGKILL), pause();
    if (!strstr(path, part) || used >= *times) return 0;
    int hit = strcmp(kind, wanted) == 0 || (strcmp(kind, "barrier") == 0 && strcmp(wanted, "sync") == 0);
    if (strcmp(wanted, "full") == 0) hit = strcmp(kind, "write") == 0;
    refusal = strcmp(wanted, "full") == 0 ? ENOSPC : EIO;
    if (hit && used > 0 && passed < good) return passed++, 0;
    used += hit;
    return hit;
}

static int fails(const char *kind, const char *path) {
    int times = 0;
    char wanted[32], part[128];
    return asks(kind, path, &times, wanted, part);
}

static ino_t inode_of(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

static unsigned *failures_of(ino_t inode) {
    for (int at = 0; at < 1024; at++) {
        if (failures[at].inode == 0) failures[at].inode = inode;
        if (failures[at].inode == inode) return &failures[at].count;
    }
    abort();
}

static int opened(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!path_at(dir, name, path)) return syscall(SYS_openat, dir, name, flags, mode);
    pthread_mutex_lock(&one);
    fails("open", path);
    int existed = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
    int fd = syscall(SYS_openat, dir, name, flags, mode), error = errno;
    if (fd >= 0) {
        ino_t inode = inode_of(fd);
        if (!existed) {
            // An inode may be used again by another file.
            *failures_of(inode) = 0;
            append('C', inode, 0, path, strlen(path));
        } else if (flags & O_TRUNC) {
            append('L', inode, 0, 0, 0);
        }
        if (fd < FILES) told[fd] = *failures_of(inode);
    }
    pthread_mutex_unlock(&one);
    errno = error;
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        return opened(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        return opened(dir, path, flags, mode); \
    }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

static ssize_t written(int fd, const void *bytes, size_t length, off_t offset, const char *path) {
    pthread_mutex_lock(&one);
    ssize_t wrote = -1;
    int error;
    if (fails("write", path)) {
        error = refusal;
    } else {
        wrote = syscall(SYS_pwrite64, fd, bytes, length, offset), error = errno;
        if (wrote > 0) append('W', inode_of(fd), offset, bytes, wrote);
    }
    pthread_mutex_unlock(&one);
    errno = error;
    return wrote;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    char path[PATH_MAX];
    return path_of(fd, path) ? written(fd, bytes, length, offset, path) : syscall(SYS_pwrite64, fd, bytes, length, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return syscall(SYS_write, fd, bytes, length);
    int flags = fcntl(fd, F_GETFL);
    off_t offset = lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t wrote = written(fd, bytes, length, offset, path);
    int error = errno;
    if (wrote > 0) lseek(fd, offset + wrote, SEEK_SET);
    errno = error;
    return wrote;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    // Nothing may be written unseen.
    if (path_of(fd, path)) abort();
    return syscall(SYS_writev, fd, parts, count);
}

int ftruncate64(int fd, off64_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&one);
    int failed = fails("write", path), error = refusal, done = -1;
    if (!failed) done = syscall(SYS_ftruncate, fd, length), error = errno;
    if (done == 0) append('L', inode_of(fd), length, 0, 0);
    pthread_mutex_unlock(&one);
    errno = error;
    return done;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int synced(int fd, long number, const char *kind, const char *path) {
    pthread_mutex_lock(&one);
    ino_t inode = inode_of(fd);
    unsigned *failed = failures_of(inode);
    int done = -1, error = EIO;
    if (fails(kind, path)) {
        *failed += 1;
        append('F', inode, 0, 0, 0);
    } else {
        // What sync_file_range did is not yet on the disk: it is no barrier.
        done = number == SYS_sync_file_range ? 0 : syscall(number, fd), error = errno;
        if (done == 0 && number != SYS_sync_file_range) append('S', inode, 0, 0, 0);
    }
    if (fd < FILES && told[fd] != *failed) told[fd] = *failed, done = -1, error = EIO;
    pthread_mutex_unlock(&one);
    errno = error;
    return done;
}

#define SYNC(name, number) \
    int name(int fd) { \
        char path[PATH_MAX]; \
        return path_of(fd, path) ? synced(fd, number, "barrier", path) : syscall(number, fd); \
    }
SYNC(fsync, SYS_fsync) SYNC(fdatasync, SYS_fdatasync)

int sync_file_range(int fd, off64_t from, off64_t length, unsigned flags) {
    char path[PATH_MAX];
    if (path_of(fd, path)) return synced(fd, SYS_sync_file_range, "sync", path);
    return syscall(SYS_sync_file_range, fd, from, length, flags);
}

static int renamed(int from_dir, const char *from, int to_dir, const char *to) {
    char paths[2 * PATH_MAX], target[PATH_MAX];
    if (!path_at(from_dir, from, paths) || !path_at(to_dir, to, target)) return syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
    pthread_mutex_lock(&one);
    int failed = fails("write", paths), error = refusal, done = -1;
    if (!failed) done = syscall(SYS_renameat2, from_dir, from, to_dir, to, 0), error = errno;
    if (done == 0) {
        size_t length = strlen(paths) + 1;
        memcpy(paths + length, target, strlen(target));
        append('R', 0, 0, paths, length + strlen(target));
    }
    pthread_mutex_unlock(&one);
    errno = error;
    return done;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return renamed(from_dir, from, to_dir, to); }

int unlinkat(int dir, const char *name, int flags) {
    char path[PATH_MAX];
    if (!path_at(dir, name, path)) return syscall(SYS_unlinkat, dir, name, flags);
    pthread_mutex_lock(&one);
    fails("unlink", path);
    int done = syscall(SYS_unlinkat, dir, name, flags), error = errno;
    if (done == 0) append('U', 0, 0, path, strlen(path));
    pthread_mutex_unlock(&one);
    errno = error;
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdir(const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!path_at(AT_FDCWD, name, path)) return syscall(SYS_mkdirat, AT_FDCWD, name, mode);
    pthread_mutex_lock(&one);
    int failed = fails("write", path), error = refusal, done = -1;
    if (!failed) done = syscall(SYS_mkdirat, AT_FDCWD, name, mode), error = errno;
    struct stat info;
    if (done == 0 && stat(path, &info) == 0) append('D', info.st_ino, 0, path, strlen(path));
    pthread_mutex_unlock(&one);
    errno = error;
    return done;
}
