/* A rewrite refuses the following on all ranks alike, and leaves nothing: damage, boxes that omit
 * elements, too little memory, files that a rank does not see. */
#include <sys/stat.h>

#include "support/scratch.h"

static void open_from(const scratch *s, dcp_checkpoint **from) {
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/from", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, from, err));
}

static void refused(const scratch *s, const dcp_rewrite_options *options, int status,
                    const char *text) {
    dcp_error failure = {0};
    dcp_checkpoint *from = NULL;
    dcp_store *to = scratch_store(s, s->comm, "to");
    dcp_step *steps = NULL;
    char dir[PATH_MAX];
    size_t n = 1;
    open_from(s, &from);
    check_same_failure(dcp_rewrite(from, to, options, NULL, &failure), status, &failure, text);
    snprintf(dir, sizeof dir, "%s/to", s->root);
    MPI_Barrier(MPI_COMM_WORLD);
    SUCCEEDS(dcp_steps_list(dir, &steps, &n, err));
    CHECK(n == 0);
    free(steps);
    dcp_checkpoint_close(from);
    dcp_store_close(to);
}

/* Flips a bit in the middle of the file as rank 0 sees it. */
static void flip(const scratch *s, const char *name) {
    char path[PATH_MAX];
    unsigned char byte;
    struct stat st;
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) {
        snprintf(path, sizeof path, "%s/from/step-00000005/%s", s->root, name);
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0 && fstat(fd, &st) == 0);
        CHECK(pread(fd, &byte, 1, st.st_size / 2) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, st.st_size / 2) == 1 && close(fd) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static dcp_box nobody(void *ctx, const dcp_tensor *tensor, int shard) {
    (void)ctx;
    (void)shard;
    dcp_box box = dcp_box_whole(tensor);
    box.count[0] /= 2;
    return box;
}

static void check_layout(const scratch *s, const given *g, dcp_layout layout, const char *name) {
    const dcp_rewrite_options sharded = {
        .size = sizeof sharded, .layout = DCP_LAYOUT_SHARDED, .shards = 3};
    scratch_save(s, s->comm, "from", g, ROWS, layout);
    flip(s, name);
    refused(s, &sharded, DCP_ERR_CORRUPT, "what was read differs from what was saved");
    refused(s, NULL, DCP_ERR_CORRUPT, "block");
    flip(s, name);
}

/* A communicator whose ranks have another order than the store's; they would wait for each
 * other. */
static void refuses_other_ranks(const scratch *s, const given *g) {
    MPI_Comm mpi;
    dcp_comm *turned = NULL;
    dcp_error failure = {0};
    dcp_checkpoint *from = NULL;
    char dir[PATH_MAX];
    if (s->size == 1) return;
    scratch_save(s, s->comm, "of_others", g, ROWS, DCP_LAYOUT_GLOBAL);
    snprintf(dir, sizeof dir, "%s/of_others", s->root);
    MPI_Comm_split(MPI_COMM_WORLD, 0, s->size - s->rank, &mpi);
    SUCCEEDS(dcp_comm_from_mpi(mpi, &turned, err));
    SUCCEEDS(dcp_checkpoint_open(turned, dir, &from, err));
    dcp_store *to = scratch_store(s, s->comm, "to_others");
    check_same_failure(dcp_rewrite(from, to, NULL, NULL, &failure), DCP_ERR_ARG, &failure,
                       "another communicator");
    dcp_store_close(to);
    dcp_checkpoint_close(from);
    dcp_comm_destroy(turned);
    MPI_Comm_free(&mpi);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    char last[64];
    snprintf(last, sizeof last, "shard-%05d-of-%05d.h5", s.size - 1, s.size);
    check_layout(&s, &g, DCP_LAYOUT_GLOBAL, "state.h5");
    if (s.rank == 0) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s/from", s.root);
        CHECK(store_directory_remove(AT_FDCWD, folder) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check_layout(&s, &g, DCP_LAYOUT_SHARDED, last);

    dcp_rewrite_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = 2, .cut = nobody};
    refused(&s, &options, DCP_ERR_MISMATCH, "tensor");
    options = (dcp_rewrite_options){.size = sizeof(dcp_rewrite_options),
                                    .memory_bytes = DCP_REWRITE_LEAST - 1};
    refused(&s, &options, DCP_ERR_ARG, "memory_bytes");
    options = (dcp_rewrite_options){
        .size = sizeof(dcp_rewrite_options), .layout = DCP_LAYOUT_SHARDED, .shards = 100000};
    refused(&s, &options, DCP_ERR_ARG, "100000 shards");
    refuses_other_ranks(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
