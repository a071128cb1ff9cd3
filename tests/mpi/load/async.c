/* Loads in flight: a thread reads in the background and ends without a wait, or the wait reads. The
 * content is that of a plain load. Other readers continue, another load or the close waits, and a
 * failure is reported by the wait. */
#include <sched.h>
#include <sys/wait.h>

#include "comm/comm.h"
#include "support/cancel.h"

static held into;

static dcp_loading *start_load(dcp_checkpoint *ckpt, const dcp_load_options *options) {
    dcp_loading *loading = NULL;
    SUCCEEDS(dcp_load_async(ckpt, into.state, options, &loading, err));
    return loading;
}

/* A forked process does not take part in it. */
static void check_fork(dcp_loading *loading) {
    pid_t child = fork();
    int status;
    if (child == 0)
        _exit(dcp_load_is_done(loading) != 1 ||
              dcp_load_wait(loading, NULL, NULL) != DCP_ERR_STATE);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void read_beside(dcp_checkpoint *ckpt, const given *g) {
    const dcp_tensor *t = given_find(g, "/model/page");
    const dcp_box all = dcp_box_whole(t);
    unsigned char data[3 * 4096];
    SUCCEEDS(dcp_checkpoint_read(ckpt, t->path, &all, data, err));
    CHECK(!memcmp(data, g->data[t - g->tensors], sizeof data));
}

/* While it waits at the gate, the caller continues. */
static void ends_by_itself(const scratch *s, dcp_checkpoint *ckpt, const given *g, int beside,
                           dcp_engine engine) {
    sem_t gate;
    dcp_report report = DCP_REPORT_INIT;
    dcp_load_options options = {
        .size = sizeof options, .stop = wait_at_gate, .stop_ctx = &gate, .engine = engine};
    sem_init(&gate, 0, 0);
    dcp_loading *loading = start_load(ckpt, &options);
    CHECK(dcp_load_is_done(loading) == (beside ? 0 : DCP_ERR_STATE));
    read_beside(ckpt, g);
    if (s->size == 1) check_fork(loading);
    sem_post(&gate);
    while (beside && dcp_load_is_done(loading) != 1) sched_yield();
    SUCCEEDS(dcp_load_wait(loading, &report, err));
    CHECK(held_is_given(&into, g) && report.bytes && report.engine);
    sem_destroy(&gate);
}

static void tell(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *seen = ctx;
    CHECK(done > seen[0] && done <= total);
    seen[0] = done;
    seen[1] = total;
}

static void tells_progress(dcp_checkpoint *ckpt, const given *g, dcp_engine engine) {
    uint64_t seen[2] = {0}, bytes = 0;
    dcp_load_options options = {
        .size = sizeof options, .on_progress = tell, .progress_ctx = seen, .engine = engine};
    for (size_t i = 0; i < into.n; i++) {
        const dcp_tensor *t = &g->tensors[into.boxes[i].tensor];
        bytes += dcp_box_elems(&into.boxes[i].box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    SUCCEEDS(dcp_load_with(ckpt, into.state, &options, NULL, err));
    CHECK(seen[0] == seen[1] && seen[1] == bytes);
}

static void one_waits_for_another(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    dcp_loading *first = start_load(ckpt, NULL), *second = start_load(ckpt, NULL);
    CHECK(dcp_load_is_done(first) == 1);
    SUCCEEDS(dcp_load(ckpt, into.state, NULL, err));
    CHECK(dcp_load_is_done(second) == 1);
    SUCCEEDS(dcp_load_wait(second, NULL, err));
    SUCCEEDS(dcp_load_wait(first, NULL, err));
    dcp_loading *third = start_load(ckpt, NULL);
    dcp_store *store = scratch_store(s, s->comm, "other");
    SUCCEEDS(dcp_rewrite(ckpt, store, NULL, NULL, err));
    CHECK(dcp_load_is_done(third) == 1);
    SUCCEEDS(dcp_load_wait(third, NULL, err));
    dcp_store_close(store);
    CHECK(held_is_given(&into, g));
}

/* Refused immediately, on all ranks. */
static void refuses_arguments(const scratch *s, dcp_checkpoint *ckpt) {
    const char *none = "/nothing/*";
    dcp_error failure = {0};
    dcp_loading *loading = NULL;
    dcp_load_options options = {.size = sizeof options, .only = &none, .n_only = 1};
    int status = dcp_load_async(ckpt, into.state, &options, &loading, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure, "/nothing/*");
    status = dcp_load_async(ckpt, into.state, NULL, s->rank ? &loading : NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "out is NULL");
    CHECK(!loading);
    if (s->size == 1) return;
    status = s->rank ? dcp_load_async(ckpt, into.state, NULL, &loading, &failure)
                     : dcp_load(ckpt, into.state, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "the call: 0 is dcp_load");
    CHECK(!loading);
}

static void load_in_flight(const scratch *s, const char *name, const given *g, scheme how,
                           int threads) {
    const int beside = threads || s->size == 1;
    held_make(&into, g, how, s->rank, s->size, 0);
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, name);
    ends_by_itself(s, ckpt, g, beside, DCP_ENGINE_DIRECT);
    ends_by_itself(s, ckpt, g, 0, DCP_ENGINE_MPIO);
    tells_progress(ckpt, g, DCP_ENGINE_DIRECT);
    tells_progress(ckpt, g, DCP_ENGINE_MPIO);
    one_waits_for_another(s, ckpt, g);
    refuses_arguments(s, ckpt);
    dcp_loading *last = start_load(ckpt, NULL);
    dcp_checkpoint_close(ckpt); /* ends it */
    CHECK(dcp_load_is_done(last) == 1);
    SUCCEEDS(dcp_load_wait(last, NULL, err));
    CHECK(held_is_given(&into, g));
    held_free(&into);
}

static void tells_damage(const scratch *s, const given *g) {
    dcp_error failure = {0};
    if (s->rank == 0) {
        char path[PATH_MAX];
        size_t n, t = (size_t)(given_find(g, "/model/blocks") - g->tensors);
        unsigned char *file = scratch_read(s, "global/step-00000005/state.h5", &n), flipped;
        const unsigned char *at = memmem(file, n, g->data[t], 4096);
        snprintf(path, sizeof path, "%s/global/step-00000005/state.h5", s->root);
        int fd = open(path, O_WRONLY);
        CHECK(at && fd >= 0);
        flipped = *at ^ 4;
        CHECK(pwrite(fd, &flipped, 1, at - file) == 1);
        close(fd);
        free(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    held_make(&into, g, COLUMNS, s->rank, s->size, 0);
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "global");
    int status = dcp_load_wait(start_load(ckpt, NULL), NULL, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "/model/blocks");
    dcp_checkpoint_close(ckpt);
    held_free(&into);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "global", &g, ROWS, DCP_LAYOUT_GLOBAL);
    scratch_save(&s, s.comm, "sharded", &g, COLUMNS, DCP_LAYOUT_SHARDED);
    for (int threads = 1; threads >= 0; threads--) {
        if (!threads) s.comm->duplicate = NULL;
        load_in_flight(&s, "global", &g, ROWS, threads);
        load_in_flight(&s, "global", &g, HALO, threads);
        load_in_flight(&s, "sharded", &g, STRIPES, threads);
    }
    tells_damage(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
