/* One all-gather a unit. Shards arrive in rank order in a staging buffer, and go from there to the
 * places of whole parameters, which frees the buffer for another unit. */
#include "gather.h"

#include "plan.h"

void fsdp_gather_start(fsdp_gather *g, size_t unit) {
    const fsdp_unit *u = &g->layout->units[unit];
    fsdp_flight *flight = &g->flights[(g->oldest + g->flying++) % g->n_flights];
    flight->unit = unit;
    flight->started = MPI_Wtime();
    g->sent += fsdp_gather_sends(g->layout, unit);
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
    fsdp_join(g->layout, flight->unit, whole, flight->staging);
    timeline_add(g->tl, TIMELINE_GATHER, (long)flight->unit, flight->started, MPI_Wtime());
    g->oldest = (g->oldest + 1) % g->n_flights;
    g->flying--;
}
