/* Preloaded into the ranks of a save: counts the calls that open or change anything below one
 * folder, and at the N-th call of one rank fails, writes only a part, or kills. Calls outside of
 * the folder are not affected. Controlled by the environment:
 *
 *   INJECT_BELOW    the folder, absolute
 *   INJECT_RANK     the rank that gets the fault
 *   INJECT_AT       the number of its call, starting at 1
 *   INJECT_FAULT    kill        SIGKILL of this rank; half of a write is done before
 *                   killall     SIGKILL of all ranks
 *                   EIO, ENOSPC the call fails with it; ENOSPC only if it needs space
 *                   short       a write does half of its work
 *                   term        SIGTERM of this rank, the call is done
 *                   stop        SIGSTOP of this rank, before the call; if INJECT_THEN is set,
 *                               SIGKILL that many calls later
 *                   full, dead  ENOSPC, EIO starting at this call
 *   INJECT_CONTROL  a folder elsewhere. pid.R: the rank's process; fired: the call was reached;
 *                   calls.R, if INJECT_LOG is set: one line per call: number, name, whether it
 *                   needs space, bytes it writes, nanoseconds, path
 *   INJECT_LOCKS    for files below the folder: none (ENOLCK), or all (granted to every caller)
 *   INJECT_FROM     calls count starting at the first whose path contains this; not set: from the
 *                   start
 *   INJECT_ARMED    a file elsewhere, which may be created at any time: "FAULT RANK CALLS"; that
 *                   rank removes it at its next call, and gets the fault this many calls later
 *   INJECT_NO_RING  set: io_uring is refused
 *
 * liburing enters the kernel without libc, so its functions are replaced instead: a request that
 * must fail is redirected to a file of the kernel on which it fails. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u

typedef enum fault {
    NONE,
    KILL,
    KILL_ALL,
    FAIL_EIO,
    FAIL_ENOSPC,
    SHORT,
    TERM,
    STOP,
    FULL,
    DEAD
} fault;

static const char *const fault_names[] = {"",      "kill", "killall", "EIO",  "ENOSPC",
                                          "short", "term", "stop",    "full", "dead"};

static struct {
    char below[PATH_MAX], control[PATH_MAX / 2], armed[PATH_MAX / 2], from[64];
    size_t below_bytes;
    int rank, log_fd, no_ring;
    fault fault;
    long at, then;
    char locks;
} plan = {.log_fd = -1};

static atomic_long calls;
static atomic_int counting;

static int control_file(const char *name, int number) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, number < 0 ? "%s/%s" : "%s/%s.%d", plan.control, name, number);
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
}

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static fault fault_of(const char *name) {
    for (int f = KILL; f <= DEAD; f++)
        if (!strcmp(name, fault_names[f])) return (fault)f;
    return NONE;
}

__attribute__((constructor)) static void begin(void) {
    const char *rank = setting("OMPI_COMM_WORLD_RANK");
    if (!*rank || !*setting("INJECT_BELOW")) return; /* a helper process of the launcher */
    snprintf(plan.control, sizeof plan.control, "%s", setting("INJECT_CONTROL"));
    snprintf(plan.armed, sizeof plan.armed, "%s", setting("INJECT_ARMED"));
    snprintf(plan.from, sizeof plan.from, "%s", setting("INJECT_FROM"));
    plan.no_ring = *setting("INJECT_NO_RING");
    plan.locks = *setting("INJECT_LOCKS");
    plan.rank = atoi(rank);
    int fd = *plan.control ? control_file("pid", plan.rank) : -1;
    if (fd >= 0) dprintf(fd, "%d\n", getpid());
    if (fd >= 0) close(fd);
    if (*setting("INJECT_LOG")) plan.log_fd = control_file("calls", plan.rank);
    if (atoi(setting("INJECT_RANK")) == plan.rank) {
        plan.at = atol(setting("INJECT_AT"));
        plan.then = atol(setting("INJECT_THEN"));
        plan.fault = fault_of(setting("INJECT_FAULT"));
    }
    snprintf(plan.below, sizeof plan.below, "%s", setting("INJECT_BELOW"));
    plan.below_bytes = strlen(plan.below); /* last: calls count after this */
}

/* Writes the path of `path` in the folder `fd` (or of the open file itself, if path is NULL).
 * Returns 1 if it is below plan.below. */
static int locate(int fd, const char *path, char out[2 * PATH_MAX]) {
    char link[64];
    ssize_t n = 0;
    if (!plan.below_bytes) return 0;
    if (!path || (*path != '/' && fd != AT_FDCWD)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, out, PATH_MAX - 1);
        if (n < 0) return 0;
    }
    out[n] = '\0';
    if (path) snprintf(out + n, 2 * PATH_MAX - (size_t)n, n ? "/%s" : "%s", path);
    return !strncmp(out, plan.below, plan.below_bytes) &&
           (out[plan.below_bytes] == '/' || !out[plan.below_bytes]);
}

static void kill_ranks(void) {
    char path[PATH_MAX], text[32];
    for (int r = 0; plan.fault == KILL_ALL; r++) {
        snprintf(path, sizeof path, "%s/pid.%d", plan.control, r);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) break;
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        text[n > 0 ? n : 0] = '\0';
        if (r != plan.rank && atoi(text) > 0) kill(atoi(text), SIGKILL);
    }
    kill(getpid(), SIGKILL);
}

static void note_call(long number, const char *name, int needs_room, uint64_t bytes,
                      const char *path) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    char line[2 * PATH_MAX + 200];
    int n = snprintf(line, sizeof line, "%ld %s %d %llu %lld %s\n", number, name, needs_room,
                     (unsigned long long)bytes, t.tv_sec * 1000000000LL + t.tv_nsec, path);
    if (write(plan.log_fd, line, (size_t)n) != n) abort();
}

/* Uses the fault that is armed for this rank, if there is one. */
static void take_armed(long number) {
    char name[16];
    int rank;
    long after;
    FILE *file = *plan.armed ? fopen(plan.armed, "re") : NULL;
    if (!file) return;
    const int found = fscanf(file, "%15s %d %ld", name, &rank, &after) == 3;
    fclose(file);
    if (!found || rank != atoi(setting("OMPI_COMM_WORLD_RANK")) || unlink(plan.armed) != 0) return;
    plan.fault = fault_of(name);
    plan.at = number + after;
}

/* Counts the call, and returns what to do at it; NONE: what the caller requests. */
static fault count_call(const char *name, int fd, const char *path, int needs_room,
                        uint64_t bytes) {
    char where[2 * PATH_MAX];
    int before = errno;
    fault f = NONE;
    int is_below = locate(fd, path, where);
    if (is_below && strstr(where, plan.from)) counting = 1;
    if (is_below && counting) {
        long number = ++calls;
        if (plan.log_fd >= 0) note_call(number, name, needs_room, bytes, where);
        take_armed(number);
        if (number == plan.at || (number > plan.at && plan.fault >= FULL)) f = plan.fault;
        if (number == plan.at && f && *plan.control) close(control_file("fired", -1));
        if (f == TERM || f == STOP) {
            kill(getpid(), f == TERM ? SIGTERM : SIGSTOP);
            f = NONE;
        }
        if (plan.fault == STOP && plan.then && number == plan.at + plan.then) f = KILL;
        if ((f == FAIL_ENOSPC || f == FULL) && !needs_room) f = NONE;
    }
    errno = before;
    return f;
}

/* Returns 1 if the call must fail, with errno set. Not for writes. */
static int hit(const char *name, int fd, const char *path, int needs_room) {
    fault f = count_call(name, fd, path, needs_room, 0);
    if (f == KILL || f == KILL_ALL) kill_ranks();
    if (f == NONE || f == SHORT) return 0;
    errno = f == FAIL_EIO || f == DEAD ? EIO : ENOSPC;
    return 1;
}

#define REAL(name) ((__typeof__(&name))real_function(#name))

static void *real_function(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static int open_at(const char *name, int fd, const char *path, int flags, mode_t mode) {
    if (hit(name, fd, path, (flags & O_CREAT) != 0)) return -1;
    return REAL(openat)(fd, path, flags, mode);
}

#define OPEN_MODE(flags, last)                                                                     \
    mode_t mode = 0;                                                                               \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                                   \
        va_list args;                                                                              \
        va_start(args, last);                                                                      \
        mode = va_arg(args, mode_t);                                                               \
        va_end(args);                                                                              \
    }

int open(const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return open_at("open", AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return open_at("open", AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int fd, const char *path, int flags, ...) {
    OPEN_MODE(flags, flags)
    return open_at("open", fd, path, flags, mode);
}

/* Calls that do everything or nothing. */
#define WHOLE(name, params, args, fd, path, needs_room)                                            \
    int name params { return hit(#name, fd, path, needs_room) ? -1 : REAL(name) args; }

WHOLE(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, 1)
WHOLE(mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode), fd, path, 1)
WHOLE(symlinkat, (const char *to, int fd, const char *path), (to, fd, path), fd, path, 1)
WHOLE(unlink, (const char *path), (path), AT_FDCWD, path, 0)
WHOLE(unlinkat, (int fd, const char *path, int flags), (fd, path, flags), fd, path, 0)
WHOLE(rename, (const char *from, const char *to), (from, to), AT_FDCWD, to, 1)
WHOLE(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), b, to, 1)
WHOLE(renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
      (a, from, b, to, flags), b, to, 1)
WHOLE(fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), fd, NULL, 1)
WHOLE(ftruncate, (int fd, off_t bytes), (fd, bytes), fd, NULL, 1)
WHOLE(fsync, (int fd), (fd), fd, NULL, 1)
WHOLE(fdatasync, (int fd), (fd), fd, NULL, 1)

int ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    if ((request == FICLONE || request == FICLONERANGE) && hit("clone", fd, NULL, 1)) return -1;
    return REAL(ioctl)(fd, request, argument);
}

static int lock_or(int fd, int command, void *argument) {
    char where[2 * PATH_MAX];
    if (command != F_OFD_SETLK || !plan.locks || !locate(fd, NULL, where))
        return REAL(fcntl)(fd, command, argument);
    errno = ENOLCK;
    return plan.locks == 'n' ? -1 : 0;
}

int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return lock_or(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return lock_or(fd, command, argument);
}

/* Returns half of a write's size, in whole pages if it has several. */
static size_t half(size_t bytes) { return bytes >= 2 * PAGE ? bytes / 2 / PAGE * PAGE : bytes / 2; }

/* Returns how many bytes a write attempts; -1: it fails, with errno set. Kills after half of the
 * write. */
static ssize_t write_room(fault f, int fd, const void *data, size_t bytes, off_t at) {
    if (f == KILL || f == KILL_ALL) {
        ssize_t n = 0;
        if (at >= 0) n = REAL(pwrite)(fd, data, half(bytes), at);
        (void)n;
        kill_ranks();
    }
    if (f == NONE) return (ssize_t)bytes;
    if (f == SHORT) return (ssize_t)half(bytes);
    errno = f == FAIL_EIO || f == DEAD ? EIO : ENOSPC;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    fault f = count_call("write", fd, NULL, 1, bytes);
    ssize_t room = write_room(f, fd, data, bytes, at);
    return room < 0 ? -1 : REAL(pwrite)(fd, data, (size_t)room, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    return pwrite(fd, data, bytes, at);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    fault f = count_call("write", fd, NULL, 1, bytes);
    ssize_t room = write_room(f, fd, data, bytes, -1);
    return room < 0 ? -1 : REAL(write)(fd, data, (size_t)room);
}

/* Supports only what MPI-IO uses: several parts of one file. A short write writes the first half of
 * the first part. */
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) {
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += parts[i].iov_len;
    fault f = count_call("write", fd, NULL, 1, bytes);
    if (f == NONE || n == 0) return REAL(pwritev)(fd, parts, n, at);
    ssize_t room = write_room(f, fd, parts[0].iov_base, parts[0].iov_len, at);
    return room < 0 ? -1 : REAL(pwrite)(fd, parts[0].iov_base, (size_t)room, at);
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    return plan.no_ring ? -EPERM : REAL(io_uring_queue_init)(entries, ring, flags);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                               struct io_uring_params *params) {
    return plan.no_ring ? -EPERM : REAL(io_uring_queue_init_params)(entries, ring, params);
}

/* Redirects the request to a file on which every write fails with this errno. The file stays open,
 * since the request is not complete yet. */
static void misdirect(struct io_uring_sqe *entry, int error) {
    entry->fd = open(error == ENOSPC ? "/dev/full" : "/proc/self/mem", O_WRONLY | O_CLOEXEC);
    entry->off = 0; /* no memory is mapped at address 0 */
}

static void hit_request(struct io_uring_sqe *entry, int *kills) {
    if (entry->opcode != IORING_OP_WRITE && entry->opcode != IORING_OP_WRITE_FIXED) return;
    fault f = count_call("write", entry->fd, NULL, 1, entry->len);
    if (f == KILL || f == KILL_ALL) *kills = 1;
    if (f == FAIL_EIO || f == DEAD) misdirect(entry, EIO);
    if (f == FAIL_ENOSPC || f == FULL) misdirect(entry, ENOSPC);
    if (*kills || f == SHORT) entry->len = (unsigned)half(entry->len);
}

int io_uring_submit(struct io_uring *ring) {
    int kills = 0;
    const struct io_uring_sq *sq = &ring->sq;
    for (unsigned i = sq->sqe_head; i != sq->sqe_tail; i++)
        hit_request(&ring->sq.sqes[i & sq->ring_mask], &kills);
    int sent = REAL(io_uring_submit)(ring);
    if (kills) kill_ranks();
    return sent;
}
