/* A run that goes back while stores are being filled. A gate in the callback of the filling threads
 * holds them where the test requires it. Ranks are threads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "store/directory.h"
#include "support/ranks.h"
#include "tiers/drain.h"

enum { ELEMENTS = 50000, LIMIT_S = 60 };

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) fail_check(__LINE__, #what, "");                                              \
    } while (0)
#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error *err = &p->err;                                                                  \
        if (call) fail_check(__LINE__, #call, err->message);                                       \
    } while (0)

static void fail_check(int line, const char *what, const char *why) {
    fprintf(stderr, "back.c:%d: not true: %s: %s\n", line, what, why);
    exit(1);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int closed, met; /* ranks whose filling came to the closed gate */
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static void set_gate(int closed) {
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    if (closed) gate.met = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void await_gate(int met) {
    pthread_mutex_lock(&gate.lock);
    while (gate.met < met) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void pass_gate(void *ctx, uint64_t done, uint64_t total) {
    int *has_met = ctx;
    (void)done, (void)total;
    pthread_mutex_lock(&gate.lock);
    if (gate.closed && !*has_met) gate.met++, *has_met = 1;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed) pthread_cond_wait(&gate.changed, &gate.lock);
    *has_met = 0;
    pthread_mutex_unlock(&gate.lock);
}

/* A rank with a list of a fast store and a slow one. */
typedef struct player {
    int rank, n, has_met;
    ranks *r;
    dcp_comm *comm;
    dcp_tiers *tiers;
    dcp_tier list[2];
    char paths[2][256];
    dcp_state *state;
    float memory[ELEMENTS];
    dcp_error err;
    char log[4096];
    int has_returned; /* a node that was away, according to the log */
    int has_stranger; /* another run's store, according to the log */
} player;

static char root[64] = "/tmp/dcp-back-XXXXXX";

static void set_memory(player *p, float value) {
    for (int i = 0; i < ELEMENTS; i++) p->memory[i] = value;
}

/* The value that all of the memory has. */
static float memory_of(const player *p) {
    for (int i = 0; i < ELEMENTS; i++) CHECK(p->memory[i] == p->memory[0]);
    return p->memory[0];
}

static void meet(player *p) { ranks_meet(p->r); }

static void log_line(void *ctx, dcp_log_level level, const char *line) {
    player *p = ctx;
    (void)level;
    snprintf(p->log, sizeof p->log, "%s", line);
    p->has_returned |= strstr(line, "while this node was away") != NULL;
    p->has_stranger |= strstr(line, "steps of another run") != NULL;
    if (strstr(line, " step 3 in ") && strstr(line, "/slow")) set_gate(0);
}

static void await_filled(player *p) {
    while (!tiers_drain_is_done(&p->tiers->list[1])) usleep(1000);
}

/* A thread: opens the gate once the next save has told the filling to stop. */
static void *open_when_stopped(void *drain) {
    while (!atomic_load(&((tiers_drain *)drain)->task.cancelled)) usleep(1000);
    set_gate(0);
    return NULL;
}

static void open_list(player *p) {
    dcp_tiers_options options = DCP_TIERS_OPTIONS_INIT;
    options.on_fill_progress = pass_gate;
    options.fill_progress_ctx = &p->has_met;
    options.log = log_line;
    options.log_ctx = p;
    SUCCEEDS(dcp_tiers_open(p->comm, p->list, 2, &options, &p->tiers, err));
}

static void begin(player *p, int rank, dcp_comm *comm, ranks *r, const dcp_tier *list) {
    *p = (player){.rank = rank, .r = r, .comm = comm, .n = dcp_comm_size(comm)};
    const dcp_tensor t = {"/model/w", DCP_F32, 1, {(uint64_t)ELEMENTS * (uint64_t)p->n}};
    const dcp_box box = dcp_box_chunk(&t, rank, p->n);
    SUCCEEDS(dcp_state_create(&p->state, err));
    SUCCEEDS(dcp_state_add(p->state, &t, &box, p->memory, err));
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "slow" : "fast";
        snprintf(p->paths[i], sizeof p->paths[i], "%s/%s", root, name);
        if (list[i].is_private)
            snprintf(p->paths[i], sizeof p->paths[i], "%s/node-%d/%s", root, rank, name);
        p->list[i] = list[i];
        p->list[i].path = p->paths[i];
    }
    open_list(p);
}

static void end(player *p) {
    dcp_tiers_close(p->tiers);
    dcp_state_destroy(p->state);
}

static void save_beside(player *p, uint64_t step, float value) {
    dcp_tiers_fence(p->tiers);
    set_memory(p, value);
    SUCCEEDS(dcp_tiers_save_async(p->tiers, step, p->state, "{}", NULL, err));
    SUCCEEDS(dcp_tiers_wait(p->tiers, NULL, err));
}

static void save(player *p, uint64_t step, float value, int also_last) {
    set_memory(p, value);
    SUCCEEDS(dcp_tiers_save(p->tiers, step, p->state, "{}", NULL, also_last, NULL, err));
}

static int load(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    return dcp_load(ckpt, ((player *)ctx)->state, NULL, err);
}

static void load_by_hand(player *p, uint64_t step, size_t from) {
    dcp_checkpoint *ckpt = NULL;
    const dcp_tiers_step which = {step, from};
    SUCCEEDS(dcp_tiers_open_step(p->comm, p->list, &which, &ckpt, err));
    SUCCEEDS(dcp_load(ckpt, p->state, NULL, err));
    dcp_checkpoint_close(ckpt);
}

/* Checks the newest step of all, as a restart loads it. */
static void expect(player *p, uint64_t step, float value) {
    uint64_t loaded = 0;
    set_memory(p, -1);
    SUCCEEDS(dcp_tiers_load(p->tiers, load, p, &loaded, err));
    CHECK(loaded == step && memory_of(p) == value);
}

/* Checks what a store holds on this rank's node, written as "c3 c4 a5". */
static void check_steps(player *p, int i, const char *expected) {
    char found[256] = "";
    dcp_step *steps;
    size_t n;
    SUCCEEDS(dcp_steps_list(p->paths[i], &steps, &n, err));
    for (size_t k = 0; k < n; k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%c%llu", k ? " " : "",
                 "cpa"[steps[k].kind], (unsigned long long)steps[k].step);
    free(steps);
    if (strcmp(found, expected)) fprintf(stderr, "%s: %s, not %s\n", p->paths[i], found, expected);
    CHECK(!strcmp(found, expected));
}

static void damage(const char *path) {
    const unsigned char bytes[4] = {1, 2, 3, 4};
    const int fd = open(path, O_WRONLY);
    CHECK(pwrite(fd, bytes, sizeof bytes, 100000) == sizeof bytes);
    close(fd);
}

static void damage_step(const player *p, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, file);
    if (p->rank == 0) damage(path);
    ranks_meet(p->r);
}

static dcp_tier tier_of(uint64_t every, uint32_t keep, int is_private, const char *redundancy) {
    return (dcp_tier){.size = sizeof(dcp_tier),
                      .every = every,
                      .keep = keep,
                      .is_private = is_private,
                      .redundancy = redundancy};
}

/* continue_from returns although the slow store's thread cannot continue; what it was being filled
 * with never becomes a step. */
static void while_it_is_filled(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 5, 0, NULL), tier_of(3, 5, 0, NULL)};
    begin(p, rank, comm, r, list);
    pthread_t opener = 0;
    for (uint64_t k = 1; k <= 8; k++) save_beside(p, k, (float)k);
    await_filled(p); /* with step 6 */
    meet(p);
    if (rank == 0) set_gate(1);
    meet(p);
    save_beside(p, 9, 9);
    await_gate(p->n);
    load_by_hand(p, 5, 0);
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 5, err));
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 5, err));
    CHECK(dcp_tiers_has(p->tiers, 0, 5) && !dcp_tiers_has(p->tiers, 0, 9));
    CHECK(dcp_tiers_is_due(p->tiers, 9));
    if (rank == 0)
        CHECK(!pthread_create(&opener, NULL, open_when_stopped, p->tiers->list[1].drain));
    for (uint64_t k = 6; k <= 8; k++) save_beside(p, k, 1000 + (float)k);
    if (rank == 0) pthread_join(opener, NULL);
    dcp_tiers_close(p->tiers);
    meet(p);
    check_steps(p, 0, "c5 c6 a6 c7 a7 c8 a8 a9");
    check_steps(p, 1, "c3 c6 a6");
    open_list(p);
    expect(p, 8, 1008);
    end(p);
}

/* Steps that were set aside do not count as held when they are saved again; nor do steps that
 * nobody said are intact. */
static void to_a_step_that_all_have(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(4, 8, 0, NULL), tier_of(3, 5, 0, NULL)};
    begin(p, rank, comm, r, list);
    for (uint64_t k = 1; k <= 9; k++) save(p, k, (float)k, 0);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 6, err));
    CHECK(!dcp_tiers_has(p->tiers, 1, 9) && dcp_tiers_is_due(p->tiers, 9));
    save(p, 6, 6, 1); /* which the slow store has: it is written again */
    for (uint64_t k = 7; k <= 8; k++) save(p, k, 1000 + (float)k, 0);
    save(p, 9, 1009, 1);
    CHECK(dcp_tiers_has(p->tiers, 1, 9));
    meet(p);
    check_steps(p, 1, "c3 c6 c9 a9");
    load_by_hand(p, 9, 1);
    CHECK(memory_of(p) == 1009);
    end(p);
}

/* A copy that a load has found damaged does not count; a save writes it again. */
static void a_damaged_copy(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 0, NULL)};
    begin(p, rank, comm, r, list);
    for (uint64_t k = 1; k <= 3; k++) save(p, k, (float)k, 0);
    meet(p);
    damage_step(p, "fast/step-00000003/state.h5");
    CHECK(dcp_tiers_has(p->tiers, 0, 3));
    expect(p, 3, 3);
    CHECK(!dcp_tiers_has(p->tiers, 0, 3) && dcp_tiers_has(p->tiers, 1, 3));
    save(p, 3, 3, 0);
    CHECK(dcp_tiers_has(p->tiers, 0, 3));
    load_by_hand(p, 3, 0);
    meet(p);
    damage_step(p, "fast/step-00000003/state.h5");
    damage_step(p, "slow/step-00000003/state.h5");
    expect(p, 2, 2);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save(p, 3, 1003, 1);
    expect(p, 3, 1003);
    meet(p);
    check_steps(p, 1, "c1 c2 c3 a3");
    end(p);
}

/* One rank says that the run goes back before its node's files of the filling are published, the
 * other one after that. */
static void at_different_times(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(2, 8, 1, NULL)};
    set_gate(1);
    begin(p, rank, comm, r, list);
    save_beside(p, 1, 1);
    save_beside(p, 2, 2);
    if (rank == 0) {
        SUCCEEDS(dcp_tiers_continue_from(p->tiers, 1, err));
        set_gate(0);
        await_filled(p);
    } else {
        await_filled(p);
        SUCCEEDS(dcp_tiers_continue_from(p->tiers, 1, err));
    }
    save_beside(p, 2, 1002);
    dcp_tiers_close(p->tiers);
    meet(p);
    check_steps(p, 1, "c2 a2");
    open_list(p);
    expect(p, 2, 1002);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, rank ? 2 : 1, err));
    CHECK(dcp_tiers_save_async(p->tiers, 3, p->state, "{}", NULL, &p->err) == DCP_ERR_MISMATCH);
    CHECK(strstr(p->err.message, "goes on from"));
    end(p);
}

/* One rank says that the run goes back before it has waited for the save in flight, the other one
 * after that. */
static void before_and_after_the_wait(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 0, NULL)};
    begin(p, rank, comm, r, list);
    save_beside(p, 1, 1);
    await_filled(p);
    dcp_tiers_fence(p->tiers);
    SUCCEEDS(dcp_tiers_save_async(p->tiers, 2, p->state, "{}", NULL, err));
    if (rank == 0) SUCCEEDS(dcp_tiers_continue_from(p->tiers, 1, err));
    SUCCEEDS(dcp_tiers_wait(p->tiers, NULL, err));
    if (rank == 1) SUCCEEDS(dcp_tiers_continue_from(p->tiers, 1, err));
    save_beside(p, 2, 1002);
    dcp_tiers_close(p->tiers);
    meet(p);
    check_steps(p, 0, "c1 c2 a2");
    check_steps(p, 1, "c1 c2");
    open_list(p);
    expect(p, 2, 1002);
    end(p);
}

/* The same with a mark: the next save of the step that was in flight ends on both ranks alike. */
static void a_mark_before_and_after_the_wait(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(0, 0, 0, NULL)};
    begin(p, rank, comm, r, list);
    save_beside(p, 1, 1);
    SUCCEEDS(dcp_tiers_save_async(p->tiers, 2, p->state, "{}", NULL, err));
    if (rank == 0) SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 1, err));
    SUCCEEDS(dcp_tiers_wait(p->tiers, NULL, err));
    if (rank == 1) SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 1, err));
    dcp_tiers_save(p->tiers, 2, p->state, "{}", NULL, 0, NULL, &p->err);
    meet(p);
    CHECK(all[0].err.status == all[1].err.status);
    CHECK(dcp_tiers_has(all[0].tiers, 0, 2) == dcp_tiers_has(all[1].tiers, 0, 2));
    meet(p);
    end(p);
}

/* Files of the process can't become larger than `bytes`. */
static void limit_files(const player *p, rlim_t bytes) {
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    meet((player *)p);
    if (p->rank == 0 && (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit)))
        fail_check(__LINE__, "setrlimit", "");
    meet((player *)p);
}

/* The newest step can be rebuilt, but there is no room for its files: no older step is loaded, even
 * by a list that was opened without redundancy. */
static void without_room_to_rebuild(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 1, "rs(1)"), tier_of(2, 8, 0, NULL)};
    uint64_t step = 0;
    char lost[128];
    begin(p, rank, comm, r, list);
    for (uint64_t k = 2; k <= 3; k++) save(p, k, (float)k, 0);
    dcp_tiers_close(p->tiers);
    meet(p);
    snprintf(lost, sizeof lost, "%s/node-1/fast/step-00000003", root);
    CHECK(rank || store_directory_remove(AT_FDCWD, lost) == 0);
    meet(p);
    p->list[0].redundancy = "none";
    open_list(p);
    limit_files(p, 4096);
    CHECK(dcp_tiers_load(p->tiers, load, p, &step, &p->err) == DCP_ERR_IO);
    CHECK(strstr(p->err.message, "step 3"));
    limit_files(p, RLIM_INFINITY);
    expect(p, 3, 3);
    end(p);
}

/* Both stores have steps 1 to 3, the slow one with redundancy. */
static void begin_with_steps(player *p, int rank, dcp_comm *comm, ranks *r) {
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 1, "rs(1)")};
    begin(p, rank, comm, r, list);
    for (uint64_t k = 1; k <= 3; k++) save(p, k, (float)k, 0);
    meet(p);
}

/* The slow store is being filled with step 4 when the copies in the fast store are damaged, and a
 * file of its step 3. */
static void begin_with_a_filling(player *p, int rank, dcp_comm *comm, ranks *r) {
    begin_with_steps(p, rank, comm, r);
    if (rank == 0) set_gate(1);
    meet(p);
    save_beside(p, 4, 4);
    await_gate(p->n);
    damage_step(p, "fast/step-00000003/state.h5");
    damage_step(p, "fast/step-00000004/state.h5");
    damage_step(p, "node-0/slow/step-00000003/shard-00000-of-00002.h5");
}

/* The step that has to be rebuilt is in the store that is being filled. */
static void with_a_rebuild(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    begin_with_a_filling(p, rank, comm, r);
    set_memory(p, -1);
    SUCCEEDS(dcp_tiers_load_step(p->tiers, 3, load, p, err));
    CHECK(memory_of(p) == 3 && dcp_tiers_rebuilt(p->tiers) == 1);
    end(p);
}

/* The filling, for which the load of an older step waits, makes an intact copy of the newest one.
 */
static void with_a_newer_copy(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    begin_with_a_filling(p, rank, comm, r);
    expect(p, 4, 4);
    end(p);
}

/* A step that is marked while its store is being filled is then not removed by `keep`. A mark alone
 * sets nothing aside. */
static void a_mark(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(2, 1, 1, NULL)};
    begin(p, rank, comm, r, list);
    save(p, 1, 1, 0);
    save(p, 2, 2, 0);
    meet(p);
    if (rank == 0) set_gate(1);
    meet(p);
    save_beside(p, 4, 4);
    await_gate(p->n);
    load_by_hand(p, 2, 1);
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 1, 2, err));
    CHECK(dcp_tiers_has(p->tiers, 1, 2));
    meet(p);
    set_gate(0);
    await_filled(p);
    meet(p);
    check_steps(p, 1, "c2 c4");
    save(p, 5, 5, 0);
    meet(p);
    check_steps(p, 0, "c1 c2 c4 c5");
    save(p, 6, 6, 0);
    meet(p);
    check_steps(p, 1, "c6");
    end(p);
}

/* The mark of a step that the store does not have is discarded, and the step can be saved. */
static void a_mark_of_nothing(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(0, 1, 1, NULL)};
    begin(p, rank, comm, r, list);
    save(p, 1, 1, 1);
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 2, err));
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 1, 1, err));
    save_beside(p, 2, 2);
    CHECK(rank || strstr(p->log, "does not exist"));
    meet(p);
    check_steps(p, 0, "c1 c2");
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 3, err));
    save(p, 3, 3, 0);
    meet(p);
    check_steps(p, 0, "c1 c2 c3");
    save(p, 4, 4, 1);
    meet(p);
    check_steps(p, 1, "c4");
    end(p);
}

/* Marks and requests are the same on all ranks. */
static void on_ranks_that_differ(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(0, 8, 0, NULL)};
    begin(p, rank, comm, r, list);
    save(p, 1, 1, 1);
    if (rank == 1) SUCCEEDS(dcp_tiers_ask(p->tiers, 1, err));
    CHECK(dcp_tiers_save(p->tiers, 2, p->state, "{}", NULL, 0, NULL, &p->err) == DCP_ERR_MISMATCH);
    CHECK(strstr(p->err.message, "dcp_tiers_ask"));
    if (rank == 0) SUCCEEDS(dcp_tiers_ask(p->tiers, 1, err));
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, rank ? 1 : 2, err));
    CHECK(dcp_tiers_save_async(p->tiers, 2, p->state, "{}", NULL, &p->err) == DCP_ERR_MISMATCH);
    CHECK(strstr(p->err.message, "dcp_tiers_mark_intact"));
    SUCCEEDS(dcp_tiers_mark_intact(p->tiers, 0, 1, err));
    save(p, 2, 2, 0);
    meet(p);
    check_steps(p, 1, "c1 c2");
    end(p);
}

/* A request that is made while the store is being filled is done by the next save. */
static void an_ask(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(2, 8, 0, NULL)};
    begin(p, rank, comm, r, list);
    meet(p);
    if (rank == 0) set_gate(1);
    meet(p);
    save_beside(p, 2, 2);
    await_gate(p->n);
    SUCCEEDS(dcp_tiers_ask(p->tiers, 1, err));
    meet(p);
    set_gate(0);
    save(p, 3, 3, 0);
    CHECK(dcp_tiers_has(p->tiers, 1, 3));
    end(p);
}

/* The last store's directory has disappeared: it has nothing any more, whatever was saved there. */
static void a_lost_store(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 0, NULL)};
    begin(p, rank, comm, r, list);
    save(p, 1, 1, 1);
    meet(p);
    if (rank == 0) CHECK(store_directory_remove(AT_FDCWD, p->paths[1]) == 0);
    meet(p);
    CHECK(dcp_tiers_save(p->tiers, 1, p->state, "{}", NULL, 1, NULL, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, "; step 1 is in ") && strstr(p->err.message, "/fast"));
    CHECK(!dcp_tiers_has(p->tiers, 1, 1));
    end(p);
}

/* The next save sets later steps aside even if it saves nothing, because the only store is not
 * due. */
static void of_one_store_that_is_not_due(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(0, 0, 0, NULL), tier_of(0, 0, 0, NULL)};
    dcp_tier one = tier_of(4, 0, 0, NULL);
    char dir[128], aside[160];
    dcp_step *steps = NULL;
    size_t n = 0;
    begin(p, rank, comm, r, list);
    dcp_tiers_close(p->tiers);
    snprintf(dir, sizeof dir, "%s/one", root);
    snprintf(aside, sizeof aside, "%s/.abandoned-step-00000008", dir);
    one.path = dir;
    SUCCEEDS(dcp_tiers_open(comm, &one, 1, NULL, &p->tiers, err));
    save(p, 4, 4, 1);
    save(p, 8, 8, 1);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 4, err));
    CHECK(!dcp_tiers_is_due(p->tiers, 5));
    save_beside(p, 5, 5);
    meet(p);
    SUCCEEDS(dcp_steps_list(dir, &steps, &n, err));
    CHECK(n == 2 && steps[0].step == 4 && steps[1].kind == DCP_STEP_ABANDONED);
    CHECK(access(aside, F_OK) == 0);
    free(steps);
    end(p);
}

/* A relative path means the folder that it meant when the list was opened. */
static void after_a_change_of_the_working_directory(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(0, 0, 0, NULL), tier_of(0, 0, 0, NULL)};
    dcp_tier one = tier_of(1, 0, 0, NULL);
    uint64_t step = 0;
    begin(p, rank, comm, r, list);
    dcp_tiers_close(p->tiers);
    one.path = "one";
    CHECK(chdir(root) == 0);
    SUCCEEDS(dcp_tiers_open(comm, &one, 1, NULL, &p->tiers, err));
    save(p, 3, 3, 0);
    CHECK(chdir("/") == 0);
    SUCCEEDS(dcp_tiers_load(p->tiers, load, p, &step, err));
    CHECK(step == 3);
    end(p);
}

/* Makes the link and the variable name the directory, on all ranks. */
static void lead_to(const player *p, const char *dir) {
    char link[128], place[128];
    snprintf(link, sizeof link, "%s/link", root);
    snprintf(place, sizeof place, "%s/%s", root, dir);
    meet((player *)p);
    if (p->rank == 0) {
        unlink(link);
        if ((mkdir(place, 0700) && errno != EEXIST) || symlink(place, link) ||
            setenv("DCP_TEST_PLACE", place, 1))
            fail_check(__LINE__, place, strerror(errno));
    }
    meet((player *)p);
}

/* A load uses the directories that are open, whatever the list's paths have come to name. */
static void after_changes_of_links_and_variables(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 0, 0, NULL), tier_of(1, 0, 1, NULL)};
    begin(p, rank, comm, r, list);
    dcp_tiers_close(p->tiers);
    snprintf(p->paths[0], sizeof p->paths[0], "%s/link", root);
    p->list[1].path = "{env:DCP_TEST_PLACE}/node-{rank}";
    lead_to(p, "there");
    open_list(p);
    save(p, 9, 9, 0);
    dcp_tiers_close(p->tiers);
    lead_to(p, "here");
    open_list(p);
    save(p, 3, 3, 0);
    lead_to(p, "there");
    expect(p, 3, 3);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 3, err));
    save(p, 4, 4, 0);
    expect(p, 4, 4);
    end(p);
}

static void exchange(const player *p, const char *one, const char *other) {
    char paths[2][128], between[128];
    snprintf(paths[0], sizeof paths[0], "%s/%s", root, one);
    snprintf(paths[1], sizeof paths[1], "%s/%s", root, other);
    snprintf(between, sizeof between, "%s/between", root);
    meet((player *)p);
    if (p->rank == 0 &&
        (rename(paths[0], between) || rename(paths[1], paths[0]) || rename(between, paths[1])))
        fail_check(__LINE__, one, other);
    meet((player *)p);
}

static void reopen(player *p, const char *away) {
    dcp_tiers_close(p->tiers);
    exchange(p, "fast", away);
    open_list(p);
}

/* A store whose directory was away twice while the run went back has what was abandoned, and later
 * steps than the run: they are set aside. */
static void with_a_store_that_comes_back(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 0, NULL)};
    char away[128];
    begin(p, rank, comm, r, list);
    snprintf(away, sizeof away, "%s/away", root);
    CHECK(rank || !mkdir(away, 0700));
    for (uint64_t k = 1; k <= 5; k++) save(p, k, (float)k, 0);
    reopen(p, "away");
    expect(p, 5, 5);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save(p, 3, 1003, 0);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 3, err));
    save(p, 4, 1004, 0);
    reopen(p, "away");
    check_steps(p, 0, "c1 c2 a3 a4 a5");
    check_steps(p, 1, "c1 c2 c3 a3 c4 a4 a5");
    expect(p, 4, 1004);
    CHECK(!dcp_tiers_has(p->tiers, 0, 4));
    save(p, 5, 1005, 0);
    dcp_tiers_close(p->tiers);
    meet(p);
    open_list(p); /* what was set aside by hand or by the run is left alone, and so is the run's */
    check_steps(p, 0, "c1 c2 a3 a4 c5 a5");
    end(p);
}

static void rename_in(player *p, int i, const char *from, const char *to) {
    if (p->rank == 0) {
        const int dir = open(p->paths[i], O_RDONLY | O_DIRECTORY);
        CHECK(renameat(dir, from, dir, to) == 0);
        close(dir);
    }
    meet(p);
}

/* Steps that were set aside are renamed back by hand in one store of the list, which has saved
 * since: they count again. */
static void with_steps_that_are_renamed_back(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 0, 0, NULL), tier_of(1, 0, 0, NULL)};
    begin(p, rank, comm, r, list);
    for (uint64_t k = 1; k <= 5; k++) save(p, k, (float)k, 0);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save(p, 3, 1003, 0);
    for (int i = 1; i >= 0; i--) {
        dcp_tiers_close(p->tiers);
        meet(p);
        rename_in(p, i, ".abandoned-step-00000004", "step-00000004");
        rename_in(p, i, ".abandoned-step-00000005", "step-00000005");
        open_list(p);
        check_steps(p, i, "c1 c2 c3 a3 c4 c5");
        expect(p, 5, 5);
    }
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 5, err));
    save(p, 6, 2006, 0);
    dcp_tiers_close(p->tiers);
    meet(p);
    open_list(p);
    check_steps(p, 0, "c1 c2 c3 a3 c4 c5 c6");
    check_steps(p, 1, "c1 c2 c3 a3 c4 c5 c6");
    expect(p, 6, 2006);
    end(p);
}

/* If that store has not saved since, it could as well have been away: the log says how to continue
 * from the step all the same. */
static void with_a_step_that_is_renamed_too_early(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 0, 0, NULL), tier_of(4, 0, 0, NULL)};
    char aside[300];
    dcp_checkpoint *ckpt = NULL;
    begin(p, rank, comm, r, list);
    save(p, 4, 4, 1);
    save(p, 8, 8, 1);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 4, err));
    save(p, 5, 1005, 0);
    dcp_tiers_close(p->tiers);
    meet(p);
    rename_in(p, 1, ".abandoned-step-00000008", "step-00000008");
    open_list(p);
    check_steps(p, 1, "c4 a8");
    CHECK(rank || strstr(p->log, "/slow: to continue from a step that was set aside, name its "));
    expect(p, 5, 1005);
    snprintf(aside, sizeof aside, "%s/.abandoned-step-00000008", p->paths[1]);
    SUCCEEDS(dcp_checkpoint_open(comm, aside, &ckpt, err));
    SUCCEEDS(dcp_load(ckpt, p->state, NULL, err));
    CHECK(memory_of(p) == 8);
    dcp_checkpoint_close(ckpt);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 8, err));
    save(p, 9, 2009, 0);
    expect(p, 9, 2009);
    end(p);
}

/* Two runs have begun separately, and their stores become one list: what the list saves later
 * belongs to one run, in both. Earlier steps remain as they are, also in a store that is away. */
static void with_a_store_of_another_run(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(1, 8, 0, NULL)};
    char away[128];
    begin(p, rank, comm, r, list);
    snprintf(away, sizeof away, "%s/away", root);
    CHECK(rank || !mkdir(away, 0700));
    dcp_tiers_close(p->tiers);
    SUCCEEDS(dcp_tiers_open(comm, p->list, 1, NULL, &p->tiers, err));
    for (uint64_t k = 1; k <= 5; k++) save(p, k, (float)k, 0);
    reopen(p, "away");
    for (uint64_t k = 1; k <= 3; k++) save(p, k, 1000 + (float)k, 0);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save(p, 3, 2003, 0);
    reopen(p, "away"); /* what is in `fast` now was another run's, and was away */
    CHECK(rank || p->has_stranger);
    check_steps(p, 0, "c1 c2 c3 c4 c5");
    check_steps(p, 1, "c1 c2 c3 a3");
    expect(p, 5, 5);
    save(p, 6, 3006, 0);
    save(p, 7, 3007, 0);
    p->has_stranger = 0;
    reopen(p, "away"); /* the run goes back only from the list's steps */
    load_by_hand(p, 3, 1);
    CHECK(memory_of(p) == 2003);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 3, err));
    save(p, 4, 4004, 0);
    reopen(p, "away");
    CHECK(!p->has_stranger);
    check_steps(p, 0, "c1 c2 c3 c4 c5 a6 a7");
    check_steps(p, 1, "c1 c2 c3 a3 c4 a6 a7");
    end(p);
}

/* Each store is away in turn, and the run continues with the other one, back from steps that this
 * one lacks. Then both exist: what the run abandoned is set aside, and what its newest step comes
 * from is kept. */
static void with_stores_that_are_away_in_turn(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 0, 0, NULL), tier_of(1, 0, 0, NULL)};
    begin(p, rank, comm, r, list);
    for (uint64_t k = 1; k <= 3; k++) save(p, k, (float)k, 0);
    dcp_tiers_close(p->tiers);
    SUCCEEDS(dcp_tiers_open(comm, &p->list[0], 1, NULL, &p->tiers, err));
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 1, err));
    for (uint64_t k = 2; k <= 5; k++) save(p, k, 2000 + (float)k, 0);
    dcp_tiers_close(p->tiers);
    SUCCEEDS(dcp_tiers_open(comm, &p->list[1], 1, NULL, &p->tiers, err));
    expect(p, 3, 3);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 3, err));
    save(p, 4, 3004, 0);
    dcp_tiers_close(p->tiers);
    meet(p);
    open_list(p);
    check_steps(p, 0, "c1 a2 a2 a3 a3 a4 a5");
    check_steps(p, 1, "c1 c2 c3 c4");
    expect(p, 4, 3004);
    end(p);
}

/* The run goes back to a step that no store has, and ends before a save is done: what was set aside
 * is named wherever a step is searched for. */
static void to_a_step_that_none_has(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    static const char wanted[] = "/fast/.abandoned-step-00000008: rename it to step-00000008";
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(4, 0, 0, NULL), tier_of(4, 0, 0, NULL)};
    dcp_checkpoint *ckpt = NULL;
    begin(p, rank, comm, r, list);
    save(p, 4, 4, 1);
    save(p, 8, 8, 1);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save_beside(p, 3, 3);
    p->log[0] = '\0';
    CHECK(dcp_tiers_load(p->tiers, load, p, NULL, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, wanted));
    CHECK(rank || strstr(p->log, wanted));
    CHECK(dcp_checkpoint_open(comm, p->paths[0], &ckpt, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, wanted));
    CHECK(dcp_checkpoint_open_private(comm, p->paths[0], &ckpt, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, wanted));
    end(p);
}

/* A directory that is away may come back with its later steps: no save is made without it. One that
 * was removed cannot, and one that has none is not waited for. */
static void a_store_that_is_away(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 8, 0, NULL), tier_of(2, 8, 0, NULL)};
    char away[160];
    begin(p, rank, comm, r, list);
    for (uint64_t step = 1; step <= 6; step++) save(p, step, (float)step, 0);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 4, err));
    snprintf(away, sizeof away, "%s/away", root);
    meet(p);
    if (rank == 0) CHECK(rename(p->paths[1], away) == 0);
    meet(p);
    CHECK(dcp_tiers_save(p->tiers, 5, p->state, "{}", NULL, 0, NULL, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, "goes back to step 4, but") &&
          strstr(p->err.message, p->paths[1]));
    CHECK(dcp_tiers_load(p->tiers, load, p, NULL, &p->err) == DCP_ERR_IO); /* unreadable */
    CHECK(strstr(p->err.message, "which step is the newest"));
    meet(p);
    if (rank == 0) CHECK(rename(away, p->paths[1]) == 0);
    meet(p);
    save(p, 5, 1005, 0);
    meet(p);
    check_steps(p, 0, "c1 c2 c3 c4 c5 a5 a6");
    check_steps(p, 1, "c2 c4 a6");
    uint64_t step = 0;
    SUCCEEDS(dcp_tiers_load(p->tiers, load, p, &step, err)); /* the newest one */
    CHECK(step == 5);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, step, err));
    meet(p);
    if (rank == 0) CHECK(rename(p->paths[1], away) == 0);
    meet(p);
    SUCCEEDS(dcp_tiers_save(p->tiers, 7, p->state, "{}", NULL, 0, NULL, err));
    if (rank == 0) CHECK(rename(away, p->paths[1]) == 0);
    meet(p);
    check_steps(p, 0, "c1 c2 c3 c4 c5 a5 a6 c7");
    check_steps(p, 1, "c2 c4 a6");
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 3, err));
    meet(p); /* no rank looks there any more */
    if (rank == 0) CHECK(store_directory_remove(AT_FDCWD, p->paths[1]) == 0);
    meet(p);
    save(p, 5, 2005, 0);
    end(p);
}

static void open_some(player *p, size_t first, size_t n) {
    SUCCEEDS(dcp_tiers_open(p->comm, &p->list[first], n, NULL, &p->tiers, err));
}

/* A host's clock was ahead when the first store's first step was saved. The second store joined the
 * run later, and was then used alone: its steps are the run's latest ones all the same. */
static void after_a_wrong_clock(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(1, 0, 0, NULL), tier_of(1, 0, 0, NULL)};
    const uint64_t hour = 3600ULL * 1000 * 1000;
    begin(p, rank, comm, r, list);
    dcp_tiers_close(p->tiers);
    open_some(p, 0, 1);
    p->tiers->list[0].store->save_number += hour;
    save(p, 1, 1, 0);
    dcp_tiers_close(p->tiers);
    open_some(p, 0, 2);
    expect(p, 1, 1);
    save(p, 2, 2, 0);
    dcp_tiers_close(p->tiers);
    open_some(p, 1, 1);
    expect(p, 2, 2);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 2, err));
    save(p, 3, 3, 0);
    dcp_tiers_close(p->tiers);
    open_some(p, 0, 2);
    expect(p, 3, 3);
    end(p);
}

/* For a single private store: ranks publish together even if only one of them has said so. */
static void on_one_rank_alone(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    dcp_store *store = NULL;
    dcp_store_options options = DCP_STORE_OPTIONS_INIT;
    dcp_save_options how = DCP_SAVE_OPTIONS_INIT;
    const dcp_tier list[] = {tier_of(0, 0, 1, NULL), tier_of(0, 0, 1, NULL)};
    char dir[128];
    begin(p, rank, comm, r, list);
    snprintf(dir, sizeof dir, "%s/alone-%d", root, rank);
    options.private_dirs = 1;
    how.layout = DCP_LAYOUT_SHARDED;
    SUCCEEDS(dcp_store_open(comm, dir, &options, &store, err));
    SUCCEEDS(dcp_save(store, 1, p->state, "{}", &how, NULL, err));
    if (rank == 0) SUCCEEDS(dcp_store_continue_from(store, 1, err));
    SUCCEEDS(dcp_save(store, 2, p->state, "{}", &how, NULL, err));
    dcp_store_close(store);
    end(p);
}

static void rename_on_node(const player *p, const char *from, const char *to) {
    const int dir = open(p->paths[1], O_RDONLY | O_DIRECTORY);
    CHECK(renameat(dir, from, dir, to) == 0);
    close(dir);
}

/* A node was away while the run went back and saved, and comes back with the step that the others
 * have set aside: its files alone would rebuild it. */
static void a_node_that_was_away(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    const dcp_tier list[] = {tier_of(0, 0, 1, NULL), tier_of(0, 8, 1, "partner")};
    dcp_store *store = NULL;
    dcp_store_options options = DCP_STORE_OPTIONS_INIT;
    uint64_t step = 0;
    begin(p, rank, comm, r, list);
    save(p, 4, 4, 1);
    save(p, 8, 8, 1);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 4, err));
    save(p, 5, 1005, 1);
    dcp_tiers_close(p->tiers);
    if (rank == 1) {
        rename_on_node(p, ".abandoned-step-00000008", "step-00000008");
        rename_on_node(p, "step-00000005", "lost");
    }
    meet(p);
    options.private_dirs = 1;
    options.redundancy = "partner";
    options.log = log_line;
    options.log_ctx = p;
    SUCCEEDS(dcp_store_open(comm, p->paths[1], &options, &store, err));
    SUCCEEDS(dcp_store_rebuild(store, 0, &step, NULL, err));
    CHECK(step == 5);
    dcp_store_close(store);
    open_list(p);
    expect(p, 5, 1005);
    CHECK(rank == 0 || p->has_returned);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, 5, err));
    save(p, 8, 1008, 1);
    meet(p);
    check_steps(p, 1, "c4 c5 c8 a8");
    dcp_tiers_close(p->tiers);
    if (rank == 1) rename_on_node(p, "step-00000008", "lost-8"); /* which all have: it is rebuilt */
    meet(p);
    open_list(p);
    expect(p, 8, 1008);
    end(p);
}

/* By its number: from the store that has it complete, or rebuilt, and never another step. */
static void a_step_that_is_named(int rank, dcp_comm *comm, void *r) {
    static player all[RANKS_MOST];
    player *p = &all[rank];
    begin_with_steps(p, rank, comm, r);
    damage_step(p, "fast/step-00000002/state.h5");
    if (rank == 1) rename_on_node(p, "step-00000002", "lost");
    meet(p);
    SUCCEEDS(dcp_tiers_load_step(p->tiers, 2, load, p, err));
    CHECK(memory_of(p) == 2 && dcp_tiers_rebuilt(p->tiers) > 0);
    SUCCEEDS(dcp_tiers_load_step(p->tiers, 1, load, p, err));
    CHECK(memory_of(p) == 1 && dcp_tiers_rebuilt(p->tiers) == 0);
    CHECK(dcp_tiers_load_step(p->tiers, 4, load, p, &p->err) == DCP_ERR_NOT_FOUND);
    CHECK(strstr(p->err.message, "step 4 is in none of the 2 stores"));
    CHECK(dcp_tiers_load_step(p->tiers, rank ? 1 : 2, load, p, &p->err) == DCP_ERR_MISMATCH);
    meet(p);
    damage_step(p, "fast/step-00000003/state.h5");
    damage_step(p, "node-0/slow/step-00000003/shard-00000-of-00002.h5");
    if (rank == 1) rename_on_node(p, "step-00000003", "lost-3");
    meet(p);
    CHECK(dcp_tiers_load_step(p->tiers, 3, load, p, &p->err) == DCP_ERR_CORRUPT);
    CHECK(strstr(p->err.message, "step 3"));
    end(p);
}

static void run(int n, ranks_main body) {
    ranks *r = ranks_make(n, 0);
    CHECK(mkdir(root, 0700) == 0);
    for (int i = 0; i < n; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, "%s/node-%d", root, i);
        CHECK(mkdir(dir, 0700) == 0);
    }
    alarm(LIMIT_S);
    ranks_run_threads(r, body, r);
    alarm(0);
    set_gate(0);
    ranks_free(r);
    CHECK(store_directory_remove(AT_FDCWD, root) == 0);
}

int main(void) {
    CHECK(mkdtemp(root) && rmdir(root) == 0);
    for (int n = 1; n <= 2; n++) {
        run(n, while_it_is_filled);
        run(n, to_a_step_that_all_have);
        run(n, a_damaged_copy);
        run(n, a_mark);
        run(n, a_mark_of_nothing);
        run(n, an_ask);
        run(n, a_lost_store);
        run(n, of_one_store_that_is_not_due);
        run(n, to_a_step_that_none_has);
        run(n, a_store_that_is_away);
        run(n, with_a_store_that_comes_back);
        run(n, with_steps_that_are_renamed_back);
        run(n, with_a_step_that_is_renamed_too_early);
        run(n, with_a_store_of_another_run);
        run(n, with_stores_that_are_away_in_turn);
        run(n, after_changes_of_links_and_variables);
    }
    run(1, after_a_change_of_the_working_directory);
    run(2, at_different_times);
    run(2, before_and_after_the_wait);
    run(2, a_mark_before_and_after_the_wait);
    run(2, without_room_to_rebuild);
    run(2, on_ranks_that_differ);
    run(2, with_a_rebuild);
    run(2, with_a_newer_copy);
    run(2, after_a_wrong_clock);
    run(2, on_one_rank_alone);
    run(2, a_node_that_was_away);
    run(2, a_step_that_is_named);
    return 0;
}
