/* Every rank sends every other rank the part of its micro-batches' gradients that the receiver adds
 * up: as many bytes as a reduce-scatter moves. The receiver adds these parts in the order of
 * micro-batches. A rank without a micro-batch sends nothing and is skipped; it does not count as a
 * micro-batch of zeros, because adding zeros would change the order of the sum.
 *
 * With hybrid sharding, the ranks of a group send gradients only to each other. The group's sums
 * cross to the other groups at the end of each run of micro-batches (fsdp/across.c). If every rank
 * holds the whole state, each rank adds up a range of the gradients, which all ranks send to it,
 * and then sends the result to all ranks.
 *
 * The gradients of one unit can be in flight while the sums of the previous unit cross to other
 * groups. With the ring the transport does the additions. */
#include "fsdp/reduce.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/across.h"
#include "fsdp/shard_layout.h"
#include "fsdp/sum_order.h"
#include "programs/fail.h"

/* The partial sums of gradients that a rank stores, and their memory. */
typedef struct sum_counters {
    fsdp_sum_counter *own;   /* [units] of the piece that this rank adds up; results go to grads */
    fsdp_sum_counter *local; /* [units] of the whole gradients of this rank's micro-batches */
    float **own_slots, **local_slots;
    uint64_t n_own, n_local;
    kernels *k;
} sum_counters;

static int take_counters(sum_counters *s, const fsdp_layout *layout, const fsdp_sizes *sizes,
                         dcp_error *err) {
    s->own = calloc(layout->n, sizeof *s->own);
    s->local = calloc(layout->n, sizeof *s->local);
    if (!s->own || !s->local) return core_fail_memory(err, layout->n * sizeof *s->own);
    const int status = fsdp_sum_allocate_slots(s->k, &s->own_slots, s->n_own, sizes->own_sum, err);
    if (status != DCP_OK) return status;
    return fsdp_sum_allocate_slots(s->k, &s->local_slots, s->n_local, sizes->local_sum, err);
}

/* Returns true if sums of this rank's own micro-batches are stored in `grads`, which requires that
 * the rank holds the whole state. */
static bool is_local_at_home(const fsdp_layout *layout, const fsdp_micro_batches *batches) {
    return layout->shards == 1 && batches->block > 1;
}

static void place_own(sum_counters *s, const fsdp_layout *layout, const fsdp_micro_batches *batches,
                      float *grads) {
    const bool is_hybrid = batches->group < batches->world;
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        fsdp_range piece = fsdp_grad_range(layout, u, layout->rank);
        int before = piece.start - unit->grad_starts[layout->shard];
        if (is_hybrid) before = 0, piece.count = unit->grad_counts[layout->shard];
        s->own[u] = (fsdp_sum_counter){.k = s->k,
                                       .order = batches->order,
                                       .result = grads + unit->grad_at + before,
                                       .result_is_used = is_local_at_home(layout, batches),
                                       .slots = s->own_slots,
                                       .n_slots = s->n_own,
                                       .offset = offset,
                                       .elems = (uint64_t)piece.count};
        offset += (uint64_t)piece.count;
    }
}

static void place_local(sum_counters *s, const fsdp_layout *layout,
                        const fsdp_micro_batches *batches, float *grads) {
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t elems = layout->units[u].whole_grad_elems;
        s->local[u] = (fsdp_sum_counter){.k = s->k,
                                         .order = batches->order,
                                         .result = grads + layout->units[u].grad_at,
                                         .result_is_used = !is_local_at_home(layout, batches),
                                         .slots = s->local_slots,
                                         .n_slots = s->n_local,
                                         .offset = offset,
                                         .elems = elems};
        offset += elems;
    }
}

/* grads: this rank's storage [grad_elems]; borrowed. Call destroy_sums after a failure, too. */
static int create_sums(const fsdp_plan *plan, kernels *k, float *grads, sum_counters *out,
                       dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    *out = (sum_counters){.n_own = sizes.n_own_sums, .n_local = sizes.n_local_sums, .k = k};
    const int status = take_counters(out, plan->layout, &sizes, err);
    if (status != DCP_OK) return status;
    place_own(out, plan->layout, &batches, grads);
    place_local(out, plan->layout, &batches, grads);
    return DCP_OK;
}

static void destroy_sums(sum_counters *s) {
    fsdp_sum_free_slots(s->k, s->own_slots, s->n_own);
    fsdp_sum_free_slots(s->k, s->local_slots, s->n_local);
    free(s->own);
    free(s->local);
}

struct fsdp_reduce {
    const fsdp_layout *layout;
    fsdp_slices *splits;
    kernels *k;
    fsdp_transport *transport;
    timeline *tl;
    fsdp_micro_batches batches;
    bool ring;
    bool is_hybrid;   /* each group adds up its ranks' gradients; the groups' sums cross later */
    fsdp_group group; /* the ranks that send each other gradients */
    int first, ranks; /* the group's lowest rank, and its number of ranks */
    float *grads;
    float *received; /* pieces of all sums of a reduction, in micro-batch order */
    sum_counters sums;
    fsdp_across *across;
    int *counts; /* 4 * [ranks]: counts and starts of what is sent, then of what is received */
    struct {
        bool is_on;
        size_t unit;
        uint64_t micro;
        double started;
    } flight;               /* the unit whose gradients are in flight */
    fsdp_transfer arriving; /* the transfer of these gradients */
    uint64_t sent, left;    /* the number of elements sent, and how many of them left the group */
};

static int replicas_of(const fsdp_reduce *r) { return r->layout->world / r->layout->shards; }

static int reserve_transfer(fsdp_reduce *r, uint64_t received, dcp_error *err) {
    uint64_t sent = 0;
    for (size_t u = 0; u < r->layout->n; u++)
        if (r->layout->units[u].gathered_grad_elems > sent)
            sent = r->layout->units[u].gathered_grad_elems;
    if (r->layout->world == 1) return DCP_OK;
    sent *= sizeof(float), received *= sizeof(float);
    const bool failed = fsdp_transport_reserve(r->transport, r->group, sent, received);
    return failed ? core_fail_memory(err, sent + received) : DCP_OK;
}

static int take_received(fsdp_reduce *r, const fsdp_plan *plan, dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    const uint64_t elems = sizes.received;
    if (elems > INT_MAX || sizes.outbound > INT_MAX || sizes.crossed > INT_MAX)
        return core_fail(
            err, DCP_ERR_UNSUPPORTED,
            "model: the gradients of a unit are too large for one reduction, which brings %" PRIu64
            " elements to a rank",
            elems);
    r->counts = calloc(4 * (size_t)r->ranks, sizeof *r->counts);
    if (!r->counts) return core_fail_memory(err, 0);
    r->received = r->k->alloc(r->k, elems * sizeof(float)); /* never NULL, even for 0 bytes */
    if (!r->received) return core_fail_memory(err, elems * sizeof(float));
    int status = reserve_transfer(r, elems, err);
    if (status == DCP_OK) status = create_sums(plan, r->k, r->grads, &r->sums, err);
    if (status != DCP_OK) return status;
    return fsdp_across_create(plan, r->transport, r->k, r->grads, &r->across, err);
}

int fsdp_reduce_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, timeline *tl,
                       float *grads, fsdp_reduce **out, dcp_error *err) {
    const bool is_hybrid = fsdp_plan_is_hybrid(plan);
    fsdp_reduce *r = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    *r = (fsdp_reduce){.layout = plan->layout,
                       .k = k,
                       .transport = transport,
                       .tl = tl,
                       .batches = fsdp_plan_micro_batches(plan),
                       .ring = plan->strategy.ring && plan->layout->world > 1,
                       .is_hybrid = is_hybrid,
                       .group = is_hybrid ? FSDP_SHARDS : FSDP_WORLD,
                       .first = is_hybrid ? plan->layout->rank - plan->layout->shard : 0,
                       .ranks = is_hybrid ? plan->layout->shards : plan->layout->world,
                       .grads = grads};
    int status = take_received(r, plan, err);
    if (status == DCP_OK) status = fsdp_slices_create(r->layout, k, FSDP_SPLIT, &r->splits, err);
    if (status == DCP_OK)
        *out = r;
    else
        fsdp_reduce_destroy(r);
    return status;
}

void fsdp_reduce_destroy(fsdp_reduce *r) {
    if (!r) return;
    fsdp_slices_destroy(r->splits);
    if (r->received) r->k->free(r->k, r->received);
    destroy_sums(&r->sums);
    fsdp_across_destroy(r->across);
    free(r->counts);
    free(r);
}

uint64_t fsdp_reduce_sent_bytes(const fsdp_reduce *r) {
    return (r->sent + fsdp_across_sent(r->across)) * sizeof(float);
}

uint64_t fsdp_reduce_across_bytes(const fsdp_reduce *r) {
    return (r->left + fsdp_across_sent(r->across)) * sizeof(float);
}

static bool is_last(const fsdp_reduce *r, uint64_t micro) {
    return micro + 1 == fsdp_micro_batches_steps(&r->batches);
}

/* Returns a whole gradient in rank order, in memory that does not change while the gradient is
 * sent. With one shard, only a sum that is in `whole` has to be copied for that. */
static float *in_rank_order(const fsdp_reduce *r, size_t unit, float *sum, const float *whole,
                            float *scratch) {
    if (r->layout->shards > 1)
        fsdp_slices_copy(r->splits, unit, scratch, sum);
    else if (scratch && sum == whole)
        r->k->copy(r->k, scratch, whole, r->layout->units[unit].whole_grad_elems);
    else
        return sum;
    return scratch;
}

/* Returns the range that `rank` adds up, in the gradients that ranks send each other. */
static fsdp_range range_of(const fsdp_reduce *r, size_t unit, int rank) {
    assert(rank >= r->first && rank < r->first + r->ranks);
    const fsdp_unit *u = &r->layout->units[unit];
    const int shard = rank % r->layout->shards;
    if (!r->is_hybrid) return fsdp_grad_range(r->layout, unit, rank);
    return (fsdp_range){.start = u->grad_starts[shard], .count = u->grad_counts[shard]};
}

/* Each rank that has a sum of micro-batches sends its pieces to the ranks that add them up. `send`
 * is this rank's sum. Arriving pieces are placed in the order of micro-batches. */
static void exchange_sums(fsdp_reduce *r, size_t unit, uint64_t micro, float *send) {
    const int own = range_of(r, unit, r->layout->rank).count;
    int *send_counts = r->counts, *send_starts = send_counts + r->ranks;
    int *counts = send_starts + r->ranks, *starts = counts + r->ranks;
    int before = 0;
    for (int i = 0; i < r->ranks; i++) {
        const fsdp_range piece = range_of(r, unit, r->first + i);
        const bool sends = fsdp_micro_batches_part(&r->batches, r->first + i, micro).n > 0;
        send_counts[i] = send ? piece.count : 0;
        send_starts[i] = piece.start;
        counts[i] = sends ? own : 0;
        starts[i] = before;
        before += counts[i];
    }
    r->transport->exchange(r->transport, r->group, (fsdp_segments){send, send_counts, send_starts},
                           (fsdp_segments){r->received, counts, starts}, &r->arriving);
    if (!send) return;
    r->sent += fsdp_reduce_sends(r->layout, r->is_hybrid, unit);
    r->left += fsdp_reduce_leaves(r->layout, r->is_hybrid, unit);
}

static void start_exchange(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole,
                           float *scratch) {
    fsdp_sum_counter *local = &r->sums.local[unit];
    float *send = NULL;
    if (fsdp_micro_batches_part(&r->batches, r->layout->rank, micro).n > 0)
        send = in_rank_order(r, unit, local->depth ? local->sums[0].at : whole, whole, scratch);
    exchange_sums(r, unit, micro, send);
    fsdp_sum_clear(local);
}

static void push_received(fsdp_reduce *r, size_t unit, uint64_t micro) {
    fsdp_sum_counter *own = &r->sums.own[unit];
    float *at = r->received;
    for (int i = 0; i < r->ranks; i++) {
        const fsdp_part part = fsdp_micro_batches_part(&r->batches, r->first + i, micro);
        if (part.n == 0) continue;
        fsdp_sum_push(own, part, at);
        at += own->elems;
    }
}

/* Moves the sums that were pushed in this micro-step out of borrowed memory. */
static void keep_sums(fsdp_reduce *r, size_t unit, uint64_t micro) {
    fsdp_sum_counter *own = &r->sums.own[unit];
    if (r->is_hybrid && fsdp_micro_batches_end_run(&r->batches, micro))
        fsdp_across_exchange(r->across, unit, micro, own);
    else if (is_last(r, micro))
        fsdp_sum_fold(own);
    else
        fsdp_sum_move_to_slots(own);
}

/* Copies or adds the ring's sum over this group's ranks to the shard. */
static void add_to_shard(fsdp_reduce *r, size_t unit, uint64_t micro, const float *sum) {
    const fsdp_unit *u = &r->layout->units[unit];
    const size_t own = (size_t)u->grad_counts[r->layout->shard];
    float *own_shard = r->grads + u->grad_at;
    if (sum == own_shard) return;
    if (micro < r->batches.block)
        r->k->copy(r->k, own_shard, sum, own);
    else
        r->k->add(r->k, own_shard, sum, own);
}

/* Adds up the gradients that have arrived. Sends complete sums to the ranks that hold the same
 * shard. */
static void finish_flight(fsdp_reduce *r) {
    const size_t unit = r->flight.unit;
    const uint64_t micro = r->flight.micro;
    if (!r->flight.is_on) return;
    r->transport->finish(r->transport, &r->arriving);
    if (r->ring) {
        if (r->layout->shards > 1) add_to_shard(r, unit, micro, r->received);
    } else {
        push_received(r, unit, micro);
        keep_sums(r, unit, micro);
    }
    if (is_last(r, micro) && replicas_of(r) > 1) {
        if (r->ring)
            fsdp_across_add(r->across, unit);
        else if (!r->is_hybrid)
            fsdp_across_broadcast(r->across, unit);
    }
    timeline_add(r->tl, TIMELINE_SUM, (long)unit, r->flight.started, MPI_Wtime());
    r->flight.is_on = false;
}

/* Returns the sum of the whole gradients of this rank's micro-batches; zeros if it has none. */
static float *sum_batches(fsdp_reduce *r, size_t unit, bool has_batch, float *whole) {
    fsdp_sum_counter *local = &r->sums.local[unit];
    if (local->depth > 0) return fsdp_sum_join(local);
    if (!has_batch) r->k->zero(r->k, whole, local->elems);
    return whole;
}

/* Adds this micro-batch to the rank's own sum. Returns true if the sum is complete and is sent
 * after this micro-step. */
static bool add_up_own(fsdp_reduce *r, size_t unit, uint64_t micro, uint64_t batch, float *whole) {
    fsdp_sum_counter *local = &r->sums.local[unit];
    const bool is_sent = fsdp_micro_batches_are_sent(&r->batches, micro);
    if (r->batches.block == 1) return true;
    if (r->ring && batch < r->batches.n) batch = micro; /* the ring has an order of its own */
    if (batch < r->batches.n) fsdp_sum_push(local, (fsdp_part){batch, 1}, whole);
    if (!is_sent) fsdp_sum_move_to_slots(local);
    return is_sent;
}

static void start_ring(fsdp_reduce *r, size_t unit, uint64_t micro, float *sum, float *scratch) {
    if (r->layout->shards == 1) {
        add_to_shard(r, unit, micro, sum);
        return;
    }
    fsdp_slices_copy(r->splits, unit, scratch, sum);
    r->transport->reduce_scatter(r->transport, FSDP_SHARDS, scratch, r->received,
                                 r->layout->units[unit].grad_counts, &r->arriving);
    r->sent += fsdp_ring_sends(r->layout, unit);
}

void fsdp_reduce_start(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch) {
    const uint64_t batch = fsdp_micro_batch_of(&r->batches, r->layout->rank, micro);
    const bool has_batch = batch < r->batches.n;
    if (r->layout->units[unit].whole_grad_elems == 0) return;
    if (r->layout->world == 1) {
        fsdp_sum_push(&r->sums.own[unit], (fsdp_part){batch, 1}, whole);
        keep_sums(r, unit, micro);
        return;
    }
    finish_flight(r); /* the flight may use the memory of the sums */
    assert(!r->arriving.is_on);
    if (!add_up_own(r, unit, micro, batch, whole)) return;
    r->flight.is_on = true;
    r->flight.unit = unit;
    r->flight.micro = micro;
    r->flight.started = MPI_Wtime();
    if (r->ring)
        start_ring(r, unit, micro, sum_batches(r, unit, has_batch, whole), scratch);
    else
        start_exchange(r, unit, micro, whole, scratch);
}

void fsdp_reduce_poll(fsdp_reduce *r) {
    if (r->arriving.is_on)
        r->transport->poll(r->transport, &r->arriving);
    else
        fsdp_across_poll(r->across);
}

void fsdp_reduce_finish(fsdp_reduce *r) {
    finish_flight(r);
    fsdp_across_finish(r->across);
}
