/* A step that is removed while steps are tried, for example by `keep` when a save ends in the
 * meantime, is not damaged: the steps are listed again, and the newest one is loaded. */
#include "support/store_fixture.h"

#include "dcp/inspect.h"
#include "dcp/tiers.h"

typedef struct vanishing {
    const struct scratch *s;
    float *value;
    int calls;
} vanishing;

static void name_step(const struct scratch *s, const char *store, const char *name, char out[160]) {
    snprintf(out, 160, "%s/%s/%s", s->root, store, name);
}

static void save_value(struct scratch *s, const char *store, uint64_t step) {
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {1}};
    float value = (float)step;
    dcp_state *state;
    char dir[160];
    name_step(s, store, "", dir);
    dcp_store *opened;
    assert_int_equal(dcp_store_open(s->comm, dir, NULL, &opened, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, &value, NULL), DCP_OK);
    assert_int_equal(dcp_save(opened, step, state, NULL, NULL, NULL, NULL), DCP_OK);
    dcp_state_destroy(state);
    dcp_store_close(opened);
}

/* The first step is damaged. Before that is known, a save of step 9 ends, and step 7 is removed. */
static int load_value(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    vanishing *v = ctx;
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {1}};
    dcp_state *state;
    char from[160], to[160];
    if (v->calls++ == 0) {
        name_step(v->s, "fast", "step-00000007", from);
        assert_int_equal(store_directory_remove(AT_FDCWD, from), 0);
        name_step(v->s, "other", "step-00000009", from);
        name_step(v->s, "fast", "step-00000009", to);
        assert_int_equal(rename(from, to), 0);
        return err->status = DCP_ERR_CORRUPT;
    }
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, v->value, NULL), DCP_OK);
    const int status = dcp_load(ckpt, state, NULL, err);
    dcp_state_destroy(state);
    return status;
}

static void the_newest_is_loaded(void **state) {
    struct scratch *s = *state;
    float value = 0;
    vanishing v = {s, &value, 0};
    char fast[160], slow[160];
    name_step(s, "fast", "", fast);
    name_step(s, "slow", "", slow);
    const dcp_tier list[] = {{.size = sizeof list[0], .path = fast, .every = 1},
                             {.size = sizeof list[0], .path = slow, .every = 5}};
    dcp_tiers *tiers;
    uint64_t step = 0;
    dcp_error err = {0};
    save_value(s, "slow", 5);
    save_value(s, "fast", 7);
    save_value(s, "fast", 8);
    save_value(s, "other", 9);
    dcp_tiers_options options = DCP_TIERS_OPTIONS_INIT;
    options.log = keep_line;
    options.log_ctx = s;
    assert_int_equal(dcp_tiers_open(s->comm, list, 2, &options, &tiers, &err), DCP_OK);
    assert_int_equal(dcp_tiers_load(tiers, load_value, &v, &step, &err), DCP_OK);
    assert_int_equal(step, 9);
    assert_true(value == 9);
    assert_null(strstr(s->log, "step 7 is damaged"));
    dcp_tiers_close(tiers);
}

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(the_newest_is_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
