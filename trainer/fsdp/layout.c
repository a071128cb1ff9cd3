/* Arithmetic of shards. Every rank computes every rank's sizes from shapes alone, so that nothing
 * about them is ever sent. MPI counts are int: a unit of 2^31 elements is refused at the start. */
#include "layout.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../fail.h"

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

/* Places the unit's parameters and this rank's slices. */
static void place_params(fsdp_unit *unit, int rank, int world) {
    uint64_t whole_at = 0, shard_at = unit->shard_at;
    for (size_t i = 0; i < unit->n; i++) {
        fsdp_param *param = &unit->params[i];
        uint64_t elems = 1;
        for (uint32_t d = 0; d < param->info.ndim; d++) elems *= param->info.shape[d];
        param->row_elems = param->info.ndim ? elems / param->info.shape[0] : 1;
        param->box = box_of(param, rank, world);
        param->elems = elems_of(param, &param->box);
        param->whole_at = whole_at;
        param->shard_at = shard_at;
        whole_at += padded(elems);
        shard_at += padded(param->elems);
    }
    unit->whole_elems = whole_at;
}

static void count_shards(fsdp_unit *unit, int world) {
    uint64_t start = 0;
    for (int r = 0; r < world; r++) {
        uint64_t count = 0;
        for (size_t i = 0; i < unit->n; i++) {
            const dcp_box box = box_of(&unit->params[i], r, world);
            count += padded(elems_of(&unit->params[i], &box));
        }
        unit->counts[r] = (int)count;
        unit->starts[r] = (int)start;
        start += count;
    }
    unit->gathered_elems = start;
}

/* An upper bound of what count_shards adds up: each slice's padding included. */
static int unit_fits(const fsdp_unit *unit, int world) {
    const uint64_t padding = (uint64_t)unit->n * (uint64_t)world * FSDP_ALIGN;
    return unit->whole_elems <= INT_MAX && padding <= INT_MAX - unit->whole_elems;
}

static int build_unit(fsdp_layout *layout, size_t u, const model_param *params, dcp_error *err) {
    fsdp_unit *unit = &layout->units[u];
    const size_t world = (size_t)layout->world;
    unit->params = calloc(unit->n + 1, sizeof *unit->params);
    unit->counts = calloc(world, sizeof *unit->counts);
    unit->starts = calloc(world, sizeof *unit->starts);
    if (!unit->params || !unit->counts || !unit->starts)
        return trainer_fail_memory(err, unit->n * sizeof *unit->params);
    for (size_t i = 0; i < unit->n; i++) unit->params[i].info = params[i];
    unit->shard_at = layout->shard_elems;
    place_params(unit, layout->rank, layout->world);
    if (!unit_fits(unit, layout->world))
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model: the unit of %s has %" PRIu64
                            " parameters; at most 2^31 fit in one",
                            unit->params[0].info.name, unit->whole_elems);
    count_shards(unit, layout->world);
    layout->shard_elems += (uint64_t)unit->counts[layout->rank];
    return DCP_OK;
}

static uint64_t count_params(const fsdp_layout *layout) {
    uint64_t total = 0;
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const fsdp_param *param = &layout->units[u].params[i];
            total += param->row_elems * (param->info.ndim ? param->info.shape[0] : 1);
        }
    return total;
}

int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, fsdp_layout **out, dcp_error *err) {
    fsdp_layout *layout = calloc(1, sizeof *layout);
    if (layout) layout->units = calloc(n_units, sizeof *layout->units);
    if (!layout || !layout->units) {
        free(layout);
        return trainer_fail_memory(err, n_units * sizeof *layout->units);
    }
    layout->n = n_units;
    layout->rank = rank;
    layout->world = world;
    int status = DCP_OK;
    for (size_t u = 0; u < n_units && status == DCP_OK; u++) {
        layout->units[u].n = n_params[u];
        status = build_unit(layout, u, params, err);
        params += n_params[u];
    }
    layout->total_params = count_params(layout);
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
    }
    free(layout->units);
    free(layout);
}

/* Calls `copy` for each slice of each rank: where it stands in the whole unit and in rank order. */
static void each_slice(const fsdp_layout *layout, const fsdp_unit *unit,
                       void (*copy)(void *whole, void *ranked, size_t bytes), float *whole,
                       float *ranked) {
    for (int r = 0; r < layout->world; r++) {
        float *at = ranked + unit->starts[r];
        for (size_t i = 0; i < unit->n; i++) {
            const fsdp_param *param = &unit->params[i];
            const dcp_box box = box_of(param, r, layout->world);
            const uint64_t elems = elems_of(param, &box);
            const uint64_t first = box.start[0] * param->row_elems;
            if (elems) copy(whole + param->whole_at + first, at, elems * sizeof(float));
            at += padded(elems);
        }
    }
}

static void copy_to_whole(void *whole, void *ranked, size_t bytes) { memcpy(whole, ranked, bytes); }

static void copy_to_ranked(void *whole, void *ranked, size_t bytes) {
    memcpy(ranked, whole, bytes);
}

void fsdp_join(const fsdp_layout *layout, size_t unit, float *whole, const float *ranked) {
    each_slice(layout, &layout->units[unit], copy_to_whole, whole, (float *)ranked);
}

void fsdp_split(const fsdp_layout *layout, size_t unit, const float *whole, float *ranked) {
    each_slice(layout, &layout->units[unit], copy_to_ranked, (float *)whole, ranked);
}
