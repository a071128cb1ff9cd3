/* dcp-inspect layout: shows which rank holds which tensors, for the ranks that wrote the step or
 * for the ranks of a given mesh. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launch.h"
#include "inspect/holders.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { MOST_BOXES = 1000000 };

typedef struct layout_request {
    const char *ckpt, *world, *mesh, *rules, *svg;
    bool json;
    char **globs;
    size_t n_globs;
} layout_request;

static const char *cut_text(const inspect_holders *h, char *text, size_t size) {
    char axes[RANK_MESH_TEXT];
    if (h->mesh)
        snprintf(text, size, "on %d %s, %s", h->world, h->world == 1 ? "rank" : "ranks",
                 rank_mesh_print(h->mesh, axes));
    else
        snprintf(text, size, "as %d %s wrote it", h->world, h->world == 1 ? "rank" : "ranks");
    return text;
}

static void print_ranks(const inspect_holders *h) {
    char range[32], bytes[32];
    uint64_t all = 0;
    for (int r = 0; r < h->world; r++) all += h->bytes[r];
    printf("%-16s %10s %9s %9s\n", "ranks", "bytes", "of mean", "tensors");
    for (int first = 0, last; first < h->world; first = last + 1) {
        last = inspect_holders_last_equal(h, first);
        snprintf(range, sizeof range, first == last ? "%d" : "%d-%d", first, last);
        printf("%-16s %10s %9.3f %9" PRIu64 "\n", range, program_bytes_text(h->bytes[first], bytes),
               all ? (double)h->bytes[first] * h->world / (double)all : 0, h->tensors[first]);
    }
}

/* Prints, for each group, how many ranks hold a part of it, and the smallest and the largest number
 * of its bytes that a rank holds. */
static void print_groups(const inspect_holders *h) {
    char bytes[32], least[32], most[32];
    printf("\n%-40s %10s %8s %10s %10s\n", "group", "bytes", "holders", "smallest", "largest");
    for (size_t i = 0; i < h->n; i++) {
        const inspect_holders_group *g = &h->groups[i];
        uint64_t low = UINT64_MAX, high = 0;
        int n = 0;
        for (int r = 0; r < h->world; r++) {
            if (g->held[r] < low) low = g->held[r];
            if (g->held[r] > high) high = g->held[r];
            n += g->held[r] > 0;
        }
        printf("%-40s %10s %8d %10s %10s\n", g->name, program_bytes_text(g->bytes, bytes), n,
               program_bytes_text(low, least), program_bytes_text(high, most));
    }
}

typedef struct boxes {
    const dcp_tensor *tensor;
    json_t *list; /* NULL: print text */
    uint64_t n;
} boxes;

static int print_box(void *ctx, int rank, const dcp_box *box) {
    boxes *b = ctx;
    const dcp_tensor *t = b->tensor;
    b->n++;
    if (b->list) {
        json_array_append_new(b->list, json_pack("{s:i, s:o, s:o}", "rank", rank, "start",
                                                 inspect_shape_json(box->start, t->ndim), "count",
                                                 inspect_shape_json(box->count, t->ndim)));
        return b->n > MOST_BOXES;
    }
    printf("  rank %-6d [", rank);
    for (uint32_t d = 0; d < t->ndim; d++)
        printf("%s%" PRIu64 ":%" PRIu64, d ? ", " : "", box->start[d],
               box->start[d] + box->count[d]);
    printf("]\n");
    return 0;
}

static void print_boxes(const inspect_holders *h, const unsigned char *take) {
    char name[TEXT_PATH], shape[TEXT_SHAPE];
    for (size_t i = 0; i < dcp_checkpoint_tensors(h->ckpt); i++) {
        boxes b = {.tensor = dcp_checkpoint_tensor(h->ckpt, i)};
        if (!take[i]) continue;
        printf("\n%s %s %s\n", inspect_text_name(b.tensor->path, name),
               dcp_dtype_name(b.tensor->dtype),
               inspect_text_shape(b.tensor->shape, b.tensor->ndim, shape));
        inspect_holders_each(h, i, print_box, &b);
    }
}

static json_t *ranks_json(const inspect_holders *h) {
    json_t *list = json_array();
    for (int r = 0; r < h->world; r++)
        json_array_append_new(list, json_pack("{s:i, s:o, s:o}", "rank", r, "bytes",
                                              inspect_count_json(h->bytes[r]), "tensors",
                                              inspect_count_json(h->tensors[r])));
    return list;
}

static json_t *groups_json(const inspect_holders *h) {
    json_t *list = json_array();
    for (size_t i = 0; i < h->n; i++) {
        const inspect_holders_group *g = &h->groups[i];
        json_t *held = json_array(), *name = json_string(g->name);
        for (int r = 0; r < h->world; r++)
            json_array_append_new(held, inspect_count_json(g->held[r]));
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o}", "group", name ? name : json_string("?"),
                                        "bytes", inspect_count_json(g->bytes), "held", held));
    }
    return list;
}

/* Returns NULL if there are too many boxes. */
static json_t *tensors_json(const inspect_holders *h, const unsigned char *take) {
    json_t *list = json_array();
    uint64_t n = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(h->ckpt); i++) {
        boxes b = {dcp_checkpoint_tensor(h->ckpt, i), json_array(), n};
        if (!take[i]) {
            json_decref(b.list);
            continue;
        }
        bool stopped = inspect_holders_each(h, i, print_box, &b);
        n = b.n;
        json_t *tensor = inspect_tensor_json(b.tensor);
        json_object_set_new(tensor, "boxes", b.list);
        json_array_append_new(list, tensor);
        if (!stopped) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static int print_layout_json(const inspect_holders *h, const unsigned char *take,
                             const layout_request *q) {
    char axes[RANK_MESH_TEXT];
    json_t *root = inspect_checkpoint_json(h->ckpt);
    json_t *tensors = q->n_globs ? tensors_json(h, take) : NULL;
    if (q->n_globs && !tensors) {
        json_decref(root);
        return program_refuse("more than %d boxes: give a narrower GLOB", MOST_BOXES);
    }
    json_object_set_new(root, "world", json_integer(h->world));
    json_object_set_new(root, "mesh",
                        h->mesh ? json_string(rank_mesh_print(h->mesh, axes)) : json_null());
    json_object_set_new(root, "ranks", ranks_json(h));
    json_object_set_new(root, "groups", groups_json(h));
    if (tensors) json_object_set_new(root, "tensors", tensors);
    inspect_text_print_json(root);
    return 0;
}

static int print_layout_text(const inspect_holders *h, const unsigned char *take,
                             const layout_request *q) {
    char cut[RANK_MESH_TEXT + 64];
    printf("%s: step %" PRIu64 ", %s\n\n", dcp_checkpoint_path(h->ckpt),
           dcp_checkpoint_step(h->ckpt), cut_text(h, cut, sizeof cut));
    print_ranks(h);
    print_groups(h);
    if (q->n_globs) print_boxes(h, take);
    return 0;
}

static int draw_layout(const inspect_holders *h, const layout_request *q) {
    char title[DCP_MAX_PATH], cut[RANK_MESH_TEXT + 64];
    const char *name = strrchr(dcp_checkpoint_path(h->ckpt), '/');
    snprintf(title, sizeof title, "%.200s %s", name ? name + 1 : dcp_checkpoint_path(h->ckpt),
             cut_text(h, cut, sizeof cut));
    return inspect_holders_draw(h, title, q->svg);
}

static int print_layout(const dcp_checkpoint *ckpt, const rank_mesh *m, const layout_request *q) {
    inspect_holders *h = calloc(1, sizeof *h);
    unsigned char *take = calloc(dcp_checkpoint_tensors(ckpt) + 1, 1);
    int status =
        h && take ? inspect_filter_tensors(ckpt, q->globs, q->n_globs, take) : program_no_memory();
    if (!status) status = inspect_holders_make(ckpt, m, h);
    if (!status && q->svg) status = draw_layout(h, q);
    if (!status) status = q->json ? print_layout_json(h, take, q) : print_layout_text(h, take, q);
    if (h) inspect_holders_free(h);
    free(h);
    free(take);
    return status;
}

static int open_and_lay_out(const layout_request *q) {
    rank_mesh m = {0};
    const bool asked = q->world || q->mesh;
    int status = rank_mesh_from_options(q->world, q->mesh, q->rules, &m);
    dcp_error err = {0};
    dcp_comm *self;
    dcp_checkpoint *ckpt;
    if (!status && q->rules && !q->mesh)
        status = program_refuse("--tp-rule needs a --mesh with tp");
    if (status) {
        rank_mesh_free(&m);
        return status;
    }
    if (dcp_comm_self(&self, &err)) return program_report(&err);
    if (dcp_checkpoint_open(self, q->ckpt, &ckpt, &err)) {
        status = program_report(&err);
        if (status == PROGRAM_DIFFERS) step_path_note_older(q->ckpt);
    } else {
        if (!asked && dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_GLOBAL)
            status = program_refuse("%s: a step of layout global is the same for any number of "
                                    "ranks; specify the ranks by --world N or --mesh AXES",
                                    dcp_checkpoint_path(ckpt));
        else
            status = asked ? rank_mesh_check_heads(&m, ckpt) : 0;
        if (!status) status = print_layout(ckpt, asked ? &m : NULL, q);
        dcp_checkpoint_close(ckpt);
    }
    dcp_comm_destroy(self);
    rank_mesh_free(&m);
    return status;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect layout ckpt --world 8 --svg who.svg        a table, and a drawing\n"
    "  dcp-inspect layout ckpt --mesh fsdp=4,tp=2             with tensor parallelism\n"
    "  dcp-inspect layout ckpt --world 8 'lm_head.weight'     each rank's box of a tensor\n"
    "  dcp-inspect layout sharded-ckpt                        as its ranks wrote it\n"
    "\n"
    "Prints which rank holds what. --world N shows the boxes that N ranks of dcp-train hold\n"
    "and that dcp-reshard --world N writes: each tensor is cut on dimension 0 into N parts,\n"
    "the last of which may be smaller or empty. --mesh and --tp-rule are as in dcp-reshard.\n"
    "A step of layout global requires --world or --mesh; without them, a step of layout\n"
    "sharded is shown as its files were written. GLOBs select the tensors whose boxes are\n"
    "printed, by their paths, with or without /model/.\n"
    "\n"
    "JSON: path, step, layout, files, world, mesh (null: as written), ranks (rank, bytes,\n"
    "tensors), groups (group, bytes, held: bytes of each rank); with GLOBs also tensors\n"
    "(path, dtype, shape, bytes, boxes: rank, start, count).";

int inspect_layout(int argc, char **argv) {
    layout_request q = {0};
    const program_option options[] = {
        PROGRAM_VALUE("world", "N", "show the boxes that N ranks hold", &q.world),
        PROGRAM_VALUE("mesh", "AXES", "show the boxes that the ranks of a mesh hold: fsdp=4,tp=2",
                      &q.mesh),
        PROGRAM_VALUE("tp-rule", "GLOB=DIM",
                      "tp cuts tensors that match GLOB on DIM, or not at all if DIM is 'none'; "
                      "overrides built-in rules",
                      &q.rules),
        PROGRAM_VALUE("svg", "FILE", "also draw who holds what", &q.svg),
        {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage =
                                         "layout CKPT [GLOB...] [--world N|--mesh AXES] [options]",
                                     .about = about,
                                     .options = options,
                                     .json = &q.json};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 1, 1 << 20, &args, &n);
    if (status >= 0) return status;
    q.ckpt = args[0];
    q.globs = args + 1;
    q.n_globs = (size_t)n - 1;
    return open_and_lay_out(&q);
}
