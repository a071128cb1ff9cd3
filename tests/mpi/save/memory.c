/* Saving and loading add at most 64 MiB to a rank's resident memory, whatever the boxes, also with
 * a cast to smaller elements. */
#include "support/resident.h"
#include "support/scratch.h"

#define LIMIT_KIB (64 << 10)
#define ROWS_BYTES ((uint64_t)160 << 20)

/* One wide matrix, and many small tensors beside it: a rank holds its rows, its columns, or only
 * copies of small tensors. */
static dcp_state *make_state(const scratch *s, const char *what, unsigned char *data) {
    static const dcp_tensor big = {"/model/big", DCP_F32, 2, {4001, ROWS_BYTES / 4 / 4001}};
    dcp_state *state = NULL;
    dcp_box box = dcp_box_chunk(&big, s->rank, s->size);
    dcp_tensor turned = {"/model/big", DCP_F32, 1, {big.shape[1]}};
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    if (what[0] == 'c') { /* columns */
        dcp_box part = dcp_box_chunk(&turned, s->rank, s->size);
        box = dcp_box_whole(&big);
        box.start[1] = part.start[0];
        box.count[1] = part.count[0];
    }
    if (what[0] != 's') SUCCEEDS(dcp_state_add(state, &big, &box, data, err));
    data += ROWS_BYTES / (uint64_t)s->size + (1 << 20); /* after the matrix's box */
    for (int i = 0; i < (what[0] == 's' ? 8000 : 500); i++) {
        char path[32];
        snprintf(path, sizeof path, "/small/%d", i);
        dcp_tensor small = {path, DCP_U8, 1, {9001}};
        SUCCEEDS(dcp_state_add(state, &small, NULL, data + 9001 * i, err));
    }
    return state;
}

static void check(const scratch *s, const char *what, unsigned char *data, dcp_layout layout,
                  dcp_engine engine) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_save_options options = {.size = sizeof options, .layout = layout, .engine = engine};
    dcp_load_options how = {.size = sizeof how, .engine = engine};
    dcp_state *state = make_state(s, what, data);
    dcp_store *store = scratch_store(s, s->comm, "store");
    long before = reset_peak();
    SUCCEEDS(dcp_save(store, 1, state, NULL, &options, NULL, err));
    check_growth(what, before, LIMIT_KIB);
    before = reset_peak();
    SUCCEEDS(dcp_save(store, 1, state, NULL, &options, NULL, err)); /* with the plan kept */
    check_growth(what, before, LIMIT_KIB);
    dcp_store_close(store);
    snprintf(dir, sizeof dir, "%s/store", s->root);
    before = reset_peak();
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_load_with(ckpt, state, &how, NULL, err));
    check_growth(what, before, LIMIT_KIB);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
}

/* The matrix as half floats. */
static void check_cast(const scratch *s, unsigned char *data) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_state *state = NULL;
    dcp_load_options options = {.size = sizeof options, .cast = 1};
    dcp_tensor half = {"/model/big", DCP_BF16, 2, {4001, ROWS_BYTES / 4 / 4001}};
    dcp_box box = dcp_box_chunk(&half, s->rank, s->size);
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &half, &box, data, err));
    snprintf(dir, sizeof dir, "%s/store", s->root);
    long before = reset_peak();
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    check_growth("cast", before, LIMIT_KIB);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
}

int main(int argc, char **argv) {
    if (HAS_SHADOW) return 77;
    scratch s;
    scratch_begin(&s, &argc, &argv);
    uint64_t bytes = ROWS_BYTES / (uint64_t)s.size + (100 << 20);
    unsigned char *data = malloc(bytes);
    CHECK(data);
    memset(data, 1, bytes); /* copies are equal */
    check(&s, "rows", data, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT);
    check_cast(&s, data);
    check(&s, "columns", data, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT);
    check(&s, "small", data, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT);
    check(&s, "rows", data, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT);
    check(&s, "columns", data, DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO);
    check(&s, "small", data, DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO);
    free(data);
    return scratch_end(&s);
}
