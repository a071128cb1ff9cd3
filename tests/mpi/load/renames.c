/* Renaming maps: the first pair that matches counts, one star is the same text on both sides, two
 * tensors may come from one; malformed maps are refused on all ranks, with the pair. */
#include "support/scratch.h"

static char names[GIVEN_TENSORS][64];

/* The given state under other names. */
static given renamed(const given *g) {
    given other = *g;
    for (size_t t = 0; t < GIVEN_TENSORS; t++) {
        const char *path = g->tensors[t].path;
        if (!strcmp(path, "/model/scalar"))
            strcpy(names[t], "/net/the one that is no matrix");
        else if (!strncmp(path, "/model/", 7))
            snprintf(names[t], sizeof names[t], "/net/backbone.%s", path + 7);
        else if (!strncmp(path, "/small/", 7))
            snprintf(names[t], sizeof names[t], "/few/%s/value", path + 7);
        else
            strcpy(names[t], path);
        other.tensors[t].path = names[t];
    }
    return other;
}

static const dcp_rename renames[] = {
    {"/net/the one that is no matrix", "/model/scalar"},
    {"/few/*/value", "/small/*"},
    {"/net/backbone.*", "/model/*"},
    {"/net/*", "/nowhere/*"},    /* never reached */
    {"/files/*.", "/nowhere/*"}, /* matches nothing */
};

static void all_under_other_names(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    given other = renamed(g);
    dcp_load_options options = {.size = sizeof options, .renames = renames, .n_renames = 5};
    static const scheme schemes[] = {ROWS, COLUMNS, COPIES, CORNERS};
    for (int i = 0; i < 4; i++) {
        held h;
        held_make(&h, &other, schemes[i], s->rank, s->size, 0);
        SUCCEEDS(dcp_load_with(ckpt, h.state, &options, NULL, err));
        CHECK(held_is_given(&h, &other));
        held_free(&h);
    }
}

/* By rows, by columns, and whole on every rank: three tensors from one. */
static void several_from_one(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    const dcp_rename to_one[] = {{"/tied/*", "/model/blocks"}, {"/tied/*", "/model/*"}};
    dcp_load_options options = {.size = sizeof options, .renames = to_one + 1, .n_renames = 1};
    const dcp_tensor *blocks = given_find(g, "/model/blocks");
    size_t number = (size_t)(blocks - g->tensors);
    dcp_box boxes[3] = {dcp_box_chunk(blocks, s->rank, s->size), dcp_box_whole(blocks),
                        dcp_box_whole(blocks)};
    boxes[1].count[1] = blocks->shape[1] / (uint64_t)s->size;
    boxes[1].start[1] = boxes[1].count[1] * (uint64_t)s->rank;
    if (s->rank == s->size - 1) boxes[1].count[1] = blocks->shape[1] - boxes[1].start[1];
    unsigned char *data[3], *want[3];
    uint64_t bytes[3];
    dcp_state *state = NULL;
    dcp_rename exact[3];
    char paths[3][32];
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < 3; i++) {
        dcp_tensor t = *blocks;
        snprintf(paths[i], sizeof paths[i], "/tied/%d", i);
        t.path = paths[i];
        exact[i] = (dcp_rename){paths[i], "/model/blocks"};
        want[i] = given_cut(g, number, &boxes[i], &bytes[i]);
        data[i] = calloc(bytes[i] + 1, 1);
        SUCCEEDS(dcp_state_add(state, &t, &boxes[i], data[i], err));
    }
    options.renames = exact;
    options.n_renames = 3;
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    for (int i = 0; i < 3; i++) CHECK(!memcmp(data[i], want[i], bytes[i]));
    options.renames = to_one; /* a star on only one side */
    options.n_renames = 1;
    dcp_error failure = {0};
    int status = dcp_load_with(ckpt, state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "{\"/tied/*\", \"/model/blocks\"}");
    dcp_state_destroy(state);
    for (int i = 0; i < 3; i++) {
        free(want[i]);
        free(data[i]);
    }
}

static void what_is_refused(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    char longest[DCP_MAX_PATH];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "/x/*", 4);
    longest[sizeof longest - 1] = 0;
    const struct {
        dcp_rename pair;
        int status;
        const char *text;
    } cases[] = {
        {{"/mo*/*", "/a/*"}, DCP_ERR_ARG, "{\"/mo*/*\", \"/a/*\"}: there can be at most one *"},
        {{"/model/*", "/a/**"},
         DCP_ERR_ARG,
         "{\"/model/*\", \"/a/**\"}: there can be at most one *"},
        {{"/model/one", "/a/*"}, DCP_ERR_ARG, "{\"/model/one\", \"/a/*\"}: a * has to be"},
        {{"/model/*", NULL}, DCP_ERR_ARG, "{\"/model/*\", \"(null)\"}"},
        {{NULL, "/model/*"}, DCP_ERR_ARG, "{\"(null)\", \"/model/*\"}"},
        {{"model/*", "/model/*"}, DCP_ERR_ARG, "a tensor's name begins with /"},
        {{"/model/*", "model/*"}, DCP_ERR_ARG, "tensor /model/blocks gets no valid name: it must"},
        {{"/model/*", "/model//*"}, DCP_ERR_ARG, "it has an empty"},
        {{"/model/*", longest}, DCP_ERR_ARG, "longer than 1,024"},
        {{"/model/o*", "/model/O*"},
         DCP_ERR_NOT_FOUND,
         "tensor /model/one is not in the checkpoint "
         "under /model/One (1 of 96 are missing)"},
        {{"/model/one", "/model/scalar"},
         DCP_ERR_MISMATCH,
         "/model/one from /model/scalar is F32 []"},
    };
    held h;
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_error failure = {0};
        dcp_load_options options = {
            .size = sizeof options, .renames = &cases[i].pair, .n_renames = 1};
        int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
        check_same_failure(status, cases[i].status, &failure, cases[i].text);
    }
    held_free(&h);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "store", &g, STRIPES, DCP_LAYOUT_SHARDED);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    all_under_other_names(&s, ckpt, &g);
    several_from_one(&s, ckpt, &g);
    what_is_refused(&s, ckpt, &g);
    dcp_checkpoint_close(ckpt);
    given_free(&g);
    return scratch_end(&s);
}
