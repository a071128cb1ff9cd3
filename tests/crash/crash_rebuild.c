/* What crash_rebuild.py runs on two ranks, each on a node of its own, with a private store that has
 * redundancy:
 *
 *   crash_rebuild save DIR STEP   saves a state whose content is a function of STEP
 *   crash_rebuild rebuild DIR     completes the newest step
 *   crash_rebuild check DIR       does that, loads it, compares it with its expected content,
 *                                 looks for about.json and leftovers, and prints the step
 *   crash_rebuild next DIR        does that, saves the step after it and checks that
 *
 * Exit status: 0; 1 if the content is a mix or something is left over; 3 if the library reported a
 * failure. */
#include <dirent.h>

#include "support/scratch.h"

static int report(const scratch *s, const dcp_error *err) {
    if (s->rank == 0) fprintf(stderr, "status %d: %s\n", err->status, err->message);
    return 3;
}

static void own_dir(const scratch *s, const char *dir, char *own) {
    CHECK(snprintf(own, PATH_MAX, "%s/node-%d", dir, s->rank) < PATH_MAX);
}

static int open_store(const scratch *s, const char *dir, dcp_store **store, dcp_error *err) {
    char own[PATH_MAX], domain[32];
    dcp_store_options options = {.size = sizeof options,
                                 .private_dirs = 1,
                                 .redundancy = "rs(1)",
                                 .keep = 3,
                                 .domain = domain};
    snprintf(domain, sizeof domain, "node-%d", s->rank);
    own_dir(s, dir, own);
    return dcp_store_open(s->comm, own, &options, store, err);
}

static int save(const scratch *s, const char *dir, uint64_t step) {
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_store *store = NULL;
    dcp_error err = {0};
    given g;
    held h;
    given_make(&g, step);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    int status = open_store(s, dir, &store, &err);
    if (!status) status = dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, &err);
    if (status) status = report(s, &err);
    dcp_store_close(store);
    held_free(&h);
    given_free(&g);
    return status;
}

static int rebuild(const scratch *s, const char *dir, uint64_t *step) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    int status = open_store(s, dir, &store, &err);
    if (!status) status = dcp_store_rebuild(store, 1, step, NULL, &err);
    dcp_store_close(store);
    return status ? report(s, &err) : 0;
}

static int load(const scratch *s, const char *dir, uint64_t expected) {
    char own[PATH_MAX];
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    given g;
    held h;
    own_dir(s, dir, own);
    given_make(&g, expected);
    held_make(&h, &g, COLUMNS, s->rank, s->size, 0);
    if (dcp_checkpoint_open_private(s->comm, own, &ckpt, &err)) return report(s, &err);
    int bad = dcp_checkpoint_step(ckpt) != expected;
    if (!bad && dcp_load(ckpt, h.state, NULL, &err)) return report(s, &err);
    bad = bad || !held_is_given(&h, &g);
    if (bad) fprintf(stderr, "step %d loads, or a mix\n", (int)dcp_checkpoint_step(ckpt));
    dcp_checkpoint_close(ckpt);
    held_free(&h);
    given_free(&g);
    return bad;
}

/* Left over from a publication; what an interrupted rebuild wrote has its own temporary name in the
 * step. */
static int has_left_overs(const scratch *s, const char *dir) {
    char own[PATH_MAX];
    int left = 0;
    own_dir(s, dir, own);
    DIR *stream = opendir(own);
    CHECK(stream);
    for (struct dirent *e; (e = readdir(stream));)
        if (!strncmp(e->d_name, ".tmp", 4) || !strncmp(e->d_name, ".trash", 6)) left = 1;
    closedir(stream);
    return left;
}

/* Returns 1 unless this node's folder of the step has about.json. */
static int lacks_about(const scratch *s, const char *dir, uint64_t step) {
    char own[PATH_MAX], folder[PATH_MAX + 32], *text;
    dcp_error err = {0};
    own_dir(s, dir, own);
    snprintf(folder, sizeof folder, "%s/step-%08d", own, (int)step);
    if (dcp_about_read(folder, &text, &err)) return report(s, &err);
    free(text);
    return 0;
}

static int check(const scratch *s, const char *dir, uint64_t *step) {
    int status = rebuild(s, dir, step);
    if (status) return status;
    status = load(s, dir, *step);
    if (!status) status = lacks_about(s, dir, *step);
    if (!status) status = has_left_overs(s, dir);
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!status && s->rank == 0) printf("%d\n", (int)*step);
    return status;
}

static int run(const scratch *s, int argc, char **argv) {
    uint64_t step;
    const char *dir = argv[2];
    if (!strcmp(argv[1], "save") && argc == 4) return save(s, dir, strtoull(argv[3], NULL, 10));
    if (!strcmp(argv[1], "rebuild")) return rebuild(s, dir, &step);
    int status = check(s, dir, &step);
    if (status || strcmp(argv[1], "next")) return status;
    status = save(s, dir, step + 1);
    return status ? status : check(s, dir, &step);
}

int main(int argc, char **argv) {
    scratch s = {.size = 1};
    if (argc < 3) return 2;
    MPI_Init(&argc, &argv);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &s.comm, NULL) == DCP_OK);
    s.rank = dcp_comm_rank(s.comm);
    s.size = dcp_comm_size(s.comm);
    int status = run(&s, argc, argv);
    dcp_comm_destroy(s.comm);
    MPI_Finalize();
    return status;
}
