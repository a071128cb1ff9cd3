/* MPI's transfers proceed only inside calls of MPI, so poll makes such calls. */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/transport.h"

static MPI_Comm comm_of(const fsdp_transport *t, fsdp_group group) {
    return fsdp_mesh_comm(t->state, group);
}

static void mpi_gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                       fsdp_segments to, fsdp_transfer *out) {
    out->is_on = true;
    const MPI_Datatype element = type == KERNELS_BF16 ? MPI_UINT16_T : MPI_FLOAT;
    const size_t size = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    const MPI_Comm comm = comm_of(t, group);
    int rank;
    MPI_Comm_rank(comm, &rank);
    const char *place = (const char *)to.at + (size_t)to.starts[rank] * size;
    const void *from = own == place ? MPI_IN_PLACE : own;
    MPI_Iallgatherv(from, to.counts[rank], element, to.at, to.counts, to.starts, element, comm,
                    &out->request);
}

static void mpi_exchange(fsdp_transport *t, fsdp_group group, fsdp_segments from, fsdp_segments to,
                         fsdp_transfer *out) {
    out->is_on = true;
    MPI_Ialltoallv(from.at, from.counts, from.starts, MPI_FLOAT, to.at, to.counts, to.starts,
                   MPI_FLOAT, comm_of(t, group), &out->request);
}

static void mpi_reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                               const int *counts, fsdp_transfer *out) {
    out->is_on = true;
    MPI_Ireduce_scatter(from, to, counts, MPI_FLOAT, MPI_SUM, comm_of(t, group), &out->request);
}

static void mpi_all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int n,
                           fsdp_transfer *out) {
    out->is_on = true;
    MPI_Iallreduce(MPI_IN_PLACE, sums, n, MPI_FLOAT, MPI_SUM, comm_of(t, group), &out->request);
}

static void mpi_poll(fsdp_transport *t, fsdp_transfer *transfer) {
    int done;
    (void)t;
    if (transfer->is_on) MPI_Test(&transfer->request, &done, MPI_STATUS_IGNORE);
}

static void mpi_finish(fsdp_transport *t, fsdp_transfer *transfer) {
    (void)t;
    if (transfer->is_on) MPI_Wait(&transfer->request, MPI_STATUS_IGNORE);
    transfer->is_on = false;
}

static void mpi_destroy(fsdp_transport *t) { (void)t; }

fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh) {
    return (fsdp_transport){.name = "mpi",
                            .state = (void *)mesh,
                            .gather = mpi_gather,
                            .exchange = mpi_exchange,
                            .reduce_scatter = mpi_reduce_scatter,
                            .all_reduce = mpi_all_reduce,
                            .poll = mpi_poll,
                            .finish = mpi_finish,
                            .destroy = mpi_destroy};
}

/* MPI for memory that it cannot access, such as a GPU's memory: MPI transfers copies in the host's
 * memory. The data to send are downloaded at the beginning of a transfer, and the data received are
 * uploaded at its end. Each transfer uses reserved, page-locked buffers of its own: the smallest
 * free ones that fit, among the buffers that were reserved for the same use. If none fit, some of
 * them grow. */

/* The use for which a transfer's memory was reserved. No transfer occupies memory that another use
 * will need. */
typedef enum copies_use { UNUSED, GATHERS, REDUCTIONS, CROSSINGS, SPREADS } copies_use;

/* One transfer's memory, and the places on the device that receive its data. */
typedef struct copies {
    copies_use use;
    bool is_on, summed;
    char *from, *to;
    size_t from_bytes, to_bytes; /* capacities */
    size_t size;                 /* of an element */
    int ranks;
    fsdp_segments places; /* where received stretches are stored on the device */
    float *sums; /* if `summed`, in place of `places`: a single stretch of sums_n elements */
    size_t sums_n;
    fsdp_transfer inner;
} copies;

typedef struct host_transport {
    fsdp_transport mpi;
    const fsdp_mesh *mesh;
    kernels *k;
    copies list[FSDP_MAX_TRANSFERS];
} host_transport;

static host_transport *of(fsdp_transport *t) { return t->state; }

static copies_use use_of(fsdp_group group, bool sends) {
    if (group == FSDP_REPLICAS) return sends ? CROSSINGS : SPREADS;
    return sends ? REDUCTIONS : GATHERS;
}

static bool has_from(copies_use use) { return use == REDUCTIONS || use == CROSSINGS; }

static int grow_memory(kernels *k, char **memory, size_t *has, size_t bytes) {
    if (*memory && bytes <= *has) return 0;
    k->free_host(k, *memory);
    *memory = k->alloc_host(k, bytes);
    *has = *memory ? bytes : 0;
    return !*memory;
}

static int fit(host_transport *h, copies *c, copies_use use, size_t sent, size_t received) {
    c->use = use;
    return (has_from(use) && grow_memory(h->k, &c->from, &c->from_bytes, sent)) ||
           grow_memory(h->k, &c->to, &c->to_bytes, received);
}

static bool fits(const copies *c, size_t sent, size_t received) {
    return sent <= c->from_bytes && received <= c->to_bytes;
}

/* Returns true if `a` is better for the transfer than `b`. Both are free; b may be NULL. */
static bool is_better(const copies *a, const copies *b, size_t sent, size_t received) {
    if (!b || !fits(b, sent, received)) return true;
    return fits(a, sent, received) && a->to_bytes < b->to_bytes;
}

/* Begins a transfer in the smallest free memory that fits, or makes some larger. Ends the run if
 * out of memory, as a failure of MPI does, because the run cannot continue. */
static copies *begin_copies(host_transport *h, copies_use use, size_t sent, size_t received,
                            fsdp_transfer *out) {
    copies *best = NULL;
    for (copies *c = h->list; c < h->list + FSDP_MAX_TRANSFERS; c++)
        if (!c->is_on && c->use == use && is_better(c, best, sent, received)) best = c;
    for (copies *c = h->list; c < h->list + FSDP_MAX_TRANSFERS && !best; c++)
        if (c->use == UNUSED) best = c;
    if (!best || fit(h, best, use, sent, received)) MPI_Abort(MPI_COMM_WORLD, 3);
    best->is_on = true;
    best->inner = (fsdp_transfer){0};
    *out = (fsdp_transfer){.is_on = true, .other = best};
    return best;
}

static int host_reserve(fsdp_transport *t, fsdp_group group, size_t sent, size_t received) {
    host_transport *h = of(t);
    copies *c = h->list;
    while (c < h->list + FSDP_MAX_TRANSFERS && c->use != UNUSED) c++;
    if (c == h->list + FSDP_MAX_TRANSFERS) return 1;
    return fit(h, c, use_of(group, sent > 0), sent, received);
}

static int ranks_of(const host_transport *h, fsdp_group group, int *rank) {
    const MPI_Comm comm = fsdp_mesh_comm(h->mesh, group);
    int ranks;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, rank);
    return ranks;
}

/* The number of elements from the beginning to the end of the last stretch. */
static size_t extent(fsdp_segments s, int ranks) {
    size_t end = 0;
    for (int i = 0; i < ranks; i++) {
        const size_t here = s.counts[i] ? (size_t)s.starts[i] + (size_t)s.counts[i] : 0;
        if (here > end) end = here;
    }
    return end;
}

static void host_gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                        fsdp_segments to, fsdp_transfer *out) {
    host_transport *h = of(t);
    const size_t size = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    int rank;
    const int ranks = ranks_of(h, group, &rank);
    copies *c = begin_copies(h, use_of(group, false), 0, extent(to, ranks) * size, out);
    char *place = c->to + (size_t)to.starts[rank] * size;
    const size_t bytes = (size_t)to.counts[rank] * size;
    c->ranks = ranks;
    c->size = size;
    c->places = to;
    c->summed = false;
    if (bytes) h->k->download(h->k, place, own, bytes);
    h->mpi.gather(&h->mpi, group, type, place, (fsdp_segments){c->to, to.counts, to.starts},
                  &c->inner);
}

static void host_exchange(fsdp_transport *t, fsdp_group group, fsdp_segments from, fsdp_segments to,
                          fsdp_transfer *out) {
    host_transport *h = of(t);
    int rank;
    const int ranks = ranks_of(h, group, &rank);
    const size_t bytes = extent(from, ranks) * sizeof(float);
    copies *c = begin_copies(h, use_of(group, true), bytes, extent(to, ranks) * sizeof(float), out);
    c->ranks = ranks;
    c->size = sizeof(float);
    c->places = to;
    c->summed = false;
    if (bytes) h->k->download(h->k, c->from, from.at, bytes);
    h->mpi.exchange(&h->mpi, group, (fsdp_segments){c->from, from.counts, from.starts},
                    (fsdp_segments){c->to, to.counts, to.starts}, &c->inner);
}

static void host_reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                                const int *counts, fsdp_transfer *out) {
    host_transport *h = of(t);
    int rank;
    size_t n = 0;
    const int ranks = ranks_of(h, group, &rank);
    for (int i = 0; i < ranks; i++) n += (size_t)counts[i];
    const size_t own = (size_t)counts[rank];
    copies *c = begin_copies(h, use_of(group, true), n * sizeof(float), own * sizeof(float), out);
    c->summed = true;
    c->sums = to;
    c->sums_n = own;
    if (n) h->k->download(h->k, c->from, from, n * sizeof(float));
    h->mpi.reduce_scatter(&h->mpi, group, (float *)(void *)c->from, (float *)(void *)c->to, counts,
                          &c->inner);
}

static void host_all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int n,
                            fsdp_transfer *out) {
    host_transport *h = of(t);
    const size_t bytes = (size_t)n * sizeof(float);
    copies *c = begin_copies(h, use_of(group, false), 0, bytes, out);
    c->summed = true;
    c->sums = sums;
    c->sums_n = (size_t)n;
    if (n) h->k->download(h->k, c->to, sums, bytes);
    h->mpi.all_reduce(&h->mpi, group, (float *)(void *)c->to, n, &c->inner);
}

static void host_poll(fsdp_transport *t, fsdp_transfer *transfer) {
    host_transport *h = of(t);
    copies *c = transfer->other;
    if (transfer->is_on) h->mpi.poll(&h->mpi, &c->inner);
}

static void upload_copies(kernels *k, const copies *c) {
    if (c->summed && c->sums_n) k->upload(k, c->sums, c->to, c->sums_n * sizeof(float));
    for (int i = 0; i < c->ranks && !c->summed; i++) {
        const size_t at = (size_t)c->places.starts[i] * c->size;
        const size_t bytes = (size_t)c->places.counts[i] * c->size;
        if (bytes) k->upload(k, (char *)c->places.at + at, c->to + at, bytes);
    }
}

static void host_finish(fsdp_transport *t, fsdp_transfer *transfer) {
    host_transport *h = of(t);
    copies *c = transfer->other;
    if (!transfer->is_on) return;
    assert(c->is_on);
    h->mpi.finish(&h->mpi, &c->inner);
    upload_copies(h->k, c);
    c->is_on = false;
    transfer->is_on = false;
}

static void host_destroy(fsdp_transport *t) {
    host_transport *h = of(t);
    for (size_t i = 0; i < FSDP_MAX_TRANSFERS; i++) {
        h->k->free_host(h->k, h->list[i].from);
        h->k->free_host(h->k, h->list[i].to);
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
                            .reserve = host_reserve,
                            .gather = host_gather,
                            .exchange = host_exchange,
                            .reduce_scatter = host_reduce_scatter,
                            .all_reduce = host_all_reduce,
                            .poll = host_poll,
                            .finish = host_finish,
                            .destroy = host_destroy};
    return 0;
}
