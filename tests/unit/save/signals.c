/* A signal that arrives during a save in flight belongs to the program: no thread of the library
 * receives it. The test blocks it on its own thread once the save is in progress, so any other
 * thread would receive it. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "support/store_fixture.h"

static pthread_t taker;
static atomic_int taken;

static void on_signal(int number) {
    (void)number;
    taker = pthread_self();
    atomic_store(&taken, 1);
}

/* Holds the save until it is released. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int reached, open;
};

static void hold_save(void *ctx, uint64_t done, uint64_t total) {
    struct gate *gate = ctx;
    (void)done, (void)total;
    pthread_mutex_lock(&gate->lock);
    gate->reached = 1;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void wait_until_held(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    while (!gate->reached) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void let_go(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void the_caller_takes_it(void **state) {
    struct scratch *s = *state;
    static double values[1000];
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    const dcp_save_options options = {
        .size = sizeof options, .on_progress = hold_save, .progress_ctx = &gate};
    dcp_tensor tensor = {.path = "/model/a", .dtype = DCP_F64, .ndim = 1, .shape = {1000}};
    dcp_box whole = {{0}, {1000}};
    dcp_state *held = NULL;
    dcp_saving *saving = NULL;
    sigset_t set;
    dcp_store *store = open_store(s, 0, 0);
    assert_int_equal(dcp_state_create(&held, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(held, &tensor, &whole, values, NULL), DCP_OK);
    signal(SIGUSR1, on_signal);
    assert_int_equal(dcp_save_async(store, 1, held, NULL, &options, &saving, NULL), DCP_OK);
    wait_until_held(&gate);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1);
    let_go(&gate);
    assert_int_equal(dcp_save_wait(saving, NULL, NULL), DCP_OK);
    assert_false(atomic_load(&taken));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    assert_true(atomic_load(&taken));
    assert_true(pthread_equal(taker, pthread_self()));
    dcp_store_close(store);
    dcp_state_destroy(held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(the_caller_takes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
