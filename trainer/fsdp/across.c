#include "fsdp/across.h"

#include <stdbool.h>
#include <stdlib.h>

#include "programs/fail.h"

struct fsdp_across {
    const fsdp_layout *layout;
    kernels *k;
    fsdp_transport *transport;
    fsdp_micro_batches batches;
    float *grads;
    float *outbound;         /* sums of this group, contiguous for each receiving rank */
    float *crossed;          /* pieces of all groups' sums, in the order of micro-batches */
    size_t unit;             /* the unit whose sums are being exchanged */
    uint64_t micro;          /* the micro-step that ends the run of these sums */
    fsdp_transfer crossing;  /* the transfer that exchanges sums */
    fsdp_transfer spreading; /* the transfer that sends results */
    int *counts; /* 4 * [groups]: counts and starts of what is sent, then of what is received */
    int *spread_counts;     /* 2 * [groups]: counts and starts of results */
    fsdp_sum_counter *sums; /* [units] the sums of this rank's pieces */
    float **slots;          /* the memory of these sums between runs */
    uint64_t n_slots;
    uint64_t sent; /* in elements */
};

static int groups_of(const fsdp_layout *layout) { return layout->world / layout->shards; }
static int own_row(const fsdp_layout *layout) { return layout->rank / layout->shards; }

/* The rank in group number `group` that holds the same shard as this rank. */
static int peer_of(const fsdp_layout *layout, int group) {
    return group * layout->shards + layout->shard;
}

/* The part of this shard that the column's rank in group number `group` adds up, relative to the
 * shard's beginning. */
static fsdp_range piece_of(const fsdp_across *a, size_t unit, int group) {
    fsdp_range piece = fsdp_grad_range(a->layout, unit, peer_of(a->layout, group));
    piece.start -= a->layout->units[unit].grad_starts[a->layout->shard];
    return piece;
}

/* The number of sums that a group sends for the run that ends with the micro-step. */
static uint64_t parts_of(const fsdp_across *a, int group, uint64_t micro) {
    const fsdp_part run = fsdp_micro_batches_run(&a->batches, peer_of(a->layout, group), micro);
    return fsdp_sum_order_parts(&a->batches.order, run.first, run.first + run.n);
}

static float *shard_of(const fsdp_across *a, size_t unit) {
    return a->grads + a->layout->units[unit].grad_at;
}

/* Reserves transfers for one unit's sums and for another unit's results. */
static int reserve_across(fsdp_across *a, const fsdp_sizes *s, dcp_error *err) {
    const size_t in = s->crossed * sizeof(float);
    const size_t out = s->outbound ? s->outbound * sizeof(float) : 1; /* reserve regards 0 as a
                                                                         gather */
    uint64_t shard = 0;
    for (size_t u = 0; u < a->layout->n; u++) {
        const uint64_t here = (uint64_t)a->layout->units[u].grad_counts[a->layout->shard];
        if (here > shard) shard = here;
    }
    bool failed = fsdp_transport_reserve(a->transport, FSDP_REPLICAS, 0, shard * sizeof(float));
    if (s->crossed) failed |= fsdp_transport_reserve(a->transport, FSDP_REPLICAS, out, in);
    return failed ? core_fail_memory(err, out + in + shard) : DCP_OK;
}

/* Allocates memory for the sums of all groups. The storage of the shard cannot hold them, because
 * it is used for the group's own sums until the last run. */
static int take_sums(fsdp_across *a, const fsdp_sizes *s, dcp_error *err) {
    uint64_t offset = 0;
    a->n_slots = s->n_across_sums;
    a->sums = calloc(a->layout->n, sizeof *a->sums);
    if (!a->sums) return core_fail_memory(err, a->layout->n * sizeof *a->sums);
    for (size_t u = 0; u < a->layout->n; u++) {
        const fsdp_range own = piece_of(a, u, own_row(a->layout));
        a->sums[u] = (fsdp_sum_counter){.k = a->k,
                                        .order = a->batches.order,
                                        .result = shard_of(a, u) + own.start,
                                        .result_is_used = true,
                                        .n_slots = s->n_across_sums,
                                        .offset = offset,
                                        .elems = (uint64_t)own.count};
        offset += (uint64_t)own.count;
    }
    const int status = fsdp_sum_allocate_slots(a->k, &a->slots, a->n_slots, s->across_sum, err);
    for (size_t u = 0; u < a->layout->n; u++) a->sums[u].slots = a->slots;
    return status;
}

static int take_across(fsdp_across *a, const fsdp_plan *plan, dcp_error *err) {
    const fsdp_sizes s = fsdp_plan_sizes(plan);
    const size_t groups = (size_t)groups_of(a->layout);
    a->counts = calloc(4 * groups, sizeof *a->counts);
    a->spread_counts = calloc(2 * groups, sizeof *a->spread_counts);
    a->outbound = a->k->alloc(a->k, s.outbound * sizeof(float)); /* never NULL, even for 0 bytes */
    a->crossed = a->k->alloc(a->k, s.crossed * sizeof(float));
    if (!a->counts || !a->spread_counts || !a->outbound || !a->crossed)
        return core_fail_memory(err, (s.outbound + s.crossed) * sizeof(float));
    const int status = take_sums(a, &s, err);
    return status == DCP_OK && groups > 1 ? reserve_across(a, &s, err) : status;
}

int fsdp_across_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, float *grads,
                       fsdp_across **out, dcp_error *err) {
    fsdp_across *a = calloc(1, sizeof *a);
    if (!a) return core_fail_memory(err, sizeof *a);
    *a = (fsdp_across){.layout = plan->layout,
                       .k = k,
                       .transport = transport,
                       .batches = fsdp_plan_micro_batches(plan),
                       .grads = grads};
    const int status = take_across(a, plan, err);
    if (status == DCP_OK)
        *out = a;
    else
        fsdp_across_destroy(a);
    return status;
}

void fsdp_across_destroy(fsdp_across *a) {
    if (!a) return;
    a->k->free(a->k, a->outbound);
    a->k->free(a->k, a->crossed);
    fsdp_sum_free_slots(a->k, a->slots, a->n_slots);
    free(a->sums);
    free(a->spread_counts);
    free(a->counts);
    free(a);
}

uint64_t fsdp_across_sent(const fsdp_across *a) { return a->sent; }

/* Packs the pieces for each rank contiguously: ordered by rank, then by micro-batch. */
static void pack_pieces(fsdp_across *a, size_t unit, const fsdp_sum_counter *sums) {
    const int groups = groups_of(a->layout);
    if (sums->depth == 1) {
        a->k->copy(a->k, a->outbound, sums->sums[0].at, sums->elems);
        return;
    }
    float *to = a->outbound;
    for (int g = 0; g < groups; g++) {
        const fsdp_range piece = piece_of(a, unit, g);
        for (size_t p = 0; p < sums->depth && piece.count > 0; p++, to += piece.count)
            a->k->copy(a->k, to, sums->sums[p].at + piece.start, (size_t)piece.count);
    }
}

static void exchange_pieces(fsdp_across *a, size_t unit, size_t own_parts) {
    const int groups = groups_of(a->layout);
    const int own = piece_of(a, unit, own_row(a->layout)).count;
    int *send_counts = a->counts, *send_starts = send_counts + groups;
    int *counts = send_starts + groups, *starts = counts + groups;
    int from = 0, to = 0;
    for (int g = 0; g < groups; g++) {
        send_counts[g] = (int)own_parts * piece_of(a, unit, g).count;
        send_starts[g] = from;
        counts[g] = (int)parts_of(a, g, a->micro) * own;
        starts[g] = to;
        from += send_counts[g];
        to += counts[g];
    }
    a->transport->exchange(a->transport, FSDP_REPLICAS,
                           (fsdp_segments){a->outbound, send_counts, send_starts},
                           (fsdp_segments){a->crossed, counts, starts}, &a->crossing);
    a->sent += own_parts * fsdp_across_sends(a->layout, unit);
}

/* Adds up the pieces that have arrived. Returns true if that completed the step's sum. */
static bool add_pieces(fsdp_across *a) {
    fsdp_sum_counter *sum = &a->sums[a->unit];
    float *at = a->crossed;
    for (int g = 0; g < groups_of(a->layout); g++) {
        const fsdp_part run = fsdp_micro_batches_run(&a->batches, peer_of(a->layout, g), a->micro);
        const uint64_t end = run.first + run.n;
        fsdp_part part = {.n = 0};
        for (uint64_t first = run.first; first < end; first += part.n, at += sum->elems) {
            part = fsdp_sum_order_part(&a->batches.order, first, end);
            fsdp_sum_push(sum, part, at);
        }
    }
    const bool is_last = a->micro + 1 == fsdp_micro_batches_steps(&a->batches);
    if (is_last)
        fsdp_sum_fold(sum);
    else
        fsdp_sum_move_to_slots(sum);
    return is_last;
}

static void finish_crossing(fsdp_across *a) {
    if (!a->crossing.is_on) return;
    a->transport->finish(a->transport, &a->crossing);
    if (add_pieces(a)) fsdp_across_broadcast(a, a->unit);
}

void fsdp_across_exchange(fsdp_across *a, size_t unit, uint64_t micro, fsdp_sum_counter *sums) {
    finish_crossing(a);
    a->unit = unit;
    a->micro = micro;
    pack_pieces(a, unit, sums);
    exchange_pieces(a, unit, sums->depth);
    fsdp_sum_clear(sums);
}

void fsdp_across_broadcast(fsdp_across *a, size_t unit) {
    const int groups = groups_of(a->layout), row = own_row(a->layout);
    int *counts = a->spread_counts, *starts = counts + groups;
    float *shard = shard_of(a, unit);
    /* the transfer of the previous unit's results borrows `counts` */
    a->transport->finish(a->transport, &a->spreading);
    for (int g = 0; g < groups; g++) {
        const fsdp_range piece = piece_of(a, unit, g);
        counts[g] = piece.count;
        starts[g] = piece.start;
    }
    a->transport->gather(a->transport, FSDP_REPLICAS, KERNELS_F32, shard + starts[row],
                         (fsdp_segments){shard, counts, starts}, &a->spreading);
    a->sent += fsdp_broadcast_sends(a->layout, unit);
}

void fsdp_across_add(fsdp_across *a, size_t unit) {
    a->transport->finish(a->transport, &a->spreading);
    a->transport->all_reduce(a->transport, FSDP_REPLICAS, shard_of(a, unit),
                             a->layout->units[unit].grad_counts[a->layout->shard], &a->spreading);
    a->sent += 2 * fsdp_broadcast_sends(a->layout, unit);
}

void fsdp_across_poll(fsdp_across *a) {
    a->transport->poll(a->transport, a->crossing.is_on ? &a->crossing : &a->spreading);
}

void fsdp_across_finish(fsdp_across *a) {
    finish_crossing(a);
    a->transport->finish(a->transport, &a->spreading);
}
