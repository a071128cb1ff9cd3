#include "launcher/control/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 64,
    TRIES = 100,          /* of 20 ms each, for another process to set up its socket */
    POINTER_BYTES = 1024, /* in a file that names a socket */
    HOST_BYTES = 256
};

/* The contents of a file that names a socket, as described in socket.h. */
typedef struct pointer {
    char host[HOST_BYTES];
    long pid;
    char at[LAUNCHER_SOCKET_AT];
} pointer;

static launcher_listening explain(launcher_listening result, char *why, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static launcher_listening explain(launcher_listening result, char *why, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, LAUNCHER_SOCKET_WHY, fmt, args);
    va_end(args);
    return result;
}

static void pause_shortly(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

static void own_host(char host[HOST_BYTES]) {
    if (gethostname(host, HOST_BYTES) != 0) snprintf(host, HOST_BYTES, "localhost");
    host[HOST_BYTES - 1] = '\0';
}

static int set_address(struct sockaddr_un *address, const char *path) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path) return errno = ENAMETOOLONG, -1;
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

/* Returns true if a process is alive; a zombie is not. */
static bool is_alive(pid_t pid) {
    const int fd = pidfd_open(pid, 0);
    if (fd < 0) return errno != ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    const bool lives = poll(&ended, 1, 0) == 0;
    close(fd);
    return lives;
}

/* Finds the process at the other end; its pid is 0 if it is in another PID namespace. Fails if that
 * process is gone, even if a child of it has inherited the socket and holds it open. */
static int peer_of(int fd, struct ucred *peer) {
    socklen_t size = sizeof *peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size) != 0) return -1;
    if (peer->pid > 0 && !is_alive(peer->pid)) return errno = ECONNREFUSED, -1;
    return 0;
}

bool launcher_socket_is_of_owner(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* Connects to a socket at which a process listens. Returns the descriptor, or -1 with errno.
 * `flags` specify whether to wait if the listener's queue is full. */
static int connect_to(const char *at, int flags, struct ucred *peer) {
    struct sockaddr_un address;
    if (!*at) return errno = ECONNREFUSED, -1; /* the file does not name a socket yet */
    if (set_address(&address, at) != 0) return -1;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && peer_of(fd, peer) == 0)
        return fd;
    const int code = errno;
    close(fd);
    return errno = code, -1;
}

/* Returns true if a process still listens at the socket; stores the listener's pid in *pid if it is
 * known. */
static bool is_answered(const char *at, long *pid) {
    struct ucred peer = {0};
    const int fd = connect_to(at, SOCK_NONBLOCK, &peer);
    if (fd < 0) return errno == EAGAIN || errno == EACCES || errno == EPERM;
    close(fd);
    *pid = peer.pid;
    return true;
}

static launcher_listening explain_taken(const char *path, long pid, const char *host, char *why) {
    char process[32] = "another process";
    if (pid > 0) snprintf(process, sizeof process, "process %ld", pid);
    return explain(
        LAUNCHER_OCCUPIED, why,
        "%s on %s supervises this run already: query it with 'dcp-run ctl %.500s status'%s, or "
        "start this run with another --control and another checkpoint directory",
        process, host, path, pid > 0 ? "" : " there");
}

/* Returns true if sockets in the folder can be seen by this host alone. On shared file systems,
 * such as NFS, a supervisor on another host would look as if it were gone. */
static bool is_local(const char *folder) {
    static const long kinds[] = {
        0xef53 /* ext2, 3, 4 */, 0x58465342 /* xfs */,   0x9123683e /* btrfs */,
        0x01021994 /* tmpfs */,  0x858458f6 /* ramfs */, 0x794c7630 /* overlayfs */,
        0x2fc12fc1 /* zfs */,    0xf2f52010 /* f2fs */,
    };
    struct statfs fs;
    if (statfs(folder, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (((unsigned long)fs.f_type & 0xffffffff) == (unsigned long)kinds[i]) return true;
    return false;
}

/* Returns the folder of a path, which the caller frees. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Listens at a path that does not exist. Returns the descriptor, or -1 with errno. The socket is
 * restricted to this user from the beginning. */
static int listen_at(const char *at) {
    struct sockaddr_un address;
    if (set_address(&address, at) != 0) return -1;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (fchmod(fd, 0600) == 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0) {
        if (listen(fd, BACKLOG) == 0) return fd;
        unlink(at);
    }
    const int code = errno;
    close(fd);
    return errno = code, -1;
}

/* Locks a folder, so only one process at a time examines and replaces its contents. A process that
 * never releases the lock delays others only briefly, because they continue without it. */
static int lock_folder(const char *folder) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) break;
        pause_shortly();
    }
    return fd;
}

static int lock_file(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &whole);
}

static bool is_at(const char *path, int fd) {
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

static int parse_pointer(const char *text, size_t bytes, pointer *out) {
    json_t *json = json_loadb(text, bytes, 0, NULL);
    const char *host = json_string_value(json_object_get(json, "host"));
    const char *at = json_string_value(json_object_get(json, "socket"));
    const bool good = host && at && strlen(host) < sizeof out->host && strlen(at) < sizeof out->at;
    if (good) {
        snprintf(out->host, sizeof out->host, "%s", host);
        snprintf(out->at, sizeof out->at, "%s", at);
        out->pid = (long)json_integer_value(json_object_get(json, "pid"));
    }
    json_decref(json);
    return good ? 0 : -1;
}

/* Returns 1 if the file names a socket, 0 if it is empty, like a new file, and -1 if it has other
 * contents. */
static int read_pointer(int fd, pointer *out) {
    char text[POINTER_BYTES];
    *out = (pointer){0};
    const ssize_t n = pread(fd, text, sizeof text, 0);
    if (n <= 0) return (int)n;
    return parse_pointer(text, (size_t)n, out) == 0 ? 1 : -1;
}

static int write_pointer(int fd, const char *at) {
    char host[HOST_BYTES], text[POINTER_BYTES];
    own_host(host);
    json_t *json =
        json_pack("{s:s, s:I, s:s}", "host", host, "pid", (json_int_t)getpid(), "socket", at);
    const size_t n = json ? json_dumpb(json, text, sizeof text - 1, 0) : 0;
    json_decref(json);
    if (n == 0 || n >= sizeof text) return errno = EINVAL, -1;
    text[n] = '\n';
    if (pwrite(fd, text, n + 1, 0) != (ssize_t)n + 1) return -1;
    return ftruncate(fd, (off_t)n + 1);
}

static launcher_listening explain_errno(const char *path, char *why) {
    return explain(LAUNCHER_UNREACHABLE, why, "cannot make the control socket %.500s: %s", path,
                   strerror(errno));
}

static launcher_listening explain_foreign(const char *path, char *why) {
    return explain(LAUNCHER_OCCUPIED, why,
                   "%.500s exists, and is not a control socket: remove it, or name another path "
                   "with --control",
                   path);
}

/* Locks the file, or finds that no process owns it. Returns LAUNCHER_LISTENS if the file may be
 * replaced. */
static launcher_listening check_file(const char *path, int fd, pointer *found, char *why) {
    char host[HOST_BYTES];
    long pid = 0;
    own_host(host);
    const bool is_locked = lock_file(fd) != 0;
    const int code = errno;
    const int kind = read_pointer(fd, found);
    if (kind < 0) return explain_foreign(path, why);
    if (!is_locked) return LAUNCHER_LISTENS;
    if (code == EAGAIN || code == EACCES)
        return explain_taken(path, found->pid, *found->host ? found->host : "another host", why);
    /* the file system has no locks */
    if (kind == 0) return LAUNCHER_LISTENS;
    if (strcmp(found->host, host) != 0)
        return explain(LAUNCHER_OCCUPIED, why,
                       "process %ld on %s supervises this run, or was killed: this file system has "
                       "no locks, which would show whether it is alive; if the process is gone, "
                       "remove %.500s",
                       found->pid, found->host, path);
    if (is_answered(found->at, &pid)) return explain_taken(path, pid, host, why);
    return LAUNCHER_LISTENS;
}

static launcher_listening clear_path(const char *path, char *why) {
    char host[HOST_BYTES];
    long pid = 0;
    struct stat st;
    own_host(host);
    if (lstat(path, &st) != 0) return LAUNCHER_LISTENS;
    if (S_ISSOCK(st.st_mode)) {
        if (is_answered(path, &pid)) return explain_taken(path, pid, host, why);
    } else if (S_ISREG(st.st_mode)) {
        pointer found;
        const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return explain_errno(path, why);
        const launcher_listening result = check_file(path, fd, &found, why);
        close(fd);
        if (result != LAUNCHER_LISTENS) return result;
    } else {
        return explain_foreign(path, why);
    }
    return unlink(path) == 0 || errno == ENOENT ? LAUNCHER_LISTENS : explain_errno(path, why);
}

/* Records the identity of what was made at the path, so nothing else is removed at the end. */
static void remember(launcher_socket *s) {
    struct stat st;
    if (lstat(s->path, &st) != 0) return;
    s->device = st.st_dev;
    s->inode = st.st_ino;
}

/* Listens at a name beside the path, and then links the socket to the path. So a process that finds
 * the path always gets an answer. Only the holder of the folder's lock uses that name. Returns -1
 * with errno if that fails. */
static int listen_and_link(launcher_socket *s) {
    const int n = snprintf(s->at, sizeof s->at, "%s.new", s->path);
    if (n < 0 || (size_t)n >= sizeof s->at) return errno = ENAMETOOLONG, -1;
    unlink(s->at);
    s->fd = listen_at(s->at);
    if (s->fd < 0) return -1;
    const int failed = link(s->at, s->path), code = errno;
    unlink(s->at);
    return errno = code, failed;
}

/* Listens at the path itself. Returns true if no socket can be made there, so one must be made
 * elsewhere. Otherwise sets *result, and returns false. */
static bool listen_here(launcher_socket *s, launcher_listening *result, char *why) {
    *result = clear_path(s->path, why);
    if (*result != LAUNCHER_LISTENS) return false;
    if (listen_and_link(s) == 0) {
        remember(s);
        return false;
    }
    const int code = errno;
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    errno = code;
    if (code == ENAMETOOLONG || code == EOPNOTSUPP || code == EPERM || code == ENOSYS ||
        code == EINVAL)
        return true;
    *result = explain_errno(s->path, why);
    return false;
}

/* Listens at a socket with a unique name, in a folder of this host. */
static int listen_elsewhere(launcher_socket *s) {
    const char *folders[] = {getenv("XDG_RUNTIME_DIR"), "/tmp"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        unsigned long name = 0;
        if (!folders[i] || folders[i][0] != '/') continue;
        if (getrandom(&name, sizeof name, 0) < 0) continue;
        const int n = snprintf(s->at, sizeof s->at, "%s/dcp-run.%016lx.control", folders[i], name);
        if (n < 0 || (size_t)n >= sizeof s->at) continue;
        s->fd = listen_at(s->at);
        if (s->fd >= 0) return 0;
    }
    return -1;
}

/* Opens and locks the file at `path`. It remains at `path` until the holder of the lock removes
 * it. */
static launcher_listening take_file(launcher_socket *s, pointer *before, char *why) {
    for (int i = 0; i < TRIES; i++) {
        struct stat st;
        if (lstat(s->path, &st) == 0 && !S_ISREG(st.st_mode)) {
            const launcher_listening cleared = clear_path(s->path, why);
            if (cleared != LAUNCHER_LISTENS) return cleared;
        }
        const int fd = open(s->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0) return explain_errno(s->path, why);
        const launcher_listening result = check_file(s->path, fd, before, why);
        if (result == LAUNCHER_LISTENS && is_at(s->path, fd)) {
            s->file = fd;
            return result;
        }
        close(fd);
        if (result != LAUNCHER_LISTENS) return result;
    }
    errno = EBUSY;
    return explain_errno(s->path, why);
}

static void remove_left(const pointer *before) {
    char host[HOST_BYTES];
    long pid = 0;
    struct stat st;
    own_host(host);
    if (strcmp(before->host, host) == 0 && lstat(before->at, &st) == 0 && S_ISSOCK(st.st_mode) &&
        st.st_uid == geteuid() && !is_answered(before->at, &pid))
        unlink(before->at);
}

static launcher_listening listen_by_file(launcher_socket *s, char *why) {
    pointer before;
    const launcher_listening result = take_file(s, &before, why);
    if (result != LAUNCHER_LISTENS) return result;
    remember(s);
    remove_left(&before);
    if (listen_elsewhere(s) == 0 && write_pointer(s->file, s->at) == 0) return LAUNCHER_LISTENS;
    explain_errno(s->path, why);
    unlink(s->path);
    return LAUNCHER_UNREACHABLE;
}

launcher_listening launcher_socket_listen(launcher_socket *out, const char *path,
                                          char why[LAUNCHER_SOCKET_WHY]) {
    *out = (launcher_socket){.path = strdup(path), .fd = -1, .file = -1};
    char *folder = folder_of(path);
    if (!out->path || !folder) {
        free(folder);
        return explain_errno(path, why);
    }
    const int lock = lock_folder(folder);
    launcher_listening result = LAUNCHER_LISTENS;
    if (strlen(path) >= sizeof out->at || !is_local(folder) || listen_here(out, &result, why))
        result = listen_by_file(out, why);
    if (lock >= 0) close(lock);
    free(folder);
    if (result != LAUNCHER_LISTENS) launcher_socket_close_in_child(out);
    return result;
}

void launcher_socket_close(launcher_socket *socket) {
    struct stat st;
    if (socket->path && lstat(socket->path, &st) == 0 && st.st_dev == socket->device &&
        st.st_ino == socket->inode)
        unlink(socket->path);
    if (socket->file >= 0) unlink(socket->at);
    launcher_socket_close_in_child(socket);
}

void launcher_socket_close_in_child(launcher_socket *socket) {
    if (socket->fd >= 0) close(socket->fd);
    if (socket->file >= 0) close(socket->file);
    free(socket->path);
    *socket = (launcher_socket){.fd = -1, .file = -1};
}

/* Returns true if the path belongs to another user, and names that user in `why`. */
static bool is_others(const char *path, const struct stat *st, char *why) {
    if (st->st_uid == geteuid() || geteuid() == 0) return false;
    const struct passwd *user = getpwuid(st->st_uid);
    char number[24];
    snprintf(number, sizeof number, "%u", (unsigned)st->st_uid);
    explain(LAUNCHER_OCCUPIED, why, "%.500s belongs to user %s, who alone may use it", path,
            user ? user->pw_name : number);
    return true;
}

static int connect_by_file(const char *path, char *at, char *why) {
    char host[HOST_BYTES];
    pointer found = {0};
    own_host(host);
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int kind = fd < 0 ? -1 : read_pointer(fd, &found);
    if (fd >= 0) close(fd);
    if (kind < 0) return explain_foreign(path, why), -1;
    if (kind > 0 && strcmp(found.host, host) != 0)
        return explain(LAUNCHER_OCCUPIED, why,
                       "the supervisor is process %ld on %s: run 'dcp-run ctl' there", found.pid,
                       found.host),
               -1;
    snprintf(at, sizeof found.at, "%s", found.at);
    return 0;
}

/* Finds the socket of `path`. Returns -1 after filling in `why` if there is none. */
static int find_socket(const char *path, char *at, char *why) {
    struct stat st;
    if (lstat(path, &st) != 0)
        return explain(LAUNCHER_UNREACHABLE, why, "no dcp-run is at %.500s: %s", path,
                       strerror(errno)),
               -1;
    if (is_others(path, &st, why)) return -1;
    if (S_ISREG(st.st_mode)) return connect_by_file(path, at, why);
    if (!S_ISSOCK(st.st_mode)) return explain_foreign(path, why), -1;
    if (strlen(path) >= LAUNCHER_SOCKET_AT)
        return explain(LAUNCHER_UNREACHABLE, why, "%.500s: too long for a socket", path), -1;
    strcpy(at, path);
    return 0;
}

int launcher_socket_connect(const char *path, char why[LAUNCHER_SOCKET_WHY]) {
    struct stat st;
    struct ucred peer;
    char at[LAUNCHER_SOCKET_AT], *inside = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && asprintf(&inside, "%s/.control", path) < 0)
        inside = NULL;
    if (inside) path = inside;
    int fd = -1;
    if (find_socket(path, at, why) == 0 && (fd = connect_to(at, 0, &peer)) < 0)
        explain(LAUNCHER_UNREACHABLE, why, "no dcp-run is at %.500s any more: %s", path,
                strerror(errno));
    free(inside);
    return fd;
}
