/* Every rank sends every other one the part of its micro-batches' gradients that the other adds up:
 * as many bytes as a reduce-scatter moves. They are added in the order of micro-batches. A rank
 * without a micro-batch sends nothing and is skipped. It does not count as a micro-batch of zeros:
 * adding those would change the order of the sum. Where several ranks hold a shard, each adds up a
 * range of it, and they exchange the results.
 *
 * The gradients of one unit are in flight at a time, and the results of the unit before it. With
 * the ring the transport does the additions. */
#include "fsdp/reduce.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/slices.h"
#include "programs/fail.h"

/* A sum of micro-batches in an order that depends on their numbers alone: a binary counter of
 * partial sums, as in pairwise summation. Two sums that are halves of one subtree become one; what
 * is left at the end is folded from the fewest micro-batches to the most. An addition's result
 * replaces the older sum: fp32 addition commutes, so its place changes no bit.
 *
 * Sums that were pushed since the last settle_sums may lie in borrowed memory; they are newer than
 * all that lie in slots. A sum's first slot is the storage where it ends, if that is as long. The
 * other slots are beside it, each for all units. */
enum { SUM_DEPTH = FSDP_MOST_PARTS };

typedef struct sum_counter {
    kernels *k;
    float *result;       /* [elems] the first slot: where the sum ends */
    float *const *slots; /* [n_slots - 1][offset + elems] the others */
    size_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum */
    size_t depth;
    struct {
        fsdp_part part;
        float *at;     /* a slot's memory, or borrowed from the caller of push_sum */
        int slot;      /* -1: borrowed */
    } sums[SUM_DEPTH]; /* in the order of micro-batches */
} sum_counter;

/* The partial sums of gradients that a rank keeps, and their memory. */
typedef struct sum_counters {
    sum_counter *own;   /* [units] of the piece that this rank adds up; ends in its storage */
    sum_counter *local; /* [units] of this rank's micro-batches, whole */
    float **own_slots, **local_slots;
    size_t n_own, n_local;
    kernels *k;
} sum_counters;

/* The newest sum is added to the one before it. */
static void merge_newest(sum_counter *p) {
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.n += p->sums[newest].part.n;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Whether the two newest sums are the halves of a subtree. */
static int are_halves(const sum_counter *p) {
    if (p->depth < 2) return 0;
    const fsdp_part newest = p->sums[p->depth - 1].part, older = p->sums[p->depth - 2].part;
    return newest.n == older.n && older.first % (2 * older.n) == 0;
}

/* Adds the next micro-batch, or sum of micro-batches, of `elems` elements: its memory is used up,
 * and may not be touched before settle_sums, join_sums, fold_sums or clear_sums.
 * The first one may lie in `result`. */
static void push_sum(sum_counter *p, fsdp_part part, float *batch) {
    assert(p->depth < SUM_DEPTH);
    p->sums[p->depth].part = part;
    p->sums[p->depth].at = batch;
    p->sums[p->depth].slot = -1;
    p->depth++;
    while (are_halves(p)) merge_newest(p);
}

static int unused_slot(const sum_counter *p) {
    int slot = 0;
    while (p->used >> slot & 1) slot++;
    assert((size_t)slot < p->n_slots);
    return slot;
}

/* Moves sums out of borrowed memory into slots. */
static void settle_sums(sum_counter *p) {
    for (size_t i = 0; i < p->depth; i++) {
        if (p->sums[i].slot >= 0) continue;
        const int slot = unused_slot(p);
        float *to = slot ? p->slots[slot - 1] + p->offset : p->result;
        if (to != p->sums[i].at) p->k->copy(p->k, to, p->sums[i].at, p->elems);
        p->sums[i].at = to;
        p->sums[i].slot = slot;
        p->used |= (uint64_t)1 << slot;
    }
}

/* Forgets all sums. */
static void clear_sums(sum_counter *p) {
    p->used = 0;
    p->depth = 0;
}

/* Ends the sum, and returns where it stands until the next push; the counter is empty again. At
 * least one micro-batch was pushed. */
static float *join_sums(sum_counter *p) {
    assert(p->depth > 0);
    while (p->depth >= 2) merge_newest(p);
    float *sum = p->sums[0].at;
    clear_sums(p);
    return sum;
}

/* The same; the sum stands in the first slot. */
static void fold_sums(sum_counter *p) {
    const float *sum = join_sums(p);
    if (sum != p->result) p->k->copy(p->k, p->result, sum, p->elems);
}

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

static void place_own(sum_counters *s, const fsdp_layout *layout, float *grads) {
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        const fsdp_range piece = fsdp_grad_range(layout, u, layout->rank);
        const int before = piece.start - unit->grad_starts[layout->shard];
        s->own[u] = (sum_counter){.k = s->k,
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
        s->local[u] = (sum_counter){.k = s->k,
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
    place_own(out, plan->layout, grads);
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
    float *grads;
    float *received; /* pieces of all sums of a reduction, in micro-batch order */
    sum_counters sums;
    int *counts;        /* four times [world]: what is sent and received, and where it begins */
    int *spread_counts; /* twice [replicas] */
    struct {
        int is_on;
        size_t unit;
        uint64_t micro;
        double started;
    } flight;               /* the unit whose gradients are in flight */
    fsdp_transfer arriving; /* they */
    fsdp_transfer spreading;
    uint64_t sent; /* elements */
};

static int replicas_of(const fsdp_reduce *r) { return r->layout->world / r->layout->shards; }

/* One unit is in flight at a time, and one to the ranks that hold the same shard. */
static int reserve_transfers(fsdp_reduce *r, uint64_t received, dcp_error *err) {
    uint64_t sent = 0, shard = 0;
    for (size_t u = 0; u < r->layout->n; u++) {
        const fsdp_unit *unit = &r->layout->units[u];
        const uint64_t own = (uint64_t)unit->grad_counts[r->layout->shard];
        if (unit->gathered_grad_elems > sent) sent = unit->gathered_grad_elems;
        if (own > shard) shard = own;
    }
    if (r->layout->world == 1) return DCP_OK;
    sent *= sizeof(float), received *= sizeof(float), shard *= sizeof(float);
    int failed = fsdp_transport_reserve(r->transport, FSDP_WORLD, sent, received);
    if (replicas_of(r) > 1) failed |= fsdp_transport_reserve(r->transport, FSDP_REPLICAS, 0, shard);
    return failed ? core_fail_memory(err, sent + received + shard) : DCP_OK;
}

static int take_received(fsdp_reduce *r, const fsdp_plan *plan, dcp_error *err) {
    const uint64_t elems = fsdp_plan_sizes(plan).received;
    if (elems > INT_MAX)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model: too few rows in a unit of %" PRIu64 " elements", elems);
    r->counts = calloc(4 * (size_t)r->layout->world, sizeof *r->counts);
    r->spread_counts = calloc(2 * (size_t)replicas_of(r), sizeof *r->spread_counts);
    if (!r->counts || !r->spread_counts) return core_fail_memory(err, 0);
    r->received = r->k->alloc(r->k, elems * sizeof(float)); /* never NULL, also for nothing */
    if (!r->received) return core_fail_memory(err, elems * sizeof(float));
    const int status = reserve_transfers(r, elems, err);
    return status ? status : create_sums(plan, r->k, r->grads, &r->sums, err);
}

int fsdp_reduce_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, timeline *tl,
                       float *grads, fsdp_reduce **out, dcp_error *err) {
    fsdp_reduce *r = calloc(1, sizeof *r);
    if (!r) return core_fail_memory(err, sizeof *r);
    *r = (fsdp_reduce){.layout = plan->layout,
                       .k = k,
                       .transport = transport,
                       .tl = tl,
                       .batches = fsdp_plan_micro_batches(plan),
                       .ring = plan->strategy.ring && plan->layout->world > 1,
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
    free(r->spread_counts);
    free(r->counts);
    free(r);
}

uint64_t fsdp_reduce_sent_bytes(const fsdp_reduce *r) { return r->sent * sizeof(float); }

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

/* Each rank sends its sum number `round`, where it has so many; `send` is this rank's. What comes
 * is placed in the order of micro-batches. */
static void exchange_sums(fsdp_reduce *r, size_t unit, uint64_t micro, size_t round, float *send) {
    const int world = r->layout->world, me = r->layout->rank;
    const int own = fsdp_grad_range(r->layout, unit, me).count;
    int *send_counts = r->counts, *send_starts = send_counts + world;
    int *counts = send_starts + world, *starts = counts + world;
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t before = 0;
    for (int i = 0; i < world; i++) {
        const fsdp_range piece = fsdp_grad_range(r->layout, unit, i);
        const size_t n = fsdp_micro_batches_parts(&r->batches, i, micro, parts);
        send_counts[i] = send ? piece.count : 0;
        send_starts[i] = piece.start;
        counts[i] = round < n ? own : 0;
        starts[i] = round < n ? (int)(before + round) * own : 0;
        before += n;
    }
    r->transport->exchange(r->transport, FSDP_WORLD,
                           (fsdp_stretches){send, send_counts, send_starts},
                           (fsdp_stretches){r->received, counts, starts}, &r->arriving);
    if (send) r->sent += fsdp_reduce_sends(r->layout, unit);
}

static size_t most_parts(const fsdp_reduce *r, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t most = 0;
    for (int i = 0; i < r->layout->world; i++) {
        const size_t n = fsdp_micro_batches_parts(&r->batches, i, micro, parts);
        if (n > most) most = n;
    }
    return most;
}

/* Sends for this rank's piece of all sums that are sent after the micro-step: only the last ones
 * are still in flight when it returns. */
static void start_exchanges(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole,
                            float *scratch) {
    sum_counter *local = &r->sums.local[unit];
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
    clear_sums(local);
}

static void push_received(fsdp_reduce *r, size_t unit, uint64_t micro) {
    sum_counter *own = &r->sums.own[unit];
    fsdp_part parts[FSDP_MOST_PARTS];
    float *at = r->received;
    for (int i = 0; i < r->layout->world; i++) {
        const size_t n = fsdp_micro_batches_parts(&r->batches, i, micro, parts);
        for (size_t p = 0; p < n; p++, at += own->elems) push_sum(own, parts[p], at);
    }
}

/* What was pushed in this micro-step is borrowed no longer. */
static void keep_sums(fsdp_reduce *r, size_t unit, uint64_t micro) {
    sum_counter *own = &r->sums.own[unit];
    if (is_last(r, micro))
        fold_sums(own);
    else
        settle_sums(own);
}

/* Ranks that hold the same shard tell each other the pieces that they added up. */
static void spread(fsdp_reduce *r, size_t unit) {
    const fsdp_layout *layout = r->layout;
    const fsdp_unit *u = &layout->units[unit];
    const int replicas = replicas_of(r), row = layout->rank / layout->shards;
    int *counts = r->spread_counts, *starts = counts + replicas;
    float *own_shard = r->grads + u->grad_at;
    for (int i = 0; i < replicas; i++) {
        const fsdp_range piece = fsdp_grad_range(layout, unit, i * layout->shards + layout->shard);
        counts[i] = piece.count;
        starts[i] = piece.start - u->grad_starts[layout->shard];
    }
    r->transport->gather(r->transport, FSDP_REPLICAS, KERNELS_F32, own_shard + starts[row],
                         (fsdp_stretches){own_shard, counts, starts}, &r->spreading);
    r->sent += fsdp_spread_sends(layout, unit);
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

static void sum_replicas(fsdp_reduce *r, size_t unit) {
    const fsdp_unit *u = &r->layout->units[unit];
    r->transport->all_reduce(r->transport, FSDP_REPLICAS, r->grads + u->grad_at,
                             u->grad_counts[r->layout->shard], &r->spreading);
    r->sent += 2 * fsdp_spread_sends(r->layout, unit);
}

/* Adds up what has come, and begins to spread a step's sums. */
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
    r->transport->finish(r->transport, &r->spreading); /* of the unit before */
    if (is_last(r, micro) && replicas_of(r) > 1) {
        if (r->ring)
            sum_replicas(r, unit);
        else
            spread(r, unit);
    }
    timeline_add(r->tl, TIMELINE_SUM, (long)unit, r->flight.started, MPI_Wtime());
    r->flight.is_on = 0;
}

/* Of this rank's micro-batches, whole; zeros where it has none. */
static float *sum_batches(fsdp_reduce *r, size_t unit, int has_batch, float *whole) {
    sum_counter *local = &r->sums.local[unit];
    if (local->depth > 0) return join_sums(local);
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
        push_sum(&r->sums.own[unit], (fsdp_part){batch, 1}, whole);
        keep_sums(r, unit, micro);
        return;
    }
    if (r->batches.local) {
        if (has_batch) push_sum(&r->sums.local[unit], (fsdp_part){batch, 1}, whole);
        if (!is_last(r, micro)) {
            settle_sums(&r->sums.local[unit]);
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
    r->transport->poll(r->transport, r->arriving.is_on ? &r->arriving : &r->spreading);
}

void fsdp_reduce_finish(fsdp_reduce *r) {
    finish_flight(r);
    r->transport->finish(r->transport, &r->spreading);
}
