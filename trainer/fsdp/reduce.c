/* Every rank sends every other one the pieces of its leaves that are the other's to add up: as many
 * bytes as a reduce-scatter moves. They are added in the order of leaves. A rank without a leaf
 * sends nothing and is skipped; it is not a leaf of zeros, since adding that would make another
 * tree of sums. Where several ranks hold a shard, each adds up a piece of it and they exchange
 * these.
 *
 * The ring leaves the additions to MPI. */
#include "reduce.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "../fail.h"

struct fsdp_reduce {
    const fsdp_layout *layout;
    kernels *k;
    fsdp_mesh mesh;
    fsdp_leaves leaves;
    int ring;
    float *grads;
    float *received;                  /* pieces of all sums of a reduction, in leaf order */
    float **own_slots, **local_slots; /* partial sums beside the storage */
    fsdp_sizes sizes;
    partial_sums *own;   /* [units] of the piece that this rank adds up */
    partial_sums *local; /* [units] of this rank's leaves, whole */
    int *counts;         /* four times [world]: what is sent and received, and where it begins */
    uint64_t sent;       /* elements */
};

static int take_slots(kernels *k, float ***out, size_t n, uint64_t elems, dcp_error *err) {
    *out = calloc(n + 1, sizeof **out);
    if (!*out) return trainer_fail_memory(err, n * sizeof **out);
    for (size_t s = 0; s < n; s++) {
        (*out)[s] = k->alloc(k, elems * sizeof(float));
        if (!(*out)[s]) return trainer_fail_memory(err, elems * sizeof(float));
    }
    return DCP_OK;
}

static int allocate(fsdp_reduce *r, dcp_error *err) {
    const fsdp_sizes *s = &r->sizes;
    if (s->received > INT_MAX)
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model: too few rows in a unit of %" PRIu64 " elements", s->received);
    r->counts = calloc(4 * (size_t)r->layout->world, sizeof *r->counts);
    r->own = calloc(r->layout->n, sizeof *r->own);
    r->local = calloc(r->layout->n, sizeof *r->local);
    if (!r->counts || !r->own || !r->local) return trainer_fail_memory(err, 0);
    r->received = r->k->alloc(r->k, s->received * sizeof(float)); /* never NULL, also for nothing */
    if (!r->received) return trainer_fail_memory(err, s->received * sizeof(float));
    const int status = take_slots(r->k, &r->own_slots, s->n_own_sums, s->own_sum, err);
    if (status != DCP_OK) return status;
    return take_slots(r->k, &r->local_slots, s->n_local_sums, s->local_sum, err);
}

/* Where a piece of this rank's shard stands in its storage. */
static float *own_home(const fsdp_reduce *r, size_t unit, fsdp_piece piece) {
    const fsdp_unit *u = &r->layout->units[unit];
    return r->grads + u->grad_at + (piece.start - u->grad_starts[r->layout->shard]);
}

static void place_own_sums(fsdp_reduce *r) {
    uint64_t offset = 0;
    for (size_t u = 0; u < r->layout->n; u++) {
        const fsdp_piece piece = fsdp_grad_piece(r->layout, u, r->layout->rank);
        r->own[u] = (partial_sums){.k = r->k,
                                   .home = own_home(r, u, piece),
                                   .slots = r->own_slots,
                                   .n_slots = 1 + r->sizes.n_own_sums,
                                   .offset = offset,
                                   .elems = (uint64_t)piece.count};
        offset += (uint64_t)piece.count;
    }
}

/* The first slot of a whole sum is the storage, where that is whole. */
static void place_local_sums(fsdp_reduce *r) {
    const int in_storage = r->layout->shards == 1;
    float *const *slots = r->local_slots;
    uint64_t offset = 0;
    for (size_t u = 0; u < r->layout->n; u++) {
        const uint64_t elems = r->layout->units[u].whole_grad_elems;
        float *home = in_storage ? r->grads + r->layout->units[u].grad_at : NULL;
        if (!in_storage && r->sizes.n_local_sums) home = slots[0] + offset;
        r->local[u] = (partial_sums){.k = r->k,
                                     .home = home,
                                     .slots = in_storage ? slots : slots + 1,
                                     .n_slots = r->sizes.n_local_sums + (size_t)in_storage,
                                     .offset = offset,
                                     .elems = elems};
        offset += elems;
    }
}

int fsdp_reduce_create(const fsdp_plan *plan, const fsdp_mesh *mesh, kernels *k, float *grads,
                       fsdp_reduce **out, dcp_error *err) {
    fsdp_reduce *r = calloc(1, sizeof *r);
    if (!r) return trainer_fail_memory(err, sizeof *r);
    r->layout = plan->layout;
    r->k = k;
    r->mesh = *mesh;
    r->leaves = fsdp_plan_leaves(plan);
    r->ring = plan->strategy.ring;
    r->grads = grads;
    r->sizes = fsdp_plan_sizes(plan);
    const int status = allocate(r, err);
    if (status != DCP_OK) {
        fsdp_reduce_destroy(r);
        return status;
    }
    place_own_sums(r);
    place_local_sums(r);
    *out = r;
    return DCP_OK;
}

static void free_slots(kernels *k, float **slots, size_t n) {
    for (size_t s = 0; s < n && slots; s++) k->free(k, slots[s]);
    free(slots);
}

void fsdp_reduce_destroy(fsdp_reduce *r) {
    if (!r) return;
    free_slots(r->k, r->own_slots, r->sizes.n_own_sums);
    free_slots(r->k, r->local_slots, r->sizes.n_local_sums);
    r->k->free(r->k, r->received);
    free(r->own);
    free(r->local);
    free(r->counts);
    free(r);
}

uint64_t fsdp_reduce_sent_bytes(const fsdp_reduce *r) { return r->sent * sizeof(float); }

static int is_last(const fsdp_reduce *r, uint64_t micro) {
    return micro + 1 == fsdp_leaves_micro_steps(&r->leaves);
}

/* A whole gradient in rank order. */
static const float *in_rank_order(const fsdp_reduce *r, size_t unit, const float *whole,
                                  float *scratch) {
    if (r->layout->shards == 1) return whole;
    fsdp_split(r->layout, unit, whole, scratch);
    return scratch;
}

/* Each rank sends its sum number `round`, where it has so many; `send` is this rank's. What comes
 * is placed in the order of leaves. */
static void exchange(fsdp_reduce *r, size_t unit, uint64_t micro, size_t round, const float *send) {
    const int world = r->layout->world, me = r->layout->rank;
    const int own = fsdp_grad_piece(r->layout, unit, me).count;
    int *send_counts = r->counts, *send_starts = send_counts + world;
    int *counts = send_starts + world, *starts = counts + world;
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t before = 0;
    for (int i = 0; i < world; i++) {
        const fsdp_piece piece = fsdp_grad_piece(r->layout, unit, i);
        const size_t n = fsdp_leaves_parts(&r->leaves, i, micro, parts);
        send_counts[i] = send ? piece.count : 0;
        send_starts[i] = piece.start;
        counts[i] = round < n ? own : 0;
        starts[i] = round < n ? (int)(before + round) * own : 0;
        before += n;
    }
    MPI_Alltoallv(send, send_counts, send_starts, MPI_FLOAT, r->received, counts, starts, MPI_FLOAT,
                  r->mesh.world);
    if (send) r->sent += fsdp_reduce_sends(r->layout, unit);
}

static size_t most_parts(const fsdp_reduce *r, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t most = 0;
    for (int i = 0; i < r->layout->world; i++) {
        const size_t n = fsdp_leaves_parts(&r->leaves, i, micro, parts);
        if (n > most) most = n;
    }
    return most;
}

/* Brings this rank's piece of all sums that are sent after the micro-step. */
static void receive(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch) {
    const partial_sums *local = &r->local[unit];
    fsdp_part parts[FSDP_MOST_PARTS];
    const size_t own = fsdp_leaves_parts(&r->leaves, r->layout->rank, micro, parts);
    const size_t rounds = most_parts(r, micro);
    for (size_t round = 0; round < rounds; round++) {
        const float *send = NULL;
        if (round < own)
            send = in_rank_order(r, unit, r->leaves.local ? local->sums[round].at : whole, scratch);
        exchange(r, unit, micro, round, send);
    }
    partial_clear(&r->local[unit]);
}

static void push_received(fsdp_reduce *r, size_t unit, uint64_t micro) {
    partial_sums *own = &r->own[unit];
    fsdp_part parts[FSDP_MOST_PARTS];
    float *at = r->received;
    for (int i = 0; i < r->layout->world; i++) {
        const size_t n = fsdp_leaves_parts(&r->leaves, i, micro, parts);
        for (size_t p = 0; p < n; p++, at += own->elems) partial_push(own, parts[p], at);
    }
}

/* Ranks that hold the same shard tell each other the pieces that they added up. */
static void spread(fsdp_reduce *r, size_t unit) {
    const fsdp_layout *layout = r->layout;
    const fsdp_unit *u = &layout->units[unit];
    const int replicas = layout->world / layout->shards;
    int *counts = r->counts, *starts = counts + replicas;
    if (replicas == 1) return;
    for (int i = 0; i < replicas; i++) {
        const fsdp_piece piece = fsdp_grad_piece(layout, unit, i * layout->shards + layout->shard);
        counts[i] = piece.count;
        starts[i] = piece.start - u->grad_starts[layout->shard];
    }
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r->grads + u->grad_at, counts, starts,
                   MPI_FLOAT, r->mesh.replicas);
    r->sent += fsdp_spread_sends(layout, unit);
}

static void reduce_in_order(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole,
                            float *scratch) {
    partial_sums *own = &r->own[unit];
    if (r->layout->world > 1) {
        receive(r, unit, micro, whole, scratch);
        push_received(r, unit, micro);
    } else {
        partial_push(own, (fsdp_part){micro, 1}, whole);
    }
    if (!is_last(r, micro)) {
        partial_settle(own);
        return;
    }
    partial_fold(own);
    spread(r, unit);
}

/* sum: of this rank's leaves, whole; zeros where it has none. */
static void reduce_by_ring(fsdp_reduce *r, size_t unit, uint64_t micro, const float *sum,
                           float *scratch) {
    const fsdp_layout *layout = r->layout;
    const fsdp_unit *u = &layout->units[unit];
    const int own = u->grad_counts[layout->shard], is_first = r->leaves.local || micro == 0;
    float *home = r->grads + u->grad_at;
    if (layout->shards > 1) {
        MPI_Reduce_scatter(in_rank_order(r, unit, sum, scratch), r->received, u->grad_counts,
                           MPI_FLOAT, MPI_SUM, r->mesh.shards);
        r->sent += fsdp_ring_sends(layout, unit);
        sum = r->received;
    }
    if (sum != home) {
        if (is_first)
            r->k->copy(r->k, home, sum, (uint64_t)own);
        else
            r->k->add(r->k, home, sum, (uint64_t)own);
    }
    if (!is_last(r, micro) || layout->shards == layout->world) return;
    MPI_Allreduce(MPI_IN_PLACE, home, own, MPI_FLOAT, MPI_SUM, r->mesh.replicas);
    r->sent += 2 * fsdp_spread_sends(layout, unit);
}

void fsdp_reduce_unit(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch) {
    const fsdp_unit *u = &r->layout->units[unit];
    partial_sums *local = &r->local[unit];
    const uint64_t leaf = fsdp_leaf(&r->leaves, r->layout->rank, micro);
    const int has_leaf = leaf < r->leaves.n;
    if (u->whole_grad_elems == 0) return;
    if (r->leaves.local) {
        if (has_leaf) partial_push(local, (fsdp_part){leaf, 1}, whole);
        if (!is_last(r, micro)) {
            partial_settle(local);
            return;
        }
    }
    if (!r->ring || r->layout->world == 1) {
        reduce_in_order(r, unit, micro, whole, scratch);
        return;
    }
    const float *sum = whole;
    if (local->depth > 0)
        sum = partial_join(local);
    else if (!has_leaf)
        r->k->zero(r->k, whole, u->whole_grad_elems);
    reduce_by_ring(r, unit, micro, sum, scratch);
}
