/* fsdp_nccl MODE: the transport over NCCL, on a stand-in for its streams and messages (streams.h).
 * "works": bytes arrive, no two communicators are at work on two streams, each transfer comes after
 * the kernels that were given before it and before those that are given after it; what is rounded
 * in flight is; sums are right, and connected before the first one where they are wanted; NCCL is
 * chosen where each rank has a GPU of its own, by whatever number it sees that. "error", "silent"
 * and "stuck": the run ends with status 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/nccl.h"
#include "fsdp/transport.h"
#include "streams.h"
#include "support/check.h"

enum { ROUNDS = 6, MOST = 5, MOST_RANKS = 4, FLIGHTS = 3 };

static const char *device_text;
static const char *device(const kernels *k) {
    (void)k;
    return device_text;
}
static int place(const kernels *k, void **stream) {
    (void)k;
    *stream = streams_kernels();
    return 0; /* of all ranks: each sees one GPU */
}
static void *take(kernels *k, size_t bytes) {
    (void)k;
    return calloc(1, bytes);
}
static void give_back(kernels *k, void *memory) {
    (void)k;
    free(memory);
}
typedef struct rounding {
    uint16_t *to;
    const float *from;
    size_t n;
} rounding;

static int narrow_now(void *ctx) {
    rounding *r = ctx;
    for (size_t i = 0; i < r->n; i++) memcpy(r->to + i, (const char *)(r->from + i) + 2, 2);
    free(r);
    return 1;
}
static void narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n) {
    rounding *r = malloc(sizeof *r);
    CHECK(r && stream != streams_kernels()); /* they do not wait for it */
    (void)k;
    *r = (rounding){y, x, n};
    streams_give(stream, narrow_now, r);
}

static kernels stand_in = {.name = "streams",
                           .place = place,
                           .device = device,
                           .alloc = take,
                           .free = give_back,
                           .narrow_on = narrow_on,
                           .alloc_host = take,
                           .free_host = give_back};

static fsdp_mesh mesh;
static int rank, world;

static float value(int round, int from, int to) {
    return (float)(10000 * round + 100 * from + 10 * to);
}

/* Counts differ between ranks, and one is 0. */
static void stretches(int *counts, int *starts, int ranks) {
    for (int r = 0, at = 0; r < ranks; at += counts[r++]) {
        counts[r] = (r + 1) % MOST;
        starts[r] = at;
    }
}

/* Several gathers at once, again and again in the same memory; own: beside it, or at its place. */
static void gather_rounds(fsdp_transport *t, fsdp_group group, MPI_Comm comm, int in_place) {
    static float own[FLIGHTS][MOST], all[FLIGHTS][MOST * MOST_RANKS];
    int counts[MOST_RANKS], starts[MOST_RANKS], me, ranks;
    fsdp_transfer transfers[FLIGHTS];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    stretches(counts, starts, ranks);
    for (int round = 0; round < ROUNDS; round++) {
        for (int f = 0; f < FLIGHTS; f++) {
            float *from = in_place ? all[f] + starts[me] : own[f];
            streams_write(from, (size_t)counts[me], value(round, me, f));
            t->gather(t, group, KERNELS_F32, from, (fsdp_segments){all[f], counts, starts},
                      &transfers[f]);
        }
        for (int f = FLIGHTS; f-- > 0;) {
            t->finish(t, &transfers[f]);
            for (int r = 0; r < ranks; r++)
                streams_check(all[f] + starts[r], (size_t)counts[r], value(round, r, f));
        }
    }
}

/* From the host's memory, in pieces of two elements, one rank's stretch after the other. */
static void narrow_rounds(fsdp_transport *t, fsdp_group group, MPI_Comm comm) {
    static float own[MOST], between[2];
    static uint16_t all[MOST * MOST_RANKS];
    int counts[MOST_RANKS], starts[MOST_RANKS], me, ranks;
    fsdp_transfer transfer;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    stretches(counts, starts, ranks);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MOST; i++) own[i] = value(round, me, i);
        t->narrow(t, all + starts[me], own, (size_t)counts[me], between, 2);
        t->gather(t, group, KERNELS_BF16, all + starts[me], (fsdp_segments){all, counts, starts},
                  &transfer);
        t->finish(t, &transfer);
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < counts[r]; i++) {
                const float sent = value(round, r, i);
                CHECK(memcmp(all + starts[r] + i, (const char *)&sent + 2, 2) == 0);
            }
    }
}

static void exchange_rounds(fsdp_transport *t) {
    static float from[MOST * MOST_RANKS], to[MOST * MOST_RANKS];
    int counts[MOST_RANKS], starts[MOST_RANKS], mine[MOST_RANKS], places[MOST_RANKS];
    fsdp_transfer transfer;
    stretches(counts, starts, world);
    for (int r = 0; r < world; r++) {
        mine[r] = counts[rank];
        places[r] = r * counts[rank];
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r < world; r++)
            streams_write(from + starts[r], (size_t)counts[r], value(round, rank, r));
        t->exchange(t, FSDP_WORLD, (fsdp_segments){from, counts, starts},
                    (fsdp_segments){to, mine, places}, &transfer);
        t->poll(t, &transfer);
        t->finish(t, &transfer);
        for (int r = 0; r < world; r++)
            streams_check(to + places[r], (size_t)mine[r], value(round, r, rank));
    }
}

/* Rank i's floats for a sum, and what n ranks' add up to: both are counted up from one place. */
static float addend(int round, int from) { return (float)(100 * round + 10 * from); }
static float added(int round, int ranks) {
    float sum = 0;
    for (int i = 0; i < ranks; i++) sum += addend(round, i);
    return sum;
}

/* One float a rank, so that a sum can be checked as a stretch that is counted up. */
static void sum_rounds(fsdp_transport *t, fsdp_group group, MPI_Comm comm) {
    static float from[MOST_RANKS], to[1], all[1];
    int counts[MOST_RANKS], me, ranks;
    fsdp_transfer scattered, reduced;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    for (int r = 0; r < ranks; r++) counts[r] = r != 1; /* that rank's stretch is empty */
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n = (size_t)(ranks > 1 ? ranks - 1 : 1);
        streams_write(from, n, addend(round, me));
        streams_write(all, 1, addend(round, me));
        t->reduce_scatter(t, group, from, to, counts, &scattered);
        t->all_reduce(t, group, all, 1, &reduced);
        t->finish(t, &reduced);
        t->finish(t, &scattered);
        const int place = me > 1 ? me - 1 : me; /* of this rank's stretch in `from` */
        streams_check(to, (size_t)counts[me], added(round, ranks) + (float)(ranks * place));
        streams_check(all, 1, added(round, ranks));
    }
}

static int is_nccl(const char *text, int version, const char *allowed) {
    fsdp_transport t = {0};
    device_text = text;
    streams_version = version;
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", allowed, 1);
    CHECK(fsdp_transport_choose(&mesh, &stand_in, 0, &t) == 0);
    const int is = strcmp(t.name, "nccl") == 0;
    t.destroy(&t);
    return is;
}

static void check_choice(const char *own) {
    CHECK(is_nccl(own, NCCL_VERSION(2, 20, 0), "0"));
    CHECK(is_nccl("0000:01:00.0", NCCL_VERSION(2, 28, 0), "1") == (world == 1));
    CHECK(is_nccl("0000:01:00.0", NCCL_VERSION(2, 30, 0), "0") == (world == 1));
    CHECK(is_nccl("0000:01:00.0", NCCL_VERSION(2, 30, 0), "1"));
    CHECK((streams_loaded == 0) == (world == 1));
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"works", "error", "silent", "stuck"};
    char own[32];
    fsdp_transport t;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    fsdp_mesh_create(MPI_COMM_WORLD, world == 4 ? 2 : 1, &mesh);
    streams_n_comms = world == 4 ? 3 : 1; /* groups of all ranks have one together */
    streams_comms[0] = mesh.world;
    streams_comms[1] = mesh.shards;
    streams_comms[2] = mesh.replicas;
    snprintf(own, sizeof own, "0000:%02x:00.0", rank);
    check_choice(own);
    device_text = own;
    CHECK(streams_sums == 0);
    CHECK(fsdp_transport_nccl(&mesh, &stand_in, 0, 1, &t) == 0);
    CHECK((streams_sums > 0) == (world > 1));
    for (int i = 0; i < 4; i++)
        if (strcmp(argv[argc - 1], modes[i]) == 0) streams_fault_now = (streams_fault)i;
    for (int in_place = 0; in_place < 2; in_place++) {
        gather_rounds(&t, FSDP_WORLD, mesh.world, in_place);
        gather_rounds(&t, FSDP_SHARDS, mesh.shards, in_place);
        gather_rounds(&t, FSDP_REPLICAS, mesh.replicas, in_place);
    }
    narrow_rounds(&t, FSDP_WORLD, mesh.world);
    narrow_rounds(&t, FSDP_SHARDS, mesh.shards);
    exchange_rounds(&t);
    sum_rounds(&t, FSDP_WORLD, mesh.world);
    sum_rounds(&t, FSDP_SHARDS, mesh.shards);
    sum_rounds(&t, FSDP_REPLICAS, mesh.replicas);
    CHECK(streams_drain() == 0);
    streams_aborted = 0;
    t.destroy(&t);
    CHECK(streams_aborted == (world == 1 ? 0 : streams_n_comms));
    fsdp_mesh_free(&mesh);
    MPI_Finalize();
    return 0;
}
