/* A rank that needs something of very many datasets has only a part of them in memory at a time: it
 * loads columns of many small tensors whose rows are in shards. */
#include <malloc.h>

#include "support/resident.h"
#include "support/scratch.h"

enum {
    SHARDS = 64,
    TENSORS = HAS_SHADOW ? 600 : 1600, /* at least two batches of a load */
    COLUMNS_OF_ALL = 8,
    LIMIT_KIB = 50 << 10, /* it needs about 40 MiB, and 58 with all datasets at once */
};

static dcp_tensor tensor_of(int i, char path[32]) {
    snprintf(path, 32, "/model/%04d", i);
    return (dcp_tensor){path, DCP_U8, 2, {SHARDS, COLUMNS_OF_ALL}};
}

static unsigned char value(int tensor, uint64_t row, uint64_t column) {
    return (unsigned char)(tensor * 31 + (int)(row * COLUMNS_OF_ALL + column));
}

typedef struct row_source {
    int tensor;
    uint64_t row;
} row_source;

static int make_row(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const row_source *s = ctx;
    (void)err;
    for (uint64_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = value(s->tensor, s->row, offset + i);
    return DCP_OK;
}

/* Row r of each tensor belongs to shard r. */
static void save(const scratch *s) {
    const dcp_save_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = SHARDS};
    dcp_store *store = scratch_store(s, s->comm, "many");
    row_source *sources = calloc((size_t)SHARDS * TENSORS, sizeof *sources), *next = sources;
    dcp_state *state = NULL;
    char path[32];
    CHECK(sources);
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        const dcp_tensor t = tensor_of(i, path);
        for (uint64_t row = (uint64_t)s->rank; row < SHARDS; row += (uint64_t)s->size) {
            const dcp_box box = {{row, 0}, {1, COLUMNS_OF_ALL}};
            *next = (row_source){i, row};
            SUCCEEDS(dcp_state_add_source(state, &t, &box, make_row, next++, (int)row, err));
        }
    }
    SUCCEEDS(dcp_save(store, 5, state, NULL, &options, NULL, err));
    dcp_state_destroy(state);
    dcp_store_close(store);
    free(sources);
}

static void load(const scratch *s) {
    const uint64_t first = COLUMNS_OF_ALL * (uint64_t)s->rank / (uint64_t)s->size,
                   n = COLUMNS_OF_ALL * ((uint64_t)s->rank + 1) / (uint64_t)s->size - first;
    unsigned char *data = calloc(TENSORS, SHARDS * n), *at = data;
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "many");
    dcp_state *state = NULL;
    char path[32];
    CHECK(data);
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        const dcp_tensor t = tensor_of(i, path);
        const dcp_box box = {{0, first}, {SHARDS, n}};
        SUCCEEDS(dcp_state_add(state, &t, &box, data + (uint64_t)i * SHARDS * n, err));
    }
    malloc_trim(0); /* returns what the save has left */
    long before = reset_peak();
    SUCCEEDS(dcp_load(ckpt, state, NULL, err));
    if (!HAS_SHADOW) check_growth("load", before, LIMIT_KIB);
    for (int i = 0; i < TENSORS; i++)
        for (uint64_t row = 0; row < SHARDS; row++)
            for (uint64_t column = first; column < first + n; column++)
                CHECK(*at++ == value(i, row, column));
    dcp_state_destroy(state);
    dcp_checkpoint_close(ckpt);
    free(data);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    save(&s);
    load(&s);
    return scratch_end(&s);
}
