/* Arithmetic of shards. Every rank computes every rank's sizes from shapes alone, so that nothing
 * about them is ever sent. MPI counts are int: a unit of 2^31 elements is refused at the start. */
#include "fsdp/layout.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

static uint64_t padded(uint64_t elems) {
    return (elems + FSDP_ALIGN - 1) / FSDP_ALIGN * FSDP_ALIGN;
}

dcp_tensor fsdp_param_tensor(const fsdp_param *param, const char *path) {
    dcp_tensor tensor = {.path = path, .dtype = DCP_F32, .ndim = param->info.ndim};
    memcpy(tensor.shape, param->info.shape, sizeof tensor.shape);
    return tensor;
}

static dcp_box box_of(const fsdp_param *param, int rank, int world) {
    const dcp_tensor tensor = fsdp_param_tensor(param, NULL);
    return dcp_box_chunk(&tensor, rank, world);
}

static uint64_t elems_of(const fsdp_param *param, const dcp_box *box) {
    return dcp_box_elems(box, param->info.ndim);
}

static uint64_t whole_elems(const fsdp_param *param) {
    uint64_t elems = 1;
    for (uint32_t d = 0; d < param->info.ndim; d++) elems *= param->info.shape[d];
    return elems;
}

/* This rank's slice in the whole unit. */
static uint64_t slice_at(const fsdp_param *param) {
    return param->whole_at + (param->elems ? param->box.start[0] * param->row_elems : 0);
}

/* Places the unit's trained, or its frozen, parameters and this rank's slices behind what stands
 * there; `held` elements of this rank's shard do. */
static void place_params(const fsdp_layout *layout, fsdp_unit *unit, int frozen, uint64_t *held) {
    for (size_t i = 0; i < unit->n; i++) {
        fsdp_param *param = &unit->params[i];
        if (param->info.frozen != frozen) continue;
        const uint64_t elems = whole_elems(param);
        param->row_elems = param->info.ndim ? elems / param->info.shape[0] : 1;
        param->box = box_of(param, layout->shard, layout->shards);
        param->elems = elems_of(param, &param->box);
        param->whole_at = unit->whole_elems;
        param->ranked_at = *held;
        param->param_at = unit->param_at + (layout->in_place ? slice_at(param) : *held);
        param->grad_at = frozen ? 0 : unit->grad_at + *held;
        unit->whole_elems += padded(elems);
        *held += padded(param->elems);
    }
}

static void place_unit(const fsdp_layout *layout, fsdp_unit *unit) {
    uint64_t held = 0;
    place_params(layout, unit, 0, &held);
    unit->whole_grad_elems = unit->whole_elems;
    place_params(layout, unit, 1, &held);
}

/* Adds a parameter's slices to what the ranks hold. Those after the last one that has some of it
 * hold nothing. */
static void count_slices(const fsdp_param *param, int shards, int *counts) {
    for (int r = 0; r < shards; r++) {
        const dcp_box box = box_of(param, r, shards);
        const uint64_t elems = elems_of(param, &box);
        if (elems == 0) break;
        counts[r] += (int)padded(elems);
    }
}

static uint64_t count_shards(const fsdp_unit *unit, int shards, int with_frozen, int *counts,
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

/* An upper bound of what count_shards adds up: each slice's padding included. */
static int unit_fits(const fsdp_unit *unit, int shards) {
    const uint64_t padding = (uint64_t)unit->n * (uint64_t)shards * FSDP_ALIGN;
    return unit->whole_elems <= INT_MAX && padding <= INT_MAX - unit->whole_elems;
}

static int build_unit(fsdp_layout *layout, size_t u, const model_param *params, dcp_error *err) {
    fsdp_unit *unit = &layout->units[u];
    const size_t shards = (size_t)layout->shards;
    unit->params = calloc(unit->n + 1, sizeof *unit->params);
    unit->counts = calloc(shards, sizeof *unit->counts);
    unit->starts = calloc(shards, sizeof *unit->starts);
    unit->grad_counts = calloc(shards, sizeof *unit->grad_counts);
    unit->grad_starts = calloc(shards, sizeof *unit->grad_starts);
    if (!unit->params || !unit->counts || !unit->starts || !unit->grad_counts || !unit->grad_starts)
        return core_fail_memory(err, unit->n * sizeof *unit->params);
    for (size_t i = 0; i < unit->n; i++) unit->params[i].info = params[i];
    unit->param_at = layout->param_elems;
    unit->grad_at = layout->grad_elems;
    place_unit(layout, unit);
    if (!unit_fits(unit, layout->shards))
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model: the unit of %s has %" PRIu64
                         " parameters; at most 2^31 fit in one",
                         unit->params[0].info.name, unit->whole_elems);
    unit->gathered_elems = count_shards(unit, layout->shards, 1, unit->counts, unit->starts);
    unit->gathered_grad_elems =
        count_shards(unit, layout->shards, 0, unit->grad_counts, unit->grad_starts);
    layout->param_elems +=
        layout->in_place ? unit->whole_elems : (uint64_t)unit->counts[layout->shard];
    layout->grad_elems += (uint64_t)unit->grad_counts[layout->shard];
    return DCP_OK;
}

static void count_params(fsdp_layout *layout) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const fsdp_param *param = &layout->units[u].params[i];
            layout->total_params += whole_elems(param);
            if (!param->info.frozen) layout->trained_params += whole_elems(param);
        }
}

int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, int replicas, int in_place, fsdp_layout **out, dcp_error *err) {
    fsdp_layout *layout = calloc(1, sizeof *layout);
    if (layout) layout->units = calloc(n_units, sizeof *layout->units);
    if (!layout || !layout->units) {
        free(layout);
        return core_fail_memory(err, n_units * sizeof *layout->units);
    }
    layout->n = n_units;
    layout->rank = rank;
    layout->world = world;
    layout->shards = world / replicas;
    layout->shard = rank % layout->shards;
    layout->in_place = in_place;
    int status = DCP_OK;
    for (size_t u = 0; u < n_units && status == DCP_OK; u++) {
        layout->units[u].n = n_params[u];
        status = build_unit(layout, u, params, err);
        params += n_params[u];
    }
    count_params(layout);
    if (status == DCP_OK)
        *out = layout;
    else
        fsdp_layout_destroy(layout);
    return status;
}

void fsdp_layout_destroy(fsdp_layout *layout) {
    if (!layout) return;
    for (size_t u = 0; u < layout->n; u++) {
        free(layout->units[u].params);
        free(layout->units[u].counts);
        free(layout->units[u].starts);
        free(layout->units[u].grad_counts);
        free(layout->units[u].grad_starts);
    }
    free(layout->units);
    free(layout->unit_of);
    free(layout->first_of);
    free(layout);
}

fsdp_piece fsdp_grad_piece(const fsdp_layout *layout, size_t unit, int rank) {
    const fsdp_unit *u = &layout->units[unit];
    const int shard = rank % layout->shards, replicas = layout->world / layout->shards;
    const uint64_t own = (uint64_t)u->grad_counts[shard], row = (uint64_t)(rank / layout->shards);
    const uint64_t most = padded((own + (uint64_t)replicas - 1) / (uint64_t)replicas);
    const uint64_t from = row * most < own ? row * most : own;
    return (fsdp_piece){.start = (int)((uint64_t)u->grad_starts[shard] + from),
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

/* Copies the slices that rank r has of the unit's trained, or of its frozen, parameters between
 * where each stands in the whole unit, and where they follow each other from `ranked` on. Returns
 * where the next would stand. */
static float *copy_slices(const fsdp_layout *layout, const fsdp_unit *unit, int r, int frozen,
                          kernels *k, int to_whole, float *whole, float *ranked) {
    for (size_t i = 0; i < unit->n; i++) {
        const fsdp_param *param = &unit->params[i];
        if (param->info.frozen != frozen) continue;
        const dcp_box box = box_of(param, r, layout->shards);
        const uint64_t elems = elems_of(param, &box);
        float *in_whole = whole + param->whole_at + box.start[0] * param->row_elems;
        if (elems) k->copy(k, to_whole ? in_whole : ranked, to_whole ? ranked : in_whole, elems);
        ranked += padded(elems);
    }
    return ranked;
}

void fsdp_join(const fsdp_layout *layout, size_t unit, kernels *k, float *whole,
               const float *ranked) {
    const fsdp_unit *u = &layout->units[unit];
    for (int r = 0; r < layout->shards; r++) {
        float *from = (float *)ranked + u->starts[r];
        if (layout->in_place && r == layout->shard) continue;
        from = copy_slices(layout, u, r, 0, k, 1, whole, from);
        copy_slices(layout, u, r, 1, k, 1, whole, from);
    }
}

void fsdp_split(const fsdp_layout *layout, size_t unit, kernels *k, const float *whole,
                float *ranked) {
    const fsdp_unit *u = &layout->units[unit];
    for (int r = 0; r < layout->shards; r++)
        copy_slices(layout, u, r, 0, k, 0, (float *)whole, ranked + u->grad_starts[r]);
}
