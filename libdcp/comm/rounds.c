/* The sizes of all rounds travel in one message to each rank. */
#include "comm/rounds.h"

#include <stdlib.h>

#include "core/fail.h"

int comm_rounds_make(comm_rounds *rounds, dcp_comm *comm, size_t n, dcp_error *err) {
    size_t sizes = n * (size_t)comm->size;
    *rounds = (comm_rounds){.comm = comm, .n = n};
    rounds->send = calloc(sizes + 1, sizeof *rounds->send);
    rounds->receive = calloc(sizes + 1, sizeof *rounds->receive);
    int ok = rounds->send && rounds->receive;
    return comm_agree(comm, ok ? DCP_OK : core_fail_memory(err, 16 * sizes), err);
}

/* From [a * b_count + b] to [b * a_count + a]. */
static void transpose(const uint64_t *from, size_t a_count, size_t b_count, uint64_t *to) {
    for (size_t a = 0; a < a_count; a++)
        for (size_t b = 0; b < b_count; b++) to[b * a_count + a] = from[a * b_count + b];
}

static int exchange_sizes(const comm_rounds *r, dcp_error *err) {
    size_t ranks = (size_t)r->comm->size, sizes = r->n * ranks;
    uint64_t *memory = malloc((2 * sizes + ranks) * sizeof *memory);
    int status = comm_agree(r->comm, memory ? DCP_OK : core_fail_memory(err, 16 * sizes), err);
    if (!status) {
        uint64_t *out = memory, *in = out + sizes, *bytes = in + sizes;
        for (size_t rank = 0; rank < ranks; rank++) bytes[rank] = r->n * sizeof *out;
        transpose(r->send, r->n, ranks, out);
        status = comm_alltoall(r->comm, out, bytes, in, bytes, err);
        if (!status) transpose(in, ranks, r->n, r->receive);
    }
    free(memory);
    return status;
}

static uint64_t largest(const comm_rounds *r, const uint64_t *sizes) {
    uint64_t most = 0;
    for (size_t i = 0; i < r->n; i++) {
        uint64_t bytes = 0;
        for (int rank = 0; rank < r->comm->size; rank++)
            bytes += sizes[i * (size_t)r->comm->size + (size_t)rank];
        if (bytes > most) most = bytes;
    }
    return most;
}

int comm_rounds_agree(comm_rounds *r, dcp_error *err) {
    int status = exchange_sizes(r, err);
    if (status) return status;
    r->most_out = largest(r, r->send);
    r->most_in = largest(r, r->receive);
    return DCP_OK;
}

int comm_rounds_run(const comm_rounds *r, size_t round, const void *out, void *in, dcp_error *err) {
    size_t at = round * (size_t)r->comm->size;
    return comm_alltoall(r->comm, out, r->send + at, in, r->receive + at, err);
}

int comm_rounds_answer(const comm_rounds *r, size_t round, const void *out, void *in,
                       dcp_error *err) {
    size_t at = round * (size_t)r->comm->size;
    return comm_alltoall(r->comm, out, r->receive + at, in, r->send + at, err);
}

void comm_rounds_free(comm_rounds *r) {
    free(r->send);
    free(r->receive);
    *r = (comm_rounds){0};
}
