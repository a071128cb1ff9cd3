/* Threads that read one checkpoint, each with a reader of its own, load its tables at the same
 * time, beside a load in flight: all of them get the same. Also to be run under ThreadSanitizer,
 * which detects unordered reads and writes. */
#include "support/store_fixture.h"

#include <pthread.h>

#include "dcp/inspect.h"

enum { ROUNDS = 20, THREADS = 4, TENSORS = 24, ELEMS = 60, SHARDS = 5 };

typedef struct reading {
    dcp_checkpoint *ckpt;
    pthread_barrier_t *begin;
    int status, wrong;
    uint64_t sum; /* of all pieces' checksums */
} reading;

static void add_tensors(dcp_state *state, float values[TENSORS][ELEMS]) {
    for (int i = 0; i < TENSORS; i++) {
        char path[32];
        snprintf(path, sizeof path, "/model/%02d", i);
        const dcp_tensor tensor = {path, DCP_F32, 1, {ELEMS}};
        assert_int_equal(dcp_state_add(state, &tensor, NULL, values[i], NULL), DCP_OK);
    }
}

static void sum_pieces(reading *r, size_t i) {
    for (size_t k = 0; k < dcp_checkpoint_pieces(r->ckpt, i) && !r->status; k++) {
        dcp_piece piece = DCP_PIECE_INIT;
        dcp_box box;
        r->status = dcp_checkpoint_piece(r->ckpt, i, k, &piece);
        if (r->status) break;
        r->wrong += dcp_checkpoint_box(r->ckpt, i, k, &box) != piece.file;
        r->sum += piece.crc ^ piece.block_crcs[0] << 1;
    }
}

static void read_tensor(reading *r, dcp_reader *reader, int i) {
    char path[32];
    float values[ELEMS];
    const dcp_box whole = {{0}, {ELEMS}};
    snprintf(path, sizeof path, "/model/%02d", i);
    if (!r->status) r->status = dcp_reader_read(reader, path, &whole, values, NULL);
    for (int k = 0; k < ELEMS && !r->status; k++) r->wrong += values[k] != (float)(1000 * i + k);
}

static void *read_all(void *ctx) {
    reading *r = ctx;
    dcp_reader *reader = NULL;
    pthread_barrier_wait(r->begin);
    r->status = dcp_reader_create(r->ckpt, &reader, NULL);
    for (int i = 0; i < TENSORS && !r->status; i++) {
        if (i % 2) sum_pieces(r, (size_t)i);
        read_tensor(r, reader, i);
        if (i % 2 == 0) sum_pieces(r, (size_t)i);
    }
    dcp_reader_destroy(reader);
    return NULL;
}

static void read_beside_a_load(const struct scratch *s, dcp_state *target) {
    pthread_barrier_t begin;
    pthread_t threads[THREADS];
    reading r[THREADS];
    dcp_loading *loading = NULL;
    dcp_checkpoint *ckpt = NULL;
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    assert_int_equal(dcp_checkpoint_open(s->comm, s->dir, &ckpt, NULL), DCP_OK);
    for (int t = 0; t < THREADS; t++) {
        r[t] = (reading){.ckpt = ckpt, .begin = &begin};
        assert_int_equal(pthread_create(&threads[t], NULL, read_all, &r[t]), 0);
    }
    assert_int_equal(dcp_load_async(ckpt, target, NULL, &loading, NULL), DCP_OK);
    pthread_barrier_wait(&begin);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(r[t].status, DCP_OK);
        assert_int_equal(r[t].wrong, 0);
        assert_true(r[t].sum == r[0].sum);
    }
    assert_int_equal(dcp_load_wait(loading, NULL, NULL), DCP_OK);
    dcp_checkpoint_close(ckpt);
    pthread_barrier_destroy(&begin);
}

static void threads_find_the_same(void **state) {
    const struct scratch *s = *state;
    static float values[TENSORS][ELEMS], loaded[TENSORS][ELEMS];
    const dcp_save_options sharded = {
        .size = sizeof sharded, .layout = DCP_LAYOUT_SHARDED, .shards = SHARDS};
    dcp_store *store = NULL;
    dcp_state *held = NULL, *target = NULL;
    for (int i = 0; i < TENSORS * ELEMS; i++)
        values[i / ELEMS][i % ELEMS] = (float)(i / ELEMS * 1000 + i % ELEMS);
    assert_int_equal(dcp_state_create(&held, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&target, NULL), DCP_OK);
    add_tensors(held, values);
    add_tensors(target, loaded);
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &store, NULL), DCP_OK);
    assert_int_equal(dcp_save(store, 1, held, NULL, &sharded, NULL, NULL), DCP_OK);
    dcp_store_close(store);
    for (int round = 0; round < ROUNDS; round++) {
        memset(loaded, 0, sizeof loaded);
        read_beside_a_load(s, target);
        assert_memory_equal(loaded, values, sizeof values);
    }
    dcp_state_destroy(target);
    dcp_state_destroy(held);
}

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(threads_find_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
