/* A limit on the size of files (RLIMIT_FSIZE) is an error of the library that names the limit, and
 * never SIGXFSZ, which would end this test. */
#include "support/store_fixture.h"

#include <sys/resource.h>

#include "dcp/inspect.h"
#include "dcp/safetensors.h"

enum { ELEMENTS = 1 << 18 }; /* 1 MiB of F32 */

static float values[ELEMENTS];

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static dcp_state *state_of(const char *path, uint64_t elements, dcp_dtype dtype) {
    dcp_state *state;
    const dcp_tensor tensor = {path, dtype, 1, {elements}};
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, values, NULL), DCP_OK);
    return state;
}

static int save_at_once(dcp_store *store, uint64_t step, dcp_state *state, dcp_layout layout,
                        dcp_error *err) {
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    options.layout = layout;
    return dcp_save(store, step, state, NULL, &options, NULL, err);
}

static int save_beside(dcp_store *store, uint64_t step, dcp_state *state, dcp_layout layout,
                       dcp_error *err) {
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    dcp_saving *saving;
    options.layout = layout;
    const int status = dcp_save_async(store, step, state, NULL, &options, &saving, err);
    return status ? status : dcp_save_wait(saving, NULL, err);
}

typedef int save_function(dcp_store *, uint64_t, dcp_state *, dcp_layout, dcp_error *);

static void fails_and_goes_on(struct scratch *s, save_function *save, dcp_layout layout,
                              uint64_t first) {
    static const rlim_t limits[] = {1, 4096, 5000, 65536, 500000, 1048576, 1052672};
    dcp_store *store = open_store(s, 0, 0);
    dcp_state *state = state_of("/model/w", ELEMENTS, DCP_F32);
    uint64_t step = first;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        dcp_error err = {0};
        limit_files(limits[i]);
        const int status = save(store, step, state, layout, &err);
        limit_files(RLIM_INFINITY);
        assert_int_equal(status, DCP_ERR_IO);
        assert_non_null(strstr(err.message, "ulimit -f"));
        assert_int_equal(save(store, step, state, layout, &err), DCP_OK);
        step++;
    }
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_step *steps;
    size_t n;
    assert_int_equal(dcp_steps_list(s->dir, &steps, &n, NULL), DCP_OK);
    assert_int_equal(n, step - 1);
    for (size_t i = 0; i < n; i++) {
        char path[sizeof s->dir + 32];
        snprintf(path, sizeof path, "%s/step-%08llu", s->dir, (unsigned long long)steps[i].step);
        assert_int_equal(dcp_verify(path, NULL, NULL), DCP_OK);
    }
    free(steps);
}

static void saves_fail_and_go_on(void **state) {
    struct scratch *s = *state;
    const uint64_t each = 7;
    fails_and_goes_on(s, save_at_once, DCP_LAYOUT_GLOBAL, 1);
    fails_and_goes_on(s, save_beside, DCP_LAYOUT_GLOBAL, 1 + each);
    fails_and_goes_on(s, save_at_once, DCP_LAYOUT_SHARDED, 1 + 2 * each);
    fails_and_goes_on(s, save_beside, DCP_LAYOUT_SHARDED, 1 + 3 * each);
}

static void a_store_cannot_be_locked(void **state) {
    struct scratch *s = *state;
    dcp_store *store = NULL;
    dcp_error err = {0};
    limit_files(1);
    const int status = dcp_store_open(s->comm, s->dir, NULL, &store, &err);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, DCP_ERR_IO);
    assert_null(store);
}

static void safetensors_cannot_be_written(void **state) {
    struct scratch *s = *state;
    const dcp_tensor tensor = {"w", DCP_F32, 1, {ELEMENTS}};
    dcp_st_writer *writer = NULL;
    dcp_error err = {0};
    char path[sizeof s->root + 16];
    snprintf(path, sizeof path, "%s/w.safetensors", s->root);
    limit_files(4096);
    const int status = dcp_st_create(path, &tensor, 1, &writer, &err);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, DCP_ERR_IO);
    assert_non_null(strstr(err.message, "ulimit -f"));
}

/* The limit is not the system's but the format's. */
static void a_tensor_is_too_large(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    dcp_state *large = state_of("/model/large", ((uint64_t)1 << 62) - 1, DCP_U8);
    dcp_error err = {0};
    assert_int_equal(save_at_once(store, 1, large, DCP_LAYOUT_GLOBAL, &err), DCP_ERR_ARG);
    assert_string_equal(err.tensor, "/model/large");
    assert_non_null(strstr(err.message, "a file can have at most 281474976710656"));
    dcp_state_destroy(large);
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(saves_fail_and_go_on),
        scratch_test(a_store_cannot_be_locked),
        scratch_test(safetensors_cannot_be_written),
        scratch_test(a_tensor_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
