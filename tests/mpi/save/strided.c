/* Memory with strides: files and proofs are those of dense memory, in both layouts, with both
 * engines, synchronously and in the background, whatever memory the other ranks have; loads fill it
 * and touch nothing else; differing replicas and damage are detected; strides of 0 are saved, and
 * refused by loads. */
#include "reader/checkpoint.h"
#include "support/scratch.h"
#include "support/view.h"

/* The boxes of `h` in memory of their own. */
typedef struct viewed {
    dcp_state *state;
    view *views; /* one per box; without memory for empty boxes */
    size_t n;
} viewed;

static int is_empty(const given *g, const held_box *b) {
    const dcp_tensor *t = &g->tensors[b->tensor];
    return !dcp_tensor_bytes(t) || !dcp_box_elems(&b->box, t->ndim);
}

static void add(viewed *v, view_way way, const given *g, const held_box *b, int filled) {
    const dcp_tensor *t = &g->tensors[b->tensor];
    view *own = &v->views[v->n++];
    if (is_empty(g, b)) {
        SUCCEEDS(dcp_state_add_strided(v->state, t, &b->box, NULL, NULL, err));
        return;
    }
    view_make(own, way, t->ndim, dcp_dtype_bytes(t->dtype), b->box.count);
    if (filled) view_fill(own, b->data);
    SUCCEEDS(dcp_state_add_strided(v->state, t, &b->box, own->data, own->strides, err));
}

/* Ranks use different ways; VIEW_WAYS: the memory of `h` itself. */
static void viewed_make(viewed *v, const scratch *s, int way, const given *g, const held *h,
                        int filled) {
    way = (way + s->rank) % (VIEW_WAYS + 1);
    *v = (viewed){.views = calloc(h->n + 1, sizeof *v->views)};
    CHECK(v->views);
    SUCCEEDS(dcp_state_create(&v->state, err));
    for (size_t i = 0; i < h->n; i++)
        if (way < VIEW_WAYS)
            add(v, (view_way)way, g, &h->boxes[i], filled);
        else
            SUCCEEDS(dcp_state_add_strided(v->state, &g->tensors[h->boxes[i].tensor],
                                           &h->boxes[i].box, h->boxes[i].data, NULL, err));
}

static void viewed_free(viewed *v) {
    dcp_state_destroy(v->state);
    for (size_t i = 0; i < v->n; i++) view_free(&v->views[i]);
    free(v->views);
}

static void check_filled(const viewed *v, const given *g, const held *h) {
    if (!v->n) CHECK(held_is_given(h, g));
    for (size_t i = 0; i < v->n; i++) {
        uint64_t bytes;
        const held_box *b = &h->boxes[i];
        unsigned char *want = given_cut(g, b->tensor, &b->box, &bytes);
        if (v->views[i].memory && !view_is(&v->views[i], want))
            check_failed(__FILE__, __LINE__, g->tensors[b->tensor].path);
        free(want);
    }
}

static void check_same_files(const scratch *s, const char *one, const char *two,
                             dcp_layout layout) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < (layout ? s->size : 1); k++) {
        char file[64] = "state.h5", a[200], b[200];
        if (layout) snprintf(file, sizeof file, "shard-%05d-of-%05d.h5", k, s->size);
        snprintf(a, sizeof a, "%s/step-00000005/%s", one, file);
        snprintf(b, sizeof b, "%s/step-00000005/%s", two, file);
        CHECK(scratch_same(s, a, b));
    }
}

static void spoil(const viewed *v) {
    for (size_t i = 0; i < v->n; i++)
        if (v->views[i].memory) memset(v->views[i].memory, 0x33, v->views[i].bytes);
}

/* In the background; the second time with the first one's plan. */
static void save_twice(const scratch *s, const viewed *v, const dcp_save_options *options) {
    dcp_saving *saving = NULL;
    dcp_store *store = scratch_store(s, s->comm, "strided");
    SUCCEEDS(dcp_save(store, 5, v->state, GIVEN_JSON, options, NULL, err));
    SUCCEEDS(dcp_save_async(store, 5, v->state, GIVEN_JSON, options, &saving, err));
    dcp_save_fence(saving);
    spoil(v);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    check_same_files(s, "strided", "dense", options->layout);
    dcp_store_close(store);
}

static void check_proof(const scratch *s, const viewed *v, const held *h) {
    dcp_proof *dense = NULL, *strided = NULL;
    SUCCEEDS(dcp_prove(s->comm, h->state, NULL, &dense, err));
    SUCCEEDS(dcp_prove(s->comm, v->state, NULL, &strided, err));
    CHECK(dcp_proof_id(dense) == dcp_proof_id(strided));
    for (size_t i = 0; i < dcp_proof_tensors(dense); i++)
        CHECK(dcp_proof_crc(dense, i) == dcp_proof_crc(strided, i));
    dcp_proof_destroy(dense);
    dcp_proof_destroy(strided);
}

static void same_files(const scratch *s, const given *g, int way) {
    static const scheme schemes[] = {ROWS, COLUMNS, BLOCKS, PAIRS, STRIPES, COPIES, MESH};
    const scheme how = schemes[way];
    const dcp_save_options options = {.size = sizeof options,
                                      .layout = (dcp_layout)(way % 2),
                                      .engine = way % 3 == 1 ? DCP_ENGINE_MPIO : DCP_ENGINE_DIRECT};
    held h;
    viewed v;
    scratch_save(s, s->comm, "dense", g, how, options.layout);
    held_make(&h, g, how, s->rank, s->size, 1);
    viewed_make(&v, s, way, g, &h, 1);
    check_proof(s, &v, &h);
    save_twice(s, &v, &options);
    viewed_free(&v);
    held_free(&h);
}

static void load_all(const scratch *s, const given *g, int way) {
    static const scheme schemes[] = {COLUMNS, HALO, COPIES, CORNERS, ROWS, STRIPES, ONE_OF_TWO};
    held h;
    viewed v;
    const dcp_load_options options = {.size = sizeof options,
                                      .engine = way % 2 ? DCP_ENGINE_MPIO : DCP_ENGINE_DIRECT};
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "dense");
    held_make(&h, g, schemes[way], s->rank, s->size, 0);
    viewed_make(&v, s, way, g, &h, 0);
    SUCCEEDS(dcp_load_with(ckpt, v.state, &options, NULL, err));
    check_filled(&v, g, &h);
    viewed_free(&v);
    held_free(&h);
    dcp_checkpoint_close(ckpt);
}

/* One element of the last rank's copy, in strided memory, has another bit. */
static void replicas_differ(const scratch *s, const given *g, int way) {
    held h;
    viewed v;
    dcp_error failure = {0};
    dcp_proof *proof = NULL;
    dcp_store *store = scratch_store(s, s->comm, "differ");
    held_make(&h, g, COPIES, s->rank, s->size, 1);
    viewed_make(&v, s, way, g, &h, 1);
    for (size_t i = 0; i < v.n && s->rank == s->size - 1; i++)
        if (!strcmp(g->tensors[h.boxes[i].tensor].path, "/model/blocks"))
            *view_at(&v.views[i], view_elems(&v.views[i]) - 1) ^= 0x10;
    int status = dcp_save(store, 5, v.state, GIVEN_JSON, NULL, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "/model/blocks");
    status = dcp_prove(s->comm, v.state, NULL, &proof, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "/model/blocks");
    viewed_free(&v);
    held_free(&h);
    dcp_store_close(store);
}

/* Changes a bit of a tensor's last stored byte. */
static void damage(const scratch *s, const dcp_checkpoint *ckpt, const char *path) {
    const reader_tensor *t = reader_checkpoint_lookup(ckpt, path);
    const reader_dataset *p = t->datasets;
    const off_t at = (off_t)(p->row->offset + p->row->bytes - 1);
    unsigned char byte;
    if (s->rank == 0) {
        int fd = open(p->file->path, O_RDWR);
        CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= 1;
        CHECK(pwrite(fd, &byte, 1, at) == 1 && fdatasync(fd) == 0);
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void damage_is_found(const scratch *s, const given *g, dcp_engine engine) {
    held h;
    viewed v;
    dcp_error failure = {0};
    const dcp_load_options options = {.size = sizeof options, .engine = engine};
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "dense");
    damage(s, ckpt, "/model/columns");
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    viewed_make(&v, s, VIEW_COLUMNS, g, &h, 0);
    int status = dcp_load_with(ckpt, v.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "/model/columns");
    damage(s, ckpt, "/model/columns");
    viewed_free(&v);
    held_free(&h);
    dcp_checkpoint_close(ckpt);
}

enum { LINES = 1500, WIDTH = 700 };

/* This rank's rows of a matrix whose element [r][c] is words[r * by_row + c * by_column]. */
static void add_repeated(const scratch *s, dcp_state *state, dcp_state *dense, const char *path,
                         uint32_t *words, uint64_t by_row, uint64_t by_column, uint32_t *copy) {
    const dcp_tensor t = {path, DCP_U32, 2, {LINES, WIDTH}};
    const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
    const int64_t strides[] = {(int64_t)by_row * 4, (int64_t)by_column * 4};
    const uint64_t first = box.start[0] * by_row;
    for (uint64_t i = 0; i < box.count[0] * WIDTH; i++)
        copy[i] = words[first + i / WIDTH * by_row + i % WIDTH * by_column];
    SUCCEEDS(dcp_state_add(dense, &t, &box, copy, err));
    SUCCEEDS(dcp_state_add_strided(state, &t, &box, words + first, strides, err));
}

static void strides_of_zero(const scratch *s) {
    static uint32_t words[LINES + WIDTH], copies[3][LINES * WIDTH];
    dcp_state *repeated, *dense;
    dcp_error failure = {0};
    dcp_store *store = scratch_store(s, s->comm, "strided"), *other;
    for (uint32_t i = 0; i < LINES + WIDTH; i++) words[i] = i * 2654435761u;
    other = scratch_store(s, s->comm, "dense");
    SUCCEEDS(dcp_state_create(&repeated, err));
    SUCCEEDS(dcp_state_create(&dense, err));
    add_repeated(s, repeated, dense, "/m/rows", words, 0, 1, copies[0]);
    add_repeated(s, repeated, dense, "/m/columns", words, 1, 0, copies[1]);
    add_repeated(s, repeated, dense, "/m/one", words, 0, 0, copies[2]);
    SUCCEEDS(dcp_save(store, 5, repeated, NULL, NULL, NULL, err));
    SUCCEEDS(dcp_save(other, 5, dense, NULL, NULL, NULL, err));
    check_same_files(s, "strided", "dense", DCP_LAYOUT_GLOBAL);
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, "strided");
    check_same_failure(dcp_load(ckpt, repeated, NULL, &failure), DCP_ERR_ARG, &failure, "overlap");
    SUCCEEDS(dcp_load(ckpt, dense, NULL, err));
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(repeated);
    dcp_state_destroy(dense);
    dcp_store_close(store);
    dcp_store_close(other);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (int way = 0; way <= VIEW_WAYS; way++) {
        same_files(&s, &g, way);
        load_all(&s, &g, way);
        if (s.size > 1 && way % 6 == 0) replicas_differ(&s, &g, way);
    }
    damage_is_found(&s, &g, DCP_ENGINE_DIRECT);
    damage_is_found(&s, &g, DCP_ENGINE_MPIO);
    strides_of_zero(&s);
    given_free(&g);
    return scratch_end(&s);
}
