/* One all-gather a unit. Shards arrive in rank order in a staging buffer, and go from there to the
 * places of whole parameters, which frees the buffer for another unit.
 *
 * For a computation in bf16 they travel in it, in the upper half of the staging buffer, and are
 * widened from its beginning on: what is still to be read always lies above what is written. */
#include "gather.h"

#include <string.h>

#include "plan.h"

enum { STRETCH = 512 };

static uint16_t *narrow_staging(const fsdp_gather *g, const fsdp_flight *flight) {
    return (uint16_t *)flight->staging + g->layout->units[flight->unit].gathered_elems;
}

static void start_narrow(fsdp_gather *g, fsdp_flight *flight) {
    const fsdp_unit *u = &g->layout->units[flight->unit];
    const int shard = g->layout->shard;
    uint16_t *to = narrow_staging(g, flight);
    g->k->narrow(g->k, to + u->starts[shard], g->params + u->shard_at, (size_t)u->counts[shard]);
    g->transport->gather(g->transport, FSDP_SHARDS, KERNELS_BF16, to + u->starts[shard],
                         (fsdp_stretches){to, u->counts, u->starts}, &flight->transfer);
}

static void widen_staging(const fsdp_gather *g, const fsdp_flight *flight) {
    const uint64_t n = g->layout->units[flight->unit].gathered_elems;
    const uint16_t *from = narrow_staging(g, flight);
    uint16_t stretch[STRETCH];
    for (uint64_t at = 0; at < n; at += STRETCH) {
        const uint64_t here = n - at < STRETCH ? n - at : STRETCH;
        memcpy(stretch, from + at, here * sizeof *stretch);
        g->k->widen(g->k, flight->staging + at, stretch, here);
    }
}

void fsdp_gather_start(fsdp_gather *g, size_t unit) {
    const fsdp_unit *u = &g->layout->units[unit];
    fsdp_flight *flight = &g->flights[(g->oldest + g->flying++) % g->n_flights];
    flight->unit = unit;
    flight->started = MPI_Wtime();
    g->sent += fsdp_gather_sends(g->layout, unit) * (g->bf16 ? sizeof(uint16_t) : sizeof(float));
    if (g->bf16) {
        start_narrow(g, flight);
        return;
    }
    g->transport->gather(g->transport, FSDP_SHARDS, KERNELS_F32, g->params + u->shard_at,
                         (fsdp_stretches){flight->staging, u->counts, u->starts},
                         &flight->transfer);
}

void fsdp_gather_poll(fsdp_gather *g) {
    if (g->flying) g->transport->poll(g->transport, &g->flights[g->oldest].transfer);
}

void fsdp_gather_finish(fsdp_gather *g, float *whole) {
    fsdp_flight *flight = &g->flights[g->oldest];
    g->transport->finish(g->transport, &flight->transfer);
    if (g->bf16) widen_staging(g, flight);
    fsdp_join(g->layout, flight->unit, g->k, whole, flight->staging);
    timeline_add(g->tl, TIMELINE_GATHER, (long)flight->unit, flight->started, MPI_Wtime());
    g->oldest = (g->oldest + 1) % g->n_flights;
    g->flying--;
}
