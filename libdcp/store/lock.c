#include "store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/fail.h"
#include "core/system.h"
#include "io/descriptors.h"
#include "io/entries.h"

int store_writer_make_id(char id[STORE_WRITER_ID], dcp_error *err) {
    uint64_t bits;
    int status = core_entropy(&bits, err);
    if (!status) snprintf(id, STORE_WRITER_ID, "%016" PRIx64, bits);
    return status;
}

void store_writer_describe(const char *id, store_writer *out) {
    *out = (store_writer){.has_ended = false};
    if (gethostname(out->host, sizeof out->host - 1) != 0 || !out->host[0])
        strcpy(out->host, "unknown");
    comm_process_find(&out->process);
    snprintf(out->id, sizeof out->id, "%s", id);
}

int store_writer_print(const store_writer *w, char text[STORE_WRITER_TEXT]) {
    const comm_process *p = &w->process;
    return snprintf(text, STORE_WRITER_TEXT,
                    "%s %" PRId64 " %" PRIu64 " %016" PRIx64 " %" PRIu64 " %s %s %s %" PRId64 "\n",
                    w->host, p->pid, p->start, p->kernel, p->name_space, w->id,
                    w->lockless    ? "lockless"
                    : w->contested ? "contested"
                                   : "sole",
                    w->has_ended ? "ended" : "held", p->pid);
}

/* Returns false if the text is not a complete line in the format of store_writer_print. Then only
 * host and pid are valid, if the text has them. */
static bool store_writer_parse(const char *text, store_writer *out) {
    char contested[16] = "", state[16] = "";
    int64_t again = -1;
    *out = (store_writer){.has_ended = false};
    comm_process *p = &out->process;
    int n = sscanf(text,
                   "%255s %" SCNd64 " %" SCNu64 " %" SCNx64 " %" SCNu64 " %16s %15s %15s %" SCNd64,
                   out->host, &p->pid, &p->start, &p->kernel, &p->name_space, out->id, contested,
                   state, &again);
    out->lockless = strcmp(contested, "lockless") == 0;
    out->contested = out->lockless || strcmp(contested, "contested") == 0;
    out->has_ended = strcmp(state, "ended") == 0;
    return n == 9 && again == p->pid && (out->has_ended || strcmp(state, "held") == 0);
}

static store_writer_state store_writer_find(const store_writer *w) {
    comm_process own;
    if (w->has_ended) return STORE_WRITER_GONE;
    comm_process_find(&own);
    if (!comm_process_can_check(&own, &w->process)) return STORE_WRITER_UNKNOWN;
    return comm_process_has_ended(&own, &w->process) ? STORE_WRITER_GONE : STORE_WRITER_RUNS;
}

/* Returns true if the writer is this process, under any identity. */
static bool store_writer_is_self(const store_writer *w, const store_writer *self) {
    return comm_process_can_check(&self->process, &w->process) &&
           w->process.pid == self->process.pid && w->process.start == self->process.start;
}

/* Locks are OFD locks. They belong to an open file, not to a process, so threads and other parts of
 * a program can't release them by accident. A child made by fork() closes its copy of the open file
 * (io/descriptors.h). A process that was made in another way shares the open file, and so may still
 * hold the lock when the writer has ended. So a lock on a file that names a dead process is no
 * obstacle: such a file is replaced.
 *
 * If locks do not exclude others, the file is always replaced and never written to, so a writer
 * that ends can't overwrite its successor's name. */

#define LOCK_NAME ".lock"
#define TRIES 20 /* pauses of 10 ms: time for a writer to write its name, or to end */

struct store_lock {
    int dir_fd;
    io_lock_file *file; /* tagged with `self.id`; NULL while the store is taken again */
    const char *dir;
    store_writer self;
    int take_over;
    bool excludes;
    bool is_contested; /* the store was contested when it was opened */
};

/* Returns true if the writer was this process, in an earlier attempt or before it called exec. Any
 * other store that this process has open counts as another writer. */
static bool is_self(const store_lock *lock, const store_writer *w) {
    return store_writer_is_self(w, &lock->self) &&
           (strcmp(w->id, lock->self.id) == 0 || !io_lock_file_has(w->id));
}

typedef enum grant { GRANTED, REFUSED, NO_LOCKS, LOCK_ERROR } grant;

static grant explain_failed_lock(int code) {
    if (code == EAGAIN || code == EACCES) return REFUSED;
    return code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP ? NO_LOCKS : LOCK_ERROR;
}

static grant lock_file(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0 ? GRANTED : explain_failed_lock(errno);
}

static int open_lock_file(int dir_fd, int flags) {
    return openat(dir_fd, LOCK_NAME, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Returns true if the granted lock excludes others: a second request for it must be refused. */
static bool is_exclusive(int dir_fd) {
    int fd = open_lock_file(dir_fd, O_RDWR);
    if (fd < 0) return true; /* the file was replaced; the caller notices that */
    bool refused = lock_file(fd) == REFUSED;
    close(fd);
    return refused;
}

static bool is_current(int dir_fd, int fd) {
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 &&
           fstatat(dir_fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Returns the number of bytes read, 0 if no name was written yet, or -1 with errno. */
static ssize_t read_writer(int fd, store_writer *w) {
    char text[STORE_WRITER_TEXT] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n >= 0 && !store_writer_parse(text, w)) w->id[0] = '\0';
    return n;
}

/* Opens `.lock` again, and reads which writer it names at present. */
static int read_current(int dir_fd, store_writer *w) {
    int fd = open_lock_file(dir_fd, O_RDONLY);
    if (fd < 0) return -1;
    ssize_t n = read_writer(fd, w);
    int code = errno;
    close(fd);
    return errno = code, n < 0 ? -1 : 0;
}

static int write_name(const store_lock *lock, int fd) {
    char text[STORE_WRITER_TEXT];
    int bytes = store_writer_print(&lock->self, text);
    if (core_file_limit_check((uint64_t)bytes)) return -1;
    ssize_t n = pwrite(fd, text, (size_t)bytes, 0);
    if (n != bytes) return errno = n < 0 ? errno : ENOSPC, -1;
    return ftruncate(fd, bytes);
}

static int check_trace(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    static const char *const kinds[] = {"step-", ".tmp-", ".abandoned-", ".writer-", ".trash-"};
    (void)ctx, (void)of, (void)err;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strncmp(e->d_name, kinds[k], strlen(kinds[k])) == 0) return DCP_ERR_BUSY;
    return DCP_OK;
}

/* Returns true if the directory contains steps or remains of saves: then it has had a writer, and
 * may still have one. Also returns true if the directory could not be listed. */
static bool had_writer(int dir_fd) {
    return io_visit_entries(dir_fd, ".", ".", check_trace, NULL, NULL) != DCP_OK;
}

/* Replaces the current `.lock` with a new file that contains this writer's name. */
static int replace_file(store_lock *lock) {
    char tmp[64];
    snprintf(tmp, sizeof tmp, ".tmp-lock-%s", lock->self.id);
    io_lock_file *made =
        io_lock_file_open(lock->dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, lock->self.id);
    if (!made) return -1;
    lock_file(made->fd);
    if (write_name(lock, made->fd) == 0 &&
        renameat(lock->dir_fd, tmp, lock->dir_fd, LOCK_NAME) == 0) {
        io_lock_file_close(lock->file);
        lock->file = made;
        return 0;
    }
    int code = errno;
    unlinkat(lock->dir_fd, tmp, 0);
    io_lock_file_close(made);
    return errno = code, -1;
}

static int fail_busy(const store_lock *lock, const store_writer *w, grant g, dcp_error *err) {
    if (!w->host[0] || w->has_ended)
        return core_fail(err, DCP_ERR_BUSY,
                         "%s is in use by another writer that has just begun: end it or choose "
                         "another directory",
                         lock->dir);
    if (g == REFUSED && store_writer_is_self(w, &lock->self))
        return core_fail(err, DCP_ERR_BUSY,
                         "%s is in use by another writer of the same process, %ld on host %s: "
                         "close that store or wait for that save, or choose another directory",
                         lock->dir, (long)w->process.pid, w->host);
    if (g == REFUSED)
        return core_fail(err, DCP_ERR_BUSY,
                         "%s is in use by another writer, process %ld on host %s: end it or choose "
                         "another directory",
                         lock->dir, (long)w->process.pid, w->host);
    return core_fail(
        err, DCP_ERR_BUSY,
        "%s is in use by another writer, process %ld on host %s, or that writer has ended "
        "without closing it, and %s: once that process has ended, take the store over "
        "(take_over)",
        lock->dir, (long)w->process.pid, w->host,
        g == NO_LOCKS ? "the locks of this file system do not show which" : "its lock is lost");
}

typedef enum attempt { TAKEN, AGAIN, FAILED } attempt;

static attempt fail_attempt(const store_lock *lock, const char *what, dcp_error *err) {
    if (errno == ESTALE || errno == ENOENT || errno == EEXIST) {
        core_fail_errno(err, what, lock->dir);
        return AGAIN; /* another process has just replaced the file */
    }
    core_fail_errno(err, what, lock->dir);
    return FAILED;
}

/* Writes this writer's name into the file, or replaces the file, and checks that `.lock` then
 * contains the name. The caller must know that the file may be written to, or replaced. */
static attempt put_name(store_lock *lock, bool replaces, dcp_error *err) {
    store_writer now;
    if ((replaces ? replace_file(lock) : write_name(lock, lock->file->fd)) != 0)
        return fail_attempt(lock, "cannot write " LOCK_NAME " in", err);
    if (read_current(lock->dir_fd, &now) != 0)
        return fail_attempt(lock, "cannot read " LOCK_NAME " in", err);
    if (strcmp(now.id, lock->self.id) == 0) return TAKEN;
    fail_busy(lock, &now, REFUSED, err);
    return AGAIN; /* two writers tried simultaneously, and the other one wrote last */
}

/* Returns the fate of the writer that the file names. The writer counts as gone if it was this
 * process, or if the file names no identity, for example because an earlier version wrote it. */
static store_writer_state find_writer(const store_lock *lock, const store_writer *w) {
    if (!w->id[0] || is_self(lock, w)) return STORE_WRITER_GONE;
    return store_writer_find(w);
}

/* Returns true if the store is free, according to the result of the lock request and the writer
 * that the file names. If the writer's process is seen running, the store is not free, even if the
 * lock was granted. A refused lock is no obstacle if the process is dead. */
static bool is_free(grant g, const store_writer *w, store_writer_state fate) {
    if (g == REFUSED) return fate == STORE_WRITER_GONE && w->id[0] && !w->has_ended;
    return fate == STORE_WRITER_GONE || (g == GRANTED && fate == STORE_WRITER_UNKNOWN);
}

/* Returns the writer for a message. If a process has locked the file without writing its name, asks
 * the kernel which process it is. */
static store_writer name_holder(const store_lock *lock, int fd, const store_writer *named) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    store_writer w = *named;
    if ((w.id[0] && !w.has_ended) || fcntl(fd, F_OFD_GETLK, &whole) != 0 ||
        whole.l_type == F_UNLCK || whole.l_pid <= 0)
        return w;
    w = lock->self;
    w.process.pid = whole.l_pid;
    return w;
}

static int fail_taken(const store_lock *lock, int fd, const store_writer *w, grant g,
                      dcp_error *err) {
    const store_writer holder = g == REFUSED ? name_holder(lock, fd, w) : *w;
    return fail_busy(lock, &holder, g, err);
}

static attempt take_open_file(store_lock *lock, bool waited, dcp_error *err) {
    store_writer w = {.has_ended = false};
    const int fd = lock->file->fd;
    grant g = lock_file(fd);
    if (g == LOCK_ERROR) return fail_attempt(lock, "cannot lock " LOCK_NAME " in", err);
    if (g == GRANTED && !is_exclusive(lock->dir_fd)) g = NO_LOCKS;
    ssize_t bytes = read_writer(fd, &w);
    if (bytes < 0) return fail_attempt(lock, "cannot read " LOCK_NAME " in", err);
    if (!is_current(lock->dir_fd, fd)) {
        errno = ESTALE;
        return fail_attempt(lock, "cannot open " LOCK_NAME " in", err);
    }
    const store_writer_state fate = find_writer(lock, &w);
    const bool is_known = is_free(g, &w, fate);
    /* If the lock was refused, its holder may be about to write its name. If it was granted, the
     * writer that the file names may be ending: a process that ends releases its locks before it
     * disappears. */
    const bool may_change = g == REFUSED ? fate == STORE_WRITER_GONE : g == GRANTED;
    const bool may_take = is_known || (lock->take_over && g != REFUSED);
    if (!may_take || (g == REFUSED && !waited)) {
        fail_taken(lock, fd, &w, g, err);
        return may_change && !waited ? AGAIN : FAILED;
    }
    lock->excludes = g != NO_LOCKS;
    lock->self.lockless = g == NO_LOCKS;
    lock->self.contested = w.contested || fate != STORE_WRITER_GONE || g == NO_LOCKS ||
                           (bytes == 0 && had_writer(lock->dir_fd));
    return put_name(lock, g != GRANTED || !is_known, err);
}

static void let_go(store_lock *lock) {
    io_lock_file_close(lock->file);
    lock->file = NULL;
}

static attempt try_acquire(store_lock *lock, bool waited, dcp_error *err) {
    lock->file = io_lock_file_open(lock->dir_fd, LOCK_NAME,
                                   O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, lock->self.id);
    if (!lock->file) return fail_attempt(lock, "cannot make " LOCK_NAME " in", err);
    attempt a = take_open_file(lock, waited, err);
    if (a != TAKEN) let_go(lock);
    return a;
}

static int acquire(store_lock *lock, dcp_error *err) {
    const struct timespec pause = {.tv_nsec = 10000000};
    dcp_error why = {0};
    for (int i = 0; i <= TRIES; i++) {
        attempt a = try_acquire(lock, i == TRIES, &why);
        if (a == TAKEN) return DCP_OK;
        if (a == FAILED) break;
        if (i < TRIES) nanosleep(&pause, NULL);
    }
    return core_fail_again(err, why.status, &why, "%s", why.message);
}

int store_lock_acquire(int dir_fd, const char *dir, const char *id, int take_over, store_lock **out,
                       dcp_error *err) {
    store_lock *lock = calloc(1, sizeof *lock);
    if (!lock) return core_fail_memory(err, sizeof *lock);
    *lock = (store_lock){.dir_fd = dir_fd, .dir = dir, .take_over = take_over};
    store_writer_describe(id, &lock->self);
    int status = core_fail_path(acquire(lock, err), dir, err);
    if (status != DCP_OK) {
        free(lock);
        return status;
    }
    lock->is_contested = lock->self.contested;
    *out = lock;
    return DCP_OK;
}

/* Returns the result that a lock request would have, without making one. This does not show whether
 * a granted lock excludes others; the file's text records what its writer found out about that. */
static grant look_at_lock(int fd, const store_writer *w) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_GETLK, &whole) != 0) return explain_failed_lock(errno);
    if (whole.l_type != F_UNLCK) return REFUSED;
    return w->lockless ? NO_LOCKS : GRANTED;
}

static int look_at_file(const store_lock *lock, int fd, dcp_error *err) {
    store_writer w = {.has_ended = false};
    if (read_writer(fd, &w) < 0)
        return core_fail_errno(err, "cannot read " LOCK_NAME " in", lock->dir);
    const grant g = look_at_lock(fd, &w);
    if (g == LOCK_ERROR) return core_fail_errno(err, "cannot lock " LOCK_NAME " in", lock->dir);
    if (is_free(g, &w, find_writer(lock, &w))) return DCP_OK;
    return fail_taken(lock, fd, &w, g, err);
}

int store_lock_check_free(int dir_fd, const char *dir, dcp_error *err) {
    store_lock looked_at = {.dir_fd = dir_fd, .dir = dir};
    store_writer_describe("", &looked_at.self);
    int fd = open_lock_file(dir_fd, O_RDONLY);
    if (fd < 0 && errno == ENOENT) return DCP_OK; /* no writer has used the directory yet */
    if (fd < 0) return core_fail_errno(err, "cannot read " LOCK_NAME " in", dir);
    const int status = core_fail_path(look_at_file(&looked_at, fd, err), dir, err);
    close(fd);
    return status;
}

/* Takes the store again after `.lock` was removed. Fails if another writer has taken the store
 * since. */
static int reacquire(store_lock *lock, dcp_error *err) {
    let_go(lock);
    return acquire(lock, err);
}

/* Fails because the path leads to another directory or to none, so files that ranks write under
 * that path would not be in the store's directory. */
static int fail_moved(const store_lock *lock, dcp_error *err) {
    store_writer now = {.has_ended = false};
    int fd = open(lock->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_taken = fd >= 0 && read_current(fd, &now) == 0 && now.id[0] &&
                    strcmp(now.id, lock->self.id) != 0 &&
                    store_writer_find(&now) != STORE_WRITER_GONE;
    if (fd >= 0) close(fd);
    if (is_taken)
        return core_fail(err, DCP_ERR_BUSY,
                         "%s was moved or replaced while it was open, and another writer, process "
                         "%ld on host %s, has opened the directory that is there now: end one of "
                         "the two writers, and open the store again where its directory is",
                         lock->dir, (long)now.process.pid, now.host);
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "%s was moved, removed or replaced while it was open: put its directory back, "
                     "or open the store anew",
                     lock->dir);
}

/* Checks that the store's path still leads to its directory. */
static int check_path(const store_lock *lock, dcp_error *err) {
    struct stat open_one, named;
    if (fstat(lock->dir_fd, &open_one) != 0)
        return core_fail_errno(err, "cannot look at", lock->dir);
    if (stat(lock->dir, &named) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? fail_moved(lock, err)
                   : core_fail_errno(err, "cannot look at", lock->dir);
    if (open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino) return DCP_OK;
    return fail_moved(lock, err);
}

static int check_writer(store_lock *lock, dcp_error *err) {
    store_writer now;
    int found = read_current(lock->dir_fd, &now);
    for (int i = 0; i < TRIES && found != 0 && errno == ESTALE; i++)
        found = read_current(lock->dir_fd, &now);
    if (found != 0 && errno == ENOENT) return reacquire(lock, err);
    if (found != 0) return core_fail_errno(err, "cannot read " LOCK_NAME " in", lock->dir);
    if (strcmp(now.id, lock->self.id) == 0) return DCP_OK;
    if (!now.host[0])
        return core_fail(err, DCP_ERR_BUSY,
                         "%s was taken over by another writer, which has not written its name yet",
                         lock->dir);
    return core_fail(err, DCP_ERR_BUSY,
                     "%s was taken over by another writer, process %ld on host %s%s: this "
                     "writer no longer writes there",
                     lock->dir, (long)now.process.pid, now.host,
                     now.has_ended ? ", which has ended since" : "");
}

int store_lock_check_name(store_lock *lock, dcp_error *err) {
    return core_fail_path(check_writer(lock, err), lock->dir, err);
}

int store_lock_check_opener(const char *dir, int64_t opener, dcp_error *err) {
    if (opener == getpid()) return DCP_OK;
    core_fail(err, DCP_ERR_STATE,
              "%s was opened by process %ld, from which this process was forked: each process must "
              "open its own stores",
              dir, (long)opener);
    return core_fail_path(DCP_ERR_STATE, dir, err);
}

static int check_all(store_lock *lock, dcp_error *err) {
    int status = store_lock_check_opener(lock->dir, lock->self.process.pid, err);
    if (!status) status = check_path(lock, err);
    return status ? status : check_writer(lock, err);
}

int store_lock_check(store_lock *lock, dcp_error *err) {
    return core_fail_path(check_all(lock, err), lock->dir, err);
}

bool store_lock_is_removed(const store_lock *lock) {
    struct stat open_one;
    return fstat(lock->dir_fd, &open_one) == 0 && open_one.st_nlink == 0;
}

int store_lock_check_location(const store_lock *lock, dcp_error *err) {
    return store_lock_is_removed(lock) ? DCP_OK
                                       : core_fail_path(check_path(lock, err), lock->dir, err);
}

bool store_lock_excludes(const store_lock *lock) { return lock->excludes; }

bool store_lock_is_contested(const store_lock *lock) { return lock->is_contested; }

void store_lock_release(store_lock *lock) {
    store_writer now;
    if (!lock) return;
    if (lock->file && lock->self.process.pid == getpid()) {
        lock->self.has_ended = true;
        if (read_current(lock->dir_fd, &now) == 0 && strcmp(now.id, lock->self.id) == 0)
            write_name(lock, lock->file->fd);
    }
    io_lock_file_close(lock->file);
    free(lock);
}
