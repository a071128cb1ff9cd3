/* How many collectives of a caller's table are needed to open a step, load it and close it, besides
 * those that carry tensors' data. With large tensors none carry data, because each rank reads all
 * of its own. The arguments LAYERS HIDDEN VOCAB use another state than the test's own. */
#include "support/bench_state.h"
#include "support/counted.h"
#include "support/scratch.h"

enum { MOST_GLOBAL = 15, MOST_SHARDED = 19 };

static void load_once(const scratch *s, dcp_comm *comm, bench_state *b, const char *name,
                      int is_large) {
    char what[128];
    bench_state_fill(b, 0);
    counted_begin();
    dcp_checkpoint *ckpt = scratch_open(s, comm, name);
    const int is_sharded = dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_SHARDED;
    snprintf(what, sizeof what, "%s, %s", name, "open");
    counted_end(what);
    const size_t opened = counted.n;
    SUCCEEDS(dcp_load(ckpt, b->state, NULL, err));
    dcp_checkpoint_close(ckpt);
    CHECK(counted.n >= opened);
    snprintf(what, sizeof what, "%s, %s", name, "open and load");
    CHECK(counted_end(what) <= (is_sharded ? MOST_SHARDED : MOST_GLOBAL));
    CHECK(!is_large || counted_with_data() == 0);
    CHECK(bench_state_is(b, COUNTED_BYTE));
}

static void load_state(const scratch *s, dcp_comm *comm, const char *name, unsigned layers,
                       unsigned hidden, unsigned vocab) {
    char folder[64];
    bench_state b = bench_state_make(layers, hidden, vocab, s->rank, s->size);
    for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        const dcp_save_options options = {.size = sizeof options, .layout = (dcp_layout)layout};
        snprintf(folder, sizeof folder, "%s-%s", name, layout ? "sharded" : "global");
        dcp_store *store = scratch_store(s, s->comm, folder);
        bench_state_fill(&b, COUNTED_BYTE);
        SUCCEEDS(dcp_save(store, 1, b.state, NULL, &options, NULL, err));
        dcp_store_close(store);
        load_once(s, comm, &b, folder, hidden >= 512);
    }
    bench_state_free(&b);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    dcp_comm *comm = counted_comm();
    if (argc > 3) {
        load_state(&s, comm, "given", (unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]),
                   (unsigned)atoi(argv[3]));
    } else {
        load_state(&s, comm, "276-tensors", 10, 64, 2000);
        load_state(&s, comm, "276-tensors-in-many-windows", 10, 256, 4000);
        load_state(&s, comm, "10806-tensors", 400, 8, 128);
        load_state(&s, comm, "large-tensors", 1, 512, 2000);
    }
    dcp_comm_destroy(comm);
    return scratch_end(&s);
}
