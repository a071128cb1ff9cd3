/* What the crash tests run:
 *   crash_state save DIR STEP [sharded]   saves a state whose content is a function of STEP
 *   crash_state check DIR                 loads the newest step, compares it with what its content
 *                                         must be, verifies every byte, and prints the step
 *   crash_state next DIR                  does that, then saves the step after it and checks that
 * Exit status: 0, 1 where the content is a mix or damaged, 3 where the library reported a failure.
 */
#include "scratch.h"

static int report(const scratch *s, const dcp_error *err) {
    if (s->rank == 0) fprintf(stderr, "status %d: %s\n", err->status, err->message);
    return 3;
}

static void log_line(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    fprintf(stderr, "log: %s\n", line);
}

static int save(const scratch *s, const char *dir, uint64_t step, dcp_layout layout) {
    given g;
    held h;
    dcp_store *store;
    dcp_error err = {0};
    dcp_store_options options = {.log = log_line};
    dcp_save_options how = {.layout = layout};
    given_make(&g, step);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    if (dcp_store_open(s->comm, dir, &options, &store, &err)) return report(s, &err);
    int status = dcp_save(store, step, h.state, GIVEN_JSON, &how, NULL, &err);
    dcp_store_close(store);
    held_free(&h);
    given_free(&g);
    return status ? report(s, &err) : 0;
}

static int check(const scratch *s, const char *dir) {
    given g;
    held h;
    dcp_checkpoint *ckpt;
    dcp_error err = {0};
    if (dcp_checkpoint_open(s->comm, dir, &ckpt, &err)) return report(s, &err);
    uint64_t step = dcp_checkpoint_step(ckpt);
    given_make(&g, step);
    held_make(&h, &g, COLUMNS, s->rank, s->size, 0);
    if (dcp_load(ckpt, h.state, NULL, &err)) return report(s, &err);
    int same = held_is_given(&h, &g);
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (s->rank == 0 && dcp_verify(dcp_checkpoint_path(ckpt), NULL, &err)) return report(s, &err);
    if (s->rank == 0) printf("%d\n", (int)step);
    held_free(&h);
    given_free(&g);
    dcp_checkpoint_close(ckpt);
    return same ? 0 : 1;
}

static int run(const scratch *s, int argc, char **argv) {
    const char *what = argv[1], *dir = argv[2];
    dcp_step *steps = NULL;
    size_t n = 0;
    if (!strcmp(what, "check")) return check(s, dir);
    if (!strcmp(what, "save"))
        return save(s, dir, strtoull(argv[3], NULL, 10),
                    argc > 4 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL);
    int status = check(s, dir);
    if (status) return status;
    SUCCEEDS(dcp_steps_list(dir, &steps, &n, err));
    uint64_t step = 0;
    for (size_t i = 0; i < n; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE) step = steps[i].step;
    free(steps);
    MPI_Barrier(MPI_COMM_WORLD);
    status = save(s, dir, step + 1, DCP_LAYOUT_GLOBAL);
    return status ? status : check(s, dir);
}

int main(int argc, char **argv) {
    scratch s;
    if (argc < 3 || (!strcmp(argv[1], "save") && argc < 4)) return 2;
    MPI_Init(&argc, &argv);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &s.comm, NULL) == DCP_OK);
    s.rank = dcp_comm_rank(s.comm);
    s.size = dcp_comm_size(s.comm);
    int status = run(&s, argc, argv);
    dcp_comm_destroy(s.comm);
    MPI_Finalize();
    return status;
}
