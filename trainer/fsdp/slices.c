#include "fsdp/slices.h"

#include <stdlib.h>

#include "programs/fail.h"

struct fsdp_slices {
    const fsdp_layout *layout;
    kernels *k;
    fsdp_direction direction;
    kernels_part *table; /* of all units, in the memory of k */
    uint64_t *starts;    /* [units + 1] */
};

/* The table in the making; without a list parts are only counted. */
typedef struct listing {
    kernels_part *list;
    uint64_t n;
} listing;

/* `elems` from `whole` on in the unit, and from `ranked` on among the shards. Long ones are cut, so
 * that they are copied side by side. */
static void add_slice(listing *l, fsdp_direction direction, uint64_t whole, uint64_t ranked,
                      uint64_t elems) {
    for (uint64_t at = 0, n; at < elems; at += n, l->n++) {
        n = elems - at < KERNELS_PART_FLOATS ? elems - at : KERNELS_PART_FLOATS;
        if (!l->list) continue;
        l->list[l->n] = direction == FSDP_JOIN ? (kernels_part){whole + at, ranked + at, n}
                                               : (kernels_part){ranked + at, whole + at, n};
    }
}

/* The slices that a rank has of the unit's trained, or of its frozen, parameters; `at`: where they
 * stand among the shards. Returns where the next would. */
static uint64_t add_slices(const fsdp_slices *p, const fsdp_unit *unit, int rank, int frozen,
                           uint64_t at, listing *l) {
    for (size_t i = 0; i < unit->n; i++) {
        const fsdp_param *param = &unit->params[i];
        if (param->info.frozen != frozen) continue;
        const dcp_box box = fsdp_slice_box(param, rank, p->layout->shards);
        const uint64_t elems = dcp_box_elems(&box, param->info.ndim);
        const uint64_t first = elems ? box.start[0] * param->row_elems : 0;
        add_slice(l, p->direction, param->whole_at + first, at, elems);
        at += fsdp_padded(elems);
    }
    return at;
}

static void add_unit(const fsdp_slices *p, const fsdp_unit *unit, listing *l) {
    const fsdp_layout *layout = p->layout;
    for (int r = 0; r < layout->shards; r++) {
        if (p->direction == FSDP_SPLIT) {
            add_slices(p, unit, r, 0, (uint64_t)unit->grad_starts[r], l);
        } else if (!layout->in_place || r != layout->shard) {
            const uint64_t at = add_slices(p, unit, r, 0, (uint64_t)unit->starts[r], l);
            add_slices(p, unit, r, 1, at, l);
        }
    }
}

static void list_parts(fsdp_slices *p, listing *l) {
    for (size_t u = 0; u < p->layout->n; u++) {
        p->starts[u] = l->n;
        add_unit(p, &p->layout->units[u], l);
    }
    p->starts[p->layout->n] = l->n;
}

static int make_table(fsdp_slices *p, dcp_error *err) {
    listing l = {0};
    p->starts = calloc(p->layout->n + 1, sizeof *p->starts);
    if (!p->starts) return core_fail_memory(err, p->layout->n * sizeof *p->starts);
    list_parts(p, &l);
    const uint64_t bytes = l.n * sizeof *p->table;
    l = (listing){.list = malloc(bytes + 1)};
    p->table = p->k->alloc(p->k, bytes + 1);
    const int ok = l.list && p->table;
    if (ok) list_parts(p, &l);
    if (ok) p->k->upload(p->k, p->table, l.list, bytes);
    free(l.list);
    return ok ? DCP_OK : core_fail_memory(err, bytes);
}

int fsdp_slices_create(const fsdp_layout *layout, kernels *k, fsdp_direction direction,
                       fsdp_slices **out, dcp_error *err) {
    fsdp_slices *p = calloc(1, sizeof *p);
    if (!p) return core_fail_memory(err, sizeof *p);
    *p = (fsdp_slices){.layout = layout, .k = k, .direction = direction};
    const int status = make_table(p, err);
    if (status)
        fsdp_slices_destroy(p);
    else
        *out = p;
    return status;
}

void fsdp_slices_destroy(fsdp_slices *p) {
    if (!p) return;
    p->k->free(p->k, p->table);
    free(p->starts);
    free(p);
}

void fsdp_slices_copy(const fsdp_slices *p, size_t unit, float *to, const float *from) {
    const uint64_t first = p->starts[unit];
    p->k->copy_parts(p->k, to, from, p->table + first, p->starts[unit + 1] - first);
}
