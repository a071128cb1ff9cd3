#include "report/console.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/program.h"
#include "ranks/launcher.h"
#include "ranks/log.h"

enum { BAR = 20, LEAST_COLUMNS = 40, USUAL_COLUMNS = 80, PART_BYTES = 48 };
static const double draw_every_s = 0.1, print_every_s = 1;

void report_console_begin(report_console *c, uint64_t every, uint64_t max_steps, bool are_tokens,
                          int columns) {
    *c = (report_console){.every = every, .max_steps = max_steps, .are_tokens = are_tokens};
    c->columns = columns < REPORT_LINE_COLUMNS ? columns : REPORT_LINE_COLUMNS;
    if (c->columns < LEAST_COLUMNS) c->columns = 0;
}

/* A launcher may make a terminal of its own and give it to a rank as stdout, so isatty is used only
 * without a launcher. */
int report_console_columns(void) {
    struct winsize size;
    struct stat st;
    const int columns = ranks_launcher_columns();
    if (fstat(STDOUT_FILENO, &st) != 0 || S_ISREG(st.st_mode)) return 0;
    if (columns > 0 || ranks_launcher_is_present() || !isatty(STDOUT_FILENO)) return columns;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return is_known ? size.ws_col - 1 : USUAL_COLUMNS - 1; /* the last column would wrap */
}

/* Formats a duration, such as "3m20s". */
static void duration_text(double seconds, char *text, size_t size) {
    const uint64_t s = seconds < 1e15 ? (uint64_t)(seconds + 0.5) : 0;
    if (s < 60)
        snprintf(text, size, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(text, size, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, size, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(text, size, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}

/* The parts of a line, in their order. by_importance determines which of them are shown if not all
 * of them fit. */
enum { STEP, LOSS, NORM, RATE, SPEED, SECONDS, LEFT, UTILIZATION, MEMORY, SAVES, UNEVEN, PARTS };
static const int by_importance[PARTS] = {STEP, LOSS,        LEFT,   SPEED, SECONDS, NORM,
                                         RATE, UTILIZATION, MEMORY, SAVES, UNEVEN};

static void make_parts(const report_values *v, uint64_t max_steps, bool are_tokens, double left_s,
                       char parts[PARTS][PART_BYTES]) {
    char left[PART_BYTES - 8];
    /* the imbalance, and the time that saves take, are shown only above these thresholds */
    const double uneven = 1.1, waits = 0.05;
    memset(parts, 0, PARTS * sizeof *parts);
    snprintf(parts[STEP], PART_BYTES, "step %" PRIu64 "/%" PRIu64, v->step, max_steps);
    snprintf(parts[LOSS], PART_BYTES, "loss %.5f", v->loss);
    snprintf(parts[NORM], PART_BYTES, "norm %.3g", v->grad_norm);
    snprintf(parts[RATE], PART_BYTES, "lr %.3g", v->lr);
    snprintf(parts[SPEED], PART_BYTES, "%.0f %s/s", v->tokens_per_s,
             are_tokens ? "tok" : "samples");
    snprintf(parts[SECONDS], PART_BYTES, "%.3f s", v->step_s);
    duration_text(left_s, left, sizeof left);
    if (left_s >= 0) snprintf(parts[LEFT], PART_BYTES, "left %s", left);
    snprintf(parts[UTILIZATION], PART_BYTES, "mfu %.0f%%", 100 * report_metrics_utilization(v));
    snprintf(parts[MEMORY], PART_BYTES, "%.0f MiB",
             (double)(v->device_peak_bytes ? v->device_peak_bytes : v->mem_peak_bytes) / 1048576);
    if (v->save_stall_s > waits * v->step_s)
        snprintf(parts[SAVES], PART_BYTES, "saves %.3f s", v->save_stall_s);
    if (v->imbalance > uneven)
        snprintf(parts[UNEVEN], PART_BYTES, "imbalance %.2f (rank %d)", v->imbalance,
                 v->slowest_rank);
}

void report_console_line(const report_values *v, uint64_t max_steps, bool are_tokens, double left_s,
                         int columns, char *text) {
    char parts[PARTS][PART_BYTES];
    int room = columns + 2;
    bool is_shown[PARTS] = {0};
    make_parts(v, max_steps, are_tokens, left_s, parts);
    for (int i = 0; i < PARTS; i++) {
        const int part = by_importance[i], length = 2 + (int)strlen(parts[part]);
        is_shown[part] = *parts[part] && length <= room;
        if (is_shown[part]) room -= length;
    }
    char *end = text;
    *end = '\0';
    for (int i = 0; i < PARTS; i++)
        if (is_shown[i]) end = stpcpy(stpcpy(end, end == text ? "" : "  "), parts[i]);
}

static void add_step(report_console *c, const report_values *v) {
    const double trained_s = v->step_s - v->eval_s, weight = 0.1;
    c->steps++;
    c->seconds += v->step_s;
    c->trained_s += trained_s;
    c->tokens += v->tokens_per_s * trained_s;
    /* the first step is a warm-up, so the mean begins with the second */
    if (++c->seen <= 2)
        c->step_s = v->step_s;
    else
        c->step_s += weight * (v->step_s - c->step_s);
}

/* Makes the line for the steps since the last line. */
static void make_line(report_console *c, const report_values *v, int columns, char *text) {
    report_values mean = *v;
    const bool is_last = v->step >= c->max_steps;
    mean.step_s = c->seconds / (double)c->steps;
    if (c->trained_s > 0) mean.tokens_per_s = c->tokens / c->trained_s;
    report_console_line(&mean, c->max_steps, c->are_tokens,
                        is_last ? -1 : c->step_s * (double)(c->max_steps - v->step), columns, text);
    c->steps = 0;
    c->seconds = c->trained_s = c->tokens = 0;
}

static void draw_bar(report_console *c, const report_values *v) {
    char text[BAR + 4 + REPORT_LINE_COLUMNS];
    const double now = program_now_s();
    if (now - c->drawn_s < draw_every_s) return;
    const int full = (int)(BAR * v->step / c->max_steps);
    int n = snprintf(text, sizeof text, "[%.*s%*s] ", full, "####################", BAR - full, "");
    make_line(c, v, c->columns - n, text + n);
    ranks_bar_draw(text);
    c->drawn_s = now;
}

static void print_line(report_console *c, const report_values *v) {
    char text[REPORT_LINE_COLUMNS + 1];
    make_line(c, v, REPORT_LINE_COLUMNS, text);
    ranks_bar_clear();
    puts(text);
    c->drawn_s = program_now_s();
}

static void print_evaluation(const report_values *v) {
    ranks_bar_clear();
    printf("evaluation after step %" PRIu64 "  loss %.5f", v->step, v->eval_loss);
    if (v->eval_accuracy >= 0) printf("  accuracy %.2f%%", 100 * v->eval_accuracy);
    printf("  (%.3f s)\n", v->eval_s);
}

/* Returns -1 with errno if what was printed could not be written. */
static int flush_lines(void) {
    const bool failed = fflush(stdout) != 0 || ferror(stdout);
    clearerr(stdout);
    return failed ? -1 : 0;
}

int report_console_evaluation(const report_values *v) {
    print_evaluation(v);
    return flush_lines();
}

/* Returns true if the step gets a line. Not every step does: short steps would fill a log with more
 * lines than anybody reads. */
static bool is_due(const report_console *c, const report_values *v) {
    if (c->every > 0) return v->step % c->every == 0;
    return c->seen <= REPORT_FIRST_LINES || program_now_s() - c->drawn_s >= print_every_s;
}

int report_console_step(report_console *c, const report_values *v) {
    const bool is_last = v->step >= c->max_steps;
    add_step(c, v);
    if (is_last || (!c->columns && is_due(c, v)))
        print_line(c, v);
    else if (c->columns)
        draw_bar(c, v);
    if (v->evaluated) print_evaluation(v);
    if (v->is_proven) {
        ranks_bar_clear();
        printf("state id after step %" PRIu64 "  %016" PRIx64 "\n", v->step, v->state_id);
    }
    return flush_lines();
}
