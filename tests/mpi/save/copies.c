/* Saves in flight with a copy: the step is the state at the time of the call, although each rank
 * writes something else into its memory as soon as the call returns. That holds for all ways to cut
 * tensors, in both layouts, for replicas that are written in turns, by one holder, or only
 * compared, also with the first save's plan, within the memory limit and beyond it, and without a
 * thread. Replicas are compared as they were. */
#include "comm/comm.h"
#include "support/scratch.h"

enum { LARGE_ROWS = 19, LARGE_BYTES = 700001 }; /* some turns of 4 MiB, and odd */

/* Writes something else on each rank. */
static void spoil(const scratch *s, unsigned char *data, uint64_t bytes) {
    memset(data, 0x5a + s->rank, bytes);
}

static void spoil_held(const scratch *s, const held *h, const given *g) {
    for (size_t i = 0; i < h->n; i++)
        spoil(s, h->boxes[i].data,
              dcp_box_elems(&h->boxes[i].box, g->tensors[h->boxes[i].tensor].ndim) *
                  dcp_dtype_bytes(g->tensors[h->boxes[i].tensor].dtype));
}

/* Checks all files of step 5 of two stores. */
static void check_same(const scratch *s, const char *one, const char *two, dcp_layout layout) {
    char a[160], b[160];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < (layout ? s->size : 1); k++) {
        char file[64] = "state.h5";
        if (layout) snprintf(file, sizeof file, "shard-%05d-of-%05d.h5", k, s->size);
        snprintf(a, sizeof a, "%s/step-00000005/%s", one, file);
        snprintf(b, sizeof b, "%s/step-00000005/%s", two, file);
        CHECK(scratch_same(s, a, b));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void save_copied(const scratch *s, dcp_store *store, const given *g, scheme how,
                        const dcp_save_options *options) {
    held h;
    dcp_saving *saving = NULL;
    held_make(&h, g, how, s->rank, s->size, 1);
    SUCCEEDS(dcp_save_async(store, 5, h.state, GIVEN_JSON, options, &saving, err));
    spoil_held(s, &h, g);
    dcp_save_fence(saving);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    held_free(&h);
}

/* Saves twice with one store, the second time with the first one's plan and memory. */
static void given_way(const scratch *s, const given *g, scheme how,
                      const dcp_save_options *options) {
    dcp_store *store = scratch_store(s, s->comm, "copied");
    scratch_save(s, s->comm, "plain", g, how, options->layout);
    for (int again = 0; again < 2; again++) {
        save_copied(s, store, g, how, options);
        check_same(s, "copied", "plain", options->layout);
    }
    dcp_store_close(store);
}

/* Each way to cut; those with replicas with each way to treat them. */
static void given_ways(const scratch *s, const given *g, dcp_layout layout) {
    for (scheme how = 0; how < SAVE_SCHEMES; how++) {
        const int each = how == COPIES || how == PAIRS;
        for (int r = DCP_REPLICAS_CHECK; r <= (each ? DCP_REPLICAS_TRUST : 0); r++) {
            const dcp_save_options options = {.size = sizeof options,
                                              .layout = layout,
                                              .replicas = (dcp_replicas)r,
                                              .copy_bytes = DCP_COPY_DEFAULT};
            given_way(s, g, how, &options);
        }
    }
    const dcp_save_options none = {.size = sizeof none, .layout = layout, .copy_bytes = 100};
    given_way(s, g, STRIPES, &none);
}

/* A tensor that all ranks hold, and one cut into rows: dense, with strides, and from functions. */
typedef struct large {
    unsigned char *data[3];
    uint64_t bytes[3];
    dcp_state *state;
} large;

static int give_bytes(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)err;
    memcpy(out, (unsigned char *)ctx + offset, bytes);
    return DCP_OK;
}

static void fill(unsigned char *data, uint64_t from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)((from + i) * 2654435761u >> 13);
}

static void make_large(const scratch *s, large *l) {
    const dcp_tensor whole = {"/model/whole", DCP_U8, 2, {LARGE_ROWS, LARGE_BYTES}};
    const dcp_tensor rows = {"/model/rows", DCP_U8, 2, {LARGE_ROWS, LARGE_BYTES}};
    const dcp_tensor source = {"/model/source", DCP_U8, 2, {LARGE_ROWS, LARGE_BYTES}};
    const dcp_box box = dcp_box_chunk(&rows, s->rank, s->size);
    const uint64_t first = box.start[0] * LARGE_BYTES, part = box.count[0] * LARGE_BYTES;
    const int64_t strides[] = {2 * LARGE_BYTES, 1}; /* every second row of memory */
    l->bytes[0] = l->bytes[2] = (uint64_t)LARGE_ROWS * LARGE_BYTES;
    l->bytes[1] = 2 * part + 1;
    for (int i = 0; i < 3; i++) CHECK(l->data[i] = malloc(l->bytes[i]));
    fill(l->data[0], 0, l->bytes[0]);
    for (uint64_t row = 0; row < box.count[0]; row++)
        fill(l->data[1] + 2 * row * LARGE_BYTES, first + row * LARGE_BYTES, LARGE_BYTES);
    fill(l->data[2], 99, l->bytes[2]);
    SUCCEEDS(dcp_state_create(&l->state, err));
    SUCCEEDS(dcp_state_add(l->state, &whole, NULL, l->data[0], err));
    SUCCEEDS(dcp_state_add_strided(l->state, &rows, &box, l->data[1], strides, err));
    SUCCEEDS(dcp_state_add_source(l->state, &source, NULL, give_bytes, l->data[2], -1, err));
}

static void spoil_large(const scratch *s, large *l) {
    for (int i = 0; i < 3; i++) spoil(s, l->data[i], l->bytes[i]);
}

static void free_large(large *l) {
    dcp_state_destroy(l->state);
    for (int i = 0; i < 3; i++) free(l->data[i]);
}

/* Memory for all; for none; for some of what is left when the first part is written. */
static const uint64_t limits[] = {DCP_COPY_DEFAULT, 1, (uint64_t)16 << 20};

static void large_ways(const scratch *s, dcp_layout layout, dcp_replicas replicas) {
    large l;
    dcp_store *plain = scratch_store(s, s->comm, "plain"), *store;
    dcp_save_options options = {.size = sizeof options, .layout = layout, .replicas = replicas};
    make_large(s, &l);
    SUCCEEDS(dcp_save(plain, 5, l.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(plain);
    free_large(&l);
    store = scratch_store(s, s->comm, "copied");
    for (int i = 0; i < (replicas ? 1 : 3); i++) {
        dcp_saving *saving = NULL;
        options.copy_bytes = limits[i];
        make_large(s, &l);
        SUCCEEDS(dcp_save_async(store, 5, l.state, GIVEN_JSON, &options, &saving, err));
        spoil_large(s, &l);
        SUCCEEDS(dcp_save_wait(saving, NULL, err)); /* without a fence */
        free_large(&l);
        check_same(s, "copied", "plain", layout);
    }
    dcp_store_close(store);
}

/* The comparison of replicas also refers to the time of the call. */
static void replicas_as_of_the_call(const scratch *s, dcp_layout layout) {
    enum { BYTES = 9 << 20 };
    const dcp_tensor t = {"/model/w", DCP_U8, 1, {BYTES}};
    const dcp_save_options options = {
        .size = sizeof options, .layout = layout, .copy_bytes = DCP_COPY_DEFAULT};
    dcp_state *state = NULL;
    unsigned char *data = malloc(BYTES);
    dcp_store *store = scratch_store(s, s->comm, "copied");
    CHECK(data);
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, NULL, data, err));
    for (int differs = 1; differs >= 0; differs--) {
        dcp_error failure = {0};
        dcp_saving *saving = NULL;
        fill(data, 0, BYTES);
        if (differs) data[BYTES - 1] ^= (unsigned char)(s->rank == s->size - 1);
        SUCCEEDS(dcp_save_async(store, 5, state, NULL, &options, &saving, err));
        if (differs)
            fill(data, 0, BYTES);
        else
            spoil(s, data, BYTES);
        int status = dcp_save_wait(saving, NULL, &failure);
        if (differs && s->size > 1)
            check_same_failure(status, DCP_ERR_MISMATCH, &failure, "/model/w");
        else
            CHECK(status == DCP_OK);
    }
    dcp_state_destroy(state);
    dcp_store_close(store);
    free(data);
}

/* If no thread can do it, the call has done it. */
static void written_in_the_call(const scratch *s, const given *g, dcp_engine engine) {
    held h;
    dcp_saving *saving = NULL;
    const dcp_save_options options = {
        .size = sizeof options, .engine = engine, .copy_bytes = DCP_COPY_DEFAULT};
    dcp_store *store = scratch_store(s, s->comm, "copied");
    scratch_save(s, s->comm, "plain", g, ROWS, DCP_LAYOUT_GLOBAL);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_save_async(store, 5, h.state, GIVEN_JSON, &options, &saving, err));
    spoil_held(s, &h, g);
    CHECK(dcp_save_is_done(saving) == 1);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    held_free(&h);
    check_same(s, "copied", "plain", DCP_LAYOUT_GLOBAL);
    dcp_store_close(store);
}

/* Requested by only some ranks: refused on all. */
static void on_all_ranks_or_none(const scratch *s, const given *g) {
    held h;
    dcp_error failure = {0};
    dcp_saving *saving = NULL;
    const dcp_save_options options = {.size = sizeof options,
                                      .copy_bytes = s->rank ? 0 : DCP_COPY_DEFAULT};
    dcp_store *store = scratch_store(s, s->comm, "copied");
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    int status = dcp_save_async(store, 5, h.state, NULL, &options, &saving, &failure);
    if (s->size > 1)
        check_same_failure(status, DCP_ERR_MISMATCH, &failure, "copy_bytes");
    else
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        given_ways(&s, &g, layout);
        for (int r = DCP_REPLICAS_CHECK; r <= DCP_REPLICAS_TRUST; r++)
            large_ways(&s, layout, (dcp_replicas)r);
        replicas_as_of_the_call(&s, layout);
    }
    on_all_ranks_or_none(&s, &g);
    written_in_the_call(&s, &g, DCP_ENGINE_MPIO);
    if (s.size > 1) {
        s.comm->duplicate = NULL; /* no threads */
        written_in_the_call(&s, &g, DCP_ENGINE_AUTO);
    }
    given_free(&g);
    return scratch_end(&s);
}
