/* Loads into a device's memory: what one rank or all of them saved from memory or from a device, on
 * any ranks, into any boxes, with both engines, from both layouts, with casts; copies of several
 * ranks are compared, and missing data are detected. */
#include "on_device.h"

#define ROOM ((uint64_t)96 << 20)

static void load(const scratch *s, dcp_comm *comm, stand_in *d, const char *name, const given *g,
                 scheme how, dcp_engine engine, size_t in_memory) {
    on_device o;
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options options = {.size = sizeof options, .engine = engine};
    ckpt = scratch_open(s, comm, name);
    on_device_make(&o, d, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 0, in_memory);
    SUCCEEDS(dcp_load_with(ckpt, o.state, &options, NULL, err));
    CHECK(on_device_is_given(&o, g));
    CHECK(d->pinned_most < (17u << 20) && !d->pinned);
    on_device_free(&o);
    dcp_checkpoint_close(ckpt);
}

static void save_from_device(const scratch *s, dcp_comm *comm, stand_in *d, const char *name,
                             const given *g, scheme how, dcp_layout layout) {
    on_device o;
    dcp_save_options options = {.size = sizeof options, .layout = layout, .staging_bytes = 1};
    dcp_store *store = scratch_store(s, comm, name);
    on_device_make(&o, d, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 1, 0);
    SUCCEEDS(dcp_save(store, 5, o.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(store);
    on_device_free(&o);
}

/* Every float tensor of 2, 4 or 8 bytes as F32, as F64 and as C128; rank r's boxes are in memory if
 * r % 3 is 1. */
static void casts(const scratch *s, stand_in *d, const given *g, scheme how) {
    static const dcp_dtype as[] = {DCP_F32, DCP_F64, DCP_C128};
    dcp_checkpoint *ckpt = NULL;
    ckpt = scratch_open(s, s->comm, "alone");
    for (int k = 0; k < 3; k++) {
        held h;
        dcp_state *state = NULL;
        unsigned char *to[GIVEN_TENSORS] = {0};
        dcp_load_options options = {.size = sizeof options, .cast = 1};
        held_make(&h, g, how, s->rank, s->size, 1);
        stand_in_clear(d);
        SUCCEEDS(dcp_state_create(&state, err));
        for (size_t i = 0; i < h.n; i++) {
            dcp_tensor t = g->tensors[h.boxes[i].tensor];
            uint64_t n = dcp_box_elems(&h.boxes[i].box, t.ndim);
            if (t.dtype > DCP_BF16) continue;
            t.dtype = as[k];
            to[i] = s->rank % 3 == 1
                        ? malloc(n * 16 + 1)
                        : stand_in_alloc(d, n * dcp_dtype_bytes(as[k]), (unsigned)(i % 5));
            CHECK(to[i]);
            if (s->rank % 3 == 1)
                SUCCEEDS(dcp_state_add(state, &t, &h.boxes[i].box, to[i], err));
            else
                SUCCEEDS(dcp_state_add_device(state, &t, &h.boxes[i].box, &d->device, to[i], err));
        }
        SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
        for (size_t i = 0; i < h.n; i++) {
            const dcp_tensor *t = &g->tensors[h.boxes[i].tensor];
            uint64_t n = dcp_box_elems(&h.boxes[i].box, t->ndim),
                     bytes = n * dcp_dtype_bytes(as[k]);
            if (!to[i]) continue;
            unsigned char *want = malloc(bytes + 1);
            CHECK(want && dcp_convert(t->dtype, h.boxes[i].data, as[k], want, n) == DCP_OK);
            const unsigned char *have = to[i];
            if (s->rank % 3 != 1 && bytes) have = stand_in_see(d, to[i]);
            if (bytes && memcmp(want, have, bytes)) check_failed(__FILE__, __LINE__, t->path);
            free(want);
            if (s->rank % 3 == 1) free(to[i]);
        }
        dcp_state_destroy(state);
        held_free(&h);
    }
    dcp_checkpoint_close(ckpt);
}

/* On the last rank; all fail alike, and a load may be tried again. */
static void failures(const scratch *s, stand_in *d, const given *g) {
    static const stand_in_failure cases[] = {
        {STAND_IN_ALLOC, 0, DCP_ERR_NO_MEMORY, "stand-in:0: 16 MiB of page-locked memory: failed"},
        {STAND_IN_OPEN, 0, DCP_ERR_DEVICE, "stand-in:0: no stream"},
        {STAND_IN_FOLLOW, 0, DCP_ERR_DEVICE, "failed as it was told"},
        {STAND_IN_TO_DEVICE, 3, DCP_ERR_DEVICE, "cannot copy to the device"},
        {STAND_IN_CHECKSUM, 1, DCP_ERR_DEVICE, "cannot take the checksum"},
        {STAND_IN_RECORD, 0, DCP_ERR_DEVICE, "cannot record"},
        {STAND_IN_WAIT, 0, DCP_ERR_DEVICE, "cannot copy or checksum"},
        {STAND_IN_CALLS, 2, DCP_ERR_DEVICE, "another checksum on the device"},
    };
    dcp_checkpoint *ckpt = NULL;
    ckpt = scratch_open(s, s->comm, "alone");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        on_device o;
        dcp_error failure = {0};
        on_device_make(&o, d, g, FEW_COLUMNS, s->rank, s->size, 0, 0);
        if (s->rank == s->size - 1) stand_in_fail(d, &cases[i]);
        int status = dcp_load(ckpt, o.state, NULL, &failure);
        check_same_failure(status, cases[i].status, &failure, cases[i].text);
        CHECK(failure.rank == s->size - 1);
        stand_in_mend(d);
        if (i == 3) {
            SUCCEEDS(dcp_load(ckpt, o.state, NULL, err));
            CHECK(on_device_is_given(&o, g));
        }
        on_device_free(&o);
    }
    dcp_checkpoint_close(ckpt);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    stand_in d;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    stand_in_make(&d, ROOM);
    if (s.rank == 0) save_from_device(&s, s.self, &d, "alone", &g, COPIES, DCP_LAYOUT_GLOBAL);
    save_from_device(&s, s.comm, &d, "shards", &g, BLOCKS, DCP_LAYOUT_SHARDED);
    d.pinned_most = 0;
    load(&s, s.comm, &d, "alone", &g, COLUMNS, DCP_ENGINE_DIRECT, 0);
    load(&s, s.comm, &d, "alone", &g, PAIRS, DCP_ENGINE_DIRECT, 2);
    load(&s, s.comm, &d, "alone", &g, HALO, DCP_ENGINE_DIRECT, 0);
    load(&s, s.comm, &d, "shards", &g, ROWS, DCP_ENGINE_DIRECT, 3);
    load(&s, s.comm, &d, "shards", &g, MESH, DCP_ENGINE_MPIO, 0);
    if (s.rank == 0) load(&s, s.self, &d, "shards", &g, STRIPES, DCP_ENGINE_DIRECT, 0);
    casts(&s, &d, &g, ROWS);
    casts(&s, &d, &g, HALO);
    failures(&s, &d, &g);
    stand_in_free(&d);
    given_free(&g);
    return scratch_end(&s);
}
