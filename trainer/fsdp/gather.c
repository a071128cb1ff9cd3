/* One all-gather a unit. Shards arrive in rank order in the staging buffer, and go from there to
 * the places of whole parameters, which frees the buffer for the next unit. */
#include "gather.h"

void fsdp_gather_start(fsdp_gather *g, size_t unit) {
    g->started = MPI_Wtime();
    const fsdp_unit *u = &g->layout->units[unit];
    MPI_Iallgatherv(g->params + u->shard_at, u->counts[g->layout->rank], MPI_FLOAT, g->staging,
                    u->counts, u->starts, MPI_FLOAT, g->comm, &g->request);
    g->unit = (long)unit;
}

void fsdp_gather_poll(fsdp_gather *g) {
    int done;
    if (g->unit != FSDP_NO_UNIT) MPI_Test(&g->request, &done, MPI_STATUS_IGNORE);
}

void fsdp_gather_finish(fsdp_gather *g, float *whole) {
    MPI_Wait(&g->request, MPI_STATUS_IGNORE);
    fsdp_join(g->layout, (size_t)g->unit, whole, g->staging);
    timeline_add(g->tl, TIMELINE_GATHER, g->unit, g->started, MPI_Wtime());
    g->unit = FSDP_NO_UNIT;
}
