/* Every rank sends every owner its slices of the leaf that it computed: as many bytes as a
 * reduce-scatter moves. The owner adds them in leaf order. A rank without a leaf sends nothing and
 * is skipped; it is not a leaf of zeros, since adding that would make another tree of sums. */
#include "reduce.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "../fail.h"

struct fsdp_reduce {
    const fsdp_layout *layout;
    kernels *k;
    MPI_Comm comm;
    uint64_t leaves;
    uint64_t received_elems;
    float *received; /* shards of all leaves of a micro-step, in leaf order */
    float **slots;   /* the first is the caller's */
    size_t n_slots;
    partial_sums *sums; /* [units] */
    int *counts;        /* four times [world]: what is sent and received, and where it begins */
};

static uint64_t received_elems(const fsdp_layout *layout, uint64_t leaves) {
    uint64_t most = 0;
    if (layout->world == 1) return 0;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t own = (uint64_t)layout->units[u].grad_counts[layout->rank];
        if (own > most) most = own;
    }
    const uint64_t world = (uint64_t)layout->world;
    return most * (leaves < world ? leaves : world);
}

static int allocate(fsdp_reduce *r, float *grads, dcp_error *err) {
    const fsdp_layout *layout = r->layout;
    const uint64_t received = received_elems(layout, r->leaves);
    if (received > INT_MAX)
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model: too few rows in a unit of %" PRIu64 " elements", received);
    const uint64_t shard_bytes = layout->grad_elems * sizeof(float);
    r->counts = calloc(4 * (size_t)layout->world, sizeof *r->counts);
    r->sums = calloc(layout->n, sizeof *r->sums);
    r->slots = calloc(r->n_slots, sizeof *r->slots);
    if (!r->counts || !r->sums || !r->slots) return trainer_fail_memory(err, 0);
    r->slots[0] = grads;
    for (size_t s = 1; s < r->n_slots; s++) {
        r->slots[s] = r->k->alloc(r->k, shard_bytes);
        if (!r->slots[s]) return trainer_fail_memory(err, shard_bytes);
    }
    r->received = r->k->alloc(r->k, received * sizeof(float)); /* never NULL, also for nothing */
    if (!r->received) return trainer_fail_memory(err, received * sizeof(float));
    r->received_elems = received;
    return DCP_OK;
}

int fsdp_reduce_create(const fsdp_layout *layout, kernels *k, MPI_Comm comm, uint64_t leaves,
                       float *grads, fsdp_reduce **out, dcp_error *err) {
    fsdp_reduce *r = calloc(1, sizeof *r);
    if (!r) return trainer_fail_memory(err, sizeof *r);
    r->layout = layout;
    r->k = k;
    r->comm = comm;
    r->leaves = leaves;
    r->n_slots = partial_slots(leaves, (uint64_t)layout->world);
    const int status = allocate(r, grads, err);
    if (status != DCP_OK) {
        fsdp_reduce_destroy(r);
        return status;
    }
    for (size_t u = 0; u < layout->n; u++)
        r->sums[u] = (partial_sums){.k = k,
                                    .slots = r->slots,
                                    .n_slots = r->n_slots,
                                    .offset = layout->units[u].grad_at,
                                    .elems = (uint64_t)layout->units[u].grad_counts[layout->rank]};
    *out = r;
    return DCP_OK;
}

void fsdp_reduce_destroy(fsdp_reduce *r) {
    if (!r) return;
    for (size_t s = 1; s < r->n_slots && r->slots; s++) r->k->free(r->k, r->slots[s]);
    r->k->free(r->k, r->received);
    free(r->slots);
    free(r->sums);
    free(r->counts);
    free(r);
}

uint64_t fsdp_reduce_micro_steps(const fsdp_reduce *r) {
    const uint64_t world = (uint64_t)r->layout->world;
    return (r->leaves + world - 1) / world;
}

uint64_t fsdp_reduce_partial_bytes(const fsdp_reduce *r) {
    return (r->n_slots - 1) * r->layout->grad_elems * sizeof(float);
}

uint64_t fsdp_reduce_received_bytes(const fsdp_reduce *r) {
    return r->received_elems * sizeof(float);
}

/* Leaves of the micro-step: ranks 0 ... n - 1 have one each. */
static int leaves_in(const fsdp_reduce *r, uint64_t micro) {
    const uint64_t left = r->leaves - micro * (uint64_t)r->layout->world;
    return left < (uint64_t)r->layout->world ? (int)left : r->layout->world;
}

static void exchange(fsdp_reduce *r, const fsdp_unit *unit, int n_leaves, const float *send) {
    const int world = r->layout->world, own = unit->grad_counts[r->layout->rank];
    int *send_counts = r->counts, *send_starts = send_counts + world;
    int *counts = send_starts + world, *starts = counts + world;
    const int sends = r->layout->rank < n_leaves;
    for (int i = 0; i < world; i++) {
        send_counts[i] = sends ? unit->grad_counts[i] : 0;
        send_starts[i] = unit->grad_starts[i];
        counts[i] = i < n_leaves ? own : 0;
        starts[i] = i < n_leaves ? i * own : 0;
    }
    MPI_Alltoallv(send, send_counts, send_starts, MPI_FLOAT, r->received, counts, starts, MPI_FLOAT,
                  r->comm);
}

void fsdp_reduce_unit(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch) {
    const fsdp_unit *u = &r->layout->units[unit];
    const int n_leaves = leaves_in(r, micro), own = u->grad_counts[r->layout->rank];
    float *leaves = whole;
    if (u->whole_grad_elems == 0) return;
    if (r->layout->world > 1) {
        if (r->layout->rank < n_leaves) fsdp_split(r->layout, unit, whole, scratch);
        exchange(r, u, n_leaves, scratch);
        leaves = r->received;
    }
    for (int i = 0; i < n_leaves; i++)
        partial_push(&r->sums[unit], leaves + (size_t)i * (size_t)own);
    if (micro + 1 < fsdp_reduce_micro_steps(r))
        partial_settle(&r->sums[unit]);
    else
        partial_fold(&r->sums[unit]);
}
