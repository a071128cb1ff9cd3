/* Shards that one rank writes for others, read through sources, are the files that those ranks
 * write themselves; what cannot be a shard is refused. */
#include "support/scratch.h"

static int read_memory(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)err;
    memcpy(out, (const unsigned char *)ctx + offset, bytes);
    return DCP_OK;
}

/* Rank 0 alone saves what `size` ranks hold. */
static void save_for_all(const scratch *s, const given *g, scheme how) {
    dcp_state *state = NULL;
    dcp_store *store = scratch_store(s, s->self, "alone");
    dcp_save_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = s->size};
    held *all = calloc((size_t)s->size, sizeof *all);
    CHECK(all && dcp_state_create(&state, NULL) == DCP_OK);
    for (int r = 0; r < s->size; r++) {
        held_make(&all[r], g, how, r, s->size, 1);
        for (size_t i = 0; i < all[r].n; i++) {
            const held_box *b = &all[r].boxes[i];
            SUCCEEDS(dcp_state_add_source(state, &g->tensors[b->tensor], &b->box, read_memory,
                                          b->data, r, err));
        }
    }
    SUCCEEDS(dcp_save(store, 5, state, GIVEN_JSON, &options, NULL, err));
    dcp_state_destroy(state);
    for (int r = 0; r < s->size; r++) held_free(&all[r]);
    free(all);
    dcp_store_close(store);
}

static void compare(const scratch *s, scheme how) {
    for (int r = 0; r < s->size; r++) {
        char one[64], two[64];
        snprintf(one, sizeof one, "all/step-00000005/shard-%05d-of-%05d.h5", r, s->size);
        snprintf(two, sizeof two, "alone/step-00000005/shard-%05d-of-%05d.h5", r, s->size);
        if (!scratch_same(s, one, two)) check_failed(__FILE__, __LINE__, scheme_names[how]);
    }
}

/* One tensor of that name in two pieces on rank 0, in so many shards. */
static int save_one(const scratch *s, const char *path, int shards, int owner, dcp_error *err) {
    static unsigned char data[8];
    dcp_tensor tensor = {path, DCP_U8, 1, {8}};
    dcp_box halves[] = {{{0}, {4}}, {{4}, {4}}}, none = {{0}, {0}};
    dcp_state *state = NULL;
    dcp_store *store = scratch_store(s, s->comm, "refused");
    dcp_save_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = shards};
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    for (int i = 0; i < 2; i++)
        CHECK(dcp_state_add_source(state, &tensor, s->rank ? &none : &halves[i], read_memory, data,
                                   owner, NULL) == DCP_OK);
    int status = dcp_save(store, 5, state, NULL, &options, NULL, err);
    dcp_state_destroy(state);
    dcp_store_close(store);
    return status;
}

static void what_is_refused(const scratch *s) {
    dcp_error failure = {0};
    char path[DCP_MAX_PATH + 1] = "/model/";
    memset(path + 7, 'x', DCP_MAX_PATH - 7);
    check_same_failure(save_one(s, path, 0, -1, &failure), DCP_ERR_UNSUPPORTED, &failure,
                       "shorten");
    path[DCP_MAX_PATH - 12] = 0;
    SUCCEEDS(save_one(s, path, 0, -1, err));
    check_same_failure(save_one(s, "/model/w@1", 0, -1, &failure), DCP_ERR_UNSUPPORTED, &failure,
                       "/model/w@1");
    check_same_failure(save_one(s, "/model/w@12/x", 0, -1, &failure), DCP_ERR_UNSUPPORTED, &failure,
                       "/model/w@12/x");
    SUCCEEDS(save_one(s, "/model@a1/w@", 0, -1, err));
    check_same_failure(save_one(s, "/model/w", -1, -1, &failure), DCP_ERR_ARG, &failure, "-1 sha");
    check_same_failure(save_one(s, "/model/w", 100000, -1, &failure), DCP_ERR_ARG, &failure, "100");
    check_same_failure(save_one(s, "/model/w", s->size, s->size, &failure), DCP_ERR_ARG, &failure,
                       "/model/w: its box is for shard");
    SUCCEEDS(save_one(s, "/model/w", 3 * s->size, 2 * s->size, err));
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    static const scheme schemes[] = {ROWS, PAIRS, STRIPES};
    for (int i = 0; i < 3; i++) {
        scratch_save(&s, s.comm, "all", &g, schemes[i], DCP_LAYOUT_SHARDED);
        if (s.rank == 0) save_for_all(&s, &g, schemes[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        compare(&s, schemes[i]);
        scratch_load(&s, s.comm, "alone", &g, BLOCKS);
    }
    what_is_refused(&s);
    given_free(&g);
    return scratch_end(&s);
}
