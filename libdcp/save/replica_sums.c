/* A box is a dataset of its own to move_sums, whatever the file's layout. */
#include "save/replica_sums.h"

#include <stdlib.h>

#include "core/fail.h"
#include "save/request.h"

static uint64_t bytes_of(state_tensor *const *sorted, const plan_box *b) {
    const dcp_tensor *t = &sorted[b->tensor]->tensor;
    return dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

static void add_summed(state_tensor *const *sorted, const plan_box *b, uint64_t *sums,
                       save_replicas *out) {
    const box_copy all = {.run_bytes = bytes_of(sorted, b), .runs = 1};
    step_row *row = &out->rows[out->n];
    move_piece *p = &out->pieces[out->n++];
    *row = (step_row){.tensor = sorted[b->tensor]->tensor, .bytes = all.run_bytes};
    *p = (move_piece){.bytes = row->bytes, .row = row, .box = b->box, .sums = sums};
    move_piece_set_copy(p, &all);
    p->bulk = 0;
    if (b->box->device) p->device = &out->device;
}

static uint64_t blocks_of_box(state_tensor *const *sorted, const plan_box *b) {
    return b->replicated ? (bytes_of(sorted, b) + PLAN_REPLICA_BLOCK - 1) / PLAN_REPLICA_BLOCK : 0;
}

static int fill_replicas(state_tensor *const *sorted, const plan_boxes *boxes, save_replicas *out,
                         dcp_error *err) {
    uint64_t blocks = 0;
    out->sums.first = calloc(boxes->n + 1, sizeof *out->sums.first);
    if (!out->sums.first) return core_fail_memory(err, boxes->n * sizeof *out->sums.first);
    for (size_t k = 0; k < boxes->n; k++)
        out->sums.first[k + 1] = blocks += blocks_of_box(sorted, &boxes->boxes[k]);
    out->sums.blocks = calloc(blocks + 1, sizeof *out->sums.blocks);
    out->pieces = calloc(boxes->replicas.n_told + 1, sizeof *out->pieces);
    out->rows = calloc(boxes->replicas.n_told + 1, sizeof *out->rows);
    if (!out->sums.blocks || !out->pieces || !out->rows)
        return core_fail_memory(err, blocks * 8 + boxes->replicas.n_told * sizeof *out->pieces);
    for (size_t k = 0; k < boxes->n; k++)
        if (boxes->boxes[k].replicated && !boxes->boxes[k].keeper)
            add_summed(sorted, &boxes->boxes[k], out->sums.blocks + out->sums.first[k], out);
    return move_pieces_have_copies(out->pieces, out->n)
               ? DCP_OK
               : core_fail_memory(err, out->n * sizeof *out->pieces);
}

int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes,
                       struct staging *staging, save_replicas **out, dcp_error *err) {
    save_replicas *r = *out = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    r->device.staging = staging;
    return fill_replicas(sorted, boxes, r, err);
}

void save_replicas_free(save_replicas *replicas) {
    if (!replicas) return;
    move_pieces_free(replicas->pieces, replicas->n);
    free(replicas->rows);
    free(replicas->sums.first);
    free(replicas->sums.blocks);
    free(replicas);
}

uint64_t *save_replicas_own(const save_replicas *replicas, size_t k) {
    if (!replicas) return NULL;
    const plan_sums *s = &replicas->sums;
    return s->first[k] < s->first[k + 1] ? s->blocks + s->first[k] : NULL;
}

int save_replicas_compare(const dcp_store *store, const save_request *r, const plan_boxes *boxes,
                          const save_replicas *replicas, dcp_error *err) {
    dcp_error why;
    uint64_t differ;
    if (!replicas) return DCP_OK;
    int status =
        plan_replicas_compare(store->comm, r->sorted, boxes, &replicas->sums, &differ, &why);
    if (status == DCP_ERR_MISMATCH && r->replicas == DCP_REPLICAS_WARN) {
        if (store->comm->rank == 0)
            store_log(store, DCP_LOG_WARNING, "step %llu: %s", (unsigned long long)r->step,
                      why.message);
        return DCP_OK;
    }
    if (status && err) *err = why;
    return status;
}
