/* Reading beside a writer: until it is told to end, a child repeatedly saves one tensor to a store
 * in memory, where steps are added and removed fastest. */
#ifndef TESTS_SUPPORT_BESIDE_H
#define TESTS_SUPPORT_BESIDE_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "support/store_fixture.h"

#define BESIDE_ELEMS 3000

static const dcp_tensor beside_tensor = {"/model/a", DCP_I64, 1, {BESIDE_ELEMS}};

static inline dcp_state *beside_state(int64_t *data) {
    dcp_state *state;
    dcp_box whole = dcp_box_whole(&beside_tensor);
    if (dcp_state_create(&state, NULL) || dcp_state_add(state, &beside_tensor, &whole, data, NULL))
        _exit(3);
    return state;
}

/* The writer's save: all elements of the step are `value`. */
static inline void beside_save(dcp_store *store, uint64_t step, int64_t value) {
    static int64_t data[BESIDE_ELEMS];
    static dcp_state *state; /* the writer's, until it ends */
    dcp_error err;
    if (!state) state = beside_state(data);
    for (size_t i = 0; i < BESIDE_ELEMS; i++) data[i] = value;
    if (!dcp_save(store, step, state, NULL, NULL, NULL, &err)) return;
    fprintf(stderr, "save %d: %s\n", (int)value, err.message);
    _exit(1);
}

/* The reader's load: loads the open step, and returns the number that all elements have. */
static inline int64_t beside_load(dcp_checkpoint *ckpt) {
    static int64_t data[BESIDE_ELEMS];
    dcp_state *state = beside_state(data);
    dcp_error err;
    const int status = dcp_load(ckpt, state, NULL, &err);
    dcp_state_destroy(state);
    if (status) fail_msg("load: %s", err.message);
    for (size_t i = 1; i < BESIDE_ELEMS; i++) assert_int_equal(data[i], data[0]);
    return data[0];
}

static volatile int beside_ends; /* the writer has been told to end */
static inline void beside_on_end(int signal) { beside_ends = signal; }

/* A writer that removes each step after saving the next one. */
static inline void beside_keep_one(struct scratch *s) {
    dcp_store *store = open_store(s, 1, 0);
    for (int64_t n = 1; !beside_ends; n++) beside_save(store, (uint64_t)n, n);
    dcp_store_close(store);
}

static pid_t beside_writer; /* 0: there is none */

/* Starts a child that runs `write` until beside_end or the end of the test. A step exists when this
 * returns. */
static inline void beside_start(struct scratch *s, void (*write)(struct scratch *s)) {
    beside_writer = fork();
    if (beside_writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, beside_on_end);
        write(s);
        _exit(0);
    }
    while (!has(s, "latest")) {
        if (waitpid(beside_writer, NULL, WNOHANG)) {
            beside_writer = 0;
            fail_msg("the writer has ended");
        }
        usleep(1000);
    }
}

static inline int beside_signal(int signal) {
    int status;
    if (kill(beside_writer, signal) || waitpid(beside_writer, &status, 0) != beside_writer)
        status = -1;
    beside_writer = 0;
    return status;
}

static inline void beside_end(void) { assert_int_equal(beside_signal(SIGTERM), 0); }

static inline int beside_make(void **state) {
    struct scratch *s = calloc(1, sizeof *s);
    *state = s;
    snprintf(s->root, sizeof s->root, "/dev/shm/dcp-beside-XXXXXX");
    if (!mkdtemp(s->root)) return -1;
    snprintf(s->dir, sizeof s->dir, "%s/store", s->root);
    return dcp_comm_self(&s->comm, NULL);
}

static inline int beside_remove(void **state) {
    if (beside_writer > 0) beside_signal(SIGKILL); /* the test has failed */
    return scratch_remove(state);
}

#define beside_test(f) cmocka_unit_test_setup_teardown(f, beside_make, beside_remove)

#endif
