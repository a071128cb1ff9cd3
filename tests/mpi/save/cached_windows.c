/* A store keeps with its plan which windows a save moves, and which ranks exchange what. If the
 * ranks' hosts, the communicator or the way in which holders of a box share its writing change
 * between saves, or a save has failed, each save still writes what was passed, and each byte
 * once. */
#include "support/requests.h"
#include "support/scratch.h"

/* A tensor in two halves, of short runs, which several ranks hold; several turns (move/piece.h) and
 * domains long. */
enum { ROWS_OF = 48, ROW_BYTES = 256 << 10, HALF_BYTES = ROW_BYTES / 2 };

static const dcp_tensor tensor = {"/model/t", DCP_U8, 2, {ROWS_OF, ROW_BYTES}};
static int halves[] = {0, 1};
static uint64_t step;
static int fails; /* whether sources do */

static unsigned char byte_at(uint64_t offset) {
    return (unsigned char)(offset * 7 + offset / 4096 + offset / ROW_BYTES);
}

static int make_bytes(void *half, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    unsigned char *to = out;
    for (uint64_t i = offset; i < offset + bytes; i++)
        *to++ = byte_at(i / HALF_BYTES * ROW_BYTES + (uint64_t)(*(int *)half * HALF_BYTES) +
                        i % HALF_BYTES);
    if (!fails) return DCP_OK;
    snprintf(err->message, sizeof err->message, "no bytes");
    return DCP_ERR_IO;
}

static dcp_state *make_state(const scratch *s) {
    dcp_state *state;
    SUCCEEDS(dcp_state_create(&state, err));
    for (int half = 0; half < 2; half++) {
        const dcp_box box = {{0, (uint64_t)half * HALF_BYTES}, {ROWS_OF, HALF_BYTES}};
        if (s->size == 2 || s->rank % 2 == half)
            SUCCEEDS(
                dcp_state_add_source(state, &tensor, &box, make_bytes, &halves[half], -1, err));
    }
    return state;
}

static int save(dcp_store *store, const dcp_state *state, dcp_replicas replicas, int is_async) {
    const dcp_save_options options = {.size = sizeof options, .replicas = replicas};
    dcp_saving *saving;
    if (!is_async) return dcp_save(store, ++step, state, NULL, &options, NULL, NULL);
    int status = dcp_save_async(store, ++step, state, NULL, &options, &saving, NULL);
    return status ? status : dcp_save_wait(saving, NULL, NULL);
}

static void load(const scratch *s) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt;
    dcp_state *state;
    const uint64_t bytes = (uint64_t)ROWS_OF * ROW_BYTES;
    const dcp_box all = {{0, 0}, {ROWS_OF, ROW_BYTES}};
    unsigned char *data = calloc(bytes, 1);
    snprintf(dir, sizeof dir, "%s/store/step-%08d", s->root, (int)step);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &tensor, &all, data, err));
    SUCCEEDS(dcp_load(ckpt, state, NULL, err));
    uint64_t same = 0;
    while (same < bytes && data[same] == byte_at(same)) same++;
    CHECK(same == bytes);
    dcp_state_destroy(state);
    dcp_checkpoint_close(ckpt);
    free(data);
}

static void save_and_load(const scratch *s, dcp_store *store, const dcp_state *state,
                          dcp_replicas replicas, int is_async) {
    requests_clear(&requests_written);
    CHECK(save(store, state, replicas, is_async) == DCP_OK);
    request_list written = requests_gather(&requests_written);
    CHECK(requests_repeated(&written) == 0);
    requests_clear(&written);
    load(s);
}

/* Alternates saves that can use the previous windows with saves that cannot. */
static void save_in_turn(const scratch *s, dcp_store *store, const dcp_state *state) {
    for (int is_async = 0; is_async < 2; is_async++) {
        save_and_load(s, store, state, DCP_REPLICAS_CHECK, is_async);
        save_and_load(s, store, state, DCP_REPLICAS_TRUST, is_async);
        save_and_load(s, store, state, DCP_REPLICAS_WARN, is_async);
        fails = s->rank == s->size - 1;
        CHECK(save(store, state, DCP_REPLICAS_CHECK, is_async) != DCP_OK);
        fails = 0;
        save_and_load(s, store, state, DCP_REPLICAS_CHECK, is_async);
    }
}

int main(int argc, char **argv) {
    scratch s;
    char host[16];
    scratch_begin(&s, &argc, &argv);
    dcp_store *store = scratch_store(&s, s.comm, "store");
    dcp_state *state = make_state(&s);
    save_in_turn(&s, store, state);
    snprintf(host, sizeof host, "host%d", s.rank % 2);
    SUCCEEDS(dcp_comm_set_host(s.comm, host, err));
    save_in_turn(&s, store, state);
    snprintf(host, sizeof host, "host%d", s.rank / 2);
    SUCCEEDS(dcp_comm_set_host(s.comm, host, err));
    save_in_turn(&s, store, state);
    SUCCEEDS(dcp_comm_set_host(s.comm, NULL, err));
    save_in_turn(&s, store, state);
    dcp_store_close(store);
    dcp_state_destroy(state);
    return scratch_end(&s);
}
