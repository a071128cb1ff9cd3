/* Helpers without a status accept any values: they return nothing useful, and touch nothing beyond
 * what they were given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "dcp/dcp.h"
#include "dcp/inspect.h"

static const dcp_tensor matrix = {"/model/w", DCP_F32, 2, {5, 3}};

static void chunks_of_no_rank_are_empty(void **state) {
    static const int ranks[][2] = {{0, 0}, {0, -1}, {-1, 2}, {2, 2}, {INT32_MIN, INT32_MAX}};
    const dcp_tensor scalar = {"/model/s", DCP_F32, 0, {0}};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const dcp_box box = dcp_box_chunk(&matrix, ranks[i][0], ranks[i][1]);
        const dcp_box point = dcp_box_chunk(&scalar, ranks[i][0], ranks[i][1]);
        assert_int_equal(dcp_box_elems(&box, 2), 0);
        assert_int_equal(dcp_box_elems(&point, 0), 0);
    }
}

static void slices_of_nothing_are_empty(void **state) {
    const dcp_box boxes[] = {{{0}, {0}},
                             {{1, 1}, {0, 3}},
                             {{1, 1}, {3, 0}},
                             {{0}, {UINT64_MAX, UINT64_MAX}},
                             {{0}, {(1ULL << 63) + 1, 2}},
                             {{0}, {1ULL << 32, 1ULL << 32}}};
    (void)state;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        for (uint32_t ndim = 2; ndim < 12; ndim++) {
            dcp_box out;
            assert_int_equal(dcp_box_slice(ndim, &boxes[i], 0, 10, &out), 0);
            assert_int_equal(dcp_box_elems(&out, ndim), 0);
        }
    dcp_box out;
    const dcp_box whole = dcp_box_whole(&matrix);
    assert_int_equal(dcp_box_slice(2, &whole, 15, 10, &out), 0);
    assert_int_equal(dcp_box_slice(2, &whole, UINT64_MAX, 0, &out), 0);
    assert_int_equal(dcp_box_slice(2, &whole, 14, 0, &out), 1);
}

/* The struct's neighbours are not read for dimensions that it does not have. */
static void dimensions_are_eight(void **state) {
    struct {
        dcp_tensor tensor;
        uint64_t beyond[64];
    } t;
    struct {
        dcp_box box;
        unsigned char beyond[64];
    } guarded, before;
    (void)state;
    for (uint32_t ndim = DCP_MAX_DIMS + 1; ndim < 40; ndim++) {
        memset(&t, 0x7f, sizeof t);
        memset(&guarded, 0x5a, sizeof guarded);
        before = guarded;
        t.tensor.ndim = ndim;
        t.tensor.dtype = DCP_F32;
        guarded.box = dcp_box_whole(&t.tensor);
        assert_memory_equal(guarded.beyond, before.beyond, sizeof before.beyond);
        guarded.box = dcp_box_chunk(&t.tensor, 1, 3);
        assert_memory_equal(guarded.beyond, before.beyond, sizeof before.beyond);
        assert_int_equal(dcp_tensor_bytes(&t.tensor), 0);
    }
}

static void types_that_there_are_not(void **state) {
    static const int types[] = {-1, 0, 1000, INT32_MAX, INT32_MIN};
    double in = 1, out = 0;
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const dcp_dtype dtype = (dcp_dtype)types[i];
        const dcp_tensor tensor = {"/model/w", dtype, 1, {4}};
        assert_int_equal(dcp_dtype_bytes(dtype), 0);
        assert_null(dcp_dtype_name(dtype));
        assert_int_equal(dcp_tensor_bytes(&tensor), 0);
        assert_int_not_equal(dcp_convert(dtype, &in, DCP_F64, &out, 1), DCP_OK);
        assert_int_not_equal(dcp_convert(DCP_F64, &in, dtype, &out, 1), DCP_OK);
        assert_non_null(dcp_status_text(types[i]));
    }
}

#define REFUSES(name, call)                                                                        \
    do {                                                                                           \
        dcp_error err = {0};                                                                       \
        assert_int_equal(call, DCP_ERR_ARG);                                                       \
        if (!strstr(err.message, name)) fail_msg("%s lacks %s", err.message, name);                \
    } while (0)

static char root[64];

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/dcp-hostile-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -rf %s", root);
    return system(line);
}

/* Values that an enum does not have, for each option of an enum type. */
static void options_that_there_are_not(void **state) {
    static const int values[] = {-1, 9, INT32_MAX};
    float w[4] = {0};
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {4}};
    char dir[128], step[160], to[128];
    dcp_comm *comm;
    dcp_store *store, *other;
    dcp_tiers *tiers;
    dcp_saving *saving;
    dcp_proof *proof;
    dcp_state *s;
    dcp_checkpoint *ckpt;
    (void)state;
    snprintf(dir, sizeof dir, "%s/enums", root);
    snprintf(to, sizeof to, "%s/other", root);
    snprintf(step, sizeof step, "%s/step-00000001", dir);
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&s, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(s, &tensor, NULL, w, NULL), DCP_OK);
    assert_int_equal(dcp_store_open(comm, dir, NULL, &store, NULL), DCP_OK);
    assert_int_equal(dcp_save(store, 1, s, NULL, NULL, NULL, NULL), DCP_OK);
    assert_int_equal(dcp_store_open(comm, to, NULL, &other, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(comm, step, &ckpt, NULL), DCP_OK);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        dcp_save_options o = DCP_SAVE_OPTIONS_INIT;
        o.when_busy = (dcp_busy)values[i];
        REFUSES("when_busy", dcp_save(store, 2, s, NULL, &o, NULL, &err));
        REFUSES("when_busy", dcp_save_async(store, 2, s, NULL, &o, &saving, &err));
        o.when_busy = DCP_BUSY_WAIT, o.layout = (dcp_layout)values[i];
        REFUSES("layout", dcp_save(store, 2, s, NULL, &o, NULL, &err));
        o.layout = DCP_LAYOUT_GLOBAL, o.replicas = (dcp_replicas)values[i];
        REFUSES("replicas", dcp_save(store, 2, s, NULL, &o, NULL, &err));
        o.replicas = DCP_REPLICAS_CHECK, o.engine = (dcp_engine)values[i];
        REFUSES("engine", dcp_save(store, 2, s, NULL, &o, NULL, &err));
        dcp_load_options l = DCP_LOAD_OPTIONS_INIT;
        l.missing_keys = (dcp_missing_keys)values[i];
        REFUSES("missing_keys", dcp_load_with(ckpt, s, &l, NULL, &err));
        l.missing_keys = 0, l.unexpected_keys = (dcp_unexpected_keys)values[i];
        REFUSES("unexpected_keys", dcp_load_with(ckpt, s, &l, NULL, &err));
        l.unexpected_keys = 0, l.engine = (dcp_engine)values[i];
        REFUSES("engine", dcp_load_with(ckpt, s, &l, NULL, &err));
        dcp_prove_options p = DCP_PROVE_OPTIONS_INIT;
        p.replicas = (dcp_replicas)values[i];
        REFUSES("replicas", dcp_prove(comm, s, &p, &proof, &err));
        dcp_rewrite_options r = DCP_REWRITE_OPTIONS_INIT;
        r.layout = (dcp_layout)values[i];
        REFUSES("layout", dcp_rewrite(ckpt, other, &r, NULL, &err));
        dcp_tier tier = DCP_TIER_INIT;
        tier.path = to, tier.every = 1, tier.layout = (dcp_layout)values[i];
        REFUSES("layout", dcp_tiers_open(comm, &tier, 1, NULL, &tiers, &err));
    }
    dcp_checkpoint_close(ckpt);
    dcp_store_close(other);
    dcp_tier tier = DCP_TIER_INIT;
    tier.path = to, tier.every = 1;
    assert_int_equal(dcp_tiers_open(comm, &tier, 1, NULL, &tiers, NULL), DCP_OK);
    dcp_save_options o = DCP_SAVE_OPTIONS_INIT;
    o.when_busy = (dcp_busy)9;
    REFUSES("when_busy", dcp_tiers_save(tiers, 1, s, NULL, &o, 1, NULL, &err));
    REFUSES("when_busy", dcp_tiers_save_async(tiers, 1, s, NULL, &o, &err));
    dcp_tiers_close(tiers);
    dcp_store_close(store);
    dcp_state_destroy(s);
    dcp_comm_destroy(comm);
}

/* Text for JSON, or for a file with UTF-8 names. */
static void text_that_is_no_utf_8(void **state) {
    static const char *const texts[] = {"\xff", "a\xc3(", "\xed\xa0\x80", "\xc0\x80",
                                        "end\xe2\x82"};
    char dir[128], dirs[128], file[128];
    dcp_comm *comm;
    dcp_store *store;
    dcp_tiers *tiers;
    dcp_state *s;
    dcp_st_writer *writer;
    float w[4] = {0};
    (void)state;
    snprintf(dir, sizeof dir, "%s/texts", root);
    snprintf(dirs, sizeof dirs, "%s/private", root);
    snprintf(file, sizeof file, "%s/x.safetensors", root);
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&s, NULL), DCP_OK);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char path[64], json[64];
        snprintf(path, sizeof path, "/model/%s", texts[i]);
        const dcp_tensor tensor = {path, DCP_F32, 1, {4}}, named = {texts[i], DCP_F32, 1, {4}};
        dcp_store_options o = DCP_STORE_OPTIONS_INIT;
        o.tool = texts[i];
        REFUSES("tool", dcp_store_open(comm, dir, &o, &store, &err));
        o.tool = NULL, o.private_dirs = 1, o.domain = texts[i];
        REFUSES("domain", dcp_store_open(comm, dirs, &o, &store, &err));
        dcp_tiers_options t = DCP_TIERS_OPTIONS_INIT;
        dcp_tier tier = DCP_TIER_INIT;
        tier.path = dir, tier.every = 1, t.tool = texts[i];
        REFUSES("tool", dcp_tiers_open(comm, &tier, 1, &t, &tiers, &err));
        t.tool = NULL, tier.is_private = 1, tier.domain = texts[i];
        REFUSES("domain", dcp_tiers_open(comm, &tier, 1, &t, &tiers, &err));
        REFUSES("UTF-8", dcp_state_add(s, &tensor, NULL, w, &err));
        REFUSES("UTF-8", dcp_st_create(file, &named, 1, &writer, &err));
        assert_int_equal(dcp_store_open(comm, dir, NULL, &store, NULL), DCP_OK);
        dcp_save_options so = DCP_SAVE_OPTIONS_INIT;
        snprintf(json, sizeof json, "{\"key\": \"%s\"}", texts[i]);
        REFUSES("JSON", dcp_save(store, 1, s, json, NULL, NULL, &err));
        so.about_json = json;
        REFUSES("about_json", dcp_save(store, 1, s, NULL, &so, NULL, &err));
        snprintf(json, sizeof json, "{\"%s\": 1}", texts[i]);
        REFUSES("JSON", dcp_save(store, 1, s, json, NULL, NULL, &err));
        so.about_json = json;
        REFUSES("about_json", dcp_save(store, 1, s, NULL, &so, NULL, &err));
        dcp_store_close(store);
    }
    dcp_state_destroy(s);
    dcp_comm_destroy(comm);
}

/* A name for a new file that cannot be one is reported before anything is written. */
static void a_file_where_there_is_none(void **state) {
    const dcp_tensor tensor = {"w", DCP_F32, 1, {4}};
    char folder[128], fifo[128], with_slash[160];
    dcp_st_writer *writer;
    (void)state;
    snprintf(folder, sizeof folder, "%s/folder", root);
    snprintf(fifo, sizeof fifo, "%s/fifo", root);
    snprintf(with_slash, sizeof with_slash, "%s/", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    REFUSES(folder, dcp_st_create(folder, &tensor, 1, &writer, &err));
    REFUSES(with_slash, dcp_st_create(with_slash, &tensor, 1, &writer, &err));
    REFUSES(fifo, dcp_st_create(fifo, &tensor, 1, &writer, &err));
    REFUSES("/dev/null", dcp_st_create("/dev/null", &tensor, 1, &writer, &err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_no_rank_are_empty),
        cmocka_unit_test(slices_of_nothing_are_empty),
        cmocka_unit_test(dimensions_are_eight),
        cmocka_unit_test(types_that_there_are_not),
        cmocka_unit_test(options_that_there_are_not),
        cmocka_unit_test(text_that_is_no_utf_8),
        cmocka_unit_test(a_file_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
