/* A tensor that all ranks load whole, unchanged and cast: a bit that flips on its way to any of
 * them is detected, on all ranks, even if the rank is not the lowest holder, whose copy counts in
 * the sum of checksums. By messages, and through shared memory. */
#include "comm/comm.h"
#include "format/index.h"
#include "support/scratch.h"

#define ELEMENTS 900

static struct {
    dcp_comm_ops ops;
    const comm_areas *shared; /* NULL: only messages */
    int size, armed;
} network;

/* Flips a bit of the first large message that arrives. */
static int flip(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                const uint64_t *recv_bytes) {
    uint64_t bytes = 0;
    int code = network.ops.alltoall(ctx, send, send_bytes, recv, recv_bytes);
    for (int r = 0; r < network.size; r++) bytes += recv_bytes[r];
    if (network.armed && bytes >= ELEMENTS * sizeof(float)) {
        ((unsigned char *)recv)[bytes / 2] ^= 4;
        network.armed = 0;
    }
    return code;
}

/* Changes a byte of every page that ranks share, which is 0 in floats that are small integers. */
static int flip_shared(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    int code = network.ops.allreduce(ctx, buf, count, op);
    for (size_t area = 0; network.armed && area < network.shared->n; area++)
        for (size_t page = 0; page < network.shared->bytes[area]; page += PAGE_BYTES)
            network.shared->data[area][page + 100] = 4;
    return code;
}

static int load(dcp_comm *comm, const char *dir, const dcp_state *state, dcp_error *failure) {
    dcp_checkpoint *ckpt = NULL;
    SUCCEEDS(dcp_checkpoint_open(comm, dir, &ckpt, err));
    dcp_load_options options = {.size = sizeof options, .cast = 1};
    int status = dcp_load_with(ckpt, state, &options, NULL, failure);
    dcp_checkpoint_close(ckpt);
    return status;
}

static void save(const scratch *s) {
    float data[ELEMENTS];
    dcp_state *state = NULL;
    dcp_tensor t = {"/model/norm", DCP_F32, 1, {ELEMENTS}};
    for (int i = 0; i < ELEMENTS; i++) data[i] = (float)i;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, NULL, data, err));
    dcp_store *store = scratch_store(s, s->comm, "store");
    SUCCEEDS(dcp_save(store, 5, state, NULL, NULL, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);
}

static void flips_are_found(const scratch *s, dcp_dtype as) {
    double data[ELEMENTS], want[ELEMENTS];
    char dir[PATH_MAX];
    dcp_state *state = NULL;
    dcp_tensor t = {"/model/norm", as, 1, {ELEMENTS}};
    for (int i = 0; i < ELEMENTS; i++) want[i] = i;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, NULL, data, err));
    snprintf(dir, sizeof dir, "%s/store", s->root);
    /* the first rank reads, and so receives no message */
    for (int victim = network.shared ? 0 : 1; victim < s->size; victim++) {
        dcp_error failure = {0};
        network.armed = s->rank == victim;
        int status = load(s->comm, dir, state, &failure);
        check_same_failure(status, DCP_ERR_CORRUPT, &failure, "/model/norm");
        CHECK(network.shared || !network.armed);
        network.armed = 0;
        memset(data, 0, sizeof data);
        SUCCEEDS(load(s->comm, dir, state, err));
        CHECK(as != DCP_F64 || !memcmp(data, want, sizeof want));
    }
    dcp_state_destroy(state);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    save(&s);
    dcp_comm_ops group = *s.comm->local.ops;
    network.ops = group;
    network.size = s.size;
    network.shared = &s.comm->local.areas;
    group.allreduce = flip_shared;
    s.comm->local.ops = &group;
    CHECK(s.comm->local.size == s.size); /* ranks on one machine share memory */
    flips_are_found(&s, DCP_F32);
    flips_are_found(&s, DCP_F64);
    struct comm_mpi *mpi = s.comm->mpi;
    network.shared = NULL;
    comm_local_set(&s.comm->local, NULL, NULL, NULL);
    s.comm->mpi = NULL; /* as over a table without messages */
    network.ops = s.comm->ops;
    s.comm->ops.alltoall = flip;
    flips_are_found(&s, DCP_F32);
    flips_are_found(&s, DCP_F64);
    s.comm->mpi = mpi;
    return scratch_end(&s);
}
