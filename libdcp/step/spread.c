#include "step/spread.h"

#include <stdlib.h>

#include "core/fail.h"

#define READY_BYTES ((uint64_t)2 << 20) /* for what comes: some thousand rows */

int step_spread_make(step_spread *spread, dcp_comm *comm, dcp_error *err) {
    size_t ranks = (size_t)comm->size;
    *spread = (step_spread){.comm = comm, .bytes = calloc(3 * ranks, sizeof *spread->bytes)};
    if (!spread->bytes) return core_fail_memory(err, 3 * ranks * sizeof *spread->bytes);
    spread->at = spread->bytes + ranks;
    spread->received = spread->at + ranks;
    return DCP_OK;
}

int step_spread_begin(step_spread *spread, dcp_error *err) {
    uint64_t total = 0;
    for (int r = 0; r < spread->comm->size; r++) {
        spread->at[r] = total;
        total += spread->bytes[r];
    }
    return comm_message_append(&spread->out, total) ? DCP_OK : core_fail_memory(err, total);
}

uint64_t *step_spread_place(step_spread *spread, int rank, uint64_t words) {
    uint64_t *at = (uint64_t *)(void *)(spread->out.data + spread->at[rank]);
    spread->at[rank] += 8 * words;
    return at;
}

int step_spread_exchange(step_spread *spread, int status, dcp_error *err) {
    if (spread->comm->size > 1)
        return comm_message_agree_exchange(spread->comm, status, READY_BYTES, &spread->out,
                                           spread->bytes, &spread->in, spread->received, err);
    if (status) return status;
    spread->in = spread->out;
    spread->received[0] = spread->bytes[0];
    spread->out = (comm_message){0};
    return DCP_OK;
}

void step_spread_free(step_spread *spread) {
    free(spread->bytes);
    free(spread->out.data);
    free(spread->in.data);
    *spread = (step_spread){0};
}
