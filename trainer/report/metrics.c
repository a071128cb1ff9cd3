/* The lock on the metrics file is a record lock, because the system can name the holder of such a
 * lock. The lock ends with the process, however the process ends. */
#include "report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/log.h"

enum { RUN_BYTES = 17, LOCK_TRIES = 200, OPEN_TRIES = 100 };

/* Reports a failed call on the file, by errno: DCP_ERR_ARG if another path would help, otherwise
 * DCP_ERR_IO. */
static int report_file_fail(const char *path, const char *what, dcp_error *err) {
    const int code = errno;
    return core_fail(err, program_output_is_wrong(code) ? DCP_ERR_ARG : DCP_ERR_IO,
                     "metrics: %s %s: %s", what, path, strerror(code));
}

/* Checks the first bytes. Zeros are accepted, because a crash of the machine may leave them. */
static int check_beginning(FILE *file, const char *path, dcp_error *err) {
    char first[sizeof REPORT_LINE_START] = "";
    rewind(file);
    const size_t n = fread(first, 1, sizeof REPORT_LINE_START - 1, file);
    if (ferror(file)) return report_file_fail(path, "cannot read", err);
    if (!n || !first[0] || memcmp(first, REPORT_LINE_START, n) == 0) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "metrics: %s exists and is not a metrics file, so it is not overwritten: "
                     "name another file, or move this one",
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

/* The content of a metrics file. */
typedef struct metrics_content {
    /* all: the number of bytes up to the end of the last whole line. kept: the number of bytes up
     * to the end of the last whole line before the first line whose step is later than the run's
     * step. */
    off_t all, kept;
    char run[RUN_BYTES]; /* the run that the last line names; "" if it names none */
} metrics_content;

/* Returns true for a whole line, and stores its step in *step. */
static bool is_line(const char *line, size_t n, uint64_t *step) {
    const size_t begin = sizeof REPORT_LINE_START - 1;
    char *end;
    if (n < begin + 3 || strlen(line) != n || strcmp(line + n - 2, "}\n") != 0 ||
        memcmp(line, REPORT_LINE_START, begin) != 0)
        return false;
    *step = strtoull(line + begin, &end, 10);
    return end > line + begin;
}

static void take_run(const char *line, char run[RUN_BYTES]) {
    const char *found = strstr(line, REPORT_LINE_RUN);
    snprintf(run, RUN_BYTES, "%s", found ? found + sizeof REPORT_LINE_RUN - 1 : "");
    run[strspn(run, "0123456789abcdef")] = '\0';
}

/* Reads the content of a file; lines of steps after `step` are not kept. A damaged line, which a
 * killed write may leave, is kept only if a whole line follows. */
static int read_content(FILE *file, const char *path, uint64_t step, metrics_content *out,
                        dcp_error *err) {
    char *line = NULL;
    size_t room = 0;
    off_t at = 0;
    uint64_t found;
    bool is_later = false;
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
    const bool is_special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
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
                     "file, or wait until that process has ended",
                     path, who);
}

/* Locks the file. Tries for a while, because a killed run may take some time to end. Succeeds if
 * the file system has no locks; then only the names in the lines keep runs apart. */
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

/* Returns true if the path still refers to the open file. */
static bool is_at(const char *path, FILE *file) {
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

/* Renames the file to FILE.old.1, or to the next free name. Reserves that name by making an empty
 * file, which the rename then replaces. */
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
    ranks_info(0, "metrics: %s held lines of another run, which are in %s now", path, old);
    return DCP_OK;
}

/* Returns true if the lines up to the run's step are its history: lines of the run itself, or of
 * the run that it continues. */
static bool is_history(const metrics_content *c, const report_file_run *run) {
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

/* Copies the history from FILE.old.`number`, a file that was moved aside. *found: whether that file
 * contains the history. */
static int copy_history(const char *path, int number, const report_file_run *run, int to,
                        bool *found, dcp_error *err) {
    char old[PATH_MAX];
    metrics_content content;
    *found = false;
    int status = name_aside(path, number, old, err);
    FILE *file = status == DCP_OK ? fopen(old, "re") : NULL;
    if (!file) return status;
    status = read_content(file, old, run->step, &content, err);
    *found = status == DCP_OK && is_history(&content, run);
    if (*found) status = copy_bytes(file, old, content.kept, to, err);
    if (*found && status == DCP_OK)
        ranks_info(0, "metrics: lines up to step %" PRIu64 " are copied from %s", run->step, old);
    fclose(file);
    return status;
}

/* Copies the history from the newest file that has it. */
static int find_history(const char *path, const report_file_run *run, int to, dcp_error *err) {
    char old[PATH_MAX];
    int number = 0, status;
    bool found = false;
    do status = name_aside(path, ++number, old, err);
    while (status == DCP_OK && access(old, F_OK) == 0);
    while (status == DCP_OK && --number > 0 && !found)
        status = copy_history(path, number, run, to, &found, err);
    return status;
}

/* Returns true if the lines are the run's, as far as can be known: older versions wrote no
 * names. */
static bool are_own(const metrics_content *c, const report_file_run *run) {
    if (c->all == 0 || strcmp(c->run, run->name) == 0) return true;
    return run->step > 0 && !*c->run && !*run->before && c->kept == c->all;
}

/* Prepares a file, which must be open and locked, for the lines of `run`. *again: the file was
 * moved aside, so `path` has to be opened again. *kept: see report_file_open. */
static int take_over(const char *path, FILE *file, const report_file_run *run, off_t *kept,
                     bool *again, dcp_error *err) {
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

/* Opens the file for adding lines with write(2), and makes it if it is missing. Locks the file
 * until it is closed. No other stream on the file may be closed in the meantime, because that would
 * end the lock.
 *
 * *kept: the number of bytes that remain when the first line is added; -1: all. The bytes after
 * them belong to later steps, or to a line that a kill interrupted. They remain until the first
 * line is added, because they are the newest information.
 *
 * If the file has lines of another run, it is moved aside. If one of the files that were moved
 * aside has this run's lines up to its step, the new file begins with a copy of them. Each of these
 * actions is reported.
 *
 * DCP_ERR_BUSY: another process writes the file; the message names the process. DCP_ERR_ARG: the
 * file is not a metrics file, or cannot be opened. DCP_ERR_IO: it cannot be read, and remains as it
 * is. */
static int report_file_open(const char *path, const report_file_run *run, FILE **out, off_t *kept,
                            dcp_error *err) {
    *kept = -1;
    for (int i = 0; i < OPEN_TRIES; i++) {
        struct stat st;
        bool again = false;
        int status = open_locked(path, out, err);
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

/* The lines of the metrics file. Each is written with one write call, so only the last line of a
 * killed run can be incomplete. */

struct report_metrics {
    FILE *file;
    char *path;
    char run[17];
    off_t kept; /* bytes to keep when a line is added; -1: all */
};

int report_metrics_open(const char *path, const report_file_run *run, report_metrics **out,
                        dcp_error *err) {
    report_metrics *m = calloc(1, sizeof *m);
    if (m) m->path = strdup(path);
    if (!m || !m->path) {
        free(m);
        return core_fail_memory(err, sizeof *m);
    }
    snprintf(m->run, sizeof m->run, "%s", run->name);
    const int status = report_file_open(path, run, &m->file, &m->kept, err);
    if (status == DCP_OK)
        *out = m;
    else
        report_metrics_close(m);
    return status;
}

void report_metrics_close(report_metrics *m) {
    if (!m) return;
    if (m->file) fclose(m->file);
    free(m->path);
    free(m);
}

double report_metrics_utilization(const report_values *v) { return v->mfu < 1 ? v->mfu : 1; }

/* A line that is being made. */
typedef struct metrics_line {
    char text[2048];
    size_t n;
} metrics_line;

static void append_member(metrics_line *line, const char *fmt, ...) DCP_PRINTF(2, 3);
static void append_member(metrics_line *line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    line->n += (size_t)vsnprintf(line->text + line->n, sizeof line->text - line->n, fmt, args);
    va_end(args);
}

/* Writes null for a value that is not finite, because JSON has no such numbers. */
static void append_value(metrics_line *line, int digits, double value) {
    if (isfinite(value))
        append_member(line, "%.*g", digits, value);
    else
        append_member(line, "null");
}

static void append_number(metrics_line *line, const char *key, int digits, double value) {
    append_member(line, ", \"%s\": ", key);
    append_value(line, digits, value);
}

static void append_count(metrics_line *line, const char *key, uint64_t value) {
    append_member(line, ", \"%s\": %" PRIu64, key, value);
}

/* If there are several losses, appends them as {"talker": 3.2, "predictor": 2.1}. */
static void append_losses(metrics_line *line, const char *key, const report_values *v,
                          const double *losses) {
    if (v->n_losses < 2) return;
    append_member(line, ", \"%s\": {", key);
    for (size_t i = 0; i < v->n_losses; i++) {
        append_member(line, i ? ", \"%s\": " : "\"%s\": ", v->loss_names[i]);
        append_value(line, 9, losses[i]);
    }
    append_member(line, "}");
}

static void append_evaluation(metrics_line *line, const report_values *v) {
    append_number(line, "eval_loss", 9, v->eval_loss);
    append_losses(line, "eval_losses", v, v->eval_losses);
    append_number(line, "eval_s", 6, v->eval_s);
    if (v->eval_accuracy >= 0) append_number(line, "eval_accuracy", 6, v->eval_accuracy);
}

static void make_line(metrics_line *line, const report_values *v, const char *run) {
    append_member(line, REPORT_LINE_START "%" PRIu64, v->step);
    append_number(line, "loss", 9, v->loss);
    append_losses(line, "losses", v, v->losses);
    append_number(line, "grad_norm", 9, v->grad_norm);
    append_number(line, "lr", 9, v->lr);
    append_count(line, "tokens", v->tokens);
    append_number(line, "tokens_per_s", 6, v->tokens_per_s);
    append_number(line, "mfu", 4, report_metrics_utilization(v));
    append_number(line, "step_s", 6, v->step_s);
    append_number(line, "forward_s", 6, v->forward_s);
    append_number(line, "backward_s", 6, v->backward_s);
    append_number(line, "comm_s", 6, v->comm_s);
    append_number(line, "gather_wait_s", 6, v->gather_wait_s);
    append_number(line, "optimizer_s", 6, v->optimizer_s);
    append_number(line, "data_s", 6, v->data_s);
    append_number(line, "save_stall_s", 6, v->save_stall_s);
    append_count(line, "mem_peak_bytes", v->mem_peak_bytes);
    if (v->device_peak_bytes > 0) append_count(line, "device_peak_bytes", v->device_peak_bytes);
    append_count(line, "partial_sums_bytes", v->partial_sums_bytes);
    append_count(line, "state_bytes", v->state_bytes);
    append_count(line, "sent_bytes", v->sent_bytes);
    append_count(line, "sent_across_bytes", v->sent_across_bytes);
    append_number(line, "imbalance", 4, v->imbalance);
    append_count(line, "slowest_rank", (uint64_t)v->slowest_rank);
    append_count(line, "ranks", (uint64_t)v->ranks);
    if (v->skipped) append_count(line, "skipped_batches", v->skipped);
    if (v->evaluated) append_evaluation(line, v);
    if (v->is_proven) append_member(line, ", \"state_id\": \"%016" PRIx64 "\"", v->state_id);
    append_member(line, ", " REPORT_LINE_RUN "%s\"}\n", run);
}

/* Removes the last `bytes` bytes, which are a part of a line, so that the next line does not
 * continue it. */
static void cut_end(int fd, ssize_t bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0 || ftruncate(fd, st.st_size - bytes) != 0) return; /* not a file */
}

/* Removes the lines after m->kept, which an earlier start wrote for later steps. */
static int cut_later(report_metrics *m, dcp_error *err) {
    if (m->kept >= 0 && ftruncate(fileno(m->file), m->kept) != 0)
        return report_file_fail(m->path, "cannot cut", err);
    m->kept = -1;
    return DCP_OK;
}

int report_metrics_write(report_metrics *m, const report_values *v, dcp_error *err) {
    metrics_line line = {.n = 0};
    const int status = cut_later(m, err);
    if (status != DCP_OK) return status;
    make_line(&line, v, m->run);
    const ssize_t written = write(fileno(m->file), line.text, line.n);
    if (written == (ssize_t)line.n) return DCP_OK;
    if (written > 0) cut_end(fileno(m->file), written);
    if (written >= 0) errno = ENOSPC; /* a short write to a file: no room for the rest */
    return report_file_fail(m->path, "cannot write", err);
}

/* Reads the file's last line. Returns true if it is the line of `step`. *at: the offset at which it
 * begins. */
static bool read_last_line(int fd, uint64_t step, metrics_line *line, off_t *at) {
    char last[sizeof line->text], start[64];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    const off_t from = st.st_size > (off_t)sizeof last ? st.st_size - (off_t)sizeof last : 0;
    const ssize_t n = pread(fd, last, sizeof last, from);
    if (n < 2 || last[n - 1] != '\n') return false;
    const char *before = memrchr(last, '\n', (size_t)n - 1), *begin = before ? before + 1 : last;
    line->n = (size_t)(last + n - begin);
    memcpy(line->text, begin, line->n);
    line->text[line->n] = '\0';
    *at = from + (begin - last);
    snprintf(start, sizeof start, REPORT_LINE_START "%" PRIu64 ",", step);
    return (before || from == 0) && strncmp(line->text, start, strlen(start)) == 0;
}

/* Overwrites the line at offset `at` in one call. `line` must begin like the old line, which it
 * extends. */
static int write_at(report_metrics *m, const metrics_line *line, off_t at, dcp_error *err) {
    const int fd = fileno(m->file), flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_APPEND) != 0)
        return report_file_fail(m->path, "cannot write", err);
    const ssize_t written = pwrite(fd, line->text, line->n, at);
    if (written >= 0) errno = ENOSPC;
    const int status =
        written == (ssize_t)line->n ? DCP_OK : report_file_fail(m->path, "cannot write", err);
    if (fcntl(fd, F_SETFL, flags) != 0 && status == DCP_OK)
        return report_file_fail(m->path, "cannot write", err);
    return status;
}

int report_metrics_add_evaluation(report_metrics *m, const report_values *v, dcp_error *err) {
    static const char run[] = ", " REPORT_LINE_RUN;
    metrics_line line;
    off_t at;
    const int status = cut_later(m, err);
    if (status != DCP_OK) return status;
    const size_t room = 512; /* for the members that are added */
    char *end =
        read_last_line(fileno(m->file), v->step, &line, &at) ? strstr(line.text, run) : NULL;
    if (!end || strstr(line.text, "\"eval_loss\"") || line.n + room > sizeof line.text)
        return DCP_OK;
    line.n = (size_t)(end - line.text);
    append_evaluation(&line, v);
    append_member(&line, "%s%s\"}\n", run, m->run);
    return write_at(m, &line, at, err);
}
