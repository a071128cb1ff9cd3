/* One collective function of the library, during which a rank is killed; for crash_peers.py.
 *   crash_peers list                            prints the names of the functions
 *   crash_peers WAY FUNCTION VICTIM POINT DIR   under mpirun, in an empty folder
 * WAY is `shared`; `messages`, between ranks that call themselves different hosts; `hosts`, where
 * the first two ranks share a host; or `table` (a caller's functions). POINT 0 kills the victim
 * before it calls FUNCTION; a larger one at the internal point of that number, at which the victim
 * begins a collective, sends a message, or has ended a collective; -1 kills nobody.
 *
 * Each surviving rank writes to DIR/rank-R: the status that FUNCTION returned and the rank that it
 * named; the same two for a collective after it; the times on CLOCK_MONOTONIC, in ns, when FUNCTION
 * had returned and when everything was closed; the number of points; and how often a function of
 * the table was called after one had failed. The victim writes the time of its death to DIR/died.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "dcp/dcp.h"
#include "dcp/mpi.h"
#include "dcp/rewrite.h"
#include "dcp/tiers.h"
#include "support/check.h"
#include "support/given.h"

static int rank, size, victim, kill_at;
static const char *dir;
static atomic_int points, is_armed;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void write_line(const char *name, const char *line) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line));
    close(fd);
}

static void die(void) {
    char line[40];
    snprintf(line, sizeof line, "%lld\n", now_ns());
    write_line("died", line);
    raise(SIGKILL);
}

static void reach_point(void) {
    if (is_armed && atomic_fetch_add(&points, 1) + 1 == kill_at && rank == victim) die();
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    reach_point();
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}

int MPI_Iallgather(const void *send, int count, MPI_Datatype type, void *recv, int recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request) {
    int code = PMPI_Iallgather(send, count, type, recv, recv_count, recv_type, comm, request);
    reach_point();
    return code;
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request) {
    reach_point();
    int code = PMPI_Comm_idup(comm, out, request);
    reach_point();
    return code;
}

/* Communicators whose collectives begin and end with a point. */
static struct counted {
    void *ctx;
    dcp_comm_ops ops;
    int (*duplicate)(dcp_comm *comm, dcp_comm **out, dcp_error *err);
} counted[8];
static int n_counted;

static const struct counted *counted_of(void *ctx) {
    for (int i = 0; i < n_counted; i++)
        if (counted[i].ctx == ctx) return &counted[i];
    return NULL;
}

static int ended(int code) {
    reach_point();
    return code;
}

static int counted_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    reach_point();
    return ended(counted_of(ctx)->ops.broadcast(ctx, buf, bytes, root));
}

static int counted_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    reach_point();
    return ended(counted_of(ctx)->ops.allreduce(ctx, buf, count, op));
}

static int counted_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    reach_point();
    return ended(counted_of(ctx)->ops.gather(ctx, send, bytes, recv, root));
}

static int counted_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                            const uint64_t *recv_bytes) {
    reach_point();
    return ended(counted_of(ctx)->ops.alltoall(ctx, send, send_bytes, recv, recv_bytes));
}

static int counted_barrier(void *ctx) {
    reach_point();
    return ended(counted_of(ctx)->ops.barrier(ctx));
}

static void count_points(dcp_comm *comm);

static int counted_duplicate(dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    int status = counted_of(comm->ctx)->duplicate(comm, out, err);
    if (!status) count_points(*out);
    return status;
}

static void count_points(dcp_comm *comm) {
    counted[n_counted++] = (struct counted){comm->ctx, comm->ops, comm->duplicate};
    comm->ops = (dcp_comm_ops){.size = sizeof(dcp_comm_ops),
                               .broadcast = counted_broadcast,
                               .allreduce = counted_allreduce,
                               .gather = counted_gather,
                               .alltoall = counted_alltoall,
                               .barrier = counted_barrier};
    if (comm->duplicate) comm->duplicate = counted_duplicate;
}

/* A caller's table, over a communicator of its own. */
static int table_failed, calls_after;

static int table_ended(int status) {
    calls_after += table_failed;
    table_failed |= status != DCP_OK;
    return status;
}

static int table_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    return table_ended(comm_broadcast(ctx, buf, bytes, root, NULL));
}

static int table_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    return table_ended(comm_allreduce(ctx, buf, count, op, NULL));
}

static int table_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    return table_ended(comm_gather(ctx, send, bytes, recv, root, NULL));
}

static int table_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                          const uint64_t *recv_bytes) {
    return table_ended(comm_alltoall(ctx, send, send_bytes, recv, recv_bytes, NULL));
}

static int table_barrier(void *ctx) { return table_ended(comm_barrier(ctx, NULL)); }

static const dcp_comm_ops table_ops = {.size = sizeof(dcp_comm_ops),
                                       .broadcast = table_broadcast,
                                       .allreduce = table_allreduce,
                                       .gather = table_gather,
                                       .alltoall = table_alltoall,
                                       .barrier = table_barrier};

/* What the functions work on. */
static dcp_comm *comm, *below;
static dcp_store *store;
static dcp_checkpoint *ckpt;
static dcp_tiers *tiers;
static dcp_saving *saving;
static given content;
static held mine;
static dcp_error err = {.rank = -1};
static char shared_dir[PATH_MAX - 64], own_dir[PATH_MAX - 64], tier_dir[PATH_MAX - 64];
static dcp_tier tier_list[2];
static dcp_tiers_step *tier_steps;

static void arm(void) {
    if (kill_at == 0 && rank == victim) die();
    is_armed = 1;
}

static int open_shared(void) { return dcp_store_open(comm, shared_dir, NULL, &store, &err); }

static int open_own(void) {
    char name[16];
    snprintf(name, sizeof name, "rack-%d", rank);
    const dcp_store_options options = {
        .size = sizeof options, .private_dirs = 1, .redundancy = "partner", .domain = name};
    return dcp_store_open(comm, own_dir, &options, &store, &err);
}

static int save_as(dcp_layout layout, dcp_engine engine, uint64_t step) {
    const dcp_save_options options = {.size = sizeof options, .layout = layout, .engine = engine};
    return dcp_save(store, step, mine.state, GIVEN_JSON, &options, NULL, &err);
}

static void have_shared(void) { CHECK(!open_shared()); }

static void have_step(void) {
    have_shared();
    CHECK(!save_as(DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 1));
}

static void have_two_steps(void) {
    have_step();
    CHECK(!save_as(DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 2));
    CHECK(!dcp_store_mark_intact(store, 1, &err));
}

static int stop_now(void *ctx) {
    (void)ctx;
    return rank == size - 1;
}

static void have_own(void) {
    CHECK(!open_own());
    CHECK(!save_as(DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, 1));
}

static void have_open(void) {
    have_step();
    CHECK(!dcp_checkpoint_open(comm, shared_dir, &ckpt, &err));
}

static void have_open_own(void) {
    have_own();
    CHECK(!dcp_checkpoint_open_private(comm, own_dir, &ckpt, &err));
}

static int open_tiers(void) { return dcp_tiers_open(comm, tier_list, 2, NULL, &tiers, &err); }

static void have_tiers(void) {
    CHECK(!open_tiers());
    CHECK(!dcp_tiers_save(tiers, 1, mine.state, GIVEN_JSON, NULL, 0, NULL, &err));
}

static void have_tier_steps(void) {
    size_t n;
    have_tiers();
    CHECK(!dcp_tiers_steps(comm, tier_list, 2, &tier_steps, &n, &err) && n == 2);
}

static int run_from_mpi(void) {
    dcp_comm *other = NULL;
    int status = dcp_comm_from_mpi(MPI_COMM_WORLD, &other, &err);
    dcp_comm_destroy(other);
    return status;
}

static int run_set_host(void) { return dcp_comm_set_host(comm, rank ? "b" : "a", &err); }

static int run_set_limit(void) { return dcp_comm_set_limit(comm, 100, &err); }

static void have_one_host(void) { unsetenv("DCP_HOST"); }

static int run_host_memory(void) {
    void *memory = dcp_host_memory_create(MPI_COMM_WORLD, 4096);
    dcp_host_memory_free(memory, 4096);
    return memory ? DCP_OK : DCP_ERR_COMM;
}

static int run_hosts(void) {
    int hosts;
    return dcp_comm_hosts(comm, &hosts, NULL, &err);
}

static int run_save(void) { return save_as(DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 2); }
static int run_save_sharded(void) { return save_as(DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, 2); }
static int run_save_mpio(void) { return save_as(DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO, 2); }

/* All ranks cancel it if none dies. */
static int run_save_cancelled(void) {
    const dcp_save_options options = {.size = sizeof options, .stop = stop_now};
    int status = dcp_save(store, 2, mine.state, GIVEN_JSON, &options, NULL, &err);
    return status == DCP_ERR_CANCELLED ? DCP_OK : status ? status : DCP_ERR_STATE;
}

static int run_prove(void) {
    dcp_proof *proof = NULL;
    int status = dcp_prove(comm, mine.state, NULL, &proof, &err);
    dcp_proof_destroy(proof);
    return status;
}

static int run_save_async(void) {
    int status = dcp_save_async(store, 2, mine.state, GIVEN_JSON, NULL, &saving, &err);
    if (!status) status = dcp_save_wait(saving, NULL, &err);
    saving = NULL;
    return status;
}

static void have_saving(void) {
    have_step();
    is_armed = 1; /* the victim may be killed in the thread, before it waits */
    CHECK(dcp_save_async(store, 2, mine.state, GIVEN_JSON, NULL, &saving, &err) == DCP_OK ||
          err.status == DCP_ERR_COMM);
}

static int run_wait(void) {
    if (!saving) return err.status;
    dcp_save_fence(saving);
    int status = dcp_save_wait(saving, NULL, &err);
    saving = NULL;
    return status;
}

static int run_rebuild(void) {
    uint64_t step;
    return dcp_store_rebuild(store, 1, &step, NULL, &err);
}

static int run_open(void) { return dcp_checkpoint_open(comm, shared_dir, &ckpt, &err); }
static int run_open_private(void) {
    return dcp_checkpoint_open_private(comm, own_dir, &ckpt, &err);
}
static int run_load(void) { return dcp_load(ckpt, mine.state, NULL, &err); }
static int run_load_async(void) {
    dcp_loading *loading = NULL;
    int status = dcp_load_async(ckpt, mine.state, NULL, &loading, &err);
    return status ? status : dcp_load_wait(loading, NULL, &err);
}
static int run_remove(void) { return dcp_step_remove(store, 2, &err); }
static int run_rewrite(void) {
    dcp_store *to = NULL;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s-2", shared_dir);
    int status = dcp_store_open(comm, path, NULL, &to, &err);
    if (!status) status = dcp_rewrite(ckpt, to, NULL, NULL, &err);
    dcp_store_close(to);
    return status;
}
static int run_verify(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/step-00000001", shared_dir);
    return dcp_verify_with(comm, path, NULL, &err);
}

static int run_tiers_save(void) {
    return dcp_tiers_save(tiers, 2, mine.state, GIVEN_JSON, NULL, 1, NULL, &err);
}

static int run_tiers_async(void) {
    int status = dcp_tiers_save_async(tiers, 2, mine.state, GIVEN_JSON, NULL, &err);
    dcp_tiers_fence(tiers);
    return status ? status : dcp_tiers_wait(tiers, NULL, &err);
}

/* It returns nothing, and a failed filling is only logged. */
static int run_tiers_close(void) {
    run_tiers_async();
    dcp_tiers_close(tiers);
    tiers = NULL;
    return comm_barrier(comm, &err);
}

static int run_tiers_steps(void) {
    size_t n;
    free(tier_steps);
    tier_steps = NULL;
    return dcp_tiers_steps(comm, tier_list, 2, &tier_steps, &n, &err);
}

static int run_tiers_open_step(void) {
    return dcp_tiers_open_step(comm, tier_list, tier_steps, &ckpt, &err);
}

static int load_tier(void *ctx, dcp_checkpoint *of, dcp_error *why) {
    (void)ctx;
    return dcp_load(of, mine.state, NULL, why);
}

static int run_tiers_load(void) { return dcp_tiers_load(tiers, load_tier, NULL, NULL, &err); }

static const struct entry {
    const char *name;
    void (*have)(void);
    int (*run)(void);
    int on_mpi; /* cannot be tested with a caller's table */
} entries[] = {
    {"comm_from_mpi", NULL, run_from_mpi, 1},
    {"host_memory_create", have_one_host, run_host_memory, 1},
    {"comm_hosts", NULL, run_hosts, 0},
    {"comm_set_host", NULL, run_set_host, 0},
    {"comm_set_limit", NULL, run_set_limit, 0},
    {"store_open", NULL, open_shared, 0},
    {"store_open private", NULL, open_own, 0},
    {"store_rebuild", have_own, run_rebuild, 0},
    {"save", have_step, run_save, 0},
    {"save sharded", have_step, run_save_sharded, 0},
    {"save mpio", have_step, run_save_mpio, 0},
    {"save private", have_own, run_save_sharded, 0},
    {"save cancelled", have_step, run_save_cancelled, 0},
    {"step_remove", have_two_steps, run_remove, 0},
    {"prove", NULL, run_prove, 0},
    {"save_async", have_step, run_save_async, 0},
    {"save_wait", have_saving, run_wait, 0},
    {"checkpoint_open", have_step, run_open, 0},
    {"checkpoint_open_private", have_own, run_open_private, 0},
    {"load", have_open, run_load, 0},
    {"load private", have_open_own, run_load, 0},
    {"load_async", have_open, run_load_async, 0},
    {"load_async private", have_open_own, run_load_async, 0},
    {"rewrite", have_open, run_rewrite, 0},
    {"verify_with", have_step, run_verify, 0},
    {"tiers_open", NULL, open_tiers, 0},
    {"tiers_steps", have_tiers, run_tiers_steps, 0},
    {"tiers_open_step", have_tier_steps, run_tiers_open_step, 0},
    {"tiers_load", have_tiers, run_tiers_load, 0},
    {"tiers_save", have_tiers, run_tiers_save, 0},
    {"tiers_save_async", have_tiers, run_tiers_async, 0},
    {"tiers_close", have_tiers, run_tiers_close, 0},
};

#define ENTRIES (int)(sizeof entries / sizeof *entries)

static const struct entry *find_entry(const char *name) {
    for (int i = 0; i < ENTRIES; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    fprintf(stderr, "no function %s\n", name);
    exit(2);
}

static void begin(const char *way) {
    const int level = strcmp(way, "table") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    int got;
    alarm(120); /* ends a process that hangs */
    MPI_Init_thread(NULL, NULL, level, &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char host[32];
    const int has_hosts = strcmp(way, "hosts") == 0, is_apart = strcmp(way, "messages") == 0;
    snprintf(host, sizeof host, "host-%d", has_hosts ? rank / 2 : rank);
    if (has_hosts || is_apart) setenv("DCP_HOST", host, 1);
    CHECK(!dcp_comm_from_mpi(MPI_COMM_WORLD, &below, &err));
    CHECK((below->shared != NULL) == !(has_hosts || is_apart));
    CHECK(!has_hosts || below->local.groups->n == 2);
    if (strcmp(way, "table") == 0)
        CHECK(!dcp_comm_from_ops(&table_ops, below, rank, size, &comm, &err));
    else
        comm = below;
    given_make_few(&content, 1);
    held_make(&mine, &content, FEW_ROWS, rank, size, 1);
    snprintf(shared_dir, sizeof shared_dir, "%s/store", dir);
    snprintf(own_dir, sizeof own_dir, "%s/node-%d", dir, rank);
    snprintf(tier_dir, sizeof tier_dir, "%s/tier-{rank}", dir);
    tier_list[0] =
        (dcp_tier){.size = sizeof(dcp_tier), .path = tier_dir, .every = 1, .is_private = 1};
    tier_list[1] = (dcp_tier){.size = sizeof(dcp_tier), .path = shared_dir, .every = 1};
}

static void close_all(void) {
    free(tier_steps);
    dcp_checkpoint_close(ckpt);
    dcp_tiers_close(tiers);
    dcp_store_close(store);
    held_free(&mine);
    given_free(&content);
    if (comm != below) dcp_comm_destroy(comm);
    dcp_comm_destroy(below);
}

int main(int argc, char **argv) {
    char name[32], line[512];
    for (int i = 0; i < ENTRIES && argc == 2; i++)
        printf("%s%s\n", entries[i].name, entries[i].on_mpi ? " (MPI)" : "");
    if (argc != 6) return argc != 2;
    const struct entry *e = find_entry(argv[2]);
    victim = atoi(argv[3]);
    kill_at = atoi(argv[4]);
    dir = argv[5];
    begin(argv[1]);
    if (e->on_mpi) setenv("DCP_COMM_LIMIT", "3", 1);
    if (comm->ctx) count_points(comm);
    if (e->have) e->have();
    arm();
    int status = e->run();
    const long long returned = now_ns();
    is_armed = 0;
    if (kill_at >= 0 && rank == victim) die(); /* the point was not reached */
    if (kill_at < 0) {
        CHECK(status == DCP_OK);
        close_all();
    } else {
        dcp_error why = {0};
        int after = comm_barrier(comm, &why);
        close_all();
        int n = snprintf(line, sizeof line, "%d %d %d %d %lld %lld %d %d %s\n", status, err.rank,
                         after, why.rank, returned, now_ns(), (int)points, calls_after,
                         err.message[0] ? err.message : "-");
        CHECK(n > 0);
    }
    if (kill_at < 0) snprintf(line, sizeof line, "%d\n", (int)points);
    snprintf(name, sizeof name, "rank-%d", rank);
    write_line(name, line);
    if (kill_at < 0) MPI_Finalize();
    _exit(0);
}
