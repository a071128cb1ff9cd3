/* Compares the ranks' lists of tensors. If they are equal, a single all-reduce of a checksum shows
 * it. Otherwise the cost does not matter: rank 0's list is broadcast, to find the first tensor that
 * differs. */
#include "plan/agreement.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/messages.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"

enum { HEAD = 8 + 8 * DCP_MAX_DIMS };

/* Writes dtype, ndim and shape as bytes. Returns where they end. */
static unsigned char *put_used(const dcp_tensor *t, unsigned char *out) {
    core_put_u32(out, (uint32_t)t->dtype);
    core_put_u32(out + 4, t->ndim);
    for (uint32_t d = 0; d < t->ndim; d++) core_put_u64(out + 8 + 8 * d, t->shape[d]);
    return out + 8 + 8 * t->ndim;
}

/* Writes dtype, ndim and shape with room for DCP_MAX_DIMS dimensions. In a list, the tensor's path
 * follows, with its NUL. */
static void put_head(const dcp_tensor *t, unsigned char *out) {
    memset(out, 0, HEAD);
    put_used(t, out);
}

uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n) {
    uint64_t raw = ~0ULL;
    unsigned char text[HEAD + DCP_MAX_PATH + 1];
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        char *path = (char *)put_used(&sorted[i]->tensor, text);
        unsigned char *end = (unsigned char *)stpcpy(path, sorted[i]->tensor.path) + 1;
        raw = core_crc64_raw(raw, text, (uint64_t)(end - text));
    }
    return raw;
}

static bool serialize(state_tensor *const *sorted, size_t n, comm_buffer *list) {
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(sorted[i]->tensor.path) + 1;
        unsigned char *at = comm_buffer_append(list, HEAD + length);
        if (!at) return false;
        put_head(&sorted[i]->tensor, at);
        memcpy(at + HEAD, sorted[i]->tensor.path, length);
    }
    return true;
}

enum { RECORD = 1 + HEAD }; /* whether a rank has the tensor, and the tensor's head */

static void describe_tensor(const unsigned char *record, char *text, size_t size) {
    const unsigned char *head = record + 1;
    uint64_t shape[DCP_MAX_DIMS];
    uint32_t ndim = core_get_u32(head + 4);
    if (!record[0]) {
        snprintf(text, size, "missing");
        return;
    }
    for (uint32_t d = 0; d < ndim; d++) shape[d] = core_get_u64(head + 8 + 8 * d);
    int used = snprintf(text, size, "%s ", dcp_dtype_name((dcp_dtype)core_get_u32(head)));
    core_shape_print(ndim, shape, text + used, size - (size_t)used);
}

/* Both lists ascend by path. Returns the path at the first place where they differ, or NULL. */
static const char *first_difference(state_tensor *const *sorted, size_t n,
                                    const comm_buffer *list) {
    const unsigned char *at = list->data, *end = at + list->bytes;
    for (size_t i = 0; i < n || at < end; i++) {
        const char *theirs = at < end ? (const char *)at + HEAD : NULL;
        const char *ours = i < n ? sorted[i]->tensor.path : NULL;
        int order = !theirs ? -1 : !ours ? 1 : strcmp(ours, theirs);
        if (order) return order < 0 ? ours : theirs;
        unsigned char head[HEAD];
        put_head(&sorted[i]->tensor, head);
        if (memcmp(head, at, HEAD)) return ours;
        at += HEAD + strlen(theirs) + 1;
    }
    return NULL;
}

/* Collective. Fills in the error, which says what each rank has under one path. If several ranks
 * differ from rank 0, this is the first path at which the lowest of them does. `own` is the first
 * path at which this rank differs from rank 0, or NULL. */
static int name_difference(dcp_comm *comm, state_tensor *const *sorted, size_t n, const char *own,
                           dcp_error *err) {
    char path[DCP_MAX_PATH + 1] = "", what[DCP_MAX_PATH + 16];
    unsigned char record[RECORD] = {0};
    uint64_t lowest = own ? (uint64_t)comm->rank : (uint64_t)comm->size;
    int status = comm_allreduce(comm, &lowest, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    if (lowest == (uint64_t)comm->size) /* never: equal lists would have equal checksums */
        return core_fail(err, DCP_ERR_MISMATCH, "ranks passed different lists of tensors");
    if (own) snprintf(path, sizeof path, "%s", own);
    status = comm_broadcast(comm, path, sizeof path, (int)lowest, err);
    if (status) return status;
    for (size_t i = 0; i < n && !record[0]; i++)
        if (!strcmp(sorted[i]->tensor.path, path)) {
            record[0] = 1;
            put_head(&sorted[i]->tensor, record + 1);
        }
    snprintf(what, sizeof what, "tensor %s", path);
    return core_fail_tensor(comm_disagree(comm, what, record, sizeof record, describe_tensor, err),
                            path, err);
}

static int explain_difference(dcp_comm *comm, state_tensor *const *sorted, size_t n,
                              dcp_error *err) {
    comm_buffer list = {0};
    int status = DCP_OK;
    if (comm->rank == 0 && !serialize(sorted, n, &list)) status = core_fail_memory(err, list.bytes);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_buffer_broadcast(comm, &list, 0, err);
    if (!status) status = name_difference(comm, sorted, n, first_difference(sorted, n, &list), err);
    free(list.data);
    return status;
}

int plan_tensors_check(dcp_comm *comm, state_tensor *const *sorted, size_t n, bool are_equal,
                       dcp_error *err) {
    return are_equal ? DCP_OK : explain_difference(comm, sorted, n, err);
}

int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err) {
    comm_vote v = {0};
    uint64_t hash = plan_fingerprint(sorted, n);
    bool are_equal;
    comm_vote_equal(&v, true, &hash, &are_equal);
    const int status = comm_vote_run(comm, &v, DCP_OK, err);
    return status ? status : plan_tensors_check(comm, sorted, n, are_equal, err);
}

/* Compares replicas. A box's checksum is computed over the checksums of its blocks, in order. If
 * all replicas are equal, the comparison costs one exchange of 8 bytes per replicated box, and one
 * all-reduce. Otherwise the cost does not matter: the arbiters report to the holders which boxes
 * differ, and all ranks examine the first of these boxes. */

typedef struct comparison {
    dcp_comm *comm;
    const plan_boxes *plan;
    const plan_sums *sums;
    uint64_t *sent;     /* first the checksums of this rank's boxes, in the order in which they are
                           sent; later the arbiters' answers */
    uint64_t *received; /* as an arbiter: first the checksums that it has received; later its
                        answers, 1 if the box's set contains different boxes */
    uint64_t *seen;     /* per set, the first checksum; then, per set, the number of checksums that
                           differ from the first */
} comparison;

static size_t count_blocks(const comparison *c, size_t k) {
    return c->sums->first[k + 1] - c->sums->first[k];
}

static const uint64_t *blocks_of(const comparison *c, size_t k) {
    return c->sums->blocks + c->sums->first[k];
}

static int prepare(comparison *c, dcp_error *err) {
    const plan_replicas *r = &c->plan->replicas;
    size_t words = r->n_sent + r->n_received + 2 * r->n_sets;
    c->sent = calloc(words + 1, sizeof *c->sent);
    if (!c->sent) return core_fail_memory(err, words * sizeof *c->sent);
    c->received = c->sent + r->n_sent;
    c->seen = c->received + r->n_received;
    for (size_t i = 0; i < r->n_sent; i++)
        c->sent[i] = core_crc64_raw(~0ULL, blocks_of(c, r->sent[i]),
                                    count_blocks(c, r->sent[i]) * sizeof(uint64_t));
    return DCP_OK;
}

/* Called on an arbiter. Returns the number of its sets in which not all boxes are equal, and writes
 * its answers into c->received. */
static uint64_t count_different(comparison *c) {
    const plan_replicas *r = &c->plan->replicas;
    uint64_t different = 0, *first = c->seen, *others = c->seen + r->n_sets;
    for (size_t i = r->n_received; i-- > 0;) first[r->sets[i]] = c->received[i];
    for (size_t i = 0; i < r->n_received; i++) {
        uint32_t set = r->sets[i];
        if (c->received[i] != first[set]) different += !others[set]++;
    }
    for (size_t i = 0; i < r->n_received; i++) c->received[i] = others[r->sets[i]] != 0;
    return different;
}

/* Returns this rank's first box that differs, starting at box `k`. */
static size_t next_different(const comparison *c, const unsigned char *differs, size_t k) {
    while (k < c->plan->n && !differs[k]) k++;
    return k;
}

/* Collective: finds the first box that differs, and its tensor. */
static int choose_box(const comparison *c, const unsigned char *differs, uint64_t *tensor,
                      dcp_box *box, dcp_error *err) {
    size_t k = next_different(c, differs, 0);
    bool has_one = k < c->plan->n;
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

/* Prints nothing for a rank that does not hold the box, so that the message leaves it out. */
static void describe_sum(const unsigned char *record, char *text, size_t size) {
    replica_record r;
    memcpy(&r, record, sizeof r);
    text[0] = '\0';
    if (r.is_held) snprintf(text, size, "checksum %016" PRIx64, r.sum);
}

/* Collective: finds the first block that differs. `own` has the checksums of this rank's replica,
 * or is NULL if this rank does not hold the box. */
static int find_block(const comparison *c, const uint64_t *own, uint64_t n, uint64_t *block,
                      dcp_error *err) {
    uint64_t *least = core_array(2 * n, sizeof *least);
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
static int fail_block(const comparison *c, const dcp_tensor *t, const dcp_box *box,
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
    return core_fail_tensor(comm_disagree(c->comm, what, &record, sizeof record, describe_sum, err),
                            t->path, err);
}

/* Collective, if some boxes differ: finds the first one and fills in the error. */
static int explain(comparison *c, state_tensor *const *sorted, dcp_error *err) {
    const plan_replicas *r = &c->plan->replicas;
    const uint64_t *own = NULL;
    uint64_t tensor;
    dcp_box box = {{0}, {0}};
    unsigned char *differs = calloc(c->plan->n + 1, 1);
    int status = comm_agree(c->comm, differs ? DCP_OK : core_fail_memory(err, c->plan->n), err);
    if (!status)
        status = comm_alltoall(c->comm, c->received, r->from_holders, c->sent, r->to_arbiters, err);
    for (size_t i = 0; i < r->n_sent && !status; i++) differs[r->sent[i]] = c->sent[i] != 0;
    if (!status) status = choose_box(c, differs, &tensor, &box, err);
    for (size_t k = 0; k < c->plan->n && !status && !own; k++) {
        const plan_box *b = &c->plan->boxes[k];
        const uint32_t dims = core_box_dims(sorted[b->tensor]->tensor.ndim);
        if (b->tensor == tensor && core_box_equal(dims, &b->box->box, &box)) own = blocks_of(c, k);
    }
    free(differs);
    return status ? status : fail_block(c, &sorted[tensor]->tensor, &box, own, err);
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
        status = comm_alltoall(comm, c.sent, r->to_arbiters, c.received, r->from_holders, err);
    *differ = status ? 0 : count_different(&c);
    if (!status) status = comm_allreduce(comm, differ, 1, DCP_REDUCE_SUM, err);
    if (!status && *differ) status = explain(&c, sorted, err);
    if (status == DCP_ERR_MISMATCH && *differ > 1 && err) add_number(*differ, err);
    free(c.sent);
    return status;
}
