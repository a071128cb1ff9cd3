/* Ranks that request different loads: each gets the same failure, which names the option and the
 * ranks, and the next load works. The last rank is the one that errs. */
#include "support/scratch.h"

static const char *const globs[] = {"/model/*", "/small/*"};
static const dcp_rename pairs[] = {{"/a/*", "/b/*"}, {"/b/*", "/a/*"}};

static const struct {
    dcp_load_options options;
    const char *text;
} cases[] = {
    {{.size = sizeof(dcp_load_options), .only = globs, .n_only = 2}, "only: one on "},
    {{.size = sizeof(dcp_load_options), .only = globs + 1, .n_only = 1}, "only: one on "},
    {{.size = sizeof(dcp_load_options),
      .only = globs,
      .n_only = 1,
      .renames = pairs,
      .n_renames = 2},
     "renames: one on "},
    {{.size = sizeof(dcp_load_options),
      .only = globs,
      .n_only = 1,
      .renames = pairs + 1,
      .n_renames = 1},
     "renames: one on "},
    {{.size = sizeof(dcp_load_options),
      .only = globs,
      .n_only = 1,
      .renames = pairs,
      .n_renames = 1,
      .cast = 1},
     "cast: 0 on "},
    {{.size = sizeof(dcp_load_options),
      .only = globs,
      .n_only = 1,
      .renames = pairs,
      .n_renames = 1,
      .missing_keys = DCP_MISSING_KEYS_KEEP},
     "missing_keys: 0 on "},
    {{.size = sizeof(dcp_load_options),
      .only = globs,
      .n_only = 1,
      .renames = pairs,
      .n_renames = 1,
      .unexpected_keys = DCP_UNEXPECTED_KEYS_REFUSE},
     "unexpected_keys: 0 on "},
};

/* A tensor that the checkpoint lacks and only the last rank has: accepted by all or by none. */
static void one_more(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    held h;
    float data;
    dcp_error failure = {0};
    dcp_tensor t = {"/model/zz", DCP_F32, 0, {0}};
    dcp_load_options options = {.size = sizeof options, .missing_keys = DCP_MISSING_KEYS_KEEP};
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    if (s->rank == s->size - 1) SUCCEEDS(dcp_state_add(h.state, &t, NULL, &data, err));
    int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "tensor /model/zz: missing on rank");
    held_free(&h);
}

/* One rank's options have no size: it fails on all, whatever else they specify. */
static void no_size(const scratch *s, dcp_checkpoint *ckpt, const given *g) {
    held h;
    dcp_error failure = {0};
    dcp_load_options options = {.size = sizeof options, .cast = 1};
    held_make(&h, g, ROWS, s->rank, s->size, 0);
    if (s->rank == s->size - 1) options.size = 0;
    int status = dcp_load_with(ckpt, h.state, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_ARG, &failure, "without DCP_LOAD_OPTIONS_INIT");
    CHECK(failure.rank == s->size - 1);
    held_free(&h);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    char dir[PATH_MAX], last[32];
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options usual = {
        .size = sizeof usual, .only = globs, .n_only = 1, .renames = pairs, .n_renames = 1};
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "store", &g, ROWS, DCP_LAYOUT_GLOBAL);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    snprintf(last, sizeof last, " on rank %d", s.size - 1);
    SUCCEEDS(dcp_checkpoint_open(s.comm, dir, &ckpt, err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        held h;
        dcp_error failure = {0};
        held_make(&h, &g, ROWS, s.rank, s.size, 0);
        int errs = s.rank == s.size - 1;
        int status =
            dcp_load_with(ckpt, h.state, errs ? &cases[i].options : &usual, NULL, &failure);
        check_same_failure(status, DCP_ERR_MISMATCH, &failure, cases[i].text);
        CHECK(strstr(failure.message, last) && failure.rank == s.size - 1);
        SUCCEEDS(dcp_load_with(ckpt, h.state, &usual, NULL, err));
        held_free(&h);
    }
    one_more(&s, ckpt, &g);
    no_size(&s, ckpt, &g);
    dcp_checkpoint_close(ckpt);
    given_free(&g);
    return scratch_end(&s);
}
