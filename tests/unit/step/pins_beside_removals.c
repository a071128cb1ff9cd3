/* Pins beside a writer that removes each step as soon as it may: a pinned step has its name, and is
 * opened by it, until it is unpinned; a step that cannot be pinned no longer exists. */
#include "support/beside.h"

#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 100
#else
#define ROUNDS 500
#endif
#define LOOKS 50 /* at the name of a pinned step */

/* Step 1 counts as the intact one, so any other may be removed. */
static void remove_each(struct scratch *s) {
    dcp_error err;
    dcp_store *store = open_store(s, 0, 0);
    for (int64_t n = 1; !beside_ends; n++) {
        beside_save(store, (uint64_t)n, n);
        int status = dcp_store_mark_intact(store, 1, &err);
        while (!status && n > 1 && !beside_ends &&
               (status = dcp_step_remove(store, (uint64_t)n, &err)) == DCP_ERR_BUSY)
            status = DCP_OK;
        if (status) {
            fprintf(stderr, "remove %d: %s\n", (int)n, err.message);
            _exit(1);
        }
    }
    dcp_store_close(store);
}

static int newest_name(const struct scratch *s, char *path, size_t size) {
    dcp_step *steps = NULL;
    size_t n = 0;
    assert_int_equal(dcp_steps_list(s->dir, &steps, &n, NULL), DCP_OK);
    while (n > 0 && steps[n - 1].kind != DCP_STEP_COMPLETE) n--;
    if (n > 0) snprintf(path, size, "%s/%s", s->dir, steps[n - 1].name);
    free(steps);
    return n > 0;
}

static void read_pinned(struct scratch *s, const char *path) {
    char file[300];
    dcp_checkpoint *ckpt;
    dcp_error err;
    snprintf(file, sizeof file, "%s/state.h5", path);
    for (int i = 0; i < LOOKS; i++)
        if (access(file, F_OK)) fail_msg("look %d: %s is pinned, and not there", i, path);
    if (dcp_checkpoint_open(s->comm, path, &ckpt, &err)) fail_msg("%s", err.message);
    assert_int_equal(beside_load(ckpt), dcp_checkpoint_step(ckpt));
    dcp_checkpoint_close(ckpt);
}

static void pin_beside(struct scratch *s, void (*write)(struct scratch *s)) {
    char path[200];
    dcp_error err;
    int pinned = 0;
    beside_start(s, write);
    for (int round = 0; round < ROUNDS; round++) {
        dcp_pin *pin = NULL;
        if (!newest_name(s, path, sizeof path)) continue;
        const int status = dcp_step_pin(path, &pin, &err);
        if (status && status != DCP_ERR_NOT_FOUND) fail_msg("%s", err.message);
        if (!status) read_pinned(s, path);
        dcp_step_unpin(pin);
        pinned += !status;
    }
    assert_true(pinned > 2);
    beside_end();
}

static void beside_keep(void **state) { pin_beside(*state, beside_keep_one); }
static void beside_removals(void **state) { pin_beside(*state, remove_each); }

int main(void) {
    const struct CMUnitTest tests[] = {beside_test(beside_keep), beside_test(beside_removals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
