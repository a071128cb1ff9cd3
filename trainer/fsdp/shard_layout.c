/* Arithmetic of shards. Every rank computes every rank's sizes from shapes alone, so none of them
 * is ever sent. MPI counts are int, so a unit of 2^31 elements or more is rejected at the start. */
#include "fsdp/shard_layout.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "models/model.h"
#include "programs/fail.h"

enum { ROOT = 0 };

/* Returns the room that `elems` elements occupy, up to the next parameter. */
static uint64_t fsdp_padded(uint64_t elems) {
    return (elems + FSDP_ALIGN - 1) / FSDP_ALIGN * FSDP_ALIGN;
}

dcp_tensor fsdp_param_tensor(const fsdp_param *param, const char *path) {
    dcp_tensor tensor = {.path = path, .dtype = DCP_F32, .ndim = param->info.ndim};
    memcpy(tensor.shape, param->info.shape, sizeof tensor.shape);
    return tensor;
}

/* The part of the parameter that rank `rank` of a group's `world` ranks holds. */
static dcp_box fsdp_slice_box(const fsdp_param *param, int rank, int world) {
    const dcp_tensor tensor = fsdp_param_tensor(param, NULL);
    return dcp_box_chunk(&tensor, rank, world);
}

static uint64_t slice_elems(const fsdp_param *param, const dcp_box *box) {
    return dcp_box_elems(box, param->info.ndim);
}

/* The position of this rank's slice in the whole unit. */
static uint64_t slice_at(const fsdp_param *param) {
    return param->whole_at + (param->elems ? param->box.start[0] * param->row_elems : 0);
}

/* Places the unit's trained or frozen parameters, and this rank's slices of them, after the
 * parameters that are already placed. *held: the elements of this rank's shard so far. */
static void place_params(const fsdp_layout *layout, fsdp_unit *unit, bool frozen, uint64_t *held) {
    for (size_t i = 0; i < unit->n; i++) {
        fsdp_param *param = &unit->params[i];
        if (param->info.frozen != frozen) continue;
        const uint64_t elems = model_param_elems(&param->info);
        param->row_elems = param->info.ndim ? elems / param->info.shape[0] : 1;
        param->box = fsdp_slice_box(param, layout->shard, layout->shards);
        param->elems = slice_elems(param, &param->box);
        param->whole_at = unit->whole_elems;
        param->ranked_at = *held;
        param->param_at = unit->param_at + (layout->in_place ? slice_at(param) : *held);
        param->grad_at = frozen ? 0 : unit->grad_at + *held;
        unit->whole_elems += fsdp_padded(elems);
        *held += fsdp_padded(param->elems);
    }
}

static void place_unit(const fsdp_layout *layout, fsdp_unit *unit) {
    uint64_t held = 0;
    place_params(layout, unit, false, &held);
    unit->whole_grad_elems = unit->whole_elems;
    place_params(layout, unit, true, &held);
}

/* Adds a parameter's slices to the ranks' counts. Ranks without a slice come last. */
static void count_slices(const fsdp_param *param, int shards, int *counts) {
    for (int r = 0; r < shards; r++) {
        const dcp_box box = fsdp_slice_box(param, r, shards);
        const uint64_t elems = slice_elems(param, &box);
        if (elems == 0) break;
        counts[r] += (int)fsdp_padded(elems);
    }
}

static uint64_t count_shards(const fsdp_unit *unit, int shards, bool with_frozen, int *counts,
                             int *starts) {
    for (size_t i = 0; i < unit->n; i++)
        if (with_frozen || !unit->params[i].info.frozen)
            count_slices(&unit->params[i], shards, counts);
    uint64_t start = 0;
    for (int r = 0; r < shards; r++) {
        starts[r] = (int)start;
        start += (uint64_t)counts[r];
    }
    return start;
}

/* Returns true if count_shards, which adds up all elements and the padding of each slice, cannot
 * overflow. */
static bool unit_fits(const fsdp_unit *unit, int shards) {
    const uint64_t padding = (uint64_t)unit->n * (uint64_t)shards * FSDP_ALIGN;
    return unit->whole_elems <= INT_MAX && padding <= INT_MAX - unit->whole_elems;
}

static int build_unit(fsdp_layout *layout, size_t u, const model_param *params, dcp_error *err) {
    fsdp_unit *unit = &layout->units[u];
    const size_t shards = (size_t)layout->shards;
    unit->counts = calloc(shards, sizeof *unit->counts);
    unit->starts = calloc(shards, sizeof *unit->starts);
    unit->grad_counts = calloc(shards, sizeof *unit->grad_counts);
    unit->grad_starts = calloc(shards, sizeof *unit->grad_starts);
    if (!unit->counts || !unit->starts || !unit->grad_counts || !unit->grad_starts)
        return core_fail_memory(err, unit->n * sizeof *unit->params);
    for (size_t i = 0; i < unit->n; i++) unit->params[i].info = params[i];
    unit->param_at = layout->param_elems;
    unit->grad_at = layout->grad_elems;
    place_unit(layout, unit);
    if (!unit_fits(unit, layout->shards))
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model: the unit of %s has %" PRIu64
                         " parameters; with padding, a unit must have fewer than 2^31",
                         unit->params[0].info.name, unit->whole_elems);
    unit->gathered_elems = count_shards(unit, layout->shards, true, unit->counts, unit->starts);
    unit->gathered_grad_elems =
        count_shards(unit, layout->shards, false, unit->grad_counts, unit->grad_starts);
    layout->param_elems +=
        layout->in_place ? unit->whole_elems : (uint64_t)unit->counts[layout->shard];
    layout->grad_elems += (uint64_t)unit->grad_counts[layout->shard];
    return DCP_OK;
}

static void count_layout_params(fsdp_layout *layout) {
    for (size_t i = 0; i < layout->n_params; i++) {
        const fsdp_param *param = &layout->params[i];
        layout->total_params += model_param_elems(&param->info);
        if (!param->info.frozen) layout->trained_params += model_param_elems(&param->info);
    }
}

int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, int replicas, int in_place, fsdp_layout **out, dcp_error *err) {
    fsdp_layout *layout = calloc(1, sizeof *layout);
    if (!layout) return core_fail_memory(err, sizeof *layout);
    for (size_t u = 0; u < n_units; u++) layout->n_params += n_params[u];
    layout->units = calloc(n_units, sizeof *layout->units);
    layout->params = calloc(layout->n_params + 1, sizeof *layout->params);
    if (!layout->units || !layout->params) {
        fsdp_layout_destroy(layout);
        return core_fail_memory(err, layout->n_params * sizeof *layout->params);
    }
    layout->n = n_units;
    layout->rank = rank;
    layout->world = world;
    layout->shards = world / replicas;
    layout->shard = rank % layout->shards;
    layout->in_place = in_place;
    int status = DCP_OK;
    for (size_t u = 0, at = 0; u < n_units && status == DCP_OK; at += n_params[u++]) {
        layout->units[u].params = layout->params + at;
        layout->units[u].n = n_params[u];
        status = build_unit(layout, u, params + at, err);
    }
    count_layout_params(layout);
    if (status == DCP_OK)
        *out = layout;
    else
        fsdp_layout_destroy(layout);
    return status;
}

bool fsdp_globs_match(const json_t *globs, const char *name) {
    for (size_t i = 0; i < json_array_size(globs); i++)
        if (fnmatch(json_string_value(json_array_get(globs, i)), name, 0) == 0) return true;
    return false;
}

static bool is_found(const fsdp_layout *layout, const char *glob) {
    for (size_t i = 0; i < layout->n_params; i++)
        if (fnmatch(glob, layout->params[i].info.name, 0) == 0) return true;
    return false;
}

int fsdp_globs_check(const fsdp_layout *layout, const char *key, const json_t *globs,
                     dcp_error *err) {
    for (size_t i = 0; i < json_array_size(globs); i++) {
        const char *glob = json_string_value(json_array_get(globs, i));
        if (!is_found(layout, glob))
            return core_fail(err, DCP_ERR_ARG,
                             "%s: %.200s matches no parameter; the model has, for example, %.200s",
                             key, glob, layout->params[0].info.name);
    }
    return DCP_OK;
}

/* Assigns the model's own units, its root and its blocks, to larger units. */
typedef struct wrapping {
    const model *m;
    size_t n;                   /* the number of units */
    size_t *unit_of, *first_of; /* of the model's units, as in fsdp_layout */
    size_t *counts;             /* [n] parameters of a unit */
} wrapping;

static uint64_t model_unit_elems(const model *m, size_t unit) {
    uint64_t total = 0;
    for (size_t i = 0; i < model_unit_params(m, unit); i++)
        total += model_param_elems(model_unit_param(m, unit, i));
    return total;
}

/* Assigns blocks first ... end - 1 to a unit. */
static void assign_blocks(wrapping *w, size_t first, size_t end, size_t unit) {
    for (size_t block = first; block < end; block++) w->unit_of[block] = unit;
}

/* Joins consecutive blocks until they are large enough. The remaining blocks are assigned to the
 * root, whose last stage follows them. */
static void join_blocks(wrapping *w, uint64_t min_params) {
    uint64_t elems = 0;
    size_t first = 1, next = 1; /* the current blocks */
    w->n = 1;
    for (size_t stage = 1; stage < model_stages(w->m); stage++) {
        const size_t block = model_stage_unit(w->m, stage);
        if (block != ROOT) {
            next = block + 1;
            elems += model_unit_elems(w->m, block);
            if (elems < min_params) continue;
        }
        assign_blocks(w, first, next, block == ROOT ? ROOT : w->n++);
        first = next;
        elems = 0;
    }
}

static void count_unit_params(wrapping *w) {
    for (size_t u = 0; u < model_units(w->m); u++) {
        size_t *count = &w->counts[w->unit_of[u]];
        w->first_of[u] = *count;
        *count += model_unit_params(w->m, u);
    }
}

/* Returns the parameters of all units in order; NULL if out of memory. Free the list with
 * free(). */
static model_param *list_params(const wrapping *w, const json_t *frozen) {
    size_t total = 0, at = 0;
    for (size_t unit = 0; unit < w->n; unit++) total += w->counts[unit];
    model_param *params = malloc(total * sizeof *params);
    for (size_t unit = 0; unit < w->n && params; unit++)
        for (size_t u = 0; u < model_units(w->m); u++) {
            if (w->unit_of[u] != unit) continue;
            for (size_t i = 0; i < model_unit_params(w->m, u); i++, at++) {
                params[at] = *model_unit_param(w->m, u, i);
                params[at].frozen = fsdp_globs_match(frozen, params[at].name);
            }
        }
    return params;
}

static int check_frozen(const json_t *frozen, const fsdp_layout *layout, dcp_error *err) {
    const int status = fsdp_globs_check(layout, "frozen", frozen, err);
    if (status != DCP_OK || layout->trained_params > 0) return status;
    return core_fail(err, DCP_ERR_ARG,
                     "frozen: matches every parameter of the model; nothing is left to train");
}

static int lay_out_units(const wrapping *w, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err) {
    model_param *params = list_params(w, frozen);
    if (!params) return core_fail_memory(err, w->n * sizeof *params);
    int status = fsdp_layout_create(params, w->counts, w->n, rank, world, strategy->replicas,
                                    strategy->in_place, out, err);
    free(params);
    if (status != DCP_OK) return status;
    status = check_frozen(frozen, *out, err);
    if (status == DCP_OK) return DCP_OK;
    fsdp_layout_destroy(*out);
    *out = NULL;
    return status;
}

int fsdp_layout_of_model(const model *m, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err) {
    const size_t n = model_units(m);
    wrapping w = {.m = m,
                  .unit_of = calloc(n, sizeof *w.unit_of),
                  .first_of = calloc(n, sizeof *w.first_of),
                  .counts = calloc(n, sizeof *w.counts)};
    int status = DCP_OK;
    if (!w.unit_of || !w.first_of || !w.counts) {
        status = core_fail_memory(err, n * sizeof *w.counts);
    } else {
        join_blocks(&w, strategy->min_params);
        count_unit_params(&w);
        status = lay_out_units(&w, frozen, strategy, rank, world, out, err);
    }
    free(w.counts);
    if (status == DCP_OK) {
        (*out)->unit_of = w.unit_of;
        (*out)->first_of = w.first_of;
    } else {
        free(w.unit_of);
        free(w.first_of);
    }
    return status;
}

void fsdp_layout_destroy(fsdp_layout *layout) {
    if (!layout) return;
    for (size_t u = 0; u < layout->n; u++) {
        free(layout->units[u].counts);
        free(layout->units[u].starts);
        free(layout->units[u].grad_counts);
        free(layout->units[u].grad_starts);
    }
    free(layout->units);
    free(layout->params);
    free(layout->unit_of);
    free(layout->first_of);
    free(layout);
}

fsdp_range fsdp_grad_range(const fsdp_layout *layout, size_t unit, int rank) {
    const fsdp_unit *u = &layout->units[unit];
    const int shard = rank % layout->shards, replicas = layout->world / layout->shards;
    const uint64_t own = (uint64_t)u->grad_counts[shard], row = (uint64_t)(rank / layout->shards);
    const uint64_t most = fsdp_padded((own + (uint64_t)replicas - 1) / (uint64_t)replicas);
    const uint64_t from = row * most < own ? row * most : own;
    return (fsdp_range){.start = (int)((uint64_t)u->grad_starts[shard] + from),
                        .count = (int)(own - from < most ? own - from : most)};
}

dcp_box fsdp_saved_box(const fsdp_layout *layout, const fsdp_param *param, uint64_t *first) {
    const uint64_t replicas = (uint64_t)(layout->world / layout->shards);
    const uint64_t rows = param->box.count[0], most = (rows + replicas - 1) / replicas;
    const uint64_t from = (uint64_t)(layout->rank / layout->shards) * most;
    const uint64_t skipped = from < rows ? from : rows;
    dcp_box box = param->box;
    box.start[0] += skipped;
    box.count[0] = rows - skipped < most ? rows - skipped : most;
    *first = skipped * param->row_elems;
    return box;
}

struct fsdp_slices {
    const fsdp_layout *layout;
    kernels *k;
    fsdp_direction direction;
    kernels_part *table; /* of all units, in the memory of k */
    uint64_t *starts;    /* [units + 1] */
};

/* The table under construction. Without a list, parts are only counted. */
typedef struct listing {
    kernels_part *list;
    uint64_t n;
} listing;

/* Adds `elems` elements, starting at `whole` in the unit and at `ranked` among the shards. Long
 * slices are cut, because parts are copied in parallel. */
static void add_slice(listing *l, fsdp_direction direction, uint64_t whole, uint64_t ranked,
                      uint64_t elems) {
    for (uint64_t at = 0, n; at < elems; at += n, l->n++) {
        n = elems - at < KERNELS_PART_FLOATS ? elems - at : KERNELS_PART_FLOATS;
        if (!l->list) continue;
        l->list[l->n] = direction == FSDP_JOIN ? (kernels_part){whole + at, ranked + at, n}
                                               : (kernels_part){ranked + at, whole + at, n};
    }
}

/* Adds a rank's slices of the unit's trained or frozen parameters. at: their position among the
 * shards. Returns the position after them. */
static uint64_t add_slices(const fsdp_slices *p, const fsdp_unit *unit, int rank, bool frozen,
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
            add_slices(p, unit, r, false, (uint64_t)unit->grad_starts[r], l);
        } else if (!layout->in_place || r != layout->shard) {
            const uint64_t at = add_slices(p, unit, r, false, (uint64_t)unit->starts[r], l);
            add_slices(p, unit, r, true, at, l);
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
    const bool ok = l.list && p->table;
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
