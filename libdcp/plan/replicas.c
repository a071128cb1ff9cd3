/* A box's checksum is that of the checksums of its blocks, in order. Where all is well, it costs
 * one exchange of 8 bytes a replicated box and one all-reduce. Where not, the cost does not matter:
 * the arbiters answer which boxes differ, and all ranks look at the first of them. */
#include "plan/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "plan/agreement.h"

typedef struct comparison {
    dcp_comm *comm;
    const plan_boxes *plan;
    const plan_sums *sums;
    uint64_t *told;  /* of this rank's boxes, as they go out; then the arbiters' answers */
    uint64_t *heard; /* as an arbiter; then its answers: whether the box's set differs */
    uint64_t *seen;  /* a set: the checksum that came first, and how many others there are */
} comparison;

static size_t count_blocks(const comparison *c, size_t k) {
    return c->sums->first[k + 1] - c->sums->first[k];
}

static const uint64_t *blocks_of(const comparison *c, size_t k) {
    return c->sums->blocks + c->sums->first[k];
}

static int prepare(comparison *c, dcp_error *err) {
    const plan_replicas *r = &c->plan->replicas;
    size_t words = r->n_told + r->n_heard + 2 * r->n_sets;
    c->told = calloc(words + 1, sizeof *c->told);
    if (!c->told) return core_fail_memory(err, words * sizeof *c->told);
    c->heard = c->told + r->n_told;
    c->seen = c->heard + r->n_heard;
    for (size_t i = 0; i < r->n_told; i++)
        c->told[i] = core_crc64_raw(~0ULL, blocks_of(c, r->told[i]),
                                    count_blocks(c, r->told[i]) * sizeof(uint64_t));
    return DCP_OK;
}

/* As an arbiter: the number of its sets in which not all are equal. */
static uint64_t count_different(comparison *c) {
    const plan_replicas *r = &c->plan->replicas;
    uint64_t different = 0, *first = c->seen, *others = c->seen + r->n_sets;
    for (size_t i = r->n_heard; i-- > 0;) first[r->sets[i]] = c->heard[i];
    for (size_t i = 0; i < r->n_heard; i++) {
        uint32_t set = r->sets[i];
        if (c->heard[i] != first[set]) different += !others[set]++;
    }
    for (size_t i = 0; i < r->n_heard; i++) c->heard[i] = others[r->sets[i]] != 0;
    return different;
}

/* The first of this rank's boxes that differ, from `k` on. */
static size_t next_different(const comparison *c, const unsigned char *differs, size_t k) {
    while (k < c->plan->n && !differs[k]) k++;
    return k;
}

/* Collective: the tensor of the first box that differs, and the box. */
static int choose_box(const comparison *c, const unsigned char *differs, uint64_t *tensor,
                      dcp_box *box, dcp_error *err) {
    size_t k = next_different(c, differs, 0);
    int has_one = k < c->plan->n;
    *tensor = has_one ? c->plan->boxes[k].tensor : UINT64_MAX;
    int status = comm_allreduce(c->comm, tensor, 1, DCP_REDUCE_MIN, err);
    uint64_t rank = (uint64_t)c->comm->size;
    if (has_one && c->plan->boxes[k].tensor == *tensor) rank = (uint64_t)c->comm->rank;
    if (!status) status = comm_allreduce(c->comm, &rank, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    if (rank == (uint64_t)c->comm->rank) *box = c->plan->boxes[k].box->box;
    return comm_broadcast(c->comm, box, sizeof *box, (int)rank, err);
}

typedef struct replica_record {
    uint64_t is_held, sum;
} replica_record;

/* Nothing for a rank that does not hold the box: it is not named. */
static void describe_sum(const unsigned char *record, char *text, size_t size) {
    replica_record r;
    memcpy(&r, record, sizeof r);
    text[0] = '\0';
    if (r.is_held) snprintf(text, size, "checksum %016" PRIx64, r.sum);
}

/* Collective: the first block that differs; `own`: this rank's box of that kind, NULL: none. */
static int find_block(const comparison *c, const uint64_t *own, uint64_t n, uint64_t *block,
                      dcp_error *err) {
    uint64_t *least = malloc(2 * n * sizeof *least);
    int status =
        comm_agree(c->comm, least ? DCP_OK : core_fail_memory(err, 2 * n * sizeof *least), err);
    for (uint64_t i = 0; i < n && !status; i++) {
        least[i] = own ? own[i] : UINT64_MAX;
        least[n + i] = own ? ~own[i] : UINT64_MAX;
    }
    if (!status) status = comm_allreduce(c->comm, least, 2 * n, DCP_REDUCE_MIN, err);
    *block = 0;
    while (!status && *block + 1 < n && least[*block] == ~least[n + *block]) ++*block;
    free(least);
    return status;
}

/* Collective: fills in the error. */
static int tell_block(const comparison *c, const dcp_tensor *t, const dcp_box *box,
                      const uint64_t *own, dcp_error *err) {
    const uint32_t dims = core_box_dims(t->ndim);
    const uint64_t bytes = dcp_box_elems(box, dims) * dcp_dtype_bytes(t->dtype);
    uint64_t block, n = (bytes + PLAN_REPLICA_BLOCK - 1) / PLAN_REPLICA_BLOCK;
    int status = find_block(c, own, n, &block, err);
    if (status) return status;
    char what[DCP_MAX_PATH + 500], text[300];
    const uint64_t from = block * PLAN_REPLICA_BLOCK;
    const uint64_t to = block + 1 < n ? from + PLAN_REPLICA_BLOCK : bytes;
    core_box_print(dims, box, text, sizeof text);
    snprintf(what, sizeof what,
             "tensor %s: ranks that hold the same box %s differ in its block %" PRIu64
             " (bytes %" PRIu64 " to %" PRIu64 ")",
             t->path, text, block, from, to);
    const replica_record record = {own != NULL, own ? own[block] : 0};
    return core_fail_tensor(plan_disagree(c->comm, what, &record, sizeof record, describe_sum, err),
                            t->path, err);
}

/* Collective, where some differ. */
static int explain(comparison *c, state_tensor *const *sorted, dcp_error *err) {
    const plan_replicas *r = &c->plan->replicas;
    const uint64_t *own = NULL;
    uint64_t tensor;
    dcp_box box = {{0}, {0}};
    unsigned char *differs = calloc(c->plan->n + 1, 1);
    int status = comm_agree(c->comm, differs ? DCP_OK : core_fail_memory(err, c->plan->n), err);
    if (!status)
        status = comm_alltoall(c->comm, c->heard, r->from_holders, c->told, r->to_arbiters, err);
    for (size_t i = 0; i < r->n_told && !status; i++) differs[r->told[i]] = c->told[i] != 0;
    if (!status) status = choose_box(c, differs, &tensor, &box, err);
    for (size_t k = 0; k < c->plan->n && !status && !own; k++) {
        const plan_box *b = &c->plan->boxes[k];
        const uint32_t dims = core_box_dims(sorted[b->tensor]->tensor.ndim);
        if (b->tensor == tensor && core_box_equal(dims, &b->box->box, &box)) own = blocks_of(c, k);
    }
    free(differs);
    return status ? status : tell_block(c, &sorted[tensor]->tensor, &box, own, err);
}

static void add_number(uint64_t differ, dcp_error *err) {
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, "; %" PRIu64 " such boxes in all",
             differ);
}

int plan_replicas_compare(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const plan_sums *sums, uint64_t *differ, dcp_error *err) {
    const plan_replicas *r = &plan->replicas;
    comparison c = {.comm = comm, .plan = plan, .sums = sums};
    int status = comm_agree(comm, prepare(&c, err), err);
    if (!status)
        status = comm_alltoall(comm, c.told, r->to_arbiters, c.heard, r->from_holders, err);
    *differ = status ? 0 : count_different(&c);
    if (!status) status = comm_allreduce(comm, differ, 1, DCP_REDUCE_SUM, err);
    if (!status && *differ) status = explain(&c, sorted, err);
    if (status == DCP_ERR_MISMATCH && *differ > 1 && err) add_number(*differ, err);
    free(c.told);
    return status;
}
