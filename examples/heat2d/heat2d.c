/* The heat equation on a plate that is divided by rows over any number of ranks, with checkpoints
 * through libdcp.
 *
 *     mpirun --oversubscribe -n N heat2d DIR STEPS EVERY
 *
 * This continues from the newest step in DIR, saves every EVERY steps, and prints a checksum of the
 * plate that is the same for every N and for every history of stops and restarts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/dcp.h>
#include <dcp/mpi.h>

enum { ROWS = 301, COLS = 400, WIDTH = 1 + COLS + 1, EXIT_USAGE = 2, EXIT_FAILED = 3 };

/* The rows [first, first + rows) of the plate. If there are many ranks, some hold none. */
typedef struct plate {
    uint64_t first, rows;
    int above, below; /* the ranks that hold the neighbouring rows, or MPI_PROC_NULL */
    /* [1 + rows + 1]: this rank's rows, surrounded by ghost cells. A ghost cell holds a value of a
     * neighbour's row, or of the plate's fixed edge. */
    double (*u)[WIDTH], (*next)[WIDTH];
} plate;

/* All ranks call this together: libdcp gives every rank the same status. */
static void check(int status, const dcp_error *err) {
    if (status == DCP_OK) return;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) fprintf(stderr, "heat2d: %s\n", err->message);
    MPI_Finalize();
    exit(EXIT_FAILED);
}

/* Makes the plate cold, except for a hot square. All edges stay cold, except the upper edge, which
 * stays hot. */
static void plate_init(plate *p, const dcp_box *box, int rank) {
    p->first = box->start[0];
    p->rows = box->count[0];
    p->above = p->rows > 0 && p->first > 0 ? rank - 1 : MPI_PROC_NULL;
    p->below = p->rows > 0 && p->first + p->rows < ROWS ? rank + 1 : MPI_PROC_NULL;
    p->u = calloc(p->rows + 2, sizeof *p->u);
    p->next = calloc(p->rows + 2, sizeof *p->next);
    if (!p->u || !p->next) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
    for (uint64_t i = 0; i <= p->rows; i++) /* row 0 is the upper edge */
        for (uint64_t row = p->first + i, col = 1; col <= COLS; col++)
            if (row == 0 || (row > 100 && row < 160 && col > 150 && col < 210))
                p->u[i][col] = 100.0;
}

static void plate_step(plate *p) {
    MPI_Sendrecv(p->u[1], WIDTH, MPI_DOUBLE, p->above, 0, p->u[p->rows + 1], WIDTH, MPI_DOUBLE,
                 p->below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(p->u[p->rows], WIDTH, MPI_DOUBLE, p->below, 1, p->u[0], WIDTH, MPI_DOUBLE,
                 p->above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (uint64_t i = 1; i <= p->rows; i++)
        for (int c = 1; c <= COLS; c++)
            p->next[i][c] = p->u[i][c] + 0.2 * (p->u[i - 1][c] + p->u[i + 1][c] + p->u[i][c - 1] +
                                                p->u[i][c + 1] - 4.0 * p->u[i][c]);
    memcpy(p->u + 1, p->next + 1, p->rows * sizeof *p->u);
}

/* Returns a sum over the bits and positions of the cells of all ranks. Its terms are integers, so
 * the order of additions does not matter. */
static uint64_t plate_checksum(const plate *p) {
    uint64_t sum = 0, bits;
    for (uint64_t i = 0; i < p->rows * COLS; i++) {
        memcpy(&bits, &p->u[1 + i / COLS][1 + i % COLS], sizeof bits);
        sum += bits * (2 * (p->first * COLS + i) + 1);
    }
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* Loads the newest step in dir into the plate, and returns the step's number; returns 0 if there is
 * no step. */
static uint64_t resume(dcp_comm *comm, dcp_store *store, const char *dir, const dcp_state *state) {
    dcp_checkpoint *ckpt;
    dcp_error err;
    const int status = dcp_checkpoint_open(comm, dir, &ckpt, &err);
    if (status == DCP_ERR_NOT_FOUND) return 0;
    check(status, &err);
    const uint64_t step = dcp_checkpoint_step(ckpt);
    check(dcp_load(ckpt, state, NULL, &err), &err);
    check(dcp_store_mark_intact(store, step, &err), &err);
    check(dcp_store_continue_from(store, step, &err), &err);
    dcp_checkpoint_close(ckpt);
    return step;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    const uint64_t steps = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    const uint64_t every = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    if (steps == 0 || every == 0) {
        if (rank == 0)
            fprintf(stderr, "usage: mpirun --oversubscribe -n N heat2d DIR STEPS EVERY\n");
        MPI_Finalize();
        return EXIT_USAGE;
    }

    /* A save contains one global tensor. This rank holds a box of its rows, without the ghost
     * cells. */
    const dcp_tensor tensor = {"/heat/u", DCP_F64, 2, {ROWS, COLS}};
    const dcp_box box = dcp_box_chunk(&tensor, rank, world);
    plate p;
    plate_init(&p, &box, rank);
    dcp_error err;
    dcp_comm *comm;
    dcp_store *store;
    dcp_state *state;
    const dcp_store_options options = {.size = sizeof options, .keep = 2, .tool = "heat2d"};
    check(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err), &err);
    check(dcp_store_open(comm, argv[1], &options, &store, &err), &err);
    check(dcp_state_create(&state, &err), &err);
    const int64_t strides[] = {sizeof *p.u, sizeof **p.u};
    check(dcp_state_add_strided(state, &tensor, &box, p.u[1] + 1, strides, &err), &err);

    const uint64_t found = resume(comm, store, argv[1], state);
    for (uint64_t step = found + 1; step <= steps; step++) {
        plate_step(&p);
        if (step % every == 0 || step == steps)
            check(dcp_save(store, step, state, NULL, NULL, NULL, &err), &err);
    }
    const uint64_t sum = plate_checksum(&p);
    if (rank == 0)
        printf("%d ranks, steps %" PRIu64 " to %" PRIu64 ": checksum %016" PRIx64 "\n", world,
               found, steps, sum);

    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(comm);
    free(p.u);
    free(p.next);
    MPI_Finalize();
    return 0;
}
