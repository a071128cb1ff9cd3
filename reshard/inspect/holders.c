/* Parameters are grouped by module, as deeply as the limit on the number of groups permits. Every
 * other kind of tensor is one group. */
#include "inspect/holders.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/ranking.h"
#include "programs/program.h"
#include "programs/svg.h"

enum { DEEPEST = 4, MOST_BOXES = 1 << 28 };

static bool is_parameter(const char *path) {
    return strncmp(path, "/optimizer/", 11) != 0 && strncmp(path, "/files/", 7) != 0;
}

/* Returns the length of the part of the path that names its group. At depth 0, that is only the
 * kind. */
static size_t group_length(const char *path, int depth) {
    size_t length, end;
    const char *kind = inspect_modules_kind(path, &length);
    if (depth < 0) return 0;
    end = (size_t)(kind - path) + length;
    for (int d = 0; d < depth && is_parameter(path); d++) {
        size_t next = end + 1 + strcspn(path + end + 1, "./");
        if (!path[next] && d > 0) break; /* the last part is the tensor's own name */
        end = next;
        if (!path[end]) break;
    }
    return end;
}

static bool same_group(const char *a, const char *b, int depth) {
    size_t length = group_length(a, depth);
    return length == group_length(b, depth) && strncmp(a, b, length) == 0;
}

static const char *path_of(const dcp_checkpoint *ckpt, size_t i) {
    return dcp_checkpoint_tensor(ckpt, i)->path;
}

/* Counts the groups. The tensors of a group follow each other, because tensors are sorted. */
static size_t count_groups(const dcp_checkpoint *ckpt, int depth) {
    size_t n = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && n <= HOLDERS_GROUPS; i++)
        n += !i || !same_group(path_of(ckpt, i - 1), path_of(ckpt, i), depth);
    return n;
}

static void name_group(inspect_holders_group *g, int depth) {
    size_t length, end = group_length(g->first, depth);
    const char *start = inspect_modules_kind(g->first, &length);
    size_t skipped = (size_t)(start - g->first);
    if (strncmp(start, "model/", 6) == 0 && end > skipped + length) {
        start += length + 1;
        skipped += length + 1;
    }
    length = depth < 0 ? 0 : end - skipped;
    snprintf(g->name, sizeof g->name, "%.*s", (int)(length < 200 ? length : 200),
             depth < 0 ? "" : start);
    if (depth < 0) strcpy(g->name, "all tensors");
    for (char *c = g->name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
}

static int add_group(inspect_holders *h, const char *path, int depth) {
    inspect_holders_group *g = &h->groups[h->n];
    g->first = path;
    g->held = calloc((size_t)h->world + 1, sizeof *g->held);
    if (!g->held) return program_no_memory();
    name_group(g, depth);
    if (h->n) g->kind = g[-1].kind + !same_group(g[-1].first, path, 0);
    h->n++;
    return 0;
}

typedef struct adding {
    inspect_holders *h;
    inspect_holders_group *group;
    const dcp_tensor *tensor;
    int last; /* the last rank found to have a box of the tensor */
} adding;

static int add_held(void *ctx, int rank, const dcp_box *box) {
    adding *a = ctx;
    uint64_t bytes = dcp_box_elems(box, a->tensor->ndim) * dcp_dtype_bytes(a->tensor->dtype);
    a->group->held[rank] += bytes;
    a->h->bytes[rank] += bytes;
    a->h->tensors[rank] += rank != a->last;
    a->last = rank;
    return 0;
}

/* Visits each rank's boxes. If the mesh has only the axis fsdp, the first rank without a box ends
 * the visit, because later ranks have no box either. */
static int each_of_mesh(const inspect_holders *h, const dcp_tensor *t, inspect_holders_fn fn,
                        void *ctx) {
    bool by_rows = h->mesh->size[RANK_MESH_FSDP] == h->world, status = false;
    const rank_mesh_cut cut = rank_mesh_tp_cut(h->mesh, t);
    for (int rank = 0; rank < h->world && !status; rank++) {
        dcp_box boxes[RANK_MESH_QKV];
        int n = rank_mesh_boxes(h->mesh, t, cut, rank, boxes);
        if (!n && by_rows) break;
        for (int k = 0; k < n && !status; k++) status = fn(ctx, rank, &boxes[k]);
    }
    return status;
}

int inspect_holders_each(const inspect_holders *h, size_t i, inspect_holders_fn fn, void *ctx) {
    bool status = false;
    if (h->mesh) return each_of_mesh(h, dcp_checkpoint_tensor(h->ckpt, i), fn, ctx);
    for (size_t k = 0; k < dcp_checkpoint_pieces(h->ckpt, i) && !status; k++) {
        dcp_piece p = DCP_PIECE_INIT;
        dcp_checkpoint_piece(h->ckpt, i, k, &p);
        status = fn(ctx, p.file, &p.box);
    }
    return status;
}

static int add_tensors(inspect_holders *h, int depth) {
    int status = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(h->ckpt) && !status; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(h->ckpt, i);
        if (!i || !same_group(path_of(h->ckpt, i - 1), t->path, depth))
            status = add_group(h, t->path, depth);
        if (status) break;
        adding a = {h, &h->groups[h->n - 1], t, -1};
        a.group->bytes += dcp_tensor_bytes(t);
        status = inspect_holders_each(h, i, add_held, &a);
    }
    return status;
}

int inspect_holders_make(const dcp_checkpoint *ckpt, const rank_mesh *cut, inspect_holders *out) {
    int depth = DEEPEST, world = cut ? cut->world : dcp_checkpoint_files(ckpt);
    *out = (inspect_holders){.ckpt = ckpt, .mesh = cut, .world = world};
    if (cut && dcp_checkpoint_tensors(ckpt) > MOST_BOXES / (size_t)world)
        return program_refuse("%zu tensors on %d ranks are more boxes than can be examined",
                              dcp_checkpoint_tensors(ckpt), world);
    out->bytes = calloc((size_t)world + 1, sizeof *out->bytes);
    out->tensors = calloc((size_t)world + 1, sizeof *out->tensors);
    if (!out->bytes || !out->tensors) return program_no_memory();
    while (depth >= 0 && count_groups(ckpt, depth) > HOLDERS_GROUPS) depth--;
    return add_tensors(out, depth);
}

void inspect_holders_free(inspect_holders *h) {
    for (size_t g = 0; g < h->n; g++) free(h->groups[g].held);
    free(h->bytes);
    free(h->tensors);
    *h = (inspect_holders){0};
}

int inspect_holders_last_equal(const inspect_holders *h, int rank) {
    int last = rank;
    for (size_t g = 0; last + 1 < h->world; last++, g = 0) {
        while (g < h->n && h->groups[g].held[last + 1] == h->groups[g].held[rank]) g++;
        if (g < h->n || h->tensors[last + 1] != h->tensors[rank]) break;
    }
    return last;
}

/* The drawing. At the top, each rank has a bar of its bytes, in the colours of the kinds. Below is
 * a matrix with a row per group of tensors and a column per rank. A cell is darker the more of the
 * group the rank holds, compared with the rank that holds the most. Neighbouring ranks that hold
 * the same amounts are drawn as one column, so a thousand ranks need little more room than eight.
 * Numbers are written if there is room for them. */

enum { LEFT = 250, PLOT = 1000, RIGHT = 90, TOP = 64, BARS = 170, GAP = 54, ROW = 20, FOOT = 64 };

typedef struct drawing {
    svg *svg;
    const inspect_holders *h;
    double column; /* the width of a rank */
    double matrix; /* the y coordinate of the matrix's first row */
} drawing;

static double x_of(const drawing *d, int rank) { return LEFT + d->column * rank; }

static const char *ranks_text(int first, int last, char *text, size_t size) {
    if (first == last)
        snprintf(text, size, "rank %d", first);
    else
        snprintf(text, size, "ranks %d to %d", first, last);
    return text;
}

static uint64_t most_bytes(const inspect_holders *h) {
    uint64_t most = 1;
    for (int r = 0; r < h->world; r++)
        if (h->bytes[r] > most) most = h->bytes[r];
    return most;
}

/* Draws ranks [first, last], which hold the same amounts, as one bar of all kinds. */
static void draw_bar(const drawing *d, int first, int last, uint64_t most) {
    const inspect_holders *h = d->h;
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
        last = inspect_holders_last_equal(d->h, first);
        draw_bar(d, first, last, most);
    }
    svg_line(d->svg, LEFT, TOP + BARS, LEFT + PLOT, TOP + BARS, "#444444");
    for (int r = 0; r < d->h->world && d->column >= 60; r++)
        svg_text(d->svg, x_of(d, r) + d->column / 2, TOP - 6, 11, SVG_MIDDLE,
                 program_bytes_text(d->h->bytes[r], text));
}

/* Labels the ranks along the axis: at most sixteen numbers. */
static void draw_ranks(const drawing *d, double y) {
    int step = 1;
    char text[32];
    while (d->h->world / step > 16) step *= 2;
    for (int r = 0; r < d->h->world; r += step) {
        snprintf(text, sizeof text, "%d", r);
        svg_text(d->svg, x_of(d, r) + d->column / 2, y, 11, SVG_MIDDLE, text);
    }
}

static void draw_kinds(const drawing *d) {
    double x = LEFT, y = TOP + BARS + 36;
    for (size_t g = 0; g < d->h->n; g++) {
        const inspect_holders_group *group = &d->h->groups[g];
        char name[64];
        if (g && group->kind == group[-1].kind) continue;
        bool is_model = strncmp(group->first, "/model/", 7) == 0;
        snprintf(name, sizeof name, "%s", is_model ? "model" : group->name);
        if (x > LEFT + PLOT - 80) break;
        svg_rect(d->svg, x, y - 10, 12, 12, svg_color(group->kind), NULL);
        svg_text(d->svg, x + 17, y, 12, SVG_START, name);
        x += 40 + 7.5 * (double)strlen(name);
    }
}

static void draw_cells(const drawing *d, const inspect_holders_group *g, double y, uint64_t most) {
    char ranks[48], bytes[32], hint[200], color[SVG_COLOR];
    for (int first = 0, last; first < d->h->world; first = last + 1) {
        for (last = first; last + 1 < d->h->world && g->held[last + 1] == g->held[first];) last++;
        double x = x_of(d, first), width = x_of(d, last + 1) - x;
        uint64_t held = g->held[first];
        snprintf(hint, sizeof hint, "%s, %s: %s%s", g->name,
                 ranks_text(first, last, ranks, sizeof ranks), program_bytes_text(held, bytes),
                 first == last ? "" : " each");
        svg_heat(0.05 + 0.4 * (double)held / (double)most, color); /* light enough for text */
        svg_rect(d->svg, x, y, width, ROW - 2, held ? color : "#f4f4f4", hint);
        for (int r = first; r <= last && d->column >= 60 && held; r++)
            svg_text(d->svg, x_of(d, r) + d->column / 2, y + ROW - 7, 10, SVG_MIDDLE, bytes);
    }
}

static void draw_matrix(const drawing *d) {
    char bytes[32], name[64];
    for (size_t i = 0; i < d->h->n; i++) {
        const inspect_holders_group *g = &d->h->groups[i];
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

int inspect_holders_draw(const inspect_holders *h, const char *title, const char *path) {
    drawing d = {.h = h, .column = (double)PLOT / h->world, .matrix = TOP + BARS + GAP};
    double height = d.matrix + ROW * (double)h->n + FOOT;
    int failed = svg_open(path, LEFT + PLOT + RIGHT, height, title, &d.svg);
    errno = failed;
    if (failed) return program_fail_errno("cannot make", path);
    svg_text(d.svg, 16, 28, 17, SVG_START, title);
    draw_bars(&d);
    draw_ranks(&d, TOP + BARS + 16);
    draw_kinds(&d);
    draw_matrix(&d);
    draw_ranks(&d, height - FOOT + 14);
    svg_text(
        d.svg, LEFT, height - 18, 12, SVG_START,
        "above: bytes of each rank; below: how much of each group a rank holds, dark: the most; "
        "right: bytes of the group");
    failed = svg_close(d.svg);
    return failed ? program_fail(PROGRAM_FAILED, "cannot write %s: %s", path, strerror(failed)) : 0;
}
