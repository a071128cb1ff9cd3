/* Impossible loads: all ranks get the same failure, which names tensor and reason, and the same
 * checkpoint can be loaded afterwards. */
#include <sys/stat.h>

#include "support/scratch.h"

static unsigned char memory[64];

static int load_one(dcp_checkpoint *ckpt, const dcp_tensor *tensor, dcp_error *err) {
    dcp_state *state = NULL;
    dcp_box none = {{0}, {0}};
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    CHECK(dcp_state_add(state, tensor, &none, memory, NULL) == DCP_OK);
    int status = dcp_load(ckpt, state, NULL, err);
    dcp_state_destroy(state);
    return status;
}

/* Only the last rank requests something else than the others. */
static void what_is_not_there(const scratch *s, dcp_checkpoint *ckpt) {
    static const dcp_tensor right = {"/model/uneven", DCP_F32, 2, {13, 7}};
    static const struct {
        dcp_tensor tensor;
        int status;
        const char *text;
    } wrong[] = {
        {{"/model/none", DCP_F32, 2, {13, 7}}, DCP_ERR_NOT_FOUND, "/model/none is not in"},
        {{"/model/uneven", DCP_I32, 2, {13, 7}}, DCP_ERR_MISMATCH, "is F32 [13, 7] in the check"},
        {{"/model/uneven", DCP_F32, 2, {14, 7}}, DCP_ERR_MISMATCH, "F32 [14, 7] is requested"},
        {{"/model/uneven", DCP_F32, 1, {13}}, DCP_ERR_MISMATCH, "/model/uneven"},
        {{"/model/scalar", DCP_F32, 0, {0}}, DCP_ERR_MISMATCH, "/model/scalar: missing on rank"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (s->size == 1 && i == 4) continue; /* no other rank to disagree with */
        dcp_error failure = {0};
        int last = s->rank == s->size - 1;
        int status = load_one(ckpt, last ? &wrong[i].tensor : &right, &failure);
        check_same_failure(status, wrong[i].status, &failure, wrong[i].text);
    }
    dcp_error failure = {0};
    int status =
        s->rank == 0 ? dcp_load(ckpt, NULL, NULL, &failure) : load_one(ckpt, &right, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "a state");
    SUCCEEDS(load_one(ckpt, &right, err));
}

static void by_different_engines(const scratch *s, dcp_checkpoint *ckpt) {
    dcp_state *state = NULL;
    dcp_error failure = {0};
    dcp_load_options options = {.size = sizeof options,
                                .engine = s->rank ? DCP_ENGINE_MPIO : DCP_ENGINE_DIRECT};
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    int status = dcp_load_with(ckpt, state, &options, NULL, &failure);
    if (s->size > 1) check_same_failure(status, DCP_ERR_MISMATCH, &failure, "engine: 1 on rank 0");
    options.engine = DCP_ENGINE_DIRECT;
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    dcp_state_destroy(state);
}

static int no_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)ctx, (void)offset, (void)bytes, (void)out, (void)err;
    return DCP_OK;
}

static void into_a_source(dcp_checkpoint *ckpt) {
    dcp_state *state = NULL;
    dcp_error failure = {0};
    dcp_tensor t = {"/model/uneven", DCP_F32, 2, {13, 7}};
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    CHECK(dcp_state_add_source(state, &t, NULL, no_source, NULL, -1, NULL) == DCP_OK);
    check_same_failure(dcp_load(ckpt, state, NULL, &failure), DCP_ERR_ARG, &failure, "a source");
    dcp_state_destroy(state);
}

/* The file loses its end after it was opened: the rank that owns the region cannot read it. */
static void a_read_error(const scratch *s, dcp_checkpoint *ckpt, const given *g, scheme how) {
    char path[PATH_MAX];
    struct stat st;
    held h;
    dcp_error failure = {0};
    snprintf(path, sizeof path, "%s/state.h5", dcp_checkpoint_path(ckpt));
    CHECK(stat(path, &st) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) CHECK(truncate(path, st.st_size / 2 / 4096 * 4096) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    held_make(&h, g, how, s->rank, s->size, 0);
    int status = dcp_load(ckpt, h.state, NULL, &failure);
    check_same_failure(status, DCP_ERR_IO, &failure, path);
    CHECK(failure.rank >= 0 && failure.rank < s->size);
    held_free(&h);
}

static void what_can_not_be_opened(const scratch *s) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_error failure = {0};
    snprintf(dir, sizeof dir, "%s/nowhere", s->root);
    check_same_failure(dcp_checkpoint_open(s->comm, dir, &ckpt, &failure), DCP_ERR_NOT_FOUND,
                       &failure, "nowhere");
    check_same_failure(dcp_checkpoint_open(s->comm, "/dev/null", &ckpt, &failure), DCP_ERR_ARG,
                       &failure, "/dev/null");
    check_same_failure(dcp_checkpoint_open(s->comm, s->rank ? dir : NULL, &ckpt, &failure),
                       DCP_ERR_ARG, &failure, "a path");
    snprintf(dir, sizeof dir, "%s/step-00000077", s->root);
    if (s->rank == 0) CHECK(mkdir(dir, 0777) == 0);
    check_same_failure(dcp_checkpoint_open(s->comm, dir, &ckpt, &failure), DCP_ERR_CORRUPT,
                       &failure, "state.h5 is missing");
    CHECK(!ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    what_can_not_be_opened(&s);
    scratch_save(&s, s.comm, "many-step-runs-of-mine", &g, ROWS, DCP_LAYOUT_GLOBAL);
    dcp_checkpoint *ckpt = scratch_open(&s, s.comm, "many-step-runs-of-mine");
    what_is_not_there(&s, ckpt);
    into_a_source(ckpt);
    by_different_engines(&s, ckpt);
    scratch_load(&s, s.comm, "many-step-runs-of-mine", &g, BLOCKS);
    a_read_error(&s, ckpt, &g, ROWS);
    a_read_error(&s, ckpt, &g, COLUMNS);
    a_read_error(&s, ckpt, &g, CORNERS);
    dcp_checkpoint_close(ckpt);
    given_free(&g);
    return scratch_end(&s);
}
