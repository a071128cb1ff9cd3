/* Preloaded into dcp-train: one call on one file or folder fails, once. Environment variables:
 *   FAULT_ARMED  a file; the call fails in the process that removes this file
 *   FAULT_CALL   fopen, access, open, lock, write or sync
 *   FAULT_PATH   the end of the path that the call is given, or of its file's path
 *   FAULT_ERRNO  a number
 *   FAULT_SKIP   how many such calls succeed before */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int hits(const char *call, int fd, const char *path) {
    const char *armed = getenv("FAULT_ARMED"), *wanted = getenv("FAULT_CALL");
    const char *end = getenv("FAULT_PATH"), *code = getenv("FAULT_ERRNO");
    const char *skip = getenv("FAULT_SKIP");
    static int met;
    char link[64], found[2 * PATH_MAX];
    size_t length = 0;
    if (!armed || !wanted || !end || !code || strcmp(wanted, call) != 0) return 0;
    if (fd >= 0 && !(path && *path == '/')) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, found, PATH_MAX);
        if (n < 0) return 0;
        length = (size_t)n;
        found[length++] = '/';
    }
    length += (size_t)snprintf(found + length, PATH_MAX, "%s", path ? path : "");
    if (!path) found[--length] = '\0';
    const size_t tail = strlen(end);
    if (length < tail || strcmp(found + length - tail, end) != 0) return 0;
    if (skip && met++ < atoi(skip)) return 0;
    if (unlink(armed) != 0) return 0;
    errno = atoi(code);
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define LAST(type, value, last)                                                                    \
    type value;                                                                                    \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, last);                                                                      \
        value = va_arg(args, type);                                                                \
        va_end(args);                                                                              \
    }

FILE *fopen(const char *path, const char *mode) {
    return hits("fopen", -1, path) ? NULL : REAL(fopen)(path, mode);
}

int access(const char *path, int mode) {
    return hits("access", -1, path) ? -1 : REAL(access)(path, mode);
}

int open(const char *path, int flags, ...) {
    LAST(mode_t, mode, flags)
    return hits("open", -1, path) ? -1 : REAL(open)(path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...) {
    LAST(mode_t, mode, flags)
    return hits("open", fd, path) ? -1 : REAL(openat)(fd, path, flags, mode);
}

int fcntl(int fd, int command, ...) {
    LAST(void *, argument, command)
    if (command == F_OFD_SETLK && hits("lock", fd, NULL)) return -1;
    return REAL(fcntl)(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    LAST(void *, argument, command)
    if (command == F_OFD_SETLK && hits("lock", fd, NULL)) return -1;
    return REAL(fcntl64)(fd, command, argument);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    return hits("write", fd, NULL) ? -1 : REAL(pwrite)(fd, data, bytes, at);
}

int fsync(int fd) { return hits("sync", fd, NULL) ? -1 : REAL(fsync)(fd); }
