/* A step with more shards than a process may have files open: saved, loaded, verified and rewritten
 * by few ranks. Most shards have small pieces, some have pieces that a rank moves alone. */
#include <sys/resource.h>

#include "support/scratch.h"

enum {
    SHARDS = 300,
    OPEN_FILES = 256,
    SMALL = 300, /* elements of a shard's row */
    BULK_SHARDS = 80,
    BULK = 132 << 10,
};

static const dcp_tensor small = {"/model/small", DCP_F32, 2, {SHARDS, SMALL}};
static const dcp_tensor large = {"/model/large", DCP_F32, 2, {BULK_SHARDS, BULK}};

static float value(const dcp_tensor *t, uint64_t row, uint64_t column) {
    return (float)(row * t->shape[1] + column) + (t == &large ? 0.5f : 0.0f);
}

typedef struct row_source {
    const dcp_tensor *tensor;
    uint64_t row;
} row_source;

static int make_row(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const row_source *s = ctx;
    (void)err;
    for (uint64_t at = 0; at < bytes; at++) {
        float v = value(s->tensor, s->row, (offset + at) / sizeof v);
        ((unsigned char *)out)[at] = ((unsigned char *)&v)[(offset + at) % sizeof v];
    }
    return DCP_OK;
}

/* Row r of a tensor belongs to shard r. */
static void save(const scratch *s) {
    static row_source sources[2 * SHARDS];
    size_t n = 0;
    dcp_state *state = NULL;
    dcp_store *store = scratch_store(s, s->comm, "many");
    const dcp_save_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = SHARDS};
    SUCCEEDS(dcp_state_create(&state, err));
    for (int t = 0; t < 2; t++)
        for (uint64_t row = (uint64_t)s->rank; row < (t ? &large : &small)->shape[0];
             row += (uint64_t)s->size) {
            const dcp_tensor *tensor = t ? &large : &small;
            const dcp_box box = {{row, 0}, {1, tensor->shape[1]}};
            sources[n] = (row_source){tensor, row};
            SUCCEEDS(
                dcp_state_add_source(state, tensor, &box, make_row, &sources[n++], (int)row, err));
        }
    SUCCEEDS(dcp_save(store, 5, state, NULL, &options, NULL, err));
    dcp_state_destroy(state);
    dcp_store_close(store);
}

static dcp_checkpoint *open_step(const scratch *s, dcp_comm *comm, const char *dir) {
    char path[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    snprintf(path, sizeof path, "%s/%s", s->root, dir);
    SUCCEEDS(dcp_checkpoint_open(comm, path, &ckpt, err));
    CHECK(dcp_checkpoint_files(ckpt) == SHARDS);
    return ckpt;
}

/* This rank's part of the columns, of all rows, so it needs something of every file. */
static float *add_columns(const scratch *s, dcp_state *state, const dcp_tensor *t, dcp_box *box) {
    uint64_t first = t->shape[1] * (uint64_t)s->rank / (uint64_t)s->size,
             end = t->shape[1] * ((uint64_t)s->rank + 1) / (uint64_t)s->size;
    *box = (dcp_box){{0, first}, {t->shape[0], end - first}};
    float *data = calloc(t->shape[0] * (end - first), sizeof *data);
    CHECK(data);
    SUCCEEDS(dcp_state_add(state, t, box, data, err));
    return data;
}

static void check_values(const dcp_tensor *t, const dcp_box *box, float *data) {
    for (uint64_t i = 0; i < box->count[0] * box->count[1]; i++)
        CHECK(data[i] == value(t, i / box->count[1], box->start[1] + i % box->count[1]));
    free(data);
}

static void load(const scratch *s, const char *dir) {
    dcp_state *state = NULL;
    dcp_box boxes[2];
    dcp_checkpoint *ckpt = open_step(s, s->comm, dir);
    SUCCEEDS(dcp_state_create(&state, err));
    float *a = add_columns(s, state, &small, &boxes[0]);
    float *b = add_columns(s, state, &large, &boxes[1]);
    SUCCEEDS(dcp_load(ckpt, state, NULL, err));
    check_values(&small, &boxes[0], a);
    check_values(&large, &boxes[1], b);
    dcp_state_destroy(state);
    dcp_checkpoint_close(ckpt);
}

static void read_rows(const scratch *s) {
    static float row[BULK];
    dcp_checkpoint *ckpt = open_step(s, s->self, "many");
    for (uint64_t r = 0; r < SHARDS; r++) {
        const dcp_box box = {{r, 0}, {1, SMALL}};
        SUCCEEDS(dcp_checkpoint_read(ckpt, small.path, &box, row, err));
        CHECK(row[SMALL - 1] == value(&small, r, SMALL - 1));
    }
    SUCCEEDS(dcp_verify(dcp_checkpoint_path(ckpt), NULL, err));
    dcp_checkpoint_close(ckpt);
}

/* Rows in reverse order, so no new file has only an old one's bytes. */
static dcp_box cut(void *ctx, const dcp_tensor *tensor, int shard) {
    uint64_t rows = tensor->shape[0];
    (void)ctx;
    if ((uint64_t)shard >= rows) return (dcp_box){{0, 0}, {0, tensor->shape[1]}};
    return (dcp_box){{rows - 1 - (uint64_t)shard, 0}, {1, tensor->shape[1]}};
}

static void rewrite(const scratch *s) {
    dcp_checkpoint *from = open_step(s, s->comm, "many");
    dcp_store *to = scratch_store(s, s->comm, "again");
    const dcp_rewrite_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = SHARDS, .cut = cut};
    SUCCEEDS(dcp_rewrite(from, to, &options, NULL, err));
    dcp_checkpoint_close(from);
    dcp_store_close(to);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = OPEN_FILES;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    save(&s);
    load(&s, "many");
    if (s.rank == 0) read_rows(&s);
    rewrite(&s);
    load(&s, "again");
    return scratch_end(&s);
}
