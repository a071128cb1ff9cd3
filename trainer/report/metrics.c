/* Lines of the metrics file. Written with one write call each, so that a line that is incomplete
 * can only be the last one of a killed run. */
#include "report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/fail.h"

struct report_metrics {
    FILE *file;
    char *path;
    char run[17];
    off_t kept; /* bytes before the first line of this start; -1: nothing follows them */
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

/* A line of the file while it is made. */
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

/* JSON has no word for what is not finite but null. */
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

/* {"talker": 3.2, "predictor": 2.1}, where there are several. */
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

/* Takes back the last bytes, a part of a line, so that the next line does not go on with them. */
static void cut_end(int fd, ssize_t bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0 || ftruncate(fd, st.st_size - bytes) != 0) return; /* of a file alone */
}

/* What later starts wrote goes. */
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
    if (written >= 0) errno = ENOSPC; /* a short write to a file: the rest had no room */
    return report_file_fail(m->path, "cannot write", err);
}

/* The file's last line, of that step; 0: it is another one. *at: where it begins. */
static int read_last_line(int fd, uint64_t step, metrics_line *line, off_t *at) {
    char last[sizeof line->text], start[64];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    const off_t from = st.st_size > (off_t)sizeof last ? st.st_size - (off_t)sizeof last : 0;
    const ssize_t n = pread(fd, last, sizeof last, from);
    if (n < 2 || last[n - 1] != '\n') return 0;
    const char *before = memrchr(last, '\n', (size_t)n - 1), *begin = before ? before + 1 : last;
    line->n = (size_t)(last + n - begin);
    memcpy(line->text, begin, line->n);
    line->text[line->n] = '\0';
    *at = from + (begin - last);
    snprintf(start, sizeof start, REPORT_LINE_START "%" PRIu64 ",", step);
    return (before || from == 0) && strncmp(line->text, start, strlen(start)) == 0;
}

/* Over a line's bytes, of which only what follows the first ones changes, in one call. */
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
    const size_t room = 512; /* for what is added */
    char *end =
        read_last_line(fileno(m->file), v->step, &line, &at) ? strstr(line.text, run) : NULL;
    if (!end || strstr(line.text, "\"eval_loss\"") || line.n + room > sizeof line.text)
        return DCP_OK;
    line.n = (size_t)(end - line.text);
    append_evaluation(&line, v);
    append_member(&line, "%s%s\"}\n", run, m->run);
    return write_at(m, &line, at, err);
}
