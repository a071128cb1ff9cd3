/* Planning a save, unless tensors and boxes are as they were in the last one. */
#include "save/plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "move/engine.h"
#include "plan/agreement.h"
#include "save/request.h"

#define META_UNIT (64u << 10)

#define SHARD_MEMBER 128 /* {"rank":99999,"state_id":"...","world":99999} */

/* Length of /dcp/meta: whole multiples of 64 KiB, with room for a shard's own member. */
static uint64_t meta_bytes_of(const char *meta, dcp_layout layout) {
    uint64_t bytes = strlen(meta) + (layout == DCP_LAYOUT_SHARDED ? SHARD_MEMBER : 0);
    return (bytes / META_UNIT + 1) * META_UNIT;
}

static uint64_t hash(uint64_t raw, const void *data, size_t bytes) {
    return core_crc64_raw(raw, data, bytes);
}

static uint64_t local_key(const save_request *request) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < request->n; i++) {
        const state_tensor *t = request->sorted[i];
        uint64_t head[] = {t->tensor.dtype, t->tensor.ndim, t->n_boxes};
        size_t dims = core_box_dims(t->tensor.ndim) * sizeof(uint64_t);
        raw = hash(raw, head, sizeof head);
        raw = hash(raw, t->tensor.shape, dims);
        raw = hash(raw, t->tensor.path, strlen(t->tensor.path) + 1);
        for (size_t k = 0; k < t->n_boxes; k++) {
            int64_t rank = t->boxes[k].rank;
            raw = hash(raw, t->boxes[k].box.start, dims);
            raw = hash(raw, t->boxes[k].box.count, dims);
            raw = hash(raw, &rank, sizeof rank);
        }
    }
    return raw;
}

void save_plan_free(save_plan *plan) {
    if (!plan) return;
    plan_boxes_free(&plan->boxes);
    save_file_free(&plan->file);
    save_shards_free(&plan->shards_written);
    free(plan);
}

typedef struct agreed {
    uint64_t meta_bytes;
    const move_engine *engine;
    int unchanged;
} agreed;

/* One all-reduce tells whether the ranks' arguments agree and whether any rank has to plan. */
static int agree_request(dcp_store *store, const save_request *r, int unchanged, agreed *out,
                         dcp_error *err) {
    enum { N = 5, UNCHANGED = 2 * N, META, ENGINE, ALL };
    const plan_value what[N] = {{"the step", r->step, 0},
                                {"the layout", r->layout, 0},
                                {"the number of shards", (uint64_t)r->shards, 0},
                                {"the engine", r->engine, 0},
                                {"replicas", r->replicas, 0}};
    uint64_t least[ALL];
    int is_first = store->comm->rank == 0;
    for (int i = 0; i < N; i++) {
        least[i] = what[i].value;
        least[N + i] = ~what[i].value;
    }
    least[UNCHANGED] = (uint64_t)unchanged;
    least[META] = is_first ? ~meta_bytes_of(r->meta, r->layout) : UINT64_MAX;
    /* an engine that is named is chosen; else rank 0 chooses */
    int chooses = is_first || move_engine_row(r->engine);
    least[ENGINE] = chooses ? move_engine_choose(r->engine, store->dir)->engine : UINT64_MAX;
    int status = comm_allreduce(store->comm, least, ALL, DCP_REDUCE_MIN, err);
    if (status) return status;
    for (int i = 0; i < N; i++)
        if (least[i] != ~least[N + i]) return plan_value_differs(store->comm, &what[i], err);
    *out =
        (agreed){~least[META], move_engine_row((dcp_engine)least[ENGINE]), (int)least[UNCHANGED]};
    return DCP_OK;
}

/* The rows of layout global: tensors as they are. Paths are copied, the plan outlives the state. */
static int make_rows(const save_request *r, save_file *file, dcp_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->n; i++) bytes += strlen(r->sorted[i]->tensor.path) + 1;
    file->rows = calloc(r->n + 1, sizeof *file->rows);
    file->paths = malloc(bytes + 1);
    if (!file->rows || !file->paths) return core_fail_memory(err, bytes);
    char *path = file->paths;
    for (size_t i = 0; i < r->n; i++) {
        const state_tensor *t = r->sorted[i];
        file->rows[i] =
            (step_row){.tensor = t->tensor, .bytes = t->bytes, .first_block = file->blocks};
        size_t length = strlen(t->tensor.path) + 1;
        file->rows[i].tensor.path = memcpy(path, t->tensor.path, length);
        path += length;
        file->blocks += step_index_blocks(t->bytes);
    }
    file->n = r->n;
    file->layout = DCP_LAYOUT_GLOBAL;
    return DCP_OK;
}

/* Rank 0 knows where everything lies; the others need offsets and the file's size. */
static int share_offsets(dcp_comm *comm, save_file *file, dcp_error *err) {
    uint64_t *offsets = malloc((file->n + 1) * sizeof *offsets);
    int status =
        comm_agree(comm, offsets ? DCP_OK : core_fail_memory(err, file->n * sizeof *offsets), err);
    if (status) goto free_offsets;
    for (size_t i = 0; i < file->n; i++) offsets[i] = file->rows[i].offset;
    offsets[file->n] = file->skeleton.file_bytes;
    status = comm_broadcast(comm, offsets, (file->n + 1) * sizeof *offsets, 0, err);
    for (size_t i = 0; i < file->n && !status; i++) file->rows[i].offset = offsets[i];
    if (!status) file->skeleton.file_bytes = offsets[file->n];
free_offsets:
    free(offsets);
    return status;
}

static int lay_out_global(dcp_comm *comm, const save_request *r, uint64_t meta_bytes,
                          save_file *file, dcp_error *err) {
    int status = make_rows(r, file, err);
    if (!status && comm->rank == 0)
        status = h5_skeleton_build(file->rows, file->n, DCP_LAYOUT_GLOBAL, meta_bytes,
                                   &file->skeleton, err);
    status = comm_agree(comm, status, err);
    return status ? status : share_offsets(comm, file, err);
}

static int lay_out_sharded(dcp_comm *comm, const save_request *r, save_plan *plan, dcp_error *err) {
    int status = save_shards_lay_out(r, &plan->boxes, comm->rank, comm->size, plan->meta_bytes,
                                     &plan->shards_written, err);
    return comm_agree(comm, status, err);
}

static int plan_anew(dcp_store *store, const save_request *r, uint64_t key, uint64_t meta_bytes,
                     save_plan **out, dcp_error *err) {
    save_plan *plan = calloc(1, sizeof *plan);
    int status = comm_agree(store->comm, plan ? DCP_OK : core_fail_memory(err, sizeof *plan), err);
    if (status) goto free_plan;
    plan->key = key;
    plan->layout = r->layout;
    plan->shards = r->shards;
    plan->meta_bytes = meta_bytes;
    plan->tensors = plan_fingerprint(r->sorted, r->n);
    status = plan_tensors(store->comm, r->sorted, r->n, err);
    if (!status) status = plan_exchange(store->comm, r->sorted, r->n, 1, &plan->boxes, err);
    if (!status && r->layout == DCP_LAYOUT_GLOBAL)
        status = lay_out_global(store->comm, r, meta_bytes, &plan->file, err);
    if (!status && r->layout == DCP_LAYOUT_SHARDED)
        status = lay_out_sharded(store->comm, r, plan, err);
    if (status) goto free_plan;
    save_plan_free(*out);
    *out = plan;
    return DCP_OK;
free_plan:
    save_plan_free(plan);
    return status;
}

/* A plan made for an equal state has its boxes at the same places of another one. */
static void repoint(save_plan *plan, const save_request *r) {
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t b = 0; b < r->sorted[i]->n_boxes; b++)
            plan->boxes.boxes[k++].box = &r->sorted[i]->boxes[b];
}

int save_plan_make(dcp_store *store, const save_request *r, struct save_plan **out,
                   dcp_error *err) {
    double begin = core_clock_now();
    uint64_t key = local_key(r);
    const save_plan *last = *out;
    int unchanged =
        last && last->key == key && last->layout == r->layout && last->shards == r->shards;
    agreed all = {0};
    int status = agree_request(store, r, unchanged, &all, err);
    if (status) return status;
    if (!all.unchanged || last->meta_bytes != all.meta_bytes) {
        status = plan_anew(store, r, key, all.meta_bytes, out, err);
        if (status) return status;
    } else {
        repoint(*out, r);
    }
    (*out)->engine = all.engine;
    (*out)->begin = begin;
    (*out)->end = core_clock_now();
    return DCP_OK;
}
