/* A damaged byte in a file that only one rank sees: every load that uses it fails on all ranks,
 * because of the sum over memory if boxes cover the tensor, otherwise because of the check by the
 * file's reader; a load that does not use it works. */
#include "support/private.h"

static const char *const victim = "/model/blocks";

/* Flips a byte in the last rank's rows of the tensor, in its shard. */
static void damage(const scratch *s, const given *g, const char *dir) {
    char name[64], path[PATH_MAX];
    size_t n, t = (size_t)(given_find(g, victim) - g->tensors);
    uint64_t bytes;
    dcp_box box = dcp_box_chunk(&g->tensors[t], s->rank, s->size);
    unsigned char *data = given_cut(g, t, &box, &bytes);
    snprintf(name, sizeof name, "%s/step-00000005/shard-%05d-of-%05d.h5", dir + strlen(s->root) + 1,
             s->rank, s->size);
    unsigned char *file = scratch_read(s, name, &n);
    const unsigned char *at = memmem(file, n, data, bytes);
    CHECK(bytes && at);
    snprintf(path, sizeof path, "%s/%s", s->root, name);
    int fd = open(path, O_WRONLY);
    unsigned char flipped = at[bytes / 2] ^ 4;
    CHECK(pwrite(fd, &flipped, 1, at - file + (off_t)(bytes / 2)) == 1);
    close(fd);
    free(file);
    free(data);
}

static int load(const scratch *s, const char *dir, const given *g, scheme how,
                const dcp_load_options *options, dcp_error *failure) {
    held h;
    dcp_checkpoint *ckpt = NULL;
    SUCCEEDS(dcp_checkpoint_open_private(s->comm, dir, &ckpt, err));
    held_make(&h, g, how, s->rank, s->size, 0);
    int status = dcp_load_with(ckpt, h.state, options, NULL, failure);
    held_free(&h);
    dcp_checkpoint_close(ckpt);
    return status;
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    dcp_error failure = {0};
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    node_dir(&s, "store", s.rank, dir);
    private_save(s.comm, dir, &g, ROWS, 5);
    if (s.rank == s.size - 1) damage(&s, &g, dir);
    MPI_Barrier(MPI_COMM_WORLD);
    static const scheme all[] = {ROWS, COLUMNS, COPIES, HALO};
    for (int i = 0; i < 4; i++)
        check_same_failure(load(&s, dir, &g, all[i], NULL, &failure), DCP_ERR_CORRUPT, &failure,
                           victim);
    const char *others[] = {"/optimizer/*"};
    const dcp_load_options options = {.size = sizeof options, .only = others, .n_only = 1};
    for (int i = 0; i < 4; i++) SUCCEEDS(load(&s, dir, &g, all[i], &options, err));
    given_free(&g);
    return scratch_end(&s);
}
