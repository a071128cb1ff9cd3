/* Ranks that hold the same boxes share the writing of layout global: each byte is written once and
 * supplied by one holder, and with plain data parallelism, or with two replicas of shards, no rank
 * writes more than a tenth above the mean. With small boxes, too, no holder supplies all. If the
 * lowest holder's bytes are requested, it supplies them alone. */
#include "support/requests.h"
#include "support/scratch.h"

enum { LARGE = 3, SMALL = 300, ROW_BYTES = 64 << 10 };

typedef struct shape_of_run {
    int shards;           /* of each tensor; the rest of the ranks are replicas */
    size_t tensors, rows; /* of each tensor */
} shape_of_run;

static uint64_t supplied; /* bytes that were requested from this rank's sources */

static int make_bytes(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)ctx, (void)offset, (void)err;
    memset(out, 7, bytes);
    supplied += bytes;
    return DCP_OK;
}

/* Returns the bytes of all tensors. */
static uint64_t fill(const scratch *s, const shape_of_run *r, dcp_state *state) {
    const uint64_t shard = (uint64_t)(s->rank % r->shards), rows = r->rows / (uint64_t)r->shards;
    for (size_t i = 0; i < r->tensors; i++) {
        char path[40];
        snprintf(path, sizeof path, "/model/t%zu", i);
        const dcp_tensor t = {path, DCP_U8, 2, {r->rows, ROW_BYTES}};
        const dcp_box box = {{shard * rows, 0}, {rows, ROW_BYTES}};
        SUCCEEDS(dcp_state_add_source(state, &t, &box, make_bytes, NULL, -1, err));
    }
    return r->tensors * r->rows * ROW_BYTES;
}

/* Returns how uneven the work of writing was, or for small tensors that of supplying. */
static double save(const scratch *s, const shape_of_run *r, dcp_replicas replicas) {
    const dcp_save_options options = {.size = sizeof options, .replicas = replicas};
    dcp_state *state;
    SUCCEEDS(dcp_state_create(&state, err));
    uint64_t bytes = fill(s, r, state), all;
    dcp_store *store = scratch_store(s, s->comm, "share");
    requests_clear(&requests_written);
    supplied = 0;
    SUCCEEDS(dcp_save(store, 1, state, NULL, &options, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);
    MPI_Allreduce(&supplied, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all ==
          (replicas == DCP_REPLICAS_TRUST ? bytes : bytes * (uint64_t)(s->size / r->shards)));
    request_list written = requests_gather(&requests_written);
    CHECK(requests_repeated(&written) == 0);
    CHECK(s->rank || (written.bytes >= bytes && written.bytes < bytes + (1 << 20)));
    requests_clear(&written);
    return requests_unevenness(r->rows > 64 ? requests_written.bytes : supplied);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    const int half = s.size / 2;
    const shape_of_run copies = {1, LARGE, 2400}, pairs = {half, LARGE, 2400},
                       small = {1, SMALL, 4};
    requests_are_dropped = 1;
    CHECK(save(&s, &copies, DCP_REPLICAS_TRUST) <= 1.1);
    CHECK(save(&s, &copies, DCP_REPLICAS_CHECK) <= 1.1);
    CHECK(save(&s, &pairs, DCP_REPLICAS_TRUST) <= 1.1);
    CHECK(save(&s, &small, DCP_REPLICAS_TRUST) <= 1.3);
    CHECK(save(&s, &copies, DCP_REPLICAS_WARN) > s.size - 0.1);
    requests_clear(&requests_written);
    return scratch_end(&s);
}
