/* Loads steps whose files are each visible only to some ranks: on as many ranks as saved them, on
 * more and on fewer, with every way to hold a tensor. */
#include "support/private.h"

/* The first ranks, each with a directory of its own, save; all ranks load, of which the others see
 * nothing, or each sees what another one saved. */
static void on_more_ranks(const scratch *s, const given *g) {
    char own[PATH_MAX], other[PATH_MAX];
    for (scheme how = ROWS; how < SAVE_SCHEMES; how++) {
        int n = how == ROWS ? s->size : 1 + (int)how % s->size;
        node_dir(s, "more", s->rank, own);
        node_dir(s, "more", (s->rank + 1) % s->size, other);
        dcp_comm *part = part_of(s, s->rank < n);
        if (s->rank < n) private_save(part, own, g, how, 5);
        MPI_Barrier(MPI_COMM_WORLD);
        private_load(s->comm, s->rank < n ? own : NULL, g, (how + 1) % LOAD_SCHEMES, 5);
        private_load(s->comm, other, g, (how + 4) % LOAD_SCHEMES, 5);
        if (s->rank < n) private_load(part, own, g, how, 5);
        dcp_comm_destroy(part);
    }
}

/* Ranks share directories in pairs; only the even ones load. */
static void on_fewer_ranks(const scratch *s, const given *g) {
    char dir[PATH_MAX];
    node_dir(s, "fewer", s->rank / 2, dir);
    dcp_comm *half = part_of(s, s->rank % 2);
    private_save(s->comm, dir, g, STRIPES, 5);
    MPI_Barrier(MPI_COMM_WORLD);
    for (scheme how = ROWS; how < LOAD_SCHEMES && s->rank % 2 == 0; how++)
        private_load(half, dir, g, how, 5);
    dcp_comm_destroy(half);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A folder of one step is opened as that step; for directories, the newest complete step is. */
static void which_step(const scratch *s, const given *g) {
    char dir[PATH_MAX], step[PATH_MAX + 64], shard[PATH_MAX + 128];
    dcp_error failure = {0};
    dcp_checkpoint *ckpt = NULL;
    node_dir(s, "steps", s->rank, dir);
    for (uint64_t n = 1; n <= 3; n++) private_save(s->comm, dir, g, ROWS, n);
    private_load(s->comm, dir, g, ROWS, 3);
    snprintf(step, sizeof step, "%s/step-00000002", dir);
    private_load(s->comm, step, g, ROWS, 2);

    snprintf(shard, sizeof shard, "%s/step-00000003/shard-%05d-of-%05d.h5", dir, s->size - 1,
             s->size);
    if (s->rank == s->size - 1) CHECK(unlink(shard) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    private_load(s->comm, dir, g, ROWS, 2);
    snprintf(step, sizeof step, "%s/step-00000003", dir);
    int status = dcp_checkpoint_open_private(s->comm, step, &ckpt, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure,
                       s->size > 1 ? "no rank sees 1 of its" : "no rank sees a file");
    snprintf(step, sizeof step, "%s/step-00000004", dir);
    status = dcp_checkpoint_open_private(s->comm, step, &ckpt, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "no rank sees a file");
    status = dcp_checkpoint_open_private(s->comm, "/nowhere", &ckpt, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure, "no complete step");
    status = dcp_checkpoint_open_private(s->comm, s->rank ? dir : step, &ckpt, &failure);
    if (s->size > 1) check_same_failure(status, DCP_ERR_MISMATCH, &failure, "a step's folder");
}

/* Every step has lost a file: the newest one's is reported. */
static void nothing_is_whole(const scratch *s) {
    char dir[PATH_MAX], path[PATH_MAX + 64];
    dcp_error failure = {0};
    dcp_checkpoint *ckpt = NULL;
    node_dir(s, "steps", s->rank, dir);
    for (int n = 1; n <= 2 && s->rank == 0; n++) {
        snprintf(path, sizeof path, "%s/step-0000000%d", dir, n);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int status = dcp_checkpoint_open_private(s->comm, dir, &ckpt, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure,
                       s->size > 1 ? "step-00000003: no rank sees 1 of its" : "no step is");
}

/* What only another rank sees cannot be read alone, and the message says so. */
static void alone(const scratch *s, const given *g) {
    char dir[PATH_MAX];
    dcp_error failure = {0};
    dcp_checkpoint *ckpt = NULL;
    node_dir(s, "alone", s->rank, dir);
    private_save(s->comm, dir, g, COPIES, 5); /* all of it is in shard 0 */
    SUCCEEDS(dcp_checkpoint_open_private(s->comm, dir, &ckpt, err));
    CHECK(strncmp(dcp_checkpoint_path(ckpt), dir, strlen(dir)) == 0);
    dcp_tensor tensor = *given_find(g, "/model/uneven");
    dcp_box whole = dcp_box_whole(&tensor);
    unsigned char *data = malloc(dcp_tensor_bytes(&tensor));
    int status = dcp_checkpoint_read(ckpt, tensor.path, &whole, data, &failure);
    CHECK(status == (s->rank ? DCP_ERR_UNSUPPORTED : DCP_OK));
    if (s->rank) CHECK(strstr(failure.message, "can be read on rank 0 but not on this rank"));
    free(data);
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    on_more_ranks(&s, &g);
    on_fewer_ranks(&s, &g);
    which_step(&s, &g);
    nothing_is_whole(&s);
    alone(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
