/* Checkpoints that an older version wrote (tests/data/format-1/README.md) load, verify, and are
 * written again byte for byte. With a folder as argument, on 3 ranks, this program writes them
 * there. */
#include <sys/stat.h>

#include "dcp/rewrite.h"
#include "support/private_files.h"

#define STEP 7
#define SHARD "shard-%05d-of-00003.h5"
#define OLD TEST_DATA "/format-1"
#define JSON                                                                                       \
    "{\"lr\":0.1,\"eps\":1e-8,\"tiny\":5e-324,\"huge\":1.7976931348623157e308,\"minus\":-0.0,"     \
    "\"third\":0.33333333333333331,\"one\":1.0,\"most\":9223372036854775807,"                      \
    "\"least\":-9223372036854775808,\"yes\":true,\"no\":false,\"nothing\":null,"                   \
    "\"text\":\"\\\"quoted\\\" \\u0001 größe \\ud83d\\ude00\",\"empty\":{\"a\":[],\"b\":{}},"    \
    "\"model\":{\"model_type\":\"qwen3\",\"sizes\":[1,[2,[3.5,{\"deep\":[null]}]]]}}"

static const dcp_tensor tensors[] = {
    {"/files/notes.txt", DCP_U8, 1, {777}},
    {"/files/sub/größe.json", DCP_U8, 1, {3}},
    {"/model/columns", DCP_F32, 2, {5, 7}},
    {"/model/copy", DCP_BF16, 2, {4, 9}},
    {"/model/eight", DCP_U16, 8, {2, 1, 2, 1, 2, 1, 2, 3}},
    {"/model/empty", DCP_F32, 2, {0, 4}},
    {"/model/large", DCP_F32, 2, {6, 600}},
    {"/model/none", DCP_F64, 0, {0}},
    {"/model/parts.of.two", DCP_F32, 2, {6, 3}},
    {"/model/types/bf16", DCP_BF16, 2, {5, 3}},
    {"/model/types/bool", DCP_BOOL, 2, {5, 3}},
    {"/model/types/f16", DCP_F16, 2, {5, 3}},
    {"/model/types/f32", DCP_F32, 2, {5, 3}},
    {"/model/types/f64", DCP_F64, 2, {5, 3}},
    {"/model/types/f8_e4m3", DCP_F8_E4M3, 2, {5, 3}},
    {"/model/types/f8_e5m2", DCP_F8_E5M2, 2, {5, 3}},
    {"/model/types/i16", DCP_I16, 2, {5, 3}},
    {"/model/types/i32", DCP_I32, 2, {5, 3}},
    {"/model/types/i64", DCP_I64, 2, {5, 3}},
    {"/model/types/i8", DCP_I8, 2, {5, 3}},
    {"/model/types/u16", DCP_U16, 2, {5, 3}},
    {"/model/types/u32", DCP_U32, 2, {5, 3}},
    {"/model/types/u64", DCP_U64, 2, {5, 3}},
    {"/model/types/u8", DCP_U8, 2, {5, 3}},
    {"/optimizer/exp_avg/large", DCP_F32, 2, {6, 6}},
    {"/optimizer/step", DCP_I64, 0, {0}},
};
enum { TENSORS = sizeof tensors / sizeof *tensors, BOXES = TENSORS + 1 };

typedef struct old_state {
    dcp_state *state;
    unsigned char *data[BOXES], *want[BOXES];
    uint64_t bytes[BOXES];
    int n;
} old_state;

/* Bytes of all kinds; booleans are 0 or 1. */
static void fill(size_t t, uint64_t element, unsigned char *out) {
    for (uint64_t b = 0; b < dcp_dtype_bytes(tensors[t].dtype); b++) {
        uint64_t z = (t * 100003 + element * 8 + b + 1) * 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9ULL;
        out[b] = (unsigned char)(z >> 56);
        if (tensors[t].dtype == DCP_BOOL) out[b] &= 1;
    }
}

static void hold(old_state *s, size_t t, const dcp_box *box, int filled) {
    const dcp_tensor *tensor = &tensors[t];
    uint64_t size = dcp_dtype_bytes(tensor->dtype), n = dcp_box_elems(box, tensor->ndim);
    unsigned char *want = calloc(n + 1, size), *data = calloc(n + 1, size);
    CHECK(want && data);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = 0, stride = 1, rest = i;
        for (uint32_t d = tensor->ndim; d-- > 0; stride *= tensor->shape[d]) {
            element += (box->start[d] + rest % box->count[d]) * stride;
            rest /= box->count[d];
        }
        fill(t, element, want + i * size);
    }
    if (filled) memcpy(data, want, n * size);
    SUCCEEDS(dcp_state_add(s->state, tensor, box, data, err));
    s->want[s->n] = want;
    s->data[s->n] = data;
    s->bytes[s->n++] = n * size;
}

/* Rows, except for a tensor in columns, one that all hold, and one of which a rank has two
 * boxes. */
static void make(old_state *s, int rank, int size, int filled) {
    s->n = 0;
    SUCCEEDS(dcp_state_create(&s->state, err));
    for (size_t t = 0; t < TENSORS; t++) {
        const char *path = tensors[t].path;
        dcp_box box = dcp_box_chunk(&tensors[t], rank, size);
        if (strcmp(path, "/model/copy") == 0) box = dcp_box_whole(&tensors[t]);
        if (strcmp(path, "/model/columns") == 0) {
            dcp_tensor line = {"/model/line", DCP_U8, 1, {tensors[t].shape[1]}};
            dcp_box part = dcp_box_chunk(&line, rank, size);
            box = dcp_box_whole(&tensors[t]);
            box.start[1] = part.start[0];
            box.count[1] = part.count[0];
        }
        if (size == 3 && strcmp(path, "/model/parts.of.two") == 0) {
            box.start[0] = (uint64_t)rank;
            box.count[0] = 1;
            hold(s, t, &box, filled);
            box.start[0] += 3;
        }
        hold(s, t, &box, filled);
    }
}

static int end(old_state *s) {
    int same = 1;
    for (int i = 0; i < s->n; i++) {
        same = same && memcmp(s->data[i], s->want[i], s->bytes[i]) == 0;
        free(s->data[i]);
        free(s->want[i]);
    }
    dcp_state_destroy(s->state);
    return same;
}

static const char *const domains[] = {"a", "b", "c"};

/* redundancy: NULL for a shared store, otherwise a private one. Steps in it are replaced. */
static dcp_store *open_store(const scratch *s, const char *dir, const char *redundancy) {
    dcp_store *store = NULL;
    dcp_store_options options = DCP_STORE_OPTIONS_INIT;
    options.keep_latest = options.replace = 1;
    options.redundancy = redundancy;
    options.private_dirs = redundancy != NULL;
    if (redundancy) options.domain = domains[s->rank];
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    return store;
}

static void save(const scratch *s, const char *dir, dcp_layout layout, dcp_engine engine,
                 const char *redundancy) {
    old_state state;
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    options.layout = layout;
    options.engine = engine;
    dcp_store *store = open_store(s, dir, redundancy);
    make(&state, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, STEP, state.state, JSON, &options, NULL, err));
    dcp_store_close(store);
    CHECK(end(&state));
}

/* path: for a private store, this rank's. */
static void check_loads(const scratch *s, const char *path, int is_private) {
    old_state state;
    dcp_checkpoint *ckpt = NULL;
    if (is_private)
        SUCCEEDS(dcp_checkpoint_open_private(s->comm, path, &ckpt, err));
    else
        SUCCEEDS(dcp_checkpoint_open(s->comm, path, &ckpt, err));
    CHECK(dcp_checkpoint_step(ckpt) == STEP && dcp_checkpoint_tensors(ckpt) == TENSORS);
    make(&state, s->rank, s->size, 0);
    SUCCEEDS(dcp_load(ckpt, state.state, NULL, err));
    CHECK(end(&state));
    dcp_checkpoint_close(ckpt);
}

static void check_verifies(const char *dir) {
    char path[PATH_MAX];
    CHECK(snprintf(path, sizeof path, "%s/step-%08d", dir, STEP) < PATH_MAX);
    SUCCEEDS(dcp_verify(path, NULL, err));
}

/* Checks that a file has the same bytes in both folders' steps. */
static void check_file(const char *old_dir, const char *dir, const char *name) {
    char a[PATH_MAX], b[PATH_MAX];
    size_t n = 0, m = 0;
    CHECK(snprintf(a, sizeof a, "%s/step-%08d/%s", old_dir, STEP, name) < PATH_MAX);
    CHECK(snprintf(b, sizeof b, "%s/step-%08d/%s", dir, STEP, name) < PATH_MAX);
    unsigned char *one = private_read(a, &n), *two = private_read(b, &m);
    if (!one || !two || n != m || memcmp(one, two, n) != 0) {
        fprintf(stderr, "%s and %s differ\n", a, b);
        CHECK(!"the same bytes");
    }
    free(one);
    free(two);
}

static void check_shards(const char *dir) {
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, SHARD, i);
        check_file(OLD "/sharded", dir, name);
    }
}

/* The old step as its own version laid it out, saved by this version. */
static void check_shared(const scratch *s) {
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/shared", s->root);
    for (int engine = DCP_ENGINE_DIRECT; engine <= DCP_ENGINE_MPIO; engine++) {
        save(s, dir, DCP_LAYOUT_GLOBAL, (dcp_engine)engine, NULL);
        if (s->rank == 0) check_file(OLD "/global", dir, "state.h5");
        MPI_Barrier(MPI_COMM_WORLD);
        if (s->size != 3) continue;
        save(s, dir, DCP_LAYOUT_SHARDED, (dcp_engine)engine, NULL);
        if (s->rank == 0) check_shards(dir);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* From disk to disk: the joined shards are the one file. */
static void check_rewritten(const scratch *s) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    snprintf(dir, sizeof dir, "%s/rewritten", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, OLD "/sharded", &ckpt, err));
    dcp_store *store = open_store(s, dir, NULL);
    SUCCEEDS(dcp_rewrite(ckpt, store, NULL, NULL, err));
    dcp_store_close(store);
    dcp_checkpoint_close(ckpt);
    if (s->rank == 0) check_file(OLD "/global", dir, "state.h5");
}

/* Makes one file of the others' bytes, one after the other. */
static void join(const char *to, const char *first, const char *second) {
    size_t n = 0, m = 0;
    unsigned char *one = private_read(first, &n), *two = second ? private_read(second, &m) : NULL;
    CHECK(one && (two || !second));
    one = realloc(one, n + m);
    CHECK(one);
    if (two) memcpy(one + n, two, m);
    private_write(to, one, n + m);
    free(one);
    free(two);
}

/* Puts a rank's old folder of a redundancy into dir. Its shard is that of "sharded"; of a partner's
 * file, whose strip is the previous rank's shard, only the head is stored. */
static void assemble(const scratch *s, const char *kind, const char *dir) {
    char from[PATH_MAX], to[PATH_MAX], before[PATH_MAX], step[32];
    snprintf(step, sizeof step, "step-%08d", STEP);
    CHECK(snprintf(to, sizeof to, "%s/%s", dir, step) < PATH_MAX);
    CHECK(mkdir(dir, 0777) == 0 && mkdir(to, 0777) == 0);
    CHECK(snprintf(to, sizeof to, "%s/%s/" SHARD, dir, step, s->rank) < PATH_MAX);
    snprintf(from, sizeof from, "%s/sharded/%s/" SHARD, OLD, step, s->rank);
    join(to, from, NULL);
    CHECK(snprintf(to, sizeof to, "%s/%s/about.json", dir, step) < PATH_MAX);
    snprintf(from, sizeof from, "%s/%s/%d/about.json", OLD, kind, s->rank);
    join(to, from, NULL);
    int is_partner = strcmp(kind, "partner") == 0;
    CHECK(snprintf(to, sizeof to, "%s/%s/%s-%05d-of-00003.bin", dir, step, kind, s->rank) <
          PATH_MAX);
    snprintf(from, sizeof from, "%s/%s/%d/%s", OLD, kind, s->rank, is_partner ? "head" : "file");
    snprintf(before, sizeof before, "%s/sharded/%s/" SHARD, OLD, step, (s->rank + 2) % 3);
    join(to, from, is_partner ? before : NULL);
}

/* Checks on every rank that its folders' files of that step are the same. */
static void check_same(const scratch *s, const char *kind, const char *old_dir, const char *dir) {
    char name[64];
    snprintf(name, sizeof name, SHARD, s->rank);
    check_file(old_dir, dir, name);
    snprintf(name, sizeof name, "%s-%05d-of-00003.bin", kind, s->rank);
    check_file(old_dir, dir, name);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check_redundancy(const scratch *s, const char *kind, const char *redundancy) {
    char old_dir[PATH_MAX], dir[PATH_MAX], folder[PATH_MAX];
    uint64_t step = 0;
    int rebuilt = 0;
    snprintf(old_dir, sizeof old_dir, "%s/old-%s-%d", s->root, kind, s->rank);
    snprintf(dir, sizeof dir, "%s/%s-%d", s->root, kind, s->rank);
    assemble(s, kind, old_dir);
    assemble(s, kind, dir);
    check_verifies(dir);
    check_loads(s, dir, 1);

    CHECK(snprintf(folder, sizeof folder, "%s/step-%08d", dir, STEP) < PATH_MAX);
    if (s->rank == 1) CHECK(store_directory_remove(AT_FDCWD, folder) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_store *store = open_store(s, dir, redundancy);
    SUCCEEDS(dcp_store_rebuild(store, 1, &step, &rebuilt, err));
    dcp_store_close(store);
    CHECK(step == STEP && rebuilt == 2);
    check_same(s, kind, old_dir, dir);

    save(s, dir, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, redundancy);
    check_same(s, kind, old_dir, dir);
}

static void check_old(const scratch *s) {
    check_loads(s, OLD "/global", 0);
    check_loads(s, OLD "/sharded", 0);
    if (s->rank == 0) check_verifies(OLD "/global");
    if (s->rank == 0) check_verifies(OLD "/sharded");
    check_shared(s);
    check_rewritten(s);
    if (s->size != 3) return;
    check_redundancy(s, "partner", "partner");
    check_redundancy(s, "parity", "rs(1)");
}

static void write_old(const scratch *s, const char *to) {
    char dir[PATH_MAX];
    CHECK(s->size == 3);
    snprintf(dir, sizeof dir, "%s/global", to);
    save(s, dir, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, NULL);
    snprintf(dir, sizeof dir, "%s/sharded", to);
    save(s, dir, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, NULL);
    snprintf(dir, sizeof dir, "%s/partner/%d", to, s->rank);
    save(s, dir, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, "partner");
    snprintf(dir, sizeof dir, "%s/parity/%d", to, s->rank);
    save(s, dir, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, "rs(1)");
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    if (argc > 1)
        write_old(&s, argv[1]);
    else
        check_old(&s);
    return scratch_end(&s);
}
