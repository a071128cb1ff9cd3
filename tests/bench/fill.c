/* Filling a store on a disk from one in memory: prints the gigabytes a second of one filling, from
 * its begin to the durable step, after a save into the store in memory. Run by mpirun; fill.sh sets
 * it beside fio.
 *   bench_fill MEMORY DISK [MIB]     two folders, which hold nothing else; 2048 MiB of tensors */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"
#include "dcp/mpi.h"

enum { COLUMNS = 1024, ROWS = 4096, FEW_ROWS = 64, TOGETHER = 4 }; /* every fourth one is small */

typedef struct filled {
    double seconds;
    uint64_t step;
} filled;

static void check(int status, const dcp_error *err) {
    if (!status) return;
    fprintf(stderr, "bench_fill: %s\n", err->message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void print_log(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx;
    if (level == DCP_LOG_WARNING) fprintf(stderr, "bench_fill: %s\n", line);
}

static void note_filling(void *ctx, size_t i, uint64_t step, double begin, double end) {
    filled *f = ctx;
    if (i == 1) *f = (filled){end - begin, step};
}

/* This rank's rows of n tensors of four, filled; returns the bytes of all ranks. */
static uint64_t make_state(dcp_state *state, uint64_t n, int rank, int ranks) {
    uint64_t bytes = 0;
    dcp_error err;
    for (uint64_t i = 0; i < n * TOGETHER; i++) {
        char path[32];
        snprintf(path, sizeof path, "/model/%06u", (unsigned)i);
        const uint64_t rows = (i + 1) % TOGETHER ? ROWS : FEW_ROWS;
        const dcp_tensor t = {path, DCP_F32, 2, {rows, COLUMNS}};
        const dcp_box box = dcp_box_chunk(&t, rank, ranks);
        const uint64_t own = dcp_box_elems(&box, t.ndim);
        uint32_t *data = aligned_alloc(4096, (own * sizeof *data + 4095) / 4096 * 4096 + 4096);
        if (!data) abort();
        for (uint64_t k = 0; k < own; k++)
            data[k] = (uint32_t)(k * 2654435761u) ^ (uint32_t)(i * 977 + (uint64_t)rank);
        check(dcp_state_add(state, &t, &box, data, &err), &err); /* memory goes with the process */
        bytes += dcp_tensor_bytes(&t);
    }
    return bytes;
}

static double fill(dcp_comm *comm, char **dirs, const dcp_state *state) {
    dcp_tier list[] = {DCP_TIER_INIT, DCP_TIER_INIT};
    dcp_tiers_options options = DCP_TIERS_OPTIONS_INIT;
    dcp_tiers *tiers;
    dcp_error err;
    filled f = {0};
    for (int i = 0; i < 2; i++) {
        list[i].path = dirs[i];
        list[i].every = list[i].keep = 1;
    }
    list[0].is_private = 1;
    options.log = print_log;
    options.on_filled = note_filling;
    options.filled_ctx = &f;
    check(dcp_tiers_open(comm, list, 2, &options, &tiers, &err), &err);
    check(dcp_tiers_save_async(tiers, 1, state, NULL, NULL, &err), &err);
    check(dcp_tiers_wait(tiers, NULL, &err), &err);
    dcp_tiers_close(tiers);
    MPI_Allreduce(MPI_IN_PLACE, &f.seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return f.step ? f.seconds : 0;
}

int main(int argc, char **argv) {
    int level, rank, ranks;
    dcp_comm *comm;
    dcp_state *state;
    dcp_error err;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || argc > 4) {
        if (!rank) fprintf(stderr, "usage: bench_fill MEMORY DISK [MIB]\n");
        MPI_Finalize();
        return 2;
    }
    const uint64_t mib = argc > 3 ? strtoull(argv[3], NULL, 10) : 2048;
    check(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err), &err);
    check(dcp_state_create(&state, &err), &err);
    const uint64_t bytes = make_state(state, mib / 48, rank, ranks);
    const double seconds = fill(comm, argv + 1, state);
    if (!rank) printf("%.3f\n", seconds ? 1e-9 * (double)bytes / seconds : 0);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return seconds ? 0 : 1;
}
