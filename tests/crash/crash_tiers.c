/* A list of two stores in the crash matrix: DIR/node-R for each rank, with redundancy, which is
 * saved into, and DIR/shared, which is filled from there in the background.
 *
 *   crash_tiers save DIR STEP [again]   saves a state whose content is a function of STEP into
 *                                       both; again: once more if a store lacks it, which must work
 *   crash_tiers next DIR                loads the newest step, compares it with its expected
 *                                       content and prints it; then saves the next step into both
 *                                       stores, each of which must load
 *
 * Exit status: as crash_state. */
#include "dcp/tiers.h"
#include "support/scratch.h"

typedef struct stores {
    char nodes[PATH_MAX], shared[PATH_MAX];
    dcp_tier list[2];
} stores;

static int report(const scratch *s, const dcp_error *err) {
    if (s->rank == 0) fprintf(stderr, "status %d: %s\n", err->status, err->message);
    return 3;
}

static void log_line(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    fprintf(stderr, "log: %s\n", line);
}

static int open_stores(const scratch *s, const char *dir, stores *at, dcp_tiers **tiers,
                       dcp_error *err) {
    dcp_tiers_options options = {.size = sizeof options, .log = log_line};
    snprintf(at->nodes, sizeof at->nodes, "%s/node-{rank}", dir);
    snprintf(at->shared, sizeof at->shared, "%s/shared", dir);
    at->list[0] = (dcp_tier){.size = sizeof(dcp_tier),
                             .path = at->nodes,
                             .every = 1,
                             .is_private = 1,
                             .redundancy = "partner",
                             .domain = "{rank}"};
    at->list[1] = (dcp_tier){.size = sizeof(dcp_tier), .path = at->shared, .every = 1};
    return dcp_tiers_open(s->comm, at->list, 2, &options, tiers, err);
}

typedef struct holding {
    given g;
    held h;
} holding;

static void hold(const scratch *s, uint64_t step, scheme how, int filled, holding *out) {
    given_make(&out->g, step);
    held_make(&out->h, &out->g, how, s->rank, s->size, filled);
}

static void let_go(holding *which) {
    held_free(&which->h);
    given_free(&which->g);
}

/* After the fence the caller may change the memory. */
static int save_beside(const scratch *s, dcp_tiers *tiers, uint64_t step, dcp_error *err) {
    holding mine;
    hold(s, step, FEW_ROWS, 1, &mine);
    int status = dcp_tiers_save_async(tiers, step, mine.h.state, NULL, NULL, err);
    dcp_tiers_fence(tiers);
    for (size_t i = 0; i < mine.h.n; i++) {
        const dcp_tensor *t = &mine.g.tensors[mine.h.boxes[i].tensor];
        memset(mine.h.boxes[i].data, 0xdd,
               dcp_box_elems(&mine.h.boxes[i].box, t->ndim) * dcp_dtype_bytes(t->dtype));
    }
    if (!status) status = dcp_tiers_wait(tiers, NULL, err);
    let_go(&mine);
    return status;
}

static int save_again(const scratch *s, dcp_tiers *tiers, uint64_t step, dcp_error *err) {
    holding mine;
    hold(s, step, FEW_ROWS, 1, &mine);
    int status = dcp_tiers_save(tiers, step, mine.h.state, NULL, NULL, 1, NULL, err);
    let_go(&mine);
    return status;
}

static int save(const scratch *s, const char *dir, uint64_t step, int again) {
    stores at;
    dcp_tiers *tiers = NULL;
    dcp_error err = {0};
    int status = open_stores(s, dir, &at, &tiers, &err);
    if (!status) status = save_beside(s, tiers, step, &err);
    if (status) status = report(s, &err);
    if (again) {
        if (!tiers && open_stores(s, dir, &at, &tiers, &err)) return report(s, &err);
        if (save_again(s, tiers, step, &err))
            status = report(s, &err);
        else if (status)
            status = 4;
    }
    dcp_tiers_close(tiers);
    return status;
}

typedef struct loading {
    const scratch *s;
    int bad;
} loading;

static int load(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    loading *l = ctx;
    holding mine;
    hold(l->s, dcp_checkpoint_step(ckpt), FEW_COLUMNS, 0, &mine);
    int status = dcp_load(ckpt, mine.h.state, NULL, err);
    l->bad = status == DCP_OK && !held_is_given(&mine.h, &mine.g);
    let_go(&mine);
    return status;
}

/* The newest step in this store only. */
static int load_from(const scratch *s, const stores *at, size_t i, loading *l, uint64_t *step,
                     dcp_error *err) {
    char own[PATH_MAX + 16];
    dcp_checkpoint *ckpt = NULL;
    snprintf(own, sizeof own, "%.*s%d", (int)(strlen(at->nodes) - strlen("{rank}")), at->nodes,
             s->rank);
    int status = i ? dcp_checkpoint_open(s->comm, at->shared, &ckpt, err)
                   : dcp_checkpoint_open_private(s->comm, own, &ckpt, err);
    if (status) return status;
    status = load(l, ckpt, err);
    *step = dcp_checkpoint_step(ckpt);
    dcp_checkpoint_close(ckpt);
    return status;
}

static int agreed(int value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

static int next(const scratch *s, const char *dir) {
    stores at;
    dcp_tiers *tiers = NULL;
    dcp_error err = {0};
    loading l = {.s = s};
    uint64_t step = 0, found = 0;
    int status = open_stores(s, dir, &at, &tiers, &err);
    if (!status) status = dcp_tiers_load(tiers, load, &l, &step, &err);
    if (agreed(l.bad)) return 1;
    if (!status && s->rank == 0) printf("%d\n", (int)step);
    if (!status) status = save_again(s, tiers, step + 1, &err);
    dcp_tiers_close(tiers);
    for (size_t i = 0; i < 2 && !status; i++) {
        status = load_from(s, &at, i, &l, &found, &err);
        if (agreed(l.bad) || (!status && found != step + 1)) return 1;
    }
    if (!status && s->rank == 0) printf("%d\n", (int)step + 1);
    return status ? report(s, &err) : 0;
}

int main(int argc, char **argv) {
    int level;
    scratch s = {0};
    if (argc < 3 || (!strcmp(argv[1], "save") && argc < 4)) return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &s.comm, NULL) == DCP_OK);
    s.rank = dcp_comm_rank(s.comm);
    s.size = dcp_comm_size(s.comm);
    int status = !strcmp(argv[1], "next")
                     ? next(&s, argv[2])
                     : save(&s, argv[2], strtoull(argv[3], NULL, 10), argc > 4);
    dcp_comm_destroy(s.comm);
    MPI_Finalize();
    return status;
}
