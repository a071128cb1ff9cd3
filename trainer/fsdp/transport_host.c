/* MPI between copies on the host of memory that MPI cannot reach: a GPU's. What is sent is
 * downloaded at the beginning, and what came is uploaded at the finish. Each transfer has memory of
 * its own, which is kept for the next one. */
#include <stdlib.h>
#include <string.h>

#include "slots.h"
#include "transport.h"

/* One transfer's memory, and where what comes goes. */
typedef struct copies {
    int summed;
    char *from, *to;
    size_t from_bytes, to_bytes; /* that there is room for */
    size_t size;                 /* of an element */
    int ranks;
    fsdp_stretches places; /* of what comes, on the device */
    float *sums;           /* or one stretch, of sums_n */
    size_t sums_n;
    fsdp_transfer inner;
} copies;

typedef struct host_transport {
    fsdp_transport mpi;
    const fsdp_mesh *mesh;
    kernels *k;
    fsdp_slots taken;
    copies list[FSDP_SLOTS];
} host_transport;

static host_transport *of(fsdp_transport *t) { return t->state; }

/* A run cannot go on without it; as where MPI fails, that ends it. */
static void *room(char **memory, size_t *has, size_t bytes) {
    if (bytes > *has) {
        free(*memory);
        *memory = malloc(bytes);
        *has = bytes;
        if (!*memory) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return *memory;
}

static copies *begin(host_transport *h, fsdp_transfer *out) {
    const int slot = fsdp_slot_take(&h->taken);
    if (slot < 0) MPI_Abort(MPI_COMM_WORLD, 3);
    copies *c = &h->list[slot];
    c->inner = (fsdp_transfer){0};
    *out = (fsdp_transfer){.is_on = 1, .other = c};
    return c;
}

static int ranks_of(const host_transport *h, fsdp_group group, int *rank) {
    const MPI_Comm comms[] = {[FSDP_WORLD] = h->mesh->world,
                              [FSDP_SHARDS] = h->mesh->shards,
                              [FSDP_REPLICAS] = h->mesh->replicas};
    int ranks;
    MPI_Comm_size(comms[group], &ranks);
    MPI_Comm_rank(comms[group], rank);
    return ranks;
}

/* Elements from the beginning to the end of the last stretch. */
static size_t extent(fsdp_stretches s, int ranks) {
    size_t end = 0;
    for (int i = 0; i < ranks; i++) {
        const size_t here = s.counts[i] ? (size_t)s.starts[i] + (size_t)s.counts[i] : 0;
        if (here > end) end = here;
    }
    return end;
}

static void gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                   fsdp_stretches to, fsdp_transfer *out) {
    host_transport *h = of(t);
    copies *c = begin(h, out);
    int rank;
    c->ranks = ranks_of(h, group, &rank);
    c->size = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    c->places = to;
    c->summed = 0;
    char *host = room(&c->to, &c->to_bytes, extent(to, c->ranks) * c->size + 1);
    char *place = host + (size_t)to.starts[rank] * c->size;
    const size_t bytes = (size_t)to.counts[rank] * c->size;
    if (bytes) h->k->download(h->k, place, own, bytes);
    h->mpi.gather(&h->mpi, group, type, place, (fsdp_stretches){host, to.counts, to.starts},
                  &c->inner);
}

static void exchange(fsdp_transport *t, fsdp_group group, fsdp_stretches from, fsdp_stretches to,
                     fsdp_transfer *out) {
    host_transport *h = of(t);
    copies *c = begin(h, out);
    int rank;
    c->ranks = ranks_of(h, group, &rank);
    c->size = sizeof(float);
    c->places = to;
    c->summed = 0;
    const size_t bytes = extent(from, c->ranks) * c->size;
    char *sent = room(&c->from, &c->from_bytes, bytes + 1);
    char *host = room(&c->to, &c->to_bytes, extent(to, c->ranks) * c->size + 1);
    if (bytes) h->k->download(h->k, sent, from.at, bytes);
    h->mpi.exchange(&h->mpi, group, (fsdp_stretches){sent, from.counts, from.starts},
                    (fsdp_stretches){host, to.counts, to.starts}, &c->inner);
}

static void reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                           const int *counts, fsdp_transfer *out) {
    host_transport *h = of(t);
    copies *c = begin(h, out);
    int rank;
    size_t n = 0;
    c->ranks = ranks_of(h, group, &rank);
    for (int i = 0; i < c->ranks; i++) n += (size_t)counts[i];
    c->summed = 1;
    c->sums = to;
    c->sums_n = (size_t)counts[rank];
    char *sent = room(&c->from, &c->from_bytes, n * sizeof(float) + 1);
    char *host = room(&c->to, &c->to_bytes, c->sums_n * sizeof(float) + 1);
    if (n) h->k->download(h->k, sent, from, n * sizeof(float));
    h->mpi.reduce_scatter(&h->mpi, group, (float *)(void *)sent, (float *)(void *)host, counts,
                          &c->inner);
}

static void all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int n,
                       fsdp_transfer *out) {
    host_transport *h = of(t);
    copies *c = begin(h, out);
    c->summed = 1;
    c->sums = sums;
    c->sums_n = (size_t)n;
    char *host = room(&c->to, &c->to_bytes, c->sums_n * sizeof(float) + 1);
    if (n) h->k->download(h->k, host, sums, c->sums_n * sizeof(float));
    h->mpi.all_reduce(&h->mpi, group, (float *)(void *)host, n, &c->inner);
}

static void poll(fsdp_transport *t, fsdp_transfer *transfer) {
    host_transport *h = of(t);
    copies *c = transfer->other;
    if (transfer->is_on) h->mpi.poll(&h->mpi, &c->inner);
}

static void upload(kernels *k, const copies *c) {
    if (c->summed && c->sums_n) k->upload(k, c->sums, c->to, c->sums_n * sizeof(float));
    for (int i = 0; i < c->ranks && !c->summed; i++) {
        const size_t at = (size_t)c->places.starts[i] * c->size;
        const size_t bytes = (size_t)c->places.counts[i] * c->size;
        if (bytes) k->upload(k, (char *)c->places.at + at, c->to + at, bytes);
    }
}

static void finish(fsdp_transport *t, fsdp_transfer *transfer) {
    host_transport *h = of(t);
    copies *c = transfer->other;
    if (!transfer->is_on) return;
    h->mpi.finish(&h->mpi, &c->inner);
    upload(h->k, c);
    fsdp_slot_free(&h->taken, c - h->list);
    transfer->is_on = 0;
}

static void destroy(fsdp_transport *t) {
    host_transport *h = of(t);
    for (size_t i = 0; i < FSDP_SLOTS; i++) {
        free(h->list[i].from);
        free(h->list[i].to);
    }
    free(h);
}

int fsdp_transport_host(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out) {
    host_transport *h = calloc(1, sizeof *h);
    if (!h) return 1;
    h->mpi = fsdp_transport_mpi(mesh);
    h->mesh = mesh;
    h->k = k;
    *out = (fsdp_transport){.name = "mpi, by copies on the host",
                            .state = h,
                            .gather = gather,
                            .exchange = exchange,
                            .reduce_scatter = reduce_scatter,
                            .all_reduce = all_reduce,
                            .poll = poll,
                            .finish = finish,
                            .destroy = destroy};
    return 0;
}
