/* The process has one list of open files, since the limit applies to the process; the most recently
 * used files are at its end. Files are opened without holding the lock (CORE_LOCK_OPENED), so no
 * thread waits while another one opens a file. */
#include "io/descriptors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/fail.h"
#include "core/system.h"

enum { LEAST_OPEN = 8, MOST_OPEN = 64 };

static struct {
    io_file *first, *last;
    unsigned n, in_use; /* in_use: in a forked child, includes uses by its parent's other threads */
} opened;

unsigned io_fd_cache_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 4 > MOST_OPEN) return MOST_OPEN;
    return limit.rlim_cur / 4 < LEAST_OPEN ? LEAST_OPEN : (unsigned)limit.rlim_cur / 4;
}

static void unlink_file(io_file *file) {
    *(file->before ? &file->before->after : &opened.first) = file->after;
    *(file->after ? &file->after->before : &opened.last) = file->before;
    file->before = file->after = NULL;
    opened.n--;
}

static void append_file(io_file *file) {
    file->before = opened.last;
    *(opened.last ? &opened.last->after : &opened.first) = file;
    opened.last = file;
    opened.n++;
}

/* Files that were written are synced first, since a closed file reports no later failure. */
static void close_idle(io_file *file) {
    bool writing = file->access == IO_WRITE || file->access == IO_WRITE_BUFFERED;
    unlink_file(file);
    if (writing && fsync(file->fd)) file->failed = errno;
    if (close(file->fd) && writing && !file->failed) file->failed = errno;
    file->fd = -1;
}

/* Closes unused files until fewer than `most` are open. */
static void make_room(unsigned most) {
    for (io_file *file = opened.first, *after; file && opened.n >= most; file = after) {
        after = file->after;
        if (!file->users) close_idle(file);
    }
}

void io_fd_prepare(io_file *file, int folder, const char *path, io_access access) {
    *file = (io_file){.fd = -1,
                      .memory_align = 1,
                      .path = path,
                      .folder = folder,
                      .access = access,
                      .is_on_use = true};
}

void io_fd_adopt(io_file *file, io_access access) {
    file->folder = AT_FDCWD;
    file->access = access;
    file->is_on_use = true;
    core_process_lock_acquire(CORE_LOCK_OPENED);
    make_room(io_fd_cache_limit());
    append_file(file);
    core_process_lock_release(CORE_LOCK_OPENED);
}

static int open_file(const io_file *file, io_file *out, dcp_error *err) {
    errno = 0;
    int status = io_open_in(file->folder, file->path, file->access, out, err);
    if (!status || (errno != EMFILE && errno != ENFILE)) return status;
    core_process_lock_acquire(CORE_LOCK_OPENED);
    make_room(1); /* other code has used up the descriptors */
    core_process_lock_release(CORE_LOCK_OPENED);
    return io_open_in(file->folder, file->path, file->access, out, err);
}

/* Called with the lock, which is released while the file is opened; another thread may open it
 * first. */
static int open_for_use(io_file *file, dcp_error *err) {
    io_file found = {.fd = -1};
    make_room(io_fd_cache_limit());
    core_process_lock_release(CORE_LOCK_OPENED);
    int status = open_file(file, &found, err);
    core_process_lock_acquire(CORE_LOCK_OPENED);
    if (status) return status;
    if (file->fd >= 0) {
        io_close(&found);
        return DCP_OK;
    }
    file->fd = found.fd;
    file->direct = found.direct;
    file->memory_align = found.memory_align;
    append_file(file);
    return DCP_OK;
}

int io_fd_acquire(io_file *file, dcp_error *err) {
    int status = DCP_OK;
    if (!file->is_on_use) return DCP_OK;
    core_process_lock_acquire(CORE_LOCK_OPENED);
    if (file->failed) {
        errno = file->failed;
        status = core_fail_errno(err, "sync", file->path);
    } else if (file->fd < 0) {
        status = open_for_use(file, err);
    }
    if (!status && !file->users++) opened.in_use++;
    core_process_lock_release(CORE_LOCK_OPENED);
    return status;
}

void io_fd_release(io_file *file) {
    if (!file->is_on_use) return;
    core_process_lock_acquire(CORE_LOCK_OPENED);
    assert(file->users > 0);
    if (!--file->users) {
        assert(opened.in_use > 0);
        opened.in_use--;
        unlink_file(file);
        append_file(file);
    }
    core_process_lock_release(CORE_LOCK_OPENED);
}

bool io_fd_cache_is_full(const io_file *file) {
    if (!file->is_on_use) return false;
    core_process_lock_acquire(CORE_LOCK_OPENED);
    bool full = file->fd < 0 && opened.in_use >= io_fd_cache_limit();
    core_process_lock_release(CORE_LOCK_OPENED);
    return full;
}

void io_fd_close(io_file *file) {
    if (file->is_on_use && file->fd >= 0) {
        core_process_lock_acquire(CORE_LOCK_OPENED);
        unlink_file(file);
        if (file->users) opened.in_use--;
        core_process_lock_release(CORE_LOCK_OPENED);
    }
    file->is_on_use = false;
    io_close(file);
}

/* A fork holds the lock of the list `files` (CORE_LOCK_LOCK_FILES), so at the moment of a fork
 * every io_lock_file that is open is in the list. Only system calls are made while the lock is
 * held. */

static io_lock_file *files;

static void lock_files(void) { core_process_lock_acquire(CORE_LOCK_LOCK_FILES); }
static void unlock_files(void) { core_process_lock_release(CORE_LOCK_LOCK_FILES); }

static void drop_in_child(void) {
    for (io_lock_file *f = files; f; f = f->next) {
        close(f->fd);
        f->fd = -1;
    }
    files = NULL;
}

io_lock_file *io_lock_file_open(int dir_fd, const char *name, int flags, const char *tag) {
    io_lock_file *file = malloc(sizeof *file);
    if (!file) return NULL;
    lock_files();
    core_process_lock_on_fork(CORE_LOCK_LOCK_FILES, drop_in_child);
    int fd = openat(dir_fd, name, flags | O_CLOEXEC, 0666);
    if (fd >= 0) {
        *file = (io_lock_file){fd, getpid(), tag, files};
        files = file;
    }
    unlock_files();
    if (fd >= 0) return file;
    int code = errno;
    free(file);
    return errno = code, NULL;
}

void io_lock_file_close(io_lock_file *file) {
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    int code = errno;
    if (!file) return;
    lock_files();
    io_lock_file **at = &files;
    while (*at && *at != file) at = &(*at)->next;
    if (*at) *at = file->next;
    if (file->fd >= 0) {
        if (file->process == getpid()) fcntl(file->fd, F_OFD_SETLK, &whole);
        close(file->fd);
    }
    unlock_files();
    free(file);
    errno = code;
}

bool io_lock_file_has(const char *tag) {
    bool found = false;
    lock_files();
    for (const io_lock_file *f = files; f; f = f->next) found |= f->tag && !strcmp(f->tag, tag);
    unlock_files();
    return found;
}
