/* A tensor over 4 GiB, from a source: its boxes beyond byte 2^32 and across it load, block by block
 * and by the ranks together. It needs 5 GB of disk and some time, so it runs only if DCP_TEST_LARGE
 * names a folder for it. */
#include "support/scratch.h"

#define ROW ((uint64_t)360000011) /* three rows: 4,320,000,132 bytes */

static float element(uint64_t i) { return (float)(i * 2654435761u >> 20 & 0xffff) * 0x1p-8f; }

static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const dcp_box *box = ctx;
    uint64_t first = box->start[0] * ROW + box->start[1];
    (void)err;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t i = (offset + at) / 4, skip = (offset + at) % 4, n = 4 - skip;
        float value = element(first + i);
        if (n > bytes - at) n = bytes - at;
        memcpy((char *)out + at, (const char *)&value + skip, n);
        at += n;
    }
    return DCP_OK;
}

static const dcp_tensor large = {"/model/large", DCP_F32, 2, {3, ROW}};

static void save(const scratch *s, const char *dir) {
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    dcp_box box = dcp_box_chunk(&large, s->rank, s->size);
    SUCCEEDS(dcp_store_open(s->comm, dir, NULL, &store, err));
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add_source(state, &large, &box, read_source, &box, -1, err));
    SUCCEEDS(dcp_save(store, 1, state, NULL, NULL, NULL, err));
    dcp_state_destroy(state);
    dcp_store_close(store);
}

/* Checks that the box's elements, as `as`, are those of the source. */
static void load(dcp_checkpoint *ckpt, const dcp_box *box, dcp_dtype as) {
    uint64_t n = dcp_box_elems(box, 2), size = dcp_dtype_bytes(as);
    unsigned char *data = malloc(n * size + 1), want[8];
    dcp_state *state = NULL;
    dcp_tensor t = large;
    dcp_load_options options = {.size = sizeof options, .cast = 1};
    t.dtype = as;
    CHECK(data && dcp_state_create(&state, NULL) == DCP_OK);
    SUCCEEDS(dcp_state_add(state, &t, box, data, err));
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = box->start[0] + i / box->count[1],
                 column = box->start[1] + i % box->count[1];
        float value = element(row * ROW + column);
        CHECK(dcp_convert(DCP_F32, &value, as, want, 1) == DCP_OK);
        CHECK(!memcmp(want, data + i * size, size));
    }
    dcp_state_destroy(state);
    free(data);
}

int main(int argc, char **argv) {
    const char *folder = getenv("DCP_TEST_LARGE");
    char dir[PATH_MAX];
    scratch s;
    dcp_checkpoint *ckpt = NULL;
    if (!folder) {
        puts("skipped: DCP_TEST_LARGE does not name a folder with 5 GB of space");
        return 77;
    }
    scratch_begin(&s, &argc, &argv);
    snprintf(dir, sizeof dir, "%s/dcp-large", folder);
    save(&s, dir);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    uint64_t border = (((uint64_t)1 << 32) / 4) % ROW; /* in the last row */
    dcp_box end = {{2, ROW - 5000}, {1, 5000}}, across = {{2, border - 3000}, {1, 6001}};
    dcp_box column = {{0, ROW - 1}, {3, 1}}, part = dcp_box_whole(&large);
    load(ckpt, &end, DCP_F32);
    load(ckpt, &across, DCP_F32);
    load(ckpt, &column, DCP_F64);
    part.start[1] = ROW * (uint64_t)s.rank / (uint64_t)s.size; /* one column of the mesh per rank */
    part.count[1] = ROW * (uint64_t)(s.rank + 1) / (uint64_t)s.size - part.start[1];
    load(ckpt, &part, DCP_F8_E5M2);
    dcp_checkpoint_close(ckpt);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s.rank == 0) CHECK(store_directory_remove(AT_FDCWD, dir) == 0);
    return scratch_end(&s);
}
