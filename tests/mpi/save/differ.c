/* Boxes that several ranks hold and whose bytes differ on one of them: a save fails on all ranks
 * with the tensor, the box's block and the ranks, whatever the layout, the engine and the boxes,
 * and older steps are kept; or it warns; or nothing is compared, if that is requested. */
#include "support/scratch.h"

typedef struct run {
    dcp_layout layout;
    dcp_engine engine;
    scheme how;
    int async;
} run;

static int save(dcp_store *store, uint64_t step, const held *h, const run *r, dcp_replicas replicas,
                dcp_error *failure) {
    const dcp_save_options options = {
        .size = sizeof options, .layout = r->layout, .engine = r->engine, .replicas = replicas};
    dcp_saving *saving;
    if (!r->async) return dcp_save(store, step, h->state, GIVEN_JSON, &options, NULL, failure);
    SUCCEEDS(dcp_save_async(store, step, h->state, GIVEN_JSON, &options, &saving, err));
    dcp_save_fence(saving);
    return dcp_save_wait(saving, NULL, failure);
}

/* The last rank's box of the tensor, or NULL. */
static held_box *find_box(const held *h, const given *g, const char *path) {
    for (size_t i = 0; i < h->n; i++)
        if (!strcmp(g->tensors[h->boxes[i].tensor].path, path)) return &h->boxes[i];
    return NULL;
}

static uint64_t bytes_of(const given *g, const held_box *b) {
    const dcp_tensor *t = &g->tensors[b->tensor];
    return dcp_box_elems(&b->box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

/* "... differ in its block 1 (bytes ...): checksum .. on ranks 0-1, checksum .. on rank 2" */
static void check_message(const scratch *s, const dcp_error *err, const char *path,
                          unsigned block) {
    char text[1200], last[32];
    snprintf(text, sizeof text, "tensor %s: ", path);
    CHECK(strstr(err->message, text));
    snprintf(text, sizeof text, "differ in its block %u (bytes ", block);
    CHECK(strstr(err->message, text));
    snprintf(last, sizeof last, "on rank %d", s->size - 1);
    CHECK(strstr(err->message, last) && err->rank == s->size - 1);
    CHECK(err->n_ranks == 1 && err->ranks[0] == s->size - 1 && !strcmp(err->tensor, path));
}

/* The last rank's copy of the tensor has other bits at those places of its box. */
static void one_differs(const scratch *s, const given *g, dcp_store *store, const run *r,
                        const char *path, const uint64_t *places, size_t n) {
    held h;
    dcp_error failure = {0};
    held_make(&h, g, r->how, s->rank, s->size, 1);
    held_box *b = find_box(&h, g, path);
    for (size_t i = 0; i < n && s->rank == s->size - 1; i++) b->data[places[i]] ^= 0x10;
    int status = save(store, 2, &h, r, DCP_REPLICAS_CHECK, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, path);
    check_message(s, &failure, path, (unsigned)(places[0] >> 22));
    SUCCEEDS(save(store, 2, &h, r, DCP_REPLICAS_TRUST, err));
    held_free(&h);
}

static void each_tensor(const scratch *s, const given *g, const run *r) {
    /* of several blocks; of long rows; of short ones; of one element */
    static const char *const paths[] = {"/model/blocks", "/model/rows", "/small/95.F16",
                                        "/optimizer/step"};
    held h;
    dcp_store *store = scratch_store(s, s->comm, "differ");
    held_make(&h, g, r->how, s->rank, s->size, 1);
    SUCCEEDS(save(store, 1, &h, r, DCP_REPLICAS_CHECK, err)); /* nothing differs */
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const held_box *b = find_box(&h, g, paths[i]);
        uint64_t last[2] = {b ? bytes_of(g, b) - 1 : 0, b && bytes_of(g, b)};
        MPI_Bcast(last, 2, MPI_UINT64_T, s->size - 1, MPI_COMM_WORLD);
        if (last[1]) one_differs(s, g, store, r, paths[i], last, 1);
    }
    held_free(&h);
    dcp_store_close(store);
    scratch_load(s, s->comm, "differ/step-00000001", g, ROWS);
}

/* Changes at two places that cancel in a sum of blocks, or of words without their order. */
static void changes_that_cancel(const scratch *s, const given *g, const run *r) {
    static const uint64_t pairs[][2] = {
        {16, 16 + (4 << 20) - 8}, {16, 16 + (4 << 20)}, {1000, 1008}, {3 << 20, (3 << 20) + 4096}};
    dcp_store *store = scratch_store(s, s->comm, "cancel");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        one_differs(s, g, store, r, "/model/rows", pairs[i], 2);
    dcp_store_close(store);
}

static void keep_warning(void *ctx, dcp_log_level level, const char *line) {
    char *text = ctx;
    if (level == DCP_LOG_WARNING) snprintf(text, 1100, "%s", line);
}

/* The lowest holder's bytes are saved, whatever the last one has. */
static void warns(const scratch *s, const given *g, const run *r) {
    held h;
    char dir[PATH_MAX], name[64], warning[1100] = "";
    dcp_store *store;
    const dcp_store_options options = {
        .size = sizeof options, .log = keep_warning, .log_ctx = warning};
    snprintf(dir, sizeof dir, "%s/warns-%d", s->root, (int)r->layout);
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    held_make(&h, g, r->how, s->rank, s->size, 1);
    if (s->rank == s->size - 1) {
        memset(find_box(&h, g, "/model/blocks")->data, 0x77, 100);
        memset(find_box(&h, g, "/model/page")->data, 0x77, 100);
    }
    SUCCEEDS(save(store, 5, &h, r, DCP_REPLICAS_WARN, err));
    held_free(&h);
    dcp_store_close(store);
    CHECK((s->rank == 0) == (strstr(warning, "step 5: tensor /model/blocks: ") != NULL));
    CHECK(s->rank || strstr(warning, "; 2 such boxes in all"));
    snprintf(name, sizeof name, "warns-%d/step-00000005", (int)r->layout);
    scratch_load(s, s->comm, name, g, ROWS);
}

static void options_differ(const scratch *s, const given *g, const run *r) {
    held h;
    dcp_error failure = {0};
    dcp_store *store = scratch_store(s, s->comm, "options");
    held_make(&h, g, r->how, s->rank, s->size, 1);
    int status = save(store, 1, &h, r, s->rank ? DCP_REPLICAS_TRUST : DCP_REPLICAS_CHECK, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "replicas");
    status = save(store, 1, &h, r, (dcp_replicas)7, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "replicas 7 does not exist");
    held_free(&h);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    static const run runs[] = {{DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, COPIES, 0},
                               {DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, COPIES, 1},
                               {DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, PAIRS, 1},
                               {DCP_LAYOUT_SHARDED, DCP_ENGINE_MPIO, PAIRS, 0},
                               {DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO, COPIES, 0}};
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    const int even = s.size % 2 == 0; /* otherwise PAIRS leaves the last rank without a partner */
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (runs[i].how == COPIES || even) each_tensor(&s, &g, &runs[i]);
    for (size_t i = 0; i < 2; i++) {
        changes_that_cancel(&s, &g, &runs[i]);
        warns(&s, &g, &runs[i]);
    }
    options_differ(&s, &g, &runs[0]);
    given_free(&g);
    return scratch_end(&s);
}
