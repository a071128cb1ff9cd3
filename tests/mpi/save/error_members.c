/* What a failure reports to programs besides its text: errno of a refused write and of an open, the
 * damaged block's tensor, file and offset; the same on all ranks. */
#include <errno.h>
#include <sys/resource.h>

#include "core/bytes.h"
#include "format/index.h"
#include "support/scratch.h"

#define ELEMENTS (3u << 20)

static float data[ELEMENTS];

/* This rank's share of 12 MiB of zeros, with a 1 at the end. */
static dcp_state *make_state(const scratch *s) {
    const dcp_tensor t = {"/model/big", DCP_F32, 1, {ELEMENTS}};
    const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
    dcp_state *state = NULL;
    memset(data, 0, sizeof data);
    data[ELEMENTS - 1] = 1;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, &box, data + box.start[0], err));
    return state;
}

/* On the last rank files may not grow beyond one MiB. */
static void refused_write(const scratch *s, dcp_store *store, const dcp_state *state) {
    dcp_error failure;
    struct rlimit before, small;
    CHECK(!getrlimit(RLIMIT_FSIZE, &before));
    small = before;
    if (s->rank == s->size - 1) small.rlim_cur = 1u << 20;
    CHECK(!setrlimit(RLIMIT_FSIZE, &small));
    const int status = dcp_save(store, 5, state, NULL, NULL, NULL, &failure);
    CHECK(!setrlimit(RLIMIT_FSIZE, &before));
    check_same_failure(status, DCP_ERR_IO, &failure, strerror(EFBIG));
    CHECK(failure.system_error == EFBIG && strstr(failure.path, "/state.h5"));
    CHECK(!failure.tensor[0] && failure.n_ranks == 0);
    CHECK(failure.offset >= 1u << 20 && failure.offset != UINT64_MAX);
}

static void missing_step(const scratch *s, const char *dir) {
    dcp_error failure;
    dcp_checkpoint *ckpt;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.500s/step-00000099", dir);
    const int status = dcp_checkpoint_open(s->comm, path, &ckpt, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure, path);
    CHECK(failure.system_error == ENOENT && !strcmp(failure.path, path));
}

/* The position in the file of the last element, which is in the third block. */
static off_t find_last(const char *path) {
    const float one = 1;
    const int fd = open(path, O_RDONLY);
    const off_t end = lseek(fd, 0, SEEK_END);
    float found = 0;
    off_t at = (off_t)(ELEMENTS - 1) * (off_t)sizeof one;
    for (; at < end && found != one; at += (off_t)sizeof one)
        CHECK(pread(fd, &found, sizeof found, at) == sizeof found);
    close(fd);
    return at - (off_t)sizeof one;
}

static void damaged_block(const scratch *s, const char *dir, const dcp_state *state) {
    char path[PATH_MAX];
    dcp_error failure;
    dcp_checkpoint *ckpt = NULL;
    snprintf(path, sizeof path, "%.500s/step-00000005/state.h5", dir);
    const off_t at = find_last(path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) {
        const int fd = open(path, O_WRONLY);
        CHECK(pwrite(fd, "x", 1, at) == 1 && !close(fd));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    const int status = dcp_load(ckpt, state, NULL, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "/model/big, block 2");
    CHECK(!strcmp(failure.tensor, "/model/big") && !strcmp(failure.path, path));
    const uint64_t begin = (uint64_t)at - (ELEMENTS - 1) * sizeof(float);
    CHECK(failure.offset == begin + 2 * BLOCK_BYTES && failure.system_error == 0);
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    char dir[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    dcp_store *store = scratch_store(&s, s.comm, "store");
    dcp_state *state = make_state(&s);
    refused_write(&s, store, state);
    SUCCEEDS(dcp_save(store, 5, state, NULL, NULL, NULL, err));
    dcp_store_close(store);
    missing_step(&s, dir);
    damaged_block(&s, dir, state);
    dcp_state_destroy(state);
    return scratch_end(&s);
}
