#include "step/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCKED_FILE "about.json"
#define READING (O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
#define CLAIMING (O_RDWR | O_NOFOLLOW | O_NONBLOCK)
#define PATIENCE 100 /* times 1 ms: far longer than a writer takes from its claim to its rename */

/* Of about.json. NULL: there is no lock, and errno says why. */
static io_unshared *take_lock(int folder_fd, int flags, short type) {
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    io_unshared *file = io_unshared_open(folder_fd, LOCKED_FILE, flags, NULL);
    if (!file || !fcntl(file->fd, F_OFD_SETLK, &whole)) return file;
    io_unshared_close(file);
    return NULL;
}

static void take_shared_lock(step_hold *hold) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < PATIENCE; i++) {
        hold->lock = take_lock(hold->folder_fd, READING, F_RDLCK);
        hold->is_claimed = !hold->lock && errno == EAGAIN;
        if (!hold->is_claimed || !step_hold_is_named(hold)) return;
        nanosleep(&pause, NULL);
    }
}

step_hold *step_hold_open(const char *folder, int locks, int *gone) {
    step_hold *hold = malloc(sizeof *hold);
    char *path = strdup(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *gone = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (!hold || !path || fd < 0) goto fail;
    *hold = (step_hold){.folder_fd = fd, .path = path};
    if (locks) take_shared_lock(hold);
    return hold;
fail:
    if (fd >= 0) close(fd);
    free(path);
    free(hold);
    return NULL;
}

int step_hold_is_named(const step_hold *hold) {
    struct stat now, held;
    if (stat(hold->path, &now)) return errno != ENOENT && errno != ENOTDIR;
    if (fstat(hold->folder_fd, &held)) return 1;
    return now.st_ino == held.st_ino && now.st_dev == held.st_dev;
}

void step_hold_close(step_hold *hold) {
    if (!hold) return;
    io_unshared_close(hold->lock);
    close(hold->folder_fd);
    free(hold->path);
    free(hold);
}

/* What the error says of a lock: there is none, or nobody knows. */
static int may_be_held(int code) {
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP: /* no step */
    case ENOLCK:
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP: /* no locks */
        return 0;
    default:
        return 1;
    }
}

int step_hold_is_held(int dir_fd, const char *name) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int held, folder_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd < 0) return may_be_held(errno);
    int fd = openat(folder_fd, LOCKED_FILE, READING | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &whole))
        held = may_be_held(errno);
    else
        held = whole.l_type == F_RDLCK; /* else it is claimed: no reader has it */
    if (fd >= 0) close(fd);
    close(folder_fd);
    return held;
}

/* What may not be written to can't be claimed: a reader that comes after the question finds that
 * the step's name is gone, or keeps no more than its files. */
int step_hold_claim(int dir_fd, const char *name, io_unshared **claim) {
    int folder_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *claim = NULL;
    if (folder_fd < 0) return !may_be_held(errno);
    *claim = take_lock(folder_fd, CLAIMING, F_WRLCK);
    int code = errno;
    close(folder_fd);
    if (*claim) return 1;
    if (code == EACCES || code == EPERM) return !step_hold_is_held(dir_fd, name);
    return !may_be_held(code);
}

void step_hold_unclaim(io_unshared *claim) { io_unshared_close(claim); }
