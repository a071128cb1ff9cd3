/* The copy of a save in flight: if there is not enough memory for it, the call writes; it is kept
 * for the next save, freed with the store, within the limit, and no child of fork has it. */
#include <sys/wait.h>

#include "io/buffers.h"
#include "support/core_fixture.h"
#include "support/resident.h"
#include "support/store_fixture.h"

#define BYTES ((uint64_t)48 << 20)
#define LEAST ((uint64_t)8 << 20) /* more than a queue's buffers, which are not the copy */

static uint64_t largest; /* the largest allocation requested */
static int is_refused;   /* an allocation as large as a copy */

void *__real_io_buffers_create(size_t bytes);
void *__wrap_io_buffers_create(size_t bytes);
void *__wrap_io_buffers_create(size_t bytes) {
    const int is_copy = bytes >= BYTES;
    if (is_copy) largest = bytes;
    return is_copy && is_refused ? NULL : __real_io_buffers_create(bytes);
}

typedef struct source {
    dcp_state *state;
    unsigned char *data;
} source;

static void make_source(source *src) {
    const dcp_tensor t = {"/model/w", DCP_U8, 1, {BYTES}};
    *src = (source){.data = malloc(BYTES)};
    assert_non_null(src->data);
    assert_int_equal(dcp_state_create(&src->state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(src->state, &t, NULL, src->data, NULL), DCP_OK);
}

static void free_source(source *src) {
    dcp_state_destroy(src->state);
    free(src->data);
}

static void check_step(const struct scratch *s, uint64_t step) {
    char path[200];
    source found;
    dcp_comm *self = NULL;
    dcp_checkpoint *ckpt = NULL;
    make_source(&found);
    snprintf(path, sizeof path, "%s/step-%08d", s->dir, (int)step);
    assert_int_equal(dcp_comm_self(&self, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(self, path, &ckpt, NULL), DCP_OK);
    assert_int_equal(dcp_load(ckpt, found.state, NULL, NULL), DCP_OK);
    dcp_checkpoint_close(ckpt);
    dcp_comm_destroy(self);
    for (uint64_t i = 0; i < BYTES; i++)
        if (found.data[i] != step) fail_msg("step %d: byte %d", (int)step, (int)i);
    free_source(&found);
}

static dcp_saving *begin(dcp_store *store, const source *src, uint64_t step, uint64_t limit) {
    const dcp_save_options options = {.size = sizeof options, .copy_bytes = limit};
    dcp_saving *saving = NULL;
    dcp_error err = {0};
    memset(src->data, (int)step, BYTES);
    if (dcp_save_async(store, step, src->state, NULL, &options, &saving, &err) != DCP_OK)
        fail_msg("step %d: %s", (int)step, err.message);
    memset(src->data, 0xee, BYTES);
    return saving;
}

static void without_memory_the_call_writes(void **state) {
    struct scratch *s = *state;
    source src;
    dcp_store *store = open_store(s, 0, 0);
    make_source(&src);
    largest = 0;
    for (is_refused = 1; is_refused >= 0; is_refused--) {
        const uint64_t step = (uint64_t)(2 - is_refused);
        assert_int_equal(dcp_save_wait(begin(store, &src, step, DCP_COPY_DEFAULT), NULL, NULL),
                         DCP_OK);
        assert_true(largest >= BYTES);
        check_step(s, step);
    }
    is_refused = 0;
    dcp_store_close(store);
    free_source(&src);
}

/* Slightly too little; enough; too little again, so the copy is freed. */
static void within_what_may_be_spent(void **state) {
    struct scratch *s = *state;
    const uint64_t limits[] = {BYTES - 1, BYTES + LEAST, DCP_COPY_DEFAULT, BYTES - 1};
    source src;
    dcp_store *store = open_store(s, 0, 0);
    make_source(&src);
    for (uint64_t i = 0; i < 4; i++) {
        largest = 0;
        dcp_saving *saving = begin(store, &src, i + 1, limits[i]);
        assert_int_equal(largest >= BYTES, i == 1); /* kept for the third */
        assert_int_equal(dcp_save_wait(saving, NULL, NULL), DCP_OK);
        check_step(s, i + 1);
    }
    dcp_store_close(store);
    free_source(&src);
}

static void freed_with_the_store(void **state) {
    struct scratch *s = *state;
    source src;
    make_source(&src);
    memset(src.data, 1, BYTES);
    const long before = status_kib("VmRSS:");
    dcp_store *store = open_store(s, 0, 0);
    assert_int_equal(dcp_save_wait(begin(store, &src, 1, DCP_COPY_DEFAULT), NULL, NULL), DCP_OK);
    assert_true(status_kib("VmRSS:") - before > (long)(BYTES >> 10)); /* kept */
    dcp_store_close(store);
    assert_true(HAS_SHADOW || status_kib("VmRSS:") - before < (long)(BYTES >> 11));
    free_source(&src);
}

static void children_do_without(void **state) {
    struct scratch *s = *state;
    source src;
    dcp_store *store = open_store(s, 0, 0);
    make_source(&src);
    for (uint64_t step = 1; step < 4; step++) {
        int status;
        dcp_saving *saving = begin(store, &src, step, DCP_COPY_DEFAULT);
        const pid_t child = fork();
        if (!child) { /* uses the memory, the save and the store, and ends */
            memset(src.data, 7, BYTES);
            dcp_save_fence(saving);
            if (dcp_save_wait(saving, NULL, NULL) != DCP_ERR_STATE) _exit(1);
            dcp_store_close(store);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(dcp_save_wait(saving, NULL, NULL), DCP_OK);
        check_step(s, step);
    }
    dcp_store_close(store);
    free_source(&src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(without_memory_the_call_writes), scratch_test(within_what_may_be_spent),
        scratch_test(freed_with_the_store), scratch_test(children_do_without)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
