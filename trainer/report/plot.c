/* A drawing has three panels over one axis of steps. If there are many steps, the loss is a faint
 * line behind its mean. A curve has a gap where its value is null. A grey line marks a change of
 * the number of ranks. */
#include "report/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/svg.h"

/* Maps values to positions on a drawing, with round numbers for ticks. */
typedef struct plot_axis {
    double low, high; /* round numbers, or the extreme values if the axis is tight */
    double step;      /* from tick to tick: 1, 2 or 5 times a power of ten */
    double from, to;  /* the positions of low and high on the drawing */
} plot_axis;

static double round_step(double least) {
    const double power = pow(10, floor(log10(least)));
    const double part = least / power;
    return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power;
}

/* Returns an axis over low ... high with about `ticks` ticks. tight: it ends exactly at `low` and
 * `high`. */
static plot_axis axis_over(double low, double high, int ticks, bool tight) {
    plot_axis a = {.low = low, .high = high};
    if (!(high > low)) { /* a single value is drawn in the middle */
        const double around = low != 0 ? fabs(low) / 2 : 0.5;
        a.low -= around;
        a.high += around;
    }
    a.step = round_step((a.high - a.low) / ticks);
    if (tight) return a;
    a.low = floor(a.low / a.step) * a.step;
    a.high = ceil(a.high / a.step) * a.step;
    return a;
}

static double axis_place(const plot_axis *a, double value) {
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

/* Returns the first tick. Further ticks follow in steps of a->step, up to a->high. */
static double axis_first_tick(const plot_axis *a) {
    return ceil(a->low / a->step - 1e-9) * a->step;
}

/* Formats a tick with the digits that distinguish it from its neighbours: "0.25", "20k", "1.5M". */
static void axis_label(const plot_axis *a, double tick, char *out, size_t size) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    double scale = 1;
    const double most = fmax(fabs(a->low), fabs(a->high));
    for (; unit < 4 && most >= 10000 * scale; unit++) scale *= 1000;
    const double decimals = ceil(-log10(a->step / scale) - 1e-9);
    const double value = fabs(tick) < a->step / 2 ? 0 : tick / scale; /* not "-0" */
    snprintf(out, size, "%.*f%s", decimals > 0 ? (int)decimals : 0, value,
             value != 0 ? units[unit] : "");
}

/* Selects which of n points to draw, in case there are too many to distinguish. Divides the axis
 * into `columns` columns, and keeps the lowest and the highest point of each, so no peak is lost.
 * Also keeps the very first and the very last point. x must ascend. keep[n] receives the indices of
 * the points to draw, in ascending order. Returns the number of these indices. */
static size_t axis_thin(const plot_axis *a, const double *x, const double *y, size_t n,
                        size_t columns, size_t *keep) {
    size_t kept = 0;
    const double width = (a->high - a->low) / (double)columns;
    for (size_t i = 0; i < n;) {
        size_t low = i, high = i, next = i;
        const double column = floor((x[i] - a->low) / width);
        for (; next < n && floor((x[next] - a->low) / width) == column; next++) {
            if (y[next] < y[low]) low = next;
            if (y[next] > y[high]) high = next;
        }
        const size_t candidates[] = {i, low < high ? low : high, low < high ? high : low, next - 1};
        for (int c = 0; c < 4; c++) { /* i and next - 1 only at the curve's ends */
            const bool is_edge = (c == 0 && i > 0) || (c == 3 && next < n);
            if (!is_edge && (!kept || keep[kept - 1] < candidates[c])) keep[kept++] = candidates[c];
        }
        i = next;
    }
    return kept;
}

/* A metrics file as columns. */
typedef enum series_column {
    SERIES_STEP,
    SERIES_LOSS,
    SERIES_TOKENS_PER_S,
    SERIES_STALL,
    SERIES_EVAL_LOSS, /* NAN for a step without an evaluation, and for null */
    SERIES_RANKS,
    SERIES_COLUMNS,
} series_column;

typedef struct plot_series {
    double *columns[SERIES_COLUMNS]; /* [n] each */
    size_t n, room;
} plot_series;

static const struct {
    const char *key;
    bool may_lack;
    double unit; /* the factor for its values; 0: none */
} series_keys[SERIES_COLUMNS] = {
    [SERIES_STEP] = {"step", false},
    [SERIES_LOSS] = {"loss", false},
    [SERIES_TOKENS_PER_S] = {"tokens_per_s", false},
    [SERIES_STALL] = {"save_stall_s", false, 1000}, /* milliseconds */
    [SERIES_EVAL_LOSS] = {"eval_loss", true},
    [SERIES_RANKS] = {"ranks", true},
};

static int series_make_room(plot_series *s) {
    if (s->n < s->room) return 0;
    const size_t room = s->room ? 2 * s->room : 1024;
    for (int c = 0; c < SERIES_COLUMNS; c++) {
        double *column = realloc(s->columns[c], room * sizeof *column);
        if (!column) return -1;
        s->columns[c] = column;
    }
    s->room = room;
    return 0;
}

/* Returns true if the object is a line of metrics. Adds it after the lines of earlier steps, and
 * drops lines of the same or later steps. */
static bool series_add_line(plot_series *s, const json_t *line) {
    double values[SERIES_COLUMNS];
    for (int c = 0; c < SERIES_COLUMNS; c++) {
        const json_t *value = json_object_get(line, series_keys[c].key);
        const bool is_nan = json_is_null(value) && c != SERIES_STEP;
        if (value ? !is_nan && !json_is_number(value) : !series_keys[c].may_lack) return false;
        values[c] = value && !is_nan ? json_number_value(value) : NAN;
        if (series_keys[c].unit > 0) values[c] *= series_keys[c].unit;
    }
    while (s->n && s->columns[SERIES_STEP][s->n - 1] >= values[SERIES_STEP]) s->n--;
    for (int c = 0; c < SERIES_COLUMNS; c++) s->columns[c][s->n] = values[c];
    s->n++;
    return true;
}

/* Replaces NaN and Infinity, which other writers use, by null. -Infinity is replaced before
 * Infinity, so that no minus remains. No key or string of a metrics line contains these words. The
 * caller frees the result; NULL if out of memory. */
static char *null_numbers(const char *text) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    char *mended = malloc(2 * strlen(text) + 1), *out = mended;
    while (mended && *text) {
        size_t n = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words && !n; i++)
            if (strncmp(text, words[i], strlen(words[i])) == 0) n = strlen(words[i]);
        if (n)
            out = stpcpy(out, "null");
        else
            *out++ = *text;
        text += n ? n : 1;
    }
    if (mended) *out = '\0';
    return mended;
}

/* Returns NULL if the text is not JSON. */
static json_t *parse_line(const char *text, size_t n) {
    json_t *line = json_loadb(text, n, 0, NULL);
    if (line) return line;
    char *mended = null_numbers(text);
    line = mended ? json_loads(mended, 0, NULL) : NULL;
    free(mended);
    return line;
}

static int read_lines(FILE *file, const char *path, plot_series *s, dcp_error *err) {
    char *text = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int status = DCP_OK;
    while (status == DCP_OK && (n = getline(&text, &room, file)) > 0) {
        number++;
        if (series_make_room(s) != 0) {
            status = core_fail_memory(err, s->room * sizeof(double));
            break;
        }
        json_t *line = parse_line(text, (size_t)n);
        if (!series_add_line(s, line) && text[n - 1] == '\n')
            status = core_fail(err, DCP_ERR_ARG,
                               "%s:%zu: not a line of a metrics file that dcp-train has written",
                               path, number);
        json_decref(line);
    }
    if (status == DCP_OK && ferror(file))
        status = core_fail(err, DCP_ERR_ARG, "%s: cannot read: %s", path, strerror(errno));
    free(text);
    return status;
}

/* Reads all lines, except the last one if a kill has cut it off. If a line's step is not larger
 * than the previous line's step, a run went back; the steps that it repeated replace the earlier
 * ones. DCP_ERR_ARG: there is no file, or it does not contain metrics. The caller frees *out with
 * series_free, even after a failure. */
static int series_read(const char *path, plot_series *out, dcp_error *err) {
    *out = (plot_series){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return core_fail(err, DCP_ERR_ARG, "%s: cannot read: %s; give the metrics.jsonl of a run",
                         path, strerror(errno));
    const int status = read_lines(file, path, out, err);
    fclose(file);
    if (status != DCP_OK || out->n) return status;
    return core_fail(err, DCP_ERR_ARG, "%s: contains no step yet; draw it after the first step",
                     path);
}

static void series_free(plot_series *s) {
    for (int c = 0; c < SERIES_COLUMNS; c++) free(s->columns[c]);
}

enum { LEFT = 90, WIDTH = 820, RIGHT = 30, TOP = 60, TALL = 190, GAP = 46, PANELS = 3 };
enum { FEW = 60 }; /* a curve of at most this many points also has dots */

typedef struct plot_panel {
    const char *title;
    series_column column, also; /* `also`: a second curve; SERIES_STEP: none */
    const char *names[2];
    bool from_zero, scatters;
    double least; /* an axis that begins at zero extends at least to here, to hide noise */
} plot_panel;

static const plot_panel panels[PANELS] = {
    {"loss", SERIES_LOSS, SERIES_EVAL_LOSS, {"training", "evaluation"}, false, true, 0},
    {"tokens per second (for images and vectors: samples)",
     SERIES_TOKENS_PER_S,
     SERIES_STEP,
     {0},
     true,
     false,
     1},
    {"milliseconds that a step waited for saves", SERIES_STALL, SERIES_STEP, {0}, true, false, 10},
};

typedef struct plot {
    svg *s;
    const plot_series *data;
    plot_axis steps;
    double *x, *y; /* [n]: the points of a curve, first as values, later as positions */
    size_t *keep;  /* [n] */
} plot;

/* Collects the next points of a column from line *at onwards, and advances *at. Stops at a null
 * value; but in columns that may lack values, such as evaluations, nulls are skipped. Returns the
 * number of points. */
static size_t take_run(plot *p, series_column column, size_t *at) {
    size_t n = 0;
    for (; *at < p->data->n; ++*at) {
        const double value = p->data->columns[column][*at];
        if (!isfinite(value) && n > 0 && !series_keys[column].may_lack) break;
        if (!isfinite(value)) continue;
        p->x[n] = p->data->columns[SERIES_STEP][*at];
        p->y[n++] = value;
    }
    return n;
}

static size_t count_points(const plot *p, series_column column) {
    size_t n = 0;
    for (size_t i = 0; i < p->data->n; i++) n += isfinite(p->data->columns[column][i]) != 0;
    return n;
}

static void extend(const plot *p, series_column column, double *low, double *high) {
    for (size_t i = 0; i < p->data->n; i++) {
        const double value = p->data->columns[column][i];
        if (!isfinite(value)) continue;
        *low = fmin(*low, value);
        *high = fmax(*high, value);
    }
}

static plot_axis axis_of(plot *p, const plot_panel *what, double top) {
    double low = INFINITY, high = -INFINITY;
    extend(p, what->column, &low, &high);
    if (what->also != SERIES_STEP) extend(p, what->also, &low, &high);
    if (low > high) low = high = 0; /* no numbers */
    if (what->from_zero) low = 0;
    if (what->from_zero) high = fmax(high, what->least);
    plot_axis a = axis_over(low, high, 5, false);
    a.from = top + TALL;
    a.to = top;
    return a;
}

/* How a curve is drawn: a line with dots if there are few points, a plain line, a faint line behind
 * another one, or the mean. */
typedef enum curve_style { DOTTED, PLAIN, FAINT, SMOOTH } curve_style;

enum { SMOOTHED = 50, LEAST_SMOOTHED = 10 }; /* a mean is over 1/50 of the points, at least 10 */

/* Replaces each value by a weighted mean of the values up to it. The weights decrease by a factor
 * of e per `over` points. */
static void smooth(double *y, size_t n, double over) {
    const double keep = exp(-1 / over);
    double sum = 0, weights = 0;
    for (size_t i = 0; i < n; i++) {
        sum = keep * sum + y[i];
        weights = keep * weights + 1;
        y[i] = sum / weights;
    }
}

static void draw_run(plot *p, const plot_axis *a, size_t n, size_t color, curve_style style) {
    const size_t kept = axis_thin(&p->steps, p->x, p->y, n, WIDTH, p->keep);
    char hint[96];
    for (size_t i = 0; i < kept; i++) { /* overwrites only used points, because keep[i] >= i */
        const double step = p->x[p->keep[i]], value = p->y[p->keep[i]];
        p->x[i] = axis_place(&p->steps, step);
        p->y[i] = axis_place(a, value);
        snprintf(hint, sizeof hint, "step %.0f: %.6g", step, value);
        if (style == DOTTED || kept == 1)
            svg_dot(p->s, p->x[i], p->y[i], style == DOTTED ? 2.5 : 1, svg_color(color), hint);
    }
    if (kept > 1 && style == FAINT)
        svg_path_faint(p->s, p->x, p->y, kept, svg_color(color));
    else if (kept > 1)
        svg_path(p->s, p->x, p->y, kept, svg_color(color));
}

static void draw_styled(plot *p, const plot_axis *a, series_column column, size_t color,
                        curve_style style) {
    const double over = fmax(LEAST_SMOOTHED, (double)p->data->n / SMOOTHED);
    size_t at = 0;
    for (size_t n; (n = take_run(p, column, &at)) > 0;) {
        if (style == SMOOTH) smooth(p->y, n, over);
        draw_run(p, a, n, color, style);
    }
}

/* Draws a curve. If it has many points, and its values scatter, draws them as a faint line behind
 * their mean. */
static void draw_curve(plot *p, const plot_axis *a, series_column column, size_t color,
                       bool scatters) {
    const bool is_long = count_points(p, column) > FEW;
    if (is_long && scatters) draw_styled(p, a, column, color, FAINT);
    draw_styled(p, a, column, color, !is_long ? DOTTED : scatters ? SMOOTH : PLAIN);
}

static void draw_grid(plot *p, const plot_axis *a, double top) {
    char text[32];
    for (double t = axis_first_tick(a); t <= a->high + a->step * 1e-6; t += a->step) {
        const double y = axis_place(a, t);
        svg_line(p->s, LEFT, y, LEFT + WIDTH, y, "#e4e4e4");
        axis_label(a, t, text, sizeof text);
        svg_text(p->s, LEFT - 8, y + 4, 11, SVG_END, text);
    }
    for (double t = axis_first_tick(&p->steps); t <= p->steps.high; t += p->steps.step) {
        const double x = axis_place(&p->steps, t);
        svg_line(p->s, x, top + TALL, x, top + TALL + 4, "#444444");
        axis_label(&p->steps, t, text, sizeof text);
        svg_text(p->s, x, top + TALL + 16, 11, SVG_MIDDLE, text);
    }
    svg_line(p->s, LEFT, top, LEFT, top + TALL, "#444444");
    svg_line(p->s, LEFT, top + TALL, LEFT + WIDTH, top + TALL, "#444444");
}

/* Marks where the number of ranks changes; the first panel names the number. */
static void draw_ranks(plot *p, double top, bool is_named) {
    const double *ranks = p->data->columns[SERIES_RANKS];
    char text[32];
    for (size_t i = 1; i < p->data->n; i++) {
        if (!isfinite(ranks[i]) || !isfinite(ranks[i - 1]) || ranks[i] == ranks[i - 1]) continue;
        const double x = axis_place(&p->steps, p->data->columns[SERIES_STEP][i]);
        svg_line(p->s, x, top, x, top + TALL, "#999999");
        snprintf(text, sizeof text, "%.0f %s", ranks[i], ranks[i] == 1 ? "rank" : "ranks");
        if (is_named) svg_text(p->s, x + 3, top + TALL - 5, 10, SVG_START, text);
    }
}

static bool has_any(const plot *p, series_column column) {
    return column != SERIES_STEP && count_points(p, column) > 0;
}

static void draw_names(plot *p, const plot_panel *what, double top) {
    for (int i = 0; i < 2; i++) {
        const double x = LEFT + WIDTH - 190 + 95 * i;
        svg_rect(p->s, x, top - 18, 12, 12, svg_color((size_t)i), NULL);
        svg_text(p->s, x + 16, top - 8, 12, SVG_START, what->names[i]);
    }
}

static void draw_panel(plot *p, const plot_panel *what, double top, bool is_first) {
    const plot_axis a = axis_of(p, what, top);
    svg_text(p->s, LEFT, top - 8, 13, SVG_START, what->title);
    draw_grid(p, &a, top);
    draw_ranks(p, top, is_first);
    draw_curve(p, &a, what->column, 0, what->scatters);
    if (!has_any(p, what->also)) return;
    draw_curve(p, &a, what->also, 1, false);
    draw_names(p, what, top);
}

static int draw_panels(plot *p, const char *metrics, const char *path) {
    const double height = TOP + PANELS * (TALL + GAP) + 10;
    const int code = svg_open(path, LEFT + WIDTH + RIGHT, height, metrics, &p->s);
    if (code) return code;
    svg_text(p->s, LEFT, 26, 16, SVG_START, metrics);
    for (int i = 0; i < PANELS; i++) draw_panel(p, &panels[i], TOP + i * (TALL + GAP), i == 0);
    svg_text(p->s, LEFT + WIDTH, height - 8, 12, SVG_END, "step");
    return svg_close(p->s);
}

static int draw_series(const plot_series *data, const char *metrics, const char *path,
                       dcp_error *err) {
    const double *steps = data->columns[SERIES_STEP];
    plot p = {.data = data, .steps = axis_over(steps[0], steps[data->n - 1], 10, true)};
    if (p.steps.step < 1) p.steps.step = 1;
    p.steps.from = LEFT;
    p.steps.to = LEFT + WIDTH;
    p.x = malloc(data->n * sizeof *p.x);
    p.y = malloc(data->n * sizeof *p.y);
    p.keep = malloc(data->n * sizeof *p.keep);
    int code = ENOMEM;
    if (p.x && p.y && p.keep) code = draw_panels(&p, metrics, path);
    free(p.keep);
    free(p.y);
    free(p.x);
    if (code == EEXIST)
        return core_fail(
            err, DCP_ERR_ARG,
            "--plot: %s exists and is not a drawing, so it is not replaced: name another file",
            path);
    return code ? core_fail(err, DCP_ERR_IO, "--plot: cannot write %s: %s", path, strerror(code))
                : DCP_OK;
}

int report_plot(const char *metrics, const char *path, dcp_error *err) {
    plot_series data;
    int status = series_read(metrics, &data, err);
    if (status == DCP_OK) status = draw_series(&data, metrics, path, err);
    series_free(&data);
    return status;
}
