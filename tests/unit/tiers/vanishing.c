/* A step that is removed while steps are tried, for example by `keep` when a save ends in the
 * meantime, is not damaged: the steps are listed again, and the newest one is loaded. Nor is a step
 * damaged that lacks what the program wants, if it can't be examined again. */
#include "support/store_fixture.h"

#include <errno.h>

#include "crash/refuse.h"
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

static void save_value(struct scratch *s, const char *store, int is_private, uint64_t step) {
    const dcp_tensor tensor = {"/model/w", DCP_F32, 1, {1}};
    float value = (float)step;
    dcp_state *state;
    char dir[160];
    name_step(s, store, "", dir);
    dcp_store *opened;
    dcp_store_options options = DCP_STORE_OPTIONS_INIT;
    options.private_dirs = is_private;
    dcp_save_options how = DCP_SAVE_OPTIONS_INIT;
    if (is_private) how.layout = DCP_LAYOUT_SHARDED;
    assert_int_equal(dcp_store_open(s->comm, dir, &options, &opened, NULL), DCP_OK);
    assert_int_equal(dcp_state_create(&state, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(state, &tensor, NULL, &value, NULL), DCP_OK);
    assert_int_equal(dcp_save(opened, step, state, NULL, &how, NULL, NULL), DCP_OK);
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

/* The newest step lacks something, and an error that proves nothing prevents a second look. */
static int want_more(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    vanishing *v = ctx;
    if (v->calls++) return load_value(ctx, ckpt, err);
    refuse_begin(v->s->root, EIO, 1);
    snprintf(err->message, sizeof err->message, "no tensor /model/more");
    return err->status = DCP_ERR_NOT_FOUND;
}

static int load_list(struct scratch *s, int is_private, dcp_tiers_load_fn load, vanishing *v,
                     uint64_t *step, dcp_error *err) {
    char fast[160], slow[160];
    name_step(s, "fast", "", fast);
    name_step(s, "slow", "", slow);
    const dcp_tier list[] = {
        {.size = sizeof list[0], .path = fast, .every = 1, .is_private = is_private},
        {.size = sizeof list[0], .path = slow, .every = 5}};
    dcp_tiers *tiers;
    save_value(s, "slow", 0, 5);
    save_value(s, "fast", is_private, 7);
    save_value(s, "fast", is_private, 8);
    save_value(s, "other", is_private, 9);
    dcp_tiers_options options = DCP_TIERS_OPTIONS_INIT;
    options.log = keep_line;
    options.log_ctx = s;
    assert_int_equal(dcp_tiers_open(s->comm, list, 2, &options, &tiers, err), DCP_OK);
    const int status = dcp_tiers_load(tiers, load, v, step, err);
    dcp_tiers_close(tiers);
    return status;
}

static void load_newest(struct scratch *s, int is_private) {
    float value = 0;
    vanishing v = {s, &value, 0};
    uint64_t step = 0;
    dcp_error err = {0};
    assert_int_equal(load_list(s, is_private, load_value, &v, &step, &err), DCP_OK);
    assert_int_equal(step, 9);
    assert_true(value == 9);
    assert_null(strstr(s->log, "step 7 is damaged"));
}

static void the_newest_is_loaded(void **state) { load_newest(*state, 0); }

static void the_newest_is_loaded_from_a_private_store(void **state) { load_newest(*state, 1); }

static void no_older_step_is_loaded(void **state) {
    struct scratch *s = *state;
    float value = 0;
    vanishing v = {s, &value, 0};
    uint64_t step = 0;
    dcp_error err = {0};
    assert_int_equal(load_list(s, 0, want_more, &v, &step, &err), DCP_ERR_IO);
    refuse_end();
    assert_non_null(strstr(err.message, "step 8"));
}

int main(void) {
    const struct CMUnitTest tests[] = {scratch_test(the_newest_is_loaded),
                                       scratch_test(the_newest_is_loaded_from_a_private_store),
                                       scratch_test(no_older_step_is_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
