/* In layout global, "@1" at a name's end is a part of the name, also in the state's id; and
 * about.json is read as it was written. */
#include "support/store_fixture.h"

#include "dcp/inspect.h"
#include "dcp/prove.h"

static dcp_state *state_of(const char *path, float *values) {
    dcp_state *state = NULL;
    const dcp_tensor tensor = {path, DCP_F32, 1, {4}};
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, values, NULL), DCP_OK);
    return state;
}

/* The id of the step that the state becomes, which is that of the state. */
static uint64_t id_of(const struct scratch *s, dcp_store *store, uint64_t step, dcp_state *state) {
    char path[PATH_MAX];
    uint64_t id = 0;
    dcp_checkpoint *ckpt = NULL;
    dcp_proof *proof = NULL;
    assert_int_equal(dcp_save(store, step, state, NULL, NULL, NULL, NULL), DCP_OK);
    snprintf(path, sizeof path, "%s/step-%08d", s->dir, (int)step);
    assert_int_equal(dcp_checkpoint_open(s->comm, path, &ckpt, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_state_id(ckpt, &id), 1);
    dcp_checkpoint_close(ckpt);
    assert_int_equal(dcp_prove(s->comm, state, NULL, &proof, NULL), DCP_OK);
    assert_true(dcp_proof_id(proof) == id);
    dcp_proof_destroy(proof);
    assert_int_equal(dcp_verify(path, NULL, NULL), DCP_OK);
    return id;
}

static void names_that_differ_behind_at_have_other_ids(void **given) {
    static const char *const names[] = {"/model/expert", "/model/expert@1", "/model/expert@2"};
    const struct scratch *s = *given;
    float values[4] = {1, 2, 3, 4};
    uint64_t ids[3];
    dcp_store *store = open_store(*given, 0, 0);
    for (uint64_t i = 0; i < 3; i++) {
        dcp_state *state = state_of(names[i], values);
        ids[i] = id_of(s, store, i, state);
        dcp_state_destroy(state);
    }
    dcp_store_close(store);
    assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}

static void shards_keep_such_names_for_boxes(void **given) {
    float values[4] = {1, 2, 3, 4};
    const dcp_save_options sharded = {.size = sizeof sharded, .layout = DCP_LAYOUT_SHARDED};
    dcp_error err = {0};
    dcp_store *store = open_store(*given, 0, 0);
    dcp_state *state = state_of("/model/expert@1", values);
    assert_int_equal(dcp_save(store, 1, state, NULL, &sharded, NULL, &err), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "/model/expert@1"));
    dcp_state_destroy(state);
    dcp_store_close(store);
}

static void about_has_its_own_checksum(void **given) {
    const struct scratch *s = *given;
    float values[4] = {1, 2, 3, 4};
    char path[PATH_MAX], text[8192] = "", *json = NULL;
    dcp_store *store = open_store(*given, 0, 0);
    dcp_state *state = state_of("/model/w", values);
    assert_int_equal(dcp_save(store, 1, state, NULL, NULL, NULL, NULL), DCP_OK);
    snprintf(path, sizeof path, "%s/step-00000001/about.json", s->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    *strrchr(path, '/') = '\0';
    assert_int_equal(dcp_about_read(path, &json, NULL), DCP_OK);
    const char *written = strstr(text, "\"crc64\""), *read = strstr(json, "\"crc64\":\"");
    assert_non_null(written);
    assert_non_null(read);
    written = strchr(written + 7, '"') + 1;
    assert_memory_equal(read + 9, written, 16);
    assert_memory_not_equal(written, "0000000000000000", 16);
    free(json);
    dcp_state_destroy(state);
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(names_that_differ_behind_at_have_other_ids),
        scratch_test(shards_keep_such_names_for_boxes),
        scratch_test(about_has_its_own_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
