/* Loads beside a writer that keeps one step: each of some thousand finds a complete step with its
 * bytes, although every step that it finds is about to be removed or replaced. */
#include "support/beside.h"

#ifdef __SANITIZE_ADDRESS__
#define LOADS 400 /* each takes some 15 times as long */
#else
#define LOADS 4000
#endif

static void replace_often(struct scratch *s) {
    dcp_store *store = open_store(s, 1, 1);
    for (int64_t n = 1; !beside_ends; n++) beside_save(store, (uint64_t)(1 + n / 50), n);
    dcp_store_close(store);
}

/* Opens by the directory, or by the step's own name, which may disappear permanently. */
static int open_one(struct scratch *s, int by_name, uint64_t step, dcp_checkpoint **ckpt,
                    dcp_error *err) {
    char path[200];
    snprintf(path, sizeof path, "%s/step-%08d", s->dir, (int)step);
    return dcp_checkpoint_open(s->comm, by_name ? path : s->dir, ckpt, err);
}

static void load_beside(struct scratch *s, void (*write)(struct scratch *s)) {
    dcp_error err = {0};
    uint64_t last = 1, different = 0;
    beside_start(s, write);
    for (int n = 0; n < LOADS; n++) {
        dcp_checkpoint *ckpt = NULL;
        int status = open_one(s, n % 4 == 3, last, &ckpt, &err);
        if (status == DCP_ERR_NOT_FOUND && n % 4 == 3) continue;
        if (status) fail_msg("open %d: %s", n, err.message);
        beside_load(ckpt);
        different += dcp_checkpoint_step(ckpt) != last;
        last = dcp_checkpoint_step(ckpt);
        dcp_checkpoint_close(ckpt);
    }
    assert_true(different > 2);
    beside_end();
}

static void beside_keep(void **state) { load_beside(*state, beside_keep_one); }
static void beside_replace(void **state) { load_beside(*state, replace_often); }

int main(void) {
    const struct CMUnitTest tests[] = {beside_test(beside_keep), beside_test(beside_replace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
