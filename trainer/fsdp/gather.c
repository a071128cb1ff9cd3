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
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, u->counts, u->starts, MPI_UINT16_T,
                    g->comm, &flight->request);
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
    MPI_Iallgatherv(g->params + u->shard_at, u->counts[g->layout->shard], MPI_FLOAT,
                    flight->staging, u->counts, u->starts, MPI_FLOAT, g->comm, &flight->request);
}

void fsdp_gather_poll(fsdp_gather *g) {
    int done;
    if (g->flying) MPI_Test(&g->flights[g->oldest].request, &done, MPI_STATUS_IGNORE);
}

void fsdp_gather_finish(fsdp_gather *g, float *whole) {
    fsdp_flight *flight = &g->flights[g->oldest];
    MPI_Wait(&flight->request, MPI_STATUS_IGNORE);
    if (g->bf16) widen_staging(g, flight);
    fsdp_join(g->layout, flight->unit, whole, flight->staging);
    timeline_add(g->tl, TIMELINE_GATHER, (long)flight->unit, flight->started, MPI_Wtime());
    g->oldest = (g->oldest + 1) % g->n_flights;
    g->flying--;
}
