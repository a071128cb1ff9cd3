/* The plan of a reshard as a drawing.
 *
 * Few ranks: old ones stand left, new ones right, as high as they have bytes, and a band as thick
 * as its bytes goes from each to each. Many: a matrix, old ranks downwards, new ones to the right;
 * a cell is as dark as the bytes that go from some old ranks to some new ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "programs/program.h"
#include "programs/svg.h"
#include "reshard/flows.h"

enum {
    MOST_BARS = 64, /* ranks a side, to be told apart */
    MOST_CELLS = 128,
    HINT = 160,
};

static const char *head(const flows *f, char *text) {
    char bytes[32], moved[32];
    snprintf(text, HINT, "%d to %d ranks: %s, of which %s change ranks", f->old, f->new,
             program_bytes_text(f->total.written, bytes),
             program_bytes_text(f->total.moved, moved));
    return text;
}

typedef struct bars {
    double top[MOST_BARS];  /* of a rank's bar */
    double next[MOST_BARS]; /* where its next band goes */
} bars;

typedef struct sankey {
    const flows *f;
    svg *s;
    double left, right, scale; /* inner edges of the bars; pixels a byte */
} sankey;

enum { BAR = 18, GAP = 10, TOP = 64 };

static double bar_height(const sankey *k, uint64_t bytes) {
    double height = k->scale * (double)bytes;
    return height < 1 ? 1 : height;
}

static void draw_bars(const sankey *k, int is_old, double height, bars *b) {
    char text[HINT], bytes[32];
    int n = is_old ? k->f->old : k->f->new;
    double used = (n - 1) * GAP, x = is_old ? k->left - BAR : k->right, at = TOP;
    for (int r = 0; r < n; r++)
        used += bar_height(k, is_old ? k->f->ranks[r].read : k->f->ranks[r].written);
    at += (height - used) / 2;
    for (int r = 0; r < n; r++) {
        uint64_t has = is_old ? k->f->ranks[r].read : k->f->ranks[r].written;
        double tall = bar_height(k, has);
        b->top[r] = b->next[r] = at;
        snprintf(text, sizeof text, "%s rank %d: %s", is_old ? "old" : "new", r,
                 program_bytes_text(has, bytes));
        svg_rect(k->s, x, at, BAR, tall, is_old ? svg_color((size_t)r) : "#555555", text);
        snprintf(text, sizeof text, "%d: %s", r, program_bytes_text(has, bytes));
        svg_text(k->s, is_old ? x - 8 : x + BAR + 8, at + tall / 2 + 4, 12,
                 is_old ? SVG_END : SVG_START, text);
        at += tall + GAP;
    }
}

static void draw_bands(const sankey *k, bars *old, bars *new) {
    char text[HINT], bytes[32];
    for (size_t i = 0; i < k->f->n; i++) {
        const flow *one = &k->f->list[i];
        double thick = k->scale * (double)one->bytes;
        snprintf(text, sizeof text, "%d to %d: %s", one->from, one->to,
                 program_bytes_text(one->bytes, bytes));
        svg_band(k->s, k->left, old->next[one->from], k->right, new->next[one->to], thick,
                 svg_color((size_t)one->from), text);
        old->next[one->from] += thick;
        new->next[one->to] += thick;
    }
}

static int draw_sankey(const flows *f, const char *path) {
    int most = f->old > f->new ? f->old : f->new;
    double height = most * 44 < 320 ? 320 : most * 44, width = 900;
    bars old, new;
    char text[HINT];
    sankey k = {.f = f, .left = 150, .right = width - 150};
    if (f->total.written) k.scale = (height - (most - 1) * GAP) / (double)f->total.written;
    int code =
        svg_open(path, width, height + TOP + 24, "dcp-reshard: who gives what to whom", &k.s);
    if (code) return code;
    svg_text(k.s, width / 2, 26, 16, SVG_MIDDLE, head(f, text));
    svg_text(k.s, k.left, 50, 13, SVG_END, "old ranks");
    svg_text(k.s, k.right, 50, 13, SVG_START, "new ranks");
    draw_bars(&k, 1, height, &old);
    draw_bars(&k, 0, height, &new);
    draw_bands(&k, &old, &new);
    return svg_close(k.s);
}

/* Ranks of one side of the matrix: `each` of them a cell, the last cell perhaps fewer. */
typedef struct axis {
    int ranks, each, cells;
} axis;

static axis make_axis(int ranks) {
    int each = (ranks + MOST_CELLS - 1) / MOST_CELLS;
    return (axis){ranks, each, (ranks + each - 1) / each};
}

/* "512-515" or "7". */
static const char *cell_name(const axis *a, int cell, char *text) {
    int first = cell * a->each, last = first + a->each - 1;
    if (last >= a->ranks) last = a->ranks - 1;
    if (first == last)
        snprintf(text, 32, "%d", first);
    else
        snprintf(text, 32, "%d-%d", first, last);
    return text;
}

typedef struct matrix {
    svg *s;
    axis old, new;
    double x, y, cell; /* upper left corner; pixels a cell */
    uint64_t *bytes, most;
} matrix;

static void draw_cells(const matrix *m) {
    char text[HINT], old[32], new[32], bytes[32], color[SVG_COLOR];
    for (int r = 0; r < m->old.cells; r++)
        for (int c = 0; c < m->new.cells; c++) {
            uint64_t has = m->bytes[r * m->new.cells + c];
            if (!has) continue;
            snprintf(text, sizeof text, "old %s to new %s: %s", cell_name(&m->old, r, old),
                     cell_name(&m->new, c, new), program_bytes_text(has, bytes));
            svg_heat((double)has / (double)m->most, color);
            svg_rect(m->s, m->x + c * m->cell, m->y + r * m->cell, m->cell, m->cell, color, text);
        }
}

static void draw_frame(const matrix *m) {
    double width = m->new.cells * m->cell, height = m->old.cells * m->cell;
    double x = m->x + width, y = m->y + height;
    svg_line(m->s, m->x, m->y, x, m->y, "#888888");
    svg_line(m->s, m->x, y, x, y, "#888888");
    svg_line(m->s, m->x, m->y, m->x, y, "#888888");
    svg_line(m->s, x, m->y, x, y, "#888888");
    svg_text(m->s, m->x + width / 2, m->y - 34, 13, SVG_MIDDLE, "new ranks");
    svg_text_upwards(m->s, m->x - 52, m->y + height / 2, 13, SVG_MIDDLE, "old ranks");
}

/* A number at some eight cells of an axis, and at its end. */
static void draw_ticks(const matrix *m, const axis *a, int is_old) {
    char text[32];
    int step = (a->cells + 7) / 8;
    for (int i = 0; i < a->cells; i += step) {
        double at = (i + 0.5) * m->cell;
        snprintf(text, sizeof text, "%d", i * a->each);
        if (is_old) {
            svg_text(m->s, m->x - 8, m->y + at + 4, 11, SVG_END, text);
            svg_line(m->s, m->x - 5, m->y + at, m->x, m->y + at, "#888888");
        } else {
            svg_text(m->s, m->x + at, m->y - 10, 11, SVG_MIDDLE, text);
            svg_line(m->s, m->x + at, m->y - 5, m->x + at, m->y, "#888888");
        }
    }
}

static void draw_legend(const matrix *m, double y) {
    char text[HINT], color[SVG_COLOR], bytes[32];
    enum { STEPS = 20, WIDTH = 10 };
    svg_text(m->s, m->x, y + 12, 12, SVG_START, "0");
    for (int i = 0; i < STEPS; i++) {
        svg_heat((i + 0.5) / STEPS, color);
        svg_rect(m->s, m->x + 16 + i * WIDTH, y, WIDTH, 14, color, NULL);
    }
    snprintf(text, sizeof text, "%s a cell; a cell is %d old by %d new rank%s",
             program_bytes_text(m->most, bytes), m->old.each, m->new.each,
             m->new.each == 1 ? "" : "s");
    svg_text(m->s, m->x + 24 + STEPS * WIDTH, y + 12, 12, SVG_START, text);
}

static int draw_matrix(const flows *f, const char *path) {
    matrix m = {.old = make_axis(f->old), .new = make_axis(f->new), .x = 90, .y = 110};
    int most = m.old.cells > m.new.cells ? m.old.cells : m.new.cells;
    char text[HINT];
    m.cell = 768.0 / most;
    m.bytes = calloc((size_t)m.old.cells * (size_t)m.new.cells, sizeof *m.bytes);
    if (!m.bytes) return ENOMEM;
    for (size_t i = 0; i < f->n; i++) {
        uint64_t *cell =
            &m.bytes[f->list[i].from / m.old.each * m.new.cells + f->list[i].to / m.new.each];
        *cell += f->list[i].bytes;
        if (*cell > m.most) m.most = *cell;
    }
    double width = m.new.cells *m.cell, bottom = m.y + m.old.cells *m.cell;
    if (width < 480) width = 480; /* the texts' */
    int code =
        svg_open(path, m.x + width + 40, bottom + 60, "dcp-reshard: who gives what to whom", &m.s);
    if (!code) {
        svg_text(m.s, m.x, 36, 16, SVG_START, head(f, text));
        draw_cells(&m);
        draw_frame(&m);
        draw_ticks(&m, &m.old, 1);
        draw_ticks(&m, &m.new, 0);
        draw_legend(&m, bottom + 24);
        code = svg_close(m.s);
    }
    free(m.bytes);
    return code;
}

int flows_draw(const flows *f, const char *path) {
    int few = f->old <= MOST_BARS && f->new <= MOST_BARS;
    return few ? draw_sankey(f, path) : draw_matrix(f, path);
}
