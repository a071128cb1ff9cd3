/* Any caller adds tensors and JSON under sections of its own: they are loaded unchanged on another
 * number of ranks, together or only one caller's. */
#include <jansson.h>

#include "support/scratch.h"

#define IDS 37
static const char json[] =
    "{\"loader\":{\"seed\":7,\"files\":[\"a\",\"\\u00e9\"]},\"ema\":{\"decay\":"
    "0.999},\"format\":99}";

typedef struct callers {
    float weight[6];
    uint64_t ids[IDS], cursor;
    unsigned char name[5], done;
} callers;

static void add(dcp_state *state, const char *path, dcp_dtype dtype, uint32_t ndim, uint64_t rows,
                void *data, dcp_comm *comm) {
    dcp_tensor t = {path, dtype, ndim, {rows}};
    dcp_box part = dcp_box_chunk(&t, dcp_comm_rank(comm), dcp_comm_size(comm));
    SUCCEEDS(dcp_state_add(state, &t, &part, (char *)data + part.start[0] * dcp_dtype_bytes(dtype),
                           err));
}

/* A trainer's tensors, a data loader's, and some of a third caller with arbitrary names. */
static dcp_state *make_state(callers *c, dcp_comm *comm) {
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    add(state, "/model/weight", DCP_F32, 1, 6, c->weight, comm);
    add(state, "/loader/worker.3/queue/ids", DCP_U64, 1, IDS, c->ids, comm);
    add(state, "/loader/cursor", DCP_U64, 0, 0, &c->cursor, comm);
    add(state, "/Søren's stats/na me", DCP_U8, 1, 5, c->name, comm);
    add(state, "/Søren's stats/done?", DCP_BOOL, 0, 0, &c->done, comm);
    return state;
}

static void fill(callers *c) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < 6; i++) c->weight[i] = (float)i / 3;
    for (int i = 0; i < IDS; i++) c->ids[i] = ~(uint64_t)i * 977;
    c->cursor = UINT64_MAX;
    memcpy(c->name, "a\0b/c", 5);
    c->done = 1;
}

static void check_json(const dcp_checkpoint *ckpt) {
    json_t *have = json_loads(dcp_checkpoint_json(ckpt), 0, NULL),
           *want = json_loads(json, 0, NULL);
    CHECK(have && want && json_object_size(have) == 4); /* and step */
    CHECK(json_equal(json_object_get(have, "loader"), json_object_get(want, "loader")));
    CHECK(json_equal(json_object_get(have, "ema"), json_object_get(want, "ema")));
    CHECK(!json_equal(json_object_get(have, "format"), json_object_get(want, "format")));
    json_decref(have);
    json_decref(want);
}

/* One rank sees all of it; loading only the loader's part leaves the rest unchanged. */
static void load(const scratch *s, const char *dir, const char *glob) {
    callers want, have;
    dcp_checkpoint *ckpt = NULL;
    dcp_load_options options = {.size = sizeof options, .only = &glob, .n_only = glob != NULL};
    fill(&want);
    memset(&have, 0, sizeof have);
    if (glob) {
        callers none;
        memset(&none, 0, sizeof none);
        memcpy(want.weight, none.weight, sizeof want.weight);
        memcpy(want.name, none.name, sizeof want.name);
        want.done = 0;
    }
    dcp_state *state = make_state(&have, s->self);
    SUCCEEDS(dcp_checkpoint_open(s->self, dir, &ckpt, err));
    check_json(ckpt);
    SUCCEEDS(dcp_load_with(ckpt, state, &options, NULL, err));
    CHECK(!memcmp(&want, &have, sizeof want));
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
}

int main(int argc, char **argv) {
    scratch s;
    callers c;
    char dir[PATH_MAX];
    scratch_begin(&s, &argc, &argv);
    fill(&c);
    snprintf(dir, sizeof dir, "%s/store", s.root);
    for (dcp_layout layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        dcp_store *store = scratch_store(&s, s.comm, "store");
        dcp_state *state = make_state(&c, s.comm);
        dcp_save_options options = {.size = sizeof options, .layout = layout};
        SUCCEEDS(dcp_save(store, 5, state, json, &options, NULL, err));
        dcp_state_destroy(state);
        dcp_store_close(store);
        load(&s, dir, NULL);
        load(&s, dir, "/loader/*");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return scratch_end(&s);
}
