/* Memory that one rank cannot read while it saves: all ranks fail alike and name the rank, nothing
 * is published, the older step loads, and the next save works. */
#include "support/scratch.h"

/* A source that supplies `left` bytes of a tensor and then fails. */
typedef struct source {
    const unsigned char *data;
    uint64_t left;
} source;

static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    source *from = ctx;
    if (from->left < bytes) {
        if (err) {
            err->status = DCP_ERR_IO;
            snprintf(err->message, sizeof err->message, "the source is broken");
        }
        return DCP_ERR_IO;
    }
    from->left -= bytes;
    memcpy(out, from->data + offset, bytes);
    return DCP_OK;
}

/* Rows of all tensors; `broken` supplies so many bytes of each. */
static int save(const scratch *s, dcp_store *store, uint64_t step, const given *g,
                dcp_layout layout, uint64_t left, dcp_error *err) {
    held h;
    dcp_state *state = NULL;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    source *sources = calloc(GIVEN_TENSORS, sizeof *sources);
    CHECK(sources && dcp_state_create(&state, NULL) == DCP_OK);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    for (size_t i = 0; i < h.n; i++) {
        const held_box *b = &h.boxes[i];
        sources[i] = (source){b->data, left};
        CHECK(dcp_state_add_source(state, &g->tensors[b->tensor], &b->box, read_source, &sources[i],
                                   -1, NULL) == DCP_OK);
    }
    int status = dcp_save(store, step, state, GIVEN_JSON, &options, NULL, err);
    dcp_state_destroy(state);
    held_free(&h);
    free(sources);
    return status;
}

static void check_layout(const scratch *s, const given *g, dcp_layout layout) {
    char name[32], who[32], *dir;
    snprintf(name, sizeof name, "store%d", (int)layout);
    dcp_store *store = scratch_store(s, s->comm, name);
    SUCCEEDS(save(s, store, 5, g, layout, UINT64_MAX, err));
    /* immediately; amid small tensors; amid what is written directly */
    static const uint64_t limits[] = {0, 50, 700000};
    for (int i = 0; i < 3; i++) {
        dcp_error failure = {0};
        int broken = (s->size - 1 + i) % s->size;
        int status =
            save(s, store, 6, g, layout, s->rank == broken ? limits[i] : UINT64_MAX, &failure);
        snprintf(who, sizeof who, s->size > 1 ? "rank %d: the source is broken" : "the source is",
                 broken);
        check_same_failure(status, DCP_ERR_IO, &failure, who);
        CHECK(failure.rank == broken);
        scratch_load(s, s->comm, name, g, COLUMNS);
        SUCCEEDS(save(s, store, 5, g, layout, UINT64_MAX, err));
    }
    dir = malloc(PATH_MAX);
    snprintf(dir, PATH_MAX, "%s/%s/.tmp-step-00000006", s->root, name);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(access(dir, F_OK) != 0);
    free(dir);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    check_layout(&s, &g, DCP_LAYOUT_GLOBAL);
    check_layout(&s, &g, DCP_LAYOUT_SHARDED);
    given_free(&g);
    return scratch_end(&s);
}
