/* Above, a bar of bytes for each rank, in the kinds' colours. Below, a row for each group of
 * tensors and a column for each rank, the darker the more of the group it holds, compared with the
 * rank that holds most. Ranks that hold the same are drawn as one, so a thousand ranks take little
 * more than eight, and numbers are written where there is room. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "inspect/holders.h"
#include "programs/program.h"
#include "programs/svg.h"

enum { LEFT = 250, PLOT = 1000, RIGHT = 90, TOP = 64, BARS = 170, GAP = 54, ROW = 20, FOOT = 64 };

typedef struct drawing {
    svg *svg;
    const holders *h;
    double column; /* width of a rank */
    double matrix; /* y of the first row */
} drawing;

static double x_of(const drawing *d, int rank) { return LEFT + d->column * rank; }

static const char *ranks_text(int first, int last, char *text, size_t size) {
    if (first == last)
        snprintf(text, size, "rank %d", first);
    else
        snprintf(text, size, "ranks %d to %d", first, last);
    return text;
}

static uint64_t most_bytes(const holders *h) {
    uint64_t most = 1;
    for (int r = 0; r < h->world; r++)
        if (h->bytes[r] > most) most = h->bytes[r];
    return most;
}

/* Ranks [first, last], which hold the same, as one bar of all kinds. */
static void draw_bar(const drawing *d, int first, int last, uint64_t most) {
    const holders *h = d->h;
    double y = TOP + BARS, width = x_of(d, last + 1) - x_of(d, first);
    char ranks[48], bytes[32], hint[160];
    double gap = d->column > 6 ? 2 : 0;
    for (size_t g = 0, end; g < h->n; g = end) {
        uint64_t held = 0;
        for (end = g; end < h->n && h->groups[end].kind == h->groups[g].kind; end++)
            held += h->groups[end].held[first];
        double height = BARS * (double)held / (double)most;
        snprintf(hint, sizeof hint, "%s: %s%s", ranks_text(first, last, ranks, sizeof ranks),
                 program_bytes_text(held, bytes), first == last ? "" : " each");
        y -= height;
        for (int r = first; r <= last && gap > 0; r++)
            svg_rect(d->svg, x_of(d, r) + gap / 2, y, d->column - gap, height,
                     svg_color(h->groups[g].kind), hint);
        if (gap <= 0)
            svg_rect(d->svg, x_of(d, first), y, width, height, svg_color(h->groups[g].kind), hint);
    }
}

static void draw_bars(const drawing *d) {
    uint64_t most = most_bytes(d->h);
    char text[32];
    svg_text(d->svg, LEFT - 8, TOP + 10, 12, SVG_END, program_bytes_text(most, text));
    svg_text(d->svg, LEFT - 8, TOP + BARS, 12, SVG_END, "0");
    svg_line(d->svg, LEFT, TOP, LEFT + PLOT, TOP, "#cccccc");
    for (int first = 0, last; first < d->h->world; first = last + 1) {
        last = holders_run(d->h, first);
        draw_bar(d, first, last, most);
    }
    svg_line(d->svg, LEFT, TOP + BARS, LEFT + PLOT, TOP + BARS, "#444444");
    for (int r = 0; r < d->h->world && d->column >= 60; r++)
        svg_text(d->svg, x_of(d, r) + d->column / 2, TOP - 6, 11, SVG_MIDDLE,
                 program_bytes_text(d->h->bytes[r], text));
}

/* At most sixteen, at round numbers. */
static void draw_ranks(const drawing *d, double y) {
    int step = 1;
    char text[32];
    while (d->h->world / step > 16) step *= 2;
    for (int r = 0; r < d->h->world; r += step) {
        snprintf(text, sizeof text, "%d", r);
        svg_text(d->svg, x_of(d, r) + d->column / 2, y, 11, SVG_MIDDLE, text);
    }
}

static void draw_legend(const drawing *d) {
    double x = LEFT, y = TOP + BARS + 36;
    for (size_t g = 0; g < d->h->n; g++) {
        const holders_group *group = &d->h->groups[g];
        char name[64];
        if (g && group->kind == group[-1].kind) continue;
        int is_model = strncmp(group->first, "/model/", 7) == 0;
        snprintf(name, sizeof name, "%s", is_model ? "model" : group->name);
        if (x > LEFT + PLOT - 80) break;
        svg_rect(d->svg, x, y - 10, 12, 12, svg_color(group->kind), NULL);
        svg_text(d->svg, x + 17, y, 12, SVG_START, name);
        x += 40 + 7.5 * (double)strlen(name);
    }
}

static void draw_cells(const drawing *d, const holders_group *g, double y, uint64_t most) {
    char ranks[48], bytes[32], hint[200], color[SVG_COLOR];
    for (int first = 0, last; first < d->h->world; first = last + 1) {
        for (last = first; last + 1 < d->h->world && g->held[last + 1] == g->held[first];) last++;
        double x = x_of(d, first), width = x_of(d, last + 1) - x;
        uint64_t held = g->held[first];
        snprintf(hint, sizeof hint, "%s, %s: %s%s", g->name,
                 ranks_text(first, last, ranks, sizeof ranks), program_bytes_text(held, bytes),
                 first == last ? "" : " each");
        svg_heat(0.05 + 0.4 * (double)held / (double)most, color); /* text stays readable */
        svg_rect(d->svg, x, y, width, ROW - 2, held ? color : "#f4f4f4", hint);
        for (int r = first; r <= last && d->column >= 60 && held; r++)
            svg_text(d->svg, x_of(d, r) + d->column / 2, y + ROW - 7, 10, SVG_MIDDLE, bytes);
    }
}

static void draw_matrix(const drawing *d) {
    char bytes[32], name[64];
    for (size_t i = 0; i < d->h->n; i++) {
        const holders_group *g = &d->h->groups[i];
        double y = d->matrix + ROW * (double)i;
        uint64_t most = 1;
        for (int r = 0; r < d->h->world; r++)
            if (g->held[r] > most) most = g->held[r];
        size_t length = strlen(g->name);
        snprintf(name, sizeof name, "%s%s", length > 36 ? "..." : "",
                 length > 36 ? g->name + length - 33 : g->name);
        svg_text(d->svg, LEFT - 8, y + ROW - 6, 12, SVG_END, name);
        svg_text(d->svg, LEFT + PLOT + 8, y + ROW - 6, 12, SVG_START,
                 program_bytes_text(g->bytes, bytes));
        draw_cells(d, g, y, most);
    }
    double end = d->matrix + ROW * (double)d->h->n;
    for (int r = 1; r < d->h->world && d->column > 6; r++)
        svg_line(d->svg, x_of(d, r), d->matrix, x_of(d, r), end - 2, "#ffffff");
}

int holders_draw(const holders *h, const char *title, const char *path) {
    drawing d = {.h = h, .column = (double)PLOT / h->world, .matrix = TOP + BARS + GAP};
    double height = d.matrix + ROW * (double)h->n + FOOT;
    int failed = svg_open(path, LEFT + PLOT + RIGHT, height, title, &d.svg);
    errno = failed;
    if (failed) return program_fail_errno("cannot make", path);
    svg_text(d.svg, 16, 28, 17, SVG_START, title);
    draw_bars(&d);
    draw_ranks(&d, TOP + BARS + 16);
    draw_legend(&d);
    draw_matrix(&d);
    draw_ranks(&d, height - FOOT + 14);
    svg_text(d.svg, LEFT, height - 18, 12, SVG_START,
             "above: bytes of each rank; below: who holds how much of what, dark: the most; right: "
             "all of it");
    failed = svg_close(d.svg);
    return failed ? program_fail(PROGRAM_FAILED, "cannot write %s: %s", path, strerror(failed)) : 0;
}
