/* Parameters are grouped by module, as deep as there is room for; other kinds are a group each. */
#include "inspect/holders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/modules.h"
#include "programs/program.h"

enum { DEEPEST = 4, MOST_BOXES = 1 << 28 };

static int is_parameter(const char *path) {
    return strncmp(path, "/optimizer/", 11) != 0 && strncmp(path, "/files/", 7) != 0;
}

/* Length of the path's part that names its group; depth 0: its kind, below that: nothing. */
static size_t group_length(const char *path, int depth) {
    size_t length, end;
    const char *kind = module_kind(path, &length);
    if (depth < 0) return 0;
    end = (size_t)(kind - path) + length;
    for (int d = 0; d < depth && is_parameter(path); d++) {
        size_t next = end + 1 + strcspn(path + end + 1, "./");
        if (!path[next] && d > 0) break; /* the tensor's own name */
        end = next;
        if (!path[end]) break;
    }
    return end;
}

static int same_group(const char *a, const char *b, int depth) {
    size_t length = group_length(a, depth);
    return length == group_length(b, depth) && strncmp(a, b, length) == 0;
}

static const char *path_of(const dcp_checkpoint *ckpt, size_t i) {
    return dcp_checkpoint_tensor(ckpt, i)->path;
}

/* Groups follow each other, as tensors are sorted. */
static size_t count_groups(const dcp_checkpoint *ckpt, int depth) {
    size_t n = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && n <= HOLDERS_GROUPS; i++)
        n += !i || !same_group(path_of(ckpt, i - 1), path_of(ckpt, i), depth);
    return n;
}

static void name_group(holders_group *g, int depth) {
    size_t length, end = group_length(g->first, depth);
    const char *start = module_kind(g->first, &length);
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

static int add_group(holders *h, const char *path, int depth) {
    holders_group *g = &h->groups[h->n];
    g->first = path;
    g->held = calloc((size_t)h->world + 1, sizeof *g->held);
    if (!g->held) return program_fail(PROGRAM_FAILED, "out of memory");
    name_group(g, depth);
    if (h->n) g->kind = g[-1].kind + !same_group(g[-1].first, path, 0);
    h->n++;
    return 0;
}

typedef struct adding {
    holders *h;
    holders_group *group;
    const dcp_tensor *tensor;
} adding;

static int add_box(void *ctx, int rank, const dcp_box *box) {
    const adding *a = ctx;
    uint64_t bytes = dcp_box_elems(box, a->tensor->ndim) * dcp_dtype_bytes(a->tensor->dtype);
    a->group->held[rank] += bytes;
    a->h->bytes[rank] += bytes;
    a->h->tensors[rank]++;
    return 0;
}

/* A box of each rank, unless nothing more can come: cut by fsdp alone, no rank has any after one
 * that has none. */
static int each_of_mesh(const holders *h, const dcp_tensor *t, holders_fn fn, void *ctx) {
    int by_rows = h->mesh->size[RANK_MESH_FSDP] == h->world, dim = rank_mesh_tp_dim(h->mesh, t),
        status = 0;
    for (int rank = 0; rank < h->world && !status; rank++) {
        const dcp_box box = rank_mesh_box_at(h->mesh, t, dim, rank);
        int empty = dcp_box_elems(&box, t->ndim) == 0;
        if (empty && by_rows) break;
        if (!empty) status = fn(ctx, rank, &box);
    }
    return status;
}

int holders_each(const holders *h, size_t i, holders_fn fn, void *ctx) {
    int status = 0;
    if (h->mesh) return each_of_mesh(h, dcp_checkpoint_tensor(h->ckpt, i), fn, ctx);
    for (size_t k = 0; k < dcp_checkpoint_pieces(h->ckpt, i) && !status; k++) {
        dcp_piece p;
        dcp_checkpoint_piece(h->ckpt, i, k, &p);
        status = fn(ctx, p.file, &p.box);
    }
    return status;
}

static int add_tensors(holders *h, int depth) {
    int status = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(h->ckpt) && !status; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(h->ckpt, i);
        if (!i || !same_group(path_of(h->ckpt, i - 1), t->path, depth))
            status = add_group(h, t->path, depth);
        if (status) break;
        adding a = {h, &h->groups[h->n - 1], t};
        a.group->bytes += dcp_tensor_bytes(t);
        status = holders_each(h, i, add_box, &a);
    }
    return status;
}

int holders_make(const dcp_checkpoint *ckpt, const rank_mesh *cut, holders *out) {
    int depth = DEEPEST, world = cut ? cut->world : dcp_checkpoint_files(ckpt);
    *out = (holders){.ckpt = ckpt, .mesh = cut, .world = world};
    if (cut && dcp_checkpoint_tensors(ckpt) > MOST_BOXES / (size_t)world)
        return program_fail(PROGRAM_USAGE,
                            "%zu tensors on %d ranks are more boxes than can be looked at",
                            dcp_checkpoint_tensors(ckpt), world);
    out->bytes = calloc((size_t)world + 1, sizeof *out->bytes);
    out->tensors = calloc((size_t)world + 1, sizeof *out->tensors);
    if (!out->bytes || !out->tensors) return program_fail(PROGRAM_FAILED, "out of memory");
    while (depth >= 0 && count_groups(ckpt, depth) > HOLDERS_GROUPS) depth--;
    return add_tensors(out, depth);
}

void holders_free(holders *h) {
    for (size_t g = 0; g < h->n; g++) free(h->groups[g].held);
    free(h->bytes);
    free(h->tensors);
    *h = (holders){0};
}

int holders_run(const holders *h, int rank) {
    int last = rank;
    for (size_t g = 0; last + 1 < h->world; last++, g = 0) {
        while (g < h->n && h->groups[g].held[last + 1] == h->groups[g].held[rank]) g++;
        if (g < h->n || h->tensors[last + 1] != h->tensors[rank]) break;
    }
    return last;
}
