/* Casts of what other ranks see: to smaller and to larger elements, of boxes that cover a tensor
 * and of boxes that overlap. */
#include "support/private.h"

static dcp_box overlapping(const dcp_tensor *t, int rank, int size) {
    dcp_box box = dcp_box_chunk(t, rank, size);
    if (box.start[0] > 0 && box.count[0] > 0) box.start[0]--, box.count[0]++;
    return box;
}

static void load_as(const scratch *s, const char *dir, const given *g, dcp_dtype to, int overlap) {
    const dcp_tensor *stored = given_find(g, "/model/blocks");
    dcp_tensor wanted = *stored;
    dcp_state *state = NULL;
    dcp_checkpoint *ckpt = NULL;
    const dcp_load_options options = {.size = sizeof options, .cast = 1};
    uint64_t bytes;
    dcp_box box = overlap ? overlapping(stored, s->rank, s->size)
                          : dcp_box_chunk(stored, s->size - 1 - s->rank, s->size);
    unsigned char *data = given_cut(g, (size_t)(stored - g->tensors), &box, &bytes);
    uint64_t elems = dcp_box_elems(&box, 2), size = dcp_dtype_bytes(to);
    unsigned char *want = malloc(elems * size + 1), *have = calloc(elems * size + 1, 1);
    CHECK(dcp_convert(DCP_F32, data, to, want, elems) == DCP_OK);
    wanted.dtype = to;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &wanted, &box, have, err));
    SUCCEEDS(dcp_checkpoint_open_private(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    CHECK(memcmp(want, have, elems * size) == 0);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    free(data);
    free(want);
    free(have);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    node_dir(&s, "store", s.rank, dir);
    private_save(s.comm, dir, &g, ROWS, 5);
    for (int overlap = 0; overlap < 2; overlap++) {
        load_as(&s, dir, &g, DCP_BF16, overlap);
        load_as(&s, dir, &g, DCP_F32, overlap);
        load_as(&s, dir, &g, DCP_F64, overlap);
    }
    given_free(&g);
    return scratch_end(&s);
}
