/* Every rank sends every other one the part of its micro-batches' gradients that the other adds up:
 * as many bytes as a reduce-scatter moves. They are added in the order of micro-batches. A rank
 * without a micro-batch sends nothing and is skipped. It does not count as a micro-batch of zeros:
 * adding those would change the order of the sum.
 *
 * With hybrid sharding the ranks of a group do that among themselves, and what their group adds up
 * to crosses to the others after a step's last micro-batch (fsdp/across.c). Where every rank holds
 * all of the state, a group is a rank, so all ranks send each other a range of the gradients to add
 * up, and then the results.
 *
 * The gradients of one unit are in flight at a time, and what crosses of the unit before it. With
 * the ring the transport does the additions. */
#include "fsdp/reduce.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/across.h"
#include "fsdp/slices.h"
#include "fsdp/sum_counter.h"
#include "programs/fail.h"

/* The partial sums of gradients that a rank keeps, and their memory. */
typedef struct sum_counters {
    fsdp_sum_counter *own;   /* [units] of the piece that this rank adds up; ends in its storage */
    fsdp_sum_counter *local; /* [units] of this rank's micro-batches, whole */
    float **own_slots, **local_slots;
    size_t n_own, n_local;
    kernels *k;
} sum_counters;

static int take_slots(kernels *k, float ***out, size_t n, uint64_t elems, dcp_error *err) {
    *out = calloc(n + 1, sizeof **out);
    if (!*out) return core_fail_memory(err, n * sizeof **out);
    for (size_t s = 0; s < n; s++) {
        (*out)[s] = k->alloc(k, elems * sizeof(float));
        if (!(*out)[s]) return core_fail_memory(err, elems * sizeof(float));
    }
    return DCP_OK;
}

static int take_counters(sum_counters *s, const fsdp_layout *layout, const fsdp_sizes *sizes,
                         dcp_error *err) {
    s->own = calloc(layout->n, sizeof *s->own);
    s->local = calloc(layout->n, sizeof *s->local);
    if (!s->own || !s->local) return core_fail_memory(err, layout->n * sizeof *s->own);
    const int status = take_slots(s->k, &s->own_slots, s->n_own, sizes->own_sum, err);
    if (status != DCP_OK) return status;
    return take_slots(s->k, &s->local_slots, s->n_local, sizes->local_sum, err);
}

static void place_own(sum_counters *s, const fsdp_layout *layout, int is_hybrid, float *grads) {
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        fsdp_range piece = fsdp_grad_range(layout, u, layout->rank);
        int before = piece.start - unit->grad_starts[layout->shard];
        if (is_hybrid) before = 0, piece.count = unit->grad_counts[layout->shard];
        s->own[u] = (fsdp_sum_counter){.k = s->k,
                                       .result = grads + unit->grad_at + before,
                                       .slots = s->own_slots,
                                       .n_slots = 1 + s->n_own,
                                       .offset = offset,
                                       .elems = (uint64_t)piece.count};
        offset += (uint64_t)piece.count;
    }
}

static void place_local(sum_counters *s, const fsdp_layout *layout, float *grads) {
    const int in_storage = layout->shards == 1;
    float *const *slots = s->local_slots;
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t elems = layout->units[u].whole_grad_elems;
        float *result = in_storage ? grads + layout->units[u].grad_at : NULL;
        if (!in_storage && s->n_local) result = slots[0] + offset;
        s->local[u] = (fsdp_sum_counter){.k = s->k,
                                         .result = result,
                                         .slots = in_storage ? slots : slots + 1,
                                         .n_slots = s->n_local + (size_t)in_storage,
                                         .offset = offset,
                                         .elems = elems};
        offset += elems;
    }
}

/* grads: this rank's storage [grad_elems]; borrowed. destroy_sums also after a failure. */
static int create_sums(const fsdp_plan *plan, kernels *k, float *grads, sum_counters *out,
                       dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    *out = (sum_counters){.n_own = sizes.n_own_sums, .n_local = sizes.n_local_sums, .k = k};
    const int status = take_counters(out, plan->layout, &sizes, err);
    if (status != DCP_OK) return status;
    place_own(out, plan->layout, fsdp_plan_is_hybrid(plan), grads);
    place_local(out, plan->layout, grads);
    return DCP_OK;
}

static void free_slots(kernels *k, float **slots, size_t n) {
    for (size_t s = 0; s < n && slots; s++) k->free(k, slots[s]);
    free(slots);
}

static void destroy_sums(sum_counters *s) {
    free_slots(s->k, s->own_slots, s->n_own);
    free_slots(s->k, s->local_slots, s->n_local);
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
    int ring;
    int is_hybrid;    /* ranks of a group add up what it computed; the groups' sums cross later */
    fsdp_group group; /* the ranks that send each other gradients: */
    int first, ranks; /* so many, from that one on */
    float *grads;
    float *received; /* pieces of all sums of a reduction, in micro-batch order */
    sum_counters sums;
    fsdp_across *across;
    int *counts; /* four times [ranks]: what is sent and received, and where it begins */
    struct {
        int is_on;
        size_t unit;
        uint64_t micro;
        double started;
    } flight;               /* the unit whose gradients are in flight */
    fsdp_transfer arriving; /* they */
    uint64_t sent;          /* elements, within the group */
};

static int replicas_of(const fsdp_reduce *r) { return r->layout->world / r->layout->shards; }

static int reserve_transfer(fsdp_reduce *r, uint64_t received, dcp_error *err) {
    uint64_t sent = 0;
    for (size_t u = 0; u < r->layout->n; u++)
        if (r->layout->units[u].gathered_grad_elems > sent)
            sent = r->layout->units[u].gathered_grad_elems;
    if (r->layout->world == 1) return DCP_OK;
    sent *= sizeof(float), received *= sizeof(float);
    const int failed = fsdp_transport_reserve(r->transport, r->group, sent, received);
    return failed ? core_fail_memory(err, sent + received) : DCP_OK;
}

static int take_received(fsdp_reduce *r, const fsdp_plan *plan, dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    const uint64_t elems = sizes.received;
    if (elems > INT_MAX || sizes.outbound > INT_MAX || sizes.crossed > INT_MAX)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model: too few rows in a unit of %" PRIu64 " elements", elems);
    r->counts = calloc(4 * (size_t)r->ranks, sizeof *r->counts);
    if (!r->counts) return core_fail_memory(err, 0);
    r->received = r->k->alloc(r->k, elems * sizeof(float)); /* never NULL, also for nothing */
    if (!r->received) return core_fail_memory(err, elems * sizeof(float));
    int status = reserve_transfer(r, elems, err);
    if (status == DCP_OK) status = create_sums(plan, r->k, r->grads, &r->sums, err);
    if (status != DCP_OK) return status;
    return fsdp_across_create(plan, r->transport, r->k, r->grads, &r->across, err);
}

int fsdp_reduce_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, timeline *tl,
                       float *grads, fsdp_reduce **out, dcp_error *err) {
    const int is_hybrid = fsdp_plan_is_hybrid(plan);
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

/* Where a group is one rank, all goes to others. */
uint64_t fsdp_reduce_across_bytes(const fsdp_reduce *r) {
    if (r->layout->shards == 1) return fsdp_reduce_sent_bytes(r);
    return fsdp_across_sent(r->across) * sizeof(float);
}

static int is_last(const fsdp_reduce *r, uint64_t micro) {
    return micro + 1 == fsdp_micro_batches_steps(&r->batches);
}

/* A whole gradient in rank order, in memory that stays as it is: partial sums in slots do. */
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

/* What a rank adds up of what the ranks send each other. */
static fsdp_range range_of(const fsdp_reduce *r, size_t unit, int rank) {
    const fsdp_unit *u = &r->layout->units[unit];
    const int shard = rank % r->layout->shards;
    if (!r->is_hybrid) return fsdp_grad_range(r->layout, unit, rank);
    return (fsdp_range){.start = u->grad_starts[shard], .count = u->grad_counts[shard]};
}

/* Each rank sends its sum number `round`, where it has so many; `send` is this rank's. What comes
 * is placed in the order of micro-batches. */
static void exchange_sums(fsdp_reduce *r, size_t unit, uint64_t micro, size_t round, float *send) {
    const int own = range_of(r, unit, r->layout->rank).count;
    int *send_counts = r->counts, *send_starts = send_counts + r->ranks;
    int *counts = send_starts + r->ranks, *starts = counts + r->ranks;
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t before = 0;
    for (int i = 0; i < r->ranks; i++) {
        const fsdp_range piece = range_of(r, unit, r->first + i);
        const size_t n = fsdp_micro_batches_parts(&r->batches, r->first + i, micro, parts);
        send_counts[i] = send ? piece.count : 0;
        send_starts[i] = piece.start;
        counts[i] = round < n ? own : 0;
        starts[i] = round < n ? (int)(before + round) * own : 0;
        before += n;
    }
    r->transport->exchange(r->transport, r->group, (fsdp_stretches){send, send_counts, send_starts},
                           (fsdp_stretches){r->received, counts, starts}, &r->arriving);
    if (send) r->sent += fsdp_reduce_sends(r->layout, r->is_hybrid, unit);
}

static size_t most_parts(const fsdp_reduce *r, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t most = 0;
    for (int i = 0; i < r->ranks; i++) {
        const size_t n = fsdp_micro_batches_parts(&r->batches, r->first + i, micro, parts);
        if (n > most) most = n;
    }
    return most;
}

/* Sends for this rank's piece of all sums that are sent after the micro-step: only the last ones
 * are still in flight when it returns. */
static void start_exchanges(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole,
                            float *scratch) {
    fsdp_sum_counter *local = &r->sums.local[unit];
    fsdp_part parts[FSDP_MOST_PARTS];
    const size_t own = fsdp_micro_batches_parts(&r->batches, r->layout->rank, micro, parts);
    const size_t rounds = most_parts(r, micro);
    for (size_t round = 0; round < rounds; round++) {
        float *send = NULL;
        r->transport->finish(r->transport, &r->arriving);
        if (round < own) {
            send = r->batches.local ? local->sums[round].at : whole;
            send = in_rank_order(r, unit, send, whole, scratch);
        }
        exchange_sums(r, unit, micro, round, send);
    }
    fsdp_sum_clear(local);
}

static void push_received(fsdp_reduce *r, size_t unit, uint64_t micro) {
    fsdp_sum_counter *own = &r->sums.own[unit];
    fsdp_part parts[FSDP_MOST_PARTS];
    float *at = r->received;
    for (int i = 0; i < r->ranks; i++) {
        const size_t n = fsdp_micro_batches_parts(&r->batches, r->first + i, micro, parts);
        for (size_t p = 0; p < n; p++, at += own->elems) fsdp_sum_push(own, parts[p], at);
    }
}

/* What was pushed in this micro-step is borrowed no longer. */
static void keep_sums(fsdp_reduce *r, size_t unit, uint64_t micro) {
    fsdp_sum_counter *own = &r->sums.own[unit];
    if (!is_last(r, micro))
        fsdp_sum_settle(own);
    else if (r->is_hybrid)
        fsdp_across_exchange(r->across, unit, own);
    else
        fsdp_sum_fold(own);
}

/* The ring's sum over the ranks of this group: copied or added to the shard. */
static void add_to_shard(fsdp_reduce *r, size_t unit, uint64_t micro, const float *sum) {
    const fsdp_unit *u = &r->layout->units[unit];
    const size_t own = (size_t)u->grad_counts[r->layout->shard];
    float *own_shard = r->grads + u->grad_at;
    if (sum == own_shard) return;
    if (r->batches.local || micro == 0)
        r->k->copy(r->k, own_shard, sum, own);
    else
        r->k->add(r->k, own_shard, sum, own);
}

/* Adds up what has come; sums of a step go on to the ranks that hold the same shard. */
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
            fsdp_across_spread(r->across, unit);
    }
    timeline_add(r->tl, TIMELINE_SUM, (long)unit, r->flight.started, MPI_Wtime());
    r->flight.is_on = 0;
}

/* Of this rank's micro-batches, whole; zeros where it has none. */
static float *sum_batches(fsdp_reduce *r, size_t unit, int has_batch, float *whole) {
    fsdp_sum_counter *local = &r->sums.local[unit];
    if (local->depth > 0) return fsdp_sum_join(local);
    if (!has_batch) r->k->zero(r->k, whole, local->elems);
    return whole;
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
    const int has_batch = batch < r->batches.n;
    if (r->layout->units[unit].whole_grad_elems == 0) return;
    if (r->layout->world == 1) {
        fsdp_sum_push(&r->sums.own[unit], (fsdp_part){batch, 1}, whole);
        keep_sums(r, unit, micro);
        return;
    }
    if (r->batches.local) {
        if (has_batch) fsdp_sum_push(&r->sums.local[unit], (fsdp_part){batch, 1}, whole);
        if (!is_last(r, micro)) {
            fsdp_sum_settle(&r->sums.local[unit]);
            return;
        }
    }
    finish_flight(r);
    r->flight.is_on = 1;
    r->flight.unit = unit;
    r->flight.micro = micro;
    r->flight.started = MPI_Wtime();
    if (r->ring)
        start_ring(r, unit, micro, sum_batches(r, unit, has_batch, whole), scratch);
    else
        start_exchanges(r, unit, micro, whole, scratch);
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
