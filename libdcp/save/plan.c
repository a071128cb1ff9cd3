/* Planning a save, unless tensors and boxes are as they were in the last one. */
#include "save/plan.h"

#include <stdlib.h>
#include <string.h>

#include "comm/stop.h"
#include "core/box.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "move/engine.h"
#include "move/kept.h"
#include "plan/agreement.h"
#include "save/request.h"

#define META_UNIT (64u << 10)

#define SHARD_MEMBER 128 /* {"rank":99999,"state_id":"...","world":99999} */

/* Length of /dcp/meta: whole multiples of 64 KiB, with room for a shard's own member. */
static uint64_t meta_bytes_of(uint64_t json_bytes, dcp_layout layout) {
    uint64_t bytes = json_bytes + (layout == DCP_LAYOUT_SHARDED ? SHARD_MEMBER : 0);
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
    for (int i = 0; i < 2; i++) move_kept_free(&plan->moves[i]);
    free(plan->moves);
    save_shards_free(&plan->shards_written);
    free(plan);
}

/* Of save_request.told, behind the values. */
enum {
    NEEDS_NO_PLAN = 2 * SAVE_TOLD_VALUES, /* 0: a rank's tensors or boxes are not as they were */
    META,                                 /* ~bytes of the JSON, as rank 0 has it */
    ENGINE,
    TENSORS,              /* fingerprint, and its complement */
    INTACT = TENSORS + 2, /* the step that is known to be intact, and its complement */
    TOLD_WORDS = INTACT + 2,
};
_Static_assert(TOLD_WORDS == SAVE_TOLD_WORDS, "what is told has its room");

static void list_values(const save_request *r, plan_value values[SAVE_TOLD_VALUES]) {
    values[0] = (plan_value){"the step", r->step, 0};
    values[1] = (plan_value){"the layout", r->layout, 0};
    values[2] = (plan_value){"the number of shards", (uint64_t)r->shards, 0};
    values[3] = (plan_value){"the engine", r->engine, 0};
    values[4] = (plan_value){"replicas", r->replicas, 0};
}

static int is_of(const save_plan *plan, const save_request *r) {
    return plan->key == r->key && plan->layout == r->layout && plan->shards == r->shards;
}

/* One all-reduce tells whether the ranks' arguments agree and whether any rank has to plan. */
void save_plan_tell(const dcp_store *store, save_request *r, const save_plan *last,
                    uint64_t *told) {
    plan_value values[SAVE_TOLD_VALUES];
    r->key = local_key(r);
    const int is_first = store->comm->rank == 0, chooses = is_first || move_engine_row(r->engine),
              unchanged = last && is_of(last, r);
    list_values(r, values);
    plan_value_tell(values, SAVE_TOLD_VALUES, told);
    told[NEEDS_NO_PLAN] = (uint64_t)unchanged;
    told[META] = is_first ? ~(uint64_t)strlen(r->meta) : UINT64_MAX;
    /* an engine that is named is chosen; else rank 0 chooses */
    told[ENGINE] = chooses ? move_engine_choose(r->engine, store->dir)->engine : UINT64_MAX;
    told[TENSORS] = unchanged ? last->tensors : plan_fingerprint(r->sorted, r->n);
    told[TENSORS + 1] = ~told[TENSORS];
    told[INTACT] = store->has_intact ? store->newest_intact : UINT64_MAX;
    told[INTACT + 1] = ~told[INTACT];
}

/* Collective. */
static int compare_requests(const dcp_store *store, const save_request *r, dcp_error *err) {
    plan_value values[SAVE_TOLD_VALUES];
    list_values(r, values);
    int status = plan_value_compare(store->comm, values, SAVE_TOLD_VALUES, r->told, err);
    if (status) return status;
    return plan_tensors_compare(store->comm, r->sorted, r->n, r->told + TENSORS, err);
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

/* Not collective. Rank 0 knows where everything lies; the others need offsets and the file's size,
 * for which there is room. */
static int lay_out_global(const dcp_comm *comm, const save_request *r, uint64_t meta_bytes,
                          const h5_asked *asked, save_file *file, uint64_t **offsets,
                          dcp_error *err) {
    int status = make_rows(r, file, err);
    *offsets = malloc((r->n + 1) * sizeof **offsets);
    if (!status && !*offsets) status = core_fail_memory(err, r->n * sizeof **offsets);
    if (status || comm->rank) return status;
    return h5_skeleton_build(file->rows, file->n, DCP_LAYOUT_GLOBAL, meta_bytes, asked,
                             &file->skeleton, err);
}

static int share_offsets(dcp_comm *comm, save_file *file, uint64_t *offsets, dcp_error *err) {
    for (size_t i = 0; i < file->n; i++) offsets[i] = file->rows[i].offset;
    offsets[file->n] = file->skeleton.file_bytes;
    int status = comm_broadcast(comm, offsets, (file->n + 1) * sizeof *offsets, 0, err);
    for (size_t i = 0; i < file->n && !status; i++) file->rows[i].offset = offsets[i];
    if (!status) file->skeleton.file_bytes = offsets[file->n];
    return status;
}

static int lay_out_sharded(dcp_comm *comm, const save_request *r, const h5_asked *asked,
                           save_plan *plan, dcp_error *err) {
    int status = save_shards_lay_out(r, &plan->boxes, comm->rank, comm->size, plan->meta_bytes,
                                     asked, &plan->shards_written, err);
    return comm_agree(comm, status, err);
}

static save_plan *begin_plan(const save_request *r, uint64_t meta_bytes) {
    save_plan *plan = calloc(1, sizeof *plan);
    struct move_kept *moves = calloc(2, sizeof *moves);
    if (!plan || !moves) {
        free(plan);
        free(moves);
        return NULL;
    }
    *plan = (save_plan){.key = r->key,
                        .layout = r->layout,
                        .shards = r->shards,
                        .meta_bytes = meta_bytes,
                        .tensors = r->told[TENSORS],
                        .moves = moves};
    return plan;
}

static int ask_stop(void *stop, dcp_error *err) { return comm_stop_ask(stop, err); }

/* Collective. What rank 0 lays out depends on the tensors alone, so it does that first. */
static int plan_anew(dcp_store *store, const save_request *r, uint64_t meta_bytes, save_plan **out,
                     dcp_error *err) {
    dcp_comm *comm = store->comm;
    const int is_global = r->layout == DCP_LAYOUT_GLOBAL;
    comm_stop stop = r->progress.stop;
    const h5_asked asked = {ask_stop, &stop};
    uint64_t *offsets = NULL;
    plan_boxes boxes = {0};
    save_plan *plan = begin_plan(r, meta_bytes);
    int status = plan ? DCP_OK : core_fail_memory(err, sizeof *plan);
    comm_stop_begin(&stop, comm);
    if (!status && is_global)
        status = lay_out_global(comm, r, meta_bytes, &asked, &plan->file, &offsets, err);
    status = plan_exchange(comm, status, r->sorted, r->n, 1, &boxes, err);
    if (!status) {
        plan->boxes = boxes;
        status = is_global ? share_offsets(comm, &plan->file, offsets, err)
                           : lay_out_sharded(comm, r, &asked, plan, err);
    }
    free(offsets);
    if (status) {
        save_plan_free(plan);
        return status;
    }
    save_plan_free(*out);
    *out = plan;
    return DCP_OK;
}

/* A plan made for an equal state has its boxes at the same places of another one. */
static void repoint(save_plan *plan, const save_request *r) {
    size_t k = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t b = 0; b < r->sorted[i]->n_boxes; b++)
            plan->boxes.boxes[k++].box = &r->sorted[i]->boxes[b];
}

int save_plan_serves(save_plan *plan, save_request *r) {
    r->key = local_key(r);
    if (!is_of(plan, r)) return 0;
    repoint(plan, r);
    return 1;
}

int save_plan_make(dcp_store *store, const save_request *r, save_plan **out, dcp_error *err) {
    const double begin = core_clock_now() - r->told_s;
    int status = compare_requests(store, r, err);
    if (status) return status;
    const uint64_t meta_bytes = meta_bytes_of(~r->told[META], r->layout);
    if (!r->told[NEEDS_NO_PLAN] || (*out)->meta_bytes != meta_bytes) {
        status = plan_anew(store, r, meta_bytes, out, err);
        if (status) return status;
    } else {
        repoint(*out, r);
    }
    (*out)->engine = move_engine_row((dcp_engine)r->told[ENGINE]);
    (*out)->json_bytes = ~r->told[META];
    (*out)->intact = r->told[INTACT] == ~r->told[INTACT + 1] ? r->told[INTACT] : UINT64_MAX;
    (*out)->begin = begin;
    (*out)->end = core_clock_now();
    return DCP_OK;
}
