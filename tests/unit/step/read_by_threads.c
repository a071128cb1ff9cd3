/* More threads than there are cached blocks read one checkpoint at the same time, each along a
 * tensor of its own that has two blocks: all get what was saved, in both layouts. */
#include <pthread.h>

#include "support/store_fixture.h"

enum { THREADS = 72, ELEMS = 600000, SHARDS = 3, ROUNDS = 2, BOXES = 5 };

static const dcp_tensor tensors[] = {{"/model/a", DCP_I64, 1, {ELEMS}},
                                     {"/model/b", DCP_I64, 1, {ELEMS}},
                                     {"/model/c", DCP_I64, 1, {ELEMS}}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static int64_t value_of(size_t tensor, uint64_t element) {
    return (int64_t)(element * TENSORS + tensor);
}

/* Reads from the box of the tensor with index ctx % TENSORS. */
static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const size_t number = (size_t)(uintptr_t)ctx;
    const uint64_t from = number / TENSORS * (ELEMS / SHARDS);
    (void)err;
    for (uint64_t i = 0; i < bytes; i++) {
        const int64_t value = value_of(number % TENSORS, from + (offset + i) / 8);
        ((unsigned char *)out)[i] = ((const unsigned char *)&value)[(offset + i) % 8];
    }
    return DCP_OK;
}

/* Each shard has a third of each tensor. */
static dcp_state *make_state(void) {
    dcp_state *state;
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t r = 0; r < SHARDS; r++) {
            const dcp_box box = {{r * (ELEMS / SHARDS)}, {ELEMS / SHARDS}};
            void *ctx = (void *)(uintptr_t)(r * TENSORS + t);
            assert_int_equal(
                dcp_state_add_source(state, &tensors[t], &box, read_source, ctx, (int)r, NULL),
                DCP_OK);
        }
    return state;
}

typedef struct reading {
    dcp_checkpoint *ckpt;
    size_t number, wrong;
    int status;
} reading;

static void *read_along(void *ctx) {
    reading *r = ctx;
    const size_t t = r->number % TENSORS;
    static const uint64_t part = ELEMS / BOXES;
    int64_t *got = malloc(part * sizeof *got);
    for (int i = 0; i < ROUNDS * BOXES && got && !r->status; i++) {
        const dcp_box box = {{(uint64_t)(i % BOXES) * part}, {part}};
        uint64_t crc;
        r->status = dcp_checkpoint_read(r->ckpt, tensors[t].path, &box, got, NULL);
        if (!r->status) r->status = dcp_checkpoint_crc(r->ckpt, t, &crc, NULL);
        for (uint64_t k = 0; k < part && !r->status; k++)
            r->wrong += got[k] != value_of(t, box.start[0] + k);
    }
    if (!got) r->status = DCP_ERR_NO_MEMORY;
    free(got);
    return NULL;
}

static void read_by_all(dcp_checkpoint *ckpt) {
    pthread_t threads[THREADS];
    reading readings[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        readings[i] = (reading){.ckpt = ckpt, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_along, &readings[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readings[i].status, DCP_OK);
        assert_int_equal(readings[i].wrong, 0);
    }
}

static void save_and_read(struct scratch *s, dcp_layout layout) {
    dcp_state *state = make_state();
    dcp_store *store = open_store(s, 0, 0);
    dcp_checkpoint *ckpt;
    const dcp_save_options options = {
        .size = sizeof options, .layout = layout, .shards = layout ? SHARDS : 0};
    assert_int_equal(dcp_save(store, 1, state, NULL, &options, NULL, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(s->comm, s->dir, &ckpt, NULL), DCP_OK);
    read_by_all(ckpt);
    dcp_checkpoint_close(ckpt);
    dcp_store_close(store);
    dcp_state_destroy(state);
}

static void of_one_file(void **state) { save_and_read(*state, DCP_LAYOUT_GLOBAL); }
static void of_shards(void **state) { save_and_read(*state, DCP_LAYOUT_SHARDED); }

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(of_one_file), scratch_test(of_shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
