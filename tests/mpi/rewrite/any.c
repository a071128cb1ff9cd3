/* A rewritten step is the one that a save of the same boxes writes, file by file, whatever boxes it
 * is made from: shards of any scheme or a global file, on all ranks or on one, in the least
 * memory. */
#include "support/scratch.h"

typedef struct cutting {
    const given *g;
    scheme how;
    int size;
} cutting;

static dcp_box cut(void *ctx, const dcp_tensor *tensor, int shard) {
    const cutting *c = ctx;
    size_t t = (size_t)(given_find(c->g, tensor->path) - c->g->tensors);
    return given_box(c->g, t, c->how, shard, c->size);
}

static void rewrite(const scratch *s, dcp_comm *comm, const dcp_rewrite_options *options) {
    char dir[PATH_MAX];
    dcp_checkpoint *from = NULL;
    dcp_report report = DCP_REPORT_INIT;
    dcp_store *to = scratch_store(s, comm, "rewritten");
    snprintf(dir, sizeof dir, "%s/from", s->root);
    SUCCEEDS(dcp_checkpoint_open(comm, dir, &from, err));
    SUCCEEDS(dcp_rewrite(from, to, options, &report, err));
    CHECK(report.bytes > 0 && report.total_s > 0);
    dcp_checkpoint_close(from);
    dcp_store_close(to);
}

static void same_shards(const scratch *s, scheme how) {
    for (int r = 0; r < s->size; r++) {
        char one[80], two[80];
        snprintf(one, sizeof one, "saved/step-00000005/shard-%05d-of-%05d.h5", r, s->size);
        snprintf(two, sizeof two, "rewritten/step-00000005/shard-%05d-of-%05d.h5", r, s->size);
        if (!scratch_same(s, one, two)) check_failed(__FILE__, __LINE__, scheme_names[how]);
    }
}

/* Rewrites the step in "from" with the ranks of `comm`. */
static void to_shards(const scratch *s, dcp_comm *comm, const given *g, scheme how) {
    cutting c = {g, how, s->size};
    const dcp_rewrite_options options = {.size = sizeof options,
                                         .layout = DCP_LAYOUT_SHARDED,
                                         .shards = s->size,
                                         .cut = cut,
                                         .cut_ctx = &c,
                                         .memory_bytes = DCP_REWRITE_LEAST};
    rewrite(s, comm, &options);
}

static void to_global(const scratch *s, dcp_comm *comm) {
    const dcp_rewrite_options options = {.size = sizeof options, .layout = DCP_LAYOUT_GLOBAL};
    rewrite(s, comm, &options);
    CHECK(scratch_same(s, "global/step-00000005/state.h5", "rewritten/step-00000005/state.h5"));
}

static void check_from(const scratch *s, const given *g, scheme from, dcp_layout layout) {
    static const scheme schemes[] = {ROWS, COLUMNS, BLOCKS, MESH, PAIRS, OWNERS};
    scratch_save(s, s->comm, "from", g, from, layout);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        scratch_save(s, s->comm, "saved", g, schemes[i], DCP_LAYOUT_SHARDED);
        to_shards(s, s->comm, g, schemes[i]);
        same_shards(s, schemes[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        if (s->rank == 0) to_shards(s, s->self, g, schemes[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        same_shards(s, schemes[i]);
    }
    to_global(s, s->comm);
    if (s->rank == 0) to_global(s, s->self);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    scratch_save(&s, s.comm, "global", &g, ROWS, DCP_LAYOUT_GLOBAL);
    check_from(&s, &g, ROWS, DCP_LAYOUT_GLOBAL);
    check_from(&s, &g, ROWS, DCP_LAYOUT_SHARDED);
    check_from(&s, &g, BLOCKS, DCP_LAYOUT_SHARDED);
    check_from(&s, &g, STRIPES, DCP_LAYOUT_SHARDED);
    given_free(&g);
    return scratch_end(&s);
}
