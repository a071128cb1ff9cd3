/* Globs: what one of them matches is loaded, all other memory is unchanged; a glob without a match,
 * and invalid globs, are refused on all ranks. */
#include "support/scratch.h"

static int in_model(const char *path) { return !strncmp(path, "/model/", 7); }

static int four_small_ones_and_the_step(const char *path) {
    return !strncmp(path, "/small/2", 8) ? path[8] >= '0' && path[8] <= '3' && path[9] == '.'
                                         : !strcmp(path, "/optimizer/step");
}

static int the_notes(const char *path) { return !strcmp(path, "/files/notes.txt"); }

static int all_of_them(const char *path) { return path != NULL; }

static const struct {
    const char *globs[3];
    size_t n;
    int (*matches)(const char *path);
} cases[] = {
    {{"/model/*"}, 1, in_model},
    {{"/small/2[0-3].*", "/optimizer/step"}, 2, four_small_ones_and_the_step},
    {{"/fi*/note?.txt"}, 1, the_notes},
    {{"*.txt", "/files/*", "\\/files/notes.txt"}, 3, the_notes},
    {{"/*"}, 1, all_of_them},
    {{NULL}, 0, all_of_them},
};

static void check_memory(const held *h, const given *g, int (*matches)(const char *path)) {
    for (size_t i = 0; i < h->n; i++) {
        uint64_t bytes;
        const held_box *b = &h->boxes[i];
        unsigned char *want = given_cut(g, b->tensor, &b->box, &bytes);
        if (!matches(g->tensors[b->tensor].path)) memset(want, 0xee, bytes);
        if (memcmp(want, b->data, bytes))
            check_failed(__FILE__, __LINE__, g->tensors[b->tensor].path);
        free(want);
    }
}

static void what_matches_is_loaded(const scratch *s, dcp_checkpoint *ckpt, const given *g,
                                   scheme how, size_t n_cases) {
    for (size_t i = 0; i < n_cases; i++) {
        held h;
        dcp_report report = DCP_REPORT_INIT;
        dcp_load_options options = {
            .size = sizeof options, .only = cases[i].globs, .n_only = cases[i].n};
        uint64_t bytes = 0;
        for (size_t t = 0; t < GIVEN_TENSORS; t++)
            if (cases[i].matches(g->tensors[t].path)) bytes += dcp_tensor_bytes(&g->tensors[t]);
        held_make(&h, g, how, s->rank, s->size, 0);
        SUCCEEDS(dcp_load_with(ckpt, h.state, &options, &report, err));
        check_memory(&h, g, cases[i].matches);
        CHECK(report.bytes == bytes);
        held_free(&h);
    }
}

static void what_is_refused(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    held h;
    dcp_error failure = {0};
    const char *const none[] = {"/model/*", "/module/*"}, *const null[] = {"/model/*", NULL};
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    dcp_load_options options = {.size = sizeof options, .only = none, .n_only = 2};
    int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure, "/module/*");
    options.only = null;
    status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "only[1]");
    options.only = NULL;
    status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "only");
    held_free(&h);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    if (s.rank == 0) scratch_save(&s, s.self, "alone", &g, COPIES, DCP_LAYOUT_GLOBAL);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(dir, sizeof dir, "%s/alone", s.root);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    what_matches_is_loaded(&s, ckpt, &g, ROWS, sizeof cases / sizeof *cases);
    what_matches_is_loaded(&s, ckpt, &g, PAIRS, 1);
    what_matches_is_loaded(&s, ckpt, &g, HALO, 2);
    what_is_refused(&s, ckpt, &g);
    dcp_checkpoint_close(ckpt);
    given_free(&g);
    return scratch_end(&s);
}
