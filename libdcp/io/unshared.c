/* The lock is held from before a fork until after it, so that no file is open and not in the list
 * then. Under it come system calls alone. */
#include "io/unshared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/process_lock.h"

static io_unshared *files;

static void lock_files(void) { core_process_lock_take(CORE_LOCK_UNSHARED); }
static void unlock_files(void) { core_process_lock_leave(CORE_LOCK_UNSHARED); }

static void drop_in_child(void) {
    for (io_unshared *f = files; f; f = f->next) {
        close(f->fd);
        f->fd = -1;
    }
    files = NULL;
}

io_unshared *io_unshared_open(int dir_fd, const char *name, int flags, const char *tag) {
    io_unshared *file = malloc(sizeof *file);
    if (!file) return NULL;
    lock_files();
    core_process_lock_tell_child(CORE_LOCK_UNSHARED, drop_in_child);
    int fd = openat(dir_fd, name, flags | O_CLOEXEC, 0666);
    if (fd >= 0) {
        *file = (io_unshared){fd, getpid(), tag, files};
        files = file;
    }
    unlock_files();
    if (fd >= 0) return file;
    int code = errno;
    free(file);
    return errno = code, NULL;
}

void io_unshared_close(io_unshared *file) {
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    int code = errno;
    if (!file) return;
    lock_files();
    io_unshared **at = &files;
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

int io_unshared_has(const char *tag) {
    int found = 0;
    lock_files();
    for (const io_unshared *f = files; f; f = f->next) found |= f->tag && !strcmp(f->tag, tag);
    unlock_files();
    return found;
}
