/* The lock is a record lock, since the system names who holds one. It ends with the process,
 * however that ends. */
#include "report/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "programs/fail.h"
#include "ranks/say.h"

enum { RUN_BYTES = 17, LOCK_TRIES = 200, OPEN_TRIES = 100 };

int report_file_fail(const char *path, const char *what, dcp_error *err) {
    static const int wrong[] = {EACCES, EPERM,        EISDIR, ENOENT, ENOTDIR,
                                EROFS,  ENAMETOOLONG, ELOOP,  EINVAL, ENXIO};
    const int code = errno;
    int status = DCP_ERR_IO;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (code == wrong[i]) status = DCP_ERR_ARG;
    return core_fail(err, status, "metrics: %s %s: %s", what, path, strerror(code));
}

/* Goes by the first bytes. Zeros are accepted, since a crash of the machine may leave them. */
static int check_beginning(FILE *file, const char *path, dcp_error *err) {
    char first[sizeof REPORT_LINE_START] = "";
    rewind(file);
    const size_t n = fread(first, 1, sizeof REPORT_LINE_START - 1, file);
    if (ferror(file)) return report_file_fail(path, "cannot read", err);
    if (!n || !first[0] || memcmp(first, REPORT_LINE_START, n) == 0) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "metrics: %s is there, and no metrics file: it is not written over; name "
                     "another file, or move this one",
                     path);
}

int report_file_check(const char *path, dcp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return DCP_OK;
    FILE *file = fopen(path, "re");
    if (!file) return report_file_fail(path, "cannot read", err);
    const int status = check_beginning(file, path, err);
    fclose(file);
    return status;
}

/* What a file of metrics holds. */
typedef struct metrics_content {
    off_t all, kept;     /* bytes up to the end of its last line; of the last one up to a step */
    char run[RUN_BYTES]; /* of its last line; "" where that has none */
} metrics_content;

/* A whole line, of the step *step. */
static int is_line(const char *line, size_t n, uint64_t *step) {
    const size_t begin = sizeof REPORT_LINE_START - 1;
    char *end;
    if (n < begin + 3 || strlen(line) != n || strcmp(line + n - 2, "}\n") != 0 ||
        memcmp(line, REPORT_LINE_START, begin) != 0)
        return 0;
    *step = strtoull(line + begin, &end, 10);
    return end > line + begin;
}

static void take_run(const char *line, char run[RUN_BYTES]) {
    const char *found = strstr(line, REPORT_LINE_RUN);
    snprintf(run, RUN_BYTES, "%s", found ? found + sizeof REPORT_LINE_RUN - 1 : "");
    run[strspn(run, "0123456789abcdef")] = '\0';
}

/* What is no line, as a killed write leaves it, goes with the line before it only where another one
 * follows. */
static int read_content(FILE *file, const char *path, uint64_t step, metrics_content *out,
                        dcp_error *err) {
    char *line = NULL;
    size_t room = 0;
    off_t at = 0;
    uint64_t found;
    int is_later = 0;
    *out = (metrics_content){0};
    errno = 0;
    rewind(file);
    for (ssize_t n; (n = getline(&line, &room, file)) > 0;) {
        at += n;
        if (!is_line(line, (size_t)n, &found)) continue;
        is_later |= found > step;
        out->all = at;
        if (!is_later) out->kept = at;
        take_run(line, out->run);
    }
    free(line);
    return ferror(file) ? report_file_fail(path, "cannot read", err) : DCP_OK;
}

static int open_stream(const char *path, FILE **out, dcp_error *err) {
    struct stat st;
    const int is_special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    const int fd =
        open(path, (is_special ? O_WRONLY : O_RDWR | O_CREAT) | O_APPEND | O_CLOEXEC, 0666);
    *out = fd >= 0 ? fdopen(fd, is_special ? "a" : "a+") : NULL;
    if (*out) return DCP_OK;
    const int status = report_file_fail(path, "cannot open", err);
    if (fd >= 0) close(fd);
    return status;
}

static int fail_held(int fd, const char *path, dcp_error *err) {
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char who[64] = "another process";
    if (fcntl(fd, F_GETLK, &held) == 0 && held.l_type != F_UNLCK && held.l_pid > 0)
        snprintf(who, sizeof who, "process %d", (int)held.l_pid);
    return core_fail(err, DCP_ERR_BUSY,
                     "metrics: %s is written by %s; two runs would mix their lines: name another "
                     "file, or wait for its end",
                     path, who);
}

/* For a while: a run that was killed may take some time to go. Where there are no locks the names
 * of runs have to do. */
static int lock_stream(FILE *file, const char *path, dcp_error *err) {
    static const struct timespec pause = {.tv_nsec = 10000000};
    struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (fcntl(fileno(file), F_SETLK, &wanted) == 0) return DCP_OK;
        if (errno != EACCES && errno != EAGAIN) return DCP_OK;
        nanosleep(&pause, NULL);
    }
    return fail_held(fileno(file), path, err);
}

/* Whether the path still leads to the file. */
static int is_at(const char *path, FILE *file) {
    struct stat a, b;
    return stat(path, &a) == 0 && fstat(fileno(file), &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static int open_locked(const char *path, FILE **out, dcp_error *err) {
    for (int i = 0; i < OPEN_TRIES; i++) {
        int status = open_stream(path, out, err);
        if (status != DCP_OK) return status;
        status = lock_stream(*out, path, err);
        if (status == DCP_OK && is_at(path, *out)) return DCP_OK;
        fclose(*out);
        *out = NULL;
        if (status != DCP_OK) return status;
    }
    return core_fail(err, DCP_ERR_BUSY, "metrics: %s is replaced by others again and again", path);
}

static int name_aside(const char *path, int number, char *out, dcp_error *err) {
    const int n = snprintf(out, PATH_MAX, "%s.old.%d", path, number);
    errno = ENAMETOOLONG;
    return n > 0 && n < PATH_MAX ? DCP_OK : report_file_fail(path, "cannot rename", err);
}

/* Takes a name that is free by making an empty file, which the rename then replaces. */
static int move_aside(const char *path, dcp_error *err) {
    char old[PATH_MAX];
    int fd = -1;
    for (int number = 1; fd < 0; number++) {
        const int status = name_aside(path, number, old, err);
        if (status != DCP_OK) return status;
        fd = open(old, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return report_file_fail(old, "cannot make", err);
    }
    close(fd);
    if (rename(path, old) != 0) return report_file_fail(path, "cannot rename", err);
    ranks_say(0, "metrics: %s held lines of another run, which are in %s now", path, old);
    return DCP_OK;
}

/* Whether the lines up to the run's step are its history: its own, or those of the run that it
 * goes on from. */
static int is_history(const metrics_content *c, const report_file_run *run) {
    return c->kept > 0 && (strcmp(c->run, run->name) == 0 || strcmp(c->run, run->before) == 0);
}

static int copy_bytes(FILE *from, const char *path, off_t bytes, int to, dcp_error *err) {
    char piece[1 << 14];
    rewind(from);
    while (bytes > 0) {
        const size_t most = bytes < (off_t)sizeof piece ? (size_t)bytes : sizeof piece;
        const size_t n = fread(piece, 1, most, from);
        if (n == 0) return report_file_fail(path, "cannot read", err);
        if (write(to, piece, n) != (ssize_t)n) return report_file_fail(path, "cannot copy", err);
        bytes -= (off_t)n;
    }
    return DCP_OK;
}

/* Copies the history from the file that was moved as `number`; *found: it has one. */
static int copy_history(const char *path, int number, const report_file_run *run, int to,
                        int *found, dcp_error *err) {
    char old[PATH_MAX];
    metrics_content content;
    *found = 0;
    int status = name_aside(path, number, old, err);
    FILE *file = status == DCP_OK ? fopen(old, "re") : NULL;
    if (!file) return status;
    status = read_content(file, old, run->step, &content, err);
    *found = status == DCP_OK && is_history(&content, run);
    if (*found) status = copy_bytes(file, old, content.kept, to, err);
    if (*found && status == DCP_OK)
        ranks_say(0, "metrics: lines up to step %" PRIu64 " are copied from %s", run->step, old);
    fclose(file);
    return status;
}

/* From the newest file that has it. */
static int find_history(const char *path, const report_file_run *run, int to, dcp_error *err) {
    char old[PATH_MAX];
    int number = 0, found = 0, status;
    do status = name_aside(path, ++number, old, err);
    while (status == DCP_OK && access(old, F_OK) == 0);
    while (status == DCP_OK && --number > 0 && !found)
        status = copy_history(path, number, run, to, &found, err);
    return status;
}

/* Whether the lines are the run's, as far as can be known: older versions gave no names. */
static int are_own(const metrics_content *c, const report_file_run *run) {
    if (c->all == 0 || strcmp(c->run, run->name) == 0) return 1;
    return run->step > 0 && !*c->run && !*run->before && c->kept == c->all;
}

/* The file is open, and locked. *again: its lines were moved aside, and it is to be opened anew. */
static int take_over(const char *path, FILE *file, const report_file_run *run, off_t *kept,
                     int *again, dcp_error *err) {
    metrics_content content;
    int status = check_beginning(file, path, err);
    if (status == DCP_OK) status = read_content(file, path, run->step, &content, err);
    if (status != DCP_OK) return status;
    *again = !are_own(&content, run);
    if (*again) return move_aside(path, err);
    *kept = content.kept;
    if (content.kept > 0 || run->step == 0) return DCP_OK;
    if (ftruncate(fileno(file), 0) != 0) return report_file_fail(path, "cannot cut", err);
    *kept = -1;
    return find_history(path, run, fileno(file), err);
}

int report_file_open(const char *path, const report_file_run *run, FILE **out, off_t *kept,
                     dcp_error *err) {
    *kept = -1;
    for (int i = 0; i < OPEN_TRIES; i++) {
        struct stat st;
        int again = 0, status = open_locked(path, out, err);
        if (status != DCP_OK) return status;
        if (fstat(fileno(*out), &st) != 0 || !S_ISREG(st.st_mode)) return DCP_OK;
        status = take_over(path, *out, run, kept, &again, err);
        if (status == DCP_OK && !again) return DCP_OK;
        fclose(*out);
        *out = NULL;
        if (status != DCP_OK) return status;
    }
    return core_fail(err, DCP_ERR_BUSY, "metrics: %s is replaced by others again and again", path);
}
