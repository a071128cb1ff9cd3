/* What a caller adds to about.json is an object of bounded size, which does not replace the
 * library's members; anything else is refused before anything is written. Meta is bounded, too. */
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/dcp.h"
#include "store/directory.h"

static char root[] = "/tmp/dcp-about-XXXXXX";

static const dcp_store_options any_order = {.size = sizeof any_order, .keep_latest = 1};

static int save(uint64_t step, const char *about) {
    dcp_comm *comm = NULL;
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    dcp_save_options options = {.size = sizeof options, .about_json = about};
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_store_open(comm, root, &any_order, &store, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    int status = dcp_save(store, step, state, NULL, &options, NULL, NULL);
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(comm);
    return status;
}

static void what_is_no_object_is_refused(void **unused) {
    (void)unused;
    char *large = malloc(2 << 20);
    assert_non_null(large);
    memset(large, ' ', (2 << 20) - 1);
    memcpy(large, "{}", 2);
    large[(2 << 20) - 1] = 0;
    assert_int_equal(save(1, "[1]"), DCP_ERR_ARG);
    assert_int_equal(save(1, "{\"a\":"), DCP_ERR_ARG);
    assert_int_equal(save(1, large), DCP_ERR_ARG);
    free(large);
}

static void members_stand_beside_ours(void **unused) {
    (void)unused;
    char path[128];
    assert_int_equal(save(2, "{\"kernels\": \"k\", \"layout\": \"theirs\"}"), DCP_OK);
    snprintf(path, sizeof path, "%s/step-00000002/about.json", root);
    json_t *about = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(about, "kernels")), "k");
    assert_string_equal(json_string_value(json_object_get(about, "layout")), "global");
    json_decref(about);
}

static void where_the_time_went(void **unused) {
    (void)unused;
    static const char *const parts[] = {"plan_s", "gather_s", "copy_s", "write_s", "sync_s"};
    char path[128];
    double sum = 0;
    assert_int_equal(save(3, NULL), DCP_OK);
    snprintf(path, sizeof path, "%s/step-00000003/about.json", root);
    json_t *about = json_load_file(path, 0, NULL);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double part = json_number_value(json_object_get(about, parts[i]));
        assert_true(json_is_real(json_object_get(about, parts[i])) && part >= 0);
        sum += part;
    }
    /* parts of one interval; all are printed with 6 digits */
    assert_true(sum <= json_number_value(json_object_get(about, "seconds")) * 1.001);
    json_decref(about);
}

static int save_json(uint64_t step, const char *json) {
    dcp_comm *comm = NULL;
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_store_open(comm, root, &any_order, &store, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    int status = dcp_save(store, step, state, json, NULL, NULL, NULL);
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(comm);
    return status;
}

/* A reader refuses larger meta, so a save does, too; meta just below the limit loads. */
static void json_has_a_ceiling(void **unused) {
    (void)unused;
    size_t bytes = 16u << 20;
    char *json = malloc(bytes + 1), path[128];
    dcp_comm *comm;
    dcp_checkpoint *ckpt;
    assert_non_null(json);
    memset(json, 'x', bytes);
    json[bytes] = 0;
    memcpy(json, "{\"a\":\"", 6);
    memcpy(json + bytes - 2, "\"}", 2);
    assert_int_equal(save_json(4, json), DCP_ERR_ARG); /* "format" and "step" are added to it */
    memcpy(json + bytes - 64, "\"}", 3);
    assert_int_equal(save_json(4, json), DCP_OK);
    snprintf(path, sizeof path, "%s/step-00000004", root);
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(comm, path, &ckpt, NULL), DCP_OK);
    dcp_checkpoint_close(ckpt);
    dcp_comm_destroy(comm);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(json_has_a_ceiling),
        cmocka_unit_test(members_stand_beside_ours),
        cmocka_unit_test(where_the_time_went),
    };
    if (!mkdtemp(root)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    store_directory_remove(AT_FDCWD, root);
    return failed;
}
