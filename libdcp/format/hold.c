#include "format/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/checks.h"
#include "core/fail.h"
#include "dcp/store.h"

#define LOCKED_FILE "about.json"
#define READING (O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
#define CLAIMING (O_RDWR | O_NOFOLLOW | O_NONBLOCK)
#define PATIENCE 100 /* times 1 ms; much longer than a writer takes from claim to rename */

/* Locks about.json. Returns NULL if that fails; errno says why. */
static io_lock_file *take_lock(int folder_fd, int flags, short type) {
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    io_lock_file *file = io_lock_file_open(folder_fd, LOCKED_FILE, flags, NULL);
    if (!file || !fcntl(file->fd, F_OFD_SETLK, &whole)) return file;
    io_lock_file_close(file);
    return NULL;
}

static void take_shared_lock(format_hold *hold) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < PATIENCE; i++) {
        hold->lock = take_lock(hold->folder_fd, READING, F_RDLCK);
        hold->is_claimed = !hold->lock && errno == EAGAIN;
        if (!hold->is_claimed || !format_hold_is_named(hold)) return;
        nanosleep(&pause, NULL);
    }
}

format_hold *format_hold_open(const char *folder, int locks, bool *gone) {
    format_hold *hold = malloc(sizeof *hold);
    char *path = strdup(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *gone = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (!hold || !path || fd < 0) goto fail;
    *hold = (format_hold){.folder_fd = fd, .path = path};
    if (locks) take_shared_lock(hold);
    return hold;
fail:
    if (fd >= 0) close(fd);
    free(path);
    free(hold);
    return NULL;
}

bool format_hold_is_named(const format_hold *hold) {
    struct stat now, held;
    if (stat(hold->path, &now)) return errno != ENOENT && errno != ENOTDIR;
    if (fstat(hold->folder_fd, &held)) return true;
    return now.st_ino == held.st_ino && now.st_dev == held.st_dev;
}

void format_hold_close(format_hold *hold) {
    if (!hold) return;
    io_lock_file_close(hold->lock);
    close(hold->folder_fd);
    free(hold->path);
    free(hold);
}

/* Returns false if the error code means that no lock can exist, true if a lock may exist. */
static bool may_be_held(int code) {
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP: /* not a step */
    case ENOLCK:
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP: /* the file system has no locks */
        return false;
    default:
        return true;
    }
}

bool format_hold_is_held(int dir_fd, const char *name) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool held;
    int folder_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd < 0) return may_be_held(errno);
    int fd = openat(folder_fd, LOCKED_FILE, READING | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &whole))
        held = may_be_held(errno);
    else
        held = whole.l_type == F_RDLCK; /* a write lock is a claim, so no reader holds the step */
    if (fd >= 0) close(fd);
    close(folder_fd);
    return held;
}

/* A step to which this process has no permission to write cannot be claimed, so only holds are
 * checked. A reader may come after this check, before the caller renames the step. Then either the
 * reader finds that the step has lost its name, or the caller finds the reader's lock before it
 * removes the files. */
bool format_hold_claim(int dir_fd, const char *name, io_lock_file **claim) {
    int folder_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *claim = NULL;
    if (folder_fd < 0) return !may_be_held(errno);
    *claim = take_lock(folder_fd, CLAIMING, F_WRLCK);
    int code = errno;
    close(folder_fd);
    if (*claim) return true;
    if (code == EACCES || code == EPERM) return !format_hold_is_held(dir_fd, name);
    return !may_be_held(code);
}

void format_hold_unclaim(io_lock_file *claim) { io_lock_file_close(claim); }

/* A reader's hold on a step, for programs. */

struct dcp_pin {
    format_hold *hold;
};

static int fail_gone(const char *path, dcp_error *err) {
    errno = ENOENT;
    return core_fail_errno(err, "cannot pin", path);
}

static int fail_unsupported(const char *path, int code, dcp_error *err) {
    core_fail(err, DCP_ERR_UNSUPPORTED,
              "cannot pin %s: this file system has no locks that others see (F_OFD_SETLK): copy "
              "the step to another file system",
              path);
    if (err) err->system_error = code;
    return core_fail_path(DCP_ERR_UNSUPPORTED, path, err);
}

/* errno must say why there is no lock. */
static int fail_without_lock(const char *path, dcp_error *err) {
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return core_fail_path(core_fail(err, DCP_ERR_NOT_FOUND,
                                        "cannot pin %s: it has no about.json, so it is not a step",
                                        path),
                              path, err);
    case ENOLCK:
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP:
        return fail_unsupported(path, errno, err);
    default:
        return core_fail_errno(err, "cannot lock about.json of", path);
    }
}

/* Also checks that others see the lock: some file systems grant every lock. */
static int check_lock(const format_hold *hold, const char *path, dcp_error *err) {
    if (!hold->lock) return fail_without_lock(path, err);
    return format_hold_is_held(hold->folder_fd, ".") ? DCP_OK : fail_unsupported(path, 0, err);
}

/* If `path` is a store's `latest`, it may point to another step by the time the first step is
 * locked. In that case, this function tries again. */
static int hold_named(const char *path, format_hold **out, dcp_error *err) {
    enum { TIMES = 100 };
    for (int i = 0; i < TIMES; i++) {
        bool gone;
        format_hold *hold = format_hold_open(path, 1, &gone);
        if (!hold && gone) return fail_gone(path, err);
        if (!hold) return core_fail_errno(err, "cannot pin", path);
        const int status = check_lock(hold, path, err);
        const bool stands = !hold->is_claimed && format_hold_is_named(hold);
        *out = hold;
        if (!status && stands) return DCP_OK;
        format_hold_close(hold);
        if (stands) return status;
    }
    return core_fail_path(
        core_fail(err, DCP_ERR_NOT_FOUND, "cannot pin %s: its store's writer is removing it", path),
        path, err);
}

int dcp_step_pin(const char *step_path, dcp_pin **out, dcp_error *err) {
    if (!step_path || !out)
        return core_fail(err, DCP_ERR_ARG, "dcp_step_pin: step_path or out is NULL");
    int status = core_path_check(NULL, step_path, err);
    if (status) return status;
    dcp_pin *pin = malloc(sizeof *pin);
    if (!pin) return core_fail_memory(err, sizeof *pin);
    status = hold_named(step_path, &pin->hold, err);
    if (status)
        free(pin);
    else
        *out = pin;
    return status;
}

void dcp_step_unpin(dcp_pin *pin) {
    if (!pin) return;
    format_hold_close(pin->hold);
    free(pin);
}
