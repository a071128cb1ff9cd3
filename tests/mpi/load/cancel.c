/* A load, a check or a rewrite that one rank cancels ends on all of them with DCP_ERR_CANCELLED,
 * and can be repeated immediately. A load's message says what has happened to the memory. */
#include "support/cancel.h"
#include "comm/comm.h"

static held into;
static char dir[PATH_MAX];
static dcp_checkpoint *ckpt;

static void check_load_cancelled(int status, const dcp_error *failure) {
    check_cancelled(status, failure, "the load", "contents of the state's boxes are undefined");
}

static void works(const given *g, const dcp_load_options *options) {
    SUCCEEDS(dcp_load_with(ckpt, into.state, options, NULL, err));
    if (!options->cast) CHECK(held_is_given(&into, g));
}

/* Counts how often the last rank is asked in a load that is not cancelled. */
static int count_asks(void *ctx) {
    ++*(int *)ctx;
    return 0;
}

static void loads_stopped(const scratch *s, const given *g, const dcp_load_options *options) {
    dcp_error failure = {0};
    int asks = 0, last = s->rank == s->size - 1;
    dcp_load_options own = *options;
    own.stop = count_asks;
    own.stop_ctx = &asks;
    works(g, &own);
    MPI_Bcast(&asks, 1, MPI_INT, s->size - 1, MPI_COMM_WORLD);
    CHECK(asks > 0);
    own.stop = give_up;
    for (int at = 0; at < asks; at += 1 + asks / 2) {
        int left = last ? at : INT_MAX;
        dcp_loading *loading;
        own.stop_ctx = &left;
        int status = dcp_load_with(ckpt, into.state, &own, NULL, &failure);
        check_load_cancelled(status, &failure);
        left = last ? at : INT_MAX;
        SUCCEEDS(dcp_load_async(ckpt, into.state, &own, &loading, err));
        check_load_cancelled(dcp_load_wait(loading, NULL, &failure), &failure);
        works(g, options);
    }
}

static void loads_cancelled(const scratch *s, const given *g, const dcp_load_options *options) {
    dcp_error failure = {0};
    dcp_loading *loading = NULL;
    dcp_load_options own = *options;
    sem_t gate;
    sem_init(&gate, 0, 0);
    own.stop = wait_at_gate;
    own.stop_ctx = &gate;
    SUCCEEDS(dcp_load_async(ckpt, into.state, &own, &loading, err));
    if (s->rank == s->size - 1) dcp_load_cancel(loading);
    MPI_Barrier(MPI_COMM_WORLD);
    sem_post(&gate);
    check_load_cancelled(dcp_load_wait(loading, NULL, &failure), &failure);
    sem_destroy(&gate);
    works(g, options);
    SUCCEEDS(dcp_load_async(ckpt, into.state, options, &loading, err));
    while (dcp_load_is_done(loading) == 0) continue;
    if (dcp_load_is_done(loading) == 1) {
        dcp_load_cancel(loading); /* too late */
        SUCCEEDS(dcp_load_wait(loading, NULL, err));
    } else {
        dcp_load_cancel(loading);
        check_load_cancelled(dcp_load_wait(loading, NULL, &failure), &failure);
    }
}

static void loads(const scratch *s, const char *name, const given *g, scheme how, int all) {
    snprintf(dir, sizeof dir, "%s/%s", s->root, name);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    held_make(&into, g, how, s->rank, s->size, 0);
    for (int engine = DCP_ENGINE_DIRECT; engine <= (all ? DCP_ENGINE_MPIO : DCP_ENGINE_DIRECT);
         engine++) {
        dcp_load_options options = {.size = sizeof options, .engine = engine};
        loads_stopped(s, g, &options);
        loads_cancelled(s, g, &options);
    }
    held_free(&into);
    dcp_checkpoint_close(ckpt);
}

/* Half floats that become floats in scratch memory, and vice versa. */
static void casts(const scratch *s, const given *g) {
    static const struct {
        const char *path;
        dcp_dtype dtype;
    } all[] = {{"/model/blocks", DCP_F16}, {"/model/columns", DCP_F32}};
    snprintf(dir, sizeof dir, "%s/global", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_state_create(&into.state, err));
    unsigned char *memory[2];
    for (int i = 0; i < 2; i++) {
        dcp_tensor t = *given_find(g, all[i].path);
        t.dtype = all[i].dtype;
        const dcp_box part = dcp_box_chunk(&t, s->rank, s->size);
        memory[i] = malloc(dcp_tensor_bytes(&t));
        SUCCEEDS(dcp_state_add(into.state, &t, &part, memory[i], err));
    }
    const dcp_load_options options = {.size = sizeof options, .cast = 1};
    loads_stopped(s, g, &options);
    loads_cancelled(s, g, &options);
    for (int i = 0; i < 2; i++) free(memory[i]);
    dcp_state_destroy(into.state);
    dcp_checkpoint_close(ckpt);
}

static void checks(const scratch *s, const char *name) {
    dcp_error failure = {0};
    snprintf(dir, sizeof dir, "%s/%s/step-00000005", s->root, name);
    for (int at = 0; at < 2; at++) {
        int left = s->rank == s->size - 1 ? at : INT_MAX;
        dcp_verify_options options = {.size = sizeof options, .stop = give_up, .stop_ctx = &left};
        int status = dcp_verify_with(s->comm, dir, &options, &failure);
        if (left < 0 || status) check_cancelled(status, &failure, "the check", "not checked");
        CHECK(status || at); /* with many ranks, one reads only little */
        left = 0;
        CHECK(dcp_verify(dir, &options, &failure) == DCP_ERR_CANCELLED);
        SUCCEEDS(dcp_verify_with(s->comm, dir, NULL, err));
    }
}

static void rewrites(const scratch *s, const given *g, const char *name, dcp_layout layout) {
    dcp_error failure = {0};
    dcp_step *steps;
    size_t n;
    char to[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/%s", s->root, name);
    snprintf(to, sizeof to, "%s/to", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    dcp_store *store = scratch_store(s, s->comm, "to");
    for (int at = 0; at < 6; at += 2) {
        int left = s->rank == s->size - 1 ? at : INT_MAX;
        dcp_rewrite_options options = {.size = sizeof options,
                                       .layout = layout,
                                       .shards = 3,
                                       .stop = give_up,
                                       .stop_ctx = &left};
        int status = dcp_rewrite(ckpt, store, &options, NULL, &failure);
        if (left < 0 || status) check_cancelled(status, &failure, "the rewrite", "is published");
        CHECK(status || at);
        SUCCEEDS(dcp_steps_list(to, &steps, &n, err));
        CHECK(n == !status);
        free(steps);
        MPI_Barrier(MPI_COMM_WORLD);
        if (!status) break;
    }
    dcp_rewrite_options options = {.size = sizeof options, .layout = layout, .shards = 3};
    SUCCEEDS(dcp_rewrite(ckpt, store, &options, NULL, err));
    dcp_store_close(store);
    dcp_checkpoint_close(ckpt);
    scratch_load(s, s->comm, "to", g, PAIRS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, to) == 0);
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
        loads(&s, "global", &g, ROWS, 1);
        loads(&s, "global", &g, HALO, 0);
        loads(&s, "sharded", &g, COPIES, 0);
        casts(&s, &g);
    }
    checks(&s, "global");
    checks(&s, "sharded");
    rewrites(&s, &g, "global", DCP_LAYOUT_SHARDED);
    rewrites(&s, &g, "sharded", DCP_LAYOUT_GLOBAL);
    given_free(&g);
    return scratch_end(&s);
}
