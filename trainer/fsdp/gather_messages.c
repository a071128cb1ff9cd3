/* One all-gather a unit. Shards arrive in rank order in a staging buffer, and go from there to the
 * places of whole parameters, which frees the buffer for another unit. Blocks that do not stay
 * share one place.
 *
 * For a computation in bf16 they travel in it, in the upper half of the staging buffer, and are
 * widened there. From the host's memory they come by way of the lower half. What does not travel is
 * not rounded: the model does that anyhow. */
#include "fsdp/gather_messages.h"

#include <stdlib.h>

#include "fsdp/alloc.h"
#include "fsdp/slices.h"
#include "programs/fail.h"

enum { ROOT = 0 };

/* A unit in flight. */
typedef struct messages_flight {
    float *staging; /* [gathered_elems] of the units that may use it */
    fsdp_transfer transfer;
    size_t unit;
    double started;
} messages_flight;

typedef struct gather_messages {
    fsdp_gather gather; /* first */
    fsdp_gather_of of;
    fsdp_slices *joins;
    fsdp_transport *transport;
    int is_on_host, narrows;    /* parameters are in the host's memory; travel in bf16 */
    float *root, *block, *kept; /* whole units; NULL: none */
    float **whole;              /* [units] where a unit is to stand */
    messages_flight *flights;   /* [gather.most_in_flight] */
    size_t oldest;              /* those in flight begin with it, around the end */
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
                         (fsdp_stretches){to, u->counts, u->starts}, &f->transfer);
}

/* This rank's shard of the unit: as it is stored, or from where its slices are. */
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
    const fsdp_unit *u = &m->of.layout->units[unit];
    messages_flight *f = &m->flights[(m->oldest + g->in_flight++) % g->most_in_flight];
    f->unit = unit;
    f->started = MPI_Wtime();
    g->sent += fsdp_gather_sends(m->of.layout, unit) * fsdp_param_bytes(m->of.bf16);
    if (m->narrows)
        messages_start_narrow(m, f);
    else
        m->transport->gather(m->transport, FSDP_SHARDS, KERNELS_F32, own_shard(m, f),
                             (fsdp_stretches){f->staging, u->counts, u->starts}, &f->transfer);
}

static void messages_poll(fsdp_gather *g) {
    gather_messages *m = (gather_messages *)g;
    if (g->in_flight) m->transport->poll(m->transport, &m->flights[m->oldest].transfer);
}

static float *messages_finish(fsdp_gather *g) {
    gather_messages *m = (gather_messages *)g;
    messages_flight *f = &m->flights[m->oldest];
    float *whole = m->whole[f->unit];
    m->transport->finish(m->transport, &f->transfer);
    if (m->narrows)
        m->of.k->widen_upper(m->of.k, f->staging, m->of.layout->units[f->unit].gathered_elems);
    fsdp_slices_copy(m->joins, f->unit, whole, f->staging);
    timeline_add(m->of.tl, TIMELINE_GATHER, (long)f->unit, f->started, MPI_Wtime());
    g->in_flight--;
    m->oldest = g->in_flight ? (m->oldest + 1) % g->most_in_flight
                             : 0; /* the first has room for the root */
    return whole;
}

/* The root's gradients go when nothing is on its way to this rank. */
static float *messages_gradient_room(fsdp_gather *g, size_t unit) {
    gather_messages *m = (gather_messages *)g;
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
                                      .gradient_room = messages_gradient_room,
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
