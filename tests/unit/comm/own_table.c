/* A program without MPI, whose ranks are forked processes with a table of their own. Saves in
 * flight, loads in flight and fillings of stores end in the background, without a fence or a wait,
 * over duplicates that are each freed once. Without threads the save says that it waits for a
 * fence. Messages use the table's exchange if it has one. Duplicates and hosts may fail. */
#include "support/table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "comm/messages.h"
#include "dcp/dcp.h"
#include "store/directory.h"
#include "support/given.h"

static char root[] = "/tmp/dcp-own-table-XXXXXX";

/* One rank's part of a test. */
typedef struct part {
    table_seat *seat;
    dcp_comm *comm;
    given content;
    held mine;
} part;

static part begin(table_seat *seat, const dcp_comm_ops *ops) {
    part p = {.seat = seat};
    alarm(100); /* rather than hang */
    SUCCEEDS(dcp_comm_from_ops(ops, seat, seat->rank, TABLE_RANKS, &p.comm, err));
    given_make_few(&p.content, 0);
    held_make(&p.mine, &p.content, FEW_ROWS, seat->rank, TABLE_RANKS, 1);
    return p;
}

/* By then all duplicates must have been freed. */
static void end(part *p) {
    held_free(&p->mine);
    given_free(&p->content);
    dcp_comm_destroy(p->comm);
    NEED(atomic_load(&table_tally.made) == atomic_load(&table_tally.freed));
}

static dcp_store *open_store(const part *p, const char *name) {
    char dir[PATH_MAX];
    dcp_store *store = NULL;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    SUCCEEDS(dcp_store_open(p->comm, dir, NULL, &store, err));
    return store;
}

static dcp_saving *start_save(const part *p, dcp_store *store, uint64_t step) {
    dcp_saving *saving = NULL;
    SUCCEEDS(dcp_save_async(store, step, p->mine.state, GIVEN_JSON, NULL, &saving, err));
    return saving;
}

static int has_step(const char *name, uint64_t step) {
    char dir[PATH_MAX];
    dcp_step *steps = NULL;
    size_t n = 0;
    int found = 0;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    SUCCEEDS(dcp_steps_list(dir, &steps, &n, err));
    for (size_t i = 0; i < n; i++)
        found |= steps[i].step == step && steps[i].kind == DCP_STEP_COMPLETE;
    free(steps);
    return found;
}

static void check_loads(part *p, const char *name) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    held h;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    SUCCEEDS(dcp_checkpoint_open(p->comm, dir, &ckpt, err));
    held_make(&h, &p->content, FEW_COLUMNS, p->seat->rank, TABLE_RANKS, 0);
    SUCCEEDS(dcp_load(ckpt, h.state, NULL, err));
    NEED(held_is_given(&h, &p->content));
    held_free(&h);
    dcp_checkpoint_close(ckpt);
}

/* Calls `asks` until it returns 1 on all ranks, which communicate in the meantime. */
static void await(const part *p, int (*asks)(const void *), const void *of) {
    const struct timespec while_ = {.tv_nsec = 1000000};
    for (uint64_t all = 0; !all; nanosleep(&while_, NULL)) {
        const int is = asks(of);
        NEED(is == 0 || is == 1);
        all = (uint64_t)is;
        SUCCEEDS(comm_allreduce(p->comm, &all, 1, DCP_REDUCE_MIN, err));
    }
}

static int save_is_done(const void *saving) { return dcp_save_is_done((dcp_saving *)saving); }

static int tiers_is_done(const void *tiers) { return dcp_tiers_is_done((dcp_tiers *)tiers); }

static int slow_store_is_filled(const void *step) {
    return has_step("slow", *(const uint64_t *)step);
}

static void saves_end_beside(table_seat *seat, void *ops) {
    part p = begin(seat, ops);
    dcp_store *store = open_store(&p, "beside");
    for (uint64_t step = 1; step <= 2; step++) {
        dcp_saving *saving = start_save(&p, store, step);
        await(&p, save_is_done, saving);
        NEED(has_step("beside", step)); /* published before anybody waited */
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
    }
    check_loads(&p, "beside");
    NEED(atomic_load(&table_tally.made) == 1); /* one for all saves of the store */
    dcp_store_close(store);
    end(&p);
}

static int load_is_done(const void *loading) { return dcp_load_is_done((dcp_loading *)loading); }

static int rank_one_stops(void *seat) { return ((table_seat *)seat)->rank == 1; }

static void loads_end_beside(table_seat *seat, void *ops) {
    part p = begin(seat, ops);
    dcp_store *store = open_store(&p, "loaded");
    SUCCEEDS(dcp_save(store, 1, p.mine.state, GIVEN_JSON, NULL, NULL, err));
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    held h;
    snprintf(dir, sizeof dir, "%s/loaded", root);
    SUCCEEDS(dcp_checkpoint_open(p.comm, dir, &ckpt, err));
    held_make(&h, &p.content, FEW_COLUMNS, seat->rank, TABLE_RANKS, 0);
    for (int stops = 1; stops >= 0; stops--) {
        dcp_error failure = {0};
        dcp_loading *loading = NULL;
        dcp_load_options options = {.size = sizeof options, .stop_ctx = seat};
        if (stops) options.stop = rank_one_stops;
        SUCCEEDS(dcp_load_async(ckpt, h.state, &options, &loading, err));
        await(&p, load_is_done, loading);
        int status = dcp_load_wait(loading, NULL, &failure);
        NEED(status == (stops ? DCP_ERR_CANCELLED : DCP_OK));
        NEED(!stops || strstr(failure.message, "cancelled by rank 1"));
    }
    NEED(held_is_given(&h, &p.content));
    held_free(&h);
    dcp_checkpoint_close(ckpt);
    dcp_store_close(store);
    end(&p);
}

/* Rank 0 sends to the others, which send nothing; a duplicate's messages are separate. */
static void messages_go_by_exchange(table_seat *seat, void *unused) {
    static unsigned char data[2][TABLE_RANKS][40000];
    dcp_comm *comm = NULL, *other = NULL;
    (void)unused;
    SUCCEEDS(dcp_comm_from_ops(&table_with_exchange, seat, seat->rank, TABLE_RANKS, &comm, err));
    SUCCEEDS(comm_duplicate(comm, &other, err));
    for (int i = 0; i < 2; i++) {
        dcp_comm_message list[TABLE_RANKS];
        const int is_first = seat->rank == 0;
        const size_t n = is_first ? TABLE_RANKS - 1 : 1;
        NEED(!comm_exchange_is_collective(i ? other : comm));
        if (is_first) memset(data[i], 7 + i, sizeof data[i]);
        for (size_t k = 0; k < n; k++)
            list[k] = (dcp_comm_message){data[i][k], sizeof data[i][k], is_first ? (int)k + 1 : 0};
        SUCCEEDS(comm_exchange_run(i ? other : comm, list, is_first ? n : 0, list, is_first ? 0 : n,
                                   err));
        NEED(data[i][0][0] == 7 + i && data[i][0][39999] == 7 + i);
    }
    NEED(atomic_load(&table_tally.exchanges) == 2);
    dcp_comm_destroy(other);
    dcp_comm_destroy(comm);
}

static void without_threads_a_fence_saves(table_seat *seat, void *unused) {
    (void)unused;
    dcp_comm_ops ops = table_functions;
    ops.threads = seat->rank != 1; /* one rank without threads is enough */
    part p = begin(seat, &ops);
    dcp_store *store = open_store(&p, "fenced");
    dcp_saving *saving = start_save(&p, store, 1);
    NEED(dcp_save_is_done(saving) == DCP_ERR_STATE);
    dcp_save_fence(saving);
    NEED(dcp_save_is_done(saving) == 1);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    NEED(has_step("fenced", 1) && atomic_load(&table_tally.made) == 0);
    dcp_store_close(store);
    end(&p);
}

static void open_list(const part *p, dcp_tiers **out, int expected, dcp_error *failure) {
    static char fast[PATH_MAX], slow[PATH_MAX], slowest[PATH_MAX];
    snprintf(fast, sizeof fast, "%s/fast-{rank}", root);
    snprintf(slow, sizeof slow, "%s/slow", root);
    snprintf(slowest, sizeof slowest, "%s/slowest", root);
    dcp_tier list[3] = {DCP_TIER_INIT, DCP_TIER_INIT, DCP_TIER_INIT};
    list[0].path = fast, list[0].every = 1, list[0].is_private = 1;
    list[0].redundancy = "partner", list[0].domain = "{rank}";
    list[1].path = slow, list[1].every = 2;
    list[2].path = slowest, list[2].every = 4;
    const int status = dcp_tiers_open(p->comm, list, 3, NULL, out, failure);
    if (status != expected) table_failed(__FILE__, __LINE__, failure->message);
}

static void stores_are_filled_beside(table_seat *seat, void *unused) {
    (void)unused;
    part p = begin(seat, &table_functions);
    dcp_error failure = {0};
    dcp_tiers *tiers = NULL;
    open_list(&p, &tiers, DCP_OK, &failure);
    for (uint64_t step = 1; step <= 4; step++) {
        SUCCEEDS(dcp_tiers_save_async(tiers, step, p.mine.state, GIVEN_JSON, NULL, err));
        await(&p, tiers_is_done, tiers);
        SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
        if (step % 2 == 0) await(&p, slow_store_is_filled, &step);
    }
    dcp_tiers_close(tiers);
    NEED(has_step("slowest", 4));
    check_loads(&p, "slow");
    end(&p);
}

/* Does what a store does that is not the first of a list. */
static void a_duplicate_has_duplicates(table_seat *seat, void *unused) {
    (void)unused;
    part p = begin(seat, &table_functions);
    dcp_comm *first = NULL, *second = NULL;
    SUCCEEDS(comm_duplicate(p.comm, &first, err));
    SUCCEEDS(comm_duplicate(first, &second, err));
    uint64_t ones[3] = {1, 1, 1};
    SUCCEEDS(comm_allreduce(second, &ones[2], 1, DCP_REDUCE_SUM, err));
    SUCCEEDS(comm_allreduce(first, &ones[1], 1, DCP_REDUCE_SUM, err));
    SUCCEEDS(comm_allreduce(p.comm, &ones[0], 1, DCP_REDUCE_SUM, err));
    for (int i = 0; i < 3; i++) NEED(ones[i] == TABLE_RANKS);
    dcp_comm_destroy(first);
    SUCCEEDS(comm_barrier(second, err));
    dcp_comm_destroy(second);
    NEED(atomic_load(&table_tally.made) == 2);
    end(&p);
}

/* All ranks get the error, those that have a duplicate free it, and the next attempt may
 * succeed. */
static void a_duplicate_fails_on_one_rank(table_seat *seat, void *unused) {
    (void)unused;
    const char *expected = "rank 1: the table's duplicate failed with code 13";
    part p = begin(seat, &table_functions);
    dcp_store *store = open_store(&p, "refused");
    dcp_saving *saving = NULL;
    dcp_tiers *tiers = NULL;
    dcp_error failure = {0};
    if (seat->rank == 1) atomic_store(&table_tally.fails_at, 1);
    NEED(dcp_save_async(store, 1, p.mine.state, NULL, NULL, &saving, &failure) == DCP_ERR_COMM);
    NEED(failure.rank == 1 && !strcmp(failure.message, expected) && !saving);
    NEED(atomic_load(&table_tally.made) == (seat->rank != 1));
    NEED(atomic_load(&table_tally.freed) == (seat->rank != 1));
    SUCCEEDS(dcp_save(store, 1, p.mine.state, NULL, NULL, NULL, err));
    SUCCEEDS(dcp_save_wait(start_save(&p, store, 2), NULL, err));
    dcp_store_close(store);
    if (seat->rank == 1) atomic_store(&table_tally.fails_at, 2); /* the third store's */
    open_list(&p, &tiers, DCP_ERR_COMM, &failure);
    NEED(failure.rank == 1 && !strcmp(failure.message, expected) && !tiers);
    end(&p);
}

/* Every rank's functions fail in the save's thread, after `calls` successful calls. */
static void a_duplicate_breaks(table_seat *seat, void *calls) {
    part p = begin(seat, &table_functions);
    char name[] = "broken-0";
    name[7] = (char)('0' + *(int *)calls);
    dcp_store *store = open_store(&p, name);
    dcp_error failure = {0};
    SUCCEEDS(dcp_save_wait(start_save(&p, store, 1), NULL, err));
    atomic_store(&table_tally.calls_left, *(int *)calls);
    dcp_saving *saving = start_save(&p, store, 2);
    NEED(dcp_save_wait(saving, NULL, &failure) == DCP_ERR_COMM);
    NEED(strstr(failure.message, "with code 42"));
    NEED(comm_barrier(p.comm, NULL) == DCP_ERR_COMM); /* nothing is called any more */
    dcp_store_close(store);
    end(&p);
}

/* Ranks 0 and 2 are on one host; `told` selects what differs. */
enum { ALIKE, NAMED_OTHERWISE, OTHER_HOSTS, FAILS };
static int told, own_rank;

static int host_of(void *ctx, int rank) {
    (void)ctx;
    if (told == FAILS && own_rank == 2 && rank == 1) return -5;
    if (told == OTHER_HOSTS && own_rank == 1) return rank == 0;
    if (told == NAMED_OTHERWISE && own_rank == 1) return rank == 1 ? 3 : 44;
    return rank == 1 ? 1000 : 3;
}

static void check_hosts(dcp_comm *comm, int hosts, int own) {
    int found[2] = {0, 0};
    SUCCEEDS(dcp_comm_hosts(comm, &found[0], &found[1], err));
    NEED(found[0] == hosts && found[1] == own);
}

static void the_table_tells_hosts(table_seat *seat, void *unused) {
    (void)unused;
    dcp_comm_ops ops = table_functions;
    ops.host_of = host_of;
    own_rank = seat->rank;
    for (told = ALIKE; told <= NAMED_OTHERWISE; told++) {
        part p = begin(seat, &ops);
        dcp_comm *other = NULL;
        check_hosts(p.comm, 2, seat->rank == 1);
        SUCCEEDS(comm_duplicate(p.comm, &other, err));
        check_hosts(other, 2, seat->rank == 1);
        SUCCEEDS(dcp_comm_set_host(other, "one", err));
        check_hosts(other, 1, 0);
        SUCCEEDS(dcp_comm_set_host(other, NULL, err));
        check_hosts(other, 2, seat->rank == 1);
        dcp_comm_destroy(other);
        end(&p);
    }
}

static void the_table_tells_hosts_wrongly(table_seat *seat, void *unused) {
    (void)unused;
    dcp_comm_ops ops = table_functions;
    dcp_comm *comm = NULL;
    dcp_error failure = {0};
    ops.host_of = host_of;
    own_rank = seat->rank;
    told = OTHER_HOSTS;
    NEED(dcp_comm_from_ops(&ops, seat, seat->rank, TABLE_RANKS, &comm, &failure) ==
         DCP_ERR_MISMATCH);
    NEED(failure.rank == 1 && strstr(failure.message, "rank 1: ") == failure.message);
    NEED(strstr(failure.message, "ranks 0 and 2 are on two hosts according to this rank's host_of, "
                                 "but on one according to rank 0's"));
    NEED(failure.n_ranks == 1 && failure.ranks[0] == 1);
    told = FAILS;
    NEED(dcp_comm_from_ops(&ops, seat, seat->rank, TABLE_RANKS, &comm, &failure) == DCP_ERR_COMM);
    NEED(strstr(failure.message, "rank 2: dcp_comm_from_ops: host_of of rank 1 failed with code"));
    NEED(!comm);
}

int main(void) {
    NEED(mkdtemp(root));
    dcp_comm_ops few = table_functions, all = table_with_exchange;
    int failed = table_launch(saves_end_beside, &few);
    failed |= table_launch(loads_end_beside, &few);
    failed |= store_directory_remove(AT_FDCWD, root) || mkdir(root, 0777);
    failed |= table_launch(saves_end_beside, &all);
    failed |= table_launch(loads_end_beside, &all);
    failed |= table_launch(messages_go_by_exchange, NULL);
    failed |= table_launch(without_threads_a_fence_saves, NULL);
    failed |= table_launch(stores_are_filled_beside, NULL);
    failed |= table_launch(a_duplicate_has_duplicates, NULL);
    failed |= table_launch(a_duplicate_fails_on_one_rank, NULL);
    for (int calls = 0; calls < 4; calls++) failed |= table_launch(a_duplicate_breaks, &calls);
    failed |= table_launch(the_table_tells_hosts, NULL);
    failed |= table_launch(the_table_tells_hosts_wrongly, NULL);
    NEED(store_directory_remove(AT_FDCWD, root) == 0);
    return failed;
}
