/* dcp_save_copy: a save contains the memory's content when it was copied, whatever the ranks agree
 * on later, and if it cannot be copied ahead the call says so. Ranks are threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "store/directory.h"
#include "support/ranks.h"

#include <fcntl.h>

enum { ROWS = 120, COLUMNS = 100, TENSORS = 8, LIMIT_S = 60 };

static char root[64] = "/tmp/dcp-ahead-XXXXXX";

/* A rank, with the rows that it holds of each tensor, and a small tensor that all hold. */
typedef struct player {
    int rank, n;
    dcp_layout layout;
    ranks *r;
    dcp_comm *comm;
    dcp_store *store;
    dcp_state *state;
    uint64_t first, rows; /* the rows that it holds */
    float *memory[TENSORS];
    float all[4];
    uint64_t step;
} player;

static _Noreturn void fail(const player *p, int line, const char *what, const char *why) {
    fprintf(stderr, "ahead.c:%d: rank %d of %d: %s: %s\n", line, p->rank, p->n, what, why);
    exit(1);
}

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) fail(p, __LINE__, #what, "not true");                                         \
    } while (0)
#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error error, *err = &error;                                                            \
        if (call) fail(p, __LINE__, #call, error.message);                                         \
    } while (0)

/* pieces: the number of boxes of a tensor's rows. */
static dcp_state *make_state(player *p, int pieces) {
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        char path[32];
        snprintf(path, sizeof path, "/model/%d", i);
        const dcp_tensor t = {path, DCP_F32, 2, {ROWS, COLUMNS}};
        for (int k = 0; k < pieces; k++) {
            const uint64_t from = p->rows * (uint64_t)k / (uint64_t)pieces;
            const uint64_t to = p->rows * ((uint64_t)k + 1) / (uint64_t)pieces;
            const dcp_box box = {{p->first + from, 0}, {to - from, COLUMNS}};
            SUCCEEDS(dcp_state_add(state, &t, &box, p->memory[i] + from * COLUMNS, err));
        }
    }
    const dcp_tensor all = {"/optimizer/step", DCP_F32, 1, {4}};
    SUCCEEDS(dcp_state_add(state, &all, NULL, p->all, err));
    return state;
}

static void set_memory(player *p, float value) {
    for (int i = 0; i < TENSORS; i++)
        for (uint64_t k = 0; k < p->rows * COLUMNS; k++) p->memory[i][k] = value;
    for (int i = 0; i < 4; i++) p->all[i] = value;
}

static void check_memory(player *p, float value) {
    for (int i = 0; i < TENSORS; i++)
        for (uint64_t k = 0; k < p->rows * COLUMNS; k++) CHECK(p->memory[i][k] == value);
    for (int i = 0; i < 4; i++) CHECK(p->all[i] == value);
}

static int copy(player *p, const dcp_state *state, uint64_t limit) {
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    int is_copied = -1;
    options.layout = p->layout;
    options.copy_bytes = limit;
    SUCCEEDS(dcp_save_copy(p->store, state, &options, &is_copied, err));
    return is_copied;
}

/* Saves the next step in the background, and changes the memory as soon as that is allowed. */
static void save(player *p, const dcp_state *state, int is_copied) {
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    dcp_saving *saving = NULL;
    options.layout = p->layout;
    options.copy_bytes = DCP_COPY_DEFAULT;
    options.is_copied = is_copied;
    SUCCEEDS(dcp_save_async(p->store, ++p->step, state, "{}", &options, &saving, err));
    set_memory(p, -2);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
}

static void expect(player *p, float value) {
    char path[128];
    dcp_checkpoint *ckpt = NULL;
    set_memory(p, -3);
    snprintf(path, sizeof path, "%s/step-%08d", root, (int)p->step);
    SUCCEEDS(dcp_checkpoint_open(p->comm, path, &ckpt, err));
    SUCCEEDS(dcp_load(ckpt, p->state, NULL, err));
    dcp_checkpoint_close(ckpt);
    check_memory(p, value);
}

static void saved_as_copied(player *p, float value) {
    set_memory(p, value);
    CHECK(copy(p, p->state, DCP_COPY_DEFAULT) == 1);
    set_memory(p, -1);
    save(p, p->state, 1);
    expect(p, value);
}

/* One rank's boxes differ from those before, so all plan again. */
static void planned_anew(player *p, float value) {
    dcp_state *other = make_state(p, 2);
    dcp_state *used = p->rank == p->n - 1 ? other : p->state;
    set_memory(p, value);
    const int is_copied = copy(p, used, DCP_COPY_DEFAULT);
    CHECK(is_copied == (used == p->state));
    if (is_copied) set_memory(p, -1);
    save(p, used, is_copied);
    expect(p, value);
    dcp_state_destroy(other);
    set_memory(p, value + 1);
    save(p, p->state, 0);
    expect(p, value + 1);
}

static void refuse_copied(player *p, const dcp_state *state) {
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    dcp_saving *saving = NULL;
    dcp_error err;
    options.copy_bytes = DCP_COPY_DEFAULT;
    options.is_copied = 1;
    CHECK(dcp_save_async(p->store, p->step + 1, state, "{}", &options, &saving, &err) ==
          DCP_ERR_STATE);
    CHECK(strstr(err.message, "is_copied"));
}

/* The copy is for the next save, or for none. */
static void of_another_save(player *p) {
    dcp_state *same = make_state(p, 1);
    set_memory(p, 21);
    CHECK(copy(p, p->state, DCP_COPY_DEFAULT) == 1);
    set_memory(p, 22);
    save(p, same, 0);
    expect(p, 22);
    refuse_copied(p, p->state);
    CHECK(copy(p, p->state, DCP_COPY_DEFAULT) == 1);
    refuse_copied(p, same);
    set_memory(p, 23);
    CHECK(copy(p, same, DCP_COPY_DEFAULT) == 1);
    set_memory(p, 24);
    SUCCEEDS(dcp_save(p->store, ++p->step, same, "{}", NULL, NULL, err));
    expect(p, 24);
    set_memory(p, 25);
    save(p, same, 0);
    expect(p, 25);
    dcp_state_destroy(same);
}

/* A copy of replicas that precedes the plan would have more than this rank's share. */
static void of_replicas(player *p) {
    float *whole = malloc(ROWS * COLUMNS * sizeof *whole);
    const dcp_tensor t = {"/model/replicated", DCP_F32, 2, {ROWS, COLUMNS}};
    dcp_state *state = NULL;
    CHECK(whole);
    for (int i = 0; i < ROWS * COLUMNS; i++) whole[i] = 1;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, NULL, whole, err));
    save(p, state, 0);
    CHECK(copy(p, state, DCP_COPY_DEFAULT) == (p->n == 1));
    save(p, state, 0);
    dcp_state_destroy(state);
    free(whole);
}

/* One more tensor, and one more box. */
static void of_a_state_that_changes(player *p) {
    static float more[RANKS_MOST];
    dcp_state *grows = make_state(p, 1);
    const dcp_tensor t = {"/model/more", DCP_F32, 1, {(uint64_t)p->n}};
    const dcp_box box = dcp_box_chunk(&t, p->rank, p->n);
    save(p, grows, 0);
    CHECK(copy(p, grows, DCP_COPY_DEFAULT) == 1);
    SUCCEEDS(dcp_state_add(grows, &t, &box, &more[p->rank], err));
    refuse_copied(p, grows);
    set_memory(p, 31);
    CHECK(copy(p, grows, DCP_COPY_DEFAULT) == 0);
    save(p, grows, 0);
    expect(p, 31);
    dcp_state_destroy(grows);
}

static void play_with(player *p, dcp_layout layout) {
    p->layout = layout;
    set_memory(p, 1);
    save(p, p->state, 0);
    expect(p, 1);
    for (int k = 0; k < 3; k++) saved_as_copied(p, (float)(2 + k));
    planned_anew(p, 11);
    saved_as_copied(p, 13);
    of_another_save(p);
    of_a_state_that_changes(p);
    of_replicas(p);
    save(p, p->state, 0);
    CHECK(copy(p, p->state, 1000) == 0);
    CHECK(copy(p, p->state, 0) == 0);
    saved_as_copied(p, 41);
}

static void play(int rank, dcp_comm *comm, void *r) {
    player own = {.rank = rank, .r = r, .comm = comm, .n = dcp_comm_size(comm)}, *p = &own;
    p->first = ROWS * (uint64_t)rank / (uint64_t)p->n;
    p->rows = ROWS * ((uint64_t)rank + 1) / (uint64_t)p->n - p->first;
    for (int i = 0; i < TENSORS; i++)
        CHECK((p->memory[i] = malloc(p->rows * COLUMNS * sizeof(float))));
    SUCCEEDS(dcp_store_open(comm, root, NULL, &p->store, err));
    p->state = make_state(p, 1);
    CHECK(copy(p, p->state, DCP_COPY_DEFAULT) == 0); /* there is no plan yet */
    play_with(p, DCP_LAYOUT_GLOBAL);
    play_with(p, DCP_LAYOUT_SHARDED);
    dcp_store_close(p->store);
    dcp_state_destroy(p->state);
    for (int i = 0; i < TENSORS; i++) free(p->memory[i]);
}

int main(void) {
    for (int n = 1; n <= RANKS_MOST; n++) {
        strcpy(root, "/tmp/dcp-ahead-XXXXXX");
        if (!mkdtemp(root)) return 1;
        ranks *r = ranks_make(n, 0);
        alarm(LIMIT_S);
        ranks_run_threads(r, play, r);
        alarm(0);
        ranks_free(r);
        if (store_directory_remove(AT_FDCWD, root)) return 1;
    }
    return 0;
}
