/* A matrix cut by columns, so large that its fragments need more windows than one round of sizes
 * covers: saved on some columns, loaded on other ones, every element is right. */
#include "comm/messages.h"
#include "move/domain.h"
#include "support/scratch.h"

#define COLUMNS_IN_ALL 1031

/* More than MOVE_WINDOW_BYTES for each round that is planned at once. */
static const dcp_tensor matrix = {
    "/model/m",
    DCP_U32,
    2,
    {(COMM_ROUNDS_AT_ONCE + 2) * (MOVE_WINDOW_BYTES / 4 / COLUMNS_IN_ALL), COLUMNS_IN_ALL}};

static dcp_box columns(int part, int parts) {
    dcp_box box = dcp_box_whole(&matrix);
    box.start[1] = (uint64_t)part * COLUMNS_IN_ALL / (uint64_t)parts;
    box.count[1] = (uint64_t)(part + 1) * COLUMNS_IN_ALL / (uint64_t)parts - box.start[1];
    return box;
}

static uint32_t element(uint64_t row, uint64_t column) {
    return (uint32_t)(row * 2654435761u + column * 40503u);
}

static dcp_state *hold(const dcp_box *box, uint32_t *data) {
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &matrix, box, data, err));
    return state;
}

static uint64_t wrong(const dcp_box *box, const uint32_t *data) {
    uint64_t n = 0;
    for (uint64_t r = 0; r < box->count[0]; r++)
        for (uint64_t c = 0; c < box->count[1]; c++) n += *data++ != element(r, box->start[1] + c);
    return n;
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    dcp_box saved = columns(s.rank, s.size), loaded = columns(s.size - 1 - s.rank, s.size);
    uint64_t most = matrix.shape[0] * (COLUMNS_IN_ALL / (uint64_t)s.size + 1);
    uint32_t *data = malloc(most * sizeof *data), *at = data;
    CHECK(data);
    for (uint64_t r = 0; r < saved.count[0]; r++)
        for (uint64_t c = 0; c < saved.count[1]; c++) *at++ = element(r, saved.start[1] + c);

    dcp_state *state = hold(&saved, data);
    dcp_store *store = scratch_store(&s, s.comm, "store");
    SUCCEEDS(dcp_save(store, 1, state, NULL, NULL, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);

    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    snprintf(dir, sizeof dir, "%s/store", s.root);
    memset(data, 0, most * sizeof *data);
    state = hold(&loaded, data);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    SUCCEEDS(dcp_load(ckpt, state, NULL, err));
    CHECK(wrong(&loaded, data) == 0);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    free(data);
    return scratch_end(&s);
}
