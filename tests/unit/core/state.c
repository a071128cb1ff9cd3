/* A state takes what one rank can know to be right, and refuses the rest with the right status. */
#include "core/state_dict.h"
#include "support/core_fixture.h"

static unsigned char memory[64];

static int no_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)ctx, (void)offset, (void)bytes, (void)out, (void)err;
    return DCP_OK;
}

static int make(void **state) { return dcp_state_create((dcp_state **)state, NULL); }

static int destroy(void **state) {
    dcp_state_destroy(*state);
    return 0;
}

static int add_path(dcp_state *s, const char *path) {
    dcp_tensor tensor = {path, DCP_F32, 1, {4}};
    dcp_error err = {0};
    int status = dcp_state_add(s, &tensor, NULL, memory, &err);
    assert_int_equal(err.status, status);
    return status;
}

static void paths(void **state) {
    static const char *const bad[] = {NULL,
                                      "",
                                      "/",
                                      "model/w",
                                      "/w",
                                      "//w",
                                      "/model//w",
                                      "/model/w/",
                                      "/model/./w",
                                      "/model/../w",
                                      "/./w",
                                      "/dcp/index",
                                      "/model/\xff",
                                      "/model/\xc0\xaf",
                                      "/model/\xed\xa0\x80",
                                      "/model/\xe2\x82",
                                      "/model/\xf5\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(add_path(*state, bad[i]), DCP_ERR_ARG);
    char longest[DCP_MAX_PATH + 2] = "/model/";
    memset(longest + 7, 'x', DCP_MAX_PATH + 1 - 7);
    assert_int_equal(add_path(*state, longest), DCP_ERR_ARG);
    longest[DCP_MAX_PATH] = 0;
    assert_int_equal(add_path(*state, longest), DCP_OK);
    assert_int_equal(add_path(*state, "/model/..w"), DCP_OK);
    assert_int_equal(add_path(*state, "/dcp2/w"), DCP_OK);
    assert_int_equal(add_path(*state, "/model/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), DCP_OK);
    assert_int_equal(dcp_state_tensors(*state), 4);
}

static void a_tensor_is_no_folder_of_another(void **state) {
    assert_int_equal(add_path(*state, "/model/a"), DCP_OK);
    assert_int_equal(add_path(*state, "/model/a/b"), DCP_ERR_ARG);
    assert_int_equal(add_path(*state, "/model/a-b/c/d"), DCP_OK);
    assert_int_equal(add_path(*state, "/model/a-b/c"), DCP_ERR_ARG);
    assert_int_equal(add_path(*state, "/model/a-b"), DCP_ERR_ARG);
    assert_int_equal(add_path(*state, "/model/a-b/c/e"), DCP_OK);
    assert_int_equal(add_path(*state, "/model/a-"), DCP_OK);
    assert_int_equal(add_path(*state, "/model/ab"), DCP_OK);
    assert_int_equal(dcp_state_tensors(*state), 5);
}

static void types_and_shapes(void **state) {
    dcp_tensor bad[] = {
        {"/m/a", DCP_DTYPE_COUNT, 1, {4}},
        {"/m/b", (dcp_dtype)-1, 1, {4}},
        {"/m/c", DCP_F32, DCP_MAX_DIMS + 1, {4}},
        {"/m/d", DCP_F32, UINT32_MAX, {4}},
        {"/m/e", DCP_U8, 1, {1ULL << 62}},
        {"/m/f", DCP_F64, 2, {1ULL << 31, 1ULL << 30}},
        {"/m/g", DCP_U8, 2, {1ULL << 32, 1ULL << 32}},
        {"/m/h", DCP_U8, 3, {0, 1ULL << 32, 1ULL << 32}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dcp_error err = {0};
        dcp_box box = {.count = {1, 1, 1, 1, 1, 1, 1, 1}};
        assert_int_equal(dcp_state_add(*state, &bad[i], NULL, memory, &err), DCP_ERR_ARG);
        assert_int_equal(dcp_state_add(*state, &bad[i], &box, memory, &err), DCP_ERR_ARG);
        assert_non_null(strstr(err.message, bad[i].path));
    }
    assert_int_equal(dcp_state_tensors(*state), 0);
    dcp_tensor huge = {"/m/huge", DCP_U8, 1, {(1ULL << 62) - 1}};
    dcp_box box = {.start = {huge.shape[0] - 1}, .count = {1}};
    assert_int_equal(dcp_state_add(*state, &huge, &box, memory, NULL), DCP_OK);
    assert_int_equal(dcp_state_local_bytes(*state), 1);
}

static void boxes(void **state) {
    dcp_tensor t = {"/m/w", DCP_F32, 2, {4, 3}}, scalar = {"/m/s", DCP_F32, 0, {0}};
    static const dcp_box outside[] = {{{0, 0}, {5, 3}},          {{4, 0}, {1, 3}},
                                      {{5, 0}, {0, 3}},          {{0, 1}, {4, 3}},
                                      {{UINT64_MAX, 0}, {2, 3}}, {{1, 0}, {UINT64_MAX, 3}}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(dcp_state_add(*state, &t, &outside[i], memory, NULL), DCP_ERR_ARG);
    dcp_box two = {.count = {2}}, second = {.start = {1}, .count = {1}};
    assert_int_equal(dcp_state_add(*state, &scalar, &two, memory, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add(*state, &scalar, &second, memory, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_tensors(*state), 0);

    dcp_box top = {{0, 0}, {1, 3}}, rest = {{1, 0}, {3, 3}}, none = {{4, 0}, {0, 3}};
    assert_int_equal(dcp_state_add(*state, &t, &top, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add(*state, &t, &none, NULL, NULL), DCP_OK);
    assert_int_equal(dcp_state_local_bytes(*state), 0);
    assert_int_equal(dcp_state_add(*state, &t, &top, memory, NULL), DCP_OK);
    assert_int_equal(dcp_state_add_source(*state, &t, &rest, no_source, NULL, 3, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(*state, &scalar, NULL, memory, NULL), DCP_OK);
    assert_int_equal(dcp_state_tensors(*state), 2);
    assert_int_equal(dcp_state_local_bytes(*state), 4 * 3 * 4 + 4);
}

static void strides(void **state) {
    const dcp_tensor t = {"/m/w", DCP_F32, 2, {4, 3}}, scalar = {"/m/s", DCP_F32, 0, {0}};
    const dcp_box rows = {{1, 0}, {2, 3}}, none = {{4, 0}, {0, 3}}, outside = {{3, 0}, {2, 3}};
    const int64_t dense[] = {12, 4}, padded[] = {16, 4}, far[] = {INT64_MAX, 4};
    dcp_error err = {0};
    assert_int_equal(dcp_state_add_strided(*state, &t, &rows, memory, far, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "/m/w"));
    assert_non_null(strstr(err.message, "strides"));
    assert_int_equal(dcp_state_add_strided(*state, &t, &rows, NULL, padded, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_strided(*state, &t, &outside, memory, padded, NULL),
                     DCP_ERR_ARG);
    assert_int_equal(dcp_state_tensors(*state), 0);
    assert_int_equal(dcp_state_add_strided(*state, &t, &none, NULL, far, NULL), DCP_OK);
    assert_int_equal(dcp_state_add_strided(*state, &t, &rows, memory, dense, NULL), DCP_OK);
    assert_int_equal(dcp_state_add_strided(*state, &scalar, NULL, memory, NULL, NULL), DCP_OK);
    assert_false(((dcp_state *)*state)->has_strides);
    assert_null(((dcp_state *)*state)->tensors[0]->boxes[0].strides);
    assert_int_equal(dcp_state_add_strided(*state, &t, &rows, memory, padded, NULL), DCP_OK);
    assert_true(((dcp_state *)*state)->has_strides);
    assert_int_equal(dcp_state_local_bytes(*state), 2 * 24 + 4);
}

static void arguments_that_are_missing(void **state) {
    dcp_tensor t = {"/m/w", DCP_F32, 1, {4}};
    assert_int_equal(dcp_state_add(NULL, &t, NULL, memory, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add(*state, NULL, NULL, memory, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add(*state, &t, NULL, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_strided(NULL, &t, NULL, memory, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_strided(*state, NULL, NULL, memory, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_source(*state, &t, NULL, NULL, NULL, 0, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_tensors(*state), 0);
    dcp_state_destroy(NULL);
}

static void another_type_or_shape(void **state) {
    dcp_tensor t = {"/m/w", DCP_F32, 2, {4, 3}};
    assert_int_equal(dcp_state_add(*state, &t, NULL, memory, NULL), DCP_OK);
    dcp_tensor others[] = {{"/m/w", DCP_I32, 2, {4, 3}},
                           {"/m/w", DCP_F32, 2, {4, 2}},
                           {"/m/w", DCP_F32, 1, {4}},
                           {"/m/w", DCP_F32, 3, {4, 3, 1}}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dcp_error err = {0};
        assert_int_equal(dcp_state_add(*state, &others[i], NULL, memory, &err), DCP_ERR_MISMATCH);
        assert_non_null(strstr(err.message, "/m/w"));
    }
    assert_int_equal(dcp_state_local_bytes(*state), 48);
}

static void tensors_come_out_sorted(void **state) {
    for (int i = 0; i < 500; i++) {
        char path[40];
        snprintf(path, sizeof path, "/m/%016llx", (unsigned long long)any());
        assert_int_equal(add_path(*state, path), DCP_OK);
    }
    state_tensor **sorted = core_state_sorted(*state);
    assert_non_null(sorted);
    for (size_t i = 1; i < 500; i++)
        assert_true(strcmp(sorted[i - 1]->tensor.path, sorted[i]->tensor.path) < 0);
    free(sorted);
}

#define state_test(f) cmocka_unit_test_setup_teardown(f, make, destroy)

int main(void) {
    const struct CMUnitTest tests[] = {
        state_test(paths),
        state_test(a_tensor_is_no_folder_of_another),
        state_test(types_and_shapes),
        state_test(boxes),
        state_test(strides),
        state_test(arguments_that_are_missing),
        state_test(another_type_or_shape),
        state_test(tensors_come_out_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
