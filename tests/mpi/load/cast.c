/* Casts on load: every pair of types that dcp_convert supports, between any boxes, from both
 * layouts, with both engines, into dense memory and by strides; other pairs, and casts that were
 * not requested, are refused; flipped bytes are detected. */
#include "reader/view.h"
#include "support/scratch.h"
#include "support/view.h"

typedef enum kind { MATRIX, SCALAR, EMPTY, EIGHT, KINDS } kind;

static const dcp_tensor shapes[KINDS] = {
    [MATRIX] = {NULL, DCP_F32, 2, {37, 11}},
    [SCALAR] = {NULL, DCP_F32, 0, {0}},
    [EMPTY] = {NULL, DCP_F32, 2, {0, 3}},
    [EIGHT] = {NULL, DCP_F32, 8, {3, 1, 2, 3, 1, 2, 1, 5}},
};

#define OF_DTYPE(dtype) ((size_t)((dtype)-1) * KINDS)
#define STORED OF_DTYPE(DCP_DTYPE_COUNT)

/* `given` with every type in every shape, and matrices that exceed scratch memory and pages. */
static void fill(given *g) {
    static const dcp_tensor large[] = {{"/large/lines", DCP_F64, 2, {5, 1000003}},
                                       {"/large/line", DCP_F64, 2, {1, 4500007}},
                                       {"/large/narrow", DCP_BF16, 2, {3, 700001}}};
    given_make(g, 3);
    for (size_t t = 0; t < STORED + 3; t++) {
        dcp_tensor *tensor = &g->tensors[t];
        dcp_dtype dtype = (dcp_dtype)(1 + t / KINDS);
        *tensor = t < STORED ? shapes[t % KINDS] : large[t - STORED];
        if (t < STORED) {
            tensor->dtype = dtype;
            snprintf(g->paths[t], sizeof g->paths[t], "/stored/%s.%zu", dcp_dtype_name(dtype),
                     t % KINDS);
            tensor->path = g->paths[t];
        }
        uint64_t bytes = dcp_tensor_bytes(tensor);
        g->data[t] = realloc(g->data[t], bytes + 8);
        CHECK(g->data[t]);
        for (uint64_t i = 0; i < bytes; i++)
            g->data[t][i] = (unsigned char)((i * 2654435761u) >> 13);
    }
}

/* One tensor of the state: a box of a stored tensor as another type. */
typedef struct target {
    char path[40];
    size_t stored;
    dcp_dtype as;
    dcp_box box;
    unsigned char *data;
    view strided; /* used instead of data if it has memory */
} target;

typedef struct targets {
    dcp_state *state;
    target *list;
    dcp_rename *renames;
    size_t n;
} targets;

/* By `how`: rows; columns; all of it on every rank; rows plus one of a neighbour's, which does not
 * cover the tensor once. */
static dcp_box cut(const dcp_tensor *t, int how, int rank, int size) {
    dcp_box box = dcp_box_chunk(t, rank, size);
    if (how == 0 || t->ndim < 2) return box;
    if (how == 3) {
        if (box.start[0] && box.count[0]) box.start[0]--, box.count[0]++;
        return box;
    }
    box = dcp_box_whole(t);
    if (how == 2) return box;
    dcp_tensor line = {"/x/x", DCP_U8, 1, {t->shape[1]}};
    dcp_box part = dcp_box_chunk(&line, rank, size);
    box.start[1] = part.start[0];
    box.count[1] = part.count[0];
    return box;
}

static int by_strides; /* on every second rank, memory with strides */

static void add(targets *all, const given *g, size_t stored, dcp_dtype as, int how, int rank,
                int size) {
    target *t = &all->list[all->n];
    dcp_tensor tensor = g->tensors[stored];
    snprintf(t->path, sizeof t->path, "/as/%zu.%s", stored, dcp_dtype_name(as));
    t->stored = stored;
    t->as = as;
    t->box = cut(&tensor, how, rank, size);
    all->renames[all->n++] = (dcp_rename){t->path, tensor.path};
    tensor.path = t->path;
    tensor.dtype = as;
    if (by_strides && rank % 2 == 0 && dcp_box_elems(&t->box, tensor.ndim)) {
        view_make(&t->strided, VIEW_MIXED, tensor.ndim, dcp_dtype_bytes(as), t->box.count);
        SUCCEEDS(dcp_state_add_strided(all->state, &tensor, &t->box, t->strided.data,
                                       t->strided.strides, err));
        return;
    }
    t->data = malloc(dcp_box_elems(&t->box, tensor.ndim) * dcp_dtype_bytes(as) + 1);
    CHECK(t->data);
    SUCCEEDS(dcp_state_add(all->state, &tensor, &t->box, t->data, err));
}

static void targets_make(targets *all) {
    *all = (targets){.n = 0};
    all->list = calloc(1024, sizeof *all->list);
    all->renames = calloc(1024, sizeof *all->renames);
    CHECK(all->list && all->renames && dcp_state_create(&all->state, NULL) == DCP_OK);
}

static void targets_free(targets *all) {
    for (size_t i = 0; i < all->n; i++) {
        free(all->list[i].data);
        view_free(&all->list[i].strided);
    }
    dcp_state_destroy(all->state);
    free(all->list);
    free(all->renames);
}

static void check_content(const targets *all, const given *g) {
    for (size_t i = 0; i < all->n; i++) {
        const target *t = &all->list[i];
        uint64_t bytes, elems = dcp_box_elems(&t->box, g->tensors[t->stored].ndim);
        uint64_t size = dcp_dtype_bytes(t->as);
        unsigned char *in = given_cut(g, t->stored, &t->box, &bytes),
                      *want = malloc(elems * size + 1);
        CHECK(want && dcp_convert(g->tensors[t->stored].dtype, in, t->as, want, elems) == DCP_OK);
        const int same = t->strided.memory ? view_is(&t->strided, want)
                                           : memcmp(want, t->data, elems * size) == 0;
        if (!same) check_failed(__FILE__, __LINE__, t->path);
        free(in);
        free(want);
    }
}

static dcp_engine engine;

static int load(dcp_checkpoint *ckpt, const targets *all, int cast, dcp_error *err) {
    dcp_load_options options = {.size = sizeof options,
                                .renames = all->renames,
                                .n_renames = all->n,
                                .cast = cast,
                                .engine = engine};
    return dcp_load_with(ckpt, all->state, &options, NULL, err);
}

static void all_pairs(const scratch *s, dcp_checkpoint *ckpt, const given *g, int how) {
    targets all;
    targets_make(&all);
    for (size_t t = 0; t < STORED; t++)
        for (dcp_dtype as = DCP_F64; as < DCP_DTYPE_COUNT; as++)
            if (!dcp_convert(g->tensors[t].dtype, NULL, as, NULL, 0))
                add(&all, g, t, as, how, s->rank, s->size);
    SUCCEEDS(load(ckpt, &all, 1, err));
    check_content(&all, g);
    targets_free(&all);
}

static void large_ones(const scratch *s, dcp_checkpoint *ckpt, const given *g, int how) {
    targets all;
    targets_make(&all);
    add(&all, g, STORED, DCP_F32, how, s->rank, s->size);
    add(&all, g, STORED + 1, DCP_BF16, how, s->rank, s->size);
    add(&all, g, STORED + 2, DCP_F32, how, s->rank, s->size);
    add(&all, g, STORED + 2, DCP_F64, how, s->rank, s->size);
    SUCCEEDS(load(ckpt, &all, 1, err));
    check_content(&all, g);
    targets_free(&all);
}

static void what_is_refused(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    static const struct {
        dcp_dtype from, as;
        int cast, status;
        const char *text;
    } cases[] = {
        {DCP_F32, DCP_I32, 1, DCP_ERR_UNSUPPORTED,
         "is F32 [37, 11] in the checkpoint, but I32 [37, 11] is requested: there is no cast"},
        {DCP_I64, DCP_F64, 1, DCP_ERR_UNSUPPORTED, "is I64 [37, 11]"},
        {DCP_C64, DCP_F32, 1, DCP_ERR_UNSUPPORTED, "is C64 [37, 11]"},
        {DCP_BOOL, DCP_U8, 1, DCP_ERR_UNSUPPORTED, "is BOOL [37, 11]"},
        {DCP_BF16, DCP_F32, 0, DCP_ERR_MISMATCH, "converted only with the load option cast"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        targets all;
        dcp_error failure = {0};
        targets_make(&all);
        add(&all, g, OF_DTYPE(cases[i].from) + MATRIX, cases[i].as, 0, s->rank, s->size);
        int status = load(ckpt, &all, cases[i].cast, &failure);
        check_same_failure(status, cases[i].status, &failure, cases[i].text);
        targets_free(&all);
    }
    /* a cast does not permit another shape */
    dcp_state *state = NULL;
    dcp_error failure = {0};
    dcp_tensor t = {"/stored/F32.0", DCP_F64, 2, {37, 12}};
    dcp_load_options options = {.size = sizeof options, .cast = 1};
    static double data[37 * 12];
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, NULL, data, err));
    int status = dcp_load_with(ckpt, state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "F64 [37, 12] is requested");
    dcp_state_destroy(state);
}

/* Flips a bit of the tensor's stored bytes, or flips it back. */
static void flip(const scratch *s, const dcp_checkpoint *ckpt, const char *path) {
    const reader_tensor *t = reader_checkpoint_lookup(ckpt, path);
    reader_datasets known;
    unsigned char byte;
    SUCCEEDS(reader_view_all((dcp_checkpoint *)ckpt, t, &known, err));
    const reader_dataset *p = known.datasets;
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) {
        int fd = open(p->file->path, O_RDWR);
        off_t at = (off_t)(p->row->offset + p->row->bytes - 1);
        CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= 1;
        CHECK(pwrite(fd, &byte, 1, at) == 1 && fdatasync(fd) == 0);
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void flips_are_found(const scratch *s, dcp_checkpoint *ckpt, const given *g, int how) {
    static const size_t stored[] = {OF_DTYPE(DCP_F32) + MATRIX, OF_DTYPE(DCP_F32) + SCALAR, STORED};
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++)
        for (int wide = 0; wide < 2; wide++) {
            targets all;
            dcp_error failure = {0};
            const char *path = g->tensors[stored[i]].path;
            targets_make(&all);
            add(&all, g, stored[i], wide ? DCP_F64 : DCP_F16, how, s->rank, s->size);
            flip(s, ckpt, path);
            check_same_failure(load(ckpt, &all, 1, &failure), DCP_ERR_CORRUPT, &failure, path);
            flip(s, ckpt, path);
            SUCCEEDS(load(ckpt, &all, 1, err));
            check_content(&all, g);
            targets_free(&all);
        }
}

static void save(const scratch *s, const given *g, dcp_layout layout) {
    dcp_state *state = NULL;
    dcp_store *store = scratch_store(s, s->comm, "store");
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    unsigned char *data[STORED + 3];
    uint64_t bytes;
    SUCCEEDS(dcp_state_create(&state, err));
    for (size_t t = 0; t < STORED + 3; t++) {
        dcp_box box = dcp_box_chunk(&g->tensors[t], s->rank, s->size);
        data[t] = given_cut(g, t, &box, &bytes);
        SUCCEEDS(dcp_state_add(state, &g->tensors[t], &box, data[t], err));
    }
    SUCCEEDS(dcp_save(store, 5, state, NULL, &options, NULL, err));
    dcp_state_destroy(state);
    dcp_store_close(store);
    for (size_t t = 0; t < STORED + 3; t++) free(data[t]);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    fill(&g);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        dcp_checkpoint *ckpt = NULL;
        save(&s, &g, layout);
        SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
        for (int how = 0; how < 4; how++) all_pairs(&s, ckpt, &g, how);
        by_strides = 1;
        for (int how = 0; how < 4; how++) all_pairs(&s, ckpt, &g, how);
        if (layout) large_ones(&s, ckpt, &g, 0);
        by_strides = 0;
        engine = layout ? DCP_ENGINE_MPIO : DCP_ENGINE_DIRECT;
        large_ones(&s, ckpt, &g, layout ? 0 : 1);
        engine = DCP_ENGINE_DIRECT;
        if (layout) large_ones(&s, ckpt, &g, 3);
        flips_are_found(&s, ckpt, &g, layout ? 3 : 1);
        what_is_refused(&s, ckpt, &g);
        dcp_checkpoint_close(ckpt);
    }
    given_free(&g);
    return scratch_end(&s);
}
