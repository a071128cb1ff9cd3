/* Loads beside a writer that keeps one step: each of some thousand finds a step that is whole, and
 * its bytes, though every step that it finds is about to be removed or replaced. */
#include <signal.h>
#include <sys/wait.h>

#include "support/store_fixture.h"

#ifdef __SANITIZE_ADDRESS__
#define LOADS 400 /* each takes some 15 times as long */
#else
#define LOADS 4000
#endif
#define ELEMS 3000

static const dcp_tensor tensor = {"/model/a", DCP_I64, 1, {ELEMS}};

static dcp_state *state_of(int64_t *data) {
    dcp_state *state;
    dcp_box whole = dcp_box_whole(&tensor);
    if (dcp_state_create(&state, NULL) || dcp_state_add(state, &tensor, &whole, data, NULL))
        _exit(3);
    return state;
}

/* Saves until nobody reads; a step's elements are all its number, which a replacement negates. */
static void write_steps(struct scratch *s, int replace, const volatile int *ends) {
    static int64_t data[ELEMS];
    dcp_store *store = open_store(s, 1, replace);
    dcp_state *state = state_of(data);
    dcp_error err;
    for (int64_t n = 1; !*ends; n++) {
        uint64_t step = (uint64_t)(replace ? 1 + n / 50 : n);
        for (size_t i = 0; i < ELEMS; i++) data[i] = n;
        if (dcp_save(store, step, state, NULL, NULL, NULL, &err)) {
            fprintf(stderr, "save %d: %s\n", (int)n, err.message);
            _exit(1);
        }
    }
    dcp_state_destroy(state);
    dcp_store_close(store);
}

static volatile int ends;
static void end(int signal) { ends = signal; }

static pid_t start_writer(struct scratch *s, int replace) {
    signal(SIGTERM, end);
    pid_t pid = fork();
    if (pid == 0) {
        write_steps(s, replace, &ends);
        _exit(0);
    }
    return pid;
}

/* By the directory, or by the step's own name, which may go for good. */
static int open_one(struct scratch *s, int by_name, uint64_t step, dcp_checkpoint **ckpt,
                    dcp_error *err) {
    char path[200];
    snprintf(path, sizeof path, "%s/step-%08d", s->dir, (int)step);
    return dcp_checkpoint_open(s->comm, by_name ? path : s->dir, ckpt, err);
}

static void load_beside_saves(struct scratch *s, int replace) {
    static int64_t data[ELEMS];
    dcp_state *state = state_of(data);
    dcp_error err = {0};
    uint64_t last = 1, different = 0;
    pid_t writer = start_writer(s, replace);
    while (!has(s, "latest")) usleep(1000); /* the first step */
    for (int n = 0; n < LOADS; n++) {
        dcp_checkpoint *ckpt = NULL;
        int status = open_one(s, n % 4 == 3, last, &ckpt, &err);
        if (status == DCP_ERR_NOT_FOUND && n % 4 == 3) continue;
        if (status) fail_msg("open %d: %s", n, err.message);
        if (dcp_load(ckpt, state, NULL, &err)) fail_msg("load %d: %s", n, err.message);
        for (size_t i = 1; i < ELEMS; i++) assert_int_equal(data[i], data[0]);
        different += dcp_checkpoint_step(ckpt) != last;
        last = dcp_checkpoint_step(ckpt);
        dcp_checkpoint_close(ckpt);
    }
    assert_true(different > 2);
    kill(writer, SIGTERM);
    int status;
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    dcp_state_destroy(state);
}

static void beside_keep(void **state) { load_beside_saves(*state, 0); }
static void beside_replace(void **state) { load_beside_saves(*state, 1); }

/* In memory, where steps come and go fastest. */
static int make_in_memory(void **state) {
    struct scratch *s = calloc(1, sizeof *s);
    *state = s;
    snprintf(s->root, sizeof s->root, "/dev/shm/dcp-beside-XXXXXX");
    if (!mkdtemp(s->root)) return -1;
    snprintf(s->dir, sizeof s->dir, "%s/store", s->root);
    return dcp_comm_self(&s->comm, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(beside_keep, make_in_memory, scratch_remove),
        cmocka_unit_test_setup_teardown(beside_replace, make_in_memory, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
