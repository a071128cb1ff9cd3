/* The lock belongs to the open file, so a child of fork would share it, and keep it when the parent
 * has ended. All locks of the process are in a list, and a child closes its copies at once. */
#include "step/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCKED_FILE "about.json"

static pthread_mutex_t holds_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t holds_once = PTHREAD_ONCE_INIT;
static step_hold *holds;

static void lock_holds(void) { pthread_mutex_lock(&holds_mutex); }
static void unlock_holds(void) { pthread_mutex_unlock(&holds_mutex); }

static void drop_in_child(void) {
    for (step_hold *h = holds; h; h = h->next) {
        if (h->lock_fd >= 0) close(h->lock_fd);
        h->lock_fd = -1;
    }
    unlock_holds();
}

static void follow_forks(void) { pthread_atfork(lock_holds, unlock_holds, drop_in_child); }

static int open_locked_file(int folder_fd) {
    return openat(folder_fd, LOCKED_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static int take_shared_lock(int folder_fd) {
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open_locked_file(folder_fd);
    if (fd < 0 || !fcntl(fd, F_OFD_SETLK, &whole)) return fd;
    close(fd);
    return -1;
}

step_hold *step_hold_open(const char *folder, int locks, int *gone) {
    step_hold *hold = malloc(sizeof *hold);
    char *path = strdup(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *gone = fd < 0 && errno == ENOENT;
    if (!hold || !path || fd < 0) goto fail;
    pthread_once(&holds_once, follow_forks);
    lock_holds(); /* no fork between the lock and its place in the list */
    *hold = (step_hold){fd, locks ? take_shared_lock(fd) : -1, path, holds};
    holds = hold;
    unlock_holds();
    return hold;
fail:
    if (fd >= 0) close(fd);
    free(path);
    free(hold);
    return NULL;
}

int step_hold_is_named(const step_hold *hold) {
    struct stat now, held;
    return !stat(hold->path, &now) && !fstat(hold->folder_fd, &held) && now.st_ino == held.st_ino &&
           now.st_dev == held.st_dev;
}

void step_hold_close(step_hold *hold) {
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (!hold) return;
    lock_holds();
    step_hold **at = &holds;
    while (*at != hold) at = &(*at)->next;
    *at = hold->next;
    if (hold->lock_fd >= 0) {
        fcntl(hold->lock_fd, F_OFD_SETLK, &whole); /* whoever else has the file open */
        close(hold->lock_fd);
    }
    unlock_holds();
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
    int fd = open_locked_file(folder_fd);
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &whole))
        held = may_be_held(errno);
    else
        held = whole.l_type != F_UNLCK;
    if (fd >= 0) close(fd);
    close(folder_fd);
    return held;
}
