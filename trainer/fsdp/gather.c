/* Gathering by messages: one all-gather per unit. Shards arrive in rank order in a staging buffer
 * and are copied to the places of whole parameters, which frees the buffer for another unit. Blocks
 * that are dropped after use share one place.
 *
 * For a computation in bf16, parameters travel as bf16, in the upper half of the staging buffer,
 * and are widened there. Parameters in the host's memory are copied through the lower half.
 * Parameters that do not travel are not rounded here, because the model rounds them anyway. */
#include "fsdp/gather.h"

#include <assert.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/system.h"
#include "fsdp/shard_layout.h"
#include "programs/fail.h"

enum { ROOT = 0 };

/* A unit in flight. */
typedef struct messages_flight {
    float *staging; /* [gathered_elems] of the largest unit that can use it */
    fsdp_transfer transfer;
    size_t unit;
    double started;
} messages_flight;

typedef struct gather_messages {
    fsdp_gather gather; /* must be the first member */
    fsdp_gather_of of;
    fsdp_slices *joins;
    fsdp_transport *transport;
    bool is_on_host, narrows;   /* parameters are in the host's memory; parameters travel as bf16 */
    float *root, *block, *kept; /* whole units; NULL if there are none */
    float **whole;              /* [units] the place of each whole unit */
    messages_flight *flights;   /* [gather.most_in_flight] a ring */
    size_t oldest;              /* the index of the oldest flight */
} gather_messages;

static uint16_t *narrow_staging(const gather_messages *m, const messages_flight *f) {
    return (uint16_t *)f->staging + m->of.layout->units[f->unit].gathered_elems;
}

static void messages_start_narrow(gather_messages *m, messages_flight *f) {
    const fsdp_unit *u = &m->of.layout->units[f->unit];
    uint16_t *to = narrow_staging(m, f), *own = to + u->starts[m->of.layout->shard];
    if (m->is_on_host && m->transport->narrow)
        m->transport->narrow(m->transport, own, m->of.params + u->param_at,
                             (size_t)u->counts[m->of.layout->shard], f->staging,
                             u->gathered_elems / 2);
    else
        for (size_t i = 0; i < u->n; i++)
            m->of.k->narrow(m->of.k, own + u->params[i].ranked_at,
                            m->of.params + u->params[i].param_at, u->params[i].elems);
    m->transport->gather(m->transport, FSDP_SHARDS, KERNELS_BF16, own,
                         (fsdp_segments){to, u->counts, u->starts}, &f->transfer);
}

/* This rank's shard of the unit: as stored, or assembled from its slices. */
static const float *own_shard(const gather_messages *m, const messages_flight *f) {
    const fsdp_unit *u = &m->of.layout->units[f->unit];
    float *to = f->staging + u->starts[m->of.layout->shard];
    if (!m->of.layout->in_place) return m->of.params + u->param_at;
    for (size_t i = 0; i < u->n; i++)
        m->of.k->copy(m->of.k, to + u->params[i].ranked_at, m->of.params + u->params[i].param_at,
                      u->params[i].elems);
    return to;
}

static void messages_start(fsdp_gather *g, size_t unit) {
    gather_messages *m = (gather_messages *)g;
    assert(g->in_flight < g->most_in_flight);
    const fsdp_unit *u = &m->of.layout->units[unit];
    messages_flight *f = &m->flights[(m->oldest + g->in_flight++) % g->most_in_flight];
    f->unit = unit;
    f->started = MPI_Wtime();
    g->sent += fsdp_gather_sends(m->of.layout, unit) * fsdp_param_bytes(m->of.bf16);
    if (m->narrows)
        messages_start_narrow(m, f);
    else
        m->transport->gather(m->transport, FSDP_SHARDS, KERNELS_F32, own_shard(m, f),
                             (fsdp_segments){f->staging, u->counts, u->starts}, &f->transfer);
}

static void messages_poll(fsdp_gather *g) {
    gather_messages *m = (gather_messages *)g;
    if (g->in_flight) m->transport->poll(m->transport, &m->flights[m->oldest].transfer);
}

static float *messages_finish(fsdp_gather *g) {
    gather_messages *m = (gather_messages *)g;
    messages_flight *f = &m->flights[m->oldest];
    float *whole = m->whole[f->unit];
    assert(g->in_flight > 0);
    m->transport->finish(m->transport, &f->transfer);
    if (m->narrows)
        m->of.k->widen_upper(m->of.k, f->staging, m->of.layout->units[f->unit].gathered_elems);
    fsdp_slices_copy(m->joins, f->unit, whole, f->staging);
    timeline_add(m->of.tl, TIMELINE_GATHER, (long)f->unit, f->started, MPI_Wtime());
    g->in_flight--;
    m->oldest = g->in_flight ? (m->oldest + 1) % g->most_in_flight
                             : 0; /* only the first has room for the root */
    return whole;
}

/* The root's gradients can be sent from the first staging buffer, because they are sent only while
 * nothing is being gathered. */
static float *messages_gradient_buffer(fsdp_gather *g, size_t unit) {
    gather_messages *m = (gather_messages *)g;
    assert(unit != ROOT || g->in_flight == 0);
    return unit == ROOT ? m->flights[0].staging : m->block;
}

static void messages_destroy(fsdp_gather *g) {
    gather_messages *m = (gather_messages *)g;
    kernels *k = m->of.k;
    fsdp_slices_destroy(m->joins);
    k->free(k, m->root);
    k->free(k, m->block);
    k->free(k, m->kept);
    for (size_t i = 0; i < g->most_in_flight && m->flights; i++) k->free(k, m->flights[i].staging);
    free(m->flights);
    free(m->whole);
    free(m);
}

static void place_units(gather_messages *m) {
    const fsdp_layout *layout = m->of.layout;
    float *kept = m->kept;
    for (size_t u = 0; u < layout->n; u++) {
        m->whole[u] = u == ROOT ? m->root : m->block;
        if (layout->in_place) m->whole[u] = m->of.params + layout->units[u].param_at;
        if (u == ROOT || !kept) continue;
        m->whole[u] = kept;
        kept += layout->units[u].whole_elems;
    }
}

static int messages_take(gather_messages *m, const fsdp_sizes *s, dcp_error *err) {
    kernels *k = m->of.k;
    m->whole = calloc(m->of.layout->n, sizeof *m->whole);
    m->flights = calloc(s->n_staging + 1, sizeof *m->flights);
    if (!m->whole || !m->flights) return core_fail_memory(err, s->n_staging);
    int status = fsdp_slices_create(m->of.layout, k, FSDP_JOIN, &m->joins, err);
    if (!status) status = fsdp_alloc(k, &m->root, s->root, err);
    if (!status) status = fsdp_alloc(k, &m->block, s->block, err);
    if (!status) status = fsdp_alloc(k, &m->kept, s->kept_blocks, err);
    for (size_t i = 0; i < s->n_staging && !status; i++) {
        const uint64_t elems = i ? s->staging : s->first_staging;
        const uint64_t bytes = elems * fsdp_param_bytes(m->narrows);
        status = fsdp_alloc(k, &m->flights[i].staging, elems, err);
        if (!status && fsdp_transport_reserve(m->transport, FSDP_SHARDS, 0, bytes))
            status = core_fail_memory(err, bytes);
    }
    return status;
}

int fsdp_gather_by_messages(const fsdp_plan *plan, fsdp_transport *transport,
                            const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    gather_messages *m = calloc(1, sizeof *m);
    if (!m) return core_fail_memory(err, sizeof *m);
    *m = (gather_messages){.gather = {.start = messages_start,
                                      .poll = messages_poll,
                                      .finish = messages_finish,
                                      .gradient_buffer = messages_gradient_buffer,
                                      .destroy = messages_destroy,
                                      .most_in_flight = sizes.n_staging},
                           .of = *of,
                           .transport = transport,
                           .is_on_host = plan->is_on_host,
                           .narrows = of->bf16 && plan->layout->shards > 1};
    const int status = messages_take(m, &sizes, err);
    if (status != DCP_OK) {
        messages_destroy(&m->gather);
        return status;
    }
    place_units(m);
    *out = &m->gather;
    return DCP_OK;
}

/* Gathering in shared memory: whole units are in places that all ranks of the group see. Each place
 * is used repeatedly:
 *
 * 1. A rank writes its slices for use n of a place after all ranks have released use n - 1.
 * 2. It reads the unit after all ranks have written their slices for use n.
 *
 * Counters in the shared memory, each written by one rank, record each rank's progress. Slices that
 * are stored in place need not be copied: a rank only announces that they are updated.
 *
 * If the place is still in use at the start, a later call of `poll`, or `finish`, writes the
 * slices. A rank that waits checks a few times, then sleeps. In between it lets MPI proceed,
 * because another rank may depend on that to make progress. */

enum { STRETCH = 512 };
/* The number of checks that a waiting rank makes before it sleeps, and the duration of a sleep. */
enum { SPINS = 200, NAP_NS = 200000 };

typedef struct shared_progress {
    _Alignas(64) core_futex written; /* the last use for which the rank has written its slices */
    core_futex released;             /* the last use that it has finished */
} shared_progress;

typedef struct shared_place {
    float *whole;
    shared_progress *ranks; /* [shards] */
    uint32_t uses;          /* uses that have begun */
} shared_place;

typedef struct shared_flight {
    size_t unit;
    shared_place *at;
    bool is_put;
    double started;
} shared_flight;

typedef struct gather_shared {
    fsdp_gather gather; /* must be the first member */
    fsdp_gather_of of;
    MPI_Comm comm;
    bool keeps;
    /* The root's place, then one for each block if blocks stay gathered; otherwise places that
     * blocks use in turn. */
    shared_place *places;
    size_t n_places, next;
    shared_place **place_of; /* [units] the place in which the unit was gathered last */
    shared_flight *flights;  /* [gather.most_in_flight] */
    size_t oldest;
} gather_shared;

static size_t count_places(const fsdp_plan *plan, const fsdp_sizes *s) {
    return plan->strategy.keep_params ? plan->layout->n : 1 + s->n_blocks;
}

/* The number of elements of place i that are not in the storage of parameters. */
static uint64_t place_elems(const fsdp_plan *plan, const fsdp_sizes *s, size_t i) {
    if (plan->layout->in_place) return 0;
    if (i == ROOT) return s->root;
    return plan->strategy.keep_params ? plan->layout->units[i].whole_elems : s->block;
}

static uint64_t counters_bytes(const fsdp_plan *plan, size_t n_places) {
    return core_round_to_pages(n_places * (size_t)plan->layout->shards * sizeof(shared_progress));
}

uint64_t fsdp_gather_shared_bytes(const fsdp_plan *plan) {
    const fsdp_sizes s = fsdp_plan_sizes(plan);
    const size_t n = count_places(plan, &s);
    if (plan->layout->shards == 1) return 0;
    uint64_t bytes = counters_bytes(plan, n);
    if (plan->layout->in_place)
        bytes += core_round_to_pages(plan->layout->param_elems * sizeof(float));
    for (size_t i = 0; i < n; i++)
        bytes += core_round_to_pages(place_elems(plan, &s, i) * sizeof(float));
    return bytes;
}

uint64_t fsdp_gather_shared_unread(const fsdp_plan *plan, double lookups) {
    const fsdp_layout *layout = plan->layout;
    double sum = 0;
    for (size_t i = 0; i < layout->n_params; i++) {
        const fsdp_param *param = &layout->params[i];
        const uint64_t others = model_param_elems(&param->info) - param->elems;
        const double row = (double)core_round_to_pages(param->row_elems * sizeof(float));
        const double left = (double)(others * sizeof(float)) - lookups * row;
        if (param->info.table && left > 0) sum += left;
    }
    return (uint64_t)sum;
}

float *fsdp_gather_shared_params(const fsdp_plan *plan, void *memory) {
    const fsdp_sizes s = fsdp_plan_sizes(plan);
    if (!memory || !plan->layout->in_place) return NULL;
    return (float *)((char *)memory + counters_bytes(plan, count_places(plan, &s)));
}

/* Finds the counter of a rank that has not reached `use`; NULL if all ranks have reached it. */
static core_futex *find_late(const gather_shared *s, const shared_place *p, uint32_t use,
                             bool released) {
    for (int r = 0; r < s->of.layout->shards; r++) {
        core_futex *count = released ? &p->ranks[r].released : &p->ranks[r].written;
        if (!core_futex_reached(count, use)) return count;
    }
    return NULL;
}

static void put_slice(const gather_shared *s, float *to, const float *from, uint64_t n) {
    uint16_t stretch[STRETCH];
    if (!s->of.bf16) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    for (uint64_t at = 0; at < n; at += STRETCH) {
        const uint64_t here = n - at < STRETCH ? n - at : STRETCH;
        s->of.k->narrow(s->of.k, stretch, from + at, here);
        s->of.k->widen(s->of.k, to + at, stretch, here);
    }
}

static void put_slices(const gather_shared *s, const fsdp_unit *unit, float *whole) {
    for (size_t i = 0; i < unit->n; i++) {
        const fsdp_param *param = &unit->params[i];
        const uint64_t first = param->elems ? param->box.start[0] * param->row_elems : 0;
        put_slice(s, whole + param->whole_at + first, s->of.params + param->param_at, param->elems);
    }
}

/* Copies this rank's slices to their places in the whole unit, if all ranks have finished with the
 * previous content. */
static void put_shard(gather_shared *s, shared_flight *f) {
    shared_place *p = f->at;
    if (f->is_put || find_late(s, p, p->uses - 1, true)) return;
    if (!s->of.layout->in_place) put_slices(s, &s->of.layout->units[f->unit], p->whole);
    core_futex_set(&p->ranks[s->of.layout->shard].written, p->uses);
    f->is_put = true;
}

static shared_place *next_place(gather_shared *s, size_t unit) {
    if (unit == ROOT || s->keeps) return &s->places[unit];
    assert(s->n_places > 1);
    return &s->places[1 + s->next++ % (s->n_places - 1)];
}

static void shared_start(fsdp_gather *g, size_t unit) {
    gather_shared *s = (gather_shared *)g;
    assert(g->in_flight < g->most_in_flight);
    shared_flight *f = &s->flights[(s->oldest + g->in_flight++) % g->most_in_flight];
    *f = (shared_flight){.unit = unit, .at = next_place(s, unit), .started = MPI_Wtime()};
    f->at->uses++;
    put_shard(s, f);
    g->sent += fsdp_gather_sends(s->of.layout, unit) * fsdp_param_bytes(s->of.bf16);
}

static void shared_poll(fsdp_gather *g) {
    gather_shared *s = (gather_shared *)g;
    for (size_t i = 0; i < g->in_flight; i++)
        put_shard(s, &s->flights[(s->oldest + i) % g->most_in_flight]);
}

/* Lets MPI proceed, then waits a moment for the counter `late` to reach `use`. looks: the number of
 * checks that have failed so far. */
static void wait_for_count(const gather_shared *s, core_futex *late, uint32_t use, int looks) {
    int is_there;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s->comm, &is_there, MPI_STATUS_IGNORE);
    if (looks < SPINS)
        sched_yield();
    else
        core_futex_sleep(late, use, NAP_NS);
}

static float *shared_finish(fsdp_gather *g) {
    gather_shared *s = (gather_shared *)g;
    shared_flight *f = &s->flights[s->oldest];
    assert(g->in_flight > 0);
    for (int looks = 0;; looks++) {
        shared_poll(g);
        const uint32_t use = f->is_put ? f->at->uses : f->at->uses - 1;
        core_futex *late = find_late(s, f->at, use, !f->is_put);
        if (late)
            wait_for_count(s, late, use, looks);
        else if (f->is_put)
            break;
    }
    s->place_of[f->unit] = f->at;
    timeline_add(s->of.tl, TIMELINE_GATHER, (long)f->unit, f->started, MPI_Wtime());
    s->oldest = (s->oldest + 1) % g->most_in_flight;
    g->in_flight--;
    return f->at->whole;
}

static void shared_release(fsdp_gather *g, size_t unit) {
    gather_shared *s = (gather_shared *)g;
    assert(s->place_of[unit]); /* it was gathered */
    shared_progress *own = &s->place_of[unit]->ranks[s->of.layout->shard];
    core_futex_set(&own->released, atomic_load(&own->written.count));
}

static void shared_destroy(fsdp_gather *g) {
    gather_shared *s = (gather_shared *)g;
    free(s->flights);
    free(s->place_of);
    free(s->places);
    free(s);
}

static void lay_out_places(gather_shared *s, const fsdp_plan *plan, const fsdp_sizes *sizes,
                           char *memory) {
    const fsdp_layout *layout = plan->layout;
    shared_progress *ranks = (shared_progress *)memory;
    char *at = memory + counters_bytes(plan, s->n_places);
    for (size_t i = 0; i < s->n_places; i++) {
        s->places[i] = (shared_place){.whole = (float *)at, .ranks = ranks};
        ranks += layout->shards;
        if (layout->in_place) s->places[i].whole = s->of.params + layout->units[i].param_at;
        at += core_round_to_pages(place_elems(plan, sizes, i) * sizeof(float));
    }
}

int fsdp_gather_in_shared_memory(const fsdp_plan *plan, MPI_Comm comm, void *memory,
                                 const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    gather_shared *s = calloc(1, sizeof *s);
    if (!s) return core_fail_memory(err, sizeof *s);
    *s = (gather_shared){.gather = {.start = shared_start,
                                    .poll = shared_poll,
                                    .finish = shared_finish,
                                    .release = shared_release,
                                    .destroy = shared_destroy,
                                    .most_in_flight = sizes.n_flights},
                         .of = *of,
                         .comm = comm,
                         .keeps = plan->strategy.keep_params,
                         .n_places = count_places(plan, &sizes)};
    s->places = calloc(s->n_places, sizeof *s->places);
    s->place_of = calloc(plan->layout->n, sizeof *s->place_of);
    s->flights = calloc(s->gather.most_in_flight, sizeof *s->flights);
    if (!s->places || !s->place_of || !s->flights) {
        shared_destroy(&s->gather);
        return core_fail_memory(err, s->n_places * sizeof *s->places);
    }
    lay_out_places(s, plan, &sizes, memory);
    *out = &s->gather;
    return DCP_OK;
}
