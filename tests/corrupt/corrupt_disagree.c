/* Shards with correct checksums that disagree about the state's tensors: each rank has read one of
 * them, and all ranks get the same status. The checksums by which ranks compare what they have read
 * are forged, too. */
#include "collide.h"
#include "forge.h"
#include "reader/union.h"
#include "support/scratch.h"

#define NAME "/model/" COLLIDE_LETTERS
#define LAST "/z/" COLLIDE_LETTERS
#define JSON "{\"note\":\"" COLLIDE_LETTERS "\"}"
enum { TENSORS = 3, ROW = 1, LAST_ROW = 2, ROW_ELEMS = 6, MOST_RANKS = 3 };

/* Rank r has r + 1 rows of each. */
static dcp_tensor tensors[TENSORS] = {
    {"/a/first", DCP_F32, 2, {0, ROW_ELEMS}},
    {NAME, DCP_F32, 2, {0, ROW_ELEMS}},
    {LAST, DCP_F32, 2, {0, ROW_ELEMS}},
};

static scratch s;
static char step[128];
static const float saved[MOST_RANKS * ROW_ELEMS] = {1, 2, 3};
static float loaded[MOST_RANKS * ROW_ELEMS];

static uint64_t rows_before(int rank) { return (uint64_t)rank * ((uint64_t)rank + 1) / 2; }

static dcp_state *make_state(const float *data) {
    dcp_state *state = NULL;
    const dcp_box box = {{rows_before(s.rank), 0}, {(uint64_t)s.rank + 1, ROW_ELEMS}};
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        tensors[i].shape[0] = rows_before(s.size);
        SUCCEEDS(dcp_state_add(state, &tensors[i], &box, (float *)data, err));
    }
    return state;
}

static void save(void) {
    const dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_state *state = make_state(saved);
    dcp_store *store = scratch_store(&s, s.comm, "store");
    SUCCEEDS(dcp_save(store, 3, state, JSON, &options, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);
}

/* Fails if the step lacks a tensor; otherwise a rank without the tensor would continue. */
static int load(dcp_error *err) {
    const dcp_load_options options = {.size = sizeof options,
                                      .missing_keys = DCP_MISSING_KEYS_KEEP};
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(s.comm, step, &ckpt, err);
    if (status) return status;
    dcp_state *state = make_state(loaded);
    status = dcp_load_with(ckpt, state, &options, NULL, err);
    dcp_state_destroy(state);
    dcp_checkpoint_close(ckpt);
    return status;
}

static char *path_of(forge *f, uint64_t row) { return (char *)f->bytes + forge_row_at(f, row); }

static void set_path(forge *f, uint64_t row, const char *path) {
    memset(path_of(f, row), 0, forge_path_bytes(f));
    strcpy(path_of(f, row), path);
}

static char *letters_of(forge *f, uint64_t row) {
    return path_of(f, row) + strlen(path_of(f, row)) - LETTERS;
}

/* Sets the box of the row's data, in a tensor of other dimensions. */
static void set_dims(forge *f, uint64_t row, uint32_t ndim, const uint64_t *shape,
                     const uint64_t *start, const uint64_t *count) {
    unsigned char *at = f->bytes + forge_column_at(f, row, 0);
    core_put_u32(at + NDIM, ndim);
    for (int d = 0; d < 2; d++) {
        core_put_u64(at + SHAPE + 8 * d, shape[d]);
        core_put_u64(at + START + 8 * d, start[d]);
        core_put_u64(at + COUNT + 8 * d, count[d]);
    }
}

/* The tensor of a forged row. */
static dcp_tensor tensor_of(forge *f, uint64_t row) {
    const unsigned char *at = f->bytes + forge_column_at(f, row, 0);
    return (dcp_tensor){path_of(f, row),
                        DCP_F32,
                        core_get_u32(at + NDIM),
                        {core_get_u64(at + SHAPE), core_get_u64(at + SHAPE + 8)}};
}

static uint64_t fingerprint(dcp_tensor *of, size_t n) {
    const reader_names names = {.list = of, .n = n};
    return reader_names_fingerprint(&names);
}

/* Chooses the letters of the row's name so that the shard, which contains n other tensors, has the
 * fingerprint of the other shards. */
static void match_fingerprint(forge *f, uint64_t row, const dcp_tensor *others, size_t n) {
    const uint64_t wanted = fingerprint(tensors, TENSORS);
    dcp_tensor all[TENSORS];
    memcpy(all, others, n * sizeof *all);
    all[n] = tensor_of(f, row);
    CHECK(collide(letters_of(f, row), wanted ^ fingerprint(all, n + 1)) == 0);
    CHECK(fingerprint(all, n + 1) == wanted);
}

/* The same bytes with a single dimension. */
static void flatten(forge *f) {
    const uint64_t first = forge_column(f, ROW, START), n = forge_column(f, ROW, COUNT);
    set_dims(f, ROW, 1, (uint64_t[]){rows_before(s.size) * ROW_ELEMS, 0},
             (uint64_t[]){first * ROW_ELEMS, 0}, (uint64_t[]){n * ROW_ELEMS, 0});
}

static void rename_tensor(forge *f) {
    match_fingerprint(f, ROW, (dcp_tensor[]){tensors[0], tensors[LAST_ROW]}, 2);
}

static void flatten_renamed(forge *f) {
    flatten(f);
    rename_tensor(f);
}

static void flatten_beside_renamed(forge *f) {
    flatten(f);
    match_fingerprint(f, LAST_ROW, (dcp_tensor[]){tensors[0], tensor_of(f, ROW)}, 2);
}

/* Puts all rows into one row, of which the first rank has fewer than its tensor's shape says. */
static void reshape_renamed(forge *f) {
    const uint64_t first = forge_column(f, ROW, START), n = forge_column(f, ROW, COUNT);
    set_dims(f, ROW, 2, (uint64_t[]){1, rows_before(s.size) * ROW_ELEMS},
             (uint64_t[]){0, first * ROW_ELEMS}, (uint64_t[]){1, n * ROW_ELEMS});
    rename_tensor(f);
}

/* Makes the third tensor of all other shards the second one. */
static void shift_names(forge *f) {
    set_path(f, ROW, LAST);
    set_path(f, LAST_ROW, "/zz/" COLLIDE_LETTERS);
    match_fingerprint(f, LAST_ROW, (dcp_tensor[]){tensors[0], tensors[LAST_ROW]}, 2);
}

/* Makes the second tensor's row another row of the first tensor. */
static void drop_name(forge *f) {
    set_path(f, ROW, "/a/first@1");
    match_fingerprint(f, LAST_ROW, tensors, 1);
}

/* A path from which, without its suffix, a name remains that no tensor can have. */
static void name_no_tensor(forge *f) { set_path(f, ROW, "/b/..@1"); }

static void change_meta(forge *f) {
    char *meta = (char *)f->bytes + forge_at(f, UB_META);
    char *letters = memmem(meta, forge_length(f, UB_META), COLLIDE_LETTERS, LETTERS);
    CHECK(letters && collide(letters, 0) == 0);
}

typedef struct forgery {
    void (*change)(forge *f);
    int status;
    const char *part; /* of the message */
} forgery;

static const forgery forgeries[] = {
    {flatten, DCP_ERR_CORRUPT, "tensor " NAME ": files differ in its shape"},
    {rename_tensor, DCP_ERR_CORRUPT, "although their checksums are equal"},
    {flatten_renamed, DCP_ERR_MISMATCH, "a rank sent an invalid row of a shard's index"},
    {flatten_beside_renamed, DCP_ERR_MISMATCH, "a rank sent an invalid row of a shard's index"},
    {reshape_renamed, DCP_ERR_MISMATCH, "its home sent invalid numbers"},
    {shift_names, DCP_ERR_CORRUPT, "although their checksums are equal"},
    {drop_name, DCP_ERR_CORRUPT, "the shards don't cover it exactly once"},
    {name_no_tensor, DCP_ERR_CORRUPT, "row 1 is not valid: it has an empty, '.' or '..' component"},
    {change_meta, DCP_ERR_CORRUPT, "although their checksums are equal"},
};

static void forge_shards(const forgery *how, int first, int end, forge *f) {
    for (int i = first; i < end; i++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", i, s.size);
        CHECK(forge_open(&f[i], step, name) == 0);
        how->change(&f[i]);
        CHECK(forge_put(&f[i]) == 0);
    }
}

static void restore_shards(int first, int end, forge *f) {
    for (int i = first; i < end; i++) {
        CHECK(forge_restore(&f[i]) == 0);
        forge_close(&f[i]);
    }
}

/* The shards from `first` to before `end` are forged in the same way. */
static void check(const forgery *how, int first, int end) {
    forge f[MOST_RANKS];
    dcp_error failure = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    if (s.rank == 0) forge_shards(how, first, end, f);
    MPI_Barrier(MPI_COMM_WORLD);
    check_same_failure(load(&failure), how->status, &failure, how->part);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s.rank == 0) restore_shards(first, end, f);
}

int main(int argc, char **argv) {
    scratch_begin(&s, &argc, &argv);
    alarm(120); /* a rank that waits is a failure */
    CHECK(s.size <= MOST_RANKS);
    snprintf(step, sizeof step, "%s/store/step-00000003", s.root);
    save();
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        check(&forgeries[i], 0, 1);
        check(&forgeries[i], 1, s.size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    SUCCEEDS(load(err));
    CHECK(!memcmp(saved, loaded, ((size_t)s.rank + 1) * ROW_ELEMS * sizeof *saved));
    return scratch_end(&s);
}
