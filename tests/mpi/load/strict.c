/* Tensors that only one side has: missing ones are refused, or left unchanged and reported to every
 * rank; unexpected ones are ignored or refused, under the names that globs and renames give. */
#include "support/scratch.h"

typedef struct told {
    char paths[8][64];
    int n;
} told;

static void tell(void *ctx, const char *path) {
    told *t = ctx;
    CHECK(t->n < 8);
    snprintf(t->paths[t->n++], sizeof t->paths[0], "%s", path);
}

/* The given state and two tensors that were never saved. */
static void add_new(const scratch *s, held *h, float *data) {
    dcp_tensor late = {"/model/zz.new", DCP_F32, 1, {9}}, early = {"/adapter/new", DCP_F32, 0, {0}};
    dcp_box part = dcp_box_chunk(&late, s->rank, s->size);
    for (int i = 0; i < 10; i++) data[i] = 7;
    SUCCEEDS(dcp_state_add(h->state, &late, &part, data, err));
    SUCCEEDS(dcp_state_add(h->state, &early, NULL, data + 9, err));
}

static void missing_ones(const scratch *s, dcp_checkpoint *ckpt, const given *g, scheme how) {
    held h;
    float data[10];
    told t = {.n = 0};
    dcp_error failure = {0};
    dcp_load_options options = {.size = sizeof options, .on_missing = tell, .ctx = &t};
    held_make(&h, g, how, s->rank, s->size, 0);
    add_new(s, &h, data);
    int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure,
                       "tensor /adapter/new is not in the checkpoint (2 of ");
    CHECK(t.n == 0);
    options.missing_keys = DCP_MISSING_KEYS_KEEP;
    SUCCEEDS(dcp_load_with(ckpt, h.state, &options, NULL, err));
    CHECK(held_is_given(&h, g));
    for (int i = 0; i < 10; i++) CHECK(data[i] == 7);
    CHECK(t.n == 2 && !strcmp(t.paths[0], "/adapter/new") && !strcmp(t.paths[1], "/model/zz.new"));
    const char *const model = "/model/*";
    options.only = &model;
    options.n_only = 1;
    SUCCEEDS(dcp_load_with(ckpt, h.state, &options, NULL, err));
    CHECK(t.n == 3 && !strcmp(t.paths[2], "/model/zz.new"));
    options.on_missing = NULL;
    SUCCEEDS(dcp_load_with(ckpt, h.state, &options, NULL, err));
    held_free(&h);
}

static void refuses(dcp_checkpoint *ckpt, const held *h, const dcp_load_options *options,
                    const char *text) {
    dcp_error failure = {0};
    int status = dcp_load_with(ckpt, h->state, options, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, text);
}

static void unexpected_ones(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    held all, half;
    const char *const notes[] = {"/files/*"}, *const model[] = {"/model/*"}, *const x[] = {"/x/*"};
    const dcp_rename to_model = {"/x/*", "/model/*"}, away = {"/small/*", "/y/*"};
    dcp_load_options options = {.size = sizeof options,
                                .unexpected_keys = DCP_UNEXPECTED_KEYS_REFUSE};
    held_make(&all, g, ROWS, s->rank, s->size, 0);
    held_make(&half, g, ONE_OF_TWO, s->rank, s->size, 0);
    SUCCEEDS(dcp_load_with(ckpt, all.state, &options, NULL, err));
    refuses(ckpt, &half, &options,
            "tensor /model/blocks is in the checkpoint, and nothing of the "
            "state is loaded from it (48 such tensors): add it to the state");
    options.only = notes;
    options.n_only = 1;
    SUCCEEDS(dcp_load_with(ckpt, half.state, &options, NULL, err));
    options.only = model;
    refuses(ckpt, &half, &options, "tensor /model/blocks is in the checkpoint");
    refuses(ckpt, &half, &options, "(6 such tensors)");
    options.renames = &away; /* no name under /model/ leads to /y/ */
    options.n_renames = 1;
    SUCCEEDS(dcp_load_with(ckpt, all.state, &options, NULL, err));
    dcp_tensor one = *given_find(g, "/model/one");
    float data;
    one.path = "/x/one";
    SUCCEEDS(dcp_state_add(half.state, &one, NULL, &data, err));
    options.only = x;
    options.renames = &to_model; /* all of /model/ has a name under /x/, one is loaded */
    refuses(ckpt, &half, &options, "(12 such tensors)");
    options.unexpected_keys = DCP_UNEXPECTED_KEYS_IGNORE;
    SUCCEEDS(dcp_load_with(ckpt, half.state, &options, NULL, err));
    CHECK(!memcmp(&data, g->data[given_find(g, "/model/one") - g->tensors], sizeof data));
    held_free(&all);
    held_free(&half);
}

/* Files that an import keeps need not be loaded: the glob also matches /files/notes.txt. */
static void files_are_let_be(dcp_checkpoint *ckpt, const given *g) {
    dcp_tensor four = *given_find(g, "/model/four");
    const char *const both = "/*/[fn]o*";
    const dcp_load_options options = {.size = sizeof options,
                                      .only = &both,
                                      .n_only = 1,
                                      .unexpected_keys = DCP_UNEXPECTED_KEYS_REFUSE};
    int16_t data[5 * 3 * 2 * 7];
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &four, NULL, data, err));
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    CHECK(!memcmp(data, g->data[given_find(g, "/model/four") - g->tensors], sizeof data));
    dcp_state_destroy(state);
}

static void no_such_value(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    held h;
    dcp_error failure = {0};
    dcp_load_options options = {.size = sizeof options, .missing_keys = (dcp_missing_keys)2};
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "missing_keys");
    held_free(&h);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "store", &g, ROWS, DCP_LAYOUT_GLOBAL);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    missing_ones(&s, ckpt, &g, BLOCKS);
    missing_ones(&s, ckpt, &g, HALO);
    unexpected_ones(&s, ckpt, &g);
    files_are_let_be(ckpt, &g);
    no_such_value(&s, ckpt, &g);
    dcp_checkpoint_close(ckpt);
    given_free(&g);
    return scratch_end(&s);
}
