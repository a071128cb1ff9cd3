/* A save that one rank cancels, by the stop function or by dcp_save_cancel, ends on all of them
 * with DCP_ERR_CANCELLED; the directory has the older steps and nothing else; the next save works.
 * After publication it is too late. If another rank finds no room at that moment, no old step is
 * removed for the cancelled save. The communicator's function also ends what precedes a save. */
#include <dirent.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "support/cancel.h"

static dcp_store *store;
static held from;

/* Checks that the directory has, besides the entries that a store always has, only one step. */
static void check_alone(const scratch *s, const char *name, const char *step) {
    char path[PATH_MAX];
    int steps = 0;
    if (s->rank) return;
    snprintf(path, sizeof path, "%s/%s", s->root, name);
    DIR *dir = opendir(path);
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, step))
            steps++;
        else if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, ".lock") &&
                 strcmp(e->d_name, "latest") && strncmp(e->d_name, ".writer-", 8))
            check_failed(__FILE__, __LINE__, e->d_name);
    }
    CHECK(steps == 1);
    closedir(dir);
}

static void check_save_cancelled(int status, const dcp_error *failure) {
    check_cancelled(status, failure, "the save", "nothing is published");
}

static void stopped(const scratch *s, const dcp_save_options *options, int in_flight) {
    dcp_error failure = {0};
    for (int at = 0; at < 2; at++) {
        int left = s->rank == s->size - 1 ? at : INT_MAX, status;
        dcp_saving *saving = NULL;
        dcp_save_options own = *options;
        own.stop = give_up;
        own.stop_ctx = &left;
        if (in_flight) {
            SUCCEEDS(dcp_save_async(store, 2, from.state, NULL, &own, &saving, err));
            dcp_save_fence(saving);
            status = dcp_save_wait(saving, NULL, &failure);
        } else {
            status = dcp_save(store, 2, from.state, NULL, &own, NULL, &failure);
        }
        check_save_cancelled(status, &failure);
        check_alone(s, "cancel", "step-00000001");
    }
}

/* Cancelled only by the last rank. */
static void cancelled(const scratch *s, const dcp_save_options *options) {
    dcp_error failure = {0};
    dcp_saving *saving = NULL;
    dcp_save_options own = *options;
    sem_t gate;
    sem_init(&gate, 0, 0);
    own.stop = wait_at_gate;
    own.stop_ctx = &gate;
    SUCCEEDS(dcp_save_async(store, 2, from.state, NULL, &own, &saving, err));
    if (s->rank == s->size - 1) dcp_save_cancel(saving);
    MPI_Barrier(MPI_COMM_WORLD);
    if (dcp_save_is_done(saving) == 0) dcp_save_fence_within(saving, 0.001); /* it returns */
    sem_post(&gate);
    CHECK(dcp_save_fence_within(saving, 3600));
    check_save_cancelled(dcp_save_wait(saving, NULL, &failure), &failure);
    check_alone(s, "cancel", "step-00000001");
    sem_destroy(&gate);
}

static void cancel_at_end(void *ctx, dcp_phase phase, double begin, double end) {
    (void)begin, (void)end;
    if (phase == DCP_PHASE_ALL) dcp_save_cancel(*(dcp_saving **)ctx);
}

static void cancelled_too_late(const scratch *s, const dcp_save_options *options) {
    dcp_saving *saving = NULL;
    dcp_save_options own = *options;
    own.on_phase = cancel_at_end;
    own.phase_ctx = &saving;
    SUCCEEDS(dcp_save_async(store, 1, from.state, GIVEN_JSON, &own, &saving, err));
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    check_alone(s, "cancel", "step-00000001");
}

/* Between the files of shards. */
static void open_stopped(const scratch *s, const char *dir) {
    dcp_checkpoint *ckpt = NULL;
    dcp_error failure = {0};
    int left = s->rank == s->size - 1 ? 0 : INT_MAX;
    dcp_comm_set_stop(s->comm, give_up, &left);
    check_cancelled(dcp_checkpoint_open(s->comm, dir, &ckpt, &failure), &failure,
                    "opening the step", "nothing is read");
    dcp_comm_set_stop(s->comm, NULL, NULL);
    CHECK(!ckpt);
}

static void cancel_all_ways(const scratch *s, const given *g, scheme how,
                            const dcp_save_options *options) {
    dcp_store_options keep = {.size = sizeof keep, .replace = 1, .keep = 1};
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/cancel", s->root);
    SUCCEEDS(dcp_store_open(s->comm, dir, &keep, &store, err));
    held_make(&from, g, how, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, 1, from.state, GIVEN_JSON, options, NULL, err));
    stopped(s, options, 0);
    stopped(s, options, 1);
    cancelled(s, options);
    cancelled_too_late(s, options);
    SUCCEEDS(dcp_save(store, 2, from.state, GIVEN_JSON, options, NULL, err));
    check_alone(s, "cancel", "step-00000002");
    dcp_store_close(store);
    if (options->layout == DCP_LAYOUT_SHARDED) open_stopped(s, dir);
    scratch_load(s, s->comm, "cancel", g, how);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, dir) == 0);
    held_free(&from);
}

/* ---- by the communicator's function, if a call has none of its own ---- */

enum { MANY = 1000, LARGE = 48 << 20 };

static void fail_in_phase(void *ctx, dcp_phase phase, double begin, double end) {
    (void)ctx, (void)phase, (void)begin, (void)end;
    check_failed(__FILE__, __LINE__, "it had begun");
}

/* While the last rank lays out its file; in layout global rank 0 does it. */
static void stopped_in_layout(const scratch *s, int layout) {
    static char paths[MANY][32];
    dcp_save_options options = {
        .size = sizeof options, .layout = layout, .on_phase = fail_in_phase};
    int left = 2, bytes = 0;
    dcp_error failure = {0};
    dcp_state *state;
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < MANY; i++) {
        snprintf(paths[i], sizeof paths[i], "/model/%04d", i);
        const dcp_tensor tensor = {paths[i], DCP_I32, 1, {(uint64_t)s->size}};
        const dcp_box row = dcp_box_chunk(&tensor, s->rank, s->size);
        SUCCEEDS(dcp_state_add(state, &tensor, &row, &bytes, err));
    }
    if (s->rank == s->size - 1) dcp_comm_set_stop(s->comm, give_up, &left);
    check_save_cancelled(dcp_save(store, 1, state, NULL, &options, NULL, &failure), &failure);
    dcp_comm_set_stop(s->comm, NULL, NULL);
    dcp_state_destroy(state);
}

typedef struct asked {
    atomic_int n, most; /* calls, and the number of calls until it cancels */
} asked;

static int count_asked(void *ctx) {
    asked *a = ctx;
    return atomic_fetch_add(&a->n, 1) + 1 >= a->most;
}

static void wait_until_asked(void *ctx, uint64_t done, uint64_t total) {
    const asked *a = ctx;
    (void)done, (void)total;
    while (a && atomic_load(&a->n) < a->most) usleep(1000);
}

/* An asynchronous save, during which the communicator calls `a` until the call returns. */
static int save_large(const scratch *s, const dcp_save_options *options, asked *a,
                      dcp_error *failure) {
    const dcp_tensor tensor = {"/model/large", DCP_U8, 2, {(uint64_t)s->size, LARGE}};
    const dcp_box row = dcp_box_chunk(&tensor, s->rank, s->size);
    unsigned char *bytes = calloc(LARGE, 1);
    dcp_saving *saving = NULL;
    dcp_state *state;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &tensor, &row, bytes, err));
    dcp_comm_set_stop(s->comm, count_asked, a);
    SUCCEEDS(dcp_save_async(store, 1, state, NULL, options, &saving, err));
    dcp_comm_set_stop(s->comm, NULL, NULL);
    const int status = dcp_save_wait(saving, NULL, failure);
    dcp_state_destroy(state);
    free(bytes);
    return status;
}

/* While it copies, and while it waits for what it has no memory to copy. */
static void stopped_in_call(const scratch *s, int layout) {
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    const int is_last = s->rank == s->size - 1;
    dcp_error failure = {0};
    asked a = {.most = is_last ? 3 : INT_MAX};
    options.copy_bytes = DCP_COPY_DEFAULT;
    check_save_cancelled(save_large(s, &options, &a, &failure), &failure);
    a = (asked){.most = is_last ? 5 : INT_MAX};
    options.copy_bytes = 1;
    options.on_progress = wait_until_asked;
    options.progress_ctx = is_last ? &a : NULL;
    check_save_cancelled(save_large(s, &options, &a, &failure), &failure);
    a = (asked){.most = INT_MAX};
    options = (dcp_save_options){.size = sizeof options, .layout = layout};
    options.copy_bytes = DCP_COPY_DEFAULT;
    CHECK(save_large(s, &options, &a, &failure) == DCP_OK && a.n >= LARGE / (16 << 20));
}

static void stopped_by_comm(const scratch *s, int layout) {
    store = scratch_store(s, s->comm, "stop");
    if (layout || s->size == 1) stopped_in_layout(s, layout);
    stopped_in_call(s, layout);
    dcp_store_close(store);
}

static int find_no_room(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)offset;
    if (ctx) return memset(out, 0, bytes) == out ? DCP_OK : DCP_ERR_IO;
    if (err) *err = (dcp_error){.status = DCP_ERR_NO_SPACE, .rank = -1, .message = "no room"};
    return DCP_ERR_NO_SPACE;
}

/* Rank 0 finds no room, and the others cancel. */
static void cancelled_without_room(const scratch *s, int layout) {
    const dcp_tensor tensor = {"/model/rows", DCP_U8, 2, {(uint64_t)s->size, 1 << 16}};
    const dcp_box row = dcp_box_chunk(&tensor, s->rank, s->size);
    int left = s->rank ? 1 : INT_MAX;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_error failure = {0};
    dcp_state *state;
    char path[PATH_MAX];
    store = scratch_store(s, s->comm, "no_room");
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add_source(state, &tensor, &row, find_no_room, &left, -1, err));
    for (uint64_t step = 1; step <= 3; step++)
        SUCCEEDS(dcp_save(store, step, state, NULL, &options, NULL, err));
    dcp_state_destroy(state);
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(
        dcp_state_add_source(state, &tensor, &row, find_no_room, s->rank ? &left : NULL, -1, err));
    options.make_room = 1;
    options.stop = give_up;
    options.stop_ctx = &left;
    check_save_cancelled(dcp_save(store, 4, state, NULL, &options, NULL, &failure), &failure);
    snprintf(path, sizeof path, "%s/no_room/step-00000001", s->root);
    CHECK(access(path, F_OK) == 0);
    dcp_state_destroy(state);
    dcp_store_close(store);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/no_room", s->root);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (int threads = 1; threads >= 0; threads--) {
        if (!threads) s.comm->duplicate = NULL;
        for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
            dcp_save_options options = {.size = sizeof options, .layout = layout};
            cancel_all_ways(&s, &g, ROWS, &options);
            options.shards = 2 * s.size;
            cancel_all_ways(&s, &g, layout ? COPIES : COLUMNS, &options);
            if (s.size > 1) cancelled_without_room(&s, layout);
            if (threads) stopped_by_comm(&s, layout);
        }
    }
    dcp_save_options by_mpi = {.size = sizeof by_mpi, .engine = DCP_ENGINE_MPIO};
    cancel_all_ways(&s, &g, PAIRS, &by_mpi);
    given_free(&g);
    return scratch_end(&s);
}
