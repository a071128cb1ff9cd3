#include "comm/local.h"

#include <stdlib.h>
#include <sys/mman.h>

int comm_local_make(comm_local *local, int rank, int size) {
    *local = (comm_local){.own = rank};
    local->alone = comm_groups_make_single(rank, size);
    comm_local_set(local, NULL, NULL, NULL);
    return local->alone ? 0 : -1;
}

void comm_areas_free(comm_areas *areas) {
    if (areas->memory) munmap(areas->memory, areas->memory_bytes);
    free(areas->lists);
    *areas = (comm_areas){0};
}

void comm_local_set(comm_local *local, comm_groups *groups, const struct dcp_comm_ops *ops,
                    void *ctx) {
    comm_areas_free(&local->areas);
    comm_groups_release(local->shared);
    local->shared = groups;
    local->groups = groups ? groups : local->alone;
    local->rank = 0;
    local->size = 1;
    local->ops = NULL;
    if (!local->groups) return; /* memory is short: no communicator is made */
    const comm_groups *g = local->groups;
    local->ranks = g->ranks + g->first[g->own];
    local->size = comm_groups_size(g, g->own);
    while (local->ranks[local->rank] != local->own) local->rank++;
    local->ops = local->size > 1 ? ops : NULL;
    local->ctx = ctx;
}

void comm_local_free(comm_local *local) {
    comm_local_set(local, NULL, NULL, NULL);
    comm_groups_release(local->alone);
}
