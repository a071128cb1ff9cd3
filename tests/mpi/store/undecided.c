/* A group of ranks that breaks during a save: some ranks have received an operation's result, the
 * others have not, and no operation works after it. For each of the last operations and some
 * before, whichever ranks received its result: what a save reported to any rank as saved is what
 * the next start loads, and otherwise the next start loads one complete step, the new one or the
 * one before. */
#include <sys/stat.h>

#include "dcp/tiers.h"
#include "support/counted.h"
#include "support/scratch.h"

/* ---- the group */

static struct {
    int calls, cut_at; /* the operation after which nothing works; 0: none */
    int misses;        /* this rank has not received its result */
} group;

/* Returns true if the operation is made at all. */
static int works(void) {
    group.calls++;
    return !group.cut_at || group.calls <= group.cut_at;
}

static int result(int code) {
    return group.cut_at && group.calls >= group.cut_at && group.misses ? 1 : code;
}

static int cut_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    return works() ? result(counted_table.broadcast(ctx, buf, bytes, root)) : 1;
}

static int cut_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    return works() ? result(counted_table.allreduce(ctx, buf, count, op)) : 1;
}

static int cut_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    return works() ? result(counted_table.gather(ctx, send, bytes, recv, root)) : 1;
}

static int cut_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                        const uint64_t *recv_bytes) {
    return works() ? result(counted_table.alltoall(ctx, send, send_bytes, recv, recv_bytes)) : 1;
}

static int cut_barrier(void *ctx) { return works() ? result(counted_table.barrier(ctx)) : 1; }

/* ---- a run of it */

typedef struct way {
    const char *name;
    int is_private;
    const char *redundancy;
    uint32_t keep;
    int goes_back; /* step 3 exists, and the run continues from step 1 */
} way;

typedef struct run {
    const scratch *s;
    const way *way;
    char path[PATH_MAX];
    dcp_comm *comm;
    dcp_tiers *tiers;
    given states[4]; /* by `salt` */
    int salt;        /* of what was loaded, stored in its JSON */
} run;

static void open_list(run *r, dcp_comm *comm) {
    const dcp_tier list = {.size = sizeof list,
                           .path = r->path,
                           .every = 1,
                           .keep = r->way->keep,
                           .is_private = r->way->is_private,
                           .redundancy = r->way->redundancy,
                           .domain = r->way->is_private ? "{rank}" : NULL};
    r->comm = comm;
    SUCCEEDS(dcp_tiers_open(comm, &list, 1, NULL, &r->tiers, err));
}

static int save(run *r, uint64_t step, int salt) {
    held h;
    dcp_error err;
    char json[16];
    snprintf(json, sizeof json, "{\"salt-%d\":0}", salt);
    held_make(&h, &r->states[salt], FEW_ROWS, r->s->rank, r->s->size, 1);
    const int status = dcp_tiers_save(r->tiers, step, h.state, json, NULL, 1, NULL, &err);
    held_free(&h);
    return status;
}

static int load_any(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    run *r = ctx;
    held h;
    held_make(&h, &r->states[0], FEW_ROWS, r->s->rank, r->s->size, 0);
    const int status = dcp_load(ckpt, h.state, NULL, err);
    r->salt = atoi(strstr(dcp_checkpoint_json(ckpt), "\"salt-") + 6);
    CHECK(status || held_is_given(&h, &r->states[r->salt]));
    held_free(&h);
    return status;
}

static void begin(run *r) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (r->s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, r->s->root) == 0);
    if (r->s->rank == 0) CHECK(mkdir(r->s->root, 0777) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Returns how many operations the save has made. misses: one bit for each rank. */
static int save_cut(run *r, int cut_at, unsigned misses, int *is_saved) {
    static MPI_Comm world;
    dcp_comm_ops ops = {.size = sizeof ops,
                        .broadcast = cut_broadcast,
                        .allreduce = cut_allreduce,
                        .gather = cut_gather,
                        .alltoall = cut_alltoall,
                        .barrier = cut_barrier};
    dcp_comm *comm = NULL;
    world = MPI_COMM_WORLD;
    group.cut_at = 0;
    CHECK(dcp_comm_from_ops(&ops, &world, r->s->rank, r->s->size, &comm, NULL) == DCP_OK);
    open_list(r, comm);
    CHECK(save(r, 1, 1) == DCP_OK);
    if (r->way->goes_back) {
        CHECK(save(r, 2, 2) == DCP_OK);
        CHECK(save(r, 3, 2) == DCP_OK);
        CHECK(dcp_tiers_continue_from(r->tiers, 1, NULL) == DCP_OK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    group.calls = 0;
    group.cut_at = cut_at;
    group.misses = misses >> r->s->rank & 1;
    const int status = save(r, 2, 3);
    const int calls = group.calls;
    CHECK(status == DCP_OK || status == DCP_ERR_COMM);
    *is_saved = status == DCP_OK;
    MPI_Allreduce(MPI_IN_PLACE, is_saved, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    dcp_tiers_close(r->tiers);
    dcp_comm_destroy(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    return calls;
}

/* Checks the next start. */
static void check_next(run *r, int is_saved, int cut_at, unsigned misses) {
    uint64_t step = 0;
    dcp_error why = {0};
    open_list(r, r->s->comm);
    const int status = dcp_tiers_load(r->tiers, load_any, r, &step, &why);
    const int is_new = step == 2 && r->salt == 3;
    const int is_old =
        !is_saved && (r->way->goes_back ? step == 3 && r->salt == 2 : step == 1 && r->salt == 1);
    const int was_on_the_way = !is_saved && r->way->goes_back && step == 1 && r->salt == 1;
    if (status || !(is_new || is_old || was_on_the_way))
        fprintf(
            stderr,
            "%s, operation %d without a result on %x, saved %d: step %d with %d is loaded: %s\n",
            r->way->name, cut_at, misses, is_saved, (int)step, r->salt, why.message);
    CHECK(!status && (is_new || is_old || was_on_the_way));
    SUCCEEDS(dcp_tiers_continue_from(r->tiers, step, err));
    CHECK(save(r, step + 1, 1) == DCP_OK);
    dcp_tiers_close(r->tiers);
}

static void try_all(const scratch *s, const way *w) {
    run r = {.s = s, .way = w};
    int is_saved, saves = 0, cases = 0;
    snprintf(r.path, sizeof r.path, w->is_private ? "%s/{rank}" : "%s/all", s->root);
    for (int salt = 0; salt < 4; salt++) given_make_few(&r.states[salt], (uint64_t)salt);
    begin(&r);
    const int calls = save_cut(&r, 0, 0, &is_saved);
    CHECK(is_saved && calls > 0);
    for (int cut_at = 1; cut_at <= calls; cut_at++) {
        const unsigned all = (1u << s->size) - 1, last = 1u << (s->size - 1);
        const unsigned misses[] = {1, all & ~1u, all & ~last};
        const int is_near_end = cut_at + 3 > calls; /* where steps are published */
        if (!is_near_end && cut_at % 4) continue;
        for (int i = 0; i < (is_near_end ? 3 : 1); i++) {
            begin(&r);
            save_cut(&r, cut_at, misses[i], &is_saved);
            check_next(&r, is_saved, cut_at, misses[i]);
            saves += is_saved, cases++;
        }
    }
    if (s->rank == 0)
        printf("%s: %d operations, %d cases, saved on some rank in %d\n", w->name, calls, cases,
               saves);
    CHECK(saves > 0);
    for (int salt = 0; salt < 4; salt++) given_free(&r.states[salt]);
}

int main(int argc, char **argv) {
    static const way ways[] = {
        {"shared", 0, NULL, 1, 0},
        {"private", 1, NULL, 1, 0},
        {"partner", 1, "partner", 1, 0},
        {"shared, going back", 0, NULL, 3, 1},
        {"private, going back", 1, NULL, 3, 1},
    };
    scratch s;
    scratch_begin(&s, &argc, &argv);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) try_all(&s, &ways[i]);
    return scratch_end(&s);
}
