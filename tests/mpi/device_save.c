/* Saves from a device's memory: the same files as from memory, whatever the boxes, layout and
 * engine; what the program launched before the save is in them, what it changes after the fence is
 * not; page-locked memory is bounded. */
#include "comm/comm.h"
#include "on_device.h"

#define ROOM ((uint64_t)64 << 20)

static void same_files(const scratch *s, stand_in *d, const given *g) {
    static const struct {
        scheme how;
        dcp_layout layout;
        dcp_engine engine;
        size_t in_memory;
    } cases[] = {
        {ROWS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 0},
        {COLUMNS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 0},
        {STRIPES, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 3},
        {PAIRS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO, 0},
        {MESH, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        on_device o;
        char one[100], two[100], file[64] = "step-00000005/state.h5";
        dcp_save_options options = {
            .layout = cases[i].layout, .engine = cases[i].engine, .staging_bytes = 1};
        dcp_store *store = scratch_store(s, s->comm, "device");
        on_device_make(&o, d, g, cases[i].how, s->rank, s->size, 1, cases[i].in_memory);
        for (int again = 0; again < 2; again++)
            SUCCEEDS(dcp_save(store, 5, o.state, GIVEN_JSON, &options, NULL, err));
        dcp_store_close(store);
        on_device_free(&o);
        CHECK(d->calls[STAND_IN_TO_HOST] > 0 && d->pinned_most < (9u << 20));
        scratch_save(s, s->comm, "plain", g, cases[i].how, cases[i].layout);
        MPI_Barrier(MPI_COMM_WORLD);
        if (cases[i].layout == DCP_LAYOUT_SHARDED)
            snprintf(file, sizeof file, "step-00000005/shard-00000-of-%05d.h5", s->size);
        snprintf(one, sizeof one, "device/%s", file);
        snprintf(two, sizeof two, "plain/%s", file);
        CHECK(scratch_same(s, one, two));
    }
}

/* Memory that holds the state only once the program's launches are done, and nothing of it after
 * the fence. */
static void between_launch_and_fence(const scratch *s, stand_in *d, const given *g) {
    on_device o;
    dcp_saving *saving = NULL;
    dcp_store *store = scratch_store(s, s->comm, "flight");
    on_device_make(&o, d, g, ROWS, s->rank, s->size, 1, 0);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < o.h.n; i++) {
            uint64_t bytes = box_bytes(g, &o.h.boxes[i]);
            if (!bytes) continue;
            memset(stand_in_see(d, o.at[i]), 0x11, bytes);
            stand_in_launch(d, o.at[i], o.h.boxes[i].data, bytes);
        }
        SUCCEEDS(dcp_save_async(store, 5, o.state, GIVEN_JSON, NULL, &saving, err));
        dcp_save_fence(saving);
        memset(d->behind, 0x22, d->used);
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(scratch_same(s, "flight/step-00000005/state.h5", "rows/step-00000005/state.h5"));
    }
    dcp_store_close(store);
    on_device_free(&o);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    stand_in d;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    stand_in_make(&d, ROOM);
    same_files(&s, &d, &g);
    scratch_save(&s, s.comm, "rows", &g, ROWS, DCP_LAYOUT_GLOBAL);
    for (int threads = 1; threads >= 0; threads--) {
        if (!threads) s.comm->make_twin = NULL;
        between_launch_and_fence(&s, &d, &g);
    }
    stand_in_free(&d);
    given_free(&g);
    return scratch_end(&s);
}
