/* Children that are forked at random moments, while threads save and read, use the library or
 * abandon what they inherited. If a child hangs, its alarm ends it, and the test fails. */
#include "support/store_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { FORKS = 120, TENSORS = 150, ELEMS = 64, PATIENCE = 60 };

typedef struct forking {
    dcp_comm *comm;
    char steps[100], beside[100], other[100]; /* directories */
    dcp_state *state;
    float values[ELEMS];
    atomic_int ends, failed;
} forking;

static void add_tensors(dcp_state *state, int n, float *values) {
    for (int i = 0; i < n; i++) {
        char path[32];
        snprintf(path, sizeof path, "/model/%d", i);
        const dcp_tensor tensor = {path, DCP_F32, 1, {ELEMS}};
        assert_int_equal(dcp_state_add(state, &tensor, NULL, values, NULL), DCP_OK);
    }
}

/* More files than are kept open at a time. */
static const dcp_save_options sharded = {
    .size = sizeof sharded, .layout = DCP_LAYOUT_SHARDED, .shards = TENSORS};

static int read_tensor(dcp_reader *reader, int i) {
    char path[32];
    float values[ELEMS] = {0};
    const dcp_box whole = {{0}, {ELEMS}};
    snprintf(path, sizeof path, "/model/%d", i);
    return dcp_reader_read(reader, path, &whole, values, NULL) || values[ELEMS - 1] != 7;
}

/* Opens files all the time, and looks up tensors that were not looked up before. */
static void *read_on(void *ctx) {
    forking *f = ctx;
    while (!atomic_load(&f->ends)) {
        dcp_checkpoint *ckpt = NULL;
        dcp_reader *reader = NULL;
        int failed = dcp_checkpoint_open(f->comm, f->steps, &ckpt, NULL) ||
                     dcp_reader_create(ckpt, &reader, NULL);
        for (int i = 0; i < TENSORS && !failed; i++) failed = read_tensor(reader, i);
        dcp_reader_destroy(reader);
        dcp_checkpoint_close(ckpt);
        if (failed) atomic_store(&f->failed, 1);
    }
    return NULL;
}

/* Saves a different state each time, so HDF5 lays it out each time. */
static int save_into(const forking *f, const char *dir, uint64_t step, int tensors) {
    float values[ELEMS] = {0};
    dcp_store_options keep_one = {.size = sizeof keep_one, .keep = 1};
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    int failed =
        dcp_store_open(f->comm, dir, &keep_one, &store, NULL) || dcp_state_create(&state, NULL);
    if (!failed) {
        add_tensors(state, tensors, values);
        failed = dcp_save(store, step, state, NULL, NULL, NULL, NULL) != DCP_OK;
    }
    dcp_state_destroy(state);
    dcp_store_close(store);
    return failed;
}

static void *save_on(void *ctx) {
    forking *f = ctx;
    for (uint64_t step = 1; !atomic_load(&f->ends); step++)
        if (save_into(f, f->beside, step, (int)(step % 8) + 1)) atomic_store(&f->failed, 1);
    return NULL;
}

/* What the parent had open when it forked. */
typedef struct inherited {
    dcp_store *store;
    dcp_saving *saving;
    dcp_checkpoint *ckpt;
} inherited;

/* Returns 0, or which of them failed. */
static int be_child(const forking *f, const inherited *from, unsigned what) {
    dcp_error err = {0};
    dcp_checkpoint *ckpt = NULL;
    dcp_reader *reader = NULL;
    switch (what % 4) {
    case 0: /* abandons it */
        dcp_save_fence(from->saving);
        if (dcp_save_wait(from->saving, NULL, &err) != DCP_ERR_STATE) return 2;
        dcp_checkpoint_close(from->ckpt);
        dcp_store_close(from->store);
        dcp_state_destroy(f->state);
        return 0;
    case 1: /* reads what the parent has open */
        if (dcp_reader_create(from->ckpt, &reader, NULL)) return 3;
        for (int i = 0; i < TENSORS; i += 10)
            if (read_tensor(reader, i)) return 4;
        dcp_reader_destroy(reader);
        return 0;
    case 2: /* opens it itself */
        if (dcp_checkpoint_open(f->comm, f->steps, &ckpt, NULL)) return 5;
        if (dcp_reader_create(ckpt, &reader, NULL) || read_tensor(reader, 3)) return 6;
        dcp_reader_destroy(reader);
        dcp_checkpoint_close(ckpt);
        return 0;
    default: /* saves */
        return save_into(f, f->other, what, 3) ? 7 : 0;
    }
}

static void fork_child(const forking *f, const inherited *from, unsigned what) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(PATIENCE);
        _exit(be_child(f, from, what));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("child %u ended with status %x", what % 4, (unsigned)status);
}

/* Waits for a random moment of the next milliseconds. */
static void let_pass(unsigned *seed) {
    const struct timespec pause = {.tv_nsec = rand_r(seed) % 3000000};
    nanosleep(&pause, NULL);
}

static void children_use_the_library_or_leave(void **given) {
    struct scratch *s = *given;
    unsigned seed = (unsigned)getpid(), children = 0;
    pthread_t reader, saver;
    forking *f = calloc(1, sizeof *f);
    dcp_store_options keep_two = {.size = sizeof keep_two, .keep = 2};
    inherited from = {0};
    print_message("seed %u\n", seed);
    f->comm = s->comm;
    snprintf(f->steps, sizeof f->steps, "%s/steps", s->root);
    snprintf(f->beside, sizeof f->beside, "%s/beside", s->root);
    snprintf(f->other, sizeof f->other, "%s/other", s->root);
    for (int i = 0; i < ELEMS; i++) f->values[i] = 7;
    assert_int_equal(dcp_state_create(&f->state, NULL), DCP_OK);
    add_tensors(f->state, TENSORS, f->values);
    assert_int_equal(dcp_store_open(s->comm, f->steps, &keep_two, &from.store, NULL), DCP_OK);
    assert_int_equal(dcp_save(from.store, 1, f->state, NULL, &sharded, NULL, NULL), DCP_OK);
    assert_int_equal(dcp_checkpoint_open(s->comm, f->steps, &from.ckpt, NULL), DCP_OK);
    assert_int_equal(pthread_create(&reader, NULL, read_on, f), 0);
    assert_int_equal(pthread_create(&saver, NULL, save_on, f), 0);
    alarm(10 * PATIENCE); /* a fork that hangs */
    for (uint64_t step = 2; children < FORKS; step++) {
        assert_int_equal(
            dcp_save_async(from.store, step, f->state, NULL, &sharded, &from.saving, NULL), DCP_OK);
        do {
            let_pass(&seed);
            fork_child(f, &from, children++);
        } while (children < FORKS && !dcp_save_is_done(from.saving));
        assert_int_equal(dcp_save_wait(from.saving, NULL, NULL), DCP_OK);
    }
    alarm(0);
    atomic_store(&f->ends, 1);
    pthread_join(reader, NULL);
    pthread_join(saver, NULL);
    assert_false(atomic_load(&f->failed));
    dcp_checkpoint_close(from.ckpt);
    dcp_store_close(from.store);
    dcp_state_destroy(f->state);
    free(f);
}

int main(void) {
#ifdef __SANITIZE_ADDRESS__ /* another thread may hold its allocator's lock during a fork */
    return 77;
#endif
    const struct CMUnitTest tests[] = {scratch_test(children_use_the_library_or_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
