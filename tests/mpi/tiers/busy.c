/* A slow store: the step that it is being filled from is kept although `keep` would remove it; if
 * the store is due again in the meantime, it is skipped or waited for, as requested. Its disk is
 * slow because a gate holds the syncs of the thread that fills it. */
#include <errno.h>
#include <sys/syscall.h>

#include "support/tiers.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int closed, met; /* threads that came to the closed gate */
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

/* Replaces the C library's function. */
int fsync(int fd) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    pthread_mutex_lock(&gate.lock);
    if (!strcmp(name, "dcp-fill") && gate.closed) {
        gate.met++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.closed) pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    return (int)syscall(SYS_fsync, fd);
}

static void close_gate(void) { gate.closed = 1; }

static void open_gate(void) {
    pthread_mutex_lock(&gate.lock);
    gate.closed = gate.met = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void await_gate(int threads) {
    pthread_mutex_lock(&gate.lock);
    while (gate.met < threads) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void *open_gate_when_met(void *unused) {
    (void)unused;
    await_gate(1);
    open_gate();
    return NULL;
}

static void save(const scratch *s, dcp_tiers *tiers, uint64_t n, dcp_busy when_busy) {
    given g;
    held h;
    const dcp_save_options options = {.size = sizeof options, .when_busy = when_busy};
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save_async(tiers, n, h.state, GIVEN_JSON, &options, err));
    SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
    held_free(&h);
    given_free(&g);
}

static void save_and_wait_for_all(const scratch *s, dcp_tiers *tiers, uint64_t n) {
    given g;
    held h;
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save(tiers, n, h.state, GIVEN_JSON, NULL, 0, NULL, err));
    held_free(&h);
    given_free(&g);
}

int main(int argc, char **argv) {
    static tiers_under_test t;
    scratch s;
    pthread_t opener;
    scratch_begin(&s, &argc, &argv);
    tiers_make(&t, &s, NULL);
    dcp_tiers *tiers = tiers_open(&t, &s);
    close_gate();
    save(&s, tiers, 1, DCP_BUSY_REFUSE);
    save(&s, tiers, 2, DCP_BUSY_REFUSE); /* begins to fill the disk */
    await_gate(1);
    for (uint64_t n = 3; n <= 6; n++) save(&s, tiers, n, DCP_BUSY_REFUSE);
    await_gate(2);                               /* also the third store's with 4 */
    tiers_check_steps(&t, &s, 0, "c2 c4 c5 c6"); /* 2 and 4 are being read */
    tiers_check_steps(&t, &s, 1, "p2");
    tiers_check_steps(&t, &s, 2, "p4");
    CHECK(dcp_tiers_is_filled(tiers) == 0);
    MPI_Barrier(MPI_COMM_WORLD); /* the gate of another rank holds this rank's threads, too */
    open_gate();
    while (!dcp_tiers_is_filled(tiers)) usleep(1000);
    tiers_check_steps(&t, &s, 1, "c2");
    tiers_check_steps(&t, &s, 2, "c4");
    save_and_wait_for_all(&s, tiers, 7);
    close_gate(); /* until the thread that fills the disk with 8 is there; 10 waits for it */
    save(&s, tiers, 8, DCP_BUSY_WAIT);
    CHECK(pthread_create(&opener, NULL, open_gate_when_met, NULL) == 0);
    save(&s, tiers, 10, DCP_BUSY_WAIT);
    CHECK(pthread_join(opener, NULL) == 0);
    dcp_tiers_close(tiers);
    tiers_check_steps(&t, &s, 0, "c8 c10");
    tiers_check_steps(&t, &s, 1, "c8 c10");
    tiers_check_steps(&t, &s, 2, "c4 c8");
    return scratch_end(&s);
}
