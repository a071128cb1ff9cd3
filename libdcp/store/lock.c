/* The lock of one writer. It belongs to the open file, not to a name or a text in it: it ends with
 * the process however that ends, and what a killed writer left in the file means nothing. The text
 * is for people and for the message of the writer that comes second. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/fail.h"
#include "store/folder.h"

#define LOCK_NAME ".lock"

static int fail_busy(int fd, const char *dir, dcp_error *err) {
    char text[320] = {0}, host[256];
    long pid;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n > 0 && sscanf(text, "%255s %ld", host, &pid) == 2)
        return core_fail(err, DCP_ERR_BUSY,
                         "%s is in use by another writer, process %ld on host %s: end it or choose "
                         "another directory",
                         dir, pid, host);
    return core_fail(err, DCP_ERR_BUSY,
                     "%s is in use by another writer that has just begun: end it or choose another "
                     "directory",
                     dir);
}

static int name_holder(int fd) {
    char host[256] = "unknown", text[320];
    gethostname(host, sizeof host - 1);
    int bytes = snprintf(text, sizeof text, "%s %ld\n", host, (long)getpid());
    if (pwrite(fd, text, (size_t)bytes, 0) != bytes) return -1;
    return ftruncate(fd, bytes);
}

int store_lock(int dir_fd, const char *dir, int *lock_fd, dcp_error *err) {
    int fd =
        openat(dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0) return core_fail_errno(err, "cannot make " LOCK_NAME " in", dir);
    int status;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            status = fail_busy(fd, dir, err);
        else
            status = core_fail_errno(err, "cannot lock " LOCK_NAME " in", dir);
        goto close_file;
    }
    if (name_holder(fd) != 0) {
        status = core_fail_errno(err, "cannot write " LOCK_NAME " in", dir);
        goto close_file;
    }
    *lock_fd = fd;
    return DCP_OK;
close_file:
    close(fd);
    return status;
}
