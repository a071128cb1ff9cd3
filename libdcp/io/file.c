/* Opens files with O_DIRECT if the file system supports it. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h> /* not sys/stat.h: glibc 2.36 lacks struct statx's newer members */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/system.h"
#include "io/publish.h"

static int reserve(int fd, uint64_t bytes) {
    int failed;
    if (core_file_limit_check(bytes)) return -1;
    do failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    if (!failed) return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return -1;
    return ftruncate(fd, (off_t)bytes);
}

int io_create(const char *path, uint64_t bytes, dcp_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return core_fail_errno(err, "create", path);
    int status = DCP_OK;
    if (bytes && reserve(fd, bytes)) status = core_fail_errno(err, "reserve space for", path);
    if (close(fd) && !status) status = core_fail_errno(err, "close", path);
    return status;
}

/* Returns the memory alignment that O_DIRECT requires, or 0 if it does not accept all offsets that
 * are multiples of a page. */
static uint32_t direct_align(int fd) {
    uint32_t memory = PAGE_BYTES;
#ifdef STATX_DIOALIGN
    struct statx st;
    if (!syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) &&
        (st.stx_mask & STATX_DIOALIGN)) {
        if (!st.stx_dio_offset_align || PAGE_BYTES % st.stx_dio_offset_align) return 0;
        if (st.stx_dio_mem_align && PAGE_BYTES % st.stx_dio_mem_align == 0)
            memory = st.stx_dio_mem_align;
    }
#else
    (void)fd;
#endif
    return memory;
}

static int open_failed(const char *path, dcp_error *err) {
    if (errno == ELOOP)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "it is a symbolic link, but a step's files must be in its folder");
    if (errno == ENXIO || errno == ENODEV) /* socket, pipe without reader, missing device */
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "not a regular file");
    return core_fail_errno(err, "cannot open", path);
}

/* O_NONBLOCK is removed after opening: with it, io_uring would not wait for data. */
int io_open_regular_in(int folder, const char *path, int access, int *fd, uint64_t *bytes,
                       dcp_error *err) {
    struct stat st;
    const char *slash = folder == AT_FDCWD ? NULL : strrchr(path, '/');
    int opened =
            openat(folder, slash ? slash + 1 : path, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
        status = DCP_OK;
    if (opened < 0) return open_failed(path, err);
    if (fstat(opened, &st))
        status = core_fail_errno(err, "cannot look at", path);
    else if (!S_ISREG(st.st_mode))
        status = core_fail_at(err, DCP_ERR_CORRUPT, path, "not a regular file");
    else if (fcntl(opened, F_SETFL, 0))
        status = core_fail_errno(err, "cannot open", path);
    if (status) {
        close(opened);
        return status;
    }
    *fd = opened;
    *bytes = (uint64_t)st.st_size;
    return DCP_OK;
}

int io_open_regular(const char *path, int access, int *fd, uint64_t *bytes, dcp_error *err) {
    return io_open_regular_in(AT_FDCWD, path, access, fd, bytes, err);
}

int io_open_in(int folder, const char *path, io_access access, io_file *out, dcp_error *err) {
    io_file file = {.fd = -1, .memory_align = 1, .path = path};
    uint64_t bytes;
    bool writing = access == IO_WRITE || access == IO_WRITE_BUFFERED;
    int status =
        io_open_regular_in(folder, path, writing ? O_WRONLY : O_RDONLY, &file.fd, &bytes, err);
    if (status) return status;
    uint32_t align = access == IO_READ || access == IO_WRITE ? direct_align(file.fd) : 0;
    if (align && !fcntl(file.fd, F_SETFL, O_DIRECT)) {
        file.direct = true;
        file.memory_align = align;
    }
    *out = file;
    return DCP_OK;
}

uint64_t io_page_bytes(void) {
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > (long)PAGE_BYTES ? (uint64_t)bytes : PAGE_BYTES;
}

int io_open(const char *path, int writing, io_file *out, dcp_error *err) {
    return io_open_in(AT_FDCWD, path, writing ? IO_WRITE : IO_READ, out, err);
}

int io_open_buffered(const char *path, bool writing, io_file *out, dcp_error *err) {
    return io_open_in(AT_FDCWD, path, writing ? IO_WRITE_BUFFERED : IO_READ_BUFFERED, out, err);
}

int io_reserve(const io_file *file, uint64_t bytes, dcp_error *err) {
    if (!reserve(file->fd, bytes)) return DCP_OK;
    return core_fail_errno(err, "reserve space for", file->path);
}

int io_sync(const io_file *file, dcp_error *err) {
    return fsync(file->fd) ? core_fail_errno(err, "sync", file->path) : DCP_OK;
}

int io_sync_folder(const char *path, dcp_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return core_fail_errno(err, "cannot open", path);
    int status = io_publish_sync(fd) ? core_fail_errno(err, "cannot sync", path) : DCP_OK;
    close(fd);
    return status;
}

void io_close(io_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

void io_identify(int fd, uint64_t identity[4]) {
    struct stat st;
    memset(identity, 0, 4 * sizeof *identity);
    if (fstat(fd, &st)) return;
    identity[0] = st.st_dev;
    identity[1] = st.st_ino;
    identity[2] = (uint64_t)st.st_mtim.tv_sec;
    identity[3] = (uint64_t)st.st_mtim.tv_nsec;
}

/* Returns true for local file systems, whose files no other machine opens. */
static bool is_local(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs)) return false;
    return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
           fs.f_type == TMPFS_MAGIC;
}

/* The kernel grants a write lease only to the sole opener. If another process opens the file while
 * we hold the lease, the kernel sends a signal. F_SETSIG makes that signal SIGURG, which is ignored
 * by default; SIGIO would end the process. */
bool io_is_alone(int fd) {
    struct stat st;
    if (fstat(fd, &st) || st.st_nlink != 1 || !is_local(fd)) return false;
    if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_WRLCK)) return false;
    return fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

int io_read_plain(int fd, void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                  dcp_error *err) {
    char *to = buffer;
    while (bytes) {
        size_t want = bytes < (1u << 30) ? (size_t)bytes : 1u << 30;
        ssize_t got = pread(fd, to, want, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return core_fail_offset(core_fail_errno(err, "read", path), offset, err);
        if (!got)
            return core_fail_offset(core_fail_at(err, DCP_ERR_CORRUPT, path,
                                                 "size: the file ends at byte %llu",
                                                 (unsigned long long)offset),
                                    offset, err);
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return DCP_OK;
}

int io_write_plain(int fd, const void *buffer, uint64_t bytes, uint64_t offset, const char *path,
                   dcp_error *err) {
    const char *from = buffer;
    if (core_file_limit_check(offset + bytes)) return core_fail_errno(err, "write", path);
    while (bytes) {
        size_t want = bytes < (1u << 30) ? (size_t)bytes : 1u << 30;
        ssize_t done = pwrite(fd, from, want, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (!done) errno = ENOSPC;
        if (done <= 0) return core_fail_offset(core_fail_errno(err, "write", path), offset, err);
        from += done;
        offset += (uint64_t)done;
        bytes -= (uint64_t)done;
    }
    return DCP_OK;
}

/* Sharing extents, and reserving space for what is not shared. */

int io_clone(int from, int to, uint64_t offset, uint64_t bytes) {
    struct file_clone_range range = {
        .src_fd = from, .src_offset = offset, .src_length = bytes, .dest_offset = offset};
    int failed;
    do failed = ioctl(to, FICLONERANGE, &range);
    while (failed && errno == EINTR);
    return failed ? -1 : 0;
}

bool io_clone_is_refused(int error) {
    return error == EOPNOTSUPP || error == EXDEV || error == EINVAL || error == ENOTTY ||
           error == ENOSYS || error == EPERM;
}

int io_reserve_range(int fd, uint64_t offset, uint64_t bytes) {
    int failed;
    if (core_file_limit_check(offset + bytes)) return -1;
    do failed = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed && errno != EOPNOTSUPP && errno != ENOSYS ? -1 : 0;
}
