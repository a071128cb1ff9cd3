/* The saves and the load of data_scale.c, in earnest: for the comparison of their requests to files
 * with the simulated ones.
 *
 *   mpirun -n RANKS data_real MODEL --dir DIR [--trace PREFIX] [--host RANKS_A_HOST]
 *            [--sharded] [--threads]
 *
 * PREFIX.R gets rank R's requests in the save with a kept plan and in the load. --host: so many
 * ranks say that they are on a host of their own. --threads: no io_uring. */
#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "counts.h"
#include "dcp/mpi.h"
#include "io/queue.h"
#include "models.h"
#include "world.h"

static struct {
    FILE *trace;
    int rank, counts, threads;
} real;

void __real_io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset);
void __wrap_io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset);
void __real_io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                          uint64_t offset);
void __wrap_io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                          uint64_t offset);
int __real_io_queue_create(io_queue **out, dcp_error *err);
int __wrap_io_queue_create(io_queue **out, dcp_error *err);

static void note(int is_write, const io_file *file, uint64_t offset, uint64_t bytes) {
    if (real.trace && real.counts && bytes)
        fprintf(real.trace, "%d %c %u %llu %llu\n", real.rank, is_write ? 'W' : 'R',
                counts_file(file->path), (unsigned long long)offset, (unsigned long long)bytes);
}

void __wrap_io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset) {
    note(1, file, offset, bytes);
    __real_io_queue_write(q, slot, file, buffer, bytes, offset);
}

void __wrap_io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                          uint64_t offset) {
    note(0, file, offset, bytes);
    __real_io_queue_read(q, slot, file, buffer, bytes, offset);
}

int __wrap_io_queue_create(io_queue **out, dcp_error *err) {
    return real.threads ? io_queue_create_threads(out, err) : __real_io_queue_create(out, err);
}

static void must(int status, const dcp_error *err) {
    if (!status) return;
    fprintf(stderr, "%s\n", err->message);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void *box_memory(uint64_t bytes) { /* is the program's until it ends */
    void *memory;
    NEED(!posix_memalign(&memory, 4096, bytes));
    return memset(memory, real.rank + 1, bytes);
}

static void save_and_load(dcp_comm *comm, const char *dir, dcp_layout layout,
                          const dcp_state *state) {
    const dcp_save_options saving = {
        .size = sizeof saving, .layout = layout, .engine = DCP_ENGINE_DIRECT};
    const dcp_load_options loading = {.size = sizeof loading, .engine = DCP_ENGINE_DIRECT};
    dcp_store *store;
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    must(dcp_store_open(comm, dir, NULL, &store, &err), &err);
    for (uint64_t step = 1; step <= 3; step++) {
        real.counts = step == 3;
        must(dcp_save(store, step, state, "{}", &saving, NULL, &err), &err);
    }
    dcp_store_close(store);
    must(dcp_checkpoint_open(comm, dir, &ckpt, &err), &err);
    must(dcp_load_with(ckpt, state, &loading, NULL, &err), &err);
    dcp_checkpoint_close(ckpt);
}

typedef struct arguments {
    const model *model;
    const char *dir, *trace;
    int host;
    dcp_layout layout;
} arguments;

static void parse(arguments *a, int argc, char **argv) {
    static const struct option options[] = {{"dir", 1, NULL, 'd'},     {"trace", 1, NULL, 't'},
                                            {"host", 1, NULL, 'h'},    {"sharded", 0, NULL, 'S'},
                                            {"threads", 0, NULL, 'T'}, {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?') exit(2);
        if (c == 'd') a->dir = optarg;
        if (c == 't') a->trace = optarg;
        if (c == 'h') a->host = atoi(optarg);
        if (c == 'S') a->layout = DCP_LAYOUT_SHARDED;
        if (c == 'T') real.threads = 1;
    }
    a->model = optind < argc ? model_find(argv[optind]) : NULL;
    NEED(a->model && a->dir);
}

int main(int argc, char **argv) {
    arguments a = {0};
    dcp_comm *comm;
    dcp_error err = {0};
    char name[4096];
    int ranks;
    parse(&a, argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &real.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(name, sizeof name, "%s.%d", a.trace ? a.trace : "", real.rank);
    if (a.trace) NEED((real.trace = fopen(name, "w")));
    must(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err), &err);
    snprintf(name, sizeof name, "n%d", a.host ? real.rank / a.host : 0);
    must(dcp_comm_set_host(comm, name, &err), &err);
    save_and_load(comm, a.dir, a.layout, model_state(a.model, real.rank, ranks, box_memory));
    dcp_comm_destroy(comm);
    if (real.trace) NEED(!fclose(real.trace));
    MPI_Finalize();
    return 0;
}
