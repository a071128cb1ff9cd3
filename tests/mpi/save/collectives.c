/* How many collectives of a caller's table a save needs, besides those that carry tensors' data;
 * with replicas one more if the plan is new. If most of the state is large tensors, at most one
 * carries data, in however many windows their ends and the small tensors are. The arguments LAYERS
 * HIDDEN VOCAB use another state than the test's own. */
#include "support/bench_state.h"
#include "support/counted.h"
#include "support/scratch.h"

typedef enum call { NEW, SECOND, KEPT, FIRST_ASYNC, ASYNC, CALLS } call;

static const struct {
    const char *name;
    unsigned most[2]; /* layout global and sharded */
} calls[] = {
    [NEW] = {"a new plan", {16, 13}}, [SECOND] = {"a kept plan, told what files can share", {6, 6}},
    [KEPT] = {"a kept plan", {6, 5}}, [FIRST_ASYNC] = {"async, with a new communicator", {9, 8}},
    [ASYNC] = {"async", {6, 5}},
};

static void save_some(const scratch *s, dcp_comm *comm, bench_state *b, dcp_layout layout,
                      const char *name, int has_replicas, int is_large) {
    char what[128];
    const dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_store *store = scratch_store(s, comm, name);
    for (call c = NEW; c < CALLS; c++) {
        dcp_saving *saving;
        bench_state_fill(b, COUNTED_BYTE);
        counted_begin();
        if (c >= FIRST_ASYNC) {
            SUCCEEDS(dcp_save_async(store, c, b->state, NULL, &options, &saving, err));
            SUCCEEDS(dcp_save_wait(saving, NULL, err));
        } else {
            SUCCEEDS(dcp_save(store, c, b->state, NULL, &options, NULL, err));
        }
        snprintf(what, sizeof what, "%s, %s", name, calls[c].name);
        CHECK(counted_end(what) <= calls[c].most[layout] + (c == NEW && has_replicas));
        CHECK(!is_large || counted_with_data() <= 1);
    }
    dcp_store_close(store);
}

static void save_state(const scratch *s, dcp_comm *comm, const char *name, unsigned layers,
                       unsigned hidden, unsigned vocab, int holders) {
    char layout_name[64];
    bench_state b = bench_state_make(layers, hidden, vocab, s->rank / holders, s->size / holders);
    snprintf(layout_name, sizeof layout_name, "%s-global", name);
    save_some(s, comm, &b, DCP_LAYOUT_GLOBAL, layout_name, holders > 1, hidden >= 512);
    snprintf(layout_name, sizeof layout_name, "%s-sharded", name);
    save_some(s, comm, &b, DCP_LAYOUT_SHARDED, layout_name, holders > 1, hidden >= 512);
    bench_state_free(&b);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    dcp_comm *comm = counted_comm();
    if (argc > 3) {
        save_state(&s, comm, "given", (unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]),
                   (unsigned)atoi(argv[3]), 1);
    } else {
        save_state(&s, comm, "276-tensors", 10, 64, 2000, 1);
        save_state(&s, comm, "10806-tensors", 400, 8, 128, 1);
        save_state(&s, comm, "large-tensors", 6, 512, 2000, 1);
        if (s.size > 2) /* each of two ranks writes what it holds, and only metadata are sent */
            save_state(&s, comm, "276-tensors-twice", 10, 64, 2000, 2);
    }
    dcp_comm_destroy(comm);
    return scratch_end(&s);
}
