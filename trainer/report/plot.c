/* Three panels over one axis of steps. Lines of another number of ranks begin at a grey mark. */
#include "report/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/svg.h"
#include "report/axis.h"
#include "report/series.h"

enum { LEFT = 90, WIDTH = 820, RIGHT = 30, TOP = 60, TALL = 190, GAP = 46, PANELS = 3 };
enum { FEW = 60 }; /* points that are dots as well */

typedef struct panel {
    const char *title;
    series_column column, also; /* `also`: SERIES_STEP for none */
    const char *names[2];
    int from_zero;
} panel;

static const panel panels[PANELS] = {
    {"loss", SERIES_LOSS, SERIES_EVAL_LOSS, {"training", "evaluation"}, 0},
    {"tokens a second (of images and vectors: samples)", SERIES_TOKENS_PER_S, SERIES_STEP, {0}, 1},
    {"seconds that a step waited for saves", SERIES_STALL, SERIES_STEP, {0}, 1},
};

typedef struct plot {
    svg *s;
    const series *data;
    axis steps;
    double *x, *y; /* [n] of a curve: values, then places */
    size_t *keep;  /* [n] */
} plot;

/* The points of a column that are there. */
static size_t points(plot *p, series_column column) {
    size_t n = 0;
    for (size_t i = 0; i < p->data->n; i++) {
        const double value = p->data->columns[column][i];
        if (!isfinite(value)) continue;
        p->x[n] = p->data->columns[SERIES_STEP][i];
        p->y[n++] = value;
    }
    return n;
}

static void extend(plot *p, series_column column, double *low, double *high) {
    const size_t n = points(p, column);
    for (size_t i = 0; i < n; i++) {
        *low = fmin(*low, p->y[i]);
        *high = fmax(*high, p->y[i]);
    }
}

static axis axis_of(plot *p, const panel *what, double top) {
    double low = INFINITY, high = -INFINITY;
    extend(p, what->column, &low, &high);
    if (what->also != SERIES_STEP) extend(p, what->also, &low, &high);
    if (what->from_zero) low = 0;
    if (what->from_zero && high <= 0) high = 1;
    axis a = axis_over(low, high, 5, 0);
    a.from = top + TALL;
    a.to = top;
    return a;
}

static void draw_curve(plot *p, const axis *a, series_column column, size_t color) {
    const size_t n = points(p, column), kept = axis_thin(&p->steps, p->x, p->y, n, WIDTH, p->keep);
    char hint[96];
    const int dots = kept <= FEW;
    for (size_t i = 0; i < kept; i++) { /* keep[i] >= i */
        const double step = p->x[p->keep[i]], value = p->y[p->keep[i]];
        p->x[i] = axis_place(&p->steps, step);
        p->y[i] = axis_place(a, value);
        snprintf(hint, sizeof hint, "step %.0f: %.6g", step, value);
        if (dots) svg_dot(p->s, p->x[i], p->y[i], 2.5, svg_color(color), hint);
    }
    if (kept > 1) svg_path(p->s, p->x, p->y, kept, svg_color(color));
}

static void draw_grid(plot *p, const axis *a, double top) {
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

/* Where the number of ranks changes; named in the first panel. */
static void draw_ranks(plot *p, double top, int is_named) {
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

static int has_any(plot *p, series_column column) {
    return column != SERIES_STEP && points(p, column) > 0;
}

static void draw_legend(plot *p, const panel *what, double top) {
    for (int i = 0; i < 2; i++) {
        const double x = LEFT + WIDTH - 190 + 95 * i;
        svg_rect(p->s, x, top - 18, 12, 12, svg_color((size_t)i), NULL);
        svg_text(p->s, x + 16, top - 8, 12, SVG_START, what->names[i]);
    }
}

static void draw_panel(plot *p, const panel *what, double top, int is_first) {
    const axis a = axis_of(p, what, top);
    svg_text(p->s, LEFT, top - 8, 13, SVG_START, what->title);
    draw_grid(p, &a, top);
    draw_ranks(p, top, is_first);
    draw_curve(p, &a, what->column, 0);
    if (!has_any(p, what->also)) return;
    draw_curve(p, &a, what->also, 1);
    draw_legend(p, what, top);
}

static int draw(plot *p, const char *metrics, const char *path) {
    const double height = TOP + PANELS * (TALL + GAP) + 10;
    const int code = svg_open(path, LEFT + WIDTH + RIGHT, height, metrics, &p->s);
    if (code) return code;
    svg_text(p->s, LEFT, 26, 16, SVG_START, metrics);
    for (int i = 0; i < PANELS; i++) draw_panel(p, &panels[i], TOP + i * (TALL + GAP), i == 0);
    svg_text(p->s, LEFT + WIDTH, height - 8, 12, SVG_END, "step");
    return svg_close(p->s);
}

static int draw_series(const series *data, const char *metrics, const char *path, dcp_error *err) {
    const double *steps = data->columns[SERIES_STEP];
    plot p = {.data = data, .steps = axis_over(steps[0], steps[data->n - 1], 10, 1)};
    if (p.steps.step < 1) p.steps.step = 1;
    p.steps.from = LEFT;
    p.steps.to = LEFT + WIDTH;
    p.x = malloc(data->n * sizeof *p.x);
    p.y = malloc(data->n * sizeof *p.y);
    p.keep = malloc(data->n * sizeof *p.keep);
    int code = ENOMEM;
    if (p.x && p.y && p.keep) code = draw(&p, metrics, path);
    free(p.keep);
    free(p.y);
    free(p.x);
    if (code == EEXIST)
        return core_fail(err, DCP_ERR_ARG,
                         "--plot: %s is there, and no drawing: it is not replaced", path);
    return code ? core_fail(err, DCP_ERR_IO, "--plot: cannot write %s: %s", path, strerror(code))
                : DCP_OK;
}

int plot_metrics(const char *metrics, const char *path, dcp_error *err) {
    series data;
    int status = series_read(metrics, &data, err);
    if (status == DCP_OK) status = draw_series(&data, metrics, path, err);
    series_free(&data);
    return status;
}
