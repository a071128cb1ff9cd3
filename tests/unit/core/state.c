/* A state accepts what a single rank can know to be correct, and refuses everything else with the
 * right status. */
#include "core/state_dict.h"

#include "core/box.h"
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
        {"/m/none", DCP_DTYPE_NONE, 1, {4}},
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
        assert_string_equal(err.tensor, bad[i].path);
    }
    dcp_error why;
    const dcp_tensor far = {"/m/far", DCP_F32, 2, {1ULL << 40, 1}},
                     nowhere = {"far", DCP_U8, 0, {0}};
    assert_int_equal(
        dcp_state_add_strided(*state, &far, NULL, memory, (int64_t[]){INT64_MAX, 4}, &why),
        DCP_ERR_ARG);
    assert_string_equal(why.tensor, "/m/far");
    assert_int_equal(dcp_state_add(*state, &nowhere, NULL, memory, &why), DCP_ERR_ARG);
    assert_string_equal(why.tensor, "far");
    assert_int_equal(dcp_state_tensors(*state), 0);
    dcp_error err = {0};
    dcp_tensor forgotten = {.path = "/m/w", .ndim = 1, .shape = {4}};
    assert_int_equal(dcp_state_add(*state, &forgotten, NULL, memory, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "dtype 0 is not a dtype; was tensor->dtype set?"));
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

enum { MANY = 3000 };

/* Makes tensors of any names, some of them several times, each time with another row as its box. */
static void make_many(dcp_tensor *tensors, dcp_box *boxes, void **data, char (*paths)[48]) {
    for (size_t i = 0; i < MANY; i++) {
        const unsigned long long name = any() % 1500;
        snprintf(paths[i], sizeof *paths, "/%s/a%s%llu.%s", name % 3 ? "model" : "optimizer",
                 name % 5 ? "/" : "-long-name-", name, name % 2 ? "weight" : "w");
        tensors[i] = (dcp_tensor){paths[i], DCP_F32, 2, {MANY, 1 + name % 2}};
        boxes[i] = (dcp_box){{i, 0}, {any() % 4 != 0, 1 + name % 2}};
        data[i] = memory + i % sizeof memory;
    }
}

static void assert_same_states(const dcp_state *a, const dcp_state *b) {
    state_tensor **x = core_state_sorted(a), **y = core_state_sorted(b);
    assert_int_equal(a->n, b->n);
    assert_int_equal(dcp_state_local_bytes(a), dcp_state_local_bytes(b));
    for (size_t i = 0; i < a->n; i++) {
        assert_string_equal(x[i]->tensor.path, y[i]->tensor.path);
        assert_true(x[i]->bytes == y[i]->bytes && x[i]->n_boxes == y[i]->n_boxes);
        for (size_t k = 0; k < x[i]->n_boxes; k++)
            assert_true(x[i]->boxes[k].data == y[i]->boxes[k].data &&
                        x[i]->boxes[k].rank == y[i]->boxes[k].rank &&
                        core_box_equal(2, &x[i]->boxes[k].box, &y[i]->boxes[k].box));
    }
    free(x);
    free(y);
}

/* Adds all at once, in large and small parts, and with single calls between them. */
static void many_are_as_single_ones(void **state) {
    static const size_t parts[] = {MANY, 1000, 7, 1};
    static dcp_tensor tensors[MANY];
    static dcp_box boxes[MANY];
    static void *data[MANY];
    static char paths[MANY][48];
    make_many(tensors, boxes, data, paths);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(dcp_state_add(*state, &tensors[i], &boxes[i], data[i], NULL), DCP_OK);
    for (size_t p = 0; p < 4; p++) {
        dcp_state *other;
        assert_int_equal(dcp_state_create(&other, NULL), DCP_OK);
        for (size_t i = 0; i < MANY; i += parts[p]) {
            const size_t n = parts[p] < MANY - i ? parts[p] : MANY - i;
            assert_int_equal(dcp_state_add_many(other, n, tensors + i, boxes + i, data + i, NULL),
                             DCP_OK);
            assert_int_equal(dcp_state_add(other, &tensors[i], &(dcp_box){{0}, {0}}, NULL, NULL),
                             DCP_OK); /* empty: nothing is new */
        }
        assert_same_states(*state, other);
        dcp_state_destroy(other);
    }
}

/* If one element in the middle of a list, `bad`, is refused, the state is unchanged. */
static void assert_refused(dcp_state *s, const dcp_tensor *bad, void *at, int expected) {
    enum { N = 101 };
    dcp_tensor tensors[N];
    char paths[N][32];
    void *data[N];
    dcp_error err;
    const size_t before = dcp_state_tensors(s);
    const uint64_t bytes = dcp_state_local_bytes(s);
    for (int i = 0; i < N; i++) {
        snprintf(paths[i], sizeof paths[i], "/model/%d/x", i);
        tensors[i] = (dcp_tensor){paths[i], DCP_F32, 1, {4}};
        data[i] = memory;
    }
    tensors[50] = *bad;
    data[50] = at;
    assert_int_equal(dcp_state_add_many(s, N, tensors, NULL, data, &err), expected);
    assert_int_equal(err.status, expected);
    if (bad->path) assert_non_null(strstr(err.message, bad->path));
    assert_int_equal(dcp_state_tensors(s), before);
    assert_true(dcp_state_local_bytes(s) == bytes);
    assert_null(core_state_find(s, "/model/7/x"));
}

static void many_or_none(void **state) {
    const dcp_tensor kept[] = {{"/model/kept/a", DCP_F32, 1, {4}},
                               {"/model/last", DCP_F32, 1, {4}}};
    void *data[] = {memory, memory};
    assert_int_equal(dcp_state_add_many(*state, 2, kept, NULL, data, NULL), DCP_OK);
    assert_int_equal(dcp_state_tensors(*state), 2);
    assert_refused(*state, &(dcp_tensor){NULL, DCP_F32, 1, {4}}, memory, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/ok", DCP_F32, 1, {4}}, NULL, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/ok", DCP_DTYPE_COUNT, 1, {4}}, memory,
                   DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/7", DCP_F32, 1, {4}}, memory, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/7/x/y/z", DCP_F32, 1, {4}}, memory, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/7/x", DCP_F32, 1, {5}}, memory, DCP_ERR_MISMATCH);
    assert_refused(*state, &(dcp_tensor){"/model/kept", DCP_F32, 1, {4}}, memory, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/last/a/b", DCP_F32, 1, {4}}, memory, DCP_ERR_ARG);
    assert_refused(*state, &(dcp_tensor){"/model/last", DCP_F64, 1, {4}}, memory, DCP_ERR_MISMATCH);
    assert_int_equal(dcp_state_add_many(*state, 0, NULL, NULL, NULL, NULL), DCP_OK);
    assert_int_equal(dcp_state_add_many(NULL, 2, kept, NULL, data, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_many(*state, 2, NULL, NULL, data, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_add_many(*state, 2, kept, NULL, NULL, NULL), DCP_ERR_ARG);
    assert_int_equal(dcp_state_local_bytes(*state), 32);
}

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
        state_test(many_are_as_single_ones),
        state_test(many_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
