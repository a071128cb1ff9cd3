/* Counting what goes from where to where: old boxes against the new ones near them. */
#include "reshard/flows.h"

#include <stdlib.h>
#include <string.h>

#include "programs/program.h"

/* A new rank's box of one tensor. */
typedef struct target {
    dcp_box box;
    int rank;
} target;

typedef struct counter {
    flow *list;
    size_t n, room;
    target *targets;
    size_t n_targets;
    uint64_t longest; /* of the targets, on dimension 0 */
    const rank_mesh *m;
} counter;

static int by_flow(const void *a, const void *b) {
    const flow *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static int by_start(const void *a, const void *b) {
    const target *x = a, *y = b;
    if (x->box.start[0] != y->box.start[0]) return x->box.start[0] < y->box.start[0] ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Flows of the same ranks become one. */
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

static int grow(counter *c) {
    size_t room = c->room ? 2 * c->room : 4096;
    flow *grown = realloc(c->list, room * sizeof *grown);
    if (!grown) return PROGRAM_FAILED;
    c->list = grown;
    c->room = room;
    return 0;
}

static int add_flow(counter *c, flow f) {
    if (c->n == c->room) {
        combine(c);
        if (c->n > c->room / 2 || !c->room) return grow(c) ? PROGRAM_FAILED : add_flow(c, f);
    }
    c->list[c->n++] = f;
    return 0;
}

/* The boxes that new ranks write: of equal ones, the lowest rank's. */
static void find_targets(counter *c, const dcp_tensor *t) {
    int dim = rank_mesh_tp_dim(c->m, t);
    c->n_targets = 0;
    c->longest = 0;
    for (int r = 0; r < c->m->world; r++) {
        const dcp_box box = rank_mesh_box_at(c->m, t, dim, r);
        if (!rank_mesh_keeps(c->m, dim, r) || !dcp_box_elems(&box, t->ndim)) continue;
        if (box.count[0] > c->longest) c->longest = box.count[0];
        c->targets[c->n_targets++] = (target){box, r};
    }
    if (c->n_targets) qsort(c->targets, c->n_targets, sizeof *c->targets, by_start);
}

/* The first target that may reach to `row`. */
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
                    c, (flow){from, c->targets[n].rank, elems * dcp_dtype_bytes(t->dtype)});
        }
    }
    return status;
}

static void add_up(flows *f) {
    for (size_t i = 0; i < f->n; i++) {
        const flow *one = &f->list[i];
        uint64_t moved = one->from == one->to ? 0 : one->bytes;
        f->ranks[one->from].read += one->bytes;
        f->ranks[one->to].written += one->bytes;
        f->ranks[one->to].moved += moved;
        f->total.read += one->bytes;
        f->total.written += one->bytes;
        f->total.moved += moved;
    }
}

int flows_make(const dcp_checkpoint *ckpt, const rank_mesh *m, flows *out) {
    counter c = {.m = m, .targets = malloc((size_t)m->world * sizeof *c.targets)};
    flows f = {.old = dcp_checkpoint_files(ckpt), .new = m->world};
    f.ranks = calloc((size_t)(f.old > f.new ? f.old : f.new), sizeof *f.ranks);
    int status = c.targets && f.ranks ? 0 : PROGRAM_FAILED;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt) && !status; i++)
        status = count_tensor(&c, ckpt, i);
    free(c.targets);
    combine(&c);
    f.list = c.list;
    f.n = c.n;
    if (status) {
        flows_free(&f);
        return program_fail(PROGRAM_FAILED, "out of memory");
    }
    add_up(&f);
    *out = f;
    return 0;
}

void flows_free(flows *f) {
    free(f->list);
    free(f->ranks);
    *f = (flows){0};
}
