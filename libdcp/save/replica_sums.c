/* A box is a dataset of its own to move_sums, whatever the file's layout.
 *
 * Of a box's n holders, number k adds to its word f(k, own checksum) and f(k + 1 mod n, own
 * checksum), where f scrambles both and the box. So all of a box's words together are, for each k,
 * f(k, checksum of k) with f(k, checksum of k - 1): where all checksums are equal they cancel out.
 */
#include "save/replica_sums.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/crc64.h"
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

static int fill_replicas(state_tensor *const *sorted, const plan_boxes *boxes, int share,
                         save_replicas *out, dcp_error *err) {
    uint64_t blocks = 0;
    const size_t most = share ? 0 : boxes->replicas.n_told;
    out->sums.first = calloc(boxes->n + 1, sizeof *out->sums.first);
    if (!out->sums.first) return core_fail_memory(err, boxes->n * sizeof *out->sums.first);
    for (size_t k = 0; k < boxes->n; k++)
        out->sums.first[k + 1] = blocks += blocks_of_box(sorted, &boxes->boxes[k]);
    out->sums.blocks = calloc(blocks + 1, sizeof *out->sums.blocks);
    out->pieces = calloc(most + 1, sizeof *out->pieces);
    out->rows = calloc(most + 1, sizeof *out->rows);
    if (!out->sums.blocks || !out->pieces || !out->rows)
        return core_fail_memory(err, blocks * 8 + most * sizeof *out->pieces);
    for (size_t k = 0; k < boxes->n && !share; k++)
        if (boxes->boxes[k].replicated && !boxes->boxes[k].keeper)
            add_summed(sorted, &boxes->boxes[k], out->sums.blocks + out->sums.first[k], out);
    return move_pieces_have_copies(out->pieces, out->n)
               ? DCP_OK
               : core_fail_memory(err, out->n * sizeof *out->pieces);
}

int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes, int share,
                       struct staging *staging, save_replicas **out, dcp_error *err) {
    save_replicas *r = *out = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    r->boxes = boxes;
    r->sorted = sorted;
    r->device.staging = staging;
    return fill_replicas(sorted, boxes, share, r, err);
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

/* No checksum, whose errors would cancel out as well: splitmix64's last steps. */
static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

static uint64_t term(uint64_t box, uint64_t holder, uint64_t sum) {
    return scramble(scramble(box + holder) ^ sum);
}

/* Of a box that has too many holders for all to have a turn, those without one say that there is
 * something to look at. */
static uint64_t word_of_box(const save_replicas *replicas, size_t k) {
    const plan_box *b = &replicas->boxes->boxes[k];
    const uint64_t *blocks = replicas->sums.blocks + replicas->sums.first[k];
    const size_t n = replicas->sums.first[k + 1] - replicas->sums.first[k];
    const size_t dims = core_box_dims(replicas->sorted[b->tensor]->tensor.ndim) * sizeof(uint64_t);
    uint64_t box = core_crc64_raw(~(uint64_t)b->tensor, b->box->box.start, dims);
    box = core_crc64_raw(box, b->box->box.count, dims);
    const uint64_t sum = core_crc64_raw(~0ULL, blocks, n * sizeof *blocks);
    if (b->turn >= b->holders) return term(box, b->turn + (uint64_t)b->rank, sum);
    return term(box, b->turn, sum) ^ term(box, (b->turn + 1u) % b->holders, sum);
}

uint64_t save_replicas_word(const save_replicas *replicas) {
    uint64_t word = 0;
    for (size_t k = 0; replicas && k < replicas->boxes->n; k++)
        if (replicas->boxes->boxes[k].replicated) word ^= word_of_box(replicas, k);
    return word;
}

int save_replicas_compare(const dcp_store *store, const save_request *r,
                          const save_replicas *replicas, uint64_t word, dcp_error *err) {
    dcp_error why;
    uint64_t differ;
    if (!replicas || !word) return DCP_OK;
    int status = plan_replicas_compare(store->comm, r->sorted, replicas->boxes, &replicas->sums,
                                       &differ, &why);
    if (status == DCP_ERR_MISMATCH && r->replicas == DCP_REPLICAS_WARN) {
        if (store->comm->rank == 0)
            store_log(store, DCP_LOG_WARNING, "step %llu: %s", (unsigned long long)r->step,
                      why.message);
        return DCP_OK;
    }
    if (status && err) *err = why;
    return status;
}
