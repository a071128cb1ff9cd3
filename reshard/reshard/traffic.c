/* Counts the bytes of the plan: compares each old box with the new boxes that may overlap it on
 * dimension 0. */
#include "reshard/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program.h"
#include "programs/svg.h"

/* A box of one tensor that a new rank writes. */
typedef struct target {
    dcp_box box;
    int rank;
} target;

typedef struct counter {
    reshard_flow *list;
    size_t n, room;
    target *targets;
    size_t n_targets;
    uint64_t longest; /* the largest extent of a target on dimension 0 */
    const rank_mesh *m;
} counter;

static int by_flow(const void *a, const void *b) {
    const reshard_flow *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static int by_start(const void *a, const void *b) {
    const target *x = a, *y = b;
    if (x->box.start[0] != y->box.start[0]) return x->box.start[0] < y->box.start[0] ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Joins all flows between the same two ranks. */
static void combine(counter *c) {
    size_t n = 0;
    if (c->n) qsort(c->list, c->n, sizeof *c->list, by_flow);
    for (size_t i = 0; i < c->n; i++)
        if (n && by_flow(&c->list[n - 1], &c->list[i]) == 0)
            c->list[n - 1].bytes += c->list[i].bytes;
        else
            c->list[n++] = c->list[i];
    c->n = n;
}

static int grow_flows(counter *c) {
    size_t room = c->room ? 2 * c->room : 4096;
    reshard_flow *grown = realloc(c->list, room * sizeof *grown);
    if (!grown) return PROGRAM_FAILED;
    c->list = grown;
    c->room = room;
    return 0;
}

static int add_flow(counter *c, reshard_flow f) {
    if (c->n == c->room) {
        combine(c);
        if (c->n > c->room / 2 || !c->room) return grow_flows(c) ? PROGRAM_FAILED : add_flow(c, f);
    }
    c->list[c->n++] = f;
    return 0;
}

/* Lists the boxes that new ranks write. If several ranks hold equal boxes, only the lowest of them
 * writes. */
static void find_targets(counter *c, const dcp_tensor *t) {
    const rank_mesh_cut cut = rank_mesh_tp_cut(c->m, t);
    c->n_targets = 0;
    c->longest = 0;
    for (int r = 0; r < c->m->world; r++) {
        dcp_box boxes[RANK_MESH_QKV];
        int n = rank_mesh_keeps(c->m, cut, r) ? rank_mesh_boxes(c->m, t, cut, r, boxes) : 0;
        for (int k = 0; k < n; k++) {
            if (boxes[k].count[0] > c->longest) c->longest = boxes[k].count[0];
            c->targets[c->n_targets++] = (target){boxes[k], r};
        }
    }
    if (c->n_targets) qsort(c->targets, c->n_targets, sizeof *c->targets, by_start);
}

/* Returns the first target that may contain `row`. */
static size_t first_near(const counter *c, uint64_t row) {
    size_t low = 0, high = c->n_targets;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c->targets[middle].box.start[0] + c->longest <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t shared_elems(uint32_t ndim, const dcp_box *a, const dcp_box *b) {
    uint64_t elems = 1;
    for (uint32_t d = 0; d < (ndim ? ndim : 1); d++) {
        uint64_t end_a = a->start[d] + a->count[d], end_b = b->start[d] + b->count[d];
        uint64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        uint64_t end = end_a < end_b ? end_a : end_b;
        if (start >= end) return 0;
        elems *= end - start;
    }
    return elems;
}

static int count_tensor(counter *c, const dcp_checkpoint *ckpt, size_t i) {
    const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
    int status = 0;
    find_targets(c, t);
    for (size_t k = 0; k < dcp_checkpoint_boxes(ckpt, i) && !status; k++) {
        dcp_box old;
        int from = dcp_checkpoint_box(ckpt, i, k, &old);
        uint64_t end = old.start[0] + old.count[0];
        for (size_t n = first_near(c, old.start[0]);
             n < c->n_targets && c->targets[n].box.start[0] < end && !status; n++) {
            uint64_t elems = shared_elems(t->ndim, &old, &c->targets[n].box);
            if (elems)
                status = add_flow(
                    c, (reshard_flow){from, c->targets[n].rank, elems * dcp_dtype_bytes(t->dtype)});
        }
    }
    return status;
}

static void add_up(reshard_traffic *f) {
    for (size_t i = 0; i < f->n; i++) {
        const reshard_flow *one = &f->list[i];
        uint64_t moved = one->from == one->to ? 0 : one->bytes;
        f->ranks[one->from].read += one->bytes;
        f->ranks[one->to].written += one->bytes;
        f->ranks[one->to].moved += moved;
        f->total.read += one->bytes;
        f->total.written += one->bytes;
        f->total.moved += moved;
    }
}

int reshard_traffic_count(const dcp_checkpoint *ckpt, const rank_mesh *m, reshard_traffic *out) {
    counter c = {.m = m, .targets = malloc(RANK_MESH_QKV * (size_t)m->world * sizeof *c.targets)};
    reshard_traffic f = {.old = dcp_checkpoint_files(ckpt), .new = m->world};
    f.ranks = calloc((size_t)(f.old > f.new ? f.old : f.new), sizeof *f.ranks);
    int status = c.targets && f.ranks ? 0 : PROGRAM_FAILED;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && !status; i++)
        status = count_tensor(&c, ckpt, i);
    free(c.targets);
    combine(&c);
    f.list = c.list;
    f.n = c.n;
    if (status) {
        reshard_traffic_free(&f);
        return program_no_memory();
    }
    add_up(&f);
    *out = f;
    return 0;
}

void reshard_traffic_free(reshard_traffic *f) {
    free(f->list);
    free(f->ranks);
    *f = (reshard_traffic){0};
}

/* Writes "state.h5" or "shard-00002-of-00008.h5" to name[64]. */
static void file_name(dcp_layout layout, int rank, int world, char *name) {
    if (layout == DCP_LAYOUT_GLOBAL)
        snprintf(name, 64, "state.h5");
    else
        snprintf(name, 64, "shard-%05d-of-%05d.h5", rank, world);
}

static const char *layout_name(dcp_layout layout) {
    return layout == DCP_LAYOUT_GLOBAL ? "global" : "sharded";
}

static void print_rank(const char *rank, const reshard_flow_rank *r, const char *file) {
    char read[32], written[32], moved[32];
    printf("%5s %10s %10s %10s  %s\n", rank, program_bytes_text(r->read, read),
           program_bytes_text(r->written, written), program_bytes_text(r->moved, moved), file);
}

void reshard_traffic_print(const reshard_traffic *f, const reshard_traffic_labels *l) {
    char rank[16], file[64];
    printf("read %s: %s, %d file%s\n", l->src, layout_name(l->old_layout), f->old,
           f->old == 1 ? "" : "s");
    printf("write %s: %s, ", l->dst, layout_name(l->new_layout));
    if (l->new_layout == DCP_LAYOUT_GLOBAL)
        printf("1 file, by %d process%s\n\n", l->processes, l->processes == 1 ? "" : "es");
    else
        printf("%d file%s%s%s, by %d process%s\n\n", f->new, f->new == 1 ? "" : "s",
               l->mesh ? " of the mesh " : "", l->mesh ? l->mesh : "", l->processes,
               l->processes == 1 ? "" : "es");
    printf("%5s %10s %10s %10s  %s\n", "rank", "read", "written", "moved", "writes");
    for (int r = 0; r < f->old || r < f->new; r++) {
        snprintf(rank, sizeof rank, "%d", r);
        file_name(l->new_layout, r, f->new, file);
        print_rank(rank, &f->ranks[r], r < f->new ? file : "");
    }
    print_rank("all", &f->total, "");
    printf("\nread: bytes of the old rank's file. moved: those bytes of the new rank's file that "
           "come from the files of old ranks with other numbers.\n");
}

static json_t *rank_json(const reshard_traffic *f, const reshard_traffic_labels *l, int r) {
    char file[64];
    const reshard_flow_rank *of = &f->ranks[r];
    json_t *row = json_pack("{s:i, s:I, s:I, s:I}", "rank", r, "read", (json_int_t)of->read,
                            "written", (json_int_t)of->written, "moved", (json_int_t)of->moved);
    if (r >= f->new || !row) return row;
    file_name(l->new_layout, r, f->new, file);
    json_object_set_new(row, "file", json_string(file));
    json_object_set_new(row, "process", json_integer(r % l->processes));
    return row;
}

static json_t *side_json(const char *path, dcp_layout layout, int ranks, const char *axes) {
    json_t *side =
        json_pack("{s:s, s:s, s:i}", "path", path, "layout", layout_name(layout), "ranks", ranks);
    if (axes) json_object_set_new(side, "mesh", json_string(axes));
    return side;
}

json_t *reshard_traffic_json(const reshard_traffic *f, const reshard_traffic_labels *l) {
    json_t *ranks = json_array(), *list = json_array();
    for (int r = 0; r < f->old || r < f->new; r++) json_array_append_new(ranks, rank_json(f, l, r));
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I}", "from", f->list[i].from, "to",
                                        f->list[i].to, "bytes", (json_int_t)f->list[i].bytes));
    return json_pack("{s:I, s:o, s:o, s:I, s:I, s:o, s:o}", "step", (json_int_t)l->step, "from",
                     side_json(l->src, l->old_layout, f->old, NULL), "to",
                     side_json(l->dst, l->new_layout, f->new, l->mesh), "bytes",
                     (json_int_t)f->total.written, "moved", (json_int_t)f->total.moved, "ranks",
                     ranks, "flows", list);
}

/* The drawing. If there are few ranks, each is a bar, with old ranks on the left and new ranks on
 * the right. The height of a bar represents the rank's bytes, and the thickness of a band between
 * two bars represents the bytes that pass from one to the other. If there are many ranks, the
 * drawing is a matrix, with a row per group of old ranks and a column per group of new ranks. The
 * more bytes pass between two groups, the darker their cell. */

enum {
    MOST_BARS = 64, /* per side, so that bars can be distinguished */
    MOST_CELLS = 128,
    HINT = 160,
};

static const char *head(const reshard_traffic *f, const char *mesh, char *text) {
    char bytes[32], moved[32];
    snprintf(text, HINT, "%d to %d ranks%s%s: %s, of which %s change ranks", f->old, f->new,
             mesh ? ", " : "", mesh ? mesh : "", program_bytes_text(f->total.written, bytes),
             program_bytes_text(f->total.moved, moved));
    return text;
}

typedef struct bars {
    double top[MOST_BARS];  /* the top of a rank's bar */
    double next[MOST_BARS]; /* the position at which the rank's next band begins */
} bars;

typedef struct sankey {
    const reshard_traffic *f;
    svg *s;
    double left, right, scale; /* left, right: inner edges of the bars; scale: pixels per byte */
} sankey;

enum { BAR = 18, GAP = 14, TOP = 64 }; /* a GAP has room for a label of height 12 */

static double bar_height(const sankey *k, uint64_t bytes) {
    double height = k->scale * (double)bytes;
    return height < 1 ? 1 : height;
}

static void draw_bars(const sankey *k, bool is_old, double height, bars *b) {
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
        const reshard_flow *one = &k->f->list[i];
        double thick = k->scale * (double)one->bytes;
        snprintf(text, sizeof text, "%d to %d: %s", one->from, one->to,
                 program_bytes_text(one->bytes, bytes));
        svg_band(k->s, k->left, old->next[one->from], k->right, new->next[one->to], thick,
                 svg_color((size_t)one->from), text);
        old->next[one->from] += thick;
        new->next[one->to] += thick;
    }
}

static int draw_sankey(const reshard_traffic *f, const char *mesh, const char *path) {
    int most = f->old > f->new ? f->old : f->new;
    double height = most * 44 < 320 ? 320 : most * 44, width = 900;
    bars old, new;
    char text[HINT];
    sankey k = {.f = f, .left = 150, .right = width - 150};
    if (f->total.written) k.scale = (height - (most - 1) * GAP) / (double)f->total.written;
    int code =
        svg_open(path, width, height + TOP + 24, "dcp-reshard: bytes from old to new ranks", &k.s);
    if (code) return code;
    svg_text(k.s, width / 2, 26, 16, SVG_MIDDLE, head(f, mesh, text));
    svg_text(k.s, k.left, 50, 13, SVG_END, "old ranks");
    svg_text(k.s, k.right, 50, 13, SVG_START, "new ranks");
    draw_bars(&k, true, height, &old);
    draw_bars(&k, false, height, &new);
    draw_bands(&k, &old, &new);
    return svg_close(k.s);
}

/* The ranks of one side of the matrix. A cell has `each` ranks; the last one may have fewer. */
typedef struct matrix_axis {
    int ranks, each, cells;
} matrix_axis;

static matrix_axis make_axis(int ranks) {
    int each = (ranks + MOST_CELLS - 1) / MOST_CELLS;
    return (matrix_axis){ranks, each, (ranks + each - 1) / each};
}

/* Writes the numbers of a cell's ranks, such as "512-515" or "7". */
static const char *cell_name(const matrix_axis *a, int cell, char *text) {
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
    matrix_axis old, new;
    double x, y, cell; /* the upper left corner, and the pixels per cell */
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

/* Draws the numbers of eight cells along an axis, or of fewer if they would overlap. */
static void draw_ticks(const matrix *m, const matrix_axis *a, bool is_old) {
    char text[32];
    const int room = is_old ? 14 : 40, eighth = (a->cells + 7) / 8;
    const int fitting = (int)ceil(room / m->cell), step = eighth > fitting ? eighth : fitting;
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

static void draw_scale(const matrix *m, double y) {
    char text[HINT], color[SVG_COLOR], bytes[32];
    enum { STEPS = 20, WIDTH = 10 };
    svg_text(m->s, m->x, y + 12, 12, SVG_START, "0");
    for (int i = 0; i < STEPS; i++) {
        svg_heat((i + 0.5) / STEPS, color);
        svg_rect(m->s, m->x + 16 + i * WIDTH, y, WIDTH, 14, color, NULL);
    }
    snprintf(text, sizeof text, "%s per cell; a cell is %d old by %d new rank%s",
             program_bytes_text(m->most, bytes), m->old.each, m->new.each,
             m->new.each == 1 ? "" : "s");
    svg_text(m->s, m->x + 24 + STEPS * WIDTH, y + 12, 12, SVG_START, text);
}

static int draw_matrix(const reshard_traffic *f, const char *mesh, const char *path) {
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
    if (width < 480) width = 480; /* room for the texts */
    int code = svg_open(path, m.x + width + 40, bottom + 60,
                        "dcp-reshard: bytes from old to new ranks", &m.s);
    if (!code) {
        svg_text(m.s, m.x, 36, 16, SVG_START, head(f, mesh, text));
        draw_cells(&m);
        draw_frame(&m);
        draw_ticks(&m, &m.old, true);
        draw_ticks(&m, &m.new, false);
        draw_scale(&m, bottom + 24);
        code = svg_close(m.s);
    }
    free(m.bytes);
    return code;
}

int reshard_traffic_draw(const reshard_traffic *f, const char *mesh, const char *path) {
    bool few = f->old <= MOST_BARS && f->new <= MOST_BARS;
    return few ? draw_sankey(f, mesh, path) : draw_matrix(f, mesh, path);
}
