#include "world.h"

#include <string.h>

#include "core/bytes.h"

enum { CANNOT_ANSWER = 1, WRONG_SIZE = 2, TOO_MANY = 3 };

static int broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    world *w = ctx;
    if (root) return 0; /* a failure of the rank that runs */
    int i = w->n_said++;
    if (i == (int)(sizeof w->said / sizeof *w->said)) return TOO_MANY;
    if (w->rank) {
        if (!w->said[i]) return CANNOT_ANSWER;
        memcpy(buf, w->said[i], bytes);
        return 0;
    }
    free(w->said[i]);
    w->said[i] = malloc(bytes);
    NEED(w->said[i]);
    memcpy(w->said[i], buf, bytes);
    return 0;
}

/* All ranks say the same; of checksums that a move's end joins, the rank's own will do. */
static int allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    (void)ctx, (void)buf, (void)count, (void)op;
    return 0;
}

static int gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    (void)ctx, (void)send, (void)bytes, (void)recv, (void)root;
    return CANNOT_ANSWER;
}

static int barrier(void *ctx) {
    (void)ctx;
    return 0;
}

static void record(world *w, letter *l, const unsigned char *send, const uint64_t *bytes) {
    uint64_t total = 0;
    for (int s = 0; s < w->n_sample; s++) total += bytes[w->sample[s]];
    l->data = malloc(total + 1);
    l->starts = malloc(((size_t)w->n_sample + 1) * sizeof *l->starts);
    NEED(l->data && l->starts);
    uint64_t at = 0;
    int s = 0;
    for (int r = 0; r < w->size && s < w->n_sample; send += bytes[r++]) {
        if (r != w->sample[s]) continue;
        l->starts[s++] = at;
        if (bytes[r]) memcpy(l->data + at, send, bytes[r]);
        at += bytes[r];
    }
    l->starts[s] = at;
}

/* To ranks outside the sample nothing is sent. */
static int answer(const world *w, const letter *letters, unsigned char *recv,
                  const uint64_t *bytes) {
    int s = 0;
    while (s < w->n_sample && w->sample[s] != w->rank) s++;
    if (s == w->n_sample) {
        for (int r = 0; r < w->size; recv += bytes[r++]) memset(recv, 0, bytes[r]);
        return 0;
    }
    for (int r = 0; r < w->size; recv += bytes[r++]) {
        const letter *l = &letters[r];
        if (l->starts[s + 1] - l->starts[s] != bytes[r]) return WRONG_SIZE;
        if (bytes[r]) memcpy(recv, l->data + l->starts[s], bytes[r]);
    }
    return 0;
}

/* Where only a sample runs: the homes' verdict on each box, which is that its holder keeps it. */
static void answer_kept(const world *w, unsigned char *recv, const uint64_t *bytes) {
    uint64_t total = 0;
    for (int r = 0; r < w->size; r++) total += bytes[r];
    for (uint64_t at = 0; at < total; at += 4) core_put_u32(recv + at, 2 * (uint32_t)w->rank + 1);
}

static int alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes) {
    world *w = ctx;
    int call = w->calls++;
    if (call < w->recorded) return answer(w, w->letters[call], recv, recv_bytes);
    if (!w->recording && w->n_sample < w->size) {
        answer_kept(w, recv, recv_bytes);
        return 0;
    }
    if (!w->recording || call == WORLD_LETTERS) return TOO_MANY;
    record(w, &w->letters[call][w->rank], send, send_bytes);
    return CANNOT_ANSWER;
}

void world_make(world *w, int size, const int *sample, int n_sample) {
    *w = (world){.size = size, .sample = sample, .n_sample = n_sample};
    for (int i = 0; i < WORLD_LETTERS; i++) {
        w->letters[i] = calloc((size_t)size, sizeof *w->letters[i]);
        NEED(w->letters[i]);
    }
}

void world_free(world *w) {
    for (int i = 0; i < WORLD_LETTERS; i++) {
        for (int r = 0; r < w->size; r++) {
            free(w->letters[i][r].data);
            free(w->letters[i][r].starts);
        }
        free(w->letters[i]);
    }
    for (size_t i = 0; i < sizeof w->said / sizeof *w->said; i++) free(w->said[i]);
}

dcp_comm *world_run(world *w, int rank) {
    static const dcp_comm_ops ops = {.size = sizeof(dcp_comm_ops),
                                     .broadcast = broadcast,
                                     .allreduce = allreduce,
                                     .gather = gather,
                                     .alltoall = alltoall,
                                     .barrier = barrier};
    dcp_comm *comm = NULL;
    w->rank = rank;
    w->calls = w->n_said = 0;
    NEED(dcp_comm_from_ops(&ops, w, rank, w->size, &comm, NULL) == DCP_OK);
    return comm;
}

void world_recorded(world *w) { w->recorded++; }
