/* Ranks that disagree: each gets the same failure, which names what differs; nothing is written,
 * and the next save works. The last rank is the one that errs. */
#include "support/scratch.h"

typedef enum mischief {
    NONE,
    OTHER_NAME,
    NO_TENSOR,
    ONE_MORE,
    OTHER_DTYPE,
    OTHER_SHAPE,
    OTHER_NDIM,
    TWO_ERR, /* the last two ranks, each in a different way */
    OVERLAP,
    HOLE,
    NOBODY, /* no rank holds the scalar */
    OTHER_STEP,
    OTHER_LAYOUT,
    OTHER_ENGINE,
    OTHER_BUSY,
    OTHER_CALL, /* dcp_save_async */
    NO_LAYOUT,
    NO_SIZE,      /* of the options */
    OTHER_SHARDS, /* of layout sharded */
    NO_STATE,
    BAD_JSON, /* rank 0's */
    OLD_STEP, /* all ranks */
    MISCHIEFS
} mischief;

/* %o: the other ranks, "rank 0" or "ranks 0-6"; %a: all ranks; %m, %l: the numbers of the last two;
 * %n: the number of ranks. */
static const struct {
    int status;
    const char *text;
} expected[MISCHIEFS] = {
    [OTHER_NAME] = {DCP_ERR_MISMATCH, "/model/b: I32 [50] on %o, missing on rank %l"},
    [NO_TENSOR] = {DCP_ERR_MISMATCH, "/model/b: I32 [50] on %o, missing on rank %l"},
    [ONE_MORE] = {DCP_ERR_MISMATCH, "/model/z: missing on %o, U8 [0] on rank %l"},
    [OTHER_DTYPE] = {DCP_ERR_MISMATCH, "/model/b: I32 [50] on %o, U32 [50] on rank %l"},
    [OTHER_SHAPE] = {DCP_ERR_MISMATCH, "/model/b: I32 [50] on %o, I32 [51] on rank %l"},
    [OTHER_NDIM] = {DCP_ERR_MISMATCH, "/model/b: I32 [50] on %o, I32 [50, 1] on rank %l"},
    [TWO_ERR] = {DCP_ERR_MISMATCH, "missing on rank %m, U32 [50] on rank %l"},
    [OVERLAP] = {DCP_ERR_MISMATCH, "of rank %l overlap"},
    [HOLE] = {DCP_ERR_MISMATCH,
              "/model/a of shape [80, 3]: its elements [79:80, 0:3] are in no rank's box; "
              "boxes of it are on %a"},
    [NOBODY] = {DCP_ERR_MISMATCH,
                "/model/scalar of shape []: its elements [0:1] are in no rank's box; "
                "boxes of it are on no rank"},
    [OTHER_STEP] = {DCP_ERR_MISMATCH, "the step: 9 on %o, 10 on rank %l"},
    [OTHER_LAYOUT] = {DCP_ERR_MISMATCH, "the layout: "},
    [OTHER_ENGINE] = {DCP_ERR_MISMATCH, "the engine: 0 on %o, 2 on rank %l"},
    [OTHER_BUSY] = {DCP_ERR_MISMATCH, "when_busy: 0 on %o, 1 on rank %l"},
    [OTHER_CALL] = {DCP_ERR_MISMATCH, "the call: "},
    [NO_LAYOUT] = {DCP_ERR_ARG, "layout 2 does not exist"},
    [NO_SIZE] = {DCP_ERR_ARG,
                 "rank %l: a struct's size is 0: was it made without DCP_SAVE_OPTIONS_INIT"},
    [OTHER_SHARDS] = {DCP_ERR_MISMATCH, "the number of shards: %n on %o, 99 on rank %l"},
    [NO_STATE] = {DCP_ERR_ARG, "a state"},
    [BAD_JSON] = {DCP_ERR_ARG, "JSON"},
    [OLD_STEP] = {DCP_ERR_STATE, "step-00000001 exists"},
};

static void insert(const scratch *s, char what, char *out, size_t size) {
    if (what == 'o' && s->size == 2)
        snprintf(out, size, "rank 0");
    else if (what == 'o')
        snprintf(out, size, "ranks 0-%d", s->size - 2);
    else if (what == 'a')
        snprintf(out, size, "ranks 0-%d", s->size - 1);
    else
        snprintf(out, size, "%d", what == 'n' ? s->size : what == 'l' ? s->size - 1 : s->size - 2);
}

/* Inserts the ranks' numbers into the expected text. */
static void expand(const scratch *s, const char *text, char *out, size_t size) {
    for (size_t used = 0; used < size; text++) {
        char piece[32] = {*text};
        if (*text == '%') insert(s, *++text, piece, sizeof piece);
        used += (size_t)snprintf(out + used, size - used, "%s", piece);
        if (!*text) return;
    }
}

static unsigned char memory[4096];

static void add(dcp_state *state, dcp_tensor tensor, dcp_box box) {
    SUCCEEDS(dcp_state_add(state, &tensor, &box, memory, err));
}

static dcp_state *make_state(const scratch *s, mischief what) {
    dcp_state *state = NULL;
    dcp_tensor a = {"/model/a", DCP_F32, 2, {80, 3}}, b = {"/model/b", DCP_I32, 1, {50}},
               c = {"/model/scalar", DCP_F64, 0, {0}}, z = {"/model/z", DCP_U8, 1, {0}};
    int errs = s->rank == s->size - 1;
    SUCCEEDS(dcp_state_create(&state, err));
    dcp_box box = dcp_box_chunk(&a, s->rank, s->size);
    if (errs && what == OVERLAP) box.start[0]--, box.count[0]++;
    if (errs && what == HOLE) box.count[0]--;
    add(state, a, box);
    if (errs && what == OTHER_NAME) b.path = "/model/bb";
    if (errs && (what == OTHER_DTYPE || what == TWO_ERR)) b.dtype = DCP_U32;
    if (errs && what == OTHER_SHAPE) b.shape[0]++;
    if (errs && what == OTHER_NDIM) b.ndim = 2, b.shape[1] = 1;
    int lacks = what == NO_TENSOR ? errs : what == TWO_ERR && s->rank == s->size - 2;
    if (!lacks) add(state, b, dcp_box_chunk(&b, s->rank, s->size));
    box = dcp_box_chunk(&c, s->rank, s->size);
    if (what == NOBODY) box.count[0] = 0;
    add(state, c, box);
    if (errs && what == ONE_MORE) add(state, z, dcp_box_whole(&z));
    return state;
}

static int save(const scratch *s, dcp_store *store, uint64_t step, mischief what,
                dcp_save_options options, dcp_error *err) {
    dcp_state *state = make_state(s, what);
    int errs = s->rank == s->size - 1;
    if (errs && what == OTHER_STEP) step++;
    if (errs && what == OTHER_LAYOUT) options.layout = !options.layout;
    if (errs && what == OTHER_ENGINE) options.engine = DCP_ENGINE_MPIO;
    if (errs && what == OTHER_BUSY) options.when_busy = DCP_BUSY_REFUSE;
    if (errs && what == NO_LAYOUT) options.layout = (dcp_layout)2;
    if (errs && what == NO_SIZE) options.size = 0;
    if (errs && what == OTHER_SHARDS) options.shards = 99;
    const char *json = s->rank == 0 && what == BAD_JSON ? "[1]" : NULL;
    const dcp_state *passed = errs && what == NO_STATE ? NULL : state;
    dcp_saving *saving = NULL;
    int status =
        errs && what == OTHER_CALL
            ? dcp_save_async(store, step, passed, json, &options, &saving, err)
            : dcp_save(store, what == OLD_STEP ? 1 : step, passed, json, &options, NULL, err);
    dcp_state_destroy(state);
    return status;
}

/* Checks that there are only the complete steps 1 to `last`. */
static void check_steps(const scratch *s, const char *dir, uint64_t last) {
    dcp_step *steps;
    size_t n;
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank) return;
    SUCCEEDS(dcp_steps_list(dir, &steps, &n, err));
    CHECK(n == last);
    for (size_t i = 0; i < n; i++) CHECK(steps[i].step == i + 1 && steps[i].kind == 0);
    free(steps);
}

static void check_layout(const scratch *s, dcp_layout layout) {
    char dir[PATH_MAX];
    dcp_store *store;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    snprintf(dir, sizeof dir, "%s/store%d", s->root, (int)layout);
    SUCCEEDS(dcp_store_open(s->comm, dir, NULL, &store, err));
    SUCCEEDS(save(s, store, 1, NONE, options, err));
    uint64_t good = 1;
    for (mischief what = OTHER_NAME; what < MISCHIEFS; what++) {
        if (what == OTHER_SHARDS && layout != DCP_LAYOUT_SHARDED) continue;
        dcp_error failure = {0};
        int status = save(s, store, 9, what, options, &failure);
        char text[256];
        expand(s, expected[what].text, text, sizeof text);
        check_same_failure(status, expected[what].status, &failure, text);
        if (expected[what].status == DCP_ERR_MISMATCH && what < TWO_ERR)
            CHECK(failure.rank == s->size - 1);
        check_steps(s, dir, good);
        if (what % 3) continue; /* also consecutive failures */
        SUCCEEDS(save(s, store, ++good, NONE, options, err));
        check_steps(s, dir, good);
    }
    dcp_store_close(store);
}

/* A save through MPI-IO has no thread: the next save completes it, on all ranks or on none. */
static void check_flight(const scratch *s) {
    char dir[PATH_MAX], text[256];
    dcp_store *store;
    dcp_saving *flight;
    dcp_state *state = make_state(s, NONE);
    dcp_error failure = {0};
    const dcp_save_options options = {.size = sizeof options, .engine = DCP_ENGINE_MPIO};
    snprintf(dir, sizeof dir, "%s/flight", s->root);
    SUCCEEDS(dcp_store_open(s->comm, dir, NULL, &store, err));
    SUCCEEDS(dcp_save_async(store, 1, state, NULL, &options, &flight, err));
    int status = save(s, store, 2, OTHER_BUSY, options, &failure);
    expand(s, expected[OTHER_BUSY].text, text, sizeof text);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, text);
    SUCCEEDS(dcp_save_wait(flight, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);
    check_steps(s, dir, 1);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    check_layout(&s, DCP_LAYOUT_GLOBAL);
    check_layout(&s, DCP_LAYOUT_SHARDED);
    check_flight(&s);
    return scratch_end(&s);
}
